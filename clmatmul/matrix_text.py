"""Matrices as lines of text: read, and written so that the same numbers come back.

Everything here works on text that is already at hand; files and the bounds on them are
matrix_files.py, and what an element may look like is matrix_elements.py.
"""

from __future__ import annotations

import csv
import itertools
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from clmatmul.errors import MatrixFileError
from clmatmul.matrix_elements import (
    Collector,
    Place,
    counted,
    is_number,
    looks_like_an_integer,
    shown,
    why_not_a_number,
)

MAX_LINE_CHARACTERS = 2**24
"""A longer line is refused before it is split: a split line takes some thirty times its size."""

_DELIMITER_WORDS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t"}
_WHITE_SPACE_WORDS = {" ", "space", "white space", "whitespace"}
_INDEX_ADVICE = "index=True leaves it out, index=False keeps it"

_logger = logging.getLogger("clmatmul")


# --- lines of a file ------------------------------------------------------------------------


@dataclass(frozen=True)
class TextOptions:
    """How the lines of a file are to be read; None means: find out.

    delimiter: one character, or "comma", "semicolon", "tab", "space" (any white space).
    header: the first line holds names of columns.
    index: the first column holds names of rows, as pandas writes them, and is left out.
    """

    delimiter: str | None = None
    header: bool | None = None
    index: bool | None = None


@dataclass(frozen=True)
class _Layout:
    """What the first lines say: separator (None: white space), names of columns, index column."""

    delimiter: str | None
    names: tuple[str, ...] | None
    skipped: int


def parse_lines(
    lines: Iterable[str], name: str, options: TextOptions, *, max_elements: int
) -> np.ndarray:
    """The matrix in the lines of a text file.

    lines: the lines, in order; no longer than MAX_LINE_CHARACTERS + 1 each (a longer one must come
    cut, and is then refused). name: what messages call the file.

    Returns a 2-D array in C order, of int64, uint64, float64, complex128 or bool (see the head of
    this module). Text from a `#` to the end of its line is left out, and so are blank lines. The
    separator is tab, semicolon, comma or white space: the first of these in the second line, or
    else in the first (which may be a header). A first line without any number is a header. A
    header that begins with an empty name is how pandas writes an index: the first column is left
    out.

    Raises MatrixFileError, naming line and element, for malformed and ragged rows, for more than
    `max_elements` elements, and where a header or an index cannot be told from data.
    """
    place = Place(name, "line")
    rows = _significant(lines, place)
    first = next(rows, None)
    if first is None:
        raise MatrixFileError(f"{name}: no rows of numbers")
    second = next(rows, None)
    delimiter = _find_delimiter(options.delimiter, first[1], (second or first)[1])
    layout = _find_layout(place, first, second, delimiter, options)
    following = [row for row in (first, second) if row is not None]
    if layout.names is not None:
        following.pop(0)
    if not following:
        reason = why_not_a_number(layout.names[0])
        raise MatrixFileError(f"{place.element(first[0], 1)}: {reason}, and no rows follow")
    return _collect(place, itertools.chain(following, rows), layout, options, max_elements)


def _significant(lines: Iterable[str], place: Place) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\n")
        if len(line) > MAX_LINE_CHARACTERS:
            raise MatrixFileError(
                f"{place.row(number)}: longer than {MAX_LINE_CHARACTERS} characters, the limit "
                "(.npy holds wider matrices)"
            )
        if "\0" in line:
            raise MatrixFileError(f"{place.row(number)}: binary data, not text")
        line = line.partition("#")[0].rstrip("\r")
        if line.strip():
            yield number, line


