"""Records landscapes on a device, for tests and for comparing strategies without it.

    python -m tools.landscapes record pocl FOLDER --seconds 150   # goes on where it stopped
    python -m tools.landscapes record h200 FOLDER --jobs 16       # all at once
    python -m tools.landscapes compare FILE…                      # trials to 95 % of the best

A landscape is an exhaustive search of a part of the space, `SPACES` below: the whole has millions
of configurations. It takes in every parameter that was seen to matter, with values on both sides
of the best.

On a GPU, where time is dear and programs take longer to compile than to run, they are compiled side
by side first, and then one process runs them all, and checks the fastest at the problem's own size:
tests and the tuner check all.
"""

import argparse
import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from timed_part import compile_side_by_side, go_through, opened, right_ones  # noqa: E402

from clmatmul.database import read_records  # noqa: E402
from clmatmul.explanation import plain_problem  # noqa: E402
from clmatmul.space import SearchSpace, parse_within  # noqa: E402
from clmatmul.tune import tune  # noqa: E402
from clmatmul.tune.landscape import Landscape, Replayed, simulate  # noqa: E402
from clmatmul.tune.progress import PlainProgress  # noqa: E402
from clmatmul.tune.strategies import DEFAULT, STRATEGIES  # noqa: E402
from clmatmul.variants import load_variant  # noqa: E402

