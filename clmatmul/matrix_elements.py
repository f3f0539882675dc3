"""Elements of a matrix as text: one grammar for files, standard input, inline text and answers.

    integers      1  -7  +3                     int64 (uint64 if only that holds them)
    real numbers  1.5  -2e-3  nan  inf          float64
    complex       1+2j  (1+2j)  1-2i  3j        complex128
    booleans      True  False                   bool, only if all elements are

A matrix has the widest of the first three kinds found in it. Booleans do not mix with numbers.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

import numpy as np

from clmatmul.errors import MatrixFileError

# Elements are converted in blocks, to keep neither one Python object for each element of a large
# file nor one small array for each of many short rows.
_BLOCK_ELEMENTS = 2**16

_BOOLEANS = {
    "True": True,
    "true": True,
    "TRUE": True,
    "False": False,
    "false": False,
    "FALSE": False,
}


def shown(text: str, limit: int = 40) -> str:
    """`text` quoted for a message: one line, ASCII, at most about `limit` characters."""
    return ascii(text if len(text) <= limit else text[: limit - 3] + "...")


def counted(number: int, noun: str) -> str:
    """`1 element`, `2 elements`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# --- one element ----------------------------------------------------------------------------


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


def is_number(cell: str) -> bool:
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


def why_not_a_number(cell: str) -> str:
    cell = cell.strip()
    if not cell:
        return "is empty (write nan for a missing number)"
    if re.fullmatch(r"[+-]?\d+,\d+", cell):
        return f"{shown(cell)} is not a number (write a decimal point: {cell.replace(',', '.')})"
    if len(cell.split()) > 1 and all(map(is_number, cell.split())):
        return f"{shown(cell)} is not one number (another separator between rows or elements?)"
    return f"{shown(cell)} is not a number"


def looks_like_an_integer(cell: str) -> bool:
    return cell.strip().lstrip("+-").isdigit()


# --- many elements --------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where rows come from, for messages: `rows.csv`, whose rows are called `line`."""

    name: str
    row_word: str

    def row(self, number: int) -> str:
        return ", ".join(filter(None, (self.name, f"{self.row_word} {number}")))

    def element(self, row: int, element: int) -> str:
        return f"{self.row(row)}, element {element}"


class Collector:
    """Takes rows of cells, converts them block by block, and gives the matrix at the end."""

    def __init__(self, place: Place, columns: int, skipped: int, max_elements: int) -> None:
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
            if not is_number(cell):
                raise MatrixFileError(f"{self._where(i)}: {why_not_a_number(cell)}{self._hint(i)}")
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