def _find_delimiter(wanted: str | None, first: str, second: str) -> str | None:
    """The separator, None for white space; the second line holds data even below a header."""
    if wanted is not None:
        wanted = _DELIMITER_WORDS.get(wanted, wanted)
        if wanted in _WHITE_SPACE_WORDS:
            return None
        if len(wanted) != 1 or wanted.isalnum() or wanted in '+-.#"()_\r\n':
            raise MatrixFileError(
                f"delimiter {shown(wanted)}: must be one character (not a letter, digit or part of "
                "a number), or comma, semicolon, tab or space"
            )
        return wanted
    first, second = (re.sub(r'"[^"]*"', "", line).strip(" ") for line in (first, second))
    # Where spaces part numbers as well, a tab is one kind of white space.
    cells = second.split("\t")
    if "\t" in first and len(cells) > 1 and not any(len(cell.split()) > 1 for cell in cells):
        return "\t"
    return next((mark for line in (second, first) for mark in (";", ",") if mark in line), None)


def _split(place: Place, number: int, line: str, delimiter: str | None) -> list[str]:
    if '"' not in line:
        return line.split(delimiter)
    try:
        line = line if delimiter else line.strip()
        reader = csv.reader([line], delimiter=delimiter or " ", skipinitialspace=True, strict=True)
        return next(reader)
    except csv.Error as error:
        raise MatrixFileError(f"{place.row(number)}: quotation marks: {error}") from None


def _find_layout(
    place: Place,
    first: tuple[int, str],
    second: tuple[int, str] | None,
    delimiter: str | None,
    options: TextOptions,
) -> _Layout:
    number, line = first
    cells = [cell.strip() for cell in _split(place, number, line, delimiter)]
    columns = len(_split(place, *second, delimiter)) if second else len(cells)
    if not _is_header(place, number, cells, options.header):
        return _Layout(delimiter, None, int(bool(options.index)))
    if delimiter is None and columns == 1:
        cells = [line.strip()]  # one column: its name may hold spaces
    if len(cells) != columns:
        raise MatrixFileError(
            f"{place.row(number)}: {counted(len(cells), 'name')} of columns, "
            f"the first row below has {counted(columns, 'element')}"
        )
    index = options.index
    if index is None:
        index = len(cells) > 1 and not cells[0]
        data_names = cells[1:] if index else cells
        if len(data_names) > 1 and re.fullmatch(r"(?i)index|unnamed: \d+", data_names[0]):
            advice = "leave it out in pandas" if index else _INDEX_ADVICE
            raise MatrixFileError(
                f"{place.row(number)}: the column {shown(data_names[0])} looks like an index that "
                f"was saved as a column ({advice})"
            )
    return _Layout(delimiter, tuple(cells), int(index))


def _is_header(place: Place, number: int, cells: list[str], wanted: bool | None) -> bool:
    if wanted is not None:
        return wanted
    are_numbers = [is_number(cell) for cell in cells]
    if all(are_numbers):
        return False
    if not any(are_numbers):
        return True
    # pandas numbers the columns of a plain array, and puts nothing above the index.
    if not cells[0] and cells[1:] == [str(i) for i in range(len(cells) - 1)]:
        return True
    at = are_numbers.index(False)
    raise MatrixFileError(
        f"{place.element(number, at + 1)}: {why_not_a_number(cells[at])} "
        "(if this line names columns: header=True, and index=True if the first is an index)"
    )


def _collect(
    place: Place,
    rows: Iterable[tuple[int, str]],
    layout: _Layout,
    options: TextOptions,
    max_elements: int,
) -> np.ndarray:
    collector: Collector | None = None
    doubts = _Doubts(place, layout, options)
    for number, line in rows:
        cells = _split(place, number, line, layout.delimiter)
        if doubts.alive:
            doubts.see(number, cells)
        if layout.skipped:
            cells = cells[1:]
        if collector is None:
            if not cells:
                raise MatrixFileError(f"{place.row(number)}: only an index and no elements")
            collector = Collector(place, len(cells), layout.skipped, max_elements)
        collector.add(number, cells)
    matrix = collector.matrix()
    doubts.resolve()
    return matrix


