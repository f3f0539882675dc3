"""gemm, MatMul, scale, explain and epilogues on NumPy arrays, with NumPy as the oracle."""

import numpy as np
import pytest
from extra_variants import two_kernels

import clmatmul
from clmatmul import device as devices
from clmatmul import walk
from clmatmul.reference import apply_activation

__all__ = ["two_kernels"]


@pytest.fixture(params=["host memory", "own memory"])
def each_memory(request, monkeypatch):
    """Devices that share the host's memory, and such as have memory of their own."""
    if request.param == "own memory":
        monkeypatch.setattr(devices.Device, "has_host_memory", property(lambda self: False))
    walk.forget()  # nothing remembered of the other kind


def whole(rng, shape, dtype="f4"):
    dtype = np.dtype(dtype)
    x = rng.integers(0 if dtype.kind == "u" else -4, 5, shape)
    return (x + 1j * rng.integers(-4, 5, shape) if dtype.kind == "c" else x).astype(dtype)


def turned(x, how):
    x = np.swapaxes(x, -1, -2) if how and x.ndim > 1 else x
    return x.conj() if how == "C" else x


# ---- gemm -----------------------------------------------------------------------------------


@pytest.mark.parametrize("transpose_a", [False, True, "C"])
@pytest.mark.parametrize("transpose_b", [False, True, "C"])
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_transposes(rng, dtype, transpose_a, transpose_b):
    a = whole(rng, (5, 3) if transpose_a else (3, 5), dtype)
    b = whole(rng, (4, 5) if transpose_b else (5, 4), dtype)
    got = clmatmul.gemm(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    assert np.array_equal(got, turned(a, transpose_a) @ turned(b, transpose_b))


def test_transposes_of_batches_and_vectors(each_memory, rng):
    a, b = whole(rng, (6, 5, 3), "c8"), whole(rng, (2, 1, 4, 5), "c8")
    got = clmatmul.gemm(a, b, transpose_a="C", transpose_b=True)
    assert np.array_equal(got, turned(a, "C") @ turned(b, True))
    v = whole(rng, 5, "c8")
    got = clmatmul.gemm(v, b, transpose_a="C", transpose_b="C")
    assert np.array_equal(got, v.conj() @ turned(b, "C"))


@pytest.mark.parametrize("scalars", [
    (1, 0), (2, 0), (0, 1), (0, 2), (1, 1), (1, -3), (-2, 1), (2, 3), (0, 0), (-0.0, 1), (2, -0.0),
    (True, False), (np.float32(2), np.int8(3)), (np.array(2.0), 1),
])  # fmt: skip
def test_scalars(rng, scalars):
    a, b, c = whole(rng, (3, 5)), whole(rng, (5, 4)), whole(rng, (3, 4))
    alpha, beta = scalars
    got = clmatmul.gemm(a, b, c, alpha=alpha, beta=beta)
    assert got.dtype == np.float32
    assert np.array_equal(got, float(alpha) * (a @ b) + float(beta) * c)


@pytest.mark.parametrize("dtype, scalars", [
    ("i4", (3, -2)), ("u1", (7, 250)), ("i8", (2**40, 3)), ("c8", (2 - 1j, 1j)), ("f2", (2, 3)),
])  # fmt: skip
def test_scalars_of_other_dtypes(rng, dtype, scalars):
    a, b, c = (whole(rng, s, dtype) for s in ((3, 5), (5, 4), (3, 4)))
    kind = np.dtype(dtype).type
    alpha, beta = (kind(x) for x in scalars)
    got = clmatmul.gemm(a, b, c, alpha=scalars[0], beta=scalars[1])
    assert got.dtype == a.dtype and np.array_equal(got, alpha * (a @ b) + beta * c)


def test_alpha_zero_reads_neither_operand(each_memory):
    """c with all its bits: -0 stays -0, a NaN its payload; NaN in a and b is not seen."""
    a, b = np.full((2, 3), np.nan, "f4"), np.full((3, 4), np.inf, "f4")
    c = np.array([[-0.0, 0.0, 1.5, np.inf], [np.nan, -np.inf, 1e-42, -1]], "f4")
    c.view("u4")[1, 0] = 0x7FC01234
    assert clmatmul.gemm(a, b, c, alpha=0, beta=1).tobytes() == c.tobytes()
    out = c.copy()
    clmatmul.gemm(a, b, out, alpha=0, beta=1, out=out)
    assert out.tobytes() == c.tobytes()
    finite = np.where(np.isfinite(c), c, 0)
    assert np.array_equal(clmatmul.gemm(a, b, finite, alpha=0, beta=2), 2 * finite)


def test_beta_zero_does_not_read_c(each_memory, rng):
    a, b = whole(rng, (3, 5)), whole(rng, (5, 4))
    c = np.full((3, 4), np.nan, "f4")
    assert np.array_equal(clmatmul.gemm(a, b, c, beta=0), a @ b)
    assert clmatmul.gemm(a, b, c, beta=0, out=c) is c and np.array_equal(c, a @ b)


@pytest.mark.numeric
def test_no_terms(each_memory, rng):
    c = whole(rng, (3, 4))
    got = clmatmul.gemm(np.ones((3, 0), "f4"), np.ones((0, 4), "f4"), c, alpha=5, beta=2)
    assert np.array_equal(got, 2 * c)


@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 1), (1, 1), (), (3, 4), (2, 3, 4), (2, 1, 4)])
def test_c_broadcasts(each_memory, rng, shape):
    a, b, c = whole(rng, (2, 3, 5)), whole(rng, (5, 4)), whole(rng, shape)
    assert np.array_equal(clmatmul.gemm(a, b, c, beta=3), a @ b + 3 * c)


