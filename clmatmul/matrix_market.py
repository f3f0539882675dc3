"""Matrix Market, .mtx and .mtx.gz: read and written by scipy, after the header was checked."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from typing import BinaryIO

import numpy as np

from clmatmul import matrix_sources as sources
from clmatmul.errors import MatrixFileError
from clmatmul.matrix_elements import shown
from clmatmul.matrix_sources import CHUNK_BYTES, Bounds, first_line

_MAX_LINE_BYTES = 10_000  # of the comments and the sizes before the elements


def read_matrix_market(
    stream: BinaryIO, name: str, bounds: Bounds, size: int, compressed: bool
) -> np.ndarray:
    """Read by scipy.io.mmread, after its header: format, sizes and the bytes that must follow.

    The format is https://math.nist.gov/MatrixMarket/formats.html.
    """
    mmread = scipy_io(name).mmread
    if compressed:
        data = _decompressed(stream, name, size)
        stream, size = io.BytesIO(data), len(data)
    if size > sources.MAX_TEXT_BYTES:
        raise MatrixFileError(
            f"{name}: {size} bytes, more than {sources.MAX_TEXT_BYTES}, the limit"
        )
    _check_matrix_market(stream, name, bounds, size)
    stream.seek(0)
    try:
        matrix = mmread(stream)
        return np.ascontiguousarray(matrix if isinstance(matrix, np.ndarray) else matrix.toarray())
    except (ValueError, OverflowError, TypeError, IndexError) as error:
        raise MatrixFileError(f"{name}: {first_line(error)}") from None


def scipy_io(name: str):
    try:
        import scipy.io
    except ImportError:
        raise MatrixFileError(
            f"{name}: Matrix Market files need scipy: pip install 'clmatmul[files]'"
        ) from None
    return scipy.io


def _decompressed(stream: BinaryIO, name: str, size: int) -> bytes:
    data = bytearray()
    try:
        with gzip.GzipFile(fileobj=stream) as text:
            while chunk := text.read(CHUNK_BYTES):
                data += chunk
                if len(data) > sources.MAX_TEXT_BYTES:
                    raise MatrixFileError(
                        f"{name}: decompressed, more than {sources.MAX_TEXT_BYTES} bytes"
                    )
                if len(data) > max(sources.HARMLESS_BYTES, size * sources.MAX_COMPRESSION_RATIO):
                    raise MatrixFileError(
                        f"{name}: grows more than {sources.MAX_COMPRESSION_RATIO} times when "
                        "decompressed, the limit"
                    )
    except (zlib.error, EOFError, OSError) as error:
        raise MatrixFileError(f"{name}: damaged: {first_line(error)}") from None
    return bytes(data)


def _check_matrix_market(stream: BinaryIO, name: str, bounds: Bounds, size: int) -> None:
    """Refuse what the first lines say is no matrix, too large, or more than the file can hold."""
    banner = stream.readline(1024).decode("latin-1").lower().split()
    if len(banner) != 5 or banner[0] != "%%matrixmarket":
        raise MatrixFileError(
            f"{name}, line 1: not '%%MatrixMarket matrix coordinate real general' or the like"
        )
    _, kind, layout, field, symmetry = banner
    allowed = (
        (kind, ("matrix",)),
        (layout, ("array", "coordinate")),
        (field, ("real", "double", "complex", "integer", "unsigned-integer", "pattern")),
        (symmetry, ("general", "symmetric", "skew-symmetric", "hermitian")),
    )
    for word, words in allowed:
        if word not in words:
            raise MatrixFileError(f"{name}, line 1: {shown(word)} is none of {', '.join(words)}")
    if layout == "array" and field == "pattern":
        raise MatrixFileError(f"{name}, line 1: a pattern must be of kind coordinate, not array")
    number, sizes = _size_line(stream, name, 2 if layout == "array" else 3)
    rows, columns = sizes[:2]
    if symmetry != "general" and rows != columns:
        raise MatrixFileError(f"{name}, line {number}: {symmetry}, but {rows} x {columns}")
    bounds.check(name, (rows, columns), bounds.expanded if layout == "coordinate" else None)
    lines = sizes[2] if layout == "coordinate" else rows * columns
    if layout == "array" and symmetry != "general":
        lines = rows * (rows + (-1 if symmetry == "skew-symmetric" else 1)) // 2
    bounds.check(name, (lines,))
    # The shortest lines are "1", "1 1" and "1 1 1", with their ends; complex has one more number.
    numbers = (0 if field == "pattern" else 1 + (field == "complex")) + 2 * (layout != "array")
    if lines * 2 * numbers > size - stream.tell() + 1:
        raise MatrixFileError(f"{name}: cut short: {lines} elements cannot be in {size} bytes")


def _size_line(stream: BinaryIO, name: str, count: int) -> tuple[int, list[int]]:
    number = 1
    while line := stream.readline(_MAX_LINE_BYTES):
        number += 1
        text = line.decode("latin-1").strip()
        if text and not text.startswith("%"):
            words = text.split()
            if len(words) != count or not all(re.fullmatch("[0-9]{1,18}", word) for word in words):
                wanted = "rows, columns" + (", entries" if count == 3 else "")
                raise MatrixFileError(f"{name}, line {number}: {shown(text)} is not: {wanted}")
            return number, [int(word) for word in words]
    raise MatrixFileError(f"{name}: cut short: no line with the sizes")


def write_matrix_market(
    stream: BinaryIO, array: np.ndarray, name: str, *, compressed: bool
) -> None:
    mmwrite = scipy_io(name).mmwrite
    array = array.reshape(-1, 1) if array.ndim < 2 else array
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    elif array.dtype.kind in "fc":
        array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    text = io.BytesIO()  # mmwrite may close what it writes to
    mmwrite(text, array, symmetry="general")
    data = text.getvalue()
    # Without the time and name that gzip adds, equal matrices give equal files.
    stream.write(gzip.compress(data, 6, mtime=0) if compressed else data)
