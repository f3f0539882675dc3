"""The contestants of bench: ourselves in three ways, and who we are compared with.

An entry's operands are made once, on the host and with the same values on the device; every
contestant works on those, over and over, so that all find them in the same caches. Before each
turn the output is filled with poison, and after it what the last call gave is checked.
"""

import time
from dataclasses import dataclass, replace

import numpy as np

from clmatmul import bench_clblast, bench_torch, cases
from clmatmul import device as devices
from clmatmul.api import MatMul
from clmatmul.device_arrays import array_over
from clmatmul.element_types import numpy_dtype, product_type
from clmatmul.errors import VerificationError
from clmatmul.measure import BLAS_IDLE_SECONDS, interleave
from clmatmul.sample import Sample
from clmatmul.trial import run_case
from clmatmul.walk import find_route

_PAUSE_SECONDS = BLAS_IDLE_SECONDS
_TURN_NS = 1e7  # calls are repeated until a turn lasts this long, at least twice
_MOST_CALLS = 1000  # a turn
_LONG_NS = 3e8  # one call of this length is a turn
_SEED = 20260103
_LEAST_ROUNDS = 3


class Contestant:
    """Something that computes the product: `call` does so and waits until the result is there.

    result: gives the last call's result as an array (batch…, m, n). judge: gives the Verdict on
    it. reset: spoils the result of the call before.
    """

    def __init__(self, name, call, result, judge, reset=lambda: None):
        self.name = name
        self.call = call
        self.turns = []
        self.worst = 0.0
        self.fault = None
        self._result, self._judge, self._reset = result, judge, reset

    def turn(self):
        """Call for a while and check what came of it; the median time of a call in ns."""
        self._reset()
        times = timed_calls(self.call)
        self.turns.append(tuple(times))
        self.check()
        return float(np.median(times))

    def check(self):
        """Judge the last call's result; the first fault, and the largest error, are kept."""
        verdict = self._judge(self._result())
        self.fault = self.fault or verdict.fault
        self.worst = max(self.worst, verdict.error_ratio or 0.0)


def timed_calls(call):
    """Wall times in ns of repeated calls: at least two, and for 10 ms; one if it takes long."""
    times = []
    while True:
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
        spent = sum(times)
        enough = spent >= _TURN_NS and (len(times) > 1 or spent >= _LONG_NS)
        if enough or len(times) >= _MOST_CALLS:
            return times


def race(contestants, rounds, seconds):
    """Let each take a turn a round, in reversed order every other round, with a pause before.

    Afterwards each has its `turns`. No round is begun after `seconds`, once there are three. Each
    first takes a turn that does not count.
    """
    for contestant in contestants:
        contestant.turn()
        contestant.turns.clear()
    interleave(
        [x.turn for x in contestants], rounds, pause_seconds=_PAUSE_SECONDS,
        max_seconds=seconds, min_rounds=min(rounds, _LEAST_ROUNDS),
    )  # fmt: skip


@dataclass
class _Laid:
    """A matrix on both sides: `memory` is one contiguous piece, `host` and `device` lie in it."""

    memory: np.ndarray
    host: np.ndarray
    device: object
    buffer: object

    @classmethod
    def empty(cls, device, queue, shape, dtype, by_columns):
        *batch, rows, columns = shape
        memory = np.empty((*batch, columns, rows) if by_columns else shape, dtype)
        host = np.swapaxes(memory, -1, -2) if by_columns else memory
        buffer = device.allocate(memory.nbytes)
        return cls(
            memory,
            host,
            array_over(queue, buffer, shape, dtype, host.strides),
            buffer,
        )


