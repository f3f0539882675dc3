"""The demo: real data, verified, and the bound that such data needs."""

import numpy as np

from clmatmul import reference


def test_a_sum_of_one_number_needs_the_bound_for_any_data():
    # Added one after the other in float32, as every straightforward kernel does.
    a = np.full((1, 100_000), np.float32(0.1))
    b = np.ones((100_000, 1), np.float32)
    result = np.add.accumulate(a[0], dtype=np.float32)[-1:].reshape(1, 1)
    names = dict(compute="float32", out="float32")
    value = reference.evaluate(a, b, result="float32", **names)

    def ratio(any_data):
        allowed = reference.allowed_error(a, b, value, any_data=any_data, **names)
        return reference.error_ratio(result, value, allowed)

    assert ratio(any_data=False) > 1
    assert 0 < ratio(any_data=True) <= 1
