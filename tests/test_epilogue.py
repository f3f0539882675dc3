"""Work fused behind a product, through the public functions."""

from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clmatmul
from clmatmul import ArgumentError, DtypeError, Epilogue, ShapeError, UnsupportedError


@pytest.fixture
def operands(rng):
    a = rng.integers(-4, 5, (2, 7, 5)).astype("f4")
    b = rng.integers(-4, 5, (5, 9)).astype("f4")
    return a, b, a @ b


def test_clamp(operands):
    a, b, product = operands
    got = clmatmul.matmul(a, b, epilogue=Epilogue(activation="clamp", bounds=(-3.5, 6)))
    assert np.array_equal(got, np.clip(product, -3.5, 6))


@pytest.mark.parametrize("values, message", [
    (dict(activation="clamp"), "needs bounds"), (dict(bounds=(0, 1)), "needs bounds"),
    (dict(activation="clamp", bounds=(2, 1)), "two real numbers"),
    (dict(activation="clamp", bounds=(0, np.nan)), "two real numbers"),
    (dict(activation="clamp", bounds=3), "two real numbers"),
    (dict(extras={"x": np.ones(3)}), "no expression"),
    (dict(expression="acc +"), "a value is expected"),
    (dict(expression="acc * y", extras={"x": np.ones(3)}), "'y' is unknown"),
])  # fmt: skip
def test_refused_when_it_is_made(values, message):
    with pytest.raises(ArgumentError, match=message):
        Epilogue(**values)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", ["f4", "f2", "f8"])
def test_auxiliary_output(operands, order, dtype):
    a, b, product = operands
    aux = np.full(product.shape, np.nan, dtype, order=order)
    bias = np.arange(9, dtype="f4")
    epilogue = Epilogue(bias=bias, activation="relu", residual=np.float32(1), aux=aux)
    got = clmatmul.matmul(a, b, epilogue=epilogue)
    assert np.array_equal(aux, product + bias)
    assert np.array_equal(got, np.maximum(product + bias, 0) + 1)


def test_auxiliary_output_in_unusual_memory(operands):
    """Strided, reversed, of foreign byte order, or the memory of an operand: right all the same."""
    a, b, product = operands
    for aux in (
        np.zeros((2, 7, 18), "f4")[..., ::-2], np.zeros((4, 7, 9), "f4")[1::2],
        np.zeros(product.shape, ">f4"), np.frombuffer(bytearray(4 * 126 + 1), "u1")[1:505]
        .view("f4").reshape(product.shape),
    ):  # fmt: skip
        clmatmul.matmul(a, b, epilogue=Epilogue(aux=aux))
        assert np.array_equal(aux, product)
    square = np.arange(16, dtype="f4").reshape(4, 4)
    want = square @ square
    out = clmatmul.matmul(square, square, epilogue=Epilogue(aux=square))
    assert np.array_equal(out, want) and np.array_equal(square, want)


def test_auxiliary_output_on_a_device(queue, operands):
    a, b, product = operands
    x, y = cl_array.to_device(queue, a), cl_array.to_device(queue, b)
    aux = cl_array.zeros(queue, product.shape, "f4")
    got = clmatmul.matmul(x, y, epilogue=Epilogue(activation="relu", aux=aux))
    assert np.array_equal(aux.get(), product) and np.array_equal(got.get(), np.maximum(product, 0))
    assert aux.events
    with pytest.raises(ArgumentError, match="aux overlaps"):
        out = cl_array.zeros(queue, product.shape, "f4")
        clmatmul.matmul(x, y, out=out, epilogue=Epilogue(aux=out))
    with pytest.raises(ArgumentError, match="aux is a NumPy array"):
        clmatmul.matmul(x, y, epilogue=Epilogue(aux=np.zeros(product.shape, "f4")))


@pytest.mark.parametrize("aux, error, message", [
    (np.zeros((7, 9), "f4"), ShapeError, r"aux has shape \(7, 9\)"),
    (np.zeros((2, 7, 9), "i4"), DtypeError, "aux of dtype int32"),
    ([[1.0]], ArgumentError, "aux must be an array"),
    (np.broadcast_to(np.float32(0), (2, 7, 9)), ArgumentError, "read-only"),
])  # fmt: skip
def test_auxiliary_outputs_refused(operands, aux, error, message):
    a, b, _ = operands
    with pytest.raises(error, match=message):
        clmatmul.matmul(a, b, epilogue=Epilogue(aux=aux))


@pytest.mark.parametrize("out_order", "CF")
def test_an_expression_knows_where_it_is(operands, out_order):
    """row and col are the caller's, however the product is computed: batches, transposed."""
    a, b, product = operands
    row, col = np.indices(product.shape)[1:]
    shift = np.arange(7, dtype="f4")[:, None]
    epilogue = Epilogue(expression="col > row ? -100 : acc + shift * row", extras={"shift": shift})
    want = np.where(col > row, -100, product + shift * row)
    out = np.empty(product.shape, "f4").transpose(0, 2, 1).copy().transpose(0, 2, 1)
    out = out if out_order == "F" else np.empty(product.shape, "f4")
    assert np.array_equal(clmatmul.matmul(a, b, out=out, epilogue=epilogue), want)
    one_row = clmatmul.matmul(a[:, :1], b, epilogue=Epilogue(expression="acc + 100 * row"))
    assert np.array_equal(one_row, product[:, :1])
    one_column = Epilogue(expression="acc + 100 * col + row")
    got = clmatmul.matmul(np.asfortranarray(a[0]), b[:, :1], epilogue=one_column)
    assert np.array_equal(got, product[0, :, :1] + np.arange(7)[:, None])


