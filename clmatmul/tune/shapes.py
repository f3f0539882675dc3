"""Lists of problems to tune: files, suites, ranges, and what an application recorded.

Each problem comes with a weight: the part of the budget that it is worth.
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from clmatmul.call_log import read_calls
from clmatmul.element_types import ELEMENT_TYPES
from clmatmul.errors import ArgumentError
from clmatmul.explanation import plain_problem
from clmatmul.problem import Problem

_MOST = 10_000
_COLUMNS = ("m", "n", "k")


@dataclass(frozen=True)
class Weighted:
    """A problem, and its part of the budget in proportion to the others'."""

    problem: Problem
    weight: float = 1.0


def read_shapes(path, dtype="float32", layout="NN"):
    """The Weighted problems of a file; ArgumentError names the line.

    .jsonl: what CLMATMUL_RECORD wrote, weighted by the time that was spent. Otherwise CSV with a
    line of names: m, n and k, and where they are there batch, dtype, layout or transpose_a and
    transpose_b, weight; or plain lines `m n k`.
    """
    path = Path(path)
    if path.suffix == ".jsonl":
        calls = read_calls(path)
        return _some([Weighted(x.problem, max(x.seconds, 1e-9)) for x in calls], path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"--shapes {path} cannot be read: {error}") from None
    lines = [x for x in text.splitlines() if x.strip() and not x.lstrip().startswith("#")]
    if not lines:
        raise ArgumentError(f"--shapes {path} names no product")
    names = [x.strip().lower() for x in lines[0].split(",")]
    if set(_COLUMNS) <= set(names):
        rows = csv.DictReader(io.StringIO("\n".join([",".join(names), *lines[1:]])))
        found = [_row(x, f"{path}, line {i}", dtype, layout) for i, x in enumerate(rows, 2)]
    else:
        found = [_plain_line(x, f"{path}, line {i}", dtype, layout)
                 for i, x in enumerate(lines, 1)]  # fmt: skip
    return _some(found, path)


def _some(found, path):
    if not found:
        raise ArgumentError(f"--shapes {path} names no product")
    merged = {}
    for one in found:
        merged[one.problem] = merged.get(one.problem, 0.0) + one.weight
    return [Weighted(*x) for x in merged.items()]


def _row(row, where, dtype, layout):
    letters = "".join(
        "T" if (row.get(f"transpose_{x}") or "0").strip() not in ("0", "", "false") else "N"
        for x in "ab"
    )
    if row.get("layout"):
        letters = row["layout"].strip().upper()
    elif "transpose_a" not in row:
        letters = layout
    batch = _number(row.get("batch") or "1", where)
    weight = row.get("weight") or row.get("count") or "1"
    try:
        weight = float(weight)
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise ArgumentError(f"{where}: a weight is a number above 0")
    sizes = [_number(row[x], where) for x in _COLUMNS]
    return Weighted(
        _problem(where, *sizes, (row.get("dtype") or dtype).strip(), letters, batch), weight
    )


def _plain_line(line, where, dtype, layout):
    parts = line.replace(",", " ").replace("x", " ").replace("×", " ").split()
    if len(parts) not in (3, 4):
        raise ArgumentError(f"{where}: {line!r} is not m n k, or batch m n k")
    numbers = [_number(x, where) for x in parts]
    batch = numbers.pop(0) if len(numbers) == 4 else 1
    return Weighted(_problem(where, *numbers, dtype, layout, batch))


def _problem(where, m, n, k, dtype, layout, batch=1):
    if dtype not in ELEMENT_TYPES:
        raise ArgumentError(f"{where}: dtype {dtype!r} is none of {', '.join(ELEMENT_TYPES)}")
    if layout not in ("NN", "NT", "TN", "TT"):
        raise ArgumentError(f"{where}: layout {layout!r} is none of NN, NT, TN, TT")
    return plain_problem(m, n, k, dtype, layout, (batch,) if batch > 1 else ())


def _number(text, where):
    text = str(text).strip()
    if not text.isdigit() or not 0 < int(text) < 2**31:
        raise ArgumentError(f"{where}: {text!r} is no size from 1 to 2^31 - 1")
    return int(text)


def size_range(text):
    """The sizes of '64', '64,128', '64:256:64' (both ends) or '64:1024:x2'; ArgumentError."""
    found = []
    for part in text.split(","):
        pieces = part.strip().split(":")
        numbers = [x.removeprefix("x") for x in pieces]
        if len(pieces) > 3 or not all(x.isdigit() and 0 < int(x) < 2**31 for x in numbers):
            raise ArgumentError(f"{text!r} is no size, list or range such as 64:256:64, 64:1024:x2")
        first = int(numbers[0])
        last = int(numbers[1]) if len(numbers) > 1 else first
        step = int(numbers[2]) if len(numbers) > 2 else 1
        grows = len(pieces) > 2 and pieces[2].startswith("x")
        if grows and step == 1 or last < first:
            raise ArgumentError(f"{text!r} has no end")
        while first <= last and len(found) <= _MOST:
            found.append(first)
            first = first * step if grows else first + step
    if len(found) > _MOST:
        raise ArgumentError(f"{text!r} has more than {_MOST} sizes")
    return found


SUITES = {
    "square": "64 to 1024, float32 and float64",
    "layouts": "512, each layout, float32 and float64",
    "skinny": "long and thin, and vectors, float32 and float64",
    "batched": "many small products, float32",
}


def suite(name):
    """The Weighted problems of a named suite, all of one weight; ArgumentError lists them."""
    if name not in SUITES:
        raise ArgumentError(f"suite {name!r} is unknown; there are {', '.join(SUITES)}")
    reals = ("float32", "float64")
    if name == "square":
        sizes = (64, 128, 256, 384, 512, 768, 1024)
        found = [plain_problem(n, n, n, dtype) for dtype in reals for n in sizes]
    elif name == "layouts":
        layouts = ("NN", "NT", "TN", "TT")
        found = [plain_problem(512, 512, 512, d, x) for d in reals for x in layouts]
    elif name == "skinny":
        sizes = ((2048, 64, 64), (64, 2048, 64), (64, 64, 4096), (1024, 16, 1024),
                 (16, 1024, 1024), (2048, 1, 2048), (1, 2048, 2048))  # fmt: skip
        found = [plain_problem(*x, dtype) for dtype in reals for x in sizes]
    else:
        sizes = ((1000, 16), (1000, 32), (256, 64), (64, 128))
        found = [plain_problem(n, n, n, batch=(count,)) for count, n in sizes]
    return [Weighted(x) for x in found]
