"""How near the default choice comes to the best there is, and how much nearer after tuning.

    python tools/tune_gain.py pocl SHAPES.csv FOLDER --compile      # while other work may run
    python tools/tune_gain.py pocl SHAPES.csv FOLDER --seconds 95   # again until nothing is left
    python tools/tune_gain.py h200 SHAPES.csv FOLDER --compile --jobs 16 --seconds 60
    python tools/tune_gain.py h200 SHAPES.csv FOLDER --together 160s

SHAPES.csv has lines of name,batch,m,n,k,transpose_a,transpose_b; forty of them are taken, evenly in
order of operations, under 5 GFLOP, in float32. For each, a part of the space is gone through
(`PARTS`: the whole has millions of configurations), and the tuner runs for half a minute with no
record of the user's and nothing compiled. Then the default choice, the tuned one and the fastest
three of that part run in turn: the best of these five is what the others are compared with.

On a GPU, where time is dear, all in one process but the tuner, which goes through all shapes in one
session that begins with what was compiled for the parts.
"""

import argparse
import csv
import os
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from steps import Journal, go_on  # noqa: E402
from timed_part import (  # noqa: E402
    compile_all,
    compile_side_by_side,
    go_through,
    in_turn,
    opened,
    right_ones,
)

from clmatmul.choose import choose  # noqa: E402
from clmatmul.config import TileConfig  # noqa: E402
from clmatmul.database import TuningDatabase  # noqa: E402
from clmatmul.explanation import plain_problem  # noqa: E402
from clmatmul.measure import compare  # noqa: E402
from clmatmul.space import SearchSpace, parse_within  # noqa: E402
from clmatmul.tune import tune  # noqa: E402
from clmatmul.tune.trials import Trials  # noqa: E402
from clmatmul.variants import load_variant  # noqa: E402
from clmatmul.walk import shipped_records  # noqa: E402

PARTS = {
    "pocl": (
        "cpu_packed(micro_m=4|6, vectors=1, vector_width=16, unroll=2|4, tile_m=24|96|384, "
        "tile_n=64|256, block_k=256|512)",
        "cpu_staged(micro_m=1|4|6, vectors=1, vector_width=16, unroll=4|8, tile_n=64|256, "
        "block_k=128|512, tile_m=48|384, splits=1|2)",
        "cpu_direct(micro_m=1|4|6, vectors=1|2, vector_width=16, unroll=2|4, tile_m=48|384, "
        "tile_n=128, block_k=64|512, splits=1|2)",
        "cpu_dot(micro_m=1|4|8, micro_n=1|4, vector_width=8|16, unroll=1|2, splits=1|8)",
        "cpu_sweep(micro_m=2|4|8, vectors=1, vector_width=8|16, terms=4|8, tile_n=4096, "
        "splits=1|16)",
    ),
    "h200": (
        "register_blocked(tile_m=32|64, tile_n=32|64, tile_k=32, micro_m=8, micro_n=4|8, "
        "vector_width=4, prefetch=1, unroll=8, slices=4, splits=1|4, group_rows=8)",
        "register_blocked(tile_m=64|128, tile_n=64|128, tile_k=16, micro_m=8, micro_n=8, "
        "vector_width=4, prefetch=1, unroll=16, slices=1, splits=1|4, group_rows=8)",
        "nv_async(tile_m=64|128, tile_n=64|128, tile_k=16, micro_m=8, micro_n=8, stages=2, "
        "registers=0, along=0|1, group_rows=8, splits=1|4|8, wave=0, walkers=0)",
    ),
}
# On a GPU, instead of it where the result or the work is small.
SMALL = {
    "h200": (
        "register_blocked(tile_m=8|16, tile_n=16, tile_k=64, micro_m=2, micro_n=2, "
        "vector_width=2, prefetch=1, unroll=8, slices=8, splits=1|4, group_rows=8)",
        "register_blocked(tile_m=16|32|64, tile_n=16|32|64, tile_k=32, micro_m=8, micro_n=4, "
        "vector_width=4, prefetch=1, unroll=8, slices=4, splits=1|8, group_rows=8)",
        "line_dot(micro_m=1|4, micro_n=1|4, lanes=32|128, teams=2, vector_width=4, unroll=1|2, "
        "splits=1|4)",
        "nv_async(tile_m=32|64, tile_n=32|64|128, tile_k=16, micro_m=4|8, micro_n=4, stages=3, "
        "registers=0, along=0|1, group_rows=8, splits=1|4|8|16, wave=0, walkers=0)",
        "line_sweep(few=1|8|16, vector_width=4, lanes=32|128, slices=8, tile_k=16, unroll=4, "
        "splits=1|8)",
    ),
}
_SMALL_SIDE, _SMALL_FLOPS = 32, 5e7
# Of few columns, too.
NARROW = {
    "pocl": (
        "cpu_staged(micro_m=4|8, vectors=1, vector_width=2|4|8, unroll=4, tile_n=16, "
        "block_k=128|512, tile_m=48|384, splits=1|2)",
        "cpu_direct(micro_m=4|8, vectors=1, vector_width=2|4|8, unroll=2|8, tile_m=48|384, "
        "tile_n=128, block_k=64|512, splits=1|2)",
    ),
}
_FEW_COLUMNS = 16
_MOST_FLOPS = 5e9
_COUNT = 40
_FEW = 3  # of a part, run in turn with the default and the tuned choice
_ROUNDS, _GPU_ROUNDS = 1001, 401  # a GPU's times differ little
_SECONDS = 4
_BYTES_A_SHARE = 5e7  # of operands: as much of the tuner's time as a small product has


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