def test_an_expression_calls_functions(operands):
    a, b, product = operands
    got = clmatmul.matmul(a, b, epilogue=Epilogue(expression="acc / (1 + exp(-acc))"))
    with np.errstate(over="ignore"):
        want = product / (1 + np.exp(-product.astype("f8")))
    assert np.allclose(got, want, rtol=1e-5, atol=1e-6)


def test_expressions_need_real_products():
    x = np.ones((3, 3), "i4")
    with pytest.raises(DtypeError, match="expression is for real"):
        clmatmul.matmul(x, x, epilogue=Epilogue(expression="acc + 1"))
    x = x.astype("f4")
    with pytest.raises(UnsupportedError, match="rounds in its own way"):
        clmatmul.matmul(x, x, reproducible=True, epilogue=Epilogue(expression="exp(acc)"))
    epilogue = Epilogue(expression="acc * 2 + floor(1.5)")
    assert np.all(clmatmul.matmul(x, x, reproducible=True, epilogue=epilogue) == 7)


def test_everything_at_once(rng):
    """The formula, in its order."""
    a, b, c = (rng.integers(-3, 4, s).astype("f4") for s in ((6, 5), (5, 8), (6, 8)))
    row, col, bias = (rng.integers(1, 4, n).astype("f4") for n in (6, 8, 8))
    residual, aux = rng.integers(-3, 4, (6, 8)).astype("f4"), np.empty((6, 8), "f4")
    epilogue = Epilogue(
        bias=bias, residual=residual, activation="relu", row_scale=row, col_scale=col, aux=aux,
        expression="acc - mask", extras={"mask": c}, dtype="f2",
    )  # fmt: skip
    got = clmatmul.gemm(a, b, c, alpha=2, beta=-1, epilogue=epilogue)
    before = row[:, None] * col * (2 * (a @ b)) - c + bias
    assert np.array_equal(aux, before)
    want = np.maximum(before, 0) + residual - c
    assert got.dtype == np.float16 and np.array_equal(got, want.astype("f2"))


def test_nan_and_infinity(rng):
    """NaN goes through every activation; at infinity each has its limit."""
    values = np.array([[np.nan, np.inf, -np.inf, 0.0]], "f4")
    one = np.ones((1, 1), "f4")
    limits = {
        "relu": [np.inf, 0],
        "gelu": [np.inf, 0],
        "gelu_tanh": [np.inf, 0],
        "silu": [np.inf, 0],
        "sigmoid": [1, 0],
        "tanh": [1, -1],
    }
    wide = np.repeat(values, 16, axis=1)  # enough for whole vectors
    for activation, (high, low) in limits.items():
        for x in (values, wide):
            got = clmatmul.matmul(one, x, epilogue=Epilogue(activation=activation))
            assert np.isnan(got[np.isnan(x)]).all(), activation
            assert (got[x == np.inf] == high).all() and (got[x == -np.inf] == low).all()


def test_a_plan_with_an_epilogue(operands):
    a, b, product = operands
    epilogue = Epilogue(activation="clamp", bounds=(0, 4), expression="acc + 1")
    plan = clmatmul.MatMul(a, b, epilogue=epilogue)
    assert np.array_equal(plan(a, b), np.clip(product, 0, 4) + 1)
    assert np.array_equal(plan(2 * a, b), np.clip(2 * product, 0, 4) + 1)


def test_a_plan_reads_its_epilogues_arrays_each_time(operands):
    """Also by the short way of repeated products; what cannot go that way goes the long one."""
    a, b, product = operands
    for bias in (np.zeros(9, "f4"), np.zeros((7, 1), "f4"), np.zeros(18, "f4")[::2],
                 np.zeros(9, ">f4"), np.zeros(9)):  # fmt: skip
        plan = clmatmul.MatMul(a, b, epilogue=Epilogue(bias=bias))
        for value in (1, 2, 3):
            bias[...] = value
            assert np.array_equal(plan(a, b), product + value)
    bias, out = np.arange(126, dtype="f4").reshape(2, 7, 9), np.empty((2, 7, 9), "f4")
    plan = clmatmul.MatMul(a, b, epilogue=Epilogue(bias=bias, residual=bias[:, ::-1]))
    assert np.array_equal(plan(a, b, out=out), product + bias + bias[:, ::-1])
    want = product + bias + bias[:, ::-1]
    plan(a, b, out=bias)  # the output is an array of the epilogue
    assert np.array_equal(bias, want)


@pytest.fixture
def queue(device):
    return cl.CommandQueue(device.context)


def test_a_product_in_blocks_of_rows_has_no_expression():
    """A block's first row is not the product's."""
    from clmatmul.explanation import plain_problem
    from clmatmul.row_blocks import blocks_of

    problem = plain_problem(4096, 4096, 4096, "float32", "NN", ())
    assert len(blocks_of(problem)) > 1
    spec = replace(problem.epilogue, expression="(acc + row)")
    assert len(blocks_of(replace(problem, epilogue=spec))) == 1
