"""NumPy's own formats, .npy and .npz: read without pickles, and within bounds."""

from __future__ import annotations

import ast
import zipfile
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from clmatmul import matrix_sources as sources
from clmatmul.errors import MatrixFileError
from clmatmul.matrix_elements import shown
from clmatmul.matrix_sources import (
    CHUNK_BYTES,
    DECOMPRESSION_ERRORS,
    Bounds,
    first_line,
    read_growing,
    shown_path,
)

NPY_MAGIC = b"\x93NUMPY"
_MAX_HEADER_BYTES = 10_000  # as numpy.load
_MAX_DIMENSIONS = 32  # what every NumPy takes


@dataclass(frozen=True)
class _NpyHeader:
    """What stands before the elements; `length` in bytes, from the magic to the first element."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype
    length: int


def read_npy(
    stream: BinaryIO, name: str, bounds: Bounds, size: int | None, head: bytes = b""
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
        data = read_growing(stream, nbytes + 1)
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
        count = stream.readinto(view[done : done + 64 * CHUNK_BYTES])
        if not count:
            break
        done += count
    return done


def _refuse_size(name: str, header: _NpyHeader, expected: int, found: int) -> None:
    sizes = " x ".join(map(str, header.shape))
    what = f"{sizes} elements of {header.dtype} need {expected} bytes"
    if found < expected:
        raise MatrixFileError(f"{name}: cut short: {what}, the file has {found}")
    raise MatrixFileError(f"{name}: {what}, and more follow (.npz holds several arrays)")


def _read_npy_header(stream: BinaryIO, name: str, head: bytes = b"") -> _NpyHeader:
    start = head + stream.read(8 - len(head))
    if not start.startswith(NPY_MAGIC):
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


def read_npz(stream: BinaryIO, name: str, key: str | None, bounds: Bounds) -> np.ndarray:
    try:
        archive = zipfile.ZipFile(stream)
    except (*DECOMPRESSION_ERRORS, ValueError) as error:
        raise MatrixFileError(f"{name}: not an .npz archive ({first_line(error)})") from None
    with archive:
        member = _pick_member(archive, name, key)
        name = f"{name}:{shown_path(_array_name(member))}"
        if member.flag_bits & 1:
            raise MatrixFileError(f"{name}: encrypted, which is not read")
        ratio = member.file_size / max(1, member.compress_size)
        if member.file_size > sources.HARMLESS_BYTES and ratio > sources.MAX_COMPRESSION_RATIO:
            raise MatrixFileError(
                f"{name}: {member.compress_size} bytes grow to {member.file_size} when "
                f"decompressed, more than {sources.MAX_COMPRESSION_RATIO} times, the limit"
            )
        try:
            with archive.open(member) as part:
                return read_npy(part, name, bounds, member.file_size)
        except DECOMPRESSION_ERRORS as error:
            raise MatrixFileError(f"{name}: damaged: {first_line(error)}") from None


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
        example = f"{name}:{shown_path(next(iter(members)))}"
        raise MatrixFileError(f"{name}: {len(members)} arrays, {listed}; name one: {example}")
    return next(iter(members.values()))


def write_npz(stream: BinaryIO, array: np.ndarray, member: str) -> None:
    with (
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(f"{member}.npy", "w", force_zip64=True) as part,
    ):
        np.lib.format.write_array(part, array, allow_pickle=False)