class Product:
    """An entry's operands, its plan for operands on the device, and what must come out.

    config: a configuration to use instead of the one chosen. VerificationError if a first run,
    with guard zones round the output, is not right.
    """

    def __init__(self, device, entry, config=None):
        self.device, self.entry = device, entry
        self.queue = device.queue()
        dtype = numpy_dtype(entry.dtype)
        result = numpy_dtype(entry.accumulate) if entry.accumulate else product_type(dtype, dtype)
        a_by_columns, b_by_columns = (x == "T" for x in entry.layout)

        def laid(shape, dtype, by_columns):
            return _Laid.empty(device, self.queue, entry.batch + shape, dtype, by_columns)

        self.a = laid((entry.m, entry.k), dtype, a_by_columns)
        self.b = laid((entry.k, entry.n), dtype, b_by_columns)
        self.out = laid((entry.m, entry.n), result, entry.out_order == "F")
        self._poison = np.full(self.out.memory.nbytes, 0xFF, np.uint8)  # NaN in every format
        self._keywords = {"accumulate": entry.accumulate, "config": config}
        self.plan = MatMul(
            self.a.device, self.b.device, self.out.device, **self._keywords
        )  # fmt: skip
        self._fill_and_check()

    @property
    def config(self):
        return self.plan.config

    def _fill_and_check(self):
        problem = self.plan.problem
        rng = np.random.default_rng(_SEED)
        case = cases.case_of(problem, rng)
        a, b = case.memory["a"].view, case.memory["b"].view
        if problem.swapped:  # the transposed product is computed
            a, b = np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2)
        for laid, view in ((self.a, a), (self.b, b)):
            laid.host[...] = view.reshape(laid.host.shape)
            self.device.write(self.queue, laid.buffer, laid.memory)
        self._sample = Sample(case, rng)
        verdict = self._sample.judge(run_case(self.device, self.config, case))
        if verdict.fault:
            raise VerificationError(f"{self.config}, {self.entry.name}: {verdict.fault}")
        self.error_ratio = verdict.error_ratio

    def judge(self, result):
        """The Verdict on a result of this entry."""
        if self.plan.problem.swapped:
            result = np.swapaxes(result, -1, -2)
        problem = self.plan.problem
        return self._sample.judge_result(result.reshape(problem.batch + (problem.m, problem.n)))

    def _on_device(self, name, call):
        def result():
            self.device.read(self.queue, self.out.buffer, self.out.memory)
            return self.out.host

        def reset():
            self.device.write(self.queue, self.out.buffer, self._poison)

        return Contestant(name, call, result, self.judge, reset)

    def _on_host(self, name, call):
        """call: gives the result, or fills `self.out.host` where the output's order is given."""
        last = []

        def kept():
            last[:] = [call()]

        def reset():
            last.clear()
            self.out.memory.reshape(-1).view(np.uint8)[...] = 0xFF

        return Contestant(name, kept, lambda: last[0], self.judge, reset)

    def launches(self):
        """Our kernels alone: enqueued on buffers of the device, and waited for."""
        executable = find_route(self.device, self.plan.problem, self.config).executable
        workspace = {x.name: self.device.allocate(x.bytes) for x in executable.plan.workspace}
        a, b = (self.b, self.a) if self.plan.problem.swapped else (self.a, self.b)
        operands = {"a": (a.buffer, 0), "b": (b.buffer, 0), "out": (self.out.buffer, 0)}

        def call():
            event, keep = executable(self.queue, operands, workspace=workspace)
            self.device.finish(self.queue, event)
            del keep

        return self._on_device("launches", call)

    def device_arrays(self):
        """The prepared product of arrays on the device, waited for."""

        def call():
            self.plan(self.a.device, self.b.device, self.out.device)
            self.device.finish(self.queue, self.out.device.events[-1])

        return self._on_device("device", call)

    def host_arrays(self):
        """The prepared product of NumPy arrays, with a NumPy array as its result."""
        a, b = self.a.host, self.b.host
        out = self.out.host if self.entry.out_order == "F" else None
        plan = MatMul(a, b, out, device=self.device, **self._keywords)
        return self._on_host("host", lambda: plan(a, b, out))

    def numpy(self):
        """numpy.matmul on the same arrays."""
        a, b = self.a.host, self.b.host
        if self.entry.out_order == "F":
            return self._on_host("numpy", lambda: np.matmul(a, b, out=self.out.host))
        return self._on_host("numpy", lambda: np.matmul(a, b))

    def clblast(self, library):
        """CLBlast's product on the same queue and buffers, waited for."""
        handles = devices.handles(self.queue, self.a.buffer, self.b.buffer, self.out.buffer)

        def call():
            bench_clblast.gemm(library, self.entry, *handles)
            self.queue.finish()

        return self._on_device("clblast", call)

    def torch(self, library):
        """torch's product of the same values on its own device, waited for."""
        theirs = bench_torch.TorchProduct(library, self.a.host, self.b.host, self.out.host)
        return Contestant("torch", theirs.call, theirs.result, self.judge, theirs.reset)

    def own(self):
        """Ourselves at another dtype, on the device: the baseline of an entry that names one."""
        entry = replace(self.entry, dtype=self.entry.against, accumulate=None, against=None)
        contestant = Product(self.device, entry).device_arrays()
        contestant.name = f"own {entry.dtype}"
        return contestant
