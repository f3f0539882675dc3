"""`clmatmul demo`: real data, multiplied, checked, tuned, timed."""

import argparse

from clmatmul.cli.output import Table, print_json, print_lines, print_table, print_text, progress
from clmatmul.demo import run_demo

_FAILED = 5
_BAR = 40  # characters of all the variance there is


def _seconds(text):
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, such as 20")
    return value


def add_arguments(parser):
    """How long to look for a better kernel."""
    parser.add_argument(
        "--budget",
        type=_seconds,
        default=20.0,
        metavar="SECONDS",
        help="for the tuner's search (default 20)",
    )


def run(arguments):
    """Print the report; exit code 5 if a result is not within its bound of float64."""
    with progress(arguments.quiet) as say:
        report = run_demo(arguments.device, arguments.budget, say)
    if arguments.json:
        print_json("demo", report.to_dict())
    else:
        _print(report)
    return 0 if report.ok else _FAILED


def _print(report):
    rows, columns = report.shape
    print_lines(
        f"{rows} handwritten digits of {columns} pixels, centred: X, {rows}×{columns} float32\n"
        f"{report.data}\n"
        f"device: {report.device}"
    )
    print_text("")
    print_text("Checked against float64 (error as a share of what is allowed)")
    print_table(_check_table(report.checks))
    print_text("\nPrincipal components of the pixels")
    print_table(_component_table(report.explained))
    print_text(f"\nThe Gram matrix X Xᵀ three ways, {report.timings[0].rounds} rounds in turns")
    print_table(_timing_table(report.timings))
    for timing in report.timings:
        print_lines(f"{timing.name:9}{timing.kernel} [{timing.origin}]")
    print_text("")
    known = f" (and {report.known} before)" if report.known else ""
    print_lines(
        f"The tuner tried {report.tried} configurations{known}: {report.verdict}.\n"
        f"Products like this one use its record from now on: {report.record_file}"
    )
    print_text("\nSee how it is computed:  clmatmul explain 1797 1797 64 --layout NT")
    verdict = "Every result is right" if report.ok else "A RESULT IS WRONG: please report this"
    print_text(f"{verdict} ({report.seconds:.0f} s).")


def _check_table(checks):
    names = {"Gram matrix": "X Xᵀ", "covariance": "Xᵀ X / (rows - 1)"}
    rows = [
        (
            check.product,
            names[check.product],
            "×".join(map(str, check.shape)),
            f"{check.error_ratio:.2f}",
            "right" if check.ok else "WRONG",
        )
        for check in checks
    ]
    return Table(("result", "formula", "size", "error", ""), tuple(rows), right=("error",))


def _component_table(explained):
    rows, total = [], 0.0
    for number, share in enumerate(explained, 1):
        total += share
        rows.append((str(number), f"{share:.1%}", f"{total:.1%}", "#" * round(_BAR * share)))
    columns = ("component", "variance", "together", "")
    return Table(columns, tuple(rows), right=("component", "variance", "together"))


def _timing_table(timings):
    rows = [
        (
            timing.name,
            f"{timing.seconds * 1e3:.3g}",
            f"{timing.gflops:.1f}",
            f"{timing.times_numpy:.2f}",
            f"{timing.low:.2f} to {timing.high:.2f}",
            f"{timing.error_ratio:.2f}",
        )
        for timing in timings
    ]
    columns = ("", "ms", "GFLOP/s", "speed / NumPy's", "95 % sure", "error")
    return Table(columns, tuple(rows), right=columns[1:])