@pytest.mark.parametrize("order", "CF")
def test_out_is_c(each_memory, rng, order):
    a, b = whole(rng, (3, 5)), whole(rng, (5, 4))
    c = np.array(whole(rng, (3, 4)), order=order)
    want = 2 * (a @ b) - c
    assert clmatmul.gemm(a, b, c, alpha=2, beta=-1, out=c) is c
    assert np.array_equal(c, want)


@pytest.mark.parametrize("offset", [0, 1, 4, 11])
def test_out_overlaps_c_partly(each_memory, rng, offset):
    a, b, memory = whole(rng, (3, 5)), whole(rng, (5, 4)), whole(rng, 40)
    c, out = memory[:12].reshape(3, 4), memory[offset : offset + 12].reshape(3, 4)
    want = a @ b + 2 * c
    clmatmul.gemm(a, b, c, beta=2, out=out)
    assert np.array_equal(out, want)


def test_out_is_c_transposed(each_memory, rng):
    a, c = whole(rng, (4, 4)), whole(rng, (4, 4))
    want = a @ a + c.T
    clmatmul.gemm(a, a, c.T, beta=1, out=c)
    assert np.array_equal(c, want)


def test_out_is_everything(each_memory, rng):
    a = whole(rng, (4, 4))
    want = a.T @ a + 2 * a
    clmatmul.gemm(a, a, a, beta=2, transpose_a=True, out=a)
    assert np.array_equal(a, want)


def test_dtype_of_c_takes_part(rng):
    a, c = whole(rng, (3, 3), "i2"), whole(rng, (3, 3), "f8")
    got = clmatmul.gemm(a, a, c, beta=0.5)
    assert got.dtype == np.float64 and np.array_equal(got, a.astype("f8") @ a + 0.5 * c)


def test_numpy_computes_what_no_device_has(rng):
    a = whole(rng, (3, 5)).astype("G")
    c = whole(rng, (3, 3)).astype("G")
    got = clmatmul.gemm(a, a, c, alpha=2, beta=1j, transpose_b="C", order="F")
    assert got.dtype == np.clongdouble and got.flags.f_contiguous
    assert np.array_equal(got, 2 * (a @ a.T.conj()) + 1j * c)
    out = np.empty((3, 3), "G")
    assert clmatmul.gemm(a, a, transpose_b=True, alpha=0, out=out) is out and not out.any()


# ---- epilogues ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4,), (3, 1), (3, 4), (1,), (), (2, 1, 4)])
@pytest.mark.parametrize("part", ["bias", "residual"])
def test_bias_and_residual(each_memory, rng, part, shape):
    a, b, x = whole(rng, (2, 3, 5)), whole(rng, (5, 4)), whole(rng, shape)
    got = clmatmul.matmul(a, b, epilogue=clmatmul.Epilogue(**{part: x}))
    assert np.array_equal(got, a @ b + x)


