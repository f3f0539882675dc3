"""Matrices in files: read, and written whole or not at all.

    .npy .npz             NumPy's formats, never with pickled objects
    .csv .tsv .txt        text, a row a line; `-` is standard input or output
    .mtx .mtx.gz          Matrix Market, through scipy (the extra clmatmul[files])
    "1 4; 2 5; 3 6"       a matrix written out

Sizes are checked against the bounds below before memory is taken for them, and against the bytes
that are really there: a header is only a promise. Every error is a MatrixFileError of one line.
"""

from __future__ import annotations

import ast
import gzip
import importlib.util
import io
import lzma
import math
import os
import re
import secrets
import stat
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from clmatmul.errors import MatrixFileError
from clmatmul.matrix_text import (
    MAX_LINE_CHARACTERS,
    TextOptions,
    format_matrix,
    matrix_lines,
    parse_inline,
    parse_lines,
    prompt_matrix,
    shown,
)

__all__ = [
    "MAX_ELEMENTS",
    "MAX_EXPANDED_ELEMENTS",
    "MAX_TEXT_BYTES",
    "check_writable_target",
    "format_matrix",
    "prompt_matrix",
    "read_matrix",
    "write_matrix",
]

MAX_ELEMENTS = 2**31
"""Elements of a matrix whose file holds each of them (16 GiB of float64)."""

MAX_EXPANDED_ELEMENTS = 2**28
"""Elements of a dense matrix made from a sparse file, which may be tiny (2 GiB of float64)."""

MAX_TEXT_BYTES = 2**30
"""Bytes of a text file, after decompression."""

MAX_COMPRESSION_RATIO = 200
"""Decompressed to compressed bytes, from HARMLESS_BYTES on: numbers are seldom beyond 20."""

HARMLESS_BYTES = 2**26
"""What may be decompressed at any ratio: a matrix of zeros is not an attack."""

TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
SUFFIXES = (".npy", ".npz", *TEXT_SUFFIXES, ".mtx", ".mtx.gz")
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": " ", "-": " "}

_MAX_HEADER_BYTES = 10_000  # as numpy.load
_MAX_DIMENSIONS = 32  # what every NumPy takes
_CHUNK_BYTES = 2**20
_NPY_MAGIC = b"\x93NUMPY"
_FOREIGN_MAGIC = {
    _NPY_MAGIC: "a NumPy array: its name should end in .npy",
    b"PK\x03\x04": "a zip archive (.npz or a spreadsheet)",
    b"\x1f\x8b": "compressed by gzip",
    b"\x89HDF": "HDF5 (MATLAB 7.3 or h5py)",
}
_DECOMPRESSION_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
)


# --- reading: which kind of source ------------------------------------------------------------


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
    path, part = _split_member(source)
    limit = MAX_ELEMENTS if max_elements is None else max_elements
    bounds = _Bounds(limit, MAX_EXPANDED_ELEMENTS if max_elements is None else max_elements)
    options = TextOptions(delimiter, header, index)
    key = _one_key(key, part, source)
    name = _shown_path(path)
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


@dataclass(frozen=True)
class _Bounds:
    """The most elements: of any matrix, and of a dense one made from a sparse file."""

    elements: int
    expanded: int

    def check(self, name: str, shape: tuple[int, ...], limit: int | None = None) -> int:
        """The number of elements of `shape`, refused beyond the limit."""
        limit = self.elements if limit is None else limit
        count = math.prod(shape)
        # A length beside a 0 counts too: NumPy multiplies them in 64 bits.
        if max(count, math.prod(length for length in shape if length)) > limit:
            sizes = " x ".join(map(str, shape))
            raise MatrixFileError(f"{name}: {sizes} elements, more than {limit}, the limit")
        return count


def _split_member(source: str) -> tuple[str, str | None]:
    """`file.npz:name` in two; anything else whole (the same object)."""
    match = re.fullmatch(r"(.+\.npz):(.+)", source, re.IGNORECASE | re.DOTALL)
    if match is None or os.path.exists(source):
        return source, None
    return match[1], match[2]


def _one_key(key: str | None, part: str | None, source: str) -> str | None:
    if key is not None and part is not None and key != part:
        raise MatrixFileError(f"{_shown_path(source)}: it names one array and key={key!r} another")
    return part if key is None else key


def _names_a_file(source: str) -> bool:
    separators = {"/", os.sep, os.altsep or "/"}
    return (
        os.path.exists(source)
        or _suffix(source) is not None
        or any(separator in source for separator in separators)
    )


def _suffix(path: str) -> str | None:
    lower = path.lower()
    return next((suffix for suffix in SUFFIXES if lower.endswith(suffix)), None)


