"""Activations on a device, against their definitions in wider arithmetic."""

import math

import numpy as np
import pytest

import clmatmul
from clmatmul.epilogue import ACTIVATIONS

CURVES = [x for x in ACTIVATIONS if x not in ("none", "relu", "clamp")]
# Where each is interesting, and beyond: down to where the result is 0.
POINTS = 3 * 64


def definition(name, x, m, inner=0.0):
    """The activation of one number, with the functions of `m` (math or mpmath).

    inner: by which part of itself the argument of gelu_tanh's logistic is changed.
    """
    if name == "tanh":
        return m.tanh(x)
    if name == "gelu":
        return x * m.erfc(-x / m.sqrt(type(x)(2))) / 2
    w = x
    if name == "gelu_tanh":
        w = 2 * m.sqrt(type(x)(2) / m.pi) * (x + type(x)("0.044715") * x * x * x)
        w *= 1 + inner
    logistic = 1 / (1 + m.exp(-w)) if w >= 0 else m.exp(w) / (1 + m.exp(w))
    return logistic if name == "sigmoid" else x * logistic


def on_device(name, x, dtype, out, reproducible):
    """x as one row, and as six: whole vectors, and an edge of 11 elements."""
    epilogue = clmatmul.Epilogue(activation=name, dtype=out)
    row = np.concatenate([x, x[:11]])[None].astype(dtype)
    ones = np.ones((6, 1), dtype)
    found = clmatmul.matmul(ones, row, epilogue=epilogue, reproducible=reproducible)
    alone = clmatmul.matmul(ones[:1, :], row, epilogue=epilogue, reproducible=reproducible)
    return found, alone


@pytest.mark.parametrize("dtype, out, reproducible", [
    ("float32", "float32", False), ("float32", "float32", True), ("float32", "float16", False),
    ("float64", "float64", True),
])  # fmt: skip
@pytest.mark.parametrize("name", CURVES)
def test_within_two_units_in_the_last_place(device, rng, name, dtype, out, reproducible):
    """Besides what rounding its argument does, which is the product's error for k = 1, and, for
    gelu_tanh, what its polynomial's rounding does."""
    if dtype == "float64" and not device.profile.fp64:
        pytest.skip("no float64")
    mpmath = pytest.importorskip("mpmath")
    number, m = (mpmath.mpf, mpmath) if dtype == "float64" else (float, math)
    mpmath.mp.prec = 120
    x = np.concatenate([
        rng.uniform(-12, 6, POINTS // 2), rng.standard_normal(POINTS // 4),
        rng.uniform(-40, 40, POINTS // 8), 2.0 ** rng.uniform(-40, 2, POINTS // 8),
    ]).astype(dtype)  # fmt: skip
    x = x[:: 3 if dtype == "float64" else 1]  # mpmath takes its time
    found, alone = on_device(name, x, dtype, out, reproducible)
    if reproducible:
        assert all(np.array_equal(found[i], found[0]) for i in range(6))
        assert np.array_equal(found[0], alone[0])
    row = np.concatenate([x, x[:11]])
    u = 2.0 ** (-24 if dtype == "float32" else -53)
    information = np.finfo(out)
    for i, value in enumerate(row):
        exact = definition(name, number(value), m)
        moved = max(
            abs(definition(name, number(value) * (1 + sign * 2 * u), m, sign * 4 * u) - exact)
            for sign in (-1, 1)
        )
        moved = max(moved, abs(definition(name, number(value), m, 4 * u) - exact))
        unit = max(
            float(np.spacing(abs(out_value(exact, out)))), float(information.smallest_subnormal)
        )
        for got in (found[i % 6, i], alone[0, i]):
            error = abs(number(got) - exact)
            assert error <= 2 * unit + moved, (
                f"{name}({value!r}) = {got!r}, {float(error / unit)} ulp"
            )


def out_value(exact, out):
    return np.dtype(out).type(float(exact))


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("name", ["relu", *CURVES])
def test_special_values(device, name, reproducible):
    """NaN stays NaN; at the infinities each has its limit; far out it is 0 or its argument."""
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-40, 200, -200], "f4")
    x = np.concatenate([x, np.resize(x, POINTS - x.size)])
    found, alone = on_device(name, x, "float32", "float32", reproducible)
    grows = name not in ("sigmoid", "tanh")
    top, bottom = (1, -1) if name == "tanh" else (1, 0)
    middle = 0.5 if name == "sigmoid" else 0
    want = [
        np.nan,
        np.inf if grows else top,
        bottom,
        middle,
        middle,
        3e38 if grows else top,
        bottom,
    ]
    for got in (found[3], alone[0]):
        assert np.array_equal(got[:7], np.array(want, "f4"), equal_nan=True), name
        assert abs(got[7] - middle) <= 1e-40 and got[8] == (200 if grows else top)
        assert got[9] == bottom
