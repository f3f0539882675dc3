"""What goes to standard output: tables, JSON, matrices. On a terminal rich draws the tables;
anywhere else they are plain text without any control character.
"""

import contextlib
import json
import math
import re
import shutil
import sys
import textwrap
from dataclasses import dataclass

import numpy as np

from clmatmul.matrix_files import format_matrix, write_matrix

SCHEMA = 1
_NARROWEST_COLUMN = 3  # of a shown matrix: one digit and the gap
_OTHER_LINES = 5  # of the screen: the command, the note, the next prompt


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; `right` names the columns that hold numbers."""

    columns: tuple
    rows: tuple
    right: tuple = ()
    title: str = ""


def on_terminal(stream=None):
    """Whether a person is looking at the stream (standard output by default)."""
    stream = sys.stdout if stream is None else stream
    return stream is not None and stream.isatty()


def print_text(text):
    """A result, as it is."""
    sys.stdout.write(f"{text}\n")


def print_lines(text):
    """Lines for people; on a terminal, lines that are too long go on below, indented."""
    for line in str(text).splitlines():
        print_text("\n".join(_fitted(line)))


def _fitted(line):
    width = shutil.get_terminal_size().columns
    if not on_terminal() or len(line) <= width:
        return [line]
    label = re.match(r"\S+ {2,}", line)  # of a line of facts, such as `device      pthread`
    indent = label.end() if label else len(line) - len(line.lstrip()) + 2
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * min(indent, width // 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def print_table(table):
    """A table, drawn for whoever reads standard output."""
    if on_terminal():
        _print_rich(table)
    else:
        print_text(plain_table(table))


def plain_table(table):
    """Aligned columns, two spaces apart; numbers to the right."""
    rows = [table.columns, *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    lines = [table.title] if table.title else []
    for row in rows:
        cells = [
            cell.rjust(width) if name in table.right else cell.ljust(width)
            for name, cell, width in zip(table.columns, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _print_rich(table):
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        box=box.SIMPLE_HEAD,
        title=table.title or None,
        title_justify="left",
        pad_edge=False,
        show_edge=False,
    )
    for name in table.columns:
        drawn.add_column(name, justify="right" if name in table.right else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    Console(file=sys.stdout, highlight=False).print(drawn)


def print_json(command, values):
    """One JSON object with its schema number, a line a value; nan and inf are text."""
    sys.stdout.write(json_text(command, values))


def json_text(command, values):
    """What `print_json` prints."""
    document = _plain({"schema": SCHEMA, "command": command, **values})
    lines = [f" {json.dumps(key)}: {json.dumps(x, allow_nan=False)}" for key, x in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _plain(value):
    """The value as JSON has it: complex numbers as [real, imaginary], nan and inf as text."""
    if isinstance(value, dict):
        return {str(key): _plain(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(x) for x in value]
    if isinstance(value, np.ndarray):
        custom = value.dtype.kind == "V"  # bfloat16: a number that JSON's writer does not know
        return _plain((value.astype(np.float64) if custom else value).tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def print_matrix(array):
    """Fitted to the window on a terminal; elsewhere every element, to be read by a program."""
    if not on_terminal():
        write_matrix("-", array)
        return
    width, height = shutil.get_terminal_size()
    array = array.astype(np.float64) if array.dtype.kind == "V" else array  # bfloat16
    for columns in range(width // _NARROWEST_COLUMN, 1, -1):
        text = format_matrix(array, max_rows=height - _OTHER_LINES, max_columns=columns)
        if max(map(len, text.splitlines())) <= width:
            break
    print_text(text)


@contextlib.contextmanager
def progress(quiet):
    """A function that shows what is being done: a line that changes, on a terminal only."""
    if quiet or not on_terminal(sys.stderr):
        yield lambda text: None
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    with console.status("") as status:

        def say(text):
            room = max(console.width - 4, 20)
            status.update(Text(text if len(text) <= room else text[: room - 1] + "…"))

        yield say


def print_note(text):
    """A word on how a result came about, for a person who sees it on the terminal."""
    if on_terminal(sys.stderr):
        sys.stderr.write(f"{text}\n")
