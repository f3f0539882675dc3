"""Activations on a device, against their definitions in wider arithmetic."""

import numpy as np
import pytest

import clmatmul
from clmatmul.epilogue import ACTIVATIONS
from clmatmul.reference import apply_activation

bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
mpmath = pytest.importorskip("mpmath")

CURVES = [x for x in ACTIVATIONS if x not in ("none", "relu", "clamp")]
# Where each is interesting, and beyond: down to where the result is 0.
POINTS = 3 * 64


def definition(name, x):
    """The activation of one number of mpmath's."""
    m = mpmath
    if name == "tanh":
        return m.tanh(x)
    if name == "gelu":
        return x * m.erfc(-x / m.sqrt(2)) / 2
    w = 2 * m.sqrt(2 / m.pi) * (x + m.mpf("0.044715") * x**3) if name == "gelu_tanh" else x
    return (1 if name == "sigmoid" else x) / (1 + m.exp(-w))


def on_device(name, x, out, reproducible, alone=True):
    """(results, where) with x as six rows, whole vectors and an edge of 11 elements, and as one
    alone. They are products with 1, so that x is exactly what the activation gets."""
    epilogue = clmatmul.Epilogue(activation=name, dtype=out)
    row = np.concatenate([x, x[:11]])
    found = []
    for rows in (6, 1) if alone else (6,):
        ones = np.ones((rows, 1), x.dtype)
        found += [*clmatmul.matmul(ones, row[None], epilogue=epilogue, reproducible=reproducible)]
    if reproducible:
        alike = {x.tobytes() for x in found}
        assert len(alike) == 1, "the bits depend on where an element is"
    return [(found[0], row), (found[-1], row)]


def units_off(got, exact):
    """How far `got` is from `exact` (float64), in units in the last place of its type."""
    wide, exact = got.astype(np.float64), np.asarray(exact, np.float64)
    with np.errstate(all="ignore"):
        nearest = exact.astype(got.dtype)
        unit = np.abs(np.spacing(nearest) if got.dtype != bfloat16 else bfloat16_spacing(exact))
        off = np.abs(wide - exact) / unit.astype(np.float64)
        same = (wide == nearest) | (np.isnan(wide) & np.isnan(exact))
    return np.where(same & ~np.isfinite(exact.astype(got.dtype).astype(np.float64)), 0, off)


def bfloat16_spacing(x):
    _, exponents = np.frexp(np.abs(x))
    return 2.0 ** np.maximum(exponents - 8, -133)


def every(dtype):
    """Every number of a 16-bit type; of float32, 40 of each sign and binade, and more near 0."""
    if dtype != "float32":
        return np.arange(2**16, dtype=np.uint16).view(dtype)
    steps = np.random.default_rng(2).integers(0, 2**23, (2, 256, 40), dtype=np.uint32)
    places = np.arange(256, dtype=np.uint32)[None, :, None] << 23
    signs = np.array([0, 2**31], np.uint32)[:, None, None]
    return np.concatenate([
        (steps | places | signs).view(np.float32).ravel(),
        np.random.default_rng(3).uniform(-16, 16, 20000).astype(np.float32),
    ])  # fmt: skip


@pytest.mark.parametrize("dtype, out, reproducible", [
    ("float32", "float32", False), ("float32", "float32", True), ("float16", "float16", False),
    (bfloat16, bfloat16, False),
])  # fmt: skip
@pytest.mark.parametrize("name", ["relu", *CURVES])
def test_within_two_units_in_the_last_place(device, name, dtype, out, reproducible):
    """All numbers of 16 bits, and a sample of float32's in which every magnitude has its share."""
    x = every(dtype)
    with np.errstate(all="ignore"):
        for got, at in on_device(name, x, out, reproducible, alone=dtype == "float32"):
            off = units_off(got, apply_activation(at.astype(np.float64), name))
            worst = int(np.argmax(off))
            assert off[worst] <= 2, f"{name}({at[worst]!r}) = {got[worst]!r}, {off[worst]} ulp"


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("name", CURVES)
def test_float64_within_two_units(device, rng, name, reproducible):
    if not device.profile.fp64:
        pytest.skip("no float64")
    mpmath.mp.prec = 160
    x = np.concatenate([
        rng.uniform(-12, 6, 40), rng.standard_normal(20), rng.uniform(-40, 40, 20),
        2.0 ** rng.uniform(-40, 2, 20),
    ])  # fmt: skip
    exact = [definition(name, mpmath.mpf(float(t))) for t in x]
    for got, at in on_device(name, x, "float64", reproducible, alone=reproducible):
        for value, t, want in zip(got, at, [*exact, *exact[:11]], strict=True):
            off = float(abs(mpmath.mpf(float(value)) - want)) / np.spacing(abs(float(want)))
            assert off <= 2, f"{name}({t!r}) = {value!r}, {off} ulp"


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("name", ["relu", *CURVES])
def test_special_values(device, name, reproducible):
    """NaN stays NaN; at the infinities each has its limit; far out it is 0 or its argument."""
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-40, 200, -200], "f4")
    x = np.concatenate([x, np.resize(x, POINTS - x.size)])
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
    for got, _ in on_device(name, x, "float32", reproducible):
        assert np.array_equal(got[:7], np.array(want, "f4"), equal_nan=True), name
        assert abs(got[7] - middle) <= 1e-40 and got[8] == (200 if grows else top)
        assert got[9] == bottom
