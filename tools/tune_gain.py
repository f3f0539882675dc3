"""How near the default choice comes to the best there is, and how much nearer after tuning.

    python tools/tune_gain.py pocl SHAPES.csv FOLDER --seconds 95   # again until nothing is left

SHAPES.csv has lines of name,batch,m,n,k,transpose_a,transpose_b; forty of them are taken, evenly in
order of operations, under 5 GFLOP, in float32. For each, a part of the space is gone through
(`PARTS`: the whole has millions of configurations), and the tuner runs for a minute with no record.
Then the default choice, the tuned one and the best of that part run in turn.
"""

import argparse
import csv
import math
import os
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from steps import Journal, go_on  # noqa: E402

from clmatmul.choose import choose  # noqa: E402
from clmatmul.config import TileConfig  # noqa: E402
from clmatmul.database import TuningDatabase  # noqa: E402
from clmatmul.explanation import plain_problem  # noqa: E402
from clmatmul.measure import compare  # noqa: E402
from clmatmul.space import parse_within  # noqa: E402
from clmatmul.tune import tune  # noqa: E402
from clmatmul.tune.trials import Trials  # noqa: E402
from clmatmul.walk import shipped_records  # noqa: E402

PARTS = {
    "pocl": (
        "cpu_packed(micro_m=4|6|8, vectors=1, vector_width=16, unroll=4, tile_m=48|192, "
        "tile_n=64|256, block_k=128|256)",
        "cpu_staged(micro_m=1|4|6, vectors=1, vector_width=16, unroll=4, tile_n=64|256, "
        "block_k=128|512, tile_m=48|384, splits=1|2)",
        "cpu_direct(micro_m=1|4|6, vectors=1|2, vector_width=16, unroll=4, tile_m=48|192, "
        "tile_n=64|256, block_k=256, splits=1|2)",
        "cpu_dot(micro_m=1|4, micro_n=1|4, vector_width=16, unroll=1|2, splits=1|2)",
        "cpu_sweep(micro_m=1|4, vectors=1|2, vector_width=16, terms=4, tile_n=512|4096, "
        "splits=1|2)",
    ),
    "h200": (
        "register_blocked(tile_m=64|128, tile_n=64|128, tile_k=8|16, micro_m=4|8, micro_n=4|8, "
        "vector_width=4, prefetch=1, unroll=8, slices=1|2, splits=1|4, group_rows=8)",
        "line_dot(micro_m=1|4, micro_n=1|4, lanes=32|128, teams=1|4, vector_width=4, unroll=2, "
        "splits=1|8)",
        "line_sweep(few=1|8|16, vector_width=4, lanes=32|128, slices=1|8, tile_k=16, unroll=4, "
        "splits=1|8)",
        "nv_async(tile_m=64|128, tile_n=64|128, tile_k=16, micro_m=8, micro_n=8, stages=3, "
        "registers=0, group_rows=8, splits=1|4|16, wave=0)",
    ),
}
_MOST_FLOPS = 5e9
_COUNT = 40
_TRY_SECONDS = 60
_ROUNDS = 101


