"""Matrices written to files, whole or not at all."""

from __future__ import annotations

import importlib.util
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np

from clmatmul.errors import MatrixFileError
from clmatmul.matrix_market import scipy_io, write_matrix_market
from clmatmul.matrix_npy import write_npz
from clmatmul.matrix_sources import (
    DELIMITERS,
    SUFFIXES,
    TEXT_SUFFIXES,
    first_line,
    shown_path,
    split_member,
    suffix_of,
)
from clmatmul.matrix_text import matrix_lines


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
    path, member = split_member(path)
    name = shown_path(path)
    suffix = suffix_of(path)
    if os.path.isdir(path):
        raise MatrixFileError(f"{name}: a folder, not a file to write")
    if suffix is None:
        raise MatrixFileError(
            f"{name}: unknown kind of file to write; known are {' '.join(SUFFIXES)} and -"
        )
    real = os.path.realpath(path)  # a link stays, and what it points to is replaced
    folder = os.path.dirname(real)
    if not os.path.isdir(folder):
        raise MatrixFileError(f"{name}: no folder {shown_path(os.path.dirname(path))} to write in")
    if os.path.exists(real) and not os.path.isfile(real):
        raise MatrixFileError(f"{name}: not an ordinary file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MatrixFileError(f"{name}: no permission to write in its folder")
    if os.path.exists(real) and not os.access(real, os.W_OK):
        raise MatrixFileError(f"{name}: read-only")
    if suffix.startswith(".mtx") and importlib.util.find_spec("scipy") is None:
        scipy_io(name)
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
    name = "standard output" if suffix == "-" else shown_path(os.fsdecode(os.fspath(path)))
    array = _writable_array(array, suffix, name)
    if suffix == "-":
        stream = sys.stdout if stdout is None else stdout
        stream.writelines(matrix_lines(array, DELIMITERS[suffix]))
        stream.flush()
        return
    with _replaced(real, name) as stream:
        if suffix == ".npy":
            np.lib.format.write_array(stream, array, allow_pickle=False)
        elif suffix == ".npz":
            write_npz(stream, array, member or "arr_0")
        elif suffix in TEXT_SUFFIXES:
            stream.writelines(
                line.encode("ascii") for line in matrix_lines(array, DELIMITERS[suffix])
            )
        else:
            write_matrix_market(stream, array, name, compressed=suffix == ".mtx.gz")


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
        reason = getattr(error, "strerror", None) or first_line(error)
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
