"""Where matrices come from and go to: kinds by suffix, names for messages, bounds on sizes."""

from __future__ import annotations

import lzma
import math
import os
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import BinaryIO

from clmatmul.errors import MatrixFileError

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
DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": " ", "-": " "}

CHUNK_BYTES = 2**20
DECOMPRESSION_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
)


@dataclass(frozen=True)
class Bounds:
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


def split_member(source: str) -> tuple[str, str | None]:
    """`file.npz:name` in two; anything else whole (the same object)."""
    match = re.fullmatch(r"(.+\.npz):(.+)", source, re.IGNORECASE | re.DOTALL)
    if match is None or os.path.exists(source):
        return source, None
    return match[1], match[2]


def suffix_of(path: str) -> str | None:
    lower = path.lower()
    return next((suffix for suffix in SUFFIXES if lower.endswith(suffix)), None)


def shown_path(path: str) -> str:
    return path if path.isprintable() and path.strip() == path != "" else ascii(path)


def read_growing(stream: BinaryIO, limit: int) -> bytearray:
    """At most `limit` bytes; memory grows with what comes, not with what was promised."""
    data = bytearray()
    while len(data) < limit and (chunk := stream.read(min(CHUNK_BYTES, limit - len(data)))):
        data += chunk
    return data


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