class _Doubts:
    """Watches for rows that pandas may have written where a person sees only numbers.

    pandas names columns 0, 1, 2, … and rows likewise if nobody else does. Both are integers above
    or beside real numbers that are all written with a point or an exponent; a tool that writes one
    matrix of real numbers does not do that. Such files are refused unless `header` and `index`
    say what they are. If the other numbers are integers too, nothing tells them apart: they are
    data, and for a first line 0, 1, 2, … the log gets a warning.
    """

    def __init__(self, place: Place, layout: _Layout, options: TextOptions) -> None:
        separated = layout.delimiter is not None  # pandas does not write white space
        self.place = place
        self.header = separated and layout.names is None and options.header is None
        self.index = separated and not layout.skipped and options.index is None
        self.header_of_integers = False
        self.first_line = 0
        self.rows = 0
        self.alive = self.header or self.index

    def see(self, number: int, cells: list[str]) -> None:
        self.rows += 1
        if self.rows == 1:
            self.first_line = number
            self.header &= len(cells) > 1 and [c.strip() for c in cells] == list(
                map(str, range(len(cells)))
            )
            self.header_of_integers = self.header and len(cells) > 2
        elif self.header:
            self.header = not any(map(looks_like_an_integer, cells))
        if self.index:
            self.index = (
                len(cells) > 1
                and cells[0].strip() == str(self.rows - 1)
                and not any(map(looks_like_an_integer, cells[1:]))
            )
        self.alive = self.header or self.index

    def resolve(self) -> None:
        if self.header and self.rows > 1:
            raise MatrixFileError(
                f"{self.place.row(self.first_line)}: 0, 1, ... above real numbers: names of "
                "columns or data? (header=True leaves this line out, header=False keeps it)"
            )
        if self.index and self.rows > 1:
            raise MatrixFileError(
                f"{self.place.row(self.first_line)}: the first column counts the rows, 0, 1, ... "
                f"beside real numbers: an index or data? ({_INDEX_ADVICE})"
            )
        if self.header_of_integers and self.rows > 1:
            _logger.warning(
                "%s: 0, 1, 2, ... was read as data; header=True reads it as names of columns",
                self.place.row(self.first_line),
            )


# --- inline text ----------------------------------------------------------------------------


def parse_inline(text: str, name: str = "", *, max_elements: int) -> np.ndarray:
    """The matrix in text such as "1 4; 2 5; 3 6".

    Rows are parted by `;` or a new line, elements by spaces, commas or both. Returns a 2-D array
    as parse_lines does. Raises MatrixFileError, naming row and element.
    """
    place = Place(name, "row")
    rows = [row.strip() for row in re.split(r"[;\n]", text.strip())]
    if len(rows) > 1 and not rows[-1]:
        rows.pop()  # a semicolon after the last row
    collector: Collector | None = None
    for number, row in enumerate(rows, start=1):
        if not row:
            raise MatrixFileError(f"{place.row(number)}: no elements")
        cells = re.split(r"\s*,\s*|\s+", row)
        collector = collector or Collector(place, len(cells), 0, max_elements)
        collector.add(number, cells)
    return collector.matrix()


# --- writing --------------------------------------------------------------------------------


def matrix_lines(array: np.ndarray, delimiter: str) -> Iterator[str]:
    """The lines, each with its end, that parse_lines reads back as the same numbers.

    array: 2-D, or 1-D (a column, as numpy.savetxt writes it), of bool, integers, float16, float32,
    float64 or their complex kinds. Real numbers are written as float64 with the digits that
    restore them exactly, so that a float32 is restored without saying that it was one.
    """
    rows = array.reshape(-1, 1) if array.ndim < 2 else array
    write = _complex_text if array.dtype.kind == "c" else repr
    for row in rows:
        yield delimiter.join(map(write, row.tolist())) + "\n"


def _complex_text(value: complex) -> str:
    return repr(value).strip("()")
