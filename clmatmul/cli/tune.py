"""`clmatmul tune`: find the fastest configuration for a product."""

import argparse
import itertools
import json
import sys

from clmatmul.cli.explain import size
from clmatmul.cli.options import dtype_name
from clmatmul.cli.output import SCHEMA, on_terminal, print_json, print_lines, print_text
from clmatmul.errors import ArgumentError
from clmatmul.explanation import plain_problem
from clmatmul.space import parse_within
from clmatmul.tune import tune
from clmatmul.tune.html import page
from clmatmul.tune.objective import OBJECTIVES
from clmatmul.tune.progress import PlainProgress, Progress, RichProgress
from clmatmul.tune.shapes import SUITES, Weighted, read_shapes, size_range, suite
from clmatmul.tune.strategies import DEFAULT, STRATEGIES

_NOTHING_PASSED = 1
_INTERRUPTED = 130


def add_arguments(parser):
    """The problem, the search and its limits, and where records go."""
    group = parser.add_argument_group(
        "the product", "A size may be a list or range: 64,128 or 64:256:64 or 64:1024:x2."
    )
    group.add_argument("sizes", type=_sizes, nargs="*", metavar="SIZE",
                       help="M, N and K, or by name:")  # fmt: skip
    for name, what in (
        ("m", "rows of A"),
        ("n", "columns of B"),
        ("k", "columns of A, rows of B"),
    ):
        group.add_argument(f"--{name}", type=_sizes, metavar="SIZE",
                           help=f"{what} (default 1024)")  # fmt: skip
    group.add_argument("--batch", type=size, nargs="+", default=(), metavar="SIZE",
                       help="sizes of batch dimensions")  # fmt: skip
    group.add_argument("--dtype", type=dtype_name, default="float32", help="default float32")
    group.add_argument("--layout", choices=("NN", "NT", "TN", "TT"), default="NN",
                       help="of A and B, as for explain (default NN)")  # fmt: skip
    group.add_argument("--shapes", metavar="FILE",
                       help="instead: products from CSV (m,n,k and batch, dtype, layout, weight), "
                            "or what CLMATMUL_RECORD=FILE.jsonl recorded")  # fmt: skip
    group.add_argument("--suite", choices=tuple(SUITES), action="append",
                       help="; ".join(f"{x}: {y}" for x, y in SUITES.items()))  # fmt: skip
    group = parser.add_argument_group("the search")
    group.add_argument("--strategy", choices=tuple(STRATEGIES), default=DEFAULT,
                       help=f"default {DEFAULT}; tpe needs the extra optuna")  # fmt: skip
    group.add_argument("--budget", action="append", metavar="LIMIT",
                       help="60s, 5m, 200trials; of several, the first to end (60s)")  # fmt: skip
    group.add_argument("--objective", choices=tuple(OBJECTIVES), default="time",
                       help="time (default), or energy, where RAPL or NVML counts it")  # fmt: skip
    group.add_argument("--seed", type=int, default=0, help="of the order and the data (default 0)")
    group.add_argument("--timeout", type=float, metavar="SECONDS",
                       help="for each of build, launch, check and timing of a trial")  # fmt: skip
    group.add_argument("--jobs", type=size, metavar="COUNT",
                       help="processes that build side by side (default: a core each)")  # fmt: skip
    group.add_argument("--variant", action="append", metavar="NAME",
                       help="search this kernel only; may be repeated")  # fmt: skip
    group.add_argument("--within", action="append", type=_within, metavar="SPACE",
                       help="these values only, such as 'tiled(tile_m=8|16, tile_n=8)'; may be "
                            "repeated for several kernels")  # fmt: skip
    again = group.add_mutually_exclusive_group()
    again.add_argument("--force", action="store_true", help="try again what was tried before")
    again.add_argument("--resume", action="store_true",
                       help="skip what was tried before (default)")  # fmt: skip
    group.add_argument("--dry-run", action="store_true", help="say what would be tried, and where")
    group = parser.add_argument_group("records and output")
    group.add_argument("--db", metavar="FOLDER", help="instead of CLMATMUL_DB")
    group.add_argument("--report", metavar="FILE.html",
                       help="also write one page with charts, which needs no network")  # fmt: skip
    group.add_argument("--jsonl", action="store_true",
                       help="print each record once it is on disk, then the report")  # fmt: skip
    group.add_argument("--no-color", action="store_true", help="as with NO_COLOR")


