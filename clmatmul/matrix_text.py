"""Matrices as text: read rows of numbers, write them, show them to people, ask for them.

Everything here works on text that is already at hand (lines, a string, the answers of a person);
files and bounds on files are matrix_files.py. One parser serves files, standard input, inline
text and answers, so that a number means the same everywhere:

    integers      1  -7  +3                     int64 (uint64 if only that holds them)
    real numbers  1.5  -2e-3  nan  inf          float64
    complex       1+2j  (1+2j)  1-2i  3j        complex128
    booleans      True  False                   bool, only if all elements are

A matrix has the widest of the first three kinds found in it. Booleans do not mix with numbers.
"""

from __future__ import annotations

import builtins
import csv
import itertools
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from clmatmul.errors import MatrixFileError

MAX_LINE_CHARACTERS = 2**24
"""A longer line is refused before it is split: a split line takes some thirty times its size."""

MAX_PROMPT_ELEMENTS = 10_000
"""What a person can be asked to type."""

# Elements are converted in blocks, to keep neither one Python object for each element of a large
# file nor one small array for each of many short rows.
_BLOCK_ELEMENTS = 2**16
_MAX_SHOWN_MATRICES = 4

_BOOLEANS = {
    "True": True,
    "true": True,
    "TRUE": True,
    "False": False,
    "false": False,
    "FALSE": False,
}
_DELIMITER_WORDS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t"}
_WHITE_SPACE_WORDS = {" ", "space", "white space", "whitespace"}
_INDEX_ADVICE = "index=True leaves it out, index=False keeps it"

_logger = logging.getLogger("clmatmul")


def shown(text: str, limit: int = 40) -> str:
    """`text` quoted for a message: one line, ASCII, at most about `limit` characters."""
    return ascii(text if len(text) <= limit else text[: limit - 3] + "...")


