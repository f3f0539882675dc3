"""Matrices in files: read, and written whole or not at all.

    .npy .npz             NumPy's formats, never with pickled objects
    .csv .tsv .txt        text, a row a line; `-` is standard input or output
    .mtx .mtx.gz          Matrix Market, through scipy (the extra clmatmul[files])
    "1 4; 2 5; 3 6"       a matrix written out

Sizes are checked against the bounds of matrix_sources.py before memory is taken for them, and
against the bytes that are really there: a header is only a promise. Every error is a
MatrixFileError of one line.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from clmatmul import matrix_sources as sources
from clmatmul.errors import MatrixFileError
from clmatmul.matrix_elements import shown
from clmatmul.matrix_market import read_matrix_market
from clmatmul.matrix_npy import NPY_MAGIC, read_npy, read_npz
from clmatmul.matrix_sources import (
    SUFFIXES,
    TEXT_SUFFIXES,
    Bounds,
    read_growing,
    shown_path,
    split_member,
    suffix_of,
)
from clmatmul.matrix_terminal import format_matrix, prompt_matrix
from clmatmul.matrix_text import MAX_LINE_CHARACTERS, TextOptions, parse_inline, parse_lines
from clmatmul.matrix_write import check_writable_target, write_matrix

__all__ = [
    "check_writable_target",
    "format_matrix",
    "prompt_matrix",
    "read_matrix",
    "write_matrix",
]

_FOREIGN_MAGIC = {
    NPY_MAGIC: "a NumPy array: its name should end in .npy",
    b"PK\x03\x04": "a zip archive (.npz or a spreadsheet)",
    b"\x1f\x8b": "compressed by gzip",
    b"\x89HDF": "HDF5 (MATLAB 7.3 or h5py)",
}


# --- which kind of source -------------------------------------------------------------------


def read_matrix(
    source: str | os.PathLike,
    *,
    key: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    index: bool | None = None,
    stdin=None,
    dtype=None,
    max_elements: int | None = None,
) -> np.ndarray:
    """The matrix in a file, in standard input or in the text itself.

    source: what names an existing file, ends in a known suffix or has a path separator is a file;
        `file.npz:name` is an array in one; `-` is standard input (text, .npy or Matrix Market,
        told by its first bytes); anything else is rows of numbers, "1 4; 2 5; 3 6".
    key: which array of an .npz; not needed if it has only one.
    delimiter, header, index: how to read text (matrix_text.TextOptions); None finds out.
    stdin: a stream to read in place of standard input, binary or text.
    dtype: what to convert to; None keeps what the source has. Only rounding is allowed: a complex
        number that is not real, a real number that is no integer, or one that is out of range is
        refused.
    max_elements: the most elements; by default MAX_ELEMENTS, and MAX_EXPANDED_ELEMENTS for sparse
        files.

    Returns an array that the caller owns, in the machine's byte order. From .npy and .npz: any
    number of dimensions from 1, the dtype and memory order of the file (bool, integers, floats,
    complex). From text: 2-D, C order, int64 (uint64 if only that fits), float64, complex128 or
    bool. From Matrix Market: 2-D and dense, int64 (or uint64), float64 or complex128; a pattern
    gives ones; symmetric parts are filled in; entries of a sparse file at one place are summed;
    scipy drops the sign of zeros.

    Raises MatrixFileError, one line: no such file, a folder, no permission, empty, unknown suffix,
    malformed (file, line, element), cut short, too large, Python objects in it, scipy missing.
    """
    only_a_file = not isinstance(source, str)  # a pathlib.Path
    source = os.fsdecode(os.fspath(source))
    path, part = split_member(source)
    limit = sources.MAX_ELEMENTS if max_elements is None else max_elements
    bounds = Bounds(limit, sources.MAX_EXPANDED_ELEMENTS if max_elements is None else max_elements)
    options = TextOptions(delimiter, header, index)
    key = _one_key(key, part, source)
    name = shown_path(path)
    try:
        if source == "-":
            name = "standard input"
            array = _read_stream(stdin, key, options, bounds)
        elif only_a_file or _names_a_file(path):
            array = _read_file(path, key, options, bounds)
        else:
            array, name = _read_inline(source, key, limit), shown(source)
        return array if dtype is None else _converted(array, dtype, name)
    except OSError as error:
        raise MatrixFileError(f"{name}: cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise MatrixFileError(f"{name}: this machine has not enough memory for it") from None


def _one_key(key: str | None, part: str | None, source: str) -> str | None:
    if key is not None and part is not None and key != part:
        raise MatrixFileError(f"{shown_path(source)}: it names one array and key={key!r} another")
    return part if key is None else key


def _names_a_file(source: str) -> bool:
    separators = {"/", os.sep, os.altsep or "/"}
    return (
        os.path.exists(source)
        or suffix_of(source) is not None
        or any(separator in source for separator in separators)
    )


def _read_inline(source: str, key: str | None, limit: int) -> np.ndarray:
    if not source.strip():
        raise MatrixFileError("a matrix is needed, and the text is empty")
    if key is not None:
        raise MatrixFileError(f"{shown(source)}: key={key!r} picks an array of an .npz file only")
    try:
        return parse_inline(source, max_elements=limit)
    except MatrixFileError as error:
        raise MatrixFileError(
            f"{shown(source)}: neither a file (none has this name, and it ends in none of "
            f"{' '.join(SUFFIXES)}) nor a matrix such as '1 4; 2 5' ({error})"
        ) from None


def _read_file(path: str, key: str | None, options: TextOptions, bounds: Bounds) -> np.ndarray:
    name = shown_path(path)
    size = _regular_size(path, name)
    suffix = suffix_of(path)
    if suffix is None:
        raise MatrixFileError(f"{name}: unknown kind of file; known are {' '.join(SUFFIXES)}")
    if key is not None and suffix != ".npz":
        raise MatrixFileError(f"{name}: key={key!r} picks an array of an .npz file only")
    if size == 0:
        raise MatrixFileError(f"{name}: the file is empty")
    with open(path, "rb") as stream:
        if suffix == ".npy":
            return read_npy(stream, name, bounds, size)
        if suffix == ".npz":
            return read_npz(stream, name, key, bounds)
        if suffix in TEXT_SUFFIXES:
            return _read_text(stream, name, options, bounds, size)
        return read_matrix_market(stream, name, bounds, size, suffix == ".mtx.gz")


def _regular_size(path: str, name: str) -> int:
    try:
        status = os.stat(path)  # before open, which would wait for the writer of a pipe
    except FileNotFoundError:
        raise MatrixFileError(f"{name}: no such file") from None
    except ValueError as error:  # a NUL in the name
        raise MatrixFileError(f"{name}: cannot be read: {error}") from None
    if stat.S_ISDIR(status.st_mode):
        raise MatrixFileError(f"{name}: a folder, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise MatrixFileError(f"{name}: not an ordinary file (- reads standard input)")
    return status.st_size


def _read_stream(stdin, key: str | None, options: TextOptions, bounds: Bounds) -> np.ndarray:
    name = "standard input"
    if key is not None:
        raise MatrixFileError(f"{name}: key={key!r} picks an array of an .npz file only")
    stream = sys.stdin if stdin is None else stdin
    if stream is None:
        raise MatrixFileError(f"{name}: closed")
    stream = getattr(stream, "buffer", stream)
    head = stream.read(len(NPY_MAGIC))
    if isinstance(head, str):  # a text stream without bytes beneath, such as io.StringIO
        text = head + stream.read(sources.MAX_TEXT_BYTES)
        stream = io.BytesIO(text.encode("utf-8", "backslashreplace"))
        head = stream.read(len(NPY_MAGIC))
    if not head:
        raise MatrixFileError(f"{name}: empty")
    if head == NPY_MAGIC:
        return read_npy(stream, name, bounds, None, head)
    data = head + read_growing(stream, sources.MAX_TEXT_BYTES + 1 - len(head))
    if len(data) > sources.MAX_TEXT_BYTES:
        raise MatrixFileError(
            f"{name}: more than {sources.MAX_TEXT_BYTES} bytes, the limit for text"
        )
    if data[:14].lower() == b"%%matrixmarket":
        return read_matrix_market(io.BytesIO(data), name, bounds, len(data), False)
    return _read_text(io.BytesIO(data), name, options, bounds, len(data))


# --- text -----------------------------------------------------------------------------------


def _read_text(
    stream: BinaryIO, name: str, options: TextOptions, bounds: Bounds, size: int
) -> np.ndarray:
    if size > sources.MAX_TEXT_BYTES:
        raise MatrixFileError(
            f"{name}: {size} bytes, more than {sources.MAX_TEXT_BYTES}, the limit for text "
            "(use .npy)"
        )
    start = stream.read(8)
    stream.seek(0)
    for magic, kind in _FOREIGN_MAGIC.items():
        if start.startswith(magic):
            raise MatrixFileError(f"{name}: not text but {kind}")
    if start.lower() == b"%%matrix":
        raise MatrixFileError(f"{name}: not rows of numbers but Matrix Market: name it .mtx")
    utf16 = start.startswith((b"\xff\xfe", b"\xfe\xff"))  # Windows PowerShell's > writes this
    text = io.TextIOWrapper(stream, "utf-16" if utf16 else "utf-8-sig", "surrogateescape")
    try:
        return parse_lines(_cut_lines(text), name, options, max_elements=bounds.elements)
    except UnicodeError:
        raise MatrixFileError(f"{name}: not UTF-16 text, though it begins as such") from None
    finally:
        text.detach()


def _cut_lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Lines, but no more of one than shows that it is too long."""
    while line := text.readline(MAX_LINE_CHARACTERS + 1):
        yield line


