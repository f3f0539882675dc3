"""Whether a minute of tuning finds what going through a whole landscape found.

    python tools/tune_experiment.py pocl FOLDER tests/landscapes/pocl-*.json --seconds 95

For each recorded landscape the tuner runs three times for a minute, with nothing compiled and no
record at all (those shipped are left out, too), with another seed each time; then its winner and
the landscape's best run in turn. The aim is 0.95 of the recorded best in 27 runs of 30.
"""

import argparse
import statistics
import sys
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from landscapes import SHAPES  # noqa: E402
from steps import Journal, go_on  # noqa: E402
from tune_gain import retimed, tuned  # noqa: E402

from clmatmul import walk  # noqa: E402
from clmatmul.config import TileConfig  # noqa: E402
from clmatmul.explanation import plain_problem  # noqa: E402
from clmatmul.measure import compare  # noqa: E402
from clmatmul.tune.landscape import Landscape  # noqa: E402

RUNS = 3
_ENOUGH = 0.95


def problems(space):
    """text of a problem → Problem, of all that landscapes are recorded of."""
    made = [plain_problem(*size, dtype, batch=batch) for size, dtype, batch in SHAPES[space]]
    return {str(x): x for x in made}


def against_best(landscape, problem, config, device):
    """A winner's speed ÷ that of the recorded best, both run in turn now."""
    passed = [x for x in landscape.trials.values() if x.status == "ok"]
    best = min(passed, key=lambda x: x.cost).config
    mine = TileConfig.parse(config)
    if mine == best:
        return {"ratio": 1.0, "low": 1.0, "high": 1.0}
    found = compare(*retimed(problem, [mine, best], 8, device))
    return {"ratio": round(found.ratio, 3), "low": round(found.low, 3),
            "high": round(found.high, 3)}  # fmt: skip


def steps_of(space, files, folder, journal, device, budget):
    """Tune and compare, for each file and each run."""
    known = problems(space)
    for run in range(RUNS):
        for file in files:
            landscape = Landscape.from_json(file.read_text())
            problem = known[landscape.problem]
            key, database = f"{file.stem}, run {run}", folder / "db" / f"{file.stem}-{run}"
            yield (f"{key}, tuned", lambda p=problem, d=database, r=run: tuned(
                p, d, device, seed=1000 + r, budget=budget))  # fmt: skip
            yield (f"{key}, compared", lambda p=problem, x=landscape, k=key: against_best(
                x, p, journal.found[f"{k}, tuned"]["config"], device))  # fmt: skip


def summary(found):
    """Lines on all runs that were compared."""
    ratios = {k: x["ratio"] for k, x in found.items() if k.endswith(", compared")}
    if not ratios:
        return ["nothing is compared yet"]
    good = sum(x >= _ENOUGH for x in ratios.values())
    lines = [f"{x:6.3f}  {key}" for key, x in sorted(ratios.items())]
    return [*lines, f"{good} of {len(ratios)} runs have {_ENOUGH} of the recorded best; median "
            f"{statistics.median(ratios.values()):.3f}"]  # fmt: skip


def main(argv=None):
    """Measure what is missing, and print what there is; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("space", choices=tuple(SHAPES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=95, help="0 for the summary alone")
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--device")
    arguments = parser.parse_args(argv)
    journal = Journal(arguments.folder / "journal.jsonl")

    def steps():
        return steps_of(arguments.space, arguments.files, arguments.folder, journal,
                        arguments.device, arguments.budget)  # fmt: skip

    with mock.patch.object(walk, "shipped_records", lambda device_key: []):
        return go_on(journal, steps, arguments.seconds, summary)


if __name__ == "__main__":
    sys.exit(main())
