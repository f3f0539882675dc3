"""Records landscapes on a device, for tests and for comparing strategies without it.

    python -m tools.landscapes record pocl FOLDER --seconds 150   # goes on where it stopped
    python -m tools.landscapes compare FILE…                      # trials to 95 % of the best

A landscape is an exhaustive search of a part of the space, `SPACES` below: the whole has millions
of configurations. It takes in every parameter that was seen to matter, with values on both sides
of the best.
"""

import argparse
import math
import statistics
import sys
from pathlib import Path

from clmatmul.database import read_records
from clmatmul.explanation import plain_problem
from clmatmul.space import parse_within
from clmatmul.tune import tune
from clmatmul.tune.landscape import Landscape, simulate
from clmatmul.tune.progress import PlainProgress
from clmatmul.tune.strategies import DEFAULT, STRATEGIES

SPACES = {
    "pocl": (
        "cpu_packed(micro_m=4|6|8, vectors=1|2, vector_width=8|16, unroll=4, tile_m=48|192, "
        "tile_n=64|256, block_k=128|256)",
        "cpu_staged(micro_m=4|6, vectors=1, vector_width=8|16, unroll=4, tile_n=64|256, "
        "block_k=128|256, tile_m=48|192, splits=1|2)",
        "cpu_direct(micro_m=4|6|8, vectors=1|2, vector_width=8|16, unroll=2|4, tile_m=48|192, "
        "tile_n=64|256, block_k=256, splits=1|2)",
    ),
    "h200": (
        "register_blocked(tile_m=64|128, tile_n=64|128, tile_k=8|16, micro_m=4|8, micro_n=4|8, "
        "vector_width=2|4, prefetch=0|1, unroll=8, slices=1, splits=1, group_rows=8)",
    ),
}
SHAPES = {
    "pocl": (
        ((256, 256, 256), "float32", ()), ((512, 512, 512), "float32", ()),
        ((777, 513, 300), "float32", ()), ((1000, 300, 200), "float32", ()),
        ((2000, 64, 64), "float32", ()), ((64, 64, 4096), "float32", ()),
        ((128, 128, 128), "float32", (12,)), ((256, 256, 256), "float64", ()),
        ((500, 500, 500), "float64", ()), ((2000, 32, 128), "float64", ()),
    ),
    "h200": (
        ((1024, 1024, 1024), "float32", ()), ((2048, 2048, 2048), "float32", ()),
        ((1000, 777, 3000), "float32", ()), ((8192, 128, 1024), "float32", ()),
    ),
}  # fmt: skip


def record(space, folder, seconds, device=None):
    """Go through the shapes of a space for some seconds; True once all are recorded."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    within = {k: v for text in SPACES[space] for k, v in parse_within(text).items()}
    left = seconds
    for (m, n, k), dtype, batch in SHAPES[space]:
        problem = plain_problem(m, n, k, dtype, batch=batch)
        file = folder / f"{space}-{'x'.join(map(str, (*batch, m, n, k)))}-{dtype}.json"
        if file.exists():
            continue
        progress = _Clocked()
        report = tune(
            problem, device, f"{max(left, 5):.0f}s", strategy="exhaustive", within=within,
            db=folder / "db", progress=progress,
        )  # fmt: skip
        left -= progress.seconds
        (found,) = report.problems
        print(found.problem, found.stopped, found.statuses, flush=True)
        if found.stopped != "every configuration was tried":
            return False
        records = [
            x
            for journal in sorted((folder / "db" / "tuning" / "journals").glob("*.jsonl"))
            for x in read_records(journal)
            if x.kind == problem.kind.key and x.size[1:] == (m, n, k) and x.config.variant in within
        ]
        landscape = Landscape.from_records(report.profile.title, str(problem), records)
        file.write_text(landscape.to_json())
        if left < 5:
            break
    return all_recorded(space, folder)


def all_recorded(space, folder):
    """True if the folder has a landscape of each shape."""
    return len(list(Path(folder).glob(f"{space}-*.json"))) == len(SHAPES[space])


class _Clocked(PlainProgress):
    seconds = 0.0

    def update(self, search):
        self.seconds = search.seconds


def compare(files, strategies, seeds):
    """(landscape, {strategy: mean trials to 95 %}) of each file."""
    rows = []
    for file in files:
        landscape = Landscape.from_json(Path(file).read_text())
        needed = {
            strategy: statistics.mean(
                simulate(landscape, strategy, seed) or len(landscape) for seed in range(seeds)
            )
            for strategy in strategies
        }
        rows.append((landscape, needed))
    return rows


def main(argv=None):
    """Record, or compare; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("space", choices=tuple(SPACES))
    recording.add_argument("folder")
    recording.add_argument("--seconds", type=float, default=150)
    recording.add_argument("--device")
    comparing = commands.add_parser("compare")
    comparing.add_argument("files", nargs="+")
    comparing.add_argument("--strategy", action="append", choices=tuple(STRATEGIES),
                           help="beside random, may be repeated; the default one")  # fmt: skip
    comparing.add_argument("--seeds", type=int, default=40)
    arguments = parser.parse_args(argv)
    if arguments.command == "record":
        done = record(arguments.space, arguments.folder, arguments.seconds, arguments.device)
        print("all recorded" if done else "more to do")
        return 0
    strategies = (*(arguments.strategy or [DEFAULT]), "random")
    rows = compare(arguments.files, strategies, arguments.seeds)
    for landscape, needed in rows:
        counts = "  ".join(f"{name} {count:5.1f}" for name, count in needed.items())
        print(f"{landscape.problem:40s} {len(landscape):5d}  {counts}")
    for name in strategies[:-1]:
        ratios = [math.log(x[name] / x["random"]) for _, x in rows]
        print(f"{name} ÷ random: {math.exp(statistics.mean(ratios)):.2f} (geometric mean)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