def test_scales(each_memory, rng):
    a, b = whole(rng, (2, 3, 5)), whole(rng, (5, 4))
    row, col = whole(rng, (2, 3)), whole(rng, 4)
    got = clmatmul.matmul(a, b, epilogue=clmatmul.Epilogue(row_scale=row, col_scale=col))
    assert np.array_equal(got, (a @ b) * row[..., None] * col)
    got = clmatmul.matmul(a, b, epilogue=clmatmul.Epilogue(row_scale=row[0]))
    assert np.array_equal(got, (a @ b) * row[0, :, None])


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"])
def test_the_whole_formula(rng, activation):
    """activation(row_scale * col_scale * alpha A B + beta C + bias) + residual."""
    a, b, c = (rng.standard_normal(s).astype("f4") for s in ((3, 5), (5, 4), (3, 4)))
    row, col, bias = (rng.standard_normal(n).astype("f4") for n in (3, 4, 4))
    residual = rng.standard_normal((3, 4)).astype("f4")
    epilogue = clmatmul.Epilogue(bias=bias, residual=residual, activation=activation,
                                 row_scale=row, col_scale=col)  # fmt: skip
    got = clmatmul.gemm(a, b, c, alpha=0.5, beta=-2, epilogue=epilogue)
    inner = row[:, None] * col * (0.5 * (a.astype("f8") @ b)) - 2.0 * c + bias
    assert np.allclose(got, apply_activation(inner, activation) + residual, rtol=1e-5, atol=1e-5)


def test_the_epilogues_dtype(rng):
    a = whole(rng, (3, 5))
    got = clmatmul.matmul(a, a.T, epilogue=clmatmul.Epilogue(dtype="float16"))
    assert got.dtype == np.float16 and np.array_equal(got, (a @ a.T).astype("f2"))
    out = np.empty((3, 3), "f8")
    got = clmatmul.matmul(a / 3, a.T, out=out, epilogue=clmatmul.Epilogue(dtype="float16"))
    assert got is out and np.array_equal(out, out.astype("f2"))


def test_the_epilogue_is_added_along_the_results_own_axes(rng):
    """bias has the result's dimensions, also for vectors and axes."""
    a, b, bias = whole(rng, (3, 5)), whole(rng, 5), whole(rng, 3)
    got = clmatmul.matmul(a, b, epilogue=clmatmul.Epilogue(bias=bias))
    assert np.array_equal(got, a @ b + bias)
    c, bias = whole(rng, (5, 4)), whole(rng, (4, 3))
    axes = [(0, 1), (0, 1), (1, 0)]
    got = clmatmul.matmul(a, c, axes=axes, epilogue=clmatmul.Epilogue(bias=bias))
    assert np.array_equal(got, (a @ c).T + bias)


def test_out_overlaps_an_epilogue_operand(each_memory, rng):
    a, x = whole(rng, (4, 4)), whole(rng, (4, 4))
    want = a @ a + x
    clmatmul.matmul(a, a, out=x, epilogue=clmatmul.Epilogue(bias=x))
    assert np.array_equal(x, want)


@pytest.mark.parametrize("epilogue, error, message", [
    (dict(bias=np.ones(3)), clmatmul.ShapeError, r"bias of shape \(3,\) does not broadcast"),
    (dict(row_scale=np.ones(4)), clmatmul.ShapeError, "row_scale of shape"),
    (dict(bias=np.ones(4, "c8")), clmatmul.DtypeError, "bias of dtype complex64"),
    (dict(bias=np.array(["x"])), clmatmul.DtypeError, "dtype <U1"),
    (dict(bias=np.ma.masked_array(np.ones(4))), clmatmul.DtypeError, "bias is a masked array"),
    (dict(dtype="int8"), clmatmul.DtypeError, "cannot cast the product from float32 to int8"),
    (dict(dtype="floaty"), clmatmul.DtypeError, "is no dtype"),
])  # fmt: skip
def test_epilogues_refused(epilogue, error, message):
    a = np.ones((3, 5), "f4")
    with pytest.raises(error, match=message):
        clmatmul.matmul(a, np.ones((5, 4), "f4"), epilogue=clmatmul.Epilogue(**epilogue))


# ---- MatMul ---------------------------------------------------------------------------------


