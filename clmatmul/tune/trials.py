"""Runs trials in worker processes: several build and check, one times.

A trial always comes back as a status: also if it crashed the process or never ended. A batch is
built and checked first, side by side, and timed afterwards: nothing is built while timing.
"""

import itertools
import json
import logging
import os
import queue
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor

from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import DeviceError
from clmatmul.lanes import DeviceLost, Lane, failed_trial, trial_of
from clmatmul.problem_json import problem_to_dict
from clmatmul.space import program_of
from clmatmul.supervisor import LIMITS, WorkerFailure
from clmatmul.tune.peaks import Peaks

__all__ = ["DeviceLost", "Trials"]
_log = logging.getLogger("clmatmul")
_SLOWEST_SECONDS = 30  # of a run, as long as nothing is known
_SLOWEST_FACTOR = 20  # times slower than the best: not run at full size
_LEAST_SLOWEST_SECONDS = 0.1
_MOST_JOBS = 8
_PLACES = 3  # of the operands, in a comparison
_LIMITED_BY_TIMEOUT = ("build", "launch", "verify", "time", "meter", "compare", "prove")


class Trials:
    """A device, tried through workers. `profile` is its DeviceProfile, `jobs` how many build side
    by side.

    selector: the device as `selection.select` takes it from text, None for the default, or a
    DeviceProfile. timeout: seconds that each state of a trial may last, instead of limits drawn
    from the problem. entered: told each state of the timing worker. jobs: builders side by side;
    by default as many as there are cores, up to eight. objective: 'energy' to measure that too;
    UnsupportedError if there is no meter.
    """

    def __init__(self, selector, timeout=None, entered=lambda state: None, jobs=None,
                 objective="time"):  # fmt: skip
        if isinstance(selector, DeviceProfile):
            selector = json.loads(selector.to_json())
        self._timeout = timeout
        self._objective = objective
        self._problem = None
        self._programs = tempfile.mkdtemp(prefix="clmatmul-tune-")
        self._timer = Lane(selector, self._programs, True, entered, objective)
        self.jobs = jobs or min(len(_cores()), _MOST_JOBS)
        self._builders, self._pool = [], None
        try:
            self.profile = self._timer.open()
        except BaseException:
            self.kill()
            raise
        self._builders = [
            Lane(selector, self._programs, False, core=core) for core in self._builders_cores()
        ]

    def _builders_cores(self):
        """The core of each builder. PoCL's threads would meet on the same cores otherwise."""
        if self.profile.family != "pocl" or self.jobs == 1:
            return [None] * self.jobs
        return list(itertools.islice(itertools.cycle(_cores()), self.jobs))

    def prepare(self, problem, seed):
        """Have the timing worker make the operands of a problem. DeviceError if it cannot."""
        self._problem = problem
        self._timer.prepare(problem, seed)
        for lane in self._builders:
            lane.about(problem)

    def try_all(self, configs, best_ns):
        """The Trial of each configuration, as each is made: first those that fail at once.

        best_ns: a function that returns the time of the best so far, or None. DeviceLost if the
        device fails even the safe kernel.
        """
        if len(configs) == 1:
            yield self.try_config(configs[0], best_ns())
            return
        passed = set()
        for config, failed in self.check_all(configs):
            if failed is None:
                passed.add(config)
            else:
                yield failed
        for config in configs:
            if config in passed:
                yield self.try_config(config, best_ns(), checked=True)

    def check_all(self, configs):
        """(config, failed Trial or None) of each, built and checked side by side, as they end.

        Configurations that share a program follow each other on one builder.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.jobs)
        problem = problem_to_dict(self._problem)
        groups = {}
        for config in configs:
            groups.setdefault(program_of(config), []).append(config)
        waiting, done = queue.SimpleQueue(), queue.SimpleQueue()
        for group in groups.values():
            waiting.put(group)

        def work(lane):
            try:
                while True:
                    for config in waiting.get_nowait():
                        done.put((config, self._check(lane, config, problem)))
            except queue.Empty:
                return
            except Exception as error:  # raised again where it is waited for
                done.put(error)

        for lane in self._builders[: len(groups)]:
            self._pool.submit(work, lane)
        for _ in configs:
            found = done.get()
            if isinstance(found, Exception):
                raise found
            yield found

    def _check(self, lane, config, problem):
        request = {"do": "check", "config": config.to_dict(), "problem": problem}
        try:
            reply = lane.ask(request, "build", self._limits(_SLOWEST_SECONDS))
        except WorkerFailure as failure:
            return failed_trial(config, failure)
        return None if reply["status"] == "ok" else trial_of(reply)

    def try_config(self, config, best_ns=None, checked=False):
        """The Trial of a configuration. checked: a builder has found it right at small sizes."""
        slowest = _SLOWEST_SECONDS
        if best_ns:
            slowest = max(_LEAST_SLOWEST_SECONDS, _SLOWEST_FACTOR * best_ns * 1e-9)
        request = {
            "do": "try", "config": config.to_dict(), "best_ns": best_ns,
            "slowest_ns": slowest * 1e9, "checked": checked,
        }  # fmt: skip
        try:
            return trial_of(self._timer.ask(request, "build", self._limits(slowest)))
        except WorkerFailure as failure:
            return failed_trial(config, failure)

    def compare(self, configs, rounds, max_seconds):
        """Times in ns, or energies in µJ, of each configuration, run in turn.

        Times a few times over in new buffers, as where they lie can make a few percent; energies
        in one place, as meters are slow. DeviceError if one of them fails.
        """
        request = {
            "do": "compare", "configs": [x.to_dict() for x in configs], "rounds": rounds,
            "max_seconds": max_seconds, "places": 1 if self._objective == "energy" else _PLACES,
        }  # fmt: skip
        limits = {**LIMITS, "build": LIMITS["build"] * len(configs),
                  "compare": LIMITS["compare"] + 2 * max_seconds}  # fmt: skip
        try:
            return self._timer.ask(request, "build", limits)["costs"]
        except WorkerFailure as failure:
            raise DeviceError(f"the comparison failed: {failure}") from None

    def peaks(self, compute):
        """The Peaks of the device for a compute type; None if they cannot be measured."""
        try:
            return Peaks(**self._timer.ask({"do": "peaks", "compute": compute}, "peaks", LIMITS))
        except (WorkerFailure, DeviceError) as failure:
            if isinstance(failure, DeviceLost):
                raise
            _log.warning("the peaks of the device were not measured: %s", failure)
            return None

    def prove(self, config, seconds):
        """What is wrong with a configuration at sizes of all kinds and in many runs, or None."""
        request = {"do": "prove", "config": config.to_dict(), "seconds": seconds}
        limits = {**self._limits(_SLOWEST_SECONDS), "prove": LIMITS["prove"] + 2 * seconds}
        try:
            return self._timer.ask(request, "prove", limits)["fault"]
        except WorkerFailure as failure:
            return str(failure)

    def _limits(self, slowest):
        if self._timeout is not None:
            return {**LIMITS, **{state: self._timeout for state in _LIMITED_BY_TIMEOUT}}
        running = 15 + 5 * slowest
        return {**LIMITS, "verify": 30 + 2 * slowest, "time": running, "meter": running}

    def kill(self):
        """End all workers at once, whatever they are doing."""
        for lane in (self._timer, *self._builders):
            lane.kill()
        if self._pool is not None:
            self._pool.shutdown()
            for lane in self._builders:  # one that was being replaced meanwhile
                lane.kill()
        shutil.rmtree(self._programs, ignore_errors=True)


def _cores():
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
