"""`clmatmul bench`: products timed against NumPy, in turn, every result checked."""

import argparse
import sys

from clmatmul.bench import bench
from clmatmul.cli.explain import size
from clmatmul.cli.options import dtype_name
from clmatmul.cli.output import Table, print_json, print_note, print_table, print_text
from clmatmul.tune.report import duration, speed

_COLUMNS = ("size", "dtype", "kernel alone", "GFLOP/s", "matmul", "NumPy", "best", "median",
            "verdict", "error", "origin")  # fmt: skip
_TEXT_COLUMNS = ("size", "dtype", "verdict", "origin")


def add_arguments(parser):
    """Sizes, dtypes, layout, rounds."""
    parser.add_argument("--sizes", type=_sizes, default="256,512,1024", metavar="LIST",
                        help="such as 256,1000x64x3000 (m n k); default 256,512,1024")  # fmt: skip
    parser.add_argument("--dtypes", type=_dtypes, default="float32", metavar="LIST",
                        help="such as float32,float64 (default float32)")  # fmt: skip
    parser.add_argument("--layout", choices=("NN", "NT", "TN", "TT"), default="NN",
                        help="of A and B, as for explain (default NN)")  # fmt: skip
    parser.add_argument("--rounds", type=_rounds, default=11, metavar="COUNT",
                        help="turns of each contestant (default 11)")  # fmt: skip


def run(arguments):
    """Print the table, or one JSON object."""
    found = bench(
        arguments.sizes, arguments.dtypes, layout=arguments.layout, rounds=arguments.rounds,
        device=arguments.device, told=_quiet if arguments.quiet else _tell,
    )  # fmt: skip
    if arguments.json:
        print_json("bench", found.to_dict())
        return 0
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    print_text(f"device  {found.profile.title}, driver {found.profile.driver_version}")
    print_text(f"with    {versions}; {found.rounds} rounds in turn; medians\n")
    rows = tuple(map(_cells, found.rows))
    print_table(Table(_COLUMNS, rows, right=tuple(set(_COLUMNS) - set(_TEXT_COLUMNS))))
    print_text(
        "\nkernel alone: operands on the device. matmul: NumPy arrays in and out. best, median: "
        "how many\ntimes faster matmul is than NumPy, by the best times, and by the median of the "
        "rounds' ratios\nwith its 95 % interval. error: the largest, as a part of what is allowed."
    )
    return 0


def _cells(row):
    p = row.problem
    ratio = row.ratio
    return (
        f"{p.m}×{p.n}×{p.k}",
        p.a.dtype,
        duration(row.device.median_ns),
        speed(p.flops, row.device.median_ns).split()[0],
        f"{duration(row.host.median_ns)} ±{duration(row.host.spread_ns / 2)}",
        duration(row.numpy.median_ns),
        f"{row.best_ratio:.2f}×",
        f"{ratio.ratio:.2f}× ({ratio.low:.2f}–{ratio.high:.2f})",
        ratio.verdict,
        f"{row.error_ratio:.2g}",
        row.origin,
    )


def _tell(row):
    if sys.stderr.isatty():
        print_note(f"{row.problem}: {row.ratio} as fast as NumPy")


def _quiet(row):
    """--quiet: nothing but the table."""


def _sizes(text):
    found = []
    for part in text.lower().replace("×", "x").replace(" ", "").split(","):
        numbers = part.split("x")
        if len(numbers) not in (1, 3) or not all(x.isdigit() for x in numbers):
            raise argparse.ArgumentTypeError(f"{part!r} is neither a size nor MxNxK")
        m, n, k = (size(x) for x in (numbers * 3)[:3])
        found.append((m, n, k))
    return found


def _dtypes(text):
    return [dtype_name(part.strip()) for part in text.split(",")]


def _rounds(text):
    if not text.isdigit() or not 1 <= int(text) <= 10000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 10000")
    return int(text)