def candidates(space, problem, profile):
    """The configurations of a part of the space, and before them the default choice and what else
    would be chosen without a record: the tuner begins with these."""
    found = [default_of(problem, profile)]
    found += [x.config for x in choose(problem, profile, TuningDatabase((), ()))[:-1]]
    for text in _part_of(space, problem):
        within = parse_within(text)
        found += SearchSpace(tuple(map(load_variant, within)), problem, profile, within)
    return tuple(dict.fromkeys(found))


def _part_of(space, problem):
    is_small = min(problem.m, problem.n) <= _SMALL_SIDE or problem.flops < _SMALL_FLOPS
    if space in SMALL and is_small:
        return SMALL[space]
    return PARTS[space] + (NARROW.get(space, ()) if problem.n < _FEW_COLUMNS else ())


def default_of(problem, profile):
    """What a product of this problem uses with no record of the user's."""
    return choose(problem, profile, TuningDatabase((), shipped_records(profile.key)))[0].config


def through_part(space, problem, device):
    """The fastest few configurations of a part of the space, as text, and how long they take."""
    configs = candidates(space, problem, device.profile)
    found = go_through(device, problem, configs)
    few = [config for config, _ in found.ranked[:_FEW]]
    right = right_ones(device, problem, few)
    least = dict(found.ranked)
    return {
        "configs": [str(x) for x in right],
        "tried": len(configs),
        "failed": [f"{config}: {text}" for config, text in found.failed],
        "wrong": [str(x) for x in few if x not in right],
        "ns": [round(least[x]) for x in right],
        "default_ns": round(least[configs[0]]),
    }


def tuned(problem, folder, device, seed=0, budget="60s"):
    """What the tuner's default search finds with no record of the user's and nothing compiled."""
    with TemporaryDirectory() as empty, mock.patch.dict(os.environ, POCL_CACHE_DIR=empty):
        (found,) = tune(problem, device, budget, db=folder, seed=seed).problems
    return {"config": str(found.winner.config), "trials": found.tried}


