"""CLMATMUL_TUNE: whether recorded choices are used, and whether the first call of a size tunes.

`off`: choices are made as if nothing were recorded. `read`, the default: records are used. `auto`:
the first product of a size that this user has no record of also times a handful of candidates
within a stated time, in this process, and records the best for every later one.
"""

import logging
import os
import time
from dataclasses import replace
from datetime import datetime, timezone

from clmatmul.database import TuningRecord, append_record, publish_best
from clmatmul.errors import ArgumentError, ClmatmulError
from clmatmul.executable import build
from clmatmul.measure import compare, interleave, timed_run
from clmatmul.plan import make_plan
from clmatmul.trial import Workload, try_config
from clmatmul.variants import load_variant

MODES = ("off", "read", "auto")
_SECONDS = 2.0
_CANDIDATES = 6
_ROUNDS = 11
_HOPELESS = 1.5  # times slower than the best: out of the comparison
_log = logging.getLogger("clmatmul")


def mode():
    """The value of CLMATMUL_TUNE; ArgumentError lists what is allowed."""
    wanted = os.environ.get("CLMATMUL_TUNE", "").strip().lower() or "read"
    if wanted not in MODES:
        raise ArgumentError(f"CLMATMUL_TUNE={wanted!r} is not allowed; it may be off, read or auto")
    return wanted


def seconds_allowed():
    """How long a first call may tune: CLMATMUL_TUNE_SECONDS, 2 by default; ArgumentError."""
    text = os.environ.get("CLMATMUL_TUNE_SECONDS", "").strip() or str(_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 3600:
        raise ArgumentError(f"CLMATMUL_TUNE_SECONDS={text!r} is no number of seconds above 0")
    return seconds


def tune_first_use(device, problem, choices, journal, best_file):
    """Time the choices in turn, and record the best; its TuningRecord, or None.

    The time is for what comes after the first candidate, which is built anyway. A candidate that
    does not work is recorded too. Nothing is raised: where tuning fails, the product goes on.
    """
    begin, limit = time.monotonic(), seconds_allowed()
    # The safe choice, the last, is for where nothing else works.
    configs = [x.config for x in choices[: _CANDIDATES + 1]][: max(len(choices) - 1, 1)]
    try:
        work = Workload(device, problem)
        passed = []
        for config in configs[:_CANDIDATES]:
            if passed and time.monotonic() - begin > limit / 2:
                break
            best = min((x.median_ns for x in passed), default=None)
            trial = try_config(device, work, config, best_ns=best, slowest_ns=limit * 1e9 / 4)
            record = _record(device, problem, trial)
            append_record(journal, record)
            if trial.status == "ok":
                passed.append(record)
        if not passed:
            return None
        winner = _fastest(device, work, passed, limit - (time.monotonic() - begin))
        append_record(journal, winner)
        publish_best(best_file, [winner])
    except ClmatmulError as error:
        _log.warning("the first call of %s could not be tuned: %s", problem, error)
        return None
    _log.info("the first call of %s was tuned: %s", problem, winner.config)
    return winner


def _fastest(device, work, passed, seconds):
    """The record of what is fastest in turn with the first, beyond the noise; else the first."""
    best = min(x.least_ns for x in passed)
    rivals = [x for x in passed[1:] if x.least_ns <= _HOPELESS * best]
    if not rivals:
        return replace(passed[0], note="the default, on its first call")
    contestants = [passed[0], *rivals]
    runs = [work.runner(build(device, make_plan(work.problem, device.profile, x.config)))
            for x in contestants]  # fmt: skip
    times = interleave(
        [lambda run=run: timed_run(run, 0, events=work.has_events)[0] for run in runs], _ROUNDS,
        max_seconds=max(seconds, 0.1), min_rounds=6,
    )  # fmt: skip
    ahead = [
        (sorted(own)[len(own) // 2], record)
        for own, record in zip(times[1:], rivals, strict=True)
        if compare(own, times[0]).verdict == "faster"
    ]
    if not ahead:
        return replace(passed[0], note="the default, on its first call")
    return replace(min(ahead, key=lambda x: x[0])[1], note="found on its first call")


def _record(device, problem, trial):
    values = {name: getattr(problem, name) for name in ("m", "n", "k")}
    return TuningRecord(
        device=device.profile.key, kind=problem.kind.key, batch=problem.batch_count,
        digest=load_variant(trial.config.variant).digest,
        time=datetime.now(timezone.utc).isoformat(timespec="seconds"), **values, **vars(trial),
    )  # fmt: skip