def _shown_path(path: str) -> str:
    return path if path.isprintable() and path.strip() == path != "" else ascii(path)


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


def _read_file(path: str, key: str | None, options: TextOptions, bounds: _Bounds) -> np.ndarray:
    name = _shown_path(path)
    size = _regular_size(path, name)
    suffix = _suffix(path)
    if suffix is None:
        raise MatrixFileError(f"{name}: unknown kind of file; known are {' '.join(SUFFIXES)}")
    if key is not None and suffix != ".npz":
        raise MatrixFileError(f"{name}: key={key!r} picks an array of an .npz file only")
    if size == 0:
        raise MatrixFileError(f"{name}: the file is empty")
    with open(path, "rb") as stream:
        if suffix == ".npy":
            return _read_npy(stream, name, bounds, size)
        if suffix == ".npz":
            return _read_npz(stream, name, key, bounds)
        if suffix in TEXT_SUFFIXES:
            return _read_text(stream, name, options, bounds, size)
        return _read_matrix_market(stream, name, bounds, size, suffix == ".mtx.gz")


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


def _read_stream(stdin, key: str | None, options: TextOptions, bounds: _Bounds) -> np.ndarray:
    name = "standard input"
    if key is not None:
        raise MatrixFileError(f"{name}: key={key!r} picks an array of an .npz file only")
    stream = sys.stdin if stdin is None else stdin
    if stream is None:
        raise MatrixFileError(f"{name}: closed")
    stream = getattr(stream, "buffer", stream)
    head = stream.read(len(_NPY_MAGIC))
    if isinstance(head, str):  # a text stream without bytes beneath, such as io.StringIO
        text = head + stream.read(MAX_TEXT_BYTES)
        stream = io.BytesIO(text.encode("utf-8", "backslashreplace"))
        head = stream.read(len(_NPY_MAGIC))
    if not head:
        raise MatrixFileError(f"{name}: empty")
    if head == _NPY_MAGIC:
        return _read_npy(stream, name, bounds, None, head)
    data = head + _read_growing(stream, MAX_TEXT_BYTES + 1 - len(head))
    if len(data) > MAX_TEXT_BYTES:
        raise MatrixFileError(f"{name}: more than {MAX_TEXT_BYTES} bytes, the limit for text")
    if data[:14].lower() == b"%%matrixmarket":
        return _read_matrix_market(io.BytesIO(data), name, bounds, len(data), False)
    return _read_text(io.BytesIO(data), name, options, bounds, len(data))