def tuned_together(journal, problems, folder, selector, budget):
    """The step 'tuned' of each key → problem that lacks it, in one session of the tuner."""
    problems = {key: x for key, x in problems.items() if key not in journal.found}
    if not problems:
        return
    # Operands take their time to be made.
    weights = [1 + x.minimum_bytes / _BYTES_A_SHARE for x in problems.values()]
    given = list(problems.values())
    reports = tune(given, selector, budget, db=folder, weights=weights).problems
    for key, found in zip(problems, reports, strict=True):
        journal.add(key, {"config": str(found.winner.config), "trials": found.tried,
                          "seconds": round(found.seconds, 2),
                          "verdict": found.verdict})  # fmt: skip


def untuned(journal, name, problem, selector, device):
    """How fast the choice without any record is, against the fastest of the part."""
    few = [TileConfig.parse(x) for x in journal.found[f"{name}, part"]["configs"]]
    wanted = {"heuristic": choose(problem, device.profile, TuningDatabase())[0].config}
    return against_best(problem, wanted, few, selector, device)


def compared(journal, name, problem, selector, device):
    """How fast the default and the tuned choice are, against the best of all that were tried."""
    few = [TileConfig.parse(x) for x in journal.found[f"{name}, part"]["configs"]]
    wanted = {
        "heuristic": choose(problem, device.profile, TuningDatabase())[0].config,
        "default": default_of(problem, device.profile),
        "tuned": TileConfig.parse(journal.found[f"{name}, tuned"]["config"]),
    }
    return against_best(problem, wanted, few, selector, device)


def against_best(problem, wanted, few, selector, device):
    """name → its speed ÷ that of the best of them and of a few more, all run in turn."""
    configs = list(dict.fromkeys((*wanted.values(), *few)))
    if device.profile.is_cpu:
        costs = retimed(problem, configs, _SECONDS, selector)
    else:
        costs = in_turn(device, problem, configs, _GPU_ROUNDS, _SECONDS)
    times = dict(zip(configs, costs, strict=True))
    best = fastest(times)
    found = {"best": str(best), "rounds": len(times[best])}
    for name, config in wanted.items():
        against = compare(times[config], times[best])
        found[name] = round(against.ratio, 3)
        found[f"{name}_interval"] = round(against.low, 3), round(against.high, 3)
        found[f"{name}_config"] = str(config)
    if "tuned" in wanted:
        against = compare(times[wanted["tuned"]], times[wanted["default"]])
        found["tuned_slower_than_default"] = against.verdict == "slower"
        found["tuned_against_default"] = str(against)
    return found


def fastest(times):
    """Of config → times, the config that no other is ahead of, round by round.

    The first by medians, which may rank otherwise where times fall into two groups.
    """
    best, passed = min(times, key=lambda x: statistics.median(times[x])), set()
    while best not in passed:
        passed.add(best)
        ahead = max(times, key=lambda x: compare(times[x], times[best]).ratio)
        if compare(times[ahead], times[best]).ratio > 1:
            best = ahead
    return best


def steps_of(space, chosen, folder, journal, selector, budget):
    """The steps of each shape: through the part; tune; compare. All of the first kind first."""
    device = opened(selector)
    keys = {key_of(number, name, problem): problem for number, (name, problem) in chosen}
    for key, problem in keys.items():
        yield f"{key}, part", lambda p=problem: through_part(space, p, device)
        yield f"{key}, untuned", lambda k=key, p=problem: untuned(
            journal, k, p, selector, device)  # fmt: skip
    for key, problem in keys.items():
        database = folder / "db" / f"{key.split()[0]}-tuned"
        yield f"{key}, tuned", lambda p=problem, d=database: tuned(p, d, selector, budget=budget)
        yield f"{key}, compared", lambda k=key, p=problem: compared(
            journal, k, p, selector, device)  # fmt: skip


def key_of(number, name, problem):
    """What a shape's steps are called."""
    return f"{number} {name} {problem}"


