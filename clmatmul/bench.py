"""bench: products timed against NumPy, in one process, in turn, with every result checked.

Three contestants a size and dtype: the kernel alone, on operands in the device's memory (event
time); `matmul` as a NumPy user calls it, arrays in and array out (wall time); and NumPy itself.
They run in turn, in reversed order every other round, with a pause before each so that threads
of the one before go idle. Speed drifts on every machine; ratios of neighbours in time do not.
"""

import math
import time
from dataclasses import dataclass

import numpy as np

from clmatmul import device as devices
from clmatmul.api import MatMul
from clmatmul.element_types import numpy_dtype
from clmatmul.errors import ArgumentError, VerificationError
from clmatmul.explanation import plain_problem
from clmatmul.measure import Comparison, compare, interleave, spread, timed_run
from clmatmul.selection import resolve
from clmatmul.trial import Workload
from clmatmul.walk import find_route

_PAUSE_SECONDS = 0.03  # OpenBLAS's threads spin for some milliseconds after a call
_TURN_NS = 5e6  # a turn of short calls is repeated until it lasts this long
_MOST_REPEATS = 100
_LONGEST_SECONDS = 30  # of a size and dtype; after five rounds no more are begun then


@dataclass(frozen=True)
class Figures:
    """Times in ns of one contestant: the best, the median, the interquartile range."""

    best_ns: float
    median_ns: float
    spread_ns: float

    @classmethod
    def of(cls, times_ns):
        return cls(min(times_ns), float(np.median(times_ns)), spread(times_ns))


@dataclass(frozen=True)
class Row:
    """One size and dtype. ratio: how many times faster than NumPy, of rounds, in turn.

    error_ratio: largest error ÷ allowed error of all results.
    """

    problem: object
    config: str
    origin: str
    device: Figures
    host: Figures
    numpy: Figures
    ratio: Comparison
    device_ratio: Comparison
    error_ratio: float

    @property
    def best_ratio(self):
        """NumPy's best time ÷ the best of matmul."""
        return self.numpy.best_ns / self.host.best_ns

    def to_dict(self):
        """The values as JSON can hold them."""
        flops = self.problem.flops
        times = {x: getattr(self, x) for x in ("device", "host", "numpy")}
        return {
            "problem": str(self.problem),
            "batch": self.problem.batch_count,
            "m": self.problem.m,
            "n": self.problem.n,
            "k": self.problem.k,
            "dtype": self.problem.a.dtype,
            "layout": self.problem.kind.layout,
            "config": self.config,
            "origin": self.origin,
            **{
                name: {**vars(figures), "gflops": flops / figures.median_ns}
                for name, figures in times.items()
            },
            "best_ratio": self.best_ratio,
            "ratio": {**vars(self.ratio), "verdict": self.ratio.verdict},
            "device_ratio": {**vars(self.device_ratio), "verdict": self.device_ratio.verdict},
            "error_ratio": self.error_ratio,
        }


@dataclass(frozen=True)
class Bench:
    """What `bench` measured: the device, the versions, a Row for each size and dtype."""

    profile: object
    versions: dict
    rounds: int
    rows: tuple

    def to_dict(self):
        """The values as JSON can hold them."""
        return {
            "device": self.profile.title,
            "driver": self.profile.driver_version,
            "device_key": self.profile.key,
            "versions": self.versions,
            "rounds": self.rounds,
            "rows": [row.to_dict() for row in self.rows],
        }


def bench(sizes, dtypes=("float32",), *, layout="NN", rounds=11, device=None,
          told=lambda row: None):  # fmt: skip
    """Time products against NumPy.

    sizes: whole numbers for square products, or (m, n, k). layout: as for `explain`. told: given
    each Row when it is done. Returns a Bench. VerificationError if a result is wrong.
    """
    if rounds < 1:
        raise ArgumentError(f"rounds={rounds} must be at least 1")
    opened = resolve(device)
    rows = []
    for dtype in dtypes:
        for size in sizes:
            m, n, k = (size,) * 3 if isinstance(size, int) else size
            rows.append(_row(opened, plain_problem(m, n, k, dtype, layout), rounds))
            told(rows[-1])
    return Bench(opened.profile, devices.versions(), rounds, tuple(rows))


def _row(device, problem, rounds):
    work = Workload(device, problem)
    a, b = (_host_array(work, name) for name in ("a", "b"))
    product = MatMul(a, b, device=device)
    config = product.config
    executable = find_route(device, problem, config).executable
    run = work.runner(executable)
    worst = [_checked(work.sample.judge(work.result(executable)), config)]
    host = _Repeated(lambda: product(a, b))
    numpy = _Repeated(lambda: np.matmul(a, b))
    turns = iter(range(1, 10**9))
    events = work.has_events
    repeats = _repeats(timed_run(run, 0, events=events)[0])

    def on_device():
        times = [timed_run(run, next(turns), events=events)[0] for _ in range(repeats)]
        return sum(times) / repeats

    def on_host():
        ns = host()
        worst.append(_checked(work.sample.judge_result(host.result), config))
        return ns

    times = interleave(
        (numpy, on_host, on_device), rounds, pause_seconds=_PAUSE_SECONDS,
        max_seconds=_LONGEST_SECONDS,
    )  # fmt: skip
    worst.append(_checked(work.sample.judge(work.result(executable)), config))
    return Row(
        problem=problem,
        config=str(config),
        origin=product.choice.origin,
        device=Figures.of(times[2]),
        host=Figures.of(times[1]),
        numpy=Figures.of(times[0]),
        ratio=compare(times[1], times[0]),
        device_ratio=compare(times[2], times[0]),
        error_ratio=max(worst),
    )


def _host_array(work, name):
    """An operand as a NumPy array of its own, in the problem's layout."""
    view = work.case.memory[name].view
    order = "F" if getattr(work.problem, name).order == "column" else "C"
    return np.array(view, dtype=numpy_dtype(getattr(work.problem, name).dtype), order=order)


def _checked(verdict, config):
    if verdict.fault:
        raise VerificationError(f"{config}: {verdict.fault}")
    return verdict.error_ratio


class _Repeated:
    """A call that is repeated until a turn is long enough for the clock; keeps the last result."""

    def __init__(self, call):
        self._call = call
        self.result = call()
        start = time.perf_counter_ns()
        call()
        self._repeats = _repeats(time.perf_counter_ns() - start)

    def __call__(self):
        start = time.perf_counter_ns()
        for _ in range(self._repeats):
            self.result = self._call()
        return (time.perf_counter_ns() - start) / self._repeats


def _repeats(ns):
    return min(max(math.ceil(_TURN_NS / max(ns, 1)), 1), _MOST_REPEATS)
