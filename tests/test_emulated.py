"""float64 products from whole numbers, against exact rationals; on devices without float64."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clmatmul
from clmatmul import emulated, reference
from clmatmul.errors import UnsupportedError
from clmatmul.selection import use_device


def exact_int(x, y):
    return x.astype(np.int64) @ y.astype(np.int64)


def multiply(a, b):
    return emulated.multiply(a, b, exact_int, np.matmul)


def ratio(got, a, b):
    """Largest error, in parts of what the module promises: 2^-53 |AB| + 2^-53 |A||B|."""
    worst = 0.0
    a, b = np.atleast_2d(a), np.atleast_2d(b)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            terms = [Fraction(x) * Fraction(y) for x, y in zip(a[i], b[:, j], strict=True)]
            total, size = sum(terms), sum(map(abs, terms))
            if size:
                bound = abs(total) / 2**53 + size / 2**53
                worst = max(worst, float(abs(Fraction(got[i, j]) - total) / bound))
            else:
                assert got[i, j] == 0
    return worst


def spread(rng, shape, bits):
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-bits, bits + 1, shape)


@pytest.mark.parametrize("bits", [0, 3, 20, 50])
@pytest.mark.parametrize("m, n, k", [(3, 4, 5), (1, 1, 1), (2, 3, 40), (1, 2, 1000)])
def test_bound(rng, m, n, k, bits):
    """Random and ill-scaled data; far closer than 4 gamma_K."""
    a, b = spread(rng, (m, k), bits), spread(rng, (k, n), bits)
    assert ratio(multiply(a, b), a, b) <= 1


def test_bound_where_scales_oppose(rng):
    """Small numbers of A meet the large ones of B, so that every digit counts."""
    scale = 2.0 ** np.linspace(-55, 55, 12).round()
    a, b = rng.standard_normal((3, 12)) * scale, rng.standard_normal((12, 3)) / scale[:, None]
    assert ratio(multiply(a, b), a, b) <= 1


def test_cancellation_is_exact(rng):
    """A sum that vanishes but for its last bits."""
    x = rng.standard_normal(30)
    a = np.concatenate([x, -x, [2.0**-60]])[None]
    b = np.concatenate([np.full(60, 3.0), [1.0]])[:, None]
    assert multiply(a, b)[0, 0] == 2.0**-60


@pytest.mark.parametrize("a, b", [
    (1e308, 1e308), (5e-324, 1.0), (5e-324, 5e-324), (2.0**-1040, 2.0**-20), (1e-200, 1e200),
    (np.finfo("f8").max, 1.0), (-0.0, 3.0), (2.0**1023, 2.0**-1074),
])  # fmt: skip
def test_the_ends_of_the_range(a, b):
    with np.errstate(all="ignore"):
        want = np.float64(a) * b
        assert multiply(np.array([[a]]), np.array([[b]]))[0, 0] == want


def test_too_wide_a_row_is_refused():
    a = np.array([[1.0, 2.0**-400]])
    with pytest.raises(UnsupportedError, match=r"a row of the first operand .* factor of 2\^400"):
        multiply(a, np.ones((2, 1)))
    with pytest.raises(UnsupportedError, match="a column of the second operand"):
        multiply(np.ones((1, 2)), a.T)


def test_nan_and_infinity_reach_their_own_elements(rng):
    a, b = rng.standard_normal((6, 5)), rng.standard_normal((5, 6))
    a[0, 1], a[1, 2], a[2, 0], b[3, 4] = np.nan, np.inf, -np.inf, np.inf
    a[2, 1] = np.inf
    b[2, 1] = 0  # infinity times 0
    with np.errstate(all="ignore"):
        want, got = a @ b, multiply(a, b)
    special = ~np.isfinite(want)
    assert np.array_equal(got[special], want[special], equal_nan=True)
    assert np.allclose(got[~special], want[~special], rtol=1e-15, atol=1e-15)


def test_empty_and_zero():
    assert multiply(np.zeros((2, 3)), np.ones((3, 2))).tolist() == [[0, 0], [0, 0]]
    assert multiply(np.zeros((2, 0)), np.zeros((0, 4))).shape == (2, 4)
    assert multiply(np.zeros((0, 3)), np.zeros((3, 4))).shape == (0, 4)


# ---- through the public functions, on a device ----------------------------------------------


@pytest.fixture
def without_float64(device, monkeypatch):
    """The device, with its float64 hidden."""
    monkeypatch.setattr(device, "profile", replace(device.profile, fp64=False))
    clmatmul.walk.forget()
    with use_device(device):
        yield device
    clmatmul.walk.forget()


@pytest.mark.parametrize("shapes", [((9, 40), (40, 7)), ((40,), (40, 7)), ((2, 3, 9), (9, 4)),
                                    ((5,), (5,)), ((3, 1, 4, 6), (2, 6, 5))])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_products(without_float64, rng, shapes, dtype):
    a, b = (spread(rng, s, 12) for s in shapes)
    if dtype == "complex128":
        a, b = a + 1j * rng.standard_normal(a.shape), b - 2j * rng.standard_normal(b.shape)
    got = clmatmul.matmul(a, b, precision="emulated")
    want = np.matmul(a, b)
    size = np.matmul(np.abs(a), np.abs(b))
    assert np.shape(got) == np.shape(want) and np.asarray(got).dtype == dtype
    assert np.all(np.abs(got - want) <= 60 * 2.0**-53 * size)
    assert np.array_equal(clmatmul.matmul(a, b, fallback="emulate"), got)


def test_the_bound_on_a_device(without_float64, rng):
    a, b = spread(rng, (8, 300), 25), spread(rng, (300, 9), 25)
    assert ratio(clmatmul.matmul(a, b, precision="emulated"), a, b) <= 1


def test_the_same_bits_as_whole_numbers_by_numpy(device, rng):
    """Nothing of the device is in the result."""
    a, b = spread(rng, (30, 70), 8), spread(rng, (70, 20), 8)
    assert np.array_equal(clmatmul.matmul(a, b, precision="emulated"), multiply(a, b))


def test_without_it_the_error_names_the_choices(without_float64):
    a = np.ones((3, 3))
    with pytest.raises(UnsupportedError, match="precision='emulated'.*fallback='emulate'.*numpy"):
        clmatmul.matmul(a, a)


def test_gemm_and_out(device, rng):
    a, b, c = spread(rng, (4, 6), 3), spread(rng, (5, 6), 3), spread(rng, (4, 5), 3)
    out = np.empty((4, 5))
    got = clmatmul.gemm(a, b, c, alpha=2, beta=-0.5, transpose_b=True, out=out,
                        precision="emulated")  # fmt: skip
    assert got is out and np.allclose(out, 2 * (a @ b.T) - 0.5 * c, rtol=1e-14)
    got = clmatmul.gemm(a, b, alpha=0, transpose_b=True, precision="emulated")
    assert got.shape == (4, 5) and not got.any()


def test_arrays_of_a_device(device, rng):
    queue = cl.CommandQueue(device.context)
    a, b = spread(rng, (4, 6), 3), spread(rng, (6, 5), 3)
    x, y = cl_array.to_device(queue, a), cl_array.to_device(queue, b)
    got = clmatmul.matmul(x, y, precision="emulated")
    assert isinstance(got, cl_array.Array) and np.array_equal(got.get(), multiply(a, b))
    got = clmatmul.matmul(x, b.tolist(), precision="emulated")
    assert np.array_equal(got.get(), multiply(a, b))
    out = cl_array.zeros(queue, (4, 5), "f8")
    assert clmatmul.matmul(x, b, out=out, precision="emulated") is out
    assert np.array_equal(out.get(), multiply(a, b))


@pytest.mark.parametrize("hidden", [False, True])
def test_compensated(device, rng, monkeypatch, hidden):
    """float32 products with the error of one rounding, with float64 or without."""
    if hidden:
        monkeypatch.setattr(device, "profile", replace(device.profile, fp64=False))
        clmatmul.walk.forget()
    elif not device.profile.fp64:
        pytest.skip("as without float64")
    a, b = (spread(rng, s, 10).astype("f4") for s in ((6, 400), (400, 5)))
    with use_device(device):
        got = clmatmul.matmul(a, b, precision="compensated")
    assert got.dtype == np.float32
    wide, size = a.astype("f8") @ b.astype("f8"), np.abs(a).astype("f8") @ np.abs(b)
    allowed = 2.0**-24 * np.abs(wide) + 400 * 2.0**-53 * size
    assert np.all(np.abs(got - wide) <= 1.01 * allowed + 400 * 2.0**-53 * size)
    worse = clmatmul.matmul(a, b)
    assert np.abs(got - wide).max() < np.abs(worse - wide).max()
    clmatmul.walk.forget()


def test_only_float64_is_emulated(device, rng):
    a = rng.integers(-3, 4, (5, 5)).astype("f4")
    got = clmatmul.matmul(a, a, precision="emulated")
    assert got.dtype == np.float32 and np.array_equal(got, a @ a)


def formula(a, b, epilogue, alpha=1, beta=0, c=0):
    """float64's own arithmetic, but for the activation."""
    value = alpha * (a @ b) + beta * c
    if epilogue.row_scale is not None:
        value = value * epilogue.row_scale[:, None] * epilogue.col_scale
    return value + epilogue.bias


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"])
def test_epilogues(without_float64, rng, activation):
    a, b, c = rng.standard_normal((5, 30)), rng.standard_normal((30, 7)), spread(rng, (5, 7), 2)
    epilogue = clmatmul.Epilogue(
        bias=rng.standard_normal(7), activation=activation, residual=rng.standard_normal((5, 7)),
        aux=np.empty((5, 7)),
    )  # fmt: skip
    got = clmatmul.gemm(a, b, c, alpha=0.3, beta=-1.5, epilogue=epilogue, precision="emulated")
    before = formula(a, b, epilogue, 0.3, -1.5, c)
    assert np.allclose(epilogue.aux, before, rtol=0, atol=1e-14)
    want = reference.apply_activation(epilogue.aux, activation) + epilogue.residual
    assert np.all(np.abs(got - want) <= 2.0**-51 * (np.abs(want) + 1))


