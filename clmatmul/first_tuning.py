"""CLMATMUL_TUNE: whether recorded choices are used, and whether the first call of a size tunes.

`off`: choices are made as if nothing were recorded. `read`, the default: records are used. `auto`:
the first product of a size that this user has no record of also tries a handful of candidates
within a stated time, and records the best for every later one. They are built, checked and timed in
a child process, which a kernel may crash or hang without harm to the program.
"""

import json
import logging
import os
import time
from dataclasses import replace
from datetime import datetime, timezone

from clmatmul.database import TuningRecord, append_record, publish_best
from clmatmul.errors import ArgumentError, ClmatmulError
from clmatmul.lanes import Lane, failed_trial, trial_of
from clmatmul.measure import compare
from clmatmul.supervisor import LIMITS, WorkerFailure
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
    """Time the choices in turn in a child process, and record the best.

    Returns its TuningRecord, or None, and {config: why} of those that do not work, which are
    recorded too. The time allowed begins when the first candidate is done, which has the tuner's
    limits; what then runs is ended with the child. Nothing is raised: where tuning fails, the
    product goes on.
    """
    # The safe choice, the last, is for where nothing else works.
    configs = [x.config for x in choices[: _CANDIDATES + 1]][: max(len(choices) - 1, 1)]
    clock, failed = _Clock(seconds_allowed()), {}
    try:
        lane = Lane(json.loads(device.profile.to_json()), programs=None)
        try:
            lane.open()
            lane.prepare(problem, seed=0)
            passed = []
            for config in configs[:_CANDIDATES]:
                if clock.left() <= 0:
                    break
                trial = _try(lane, config, passed, clock)
                clock.start()
                if trial is None:
                    break
                record = _record(device, problem, trial)
                append_record(journal, record)
                if trial.status == "ok":
                    passed.append(record)
                elif trial.status != "too_slow":
                    failed[config] = f"{trial.status} in the child process: {trial.note}"
            if not passed:
                return None, failed
            winner = _fastest(lane, passed, clock)
        finally:
            lane.kill()
        append_record(journal, winner)
        publish_best(best_file, [winner])
    except ClmatmulError as error:
        _log.warning("the first call of %s could not be tuned: %s", problem, error)
        return None, failed
    _log.info("the first call of %s was tuned: %s", problem, winner.config)
    return winner, failed


class _Clock:
    """The time allowed, from when it is started; and how much of it a state may take."""

    def __init__(self, seconds):
        self.seconds = seconds
        self._begin = None

    def start(self):
        self._begin = self._begin or time.monotonic()

    def left(self):
        return self.seconds - (time.monotonic() - self._begin if self._begin else 0)

    def limits(self):
        """state → seconds: the tuner's, or what is left."""
        if self._begin is None:
            return LIMITS
        return {state: min(limit, max(self.left(), 0.0)) for state, limit in LIMITS.items()}


def _try(lane, config, passed, clock):
    """The Trial of a candidate; None if the time was over before it was done."""
    request = {
        "do": "try", "config": config.to_dict(), "checked": False,
        "best_ns": min((x.median_ns for x in passed), default=None),
        "slowest_ns": clock.seconds * 1e9 / 4,
    }  # fmt: skip
    limits = clock.limits()
    try:
        return trial_of(lane.ask(request, "build", limits))
    except WorkerFailure as failure:
        if failure.hung and limits[failure.state] < LIMITS[failure.state]:
            return None  # it may well work: it was not given its time
        return failed_trial(config, failure)


def _fastest(lane, passed, clock):
    """The record of what is fastest in turn with the first, beyond the noise; else the first."""
    default = replace(passed[0], note="the default, on its first call")
    best = min(x.least_ns for x in passed)
    rivals = [x for x in passed[1:] if x.least_ns <= _HOPELESS * best]
    if not rivals or clock.left() <= 0:
        return default
    configs = [x.config.to_dict() for x in (passed[0], *rivals)]
    request = {"do": "compare", "configs": configs, "rounds": _ROUNDS,
               "max_seconds": clock.left() / 2}  # fmt: skip
    try:
        times = lane.ask(request, "build", clock.limits())["costs"]
    except WorkerFailure as failure:
        _log.info("the comparison did not end: %s", failure)
        return default
    ahead = [
        (sorted(own)[len(own) // 2], record)
        for own, record in zip(times[1:], rivals, strict=True)
        if compare(own, times[0]).verdict == "faster"
    ]
    if not ahead:
        return default
    return replace(min(ahead, key=lambda x: x[0])[1], note="found on its first call")


def _record(device, problem, trial):
    values = {name: getattr(problem, name) for name in ("m", "n", "k")}
    return TuningRecord(
        device=device.profile.key, kind=problem.kind.key, batch=problem.batch_count,
        digest=load_variant(trial.config.variant).digest,
        time=datetime.now(timezone.utc).isoformat(timespec="seconds"), **values, **vars(trial),
    )  # fmt: skip