def test_a_plan_serves_other_data(rng):
    a, b, c = whole(rng, (3, 5)), whole(rng, (5, 4)), whole(rng, (3, 4))
    plan = clmatmul.MatMul(a, b, c=c, alpha=2, beta=-1)
    for _ in range(3):
        a, b, c = whole(rng, (3, 5)), whole(rng, (5, 4)), whole(rng, (3, 4))
        out = np.empty((3, 4), "f4")
        assert plan(a, b, out=out, c=c) is out
        assert np.array_equal(out, 2 * (a @ b) - c) and np.array_equal(plan(a, b, c=c), out)


@pytest.mark.parametrize("config", ["naive(work_group_size=8)", "tiled(tile_m=2, tile_n=4)"])
def test_forced_configurations(rng, config):
    a, b = whole(rng, (7, 5)), whole(rng, (5, 9))
    plan = clmatmul.MatMul(a, b, config=config)
    assert np.array_equal(plan(a, b), a @ b)
    assert plan.choice.origin == "forced" and plan.config.variant == config.split("(")[0]
    assert plan.config == clmatmul.MatMul(a, b, config=plan.config).config
    assert "__kernel" in plan.source and f"void {plan.config.variant}(" in plan.source
    assert str(plan.config) in plan.explain() and plan.problem.m == 7


@pytest.mark.parametrize("other", [
    ((4, 5), (5, 4), "f4"), ((3, 6), (6, 4), "f4"), ((3, 5), (5, 4), "f8"), ((0, 5), (5, 4), "f4"),
    ((2, 3, 5), (5, 4), "f4"),
])  # fmt: skip
def test_a_plan_refuses_other_layouts(rng, other):
    plan = clmatmul.MatMul(whole(rng, (3, 5)), whole(rng, (5, 4)))
    with pytest.raises(clmatmul.ShapeError, match="this plan was made for 3×4×5 float32 NN"):
        plan(whole(rng, other[0], other[2]), whole(rng, other[1], other[2]))
    with pytest.raises(clmatmul.ShapeError, match="make another MatMul"):
        plan(np.asfortranarray(whole(rng, (3, 5))), whole(rng, (5, 4)))


def test_a_plan_serves_other_alignments(rng):
    a, b = whole(rng, (4, 4)), whole(rng, (4, 4))
    plan = clmatmul.MatMul(a, b)
    shifted = np.empty(17, "f4")[1:].reshape(4, 4)
    shifted[...] = a
    assert np.array_equal(plan(shifted, b), a @ b)


@pytest.mark.parametrize("keywords, error, message", [
    (dict(config="gone"), clmatmul.ConfigError, "no such variant"),
    (dict(config="tiled(tile_m=5)"), clmatmul.ConfigError, "tile_m=5 is not one of"),
    (dict(config="tiled(tile_m"), clmatmul.ArgumentError, "is no configuration"),
    (dict(colour=3), TypeError, "MatMul has no keyword 'colour'; it has .*alpha"),
    (dict(beta=1), clmatmul.ArgumentError, "beta=1 needs c"),
])  # fmt: skip
def test_plans_refused(keywords, error, message):
    with pytest.raises(error, match=message):
        clmatmul.MatMul(np.ones((3, 3)), np.ones((3, 3)), **keywords)


def test_a_product_without_elements_needs_no_plan():
    with pytest.raises(clmatmul.ShapeError, match="without elements"):
        clmatmul.MatMul(np.ones((0, 3)), np.ones((3, 3)))


# ---- scale ----------------------------------------------------------------------------------


@pytest.mark.numeric
@pytest.mark.parametrize(
    "shape", [(), (1,), (7,), (3, 4), (2, 3, 4), (2, 1, 3, 1, 2), (0,), (3, 0)]
)
def test_scale(each_memory, rng, shape):
    a = whole(rng, shape)
    got = clmatmul.scale(3, a)
    assert got.dtype == np.float32 and got.shape == shape and np.array_equal(got, 3 * a)
    out = np.empty(shape, "f4")
    assert clmatmul.scale(3, a, out=out) is out and np.array_equal(out, 3 * a)
    clmatmul.scale(-2, a, out=a)
    assert np.array_equal(a, out / 3 * -2)


