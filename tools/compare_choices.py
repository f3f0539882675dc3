"""Whether this checkout's default choices are faster than another's.

    python tools/compare_choices.py OLD_CHECKOUT SHAPES.csv --dtype float64 --below 2e9

For each product of the file (as `clmatmul tune --shapes` reads it) both checkouts say what they
would choose with no record at all. Where they differ, both configurations are checked and then run
in turn by this checkout's kernels, in two sets of buffers. Prints old ÷ new times (above 1, this
checkout is faster) with their 95 % confidence, the worst first, and the geometric mean. Run it
alone on the machine.
"""

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from in_checkout import ask  # noqa: E402
from timed_part import in_turn, opened, right_ones  # noqa: E402

from clmatmul.choose import checked  # noqa: E402
from clmatmul.measure import compare  # noqa: E402
from clmatmul.tune.shapes import read_shapes  # noqa: E402

# Run in each of the checkouts: the default configuration of each product, as text.
SCRIPT = """
import json, sys
from clmatmul.choose import choose
from clmatmul.database import TuningDatabase
from clmatmul.selection import resolve
from clmatmul.tune.shapes import read_shapes
file, dtype, selector = json.loads(sys.argv[1])
profile = resolve(selector).profile
found = [x.problem for x in read_shapes(file, dtype)]
print(json.dumps([str(choose(x, profile, TuningDatabase())[0].config) for x in found]))
"""
_PLACES = 2  # sets of buffers: where they lie makes a few percent
_ROUNDS = 301


def choices(checkout, file, dtype, selector=None):
    """The default configuration, as text, of each product of the file, as a checkout has it."""
    return ask(checkout, SCRIPT, json.dumps([str(Path(file).resolve()), dtype, selector]))


def compared(device, problem, old, new, seconds):
    """The Comparison of two configurations given as text; above 1, the new one is faster.

    RuntimeError if one of them gives a wrong result.
    """
    configs = [checked(x, problem, device.profile) for x in (new, old)]
    if len(right_ones(device, problem, configs)) < 2:
        raise RuntimeError(f"wrong result of {problem}: {old} or {new}")
    times = ([], [])
    for _ in range(_PLACES):
        found = in_turn(device, problem, configs, _ROUNDS, seconds / _PLACES)
        for all_times, more in zip(times, found, strict=True):
            all_times += more
    return compare(*times)


def main(argv=None):
    """Compare what differs, as far as the time goes; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path, metavar="OLD_CHECKOUT")
    parser.add_argument("file", type=Path, metavar="SHAPES.csv")
    parser.add_argument("--dtype", default="float32", help="of lines that name none")
    parser.add_argument("--below", type=float, default=math.inf, help="operations of a product")
    parser.add_argument("--each", type=float, default=0.6, help="seconds for each product")
    parser.add_argument("--seconds", type=float, default=90, help="for all of them")
    parser.add_argument("--device")
    arguments = parser.parse_args(argv)
    end, device = time.monotonic() + arguments.seconds, opened(arguments.device)
    problems = [x.problem for x in read_shapes(arguments.file, arguments.dtype)]
    chosen = [choices(x, arguments.file, arguments.dtype, arguments.device)
              for x in (arguments.old, ROOT)]  # fmt: skip
    given = [x for x in zip(problems, *chosen, strict=True) if x[0].flops < arguments.below]
    differ = [(problem, old, new) for problem, old, new in given if old != new]
    rows = []
    for problem, old, new in differ:
        if time.monotonic() > end:
            break
        rows.append((compared(device, problem, old, new, arguments.each), problem, old, new))
    for found, problem, old, new in sorted(rows, key=lambda x: x[0].ratio):
        print(
            f"{found.ratio:5.2f} ({found.low:.2f} to {found.high:.2f})  {problem}: {old} -> {new}"
        )
    print(f"{len(given)} products, {len(differ)} choices differ, {len(rows)} compared")
    if rows:
        mean = statistics.geometric_mean(x[0].ratio for x in rows)
        print(f"old ÷ new {mean:.3f} (geometric mean)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
