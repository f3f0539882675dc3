"""Runs trials one after the other in a worker, and replaces the worker when one ends it.

A trial always comes back as a status: also if it crashed the process or never ended.
"""

import json
from dataclasses import dataclass

from clmatmul.config import TileConfig
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import ClmatmulError, DeviceError
from clmatmul.trial import Trial
from clmatmul.tune.messages import problem_to_dict
from clmatmul.tune.supervisor import LIMITS, Worker, WorkerFailure

_TRIALS_PER_WORKER = 200  # drivers leak
_SLOWEST_SECONDS = 30  # of a run, as long as nothing is known
_SLOWEST_FACTOR = 20  # times slower than the best: not run at full size
_LIMITED_BY_TIMEOUT = ("build", "launch", "verify", "time", "compare")


class DeviceLost(DeviceError):
    """After a trial went wrong, the device no longer does what it did before."""


@dataclass(frozen=True)
class _Task:
    """The problem that the worker holds."""

    problem: object
    seed: int


class Trials:
    """A device, tried through workers. `profile` is its DeviceProfile.

    selector: the device as `selection.select` takes it from text, None for the default, or a
    DeviceProfile. timeout: seconds that each state of a trial may last, instead of limits drawn
    from the problem. entered: told each state of the worker.
    """

    def __init__(self, selector, timeout=None, entered=lambda state: None):
        self._device = selector
        if isinstance(selector, DeviceProfile):
            self._device = json.loads(selector.to_json())
        self._timeout = timeout
        self._entered = entered
        self._worker = None
        self._served = 0
        self._task = None
        try:
            self.profile = self._open()
        except BaseException:  # Ctrl-C too: nobody else knows the process yet
            self.kill()
            raise

    def _open(self):
        self._worker = Worker()
        self._served = 0
        reply = self._ask_or_lose({"do": "open", "device": self._device}, "open")
        return DeviceProfile.from_json(json.dumps(reply["profile"]))

    def prepare(self, problem, seed):
        """Have the worker make the operands of a problem. DeviceError if it cannot."""
        self._task = _Task(problem, seed)
        if self._worker is None:
            self._replace()
        else:
            self._prepare()

    def _prepare(self):
        problem = problem_to_dict(self._task.problem)
        request = {"do": "prepare", "problem": problem, "seed": self._task.seed}
        self._ask_or_lose(request, "prepare")

    def try_config(self, config, best_ns=None):
        """The Trial of a configuration. DeviceLost if the device fails even the safe kernel."""
        if self._worker is None:
            self._replace()
        elif self._served >= _TRIALS_PER_WORKER:
            self._worker.close()
            self._replace()
        slowest = max(1, _SLOWEST_FACTOR * best_ns * 1e-9) if best_ns else _SLOWEST_SECONDS
        request = {
            "do": "try", "config": config.to_dict(), "best_ns": best_ns,
            "slowest_ns": slowest * 1e9,
        }  # fmt: skip
        self._served += 1
        try:
            reply = self._worker.ask(request, "build", self._limits(slowest), self._entered)
        except WorkerFailure as failure:
            self._worker = None
            status = "crash"
            if failure.hung:
                status = "build_timeout" if failure.state == "build" else "hang"
            return Trial(config, status, note=str(failure))
        return Trial(**{**reply, "config": TileConfig.parse(reply["config"])})

    def compare(self, configs, rounds, max_seconds):
        """Times in ns of each configuration, run in turn. DeviceError if one of them fails."""
        if self._worker is None:
            self._replace()
        request = {
            "do": "compare", "configs": [x.to_dict() for x in configs], "rounds": rounds,
            "max_seconds": max_seconds,
        }  # fmt: skip
        limits = {**LIMITS, "build": LIMITS["build"] * len(configs),
                  "compare": LIMITS["compare"] + 2 * max_seconds}  # fmt: skip
        try:
            return self._worker.ask(request, "build", limits, self._entered)["times_ns"]
        except WorkerFailure as failure:
            self._worker = None
            raise DeviceError(f"the comparison failed: {failure}") from None

    def _replace(self):
        """A new worker for the same problem, after the safe kernel has shown the device works."""
        try:
            self._open()
            problem = problem_to_dict(self._task.problem)
            self._ask_or_lose({"do": "canary", "problem": problem}, "launch")
            self._prepare()
        except ClmatmulError as error:
            raise DeviceLost(
                f"after a failed trial the device does not work any more: {error}; restart the "
                "driver or the machine, and tune again: what was tried is recorded and skipped"
            ) from None

    def _ask_or_lose(self, request, state):
        try:
            return self._worker.ask(request, state, LIMITS, self._entered)
        except WorkerFailure as failure:
            self._worker = None
            raise DeviceError(f"the tuner's worker failed: {failure}") from None

    def _limits(self, slowest):
        if self._timeout is not None:
            return {**LIMITS, **{state: self._timeout for state in _LIMITED_BY_TIMEOUT}}
        return {**LIMITS, "verify": 30 + 2 * slowest, "time": 15 + 5 * slowest}

    def close(self):
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def kill(self):
        """End the worker at once, whatever it is doing."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None