def run(arguments):
    """Search and print the report; 1 if nothing passed, 130 after Ctrl-C."""
    wanted = _wanted(arguments)
    if arguments.report:
        _write(arguments.report, "")
    progress = _progress(arguments)
    report = tune(
        [x.problem for x in wanted],
        arguments.device,
        arguments.budget or "60s",
        strategy=arguments.strategy,
        seed=arguments.seed,
        timeout=arguments.timeout,
        db=arguments.db,
        force=arguments.force,
        variants=arguments.variant,
        within={k: v for part in arguments.within or () for k, v in part.items()} or None,
        dry_run=arguments.dry_run,
        jobs=arguments.jobs,
        weights=[x.weight for x in wanted],
        objective=arguments.objective,
        peaks=bool(arguments.report),
        progress=_Acknowledging(progress) if arguments.jsonl else progress,
    )
    if arguments.report and not report.dry_run:
        _write(arguments.report, page(report))
    if arguments.jsonl:
        print_text(json.dumps({"schema": SCHEMA, "command": "tune", **report.to_dict()}))
    elif arguments.json:
        print_json("tune", report.to_dict())
    else:
        print_lines(report)
    if report.interrupted:
        return _INTERRUPTED
    return 0 if report.ok or report.dry_run else _NOTHING_PASSED


def _wanted(arguments):
    """The Weighted problems that the arguments ask for."""
    sizes = {name: getattr(arguments, name) for name in "mnk"}
    if arguments.sizes:
        if any(sizes.values()):
            raise ArgumentError("give the sizes as M N K, or as --m, --n and --k, not both")
        if len(arguments.sizes) != 3:
            raise ArgumentError(
                f"a product has three sizes, M N K, but {len(arguments.sizes)} were given"
            )
        sizes = dict(zip("mnk", arguments.sizes, strict=True))
    several = arguments.shapes or arguments.suite
    if several and (any(sizes.values()) or arguments.batch):
        raise ArgumentError(
            "--shapes and --suite have their own sizes; leave M N K and --batch out"
        )
    found = []
    if arguments.shapes:
        found += read_shapes(arguments.shapes, arguments.dtype, arguments.layout)
    for name in arguments.suite or ():
        found += suite(name)
    if several:
        return found
    return [
        Weighted(plain_problem(m, n, k, arguments.dtype, arguments.layout, tuple(arguments.batch)))
        for m, n, k in itertools.product(*(sizes[x] or [1024] for x in "mnk"))
    ]


def _write(path, text):
    """Put the report there; ArgumentError, before anything is tried, if that cannot be done."""
    try:
        with open(path, "a" if not text else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ArgumentError(f"--report {path}: {error.strerror}") from None


def _sizes(text):
    try:
        return size_range(text)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _progress(arguments):
    if arguments.quiet:
        return Progress()
    if on_terminal(sys.stderr):
        return RichProgress(bool(arguments.verbose), not arguments.no_color)
    return PlainProgress(bool(arguments.verbose))


class _Acknowledging(Progress):
    """Prints each record that is on disk, and passes everything on."""

    def __init__(self, shown):
        for name in ("begin", "state", "update", "end"):
            setattr(self, name, getattr(shown, name))
        self._shown = shown

    def recorded(self, record):
        print_text(record.to_json())
        sys.stdout.flush()
        self._shown.recorded(record)


def _within(text):
    try:
        return parse_within(text)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
