"""Pages of the walkthrough: what a part has to show, and how it is shown.

A page is made of blocks: prose, drawings (kept as they are), code, tables and heat maps.
`plain_text` writes it for files and pipes, without any control character; `show` writes it to a
terminal with rich. Both say the same.
"""

import re
import textwrap
from dataclasses import dataclass

PLAIN_WIDTH = 80
_RICH_WIDTH = 100  # columns; longer lines of prose are hard to read
_NARROWEST = 12  # columns of a cell that is wrapped
_SHADES = "·░▒▓█"
_NUMBER = re.compile(r"[-+]?[\d,]+(\.\d+)?( ?[%×]| ms| MB)?|-|")


@dataclass(frozen=True)
class Prose:
    """A paragraph; it is wrapped to the width there is."""

    text: str


@dataclass(frozen=True)
class Drawing:
    """Lines that must stay as they are; at most 78 columns."""

    text: str


@dataclass(frozen=True)
class Code:
    """Source text, folded only where the width does not suffice. language: c, python, console."""

    text: str
    language: str = "c"


@dataclass(frozen=True)
class Table:
    """Rows of cells, all text; columns of numbers are set to the right."""

    columns: tuple
    rows: tuple


@dataclass(frozen=True)
class HeatMap:
    """values[i][j] belongs to rows[i] and columns[j]; None where nothing could be measured."""

    row_name: str
    column_name: str
    rows: tuple
    columns: tuple
    values: tuple
    unit: str


@dataclass(frozen=True)
class Page:
    """One part of the walkthrough. values: a frozen dataclass of what was computed and read."""

    letter: str
    name: str
    title: str
    blocks: tuple
    values: object


def matrix_text(rows):
    """A matrix of numbers as lines of aligned text."""
    cells = [[f"{x:g}" for x in row] for row in rows]
    width = max(len(x) for row in cells for x in row)
    return [" ".join(x.rjust(width) for x in row) for row in cells]


def beside(*columns, gap=4):
    """Columns of lines, each with a heading, next to each other: (heading, lines), …"""
    blocks = []
    for heading, lines in columns:
        width = max(map(len, [heading, *lines]))
        blocks.append([x.ljust(width) for x in [heading, *lines]])
    height = max(map(len, blocks))
    for block in blocks:
        block += [" " * len(block[0])] * (height - len(block))
    return "\n".join((" " * gap).join(row).rstrip() for row in zip(*blocks, strict=True))


def plain_text(page, width=PLAIN_WIDTH):
    """The page as plain text, ending in a newline."""
    title = f"({page.letter}) {page.title}"
    parts = [f"{title}\n{'=' * len(title)}"]
    for block in page.blocks:
        margin = "" if isinstance(block, Prose) else "  "
        lines = block_lines(block, width - len(margin))
        parts.append("\n".join((margin + line).rstrip() for line in lines))
    return "\n\n".join(parts) + "\n"


def block_lines(block, width):
    """A block as lines of plain text."""
    if isinstance(block, Prose):
        return textwrap.wrap(block.text, width, break_on_hyphens=False, break_long_words=False)
    if isinstance(block, Drawing):
        return block.text.split("\n")
    if isinstance(block, Code):
        return folded(block.text, width)
    if isinstance(block, Table):
        return _table_lines(block, width)
    return [*_table_lines(heat_table(block), width), _legend(block)]


def folded(code, width):
    """Lines of code, those longer than `width` continued on a further line."""
    lines = []
    for line in code.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        more = indent + ("//  " if line.lstrip().startswith("//") else "    ")
        lines += textwrap.wrap(
            line, width, subsequent_indent=more, break_on_hyphens=False, break_long_words=False
        ) or [""]
    return lines


def is_numeric(table, column):
    """True if every cell of a column is a number, with or without a unit, or empty."""
    return all(_NUMBER.fullmatch(row[column]) for row in table.rows)