@pytest.mark.parametrize("dtype, alpha", [
    ("f4", 2), ("f4", 2.5), ("f4", np.float64(2.5)), ("f8", 1e300), ("c8", 2 - 1j), ("f4", 1j),
    ("i4", 3), ("i4", 2.5), ("u1", 3), ("i8", -(2**62)), ("?", True), ("?", 3), ("f2", 0.5),
    ("c16", 0.5), ("f4", True), ("f4", 1), ("f4", -0.0),
])  # fmt: skip
def test_scale_dtypes(rng, dtype, alpha):
    a = np.ones((3, 4), bool) if dtype == "?" else whole(rng, (3, 4), dtype)
    with np.errstate(all="ignore"):
        want = alpha * a
    got = clmatmul.scale(alpha, a)
    assert got.dtype == want.dtype and np.array_equal(got, want)


def test_scale_is_a_multiplication():
    """0 * inf is NaN, and nothing else is touched."""
    a = np.array([np.inf, -np.inf, np.nan, -1.0, 0.0], "f4")
    with np.errstate(all="ignore"):
        for alpha in (0, 0.0, -0.0, 1, np.inf, np.nan):
            got, want = clmatmul.scale(alpha, a), alpha * a
            assert np.array_equal(got, want, equal_nan=True)
            assert np.array_equal(np.signbit(got[3:]), np.signbit(want[3:])) or np.isnan(alpha)


@pytest.mark.numeric
def test_scale_views(each_memory, rng):
    base = whole(rng, (20, 20))
    for a in (base[::2, ::3], base.T, base[::-1, 3], np.broadcast_to(base[0], (5, 20))):
        assert np.array_equal(clmatmul.scale(2, a), 2 * a)
    clmatmul.scale(2, base[:10, :10], out=base[5:15, 5:15])


@pytest.mark.parametrize("call, error, message", [
    (lambda a: clmatmul.scale([1, 2], a), clmatmul.ArgumentError, "single number"),
    (lambda a: clmatmul.scale("x", a), clmatmul.DtypeError, "alpha='x'"),
    (lambda a: clmatmul.scale(2, a, out=a[:1]), clmatmul.ShapeError, "out has shape"),
    (lambda a: clmatmul.scale(2j, a, out=a), clmatmul.DtypeError, "cannot cast"),
    (lambda a: clmatmul.scale(2, [["x"]]), clmatmul.DtypeError, "dtype <U1"),
])  # fmt: skip
def test_scale_refused(call, error, message):
    a = np.ones((3, 4), "f4")
    with pytest.raises(error, match=message):
        call(a)
    assert (a == 1).all()


# ---- explain --------------------------------------------------------------------------------


def test_explain_prints_every_value_on_the_line(device):
    text = clmatmul.explain(1000, 1000, 1000)
    for label in ("problem ", "kind ", "device ", "choices ", "plan ", "launch ", "source ",
                  "executable "):  # fmt: skip
        assert any(x.strip().startswith(label.strip()) for x in text.splitlines()), label
    assert "1000×1000×1000 float32 NN" in text and device.profile.title in text
    assert "2e+09 operations" in text and "[safe: " in text and "→1. " in text


@pytest.mark.parametrize("dtype", ["float64", np.float64, np.dtype("f8"), "f8"])
def test_explain_takes_any_form_of_dtype(dtype):
    assert "4×5×6 float64 NT" in clmatmul.explain(4, 5, 6, dtype, layout="NT")


def test_explain_batches_and_configurations():
    text = clmatmul.explain(4, 5, 6, batch=(2, 3), config="naive(work_group_size=8)")
    assert "6×4×5×6 float32" in text and "naive(work_group_size=8) [forced" in text


@pytest.mark.parametrize("call, error, message", [
    (lambda: clmatmul.explain(0, 4, 4), clmatmul.ShapeError, "m=0 must be at least 1"),
    (lambda: clmatmul.explain(4, 4, 4, batch=(0,)), clmatmul.ShapeError, "each size"),
    (lambda: clmatmul.explain(4, 4, 4, layout="XN"), clmatmul.ArgumentError, "NN, NT, TN or TT"),
    (lambda: clmatmul.explain(4, 4, 4, "floaty"), clmatmul.DtypeError, "is no dtype"),
    (lambda: clmatmul.explain(4, 4, 4, "S3"), clmatmul.DtypeError, "supported are"),
    (lambda: clmatmul.explain(4, 4, 4, config="gone"), clmatmul.ConfigError, "no such variant"),
])  # fmt: skip
def test_explain_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
