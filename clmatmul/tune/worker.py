"""The process that touches OpenCL for the tuner: `python -m clmatmul.tune.worker`.

It reads requests from standard input and answers on standard output (`messages`). It may be
killed at any time, and ends by itself as soon as the tuner is gone, even if a kernel hangs: a
thread watches standard input, and runs while the main thread waits in the driver.
"""

import json
import os
import queue
import sys
import threading
from dataclasses import asdict

from clmatmul import probes, worker_threads
from clmatmul.config import TileConfig
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import ClmatmulError, DeviceError
from clmatmul.executable import build
from clmatmul.measure import interleave, timed_run
from clmatmul.plan import make_plan
from clmatmul.problem_json import problem_from_dict
from clmatmul.selection import resolve
from clmatmul.trial import Trial, Workload, check_config, fault_in_proof, is_sane, try_config
from clmatmul.tune.energy import energy_uj, find_meter
from clmatmul.tune.peaks import measure_peaks, remembered
from clmatmul.worker_messages import error_to_dict

_LEAST_ROUNDS = 6  # fewer cannot tell two apart with 95 % confidence


class Session:
    """What the worker holds between requests: the device, and the operands of one problem."""

    def __init__(self, say):
        self._say = say
        self._device = None
        self._workload = None
        self._meter = None

    def answer(self, request):
        """The reply to a request, as a dict."""
        return getattr(self, "_" + request["do"])(request)

    def _enter(self, state):
        self._say({"state": state})

    def _open(self, request):
        selector = request["device"]
        if isinstance(selector, dict):
            selector = DeviceProfile.from_json(json.dumps(selector))
        self._device = resolve(selector)
        if self._device.profile.family in ("pocl", "nvidia"):
            # They keep what they compile; binaries cost more: NVIDIA's is compiled once again.
            os.environ["CLMATMUL_CACHE"] = "0"
        if request.get("objective") == "energy":
            self._meter = find_meter(self._device)
        if request.get("core") is not None:
            worker_threads.gather(request["core"])
        probes.ensure_usual(self._device)
        return {"profile": json.loads(self._device.profile.to_json())}

    def _canary(self, request):
        self._enter("launch")
        if not is_sane(self._device, problem_from_dict(request["problem"])):
            raise DeviceError("the safe kernel gives wrong results")
        return {}

    def _prepare(self, request):
        self._enter("prepare")
        problem = problem_from_dict(request["problem"])
        self._workload = Workload(self._device, problem, request["seed"])
        return {}

    def _check(self, request):
        """Build, and check at small sizes, for the worker that times."""
        problem = problem_from_dict(request["problem"])
        return self._outcome(
            request, lambda x: check_config(self._device, problem, x, entered=self._enter)
        )

    def _try(self, request):
        return self._outcome(request, lambda config: try_config(
            self._device, self._workload, config, entered=self._enter,
            best_ns=request["best_ns"], slowest_ns=request["slowest_ns"],
            checked=request["checked"], energy_of=self._meter and self._energy_of,
        ))  # fmt: skip

    def _energy_of(self, run, run_ns):
        self._enter("meter")
        return energy_uj(self._meter, run, run_ns)

    def _outcome(self, request, trial_of):
        config = TileConfig.parse(request["config"])
        try:
            found = trial_of(config)
        except (RuntimeError, MemoryError) as error:
            # What a runtime reports in ways of its own, such as a lack of memory.
            if isinstance(error, ClmatmulError):
                raise
            found = Trial(config, "launch_failed", note=f"{type(error).__name__}: {error}"[:400])
        return {**asdict(found), "config": found.config.to_dict()}

    def _prove(self, request):
        self._enter("prove")
        config = TileConfig.parse(request["config"])
        return {"fault": fault_in_proof(self._device, self._workload, config, request["seconds"])}

    def _peaks(self, request):
        self._enter("peaks")
        found = measure_peaks(self._device, request["compute"], self._workload.has_events)
        return remembered(self._device.profile.key, found).to_dict()

    def _compare(self, request):
        """Times of several configurations, run in turn; builds come first, never in between.

        In as many `places` as asked: before each but the first the operands go into new buffers.
        Where energy is sought, the µJ of each.
        """
        self._enter("build")
        profile, problem = self._device.profile, self._workload.problem
        plans = [make_plan(problem, profile, TileConfig.parse(x)) for x in request["configs"]]
        executables = [build(self._device, plan) for plan in plans]
        places = request.get("places", 1)
        costs, runs = [()] * len(executables), ()
        for place in range(places):
            if place:
                runs = ()  # they hold the buffers
                self._workload.move()
            runs = [self._workload.runner(x) for x in executables]
            for run in runs:
                timed_run(run, 0, events=self._workload.has_events)
            self._enter("compare")
            found = interleave(self._contestants(runs), -(-request["rounds"] // places),
                               min_rounds=-(-_LEAST_ROUNDS // places),
                               max_seconds=request["max_seconds"] / places)  # fmt: skip
            costs = [mine + more for mine, more in zip(costs, found, strict=True)]
        return {"costs": costs}

    def _contestants(self, runs):
        turns = iter(range(1, 10**9))

        def cost(run):
            took_ns = timed_run(run, next(turns), events=self._workload.has_events)[0]
            return took_ns if self._meter is None else energy_uj(self._meter, run, took_ns)

        return [lambda run=run: cost(run) for run in runs]


def main():
    """Serve requests until standard input ends."""
    say = _private_output()
    requests = queue.Queue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    session = Session(say)
    while True:
        try:
            say({"reply": session.answer(json.loads(requests.get()))})
        except ClmatmulError as error:
            say(error_to_dict(error))


def _private_output():
    """A function that writes one message to what was standard output.

    Drivers and compilers print to standard output as they please: theirs becomes standard error.
    """
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(message):
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    return say


def _read(requests):
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)  # the tuner is gone; the main thread may be stuck in a driver


if __name__ == "__main__":
    main()
