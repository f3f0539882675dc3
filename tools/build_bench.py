"""How much sooner a batch of candidates is built and checked side by side than one by one.

    python tools/build_bench.py JOURNAL --seconds 95     # again until nothing is left

Both ways build the same programs, each of its own text, from nothing: neither PoCL nor clmatmul has
any of them on disk. They are built in the batches of the default strategy, and the two ways take
turns, so that a machine whose speed drifts is fair to both. The builders' own start is not counted:
a search has it once.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from steps import Journal, run_steps  # noqa: E402

from clmatmul.explanation import plain_problem  # noqa: E402
from clmatmul.space import SearchSpace, program_of  # noqa: E402
from clmatmul.tune.strategies import LEARNT_BATCH  # noqa: E402
from clmatmul.tune.trials import Trials  # noqa: E402
from clmatmul.variants import all_variants  # noqa: E402

COUNT = 100
_CHUNK = 20
_SIZE = (512, 512, 512)
_JOBS = 2


def candidates(profile, problem, count):
    """`count` configurations of as many programs, at random.

    On a CPU of the kernels made for CPUs, which a search turns to soon.
    """
    variants = [x for x in all_variants() if not profile.is_cpu or x.name.startswith("cpu_")]
    space = SearchSpace(variants, problem, profile)
    found = {}
    for config in space.draw(random.Random(1)):
        found.setdefault(program_of(config), config)
        if len(found) == count:
            return list(found.values())
    raise SystemExit(f"there are only {len(found)} programs")


def build_cold(jobs, chunk, count=COUNT, each=_CHUNK, batch=LEARNT_BATCH):
    """{'seconds', 'passed', 'count'} of one chunk of candidates with `jobs` builders."""
    folder = tempfile.mkdtemp(prefix="clmatmul-build-bench-")
    os.environ["POCL_CACHE_DIR"] = folder
    problem = plain_problem(*_SIZE)
    trials = Trials(None, jobs=jobs)
    try:
        trials.prepare(problem, 0)
        first, configs = _split(candidates(trials.profile, problem, count + _JOBS))
        list(trials.check_all(first[:jobs]))  # each builder has begun and opened the device
        mine = configs[chunk * each : (chunk + 1) * each]
        begin = time.perf_counter()
        failed = [
            found
            for at in range(0, len(mine), batch)
            for _, found in trials.check_all(mine[at : at + batch])
        ]
        seconds = time.perf_counter() - begin
    finally:
        trials.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return {"seconds": round(seconds, 2), "count": len(failed),
            "passed": sum(x is None for x in failed)}  # fmt: skip


def _split(configs):
    return configs[:_JOBS], configs[_JOBS:]


def main(argv=None):
    """Measure what is missing, and print the ratio once all is there; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("journal")
    parser.add_argument("--seconds", type=float, default=95)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--batch", type=int, default=LEARNT_BATCH)
    arguments = parser.parse_args(argv)
    journal = Journal(arguments.journal)
    each = min(_CHUNK, arguments.count)
    chunks = range(arguments.count // each)
    steps = [
        (f"{jobs} at a time, batches of {arguments.batch}, chunk {chunk}",
         lambda jobs=jobs, chunk=chunk: build_cold(
             jobs, chunk, arguments.count, each, arguments.batch))
        for chunk in chunks
        for jobs in ((1, _JOBS) if chunk % 2 == 0 else (_JOBS, 1))
    ]  # fmt: skip
    left = run_steps(journal, steps, arguments.seconds)
    totals = {
        jobs: sum(journal.found[key]["seconds"] for key, _ in steps
                  if key in journal.found and key.startswith(f"{jobs} at"))
        for jobs in (1, _JOBS)
    }  # fmt: skip
    if left:
        print(f"{left} steps are left: call again")
        return 1
    print(f"{arguments.count} candidates: one by one {totals[1]:.1f} s, {_JOBS} at a time "
          f"{totals[_JOBS]:.1f} s: {totals[1] / totals[_JOBS]:.2f} times as fast")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
