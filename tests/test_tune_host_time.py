"""NumPy's own time for a product."""

import numpy as np
import pytest
from made_up_devices import MS

from clmatmul.explanation import plain_problem
from clmatmul.measure import Measurement
from clmatmul.tune import host_time
from clmatmul.tune.host_time import numpy_time_ns


@pytest.mark.parametrize("layout", ["NN", "TT"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64", "bool"])
def test_numpys_time_is_that_of_the_whole_product(monkeypatch, dtype, layout):
    seen = []
    real = np.matmul
    monkeypatch.setattr(np, "matmul", lambda a, b: seen.append((a, b)) or real(a, b))
    assert numpy_time_ns(plain_problem(12, 9, 7, dtype, layout, (2,))) > 0
    a, b = seen[-1]
    assert (a.shape, b.shape) == ((2, 12, 7), (2, 7, 9)) and a.dtype == b.dtype == dtype
    assert (a.strides[-1] == a.itemsize) == (layout == "NN")


def test_a_product_that_takes_numpy_long_is_timed_in_part(monkeypatch):
    rows = []
    row_ns = [0]

    def timed(call, flops, **keywords):
        call()
        # fewer than eight rows take as long as eight
        return Measurement((), (max(rows[-1], 8) * row_ns[0],), flops)

    monkeypatch.setattr(np, "matmul", lambda a, b: rows.append(len(a)))
    monkeypatch.setattr(host_time, "measure_host", timed)
    monkeypatch.setattr(host_time, "_FIRST_PART_FLOPS", 2 * 2 * 50 * 50)

    def time_of(m, ns):
        rows.clear()
        row_ns[0] = ns
        return numpy_time_ns(plain_problem(m, 50, 50))

    assert time_of(60, 2 * MS) == 120 * MS
    assert rows == [2, 60]  # at most 0.48 s: the whole is run
    assert time_of(60, 10 * MS) == 600 * MS
    assert rows == [2, 8, 60]  # two rows said 2.4 s, eight 0.6 s
    assert time_of(200, 10 * MS) == 2000 * MS
    assert rows == [2, 8, 32, 128]  # 1.28 s of it are long enough to be believed
    monkeypatch.setattr(host_time, "_TELLING_ROWS", 32)
    assert time_of(200, 10 * MS) == 2000 * MS
    assert rows == [2, 8, 32]
