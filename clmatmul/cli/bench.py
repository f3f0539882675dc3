"""`clmatmul bench`: products timed against NumPy, CLBlast or torch, in turn, each checked."""

import argparse

from clmatmul.bench import BASELINES, ROUNDS, SECONDS, bench
from clmatmul.bench_compare import COMPARED, TOLERANCE, compare_runs, read_run
from clmatmul.bench_results import OURS
from clmatmul.bench_suites import SUITES, Entry, entries_of
from clmatmul.cli.explain import size
from clmatmul.cli.main import INTERRUPTED
from clmatmul.cli.options import dtype_name
from clmatmul.cli.output import (
    Table,
    json_text,
    print_json,
    print_lines,
    print_note,
    print_table,
    print_text,
)
from clmatmul.errors import ArgumentError
from clmatmul.tune.report import duration, speed

_SLOWER = 1
_COLUMNS = ("product", "against", "its best", "launches", "GFLOP/s", "launches ×", "device ×",
            "median", "host ×", "median ", "error", "origin", "kernel")  # fmt: skip
_TEXT_COLUMNS = ("product", "against", "origin", "kernel")
_LEGEND = """\
its best: the baseline's least time. launches: our kernels' least time, enqueued on buffers in the
device's memory and waited for, packing included; GFLOP/s at it. ×: how many times as fast as the
baseline, by the least times: of these launches; of a prepared MatMul on arrays in the device's
memory (device); of one with NumPy arrays in and out (host). median: of the rounds' ratios, with
its 95 % interval. error: the largest, as a part of what is allowed."""


def add_arguments(parser):
    """What to time, against what, for how long, and an earlier run to compare with."""
    parser.add_argument(
        "--suite", type=_suites, metavar="LIST",
        help="several with commas, or all: "
        + "; ".join(f"{name} ({about})" for name, (about, _) in SUITES.items()),
    )  # fmt: skip
    parser.add_argument("--list", action="store_true",
                        help="print what the suites hold, and time nothing")  # fmt: skip
    parser.add_argument("--sizes", type=_sizes, metavar="LIST",
                        help="instead of a suite: such as 256,1000x64x3000 (m n k); default "
                             "256,512,1024")  # fmt: skip
    parser.add_argument("--dtypes", type=_dtypes, metavar="LIST",
                        help="of --sizes, such as float32,float64 (default float32)")  # fmt: skip
    parser.add_argument("--layout", choices=("NN", "NT", "TN", "TT"),
                        help="of --sizes: A and B, as for explain (default NN)")  # fmt: skip
    parser.add_argument("--baseline", choices=BASELINES, default="numpy",
                        help="whom to compare with (default numpy); types in which nobody else "
                             "is fast are compared with our own float32")  # fmt: skip
    parser.add_argument("--clblast-library", metavar="PATH",
                        help="CLBlast's file, where the system does not find it")  # fmt: skip
    parser.add_argument("--rounds", type=_rounds, default=ROUNDS, metavar="COUNT",
                        help=f"turns of each contestant (default {ROUNDS})")  # fmt: skip
    parser.add_argument("--seconds-per-case", type=_seconds, default=SECONDS, metavar="SECONDS",
                        help="no more rounds of a product after this, once there are three "
                             f"(default {SECONDS:g})")  # fmt: skip
    parser.add_argument("--compare", metavar="OLD.json",
                        help="show the change since that run; exit code 1 if a product became "
                             "slower")  # fmt: skip
    parser.add_argument("--tolerance", type=_tolerance, default=TOLERANCE, metavar="PART",
                        help="part of the ratio by which a product may become slower (default "
                             f"{TOLERANCE})")  # fmt: skip


def run(arguments):
    """Print the table, or one JSON object; or write the object to a file and print the table."""
    entries = _entries(arguments)
    if arguments.list:
        return _list(entries, arguments)
    old = read_run(arguments.compare) if arguments.compare else None
    file = _writable(arguments.json)
    quiet = arguments.quiet
    found = bench(
        entries, baseline=arguments.baseline, library=arguments.clblast_library,
        rounds=arguments.rounds, seconds=arguments.seconds_per_case, device=arguments.device,
        told=_nothing if quiet else _tell, begun=_nothing if quiet else _begin,
    )  # fmt: skip
    values = found.to_dict()
    compared = None
    if old is not None and found.rows:
        compared = compare_runs(old, values, arguments.tolerance)
        values["comparison"] = compared.to_dict()
    if file is not None:
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(json_text("bench", values))
    if arguments.json in (True, "-"):
        print_json("bench", values)
    else:
        _print_results(found, arguments.verbose)
        if compared is not None:
            _print_comparison(compared, arguments.compare)
    if found.interrupted:
        return INTERRUPTED
    return _SLOWER if compared is not None and compared.slower else 0


