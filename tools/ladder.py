"""The ladder from the naive kernel to the best, measured on the device at hand, as Markdown.

    python tools/ladder.py                            print the tables
    python tools/ladder.py --write docs/matmul.md     put them between the marks in that page

Every kernel runs with the configuration that it proposes for the size itself, without any record of
tuning. Each is verified before it is timed and after every turn; all of a size take turns, with
NumPy among them. Times are the least of all calls: launches on buffers in the device's memory,
waited for, packing included.
"""

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from clmatmul import device as devices  # noqa: E402
from clmatmul.bench_contestants import Product, race  # noqa: E402
from clmatmul.bench_results import Figures  # noqa: E402
from clmatmul.bench_suites import Entry  # noqa: E402
from clmatmul.choose import choose  # noqa: E402
from clmatmul.explanation import plain_problem  # noqa: E402
from clmatmul.selection import resolve  # noqa: E402
from clmatmul.tune.report import duration, speed  # noqa: E402

STEPS = ("naive", "tiled", "register_blocked", "cpu_direct", "cpu_staged", "cpu_packed")
BEGIN, END = "<!-- ladder: begin -->", "<!-- ladder: end -->"


@dataclass(frozen=True)
class Step:
    """One kernel at one size; best_ns of its calls. config is '' for NumPy."""

    name: str
    config: str
    best_ns: float


def proposals(problem, profile):
    """(variant, configuration) of each step that a device is offered, in the ladder's order."""
    first = {}
    for choice in choose(problem, profile):
        if choice.origin == "heuristic":
            first.setdefault(choice.config.variant, choice.config)
    return [(name, first[name]) for name in STEPS if name in first]


def climb(device, n, dtype, rounds, seconds):
    """The Steps of an n × n × n product, and NumPy's last; VerificationError."""
    configs = proposals(plain_problem(n, n, n, dtype), device.profile)
    products = [Product(device, Entry(n, n, n, dtype), config) for _, config in configs]
    runners = [product.launches() for product in products]
    numpy = products[0].numpy()
    race([*runners, numpy], rounds, seconds)
    for runner, (name, _) in zip([*runners, numpy], [*configs, ("NumPy", "")], strict=True):
        if runner.fault:
            raise SystemExit(f"ladder: {name} at {n}, {dtype}: {runner.fault}")
    steps = [
        Step(name, str(config), Figures.of(runner.turns).best_ns)
        for (name, config), runner in zip(configs, runners, strict=True)
    ]
    return [*steps, Step("NumPy", "", Figures.of(numpy.turns).best_ns)]


def table(n, dtype, steps):
    """The Markdown table of one size: each step beside the one before, the first, and NumPy."""
    *ours, numpy = steps
    flops = 2 * n**3
    lines = [
        f"{dtype}, {n} × {n} × {n}:",
        "",
        "| kernel | time | GFLOP/s | × the step before | × naive | × NumPy |",
        "|---|---|---|---|---|---|",
    ]
    for before, step in zip([None, *ours], ours, strict=False):
        gain = "" if before is None else f"{before.best_ns / step.best_ns:.2f}"
        lines.append(
            f"| {step.name} | {duration(step.best_ns)} | {_gflops(flops, step)} | {gain} | "
            f"{ours[0].best_ns / step.best_ns:.1f} | {numpy.best_ns / step.best_ns:.3f} |"
        )
    lines.append(
        f"| NumPy | {duration(numpy.best_ns)} | {_gflops(flops, numpy)} | | "
        f"{ours[0].best_ns / numpy.best_ns:.1f} | 1 |"
    )
    return "\n".join(lines)


def configurations(climbs):
    """A list of who ran with what: climbs is [(n, dtype, steps)]."""
    used = {}
    for n, dtype, steps in climbs:
        for step in steps:
            if step.config:
                sizes = used.setdefault(step.config, {})
                sizes.setdefault(dtype, []).append(str(n))
    lines = ["Configurations:", ""]
    for config, sizes in used.items():
        where = "; ".join(f"{dtype} {', '.join(x)}" for dtype, x in sizes.items())
        lines.append(f"- `{config}`: {where}")
    return "\n".join(lines)


def _gflops(flops, step):
    return speed(flops, step.best_ns).split()[0]


def heading(profile, versions, command, load):
    """Where, when and how the tables were measured, and how busy the machine was before."""
    return (
        f"Measured on {time.strftime('%Y-%m-%d')}, {profile.title}, driver "
        f"{profile.driver_version}, {profile.compute_units} compute units, NumPy "
        f"{versions['numpy']}, with `{command}`. Processes that wanted to run in the minute "
        f"before: {load:.1f} (more than a few tenths: other work took part of the machine)."
    )


def between_marks(page, text):
    """The page with `text` between the marks; ValueError unless it has both, once, in order."""
    before, begin, rest = page.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end or BEGIN in old + after or END in before + after:
        raise ValueError(f"the page needs one {BEGIN} and, after it, one {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 512, 1024], metavar="N")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"], metavar="DTYPE")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each (default 7)")
    parser.add_argument("--seconds", type=float, default=60.0,
                        help="no more rounds of a size after this (default 60)")  # fmt: skip
    parser.add_argument("--device", help="as for clmatmul itself")
    parser.add_argument("--write", type=Path, metavar="PAGE",
                        help="rewrite the tables in this page")  # fmt: skip
    options = parser.parse_args(arguments)
    try:
        page = options.write.read_text(encoding="utf-8") if options.write else None
        if page is not None:
            between_marks(page, "")
    except (OSError, ValueError) as error:
        parser.error(f"--write {options.write}: {error}")
    load = os.getloadavg()[0]
    device = resolve(options.device)
    words = sys.argv[1:] if arguments is None else arguments
    command = " ".join(["python tools/ladder.py", *words])
    climbs = []
    for dtype in options.dtypes:
        for n in options.sizes:
            print(f"{dtype} {n} …", file=sys.stderr)
            climbs.append((n, dtype, climb(device, n, dtype, options.rounds, options.seconds)))
    tables = [table(*each) for each in climbs]
    first = heading(device.profile, devices.versions(), command, load)
    text = "\n\n".join([first, *tables, configurations(climbs)])
    print(text)
    if page is not None:
        options.write.write_text(between_marks(page, text), encoding="utf-8")


if __name__ == "__main__":
    main()