def test_scales_an_expression_and_another_dtype(without_float64, rng):
    a, b = rng.standard_normal((2, 5, 30)), rng.standard_normal((30, 7))
    epilogue = clmatmul.Epilogue(
        bias=rng.standard_normal(7), row_scale=rng.standard_normal(5),
        col_scale=rng.standard_normal(7), expression="col > row ? acc : acc * x - row",
        extras={"x": rng.standard_normal((5, 1))}, dtype="float32",
    )  # fmt: skip
    got = clmatmul.matmul(a, b, epilogue=epilogue, fallback="emulate")
    row, col = np.arange(5)[:, None], np.arange(7)
    value = formula(a, b, epilogue)
    want = np.where(col > row, value, value * epilogue.extras["x"] - row)
    assert got.dtype == np.float32 and np.allclose(got, want, rtol=2.0**-23, atol=1e-13)


def test_axes_order_and_turned_operands(without_float64, rng):
    a, b = rng.standard_normal((4, 3, 6)), rng.standard_normal((6, 4, 5))
    axes = [(1, 2), (0, 2), (-1, -2)]
    got = clmatmul.matmul(a, b, axes=axes, precision="emulated")
    want = np.matmul(a, b, axes=axes)
    assert got.shape == want.shape and np.allclose(got, want, rtol=1e-13, atol=1e-13)
    z = rng.standard_normal((6, 3)) + 1j * rng.standard_normal((6, 3))
    got = clmatmul.gemm(z, b[:, 0], transpose_a="C", order="F", precision="emulated")
    assert got.flags.f_contiguous and np.allclose(got, z.conj().T @ b[:, 0], atol=1e-13)