def compile_ahead(space, chosen, selector, jobs, seconds, journal):
    """Have the runtime compile all programs of the parts, with no time taken.

    On a GPU, where a part was gone through on another day, only those that were the fastest there,
    and what would be chosen without a record.

    Runtimes for CPUs compile anew for the first launch of a size, so there each one is run.
    """
    device = opened(selector)
    if not device.profile.is_cpu:
        parts = [(x, _to_be_run(space, key_of(number, name, x), x, device.profile, journal))
                 for number, (name, x) in chosen]  # fmt: skip
        programs, compiled, failed = compile_side_by_side(device.profile, parts, jobs, seconds)
        print(f"{programs} programs, {compiled} compiled, {failed} failed", flush=True)
        return
    for number, (name, problem) in chosen:
        configs = candidates(space, problem, device.profile)
        failed = compile_all(device, problem, configs)
        print(f"{key_of(number, name, problem)}: {len(configs)}, {failed} failed", flush=True)


def _to_be_run(space, key, problem, profile, journal):
    part = journal.found.get(f"{key}, part")
    if part is None:
        return candidates(space, problem, profile)
    untuned = choose(problem, profile, TuningDatabase((), shipped_records(profile.key)))
    return (*(TileConfig.parse(x) for x in part["configs"]), *(x.config for x in untuned[:-1]))


def summary(found):
    """Lines on all that was compared: each shape, then the geometric means."""
    lines = []
    for step, kinds in (("untuned", ("heuristic",)), ("compared", ("heuristic", "default",
                                                                   "tuned"))):  # fmt: skip
        rows = {key: x for key, x in found.items() if key.endswith(f", {step}")}
        for key, x in rows.items():
            lines.append(" ".join(f"{x[kind]:6.3f}" for kind in kinds) + f"  {key}")
        for kind in kinds if rows else ():
            mean = statistics.geometric_mean(x[kind] for x in rows.values())
            lines.append(f"{step}: {kind} ÷ best {mean:.3f} (geometric mean of {len(rows)})")
        slower = [key for key, x in rows.items() if x.get("tuned_slower_than_default")]
        lines += [f"slower than untuned: {key}" for key in slower]
    return lines or ["nothing is compared yet"]


def main(argv=None):
    """Measure what is missing, and print what there is; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("space", choices=tuple(PARTS))
    parser.add_argument("file", type=Path, metavar="SHAPES.csv")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=95,
                        help="of all but --together; 0 for the summary alone")  # fmt: skip
    parser.add_argument("--budget", default="30s", help="of the tuner, for each shape")
    parser.add_argument("--compile", action="store_true", help="compile the parts, time nothing")
    parser.add_argument("--jobs", type=int, default=8, help="processes that compile, on a GPU")
    parser.add_argument("--together", metavar="BUDGET", help="of the tuner, for all shapes")
    parser.add_argument("--parts", action="store_true", help="go through the parts, do not tune")
    parser.add_argument("--shapes", default=f"0:{_COUNT}", help="which of the forty, as FROM:TO")
    parser.add_argument("--device")
    arguments = parser.parse_args(argv)
    journal = Journal(arguments.folder / "journal.jsonl")
    first, last = map(int, arguments.shapes.split(":"))
    chosen = list(enumerate(shapes(arguments.file)))[first:last]
    if arguments.compile:
        compile_ahead(arguments.space, chosen, arguments.device, arguments.jobs,
                      arguments.seconds, journal)  # fmt: skip
        return 0

    if arguments.together and arguments.seconds:
        wanted = {f"{key_of(number, name, x)}, tuned": x for number, (name, x) in chosen}
        tuned_together(journal, wanted, arguments.folder / "db", arguments.device,
                       arguments.together)  # fmt: skip

    def steps():
        found = steps_of(arguments.space, chosen, arguments.folder, journal, arguments.device,
                         arguments.budget)  # fmt: skip
        if arguments.together:
            return [x for x in found if not x[0].endswith(", untuned")]
        return [x for x in found if x[0].endswith((", part", ", untuned")) or not arguments.parts]

    return go_on(journal, steps, arguments.seconds, summary)


if __name__ == "__main__":
    sys.exit(main())
