"""A worker process that is replaced when it dies, for as long as the device still works.

The timing lane holds a problem's operands; builder lanes build and check ahead of it.
"""

import json

from clmatmul.config import TileConfig
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import ClmatmulError, DeviceError
from clmatmul.problem_json import problem_to_dict
from clmatmul.supervisor import LIMITS, Worker, WorkerFailure
from clmatmul.trial import Trial

_REQUESTS_PER_WORKER = 200  # drivers leak


class DeviceLost(DeviceError):
    """After a trial went wrong, the device no longer does what it did before."""


class Lane:
    """One worker at a time for one device; `profile` is what the first of them found.

    selector: what `selection.select` takes, or a DeviceProfile's values. programs: a folder that
    the lanes of a search share. with_operands: the
    worker holds the operands of the problem that `prepare` names. entered: told each state.
    objective: 'energy' if the worker has to measure that too. core: the one core that the worker
    keeps to; None for all.
    """

    def __init__(self, selector, programs, with_operands=True, entered=lambda state: None,
                 objective="time", core=None):  # fmt: skip
        self._selector = selector
        self._objective = objective
        self._core = core
        self._programs = programs
        self._with_operands = with_operands
        self._entered = entered
        self._worker = None
        self._failed = False  # the worker before this one did not end in order
        self._closed = False
        self._served = 0
        self._problem = None
        self._seed = 0
        self.profile = None

    def open(self):
        """Start the worker, and return the DeviceProfile of what it found."""
        try:
            self._worker = Worker(programs=self._programs, one_of_many=not self._with_operands)
            self._served = 0
            if self._closed:
                raise DeviceError("the search was ended")
            request = {"do": "open", "device": self._selector, "objective": self._objective,
                       "core": self._core}  # fmt: skip
            reply = self._ask_or_lose(request, "open")
        except BaseException:  # Ctrl-C too: nobody else knows the process yet
            self.kill()
            raise
        self.profile = DeviceProfile.from_json(json.dumps(reply["profile"]))
        return self.profile

    def about(self, problem, seed=0):
        """What the requests to come are about."""
        self._problem, self._seed = problem, seed

    def prepare(self, problem, seed):
        """Have the worker make a problem's operands. DeviceError if that cannot be done."""
        self.about(problem, seed)
        if self._worker is None:
            self._replace()
        else:
            self._send_problem()

    def _send_problem(self):
        if self._with_operands:
            problem = problem_to_dict(self._problem)
            self._ask_or_lose({"do": "prepare", "problem": problem, "seed": self._seed}, "prepare")

    def ask(self, request, state, limits):
        """The reply to a request; WorkerFailure if it ended the worker; DeviceLost."""
        if self._worker is None:
            self._replace()
        elif self._served >= _REQUESTS_PER_WORKER:
            self._worker.close()
            self._worker = None
            self._replace()
        self._served += 1
        try:
            return self._worker.ask(request, state, limits, self._entered)
        except WorkerFailure:
            self._worker = None
            self._failed = True
            raise

    def _replace(self):
        """A new worker for the same problem, after the safe kernel has shown the device works."""
        try:
            self.open()
            if self._failed or self._with_operands:
                problem = problem_to_dict(self._problem)
                self._ask_or_lose({"do": "canary", "problem": problem}, "launch")
            self._failed = False
            self._send_problem()
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

    def kill(self):
        """End the worker at once, whatever it is doing; the lane starts no other."""
        self._closed = True
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()


def trial_of(reply):
    """The Trial that a worker's reply to 'check' or 'try' says."""
    return Trial(**{**reply, "config": TileConfig.parse(reply["config"])})


def failed_trial(config, failure):
    """The Trial of a configuration that ended the worker: a WorkerFailure."""
    status = "crash"
    if failure.hung:
        status = "build_timeout" if failure.state == "build" else "hang"
    return Trial(config, status, note=str(failure))