@pytest.mark.parametrize("how", ["emulated", "fallback"])
def test_prepared(without_float64, rng, how):
    keywords = {"precision": "emulated"} if how == "emulated" else {"fallback": "emulate"}
    a, b, bias = spread(rng, (9, 20), 9), spread(rng, (20, 8), 9), rng.standard_normal(8)
    plan = clmatmul.MatMul(a, b, epilogue=clmatmul.Epilogue(bias=bias), **keywords)
    out = np.empty((9, 8))
    assert plan(a, b, out) is out
    assert np.allclose(out, a @ b + bias, rtol=1e-13, atol=1e-13 * np.abs(out).max())
    assert np.array_equal(plan(2 * a, b), 2 * plan(a, b) - bias) or bias.any()
    assert plan.problem.out.dtype == "float64" and plan.workspace_bytes == 0
    assert "whole numbers" in plan.explain() and "long" in plan.source
    with pytest.raises(clmatmul.ShapeError):
        plan(a, b[:, :3])


def test_a_configuration_is_that_of_the_whole_numbers(device, rng):
    a, b = spread(rng, (9, 20), 9), spread(rng, (20, 8), 9)
    plan = clmatmul.MatMul(a, b, config="naive", precision="emulated")
    assert plan.config.variant == "naive" and np.array_equal(plan(a, b), multiply(a, b))
    a[0, 0] = np.inf
    assert np.isinf(plan(a, b)[0]).all()


