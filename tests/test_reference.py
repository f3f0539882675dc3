"""The oracle: exact where arithmetic is exact, and a bound that sees one missing term."""

import math

import numpy as np
import pytest

from clmatmul import reference
from clmatmul.element_types import COMPUTE_TYPES


def evaluate(a, b, **keywords):
    name = np.result_type(a, b).name
    compute = {"int8": "uint32", "int32": "uint32", "int64": "uint64"}.get(name, name)
    values = {"compute": compute, "result": name, "out": name, **keywords}
    return reference.evaluate(a, b, **values)


def test_it_is_wider_than_the_kernel():
    for name in ("float32", "float64", "complex64", "complex128"):
        wide = reference.wide_type(name)
        assert wide.itemsize >= COMPUTE_TYPES[name].itemsize
    assert reference.wide_type("uint32") is reference.wide_type("bool") is None
    tiny = np.float32(2.0**-30)
    a = np.array([[1, tiny, -1]], "f4")
    value = evaluate(a, np.ones((3, 1), "f4"))
    assert value.dtype == np.float64 and value[0, 0] == tiny


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integers_wrap(rng, dtype):
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, (3, 9), dtype, endpoint=True)
    b = rng.integers(info.min, info.max, (9, 4), dtype, endpoint=True)
    assert np.array_equal(evaluate(a, b), a @ b)
    scaled = evaluate(a, b, alpha=-3)
    exact = [[-3 * sum(int(x) * int(y) for x, y in zip(row, col, strict=True)) for col in b.T]
             for row in a]  # fmt: skip
    modulus = 2 ** (8 * a.itemsize)
    assert [[(int(x) - y) % modulus for x, y in zip(r, e, strict=True)]
            for r, e in zip(scaled, exact, strict=True)] == [[0] * 4] * 3  # fmt: skip


def test_the_formula(rng):
    """activation(row_scale * col_scale * alpha A B + beta C + bias) + residual."""
    a, b, c, r = (rng.standard_normal(s) for s in ((3, 5), (5, 4), (3, 4), (3, 4)))
    row, col, bias = rng.standard_normal((3, 1)), rng.standard_normal(4), rng.standard_normal(4)
    epilogue = dict(row_scale=row, col_scale=col, bias=bias, residual=r, activation="tanh")
    got = evaluate(a, b, alpha=2, beta=-3, c=c, epilogue=epilogue)
    want = np.tanh(row * col * 2 * (a @ b) - 3 * c + bias) + r
    assert np.allclose(got.astype("f8"), want, rtol=1e-13)


def test_zero_scalars_read_nothing():
    bad = np.full((2, 2), np.nan, "f4")
    c = np.array([[-0.0, 1], [2, 3]], "f4")
    got = evaluate(bad, bad, alpha=0, beta=1, c=c)
    assert np.array_equal(got, c) and np.signbit(got[0, 0])
    assert np.array_equal(evaluate(c, c, beta=0, c=bad), c.astype("f8") @ c)


@pytest.mark.parametrize("name, at, want", [
    ("relu", [-1.0, 0, 2], [0, 0, 2]), ("sigmoid", [0.0], [0.5]), ("tanh", [0.0], [0]),
    ("silu", [1.0], [1 / (1 + math.exp(-1))]), ("gelu", [1.0], [0.8413447460685429]),
    ("gelu_tanh", [1.0], [0.8411919906082768]), ("none", [3.0], [3]),
])  # fmt: skip
def test_activations(name, at, want):
    assert np.allclose(reference.apply_activation(np.array(at), name), want, rtol=1e-14)


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_limits_of_activations(name):
    with np.errstate(all="ignore"):
        got = reference.apply_activation(np.array([-np.inf, np.inf, np.nan]), name)
    assert got[0] == 0 and np.signbit(got[0]) and got[1] == np.inf and np.isnan(got[2])


def judged(a, b, spoil=None, **keywords):
    names = {"compute": "float32", "out": "float32", **keywords}
    value = reference.evaluate(a, b, result="float32", **names)
    result = reference.round_to(value, names["out"])
    if spoil is not None:
        result = spoil(result)
    allowed = reference.allowed_error(a, b, value, **names)
    return reference.error_ratio(result, value, allowed)


def test_a_right_result_is_within_the_bound(rng):
    for k in (1, 7, 300):
        a, b = rng.standard_normal((9, k)).astype("f4"), rng.standard_normal((k, 8)).astype("f4")
        assert judged(a, b) <= 1
        assert judged(a, b, lambda r, a=a, b=b: (a @ b).astype("f4")) <= 1


def test_small_faults_are_seen(rng):
    a = rng.standard_normal((9, 64)).astype("f4")
    b = rng.standard_normal((64, 8)).astype("f4")
    without_last = (a[:, :-1].astype("f8") @ b[:-1]).astype("f4")
    assert judged(a, b, lambda r: without_last) > 1
    assert judged(a, b, lambda r: r * np.float32(1.001)) > 1
    half = (a.astype("f2").astype("f8") @ b.astype("f2")).astype("f4")
    assert judged(a, b, lambda r: half) > 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_special_value_out_of_place_is_never_allowed(rng, value):
    a, b = np.ones((2, 3), "f4"), np.ones((3, 2), "f4")

    def spoil(result):
        result = result.copy()
        result[1, 1] = value
        return result

    assert judged(a, b, spoil) == math.inf
    a[0, 0] = value
    with np.errstate(all="ignore"):
        assert judged(a, b) <= 1
        assert judged(a, b, lambda r: np.ones_like(r)) == math.inf


def test_output_rounding_is_allowed_once(rng):
    a, b = rng.standard_normal((5, 6)).astype("f4"), rng.standard_normal((6, 5)).astype("f4")
    assert judged(a, b, out="float16") <= 1
    assert judged(a, b, lambda r: r * np.float16(1.01), out="float16") > 1
