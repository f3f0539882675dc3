"""NumPy's own time for a product, to stand beside what a device achieves."""

import numpy as np

from clmatmul.element_types import numpy_dtype
from clmatmul.measure import measure_host

_FIRST_PART_FLOPS = 2e7
_LONGEST_NS = 1e9  # a product that takes longer is not run in full: nothing can interrupt NumPy
# What tells how long the whole takes: a part of many rows, or one that takes long, as in float16.
_TELLING_ROWS = 256
_TELLING_TIMES = 2  # as long as it was to be timed


def numpy_time_ns(problem, seconds=0.2):
    """Wall time of numpy.matmul in ns for contiguous operands of the problem's size.

    The least of as many as take these seconds: its threads wait for each other, so that on a
    machine with other work a single call may take fifty times as long. Drawn from a part of the
    rows if all would take over a second.
    """
    a, b = _operands(problem)
    rows = min(max(int(problem.m * _FIRST_PART_FLOPS / problem.flops), 1), problem.m)
    while True:
        part_ns = _time(a[..., :rows, :], b, problem.flops * rows / problem.m, seconds)
        whole_ns = part_ns * problem.m / rows
        telling = rows >= _TELLING_ROWS or part_ns >= _TELLING_TIMES * seconds * 1e9
        if rows == problem.m or (telling and whole_ns > _LONGEST_NS):
            return whole_ns
        # A few rows take as long as many: ask more before the whole is given up.
        rows = problem.m if whole_ns <= _LONGEST_NS else min(4 * rows, problem.m)


def _operands(problem):
    rng = np.random.default_rng(0)

    def operand(rows, cols, kind):
        values = rng.integers(0, 2, problem.batch + (rows, cols), np.int8)
        values = values.astype(numpy_dtype(kind.dtype))
        if kind.order != "column":
            return values
        return np.ascontiguousarray(np.swapaxes(values, -1, -2)).swapaxes(-1, -2)

    return operand(problem.m, problem.k, problem.a), operand(problem.k, problem.n, problem.b)


def _time(a, b, flops, seconds):
    timed = measure_host(
        lambda: np.matmul(a, b), flops, max_runs=10_000, min_seconds=seconds, max_seconds=0.5
    )
    return timed.minimum_ns