SPACES = {
    "pocl": (
        "cpu_packed(micro_m=4|6|8, vectors=1|2, vector_width=8|16, unroll=4, tile_m=48|192, "
        "tile_n=64|256, block_k=128|256)",
        "cpu_staged(micro_m=4|6, vectors=1, vector_width=8|16, unroll=4, tile_n=64|256, "
        "block_k=128|256, tile_m=48|192, splits=1|2)",
        "cpu_direct(micro_m=4|6|8, vectors=1|2, vector_width=8|16, unroll=2|4, tile_m=48|192, "
        "tile_n=64|256, block_k=256, splits=1|2)",
    ),
}
# Of a GPU, by what kind of product it is (`_class_of`).
GPU_SPACES = {
    "square": (
        "register_blocked(tile_m=64|128, tile_n=64|128, tile_k=16, micro_m=4|8, micro_n=4|8, "
        "vector_width=4, prefetch=1, unroll=8|16, slices=1, splits=1, group_rows=8)",
        "nv_async(tile_m=64|128, tile_n=64|128|256, tile_k=16, micro_m=8|16, micro_n=4|8, "
        "stages=2|3, registers=0, along=0, group_rows=8, splits=1, wave=0, walkers=0)",
        "tiled(tile_m=16|32, tile_n=16|32)",
    ),
    "skinny": (
        "register_blocked(tile_m=16|32|64, tile_n=16|32|64, tile_k=32, micro_m=4|8, micro_n=4|8, "
        "vector_width=4, prefetch=1, unroll=8, slices=4, splits=1|4|16, group_rows=8)",
        "line_dot(micro_m=1|4, micro_n=4|8, lanes=32|128, teams=1|4, vector_width=4, unroll=2, "
        "splits=1|8)",
        "line_sweep(few=8|16, vector_width=4, lanes=32|128, slices=1|4|8, tile_k=16, unroll=4, "
        "splits=1|4|16)",
    ),
    "batched": (
        "register_blocked(tile_m=32|64|128, tile_n=32|64|128, tile_k=16, micro_m=4|8, "
        "micro_n=4|8, vector_width=4, prefetch=1, unroll=8|16, slices=1|4, splits=1, "
        "group_rows=8)",
        "nv_async(tile_m=32|64|128, tile_n=32|64|128, tile_k=16, micro_m=4|8, micro_n=4|8, "
        "stages=2|3, registers=0, along=0, group_rows=8, splits=1, wave=0, walkers=0)",
    ),
    "16-bit": (
        "nv_mma(tile_m=64|128|256, tile_n=64|128|256, bytes_k=64|128, warp_m=32|64, "
        "warp_n=32|64, stages=3|4, group_rows=8, splits=1, wave=0)",
        "nv_wgmma(stages=2|3|4|6, group_rows=8, splits=1, wave=0)",
    ),
}
_ENOUGH_NS = 5e5  # of runs on a GPU, whose times differ little
_CHECKED = 8
SHAPES = {
    "pocl": (
        ((256, 256, 256), "float32", ()), ((512, 512, 512), "float32", ()),
        ((777, 513, 300), "float32", ()), ((1000, 300, 200), "float32", ()),
        ((2000, 64, 64), "float32", ()), ((64, 64, 4096), "float32", ()),
        ((128, 128, 128), "float32", (12,)), ((256, 256, 256), "float64", ()),
        ((500, 500, 500), "float64", ()), ((2000, 32, 128), "float64", ()),
    ),
    "h200": (
        ((16, 4096, 4096), "float32", ()), ((4096, 16, 4096), "float32", ()),
        ((1000, 777, 3000), "float32", ()), ((128, 128, 128), "float32", (64,)),
        ((1000, 1000, 1000), "float16", ()), ((2048, 2048, 2048), "float32", ()),
        ((2048, 2048, 2048), "bfloat16", ()),
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
        file = folder / _file_name(space, problem)
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


def record_all(space, folder, jobs, compile_seconds, device=None):
    """Record every shape's landscape on a device that keeps what it compiles."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    device = opened(device)
    parts = []
    for (m, n, k), dtype, batch in SHAPES[space]:
        problem = plain_problem(m, n, k, dtype, batch=batch)
        parts.append((problem, _configs(GPU_SPACES[_class_of(problem)], problem, device.profile)))
    if compile_seconds:
        found = compile_side_by_side(device.profile, parts, jobs, compile_seconds)
        print("programs, compiled ahead, failed:", *found, flush=True)
    for problem, configs in parts:
        found = go_through(device, problem, configs, enough_ns=_ENOUGH_NS)
        least = dict(found.ranked)
        fastest = list(least)[:_CHECKED]
        wrong = set(fastest) - set(right_ones(device, problem, fastest))
        failed = {config for config, _ in found.failed}
        trials = [
            Replayed(x, "launch_failed" if x in failed else "wrong_result", None)
            if x in failed or x in wrong else Replayed(x, "ok", least[x])
            for x in configs
        ]  # fmt: skip
        landscape = Landscape.from_records(device.profile.title, str(problem), trials)
        (folder / _file_name(space, problem)).write_text(landscape.to_json())
        counts = f"{len(configs)} tried, {len(failed)} failed, {len(wrong)} wrong"
        print(f"{problem}: {counts}", flush=True)


def _class_of(problem):
    if problem.a.dtype in ("float16", "bfloat16"):
        return "16-bit"
    if problem.batch_count > 1:
        return "batched"
    return "skinny" if min(problem.m, problem.n) <= 32 else "square"


def _configs(texts, problem, profile):
    within = {k: v for text in texts for k, v in parse_within(text).items()}
    return tuple(SearchSpace([load_variant(x) for x in within], problem, profile, within))


def _file_name(space, problem):
    size = "x".join(map(str, (*problem.batch, problem.m, problem.n, problem.k)))
    return f"{space}-{size}-{problem.a.dtype}.json"


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
    recording.add_argument("space", choices=tuple(SHAPES))
    recording.add_argument("folder")
    recording.add_argument("--seconds", type=float, default=150,
                           help="of the search; of compiling ahead on a GPU")  # fmt: skip
    recording.add_argument("--jobs", type=int, default=8, help="processes that compile")
    recording.add_argument("--device")
    comparing = commands.add_parser("compare")
    comparing.add_argument("files", nargs="+")
    comparing.add_argument("--strategy", action="append", choices=tuple(STRATEGIES),
                           help="beside random, may be repeated; the default one")  # fmt: skip
    comparing.add_argument("--seeds", type=int, default=40)
    arguments = parser.parse_args(argv)
    if arguments.command == "record" and arguments.space not in SPACES:
        record_all(arguments.space, arguments.folder, arguments.jobs, arguments.seconds,
                   arguments.device)  # fmt: skip
        return 0
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
