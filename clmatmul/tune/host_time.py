"""NumPy's own time for a product, to stand beside what a device achieves."""

from dataclasses import replace

import numpy as np

from clmatmul.element_types import numpy_dtype
from clmatmul.measure import measure_host

_PART_FLOPS = 2e7
_LONGEST_NS = 1e9  # a product that takes longer is not run in full: nothing can interrupt NumPy


def numpy_time_ns(problem):
    """Wall time of numpy.matmul in ns for contiguous operands of the problem's size.

    The least of several: its threads wait for each other, so that on a machine with other work a
    single call may take fifty times as long. Drawn from fewer rows if it would take over a second.
    """
    part = min(max(int(problem.m * _PART_FLOPS / problem.flops), 1), problem.m)
    ns = _time(replace(problem, m=part)) * problem.m / part
    if part == problem.m or ns > _LONGEST_NS:
        return ns
    return _time(problem)


def _time(problem):
    rng = np.random.default_rng(0)

    def operand(rows, cols, kind):
        values = rng.integers(0, 2, problem.batch + (rows, cols)).astype(numpy_dtype(kind.dtype))
        if kind.order != "column":
            return values
        return np.ascontiguousarray(np.swapaxes(values, -1, -2)).swapaxes(-1, -2)

    a = operand(problem.m, problem.k, problem.a)
    b = operand(problem.k, problem.n, problem.b)
    timed = measure_host(
        lambda: np.matmul(a, b), problem.flops, max_runs=10_000, min_seconds=0.25, max_seconds=1
    )
    return timed.minimum_ns