def test_compensated_and_prepared(without_float64, rng):
    a, b = (spread(rng, s, 10).astype("f4") for s in ((6, 400), (400, 5)))
    plan = clmatmul.MatMul(a, b, precision="compensated")
    assert np.array_equal(plan(a, b), clmatmul.matmul(a, b, precision="compensated"))


def test_device_arrays_with_strides(without_float64, rng):
    """Rows and columns left out, and turned; what lies between stays as it was."""
    queue = cl.CommandQueue(without_float64.context)
    wide = spread(rng, (9, 24), 4)
    a, b = (
        cl_array.to_device(queue, wide)[::2, 1::2],
        cl_array.to_device(queue, wide[:, :12].copy()),
    )
    b = b.T[:, 2:8]
    out = cl_array.zeros(queue, (10, 9), "f8")
    aux = cl_array.zeros(queue, (5, 6), "f8")
    gate = cl.UserEvent(without_float64.context)
    gate.set_status(0)
    epilogue = clmatmul.Epilogue(activation="relu", aux=aux)
    got = clmatmul.matmul(
        a, b, out[::2, 3:], epilogue=epilogue, precision="emulated", wait_for=[gate]
    )
    x, y = wide[::2, 1::2], wide[:, :12].T[:, 2:8]
    assert np.array_equal(aux.get(), multiply(x, y)) and got.shape == (5, 6)
    want = np.zeros((10, 9))
    want[::2, 3:] = np.maximum(multiply(x, y), 0)
    assert np.array_equal(out.get(), want)


def test_refused(device):
    a = np.ones((3, 3))
    with pytest.raises(clmatmul.ShapeError, match="bias"):
        clmatmul.matmul(
            a, a, precision="emulated", epilogue=clmatmul.Epilogue(bias=np.ones((2, 2)))
        )
    with pytest.raises(clmatmul.ArgumentError, match="needs c"):
        clmatmul.gemm(a, a, beta=2, precision="emulated")
    with pytest.raises(clmatmul.ShapeError):
        clmatmul.matmul(a, a, precision="emulated", out=np.empty((2, 3)))
    with pytest.raises(clmatmul.ShapeError):
        clmatmul.matmul(a, np.ones((4, 3)), precision="emulated")
    with pytest.raises(clmatmul.DtypeError, match="int"):
        clmatmul.matmul(a, a, precision="emulated", out=np.empty((3, 3), int))
    plan = clmatmul.MatMul(a, a, precision="emulated")
    with pytest.raises(UnsupportedError, match="workspace"):
        plan(a, a, workspace=cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 64))