def shapes(path, count=_COUNT):
    """(name, Problem) of `count` shapes spread evenly over those that are not too large."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for row in rows:
        batch, m, n, k = (int(row[x]) for x in ("batch", "m", "n", "k"))
        layout = "NT"[int(row["transpose_a"])] + "NT"[int(row["transpose_b"])]
        problem = plain_problem(m, n, k, "float32", layout, (batch,) if batch > 1 else ())
        if problem.flops < _MOST_FLOPS:
            found.setdefault(problem, row["name"])
    ordered = sorted(found, key=lambda x: (x.flops, str(x)))
    chosen = [ordered[round(i * (len(ordered) - 1) / (count - 1))] for i in range(count)]
    return [(found[x], x) for x in chosen]


def retimed(problem, configs, seconds, device=None):
    """Times in ns of each configuration, run in turn by a worker of the tuner."""
    trials = Trials(device)
    try:
        trials.prepare(problem, 0)
        return trials.compare(configs, _ROUNDS, seconds)
    finally:
        trials.kill()


def through_part(space, problem, folder, device):
    """The best configuration of a part of the space, as text; None while it is not all tried."""
    within = {k: v for text in PARTS[space] for k, v in parse_within(text).items()}
    budget = f"{_TRY_SECONDS}s"
    report = tune(problem, device, budget, strategy="exhaustive", within=within, db=folder)
    (found,) = report.problems
    if found.stopped != "every configuration was tried":
        return None
    passed = [x for x in found.trials if x.status == "ok"]
    return {"config": str(min(passed, key=lambda x: x.least_ns).config), "trials": len(passed)}


def tuned(problem, folder, device, seed=0, budget="60s"):
    """What the tuner's default search finds with no record of the user's and nothing compiled."""
    with TemporaryDirectory() as empty, mock.patch.dict(os.environ, POCL_CACHE_DIR=empty):
        (found,) = tune(problem, device, budget, db=folder, seed=seed).problems
    return {"config": str(found.winner.config), "trials": found.tried}


def compared(journal, name, problem, device):
    """How fast the default and the tuned choice are, against the best of all."""
    trials = Trials(device)
    profile = trials.profile
    trials.kill()
    default = choose(problem, profile, TuningDatabase((), shipped_records(profile.key)))[0].config
    wanted = {"default": default}
    for kind in ("part", "tuned"):
        wanted[kind] = TileConfig.parse(journal.found[f"{name}, {kind}"]["config"])
    configs = list(dict.fromkeys(wanted.values()))
    times = dict(zip(configs, retimed(problem, configs, 8, device), strict=True))
    best = min(times, key=lambda x: statistics.median(times[x]))
    found = {}
    for kind in ("default", "tuned"):
        found[kind] = round(compare(times[wanted[kind]], times[best]).ratio, 3)
    against = compare(times[wanted["tuned"]], times[default])
    return {**found, "tuned_slower_than_default": against.verdict == "slower", "best": str(best)}


def steps_of(space, chosen, folder, journal, device):
    """The steps of each shape: through the part, tune, compare."""
    for number, (name, problem) in chosen:
        key = f"{number} {name} {problem}"
        one, other = folder / "db" / f"{number}-part", folder / "db" / f"{number}-tuned"
        yield f"{key}, part", lambda p=problem, d=one: through_part(space, p, d, device)
        yield f"{key}, tuned", lambda p=problem, d=other: tuned(p, d, device)
        yield f"{key}, compared", lambda k=key, p=problem: compared(journal, k, p, device)


def summary(found):
    """Lines on all that was compared."""
    rows = {key: x for key, x in found.items() if key.endswith(", compared")}
    if not rows:
        return ["nothing is compared yet"]
    means = {
        kind: math.exp(statistics.mean(math.log(x[kind]) for x in rows.values()))
        for kind in ("default", "tuned")
    }
    lines = [f"{x['default']:6.3f} {x['tuned']:6.3f}  {key}" for key, x in rows.items()]
    slower = sum(x["tuned_slower_than_default"] for x in rows.values())
    lines.append(f"{len(rows)} shapes, geometric means: default ÷ best {means['default']:.3f}, "
                 f"tuned ÷ best {means['tuned']:.3f}; {slower} slower than untuned")  # fmt: skip
    return lines


def main(argv=None):
    """Measure what is missing, and print what there is; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("space", choices=tuple(PARTS))
    parser.add_argument("file", type=Path, metavar="SHAPES.csv")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=95, help="0 for the summary alone")
    parser.add_argument("--shapes", default=f"0:{_COUNT}", help="which of the forty, as FROM:TO")
    parser.add_argument("--device")
    arguments = parser.parse_args(argv)
    journal = Journal(arguments.folder / "journal.jsonl")

    def steps():
        first, last = map(int, arguments.shapes.split(":"))
        chosen = list(enumerate(shapes(arguments.file)))[first:last]
        return steps_of(arguments.space, chosen, arguments.folder, journal, arguments.device)

    return go_on(journal, steps, arguments.seconds, summary)


if __name__ == "__main__":
    sys.exit(main())
