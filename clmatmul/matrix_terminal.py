"""Matrices and people: shown as a table of plain text, and asked for row by row."""

from __future__ import annotations

import builtins
import itertools
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clmatmul.errors import MatrixFileError
from clmatmul.matrix_elements import counted, shown
from clmatmul.matrix_text import parse_inline

MAX_PROMPT_ELEMENTS = 10_000
"""What a person can be asked to type."""

_MAX_SHOWN_MATRICES = 4


# --- showing --------------------------------------------------------------------------------


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


# --- asking ---------------------------------------------------------------------------------


def prompt_matrix(
    name: str,
    *,
    rows: int | None = None,
    columns: int | None = None,
    input: Callable[[str], str] | None = None,
    output=None,
) -> np.ndarray:
    """Ask a person for a matrix: rows, columns, then the elements, one row a line.

    name: what to call it. rows, columns: what is known already, and is told instead of asked.
    input: a function that returns one answer, by default the builtin; it is called with an empty
    prompt, because the builtin prints prompts on standard output, where only results belong.
    output: where questions and reasons go, by default standard error.

    Each answer is checked, and asked for again with the reason. Returns a 2-D array as
    parse_lines does. Raises MatrixFileError at the end of input.
    """
    ask = _Asker(name, input or builtins.input, output or sys.stderr)
    rows = ask.size("rows", MAX_PROMPT_ELEMENTS // (columns or 1), rows)
    columns = ask.size("columns", MAX_PROMPT_ELEMENTS // rows, columns)
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

    def size(self, noun: str, limit: int, known: int | None) -> int:
        if known is not None:
            self.say(f"{self.name}: number of {noun}: {known}, as the other matrix needs it\n")
            return known
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