def _table_lines(table, width):
    widths = [max(map(len, x)) for x in zip(table.columns, *table.rows, strict=True)]
    right = [is_numeric(table, i) for i in range(len(widths))]
    while sum(widths) + 2 * (len(widths) - 1) > width:  # the widest words go on below
        words = [i for i, is_number in enumerate(right) if not is_number]
        widest = max(words, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1

    def lines(cells):
        parts = [_wrapped(cell, room) for cell, room in zip(cells, widths, strict=True)]
        for i in range(max(map(len, parts))):
            yield "  ".join(
                (part[i] if i < len(part) else "").rjust(room)
                if to_right
                else (part[i] if i < len(part) else "").ljust(room)
                for part, room, to_right in zip(parts, widths, right, strict=True)
            ).rstrip()

    rule = "  ".join("-" * room for room in widths)
    return [*lines(table.columns), rule, *(x for row in table.rows for x in lines(row))]


def _wrapped(cell, width):
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width, subsequent_indent="  ", break_on_hyphens=False)


def speed_text(value):
    """A speed with three digits or so."""
    decimals = 2 if value < 1 else 1 if value < 100 else 0
    return f"{value:.{decimals}f}"


def heat_table(heat):
    """A heat map in digits: each value, and where it lies between the smallest and the largest."""
    level = _level_of(heat, 10)
    rows = tuple(
        (label, *("-" if x is None else f"{speed_text(x)} {level(x)}" for x in values))
        for label, values in zip(heat.rows, heat.values, strict=True)
    )
    return Table((f"{heat.row_name} \\ {heat.column_name}", *heat.columns), rows)


def _level_of(heat, levels):
    """A function from a value to its level: 0 for the smallest there is, levels - 1 for the
    largest."""
    known = [x for row in heat.values for x in row if x is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    step = (high - low) / (levels - 1) or 1.0
    return lambda x: round((x - low) / step)


def _legend(heat):
    return f"{heat.unit}; then a digit, from 0 for the slowest to 9 for the fastest."


def show(page, console):
    """Write the page to a terminal by way of a rich.console.Console."""
    from rich.padding import Padding
    from rich.text import Text

    width = min(console.width, _RICH_WIDTH)
    console.print()
    console.rule(Text(f"({page.letter}) {page.title}", style="bold"), align="left")
    for block in page.blocks:
        console.print()
        if isinstance(block, Prose):
            lines = textwrap.wrap(block.text, width, break_on_hyphens=False, break_long_words=False)
            console.print(Text("\n".join(lines)), soft_wrap=True)
        else:
            console.print(Padding(_rich_block(block, width), (0, 0, 0, 2)), highlight=False)


def _rich_block(block, width):
    from rich.syntax import Syntax
    from rich.text import Text

    if isinstance(block, Drawing):
        return Text(block.text, style="cyan", no_wrap=True)
    if isinstance(block, Code):
        text = "\n".join(folded(block.text, width - 2))
        return Syntax(text, block.language, theme="ansi_dark", background_color="default")
    if isinstance(block, Table):
        return _rich_table(block)
    return _rich_heat(block)


def _rich_table(table):
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    result = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for i, name in enumerate(table.columns):
        justify = "right" if is_numeric(table, i) else "left"
        result.add_column(Text(name), justify=justify, overflow="fold")
    for row in table.rows:
        result.add_row(*map(Text, row))
    return result


def _rich_heat(heat):
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    level = _level_of(heat, len(_SHADES))
    result = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, caption_justify="left",
        caption=f"{heat.unit}; {_SHADES[0]} is the slowest, {_SHADES[-1]} the fastest",
    )  # fmt: skip
    result.add_column(f"{heat.row_name} \\ {heat.column_name}", justify="right")
    for name in heat.columns:
        result.add_column(name, justify="right")
    colours = ("blue", "cyan", "green", "yellow", "red")
    for label, values in zip(heat.rows, heat.values, strict=True):
        cells = []
        for x in values:
            if x is None:
                cells.append(Text("-"))
                continue
            cells.append(Text(f"{_SHADES[level(x)] * 4} {speed_text(x)}", style=colours[level(x)]))
        result.add_row(label, *cells)
    return result
