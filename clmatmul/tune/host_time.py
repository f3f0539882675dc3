"""NumPy's own time for a product, to stand beside what a device achieves."""

from dataclasses import replace

import numpy as np

from clmatmul.element_types import numpy_dtype
from clmatmul.measure import measure_host

_FIRST_PART_FLOPS = 2e7
_LONGEST_NS = 1e9  # a product that takes longer is not run in full: nothing can interrupt NumPy
# What tells how long the whole takes: a part of many rows, or one that takes long.
_TELLING_ROWS = 256
_TELLING_NS = 5e8


def numpy_time_ns(problem):
    """Wall time of numpy.matmul in ns for contiguous operands of the problem's size.

    The least of several: its threads wait for each other, so that on a machine with other work a
    single call may take fifty times as long. Drawn from a part of the rows if all would take over
    a second.
    """
    rows = min(max(int(problem.m * _FIRST_PART_FLOPS / problem.flops), 1), problem.m)
    while True:
        part_ns = _time(replace(problem, m=rows), max_seconds=0.5)
        whole_ns = part_ns * problem.m / rows
        telling = rows >= _TELLING_ROWS or part_ns >= _TELLING_NS
        if rows == problem.m or (telling and whole_ns > _LONGEST_NS):
            return whole_ns
        # A few rows take as long as many: ask more before the whole is given up.
        rows = problem.m if whole_ns <= _LONGEST_NS else min(4 * rows, problem.m)


def _time(problem, max_seconds):
    rng = np.random.default_rng(0)

    def operand(rows, cols, kind):
        values = rng.integers(0, 2, problem.batch + (rows, cols)).astype(numpy_dtype(kind.dtype))
        if kind.order != "column":
            return values
        return np.ascontiguousarray(np.swapaxes(values, -1, -2)).swapaxes(-1, -2)

    a = operand(problem.m, problem.k, problem.a)
    b = operand(problem.k, problem.n, problem.b)
    timed = measure_host(
        lambda: np.matmul(a, b), problem.flops, max_runs=10_000, min_seconds=0.2,
        max_seconds=max_seconds,
    )  # fmt: skip
    return timed.minimum_ns