# --- conversion -----------------------------------------------------------------------------


def _converted(array: np.ndarray, dtype, name: str) -> np.ndarray:
    """`array` as `dtype`; rounding is allowed, any other loss is refused."""
    try:
        target = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError, OverflowError):
        raise MatrixFileError(f"dtype {shown(str(dtype))} is not known") from None
    custom = target.kind == "V" and target.names is None and target.type is not np.void
    if target.kind not in "biufc" and not custom:  # custom: bfloat16 and others of ml_dtypes
        raise MatrixFileError(f"dtype {target} is not one of numbers")
    if target == array.dtype or array.size == 0:
        return array.astype(target, copy=False)
    if array.dtype.kind == "c" and target.kind != "c":
        if array.imag.any():
            raise MatrixFileError(f"{name}: complex numbers, which {target} does not hold")
        array = array.real
    with np.errstate(all="ignore"):
        result = array.astype(target)
        if target.kind in "biu" or target.name.startswith(("int", "uint")):
            fits = _same_integers(array, result)
        else:
            wide = result.astype(np.float64) if custom else result
            fits = np.isfinite(wide) | ~np.isfinite(array)
    if not fits.all():
        at = tuple(int(i) for i in np.argwhere(~fits)[0])
        place = ", ".join(str(i + 1) for i in at)
        raise MatrixFileError(f"{name}: {target} cannot hold element ({place}), {array[at]}")
    return result


def _same_integers(array: np.ndarray, result: np.ndarray) -> np.ndarray:
    """Where the integers in `result` are the numbers in `array`."""
    if result.dtype.kind not in "biu":
        result = result.astype(np.int64)
    if array.dtype.kind in "biu":
        # int64 and uint64 meet in float64, which does not tell neighbours apart: compare signs
        # and bits instead.
        return (result.astype(array.dtype) == array) & ((result < 0) == (array < 0))
    array = array.astype(np.promote_types(array.dtype, np.float64))
    # 2**63 and 2**64 are float64, the largest integers are not: casts beyond them are undefined.
    info = np.iinfo(result.dtype) if result.dtype.kind != "b" else None
    low, high = (info.min, info.max + 1) if info else (0, 2)
    return (array >= low) & (array < high) & (result.astype(array.dtype) == array)