def counted(number: int, noun: str) -> str:
    """`1 element`, `2 elements`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# --- one element ------------------------------------------------------------------------------


def _complex(cell: str) -> complex:
    """One complex number, also as numpy.savetxt writes it, `(1e+00+-2e+00j)`, and with an i.

    Raises ValueError, also for a bare `i` or `j`: those are names of columns, not numbers.
    """
    text = cell.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    text = re.sub(r"(?<![eE])\+-", "-", text)
    if text[-1:] in ("i", "j", "I", "J"):
        if not re.search(r"(\d|\.|inf|infinity|nan)$", text[:-1], re.IGNORECASE):
            raise ValueError(cell)
        text = text[:-1] + "j"
    return complex(text)


def _is_number(cell: str) -> bool:
    """Whether a cell is a number or a boolean (the grammar in the head of this module)."""
    cell = cell.strip()
    if cell in _BOOLEANS:
        return True
    if not cell.isascii() or "_" in cell:  # int() and float() take 1_000 and other scripts' digits
        return False
    try:
        _complex(cell)
    except ValueError:
        return False
    return True


def _why_not_a_number(cell: str) -> str:
    cell = cell.strip()
    if not cell:
        return "is empty (write nan for a missing number)"
    if re.fullmatch(r"[+-]?\d+,\d+", cell):
        return f"{shown(cell)} is not a number (write a decimal point: {cell.replace(',', '.')})"
    if len(cell.split()) > 1 and all(map(_is_number, cell.split())):
        return f"{shown(cell)} is not one number (another separator between rows or elements?)"
    return f"{shown(cell)} is not a number"


def _looks_like_an_integer(cell: str) -> bool:
    return cell.strip().lstrip("+-").isdigit()


# --- many elements ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """Where rows come from, for messages: `rows.csv`, whose rows are called `line`."""

    name: str
    row_word: str

    def row(self, number: int) -> str:
        return ", ".join(filter(None, (self.name, f"{self.row_word} {number}")))

    def element(self, row: int, element: int) -> str:
        return f"{self.row(row)}, element {element}"


class _Collector:
    """Takes rows of cells, converts them block by block, and gives the matrix at the end."""

    def __init__(self, place: _Place, columns: int, skipped: int, max_elements: int) -> None:
        self.place = place
        self.columns = columns
        self.skipped = skipped  # columns to the left that are not in the matrix (an index)
        self.max_elements = max_elements
        self.rows = 0
        self._cells: list[str] = []
        self._row_numbers: list[int] = []
        self._blocks: list[np.ndarray] = []
        self._outside_int64: str | None = None  # place and text of the first such integer

    def add(self, number: int, cells: list[str]) -> None:
        if len(cells) != self.columns:
            self._convert()  # an error in an earlier row comes first
            raise MatrixFileError(
                f"{self.place.row(number)}: {counted(len(cells) + self.skipped, 'element')}, "
                f"the rows above have {self.columns + self.skipped}"
            )
        self.rows += 1
        if self.rows * self.columns > self.max_elements:
            raise MatrixFileError(
                f"{self.place.row(number)}: more than {self.max_elements} elements, the limit"
            )
        self._cells += cells
        self._row_numbers.append(number)
        if len(self._cells) >= _BLOCK_ELEMENTS:
            self._convert()

    def matrix(self) -> np.ndarray:
        """The matrix, rows x columns, C order; int64, uint64, float64, complex128 or bool."""
        self._convert()
        matrix = np.empty(self.rows * self.columns, self._common_dtype())
        start = 0
        for block in self._blocks:
            matrix[start : start + block.size] = block
            start += block.size
        return matrix.reshape(self.rows, self.columns)

    def _common_dtype(self) -> type:
        kinds = {block.dtype.kind for block in self._blocks}
        if "c" in kinds:
            return np.complex128
        if "f" in kinds:
            return np.float64
        if "O" not in kinds:
            return np.int64 if "i" in kinds else np.bool_
        if all(block.min() >= 0 and block.max() < 2**64 for block in self._blocks):
            return np.uint64
        raise MatrixFileError(
            f"{self._outside_int64} fits no 64-bit integer (a decimal point, as in 1.0, anywhere "
            "in the matrix makes all elements real numbers)"
        )

    def _convert(self) -> None:
        """Turn the waiting cells into a block; int64, object (int), float64, complex128, bool."""
        if not self._cells:
            return
        block = self._numbers()
        if block is None:
            block = self._booleans()
        if self._blocks and (block.dtype.kind == "b") != (self._blocks[0].dtype.kind == "b"):
            raise MatrixFileError(f"{self._where(0)}: numbers and True or False do not mix")
        self._blocks.append(block)
        self._cells = []
        self._row_numbers = []

    def _numbers(self) -> np.ndarray | None:
        joined = "".join(self._cells)
        if not joined.isascii() or "_" in joined:  # int() and float() are more generous
            return None
        for convert, dtype in ((int, np.int64), (float, np.float64), (_complex, np.complex128)):
            try:
                numbers = list(map(convert, self._cells))
            except ValueError:
                continue
            try:
                block = np.array(numbers, dtype)
            except OverflowError:
                return self._large_integers(numbers)
            if dtype is not np.int64 and not np.isfinite(block).all():
                self._check_overflow(block)
            return block
        return None

    def _large_integers(self, numbers: list[int]) -> np.ndarray:
        at = next(i for i, value in enumerate(numbers) if not -(2**63) <= value < 2**63)
        if self._outside_int64 is None:
            self._outside_int64 = f"{self._where(at)}: {shown(self._cells[at].strip())}"
        for i, value in enumerate(numbers):
            if abs(value) > sys.float_info.max:
                raise MatrixFileError(f"{self._where(i)}: too large for float64")
        return np.array(numbers, object)

    def _check_overflow(self, block: np.ndarray) -> None:
        """float("1e999") is inf: refuse an infinity that the text does not name."""
        for i in np.flatnonzero(np.isinf(block)).tolist():
            if "inf" not in self._cells[i].lower():
                raise MatrixFileError(
                    f"{self._where(i)}: {shown(self._cells[i].strip())} is too large for float64"
                )

    def _booleans(self) -> np.ndarray:
        """The waiting cells as booleans; the one clear line if they are not all such."""
        for i, cell in enumerate(self._cells):
            if not _is_number(cell):
                raise MatrixFileError(f"{self._where(i)}: {_why_not_a_number(cell)}{self._hint(i)}")
        kinds = [cell.strip() in _BOOLEANS for cell in self._cells]
        if not all(kinds):
            at = kinds.index(not kinds[0])
            raise MatrixFileError(f"{self._where(at)}: numbers and True or False do not mix")
        return np.array([_BOOLEANS[cell.strip()] for cell in self._cells])

    def _where(self, i: int) -> str:
        row, column = divmod(i, self.columns)
        return self.place.element(self._row_numbers[row], column + 1 + self.skipped)

    def _hint(self, i: int) -> str:
        if self.place.row_word != "line" or self.skipped or i % self.columns or self.columns == 1:
            return ""
        if not re.search(r"[A-Za-z]", self._cells[i]):
            return ""
        return " (if the first column holds names of rows, index=True leaves it out)"


# --- lines of a file --------------------------------------------------------------------------


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
    place = _Place(name, "line")
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
        reason = _why_not_a_number(layout.names[0])
        raise MatrixFileError(f"{place.element(first[0], 1)}: {reason}, and no rows follow")
    return _collect(place, itertools.chain(following, rows), layout, options, max_elements)


def _significant(lines: Iterable[str], place: _Place) -> Iterator[tuple[int, str]]:
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


def _split(place: _Place, number: int, line: str, delimiter: str | None) -> list[str]:
    if '"' not in line:
        return line.split(delimiter)
    try:
        line = line if delimiter else line.strip()
        reader = csv.reader([line], delimiter=delimiter or " ", skipinitialspace=True, strict=True)
        return next(reader)
    except csv.Error as error:
        raise MatrixFileError(f"{place.row(number)}: quotation marks: {error}") from None


def _find_layout(
    place: _Place,
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


def _is_header(place: _Place, number: int, cells: list[str], wanted: bool | None) -> bool:
    if wanted is not None:
        return wanted
    are_numbers = [_is_number(cell) for cell in cells]
    if all(are_numbers):
        return False
    if not any(are_numbers):
        return True
    # pandas numbers the columns of a plain array, and puts nothing above the index.
    if not cells[0] and cells[1:] == [str(i) for i in range(len(cells) - 1)]:
        return True
    at = are_numbers.index(False)
    raise MatrixFileError(
        f"{place.element(number, at + 1)}: {_why_not_a_number(cells[at])} "
        "(if this line names columns: header=True, and index=True if the first is an index)"
    )


def _collect(
    place: _Place,
    rows: Iterable[tuple[int, str]],
    layout: _Layout,
    options: TextOptions,
    max_elements: int,
) -> np.ndarray:
    collector: _Collector | None = None
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
            collector = _Collector(place, len(cells), layout.skipped, max_elements)
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

    def __init__(self, place: _Place, layout: _Layout, options: TextOptions) -> None:
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
            self.header = not any(map(_looks_like_an_integer, cells))
        if self.index:
            self.index = (
                len(cells) > 1
                and cells[0].strip() == str(self.rows - 1)
                and not any(map(_looks_like_an_integer, cells[1:]))
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


# --- inline text ------------------------------------------------------------------------------


def parse_inline(text: str, name: str = "", *, max_elements: int) -> np.ndarray:
    """The matrix in text such as "1 4; 2 5; 3 6".

    Rows are parted by `;` or a new line, elements by spaces, commas or both. Returns a 2-D array
    as parse_lines does. Raises MatrixFileError, naming row and element.
    """
    place = _Place(name, "row")
    rows = [row.strip() for row in re.split(r"[;\n]", text.strip())]
    if len(rows) > 1 and not rows[-1]:
        rows.pop()  # a semicolon after the last row
    collector: _Collector | None = None
    for number, row in enumerate(rows, start=1):
        if not row:
            raise MatrixFileError(f"{place.row(number)}: no elements")
        cells = re.split(r"\s*,\s*|\s+", row)
        collector = collector or _Collector(place, len(cells), 0, max_elements)
        collector.add(number, cells)
    return collector.matrix()


# --- writing ----------------------------------------------------------------------------------


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


# --- for people -------------------------------------------------------------------------------


def format_matrix(
    array: np.ndarray, *, max_rows: int = 20, max_columns: int = 8, precision: int = 6
) -> str:
    """A matrix as plain ASCII text for people: aligned columns, `...` for what is left out.

    array: any shape; a vector is one row; of more than two dimensions, the first few matrices are
    shown, each below its index. max_rows, max_columns: the most that are shown, at least 2 each;
    precision: significant digits. Returns lines joined by newlines, with none at the end and no
    white space at the ends of lines. For exact text use write_matrix.
    """
    array = np.asarray(array)
    if array.size == 0:
        return f"(no elements: {' x '.join(map(str, array.shape))})"
    if array.ndim <= 2:
        rows = array.reshape(1, -1) if array.ndim < 2 else array
        return "\n".join(_table(rows, max(2, max_rows), max(2, max_columns), precision))
    parts = []
    indices = list(itertools.islice(np.ndindex(array.shape[:-2]), _MAX_SHOWN_MATRICES))
    for index in indices:
        part = format_matrix(
            array[index], max_rows=max_rows, max_columns=max_columns, precision=precision
        )
        parts.append(f"[{', '.join(map(str, index))}]\n{part}")
    left = array.size // (array.shape[-2] * array.shape[-1]) - len(indices)
    if left:
        parts.append(f"... ({left} more)")
    return "\n\n".join(parts)


def _table(rows: np.ndarray, max_rows: int, max_columns: int, precision: int) -> list[str]:
    shown_rows = _kept(rows.shape[0], max_rows)
    columns = []
    for j in _kept(rows.shape[1], max_columns):
        if j is None:
            columns.append(["..."] * len(shown_rows))
        else:
            numbers = [
                "..." if i is None else _short(rows[i, j].item(), precision) for i in shown_rows
            ]
            columns.append(_aligned(numbers))
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def _kept(count: int, limit: int) -> list[int | None]:
    """Indices to show, None where some are left out: 0 1 None 8 9."""
    if count <= limit:
        return list(range(count))
    head = (limit + 1) // 2
    return [*range(head), None, *range(count - (limit - head), count)]


def _short(value: object, precision: int) -> str:
    if isinstance(value, complex):
        return f"{value.real:.{precision}g}{value.imag:+.{precision}g}j"
    if isinstance(value, (bool, int)):
        return str(value)
    return f"{value:.{precision}g}"


def _aligned(texts: list[str]) -> list[str]:
    """Right-aligned; real numbers by their points."""
    if not any("j" in text for text in texts):
        tails = [len(text) - text.index(".") if re.match(r"-?\d+\.", text) else 0 for text in texts]
        tail = max(tails)
        texts = [text + " " * (tail - own) for text, own in zip(texts, tails, strict=True)]
    width = max(map(len, texts))
    return [text.rjust(width) for text in texts]


# --- asking -----------------------------------------------------------------------------------


def prompt_matrix(
    name: str, *, input: Callable[[str], str] | None = None, output=None
) -> np.ndarray:
    """Ask a person for a matrix: rows, columns, then the elements, one row a line.

    name: what to call it. input: a function that returns one answer, by default the builtin; it is
    called with an empty prompt, because the builtin prints prompts on standard output, where only
    results belong. output: where questions and reasons go, by default standard error.

    Each answer is checked, and asked for again with the reason. Returns a 2-D array as
    parse_lines does. Raises MatrixFileError at the end of input.
    """
    ask = _Asker(name, input or builtins.input, output or sys.stderr)
    rows = ask.size("rows", MAX_PROMPT_ELEMENTS)
    columns = ask.size("columns", MAX_PROMPT_ELEMENTS // rows)
    texts: list[str] = []
    for number in range(1, rows + 1):
        texts.append(ask.row(number, columns, texts[:1]))
    return parse_inline("\n".join(texts), name, max_elements=MAX_PROMPT_ELEMENTS)


@dataclass(frozen=True)
class _Asker:
    name: str
    input: Callable[[str], str]
    output: object

    def say(self, text: str) -> None:
        self.output.write(text)
        self.output.flush()

    def answer(self, question: str) -> str:
        self.say(question)
        try:
            return self.input("").strip()
        except EOFError:
            self.say("\n")
            raise MatrixFileError(f"{self.name}: the input ended before the matrix did") from None

    def size(self, noun: str, limit: int) -> int:
        while True:
            text = self.answer(f"{self.name}: number of {noun}: ")
            if not re.fullmatch(r"\+?[0-9]{1,18}", text):
                self.say(f"  {shown(text)} is not a whole number, such as 3\n")
            elif not 1 <= int(text) <= limit:
                self.say(f"  {int(text)}: must be from 1 to {limit}\n")
            else:
                return int(text)

    def row(self, number: int, columns: int, above: list[str]) -> str:
        """One good row; `above` has the first row, with whose kind (True, 1) this must agree."""
        elements = counted(columns, "element")
        while True:
            text = self.answer(f"{self.name}, row {number} ({elements}): ")
            if not text or ";" in text:
                self.say(f"  one row is asked for: {elements}, parted by spaces or commas\n")
                continue
            try:
                found = parse_inline(text, max_elements=MAX_PROMPT_ELEMENTS).shape[1]
                if found == columns:
                    parse_inline("\n".join([*above, text]), max_elements=MAX_PROMPT_ELEMENTS)
                    return text
            except MatrixFileError as error:
                reason = re.sub(r"^row \d+, ", "", str(error))
            else:
                reason = f"{counted(found, 'element')}, not {columns}"
            self.say(f"  {reason}: type the row again\n")