def _entries(arguments):
    own = [x for x in ("sizes", "dtypes", "layout") if getattr(arguments, x) is not None]
    if arguments.suite and own:
        raise ArgumentError(f"--suite has its own sizes; leave --{own[0]} out")
    if arguments.suite:
        return entries_of(arguments.suite)
    if arguments.list:
        return entries_of(["all"])
    sizes = arguments.sizes or [(256,) * 3, (512,) * 3, (1024,) * 3]
    return [
        Entry(*x, dtype, arguments.layout or "NN")
        for dtype in arguments.dtypes or ["float32"]
        for x in sizes
    ]


def _writable(target):
    """The file that --json names, found out to be writable before anything is timed; or None."""
    if target in (True, False, "-"):
        return None
    try:
        open(target, "a", encoding="utf-8").close()
    except OSError as error:
        raise ArgumentError(f"--json {target}: {error.strerror}") from None
    return target


def _list(entries, arguments):
    if arguments.json:
        print_json("bench", {"cases": [x.to_dict() for x in entries]})
        return 0
    columns = ("suite", "product", "compared with")
    rows = [(x.suite, x.name, f"own {x.against}" if x.against else "the baseline") for x in entries]
    print_table(Table(columns, tuple(rows)))
    return 0


# ---- tables ---------------------------------------------------------------------------------


def _print_results(found, verbose):
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    print_text(f"device  {found.profile.title}, driver {found.profile.driver_version}")
    print_text(f"with    {versions}; up to {found.rounds} rounds in turn")
    right = tuple(set(_COLUMNS) - set(_TEXT_COLUMNS))
    for suite in dict.fromkeys(row.entry.suite for row in found.rows):
        rows = tuple(_cells(row) for row in found.rows if row.entry.suite == suite)
        print_text("")
        print_table(Table(_COLUMNS, rows, right=right, title=suite))
        _print_means(found.means[suite])
    if "overall" in found.means:
        print_text("\noverall")
        _print_means(found.means["overall"])
    for row in found.rows:
        if row.baseline_fault:
            print_lines(f"{row.entry.name}: the result of {row.baseline}: {row.baseline_fault}")
    for entry, reason in found.left_out:
        print_lines(f"left out: {entry.name}: {reason}")
    if verbose:
        print_text("")
        for row in found.rows:
            print_lines(f"{row.entry.name}: {row.config}")
    if found.rows:
        print_text(f"\n{_LEGEND}")


def _print_means(means):
    for baseline, ratios in means.items():
        listed = ", ".join(f"{name} {ratio:.3f}×" for name, ratio in ratios.items())
        print_text(f"geometric mean against {baseline}: {listed}")


def _cells(row):
    launches = row.times["launches"]
    cells = [
        row.entry.name,
        row.baseline,
        duration(row.times["baseline"].best_ns),
        duration(launches.best_ns),
        speed(row.flops, launches.best_ns).split()[0],
    ]
    for name in OURS:
        ratio = row.ratios.get(name)
        cells.append("" if ratio is None else f"{ratio.best:.3f}")
        if name != "launches":
            cells.append("" if ratio is None else _rounds_text(ratio.rounds))
    return (*cells, f"{row.error_ratio:.2g}", row.origin, row.config.partition("(")[0])


def _rounds_text(rounds):
    return f"{rounds.ratio:.2f} ({rounds.low:.2f}–{rounds.high:.2f})"


def _print_comparison(compared, path):
    columns = (
        "suite",
        "product",
        *(f"{x} {y}" for x in COMPARED for y in ("old", "new", "change")),
    )
    rows = []
    for change in compared.changes:
        cells = [change.suite, change.case]
        for name in COMPARED:
            old, new = change.old.get(name), change.new.get(name)
            ratio = change.changes.get(name)
            cells += ["" if x is None else f"{x:.3f}" for x in (old, new)]
            cells.append("" if ratio is None else f"{ratio - 1:+.1%}")
        note = change.reason or ("SLOWER" if change.is_slower(compared.tolerance) else "")
        rows.append((*cells, note))
    print_text("")
    table = Table((*columns, "note"), tuple(rows), right=columns[2:], title=f"since {path}")
    print_table(table)
    if compared.other_device:
        print_lines(f"the earlier run was made on another device: {compared.other_device}")
    print_text(
        f"{len(compared.slower)} of {len(compared.changes)} slower by more than "
        f"{compared.tolerance:.0%}"
    )


def _tell(row):
    name = "device" if "host" not in row.ratios else "host"
    print_note(f"{row.entry.name}: {name} {row.ratios[name].best:.2f}× {row.baseline}")


def _begin(entry):
    print_note(f"{entry.name} …")


def _nothing(_):
    """--quiet: nothing but the table."""


# ---- values ---------------------------------------------------------------------------------


def _suites(text):
    names = [x.strip() for x in text.split(",")]
    try:
        entries_of(names)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return names


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


def _seconds(text):
    value = _number(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def _tolerance(text):
    value = _number(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0 to below 1, such as 0.1")
    return value


def _number(text):
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