# --- .npy and .npz ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _NpyHeader:
    """What stands before the elements; `length` in bytes, from the magic to the first element."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype
    length: int


def _read_npy(
    stream: BinaryIO, name: str, bounds: _Bounds, size: int | None, head: bytes = b""
) -> np.ndarray:
    """The array of an .npy stream of `size` bytes (None: unknown, a pipe); `head` is read already.

    The format is https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html; the
    header is read here and not by NumPy, to refuse what it promises before anything is done.
    """
    header = _read_npy_header(stream, name, head)
    nbytes = bounds.check(name, header.shape) * header.dtype.itemsize
    if size is not None and size - header.length != nbytes:
        _refuse_size(name, header, nbytes, size - header.length)
    if size is not None:
        array = np.empty(nbytes // header.dtype.itemsize, header.dtype)
        found = _read_into(stream, memoryview(array.view(np.uint8)))
    else:
        data = _read_growing(stream, nbytes + 1)
        found = len(data)
    if found != nbytes:
        _refuse_size(name, header, nbytes, found)
    if size is None:
        array = np.frombuffer(data, header.dtype)
    if not header.dtype.isnative:
        array = array.astype(header.dtype.newbyteorder("="))
    if header.fortran_order:
        return array.reshape(header.shape[::-1]).transpose()
    return array.reshape(header.shape)


def _read_into(stream: BinaryIO, view: memoryview) -> int:
    done = 0
    while done < len(view):
        count = stream.readinto(view[done : done + 64 * _CHUNK_BYTES])
        if not count:
            break
        done += count
    return done


def _read_growing(stream: BinaryIO, limit: int) -> bytearray:
    """At most `limit` bytes; memory grows with what comes, not with what was promised."""
    data = bytearray()
    while len(data) < limit and (chunk := stream.read(min(_CHUNK_BYTES, limit - len(data)))):
        data += chunk
    return data


def _refuse_size(name: str, header: _NpyHeader, expected: int, found: int) -> None:
    sizes = " x ".join(map(str, header.shape))
    what = f"{sizes} elements of {header.dtype} need {expected} bytes"
    if found < expected:
        raise MatrixFileError(f"{name}: cut short: {what}, the file has {found}")
    raise MatrixFileError(f"{name}: {what}, and more follow (.npz holds several arrays)")


def _read_npy_header(stream: BinaryIO, name: str, head: bytes = b"") -> _NpyHeader:
    start = head + stream.read(8 - len(head))
    if not start.startswith(_NPY_MAGIC):
        raise MatrixFileError(f"{name}: not a NumPy file: it begins {_shown_bytes(start)}")
    if len(start) < 8 or start[6] not in (1, 2, 3):
        raise MatrixFileError(f"{name}: not a version of .npy that is known (1, 2, 3)")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(stream.read(width), "little")
    if length > _MAX_HEADER_BYTES:
        raise MatrixFileError(f"{name}: a header of {length} bytes, more than {_MAX_HEADER_BYTES}")
    text = stream.read(length)
    try:
        if len(text) != length or b"\\" in text:  # Python would warn of an unknown escape
            raise ValueError("not a header")
        fields = ast.literal_eval(text.decode("utf-8" if start[6] == 3 else "latin-1").strip())
        descr, order, shape = fields["descr"], fields["fortran_order"], fields["shape"]
        if type(shape) is not tuple or not all(
            type(length) is int and abs(length) < 2**100 for length in shape
        ):
            raise ValueError("shape")
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        raise MatrixFileError(f"{name}: the header is damaged: {_shown_bytes(text)}") from None
    if min(shape, default=0) < 0 or len(shape) > _MAX_DIMENSIONS:
        raise MatrixFileError(f"{name}: the header is damaged: shape {shown(str(shape))}")
    if not shape:
        raise MatrixFileError(f"{name}: a single number (no dimensions), not a matrix")
    return _NpyHeader(shape, bool(order), _npy_dtype(descr, name), 8 + width + length)


def _npy_dtype(descr: object, name: str) -> np.dtype:
    """The dtype of a header, refused if it is not one of numbers."""
    if not isinstance(descr, str):
        raise MatrixFileError(f"{name}: records with named fields, not a matrix of numbers")
    try:
        dtype = np.dtype(descr)
    except (TypeError, ValueError, SyntaxError, OverflowError):
        raise MatrixFileError(f"{name}: dtype {shown(descr)} is not known") from None
    if dtype.kind == "O":
        raise MatrixFileError(
            f"{name}: Python objects, which are never loaded (they could run code); save it as "
            "numbers, np.save(file, array.astype(float))"
        )
    if dtype.kind == "V":
        raise MatrixFileError(
            f"{name}: elements of a type that .npy does not name ({shown(descr)}, bfloat16 "
            "perhaps); save it as float32"
        )
    if dtype.kind not in "biufc" or dtype.itemsize == 0:
        raise MatrixFileError(f"{name}: elements of type {dtype}, not numbers")
    return dtype


def _shown_bytes(data: bytes) -> str:
    return ascii(data[:40])


def _read_npz(stream: BinaryIO, name: str, key: str | None, bounds: _Bounds) -> np.ndarray:
    try:
        archive = zipfile.ZipFile(stream)
    except (*_DECOMPRESSION_ERRORS, ValueError) as error:
        raise MatrixFileError(f"{name}: not an .npz archive ({_first_line(error)})") from None
    with archive:
        member = _pick_member(archive, name, key)
        name = f"{name}:{_shown_path(_array_name(member))}"
        if member.flag_bits & 1:
            raise MatrixFileError(f"{name}: encrypted, which is not read")
        ratio = member.file_size / max(1, member.compress_size)
        if member.file_size > HARMLESS_BYTES and ratio > MAX_COMPRESSION_RATIO:
            raise MatrixFileError(
                f"{name}: {member.compress_size} bytes grow to {member.file_size} when "
                f"decompressed, more than {MAX_COMPRESSION_RATIO} times, the limit"
            )
        try:
            with archive.open(member) as part:
                return _read_npy(part, name, bounds, member.file_size)
        except _DECOMPRESSION_ERRORS as error:
            raise MatrixFileError(f"{name}: damaged: {_first_line(error)}") from None


def _array_name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _pick_member(archive: zipfile.ZipFile, name: str, key: str | None) -> zipfile.ZipInfo:
    members = {
        _array_name(info): info for info in archive.infolist() if info.filename.endswith(".npy")
    }
    listed = ", ".join(map(shown, list(members)[:10])) + (", ..." if len(members) > 10 else "")
    if not members:
        raise MatrixFileError(f"{name}: no arrays in it")
    if key is not None:
        if key not in members:
            raise MatrixFileError(f"{name}: no array {shown(key)}; it has {listed}")
        return members[key]
    if {"format", "shape", "data"} <= members.keys():
        raise MatrixFileError(
            f"{name}: a sparse matrix as scipy.sparse.save_npz writes it; save it with "
            "scipy.io.mmwrite (.mtx), or its .toarray() with numpy.save"
        )
    if len(members) > 1:
        example = f"{name}:{_shown_path(next(iter(members)))}"
        raise MatrixFileError(f"{name}: {len(members)} arrays, {listed}; name one: {example}")
    return next(iter(members.values()))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# --- text -------------------------------------------------------------------------------------


def _read_text(
    stream: BinaryIO, name: str, options: TextOptions, bounds: _Bounds, size: int
) -> np.ndarray:
    if size > MAX_TEXT_BYTES:
        raise MatrixFileError(
            f"{name}: {size} bytes, more than {MAX_TEXT_BYTES}, the limit for text (use .npy)"
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


# --- Matrix Market ----------------------------------------------------------------------------


def _read_matrix_market(
    stream: BinaryIO, name: str, bounds: _Bounds, size: int, compressed: bool
) -> np.ndarray:
    """Read by scipy.io.mmread, after its header: format, sizes and the bytes that must follow.

    The format is https://math.nist.gov/MatrixMarket/formats.html.
    """
    mmread = _scipy_io(name).mmread
    if compressed:
        data = _decompressed(stream, name, size)
        stream, size = io.BytesIO(data), len(data)
    if size > MAX_TEXT_BYTES:
        raise MatrixFileError(f"{name}: {size} bytes, more than {MAX_TEXT_BYTES}, the limit")
    _check_matrix_market(stream, name, bounds, size)
    stream.seek(0)
    try:
        matrix = mmread(stream)
        return np.ascontiguousarray(matrix if isinstance(matrix, np.ndarray) else matrix.toarray())
    except (ValueError, OverflowError, TypeError, IndexError) as error:
        raise MatrixFileError(f"{name}: {_first_line(error)}") from None


def _scipy_io(name: str):
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
            while chunk := text.read(_CHUNK_BYTES):
                data += chunk
                if len(data) > MAX_TEXT_BYTES:
                    raise MatrixFileError(f"{name}: decompressed, more than {MAX_TEXT_BYTES} bytes")
                if len(data) > max(HARMLESS_BYTES, size * MAX_COMPRESSION_RATIO):
                    raise MatrixFileError(
                        f"{name}: grows more than {MAX_COMPRESSION_RATIO} times when decompressed, "
                        "the limit"
                    )
    except (zlib.error, EOFError, OSError) as error:
        raise MatrixFileError(f"{name}: damaged: {_first_line(error)}") from None
    return bytes(data)


def _check_matrix_market(stream: BinaryIO, name: str, bounds: _Bounds, size: int) -> None:
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
    while line := stream.readline(_MAX_HEADER_BYTES):
        number += 1
        text = line.decode("latin-1").strip()
        if text and not text.startswith("%"):
            words = text.split()
            if len(words) != count or not all(re.fullmatch("[0-9]{1,18}", word) for word in words):
                wanted = "rows, columns" + (", entries" if count == 3 else "")
                raise MatrixFileError(f"{name}, line {number}: {shown(text)} is not: {wanted}")
            return number, [int(word) for word in words]
    raise MatrixFileError(f"{name}: cut short: no line with the sizes")


# --- conversion -------------------------------------------------------------------------------


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


# --- writing ----------------------------------------------------------------------------------


def check_writable_target(path: str | os.PathLike) -> None:
    """Refuse, before anything is computed, a target that write_matrix would refuse.

    Raises MatrixFileError: unknown suffix, a folder, no such folder to write in, no permission,
    not an ordinary file, scipy missing for .mtx. Creates nothing.
    """
    _target(path)


def _target(path: str | os.PathLike) -> tuple[str, str, str | None]:
    """(real path, suffix, name of the array in an .npz) of a target that can be written."""
    path = os.fsdecode(os.fspath(path))
    if path == "-":
        return path, "-", None
    path, member = _split_member(path)
    name = _shown_path(path)
    suffix = _suffix(path)
    if os.path.isdir(path):
        raise MatrixFileError(f"{name}: a folder, not a file to write")
    if suffix is None:
        raise MatrixFileError(
            f"{name}: unknown kind of file to write; known are {' '.join(SUFFIXES)} and -"
        )
    real = os.path.realpath(path)  # a link stays, and what it points to is replaced
    folder = os.path.dirname(real)
    if not os.path.isdir(folder):
        raise MatrixFileError(f"{name}: no folder {_shown_path(os.path.dirname(path))} to write in")
    if os.path.exists(real) and not os.path.isfile(real):
        raise MatrixFileError(f"{name}: not an ordinary file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MatrixFileError(f"{name}: no permission to write in its folder")
    if os.path.exists(real) and not os.access(real, os.W_OK):
        raise MatrixFileError(f"{name}: read-only")
    if suffix.startswith(".mtx") and importlib.util.find_spec("scipy") is None:
        _scipy_io(name)
    return real, suffix, member


def write_matrix(path: str | os.PathLike, array, *, stdout=None) -> None:
    """Write a matrix, in the format of the suffix, whole or not at all.

    path: ends in .npy, .npz (or .npz:name, else the array is `arr_0`), .csv, .tsv, .txt, .mtx or
        .mtx.gz; `-` is text on standard output, or on the text stream `stdout`.
    array: bool, integers, floats or complex. .npy and .npz take any shape and dtype but those of
        other packages (bfloat16). Text and .mtx take 1-D (written as a column) and 2-D with
        elements; real numbers as float64 with the digits that restore them exactly.

    The file appears under its name when it is complete and on disk (written beside it, then
    renamed; a symbolic link stays and its target is replaced); until then an older file of the
    name stays as it was. Its mode is that of any new file.

    Raises MatrixFileError, one line: as check_writable_target; a shape or dtype that the format
    cannot hold; no space. Nothing is left behind.
    """
    real, suffix, member = _target(path)
    name = "standard output" if suffix == "-" else _shown_path(os.fsdecode(os.fspath(path)))
    array = _writable_array(array, suffix, name)
    if suffix == "-":
        stream = sys.stdout if stdout is None else stdout
        stream.writelines(matrix_lines(array, _DELIMITERS[suffix]))
        stream.flush()
        return
    with _replaced(real, name) as stream:
        if suffix == ".npy":
            np.lib.format.write_array(stream, array, allow_pickle=False)
        elif suffix == ".npz":
            _write_npz(stream, array, member or "arr_0")
        elif suffix in TEXT_SUFFIXES:
            stream.writelines(
                line.encode("ascii") for line in matrix_lines(array, _DELIMITERS[suffix])
            )
        else:
            _write_matrix_market(stream, array, name, compressed=suffix == ".mtx.gz")


def _writable_array(array, suffix: str, name: str) -> np.ndarray:
    array = np.asarray(array)
    custom = array.dtype.kind == "V" and array.dtype.type is not np.void
    if array.dtype.kind not in "biufc" and not custom:
        raise MatrixFileError(f"{name}: elements of type {array.dtype}, not numbers")
    if suffix in (".npy", ".npz"):
        if custom:
            raise MatrixFileError(
                f"{name}: {suffix} has no name for {array.dtype}: convert to float32, or write text"
            )
        return array
    if array.ndim > 2 or array.size == 0:
        sizes = " x ".join(map(str, array.shape))
        raise MatrixFileError(f"{name}: {sizes} elements: only .npy and .npz hold such a shape")
    if custom:
        array = array.astype(np.float64)
    if array.dtype.kind in "fc" and array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8):
        narrow = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
        if not np.array_equal(narrow, array, equal_nan=True):
            raise MatrixFileError(f"{name}: {array.dtype} has more digits than float64: use .npy")
        array = narrow
    return array


def _write_npz(stream: BinaryIO, array: np.ndarray, member: str) -> None:
    with (
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(f"{member}.npy", "w", force_zip64=True) as part,
    ):
        np.lib.format.write_array(part, array, allow_pickle=False)


def _write_matrix_market(
    stream: BinaryIO, array: np.ndarray, name: str, *, compressed: bool
) -> None:
    mmwrite = _scipy_io(name).mmwrite
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


@contextmanager
def _replaced(path: str, name: str) -> Iterator[BinaryIO]:
    """A new file beside `path` that takes its place when the block ends well, and else goes."""
    folder, base = os.path.split(path)
    temporary = os.path.join(folder, f".{base[:100]}.{secrets.token_hex(6)}.tmp")
    # os.open and not tempfile: the mode of tempfile's files is private, this one is the umask's.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(temporary, flags, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except (OSError, ValueError, MemoryError) as error:
        if isinstance(error, MatrixFileError):
            raise
        reason = getattr(error, "strerror", None) or _first_line(error)
        raise MatrixFileError(f"{name}: cannot be written: {reason}") from None
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Make the new name last through a power cut, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some network file systems cannot; the file itself is on disk
    finally:
        os.close(descriptor)
