"""Faults that users of other libraries met, each of which must be impossible here.

Every test has the trigger of a public report, and the value that is right. The names say what
went wrong there.
"""

import mmap

import numpy as np
import pyopencl.array as cl_array
import pytest

import clmatmul
from clmatmul import Array, reference
from clmatmul import device as devices
from clmatmul.choose import checked
from clmatmul.config import TileConfig
from clmatmul.errors import ConfigError
from clmatmul.plan import make_plan
from clmatmul.problem import ArrayView, Problem
from clmatmul.variants import all_variants

VARIANTS = [v.name for v in all_variants()]


@pytest.fixture
def queue(device):
    return device.queue()


@pytest.fixture(params=["host", "device"])
def kind(request, queue):
    """What brings a NumPy array to where the product is computed, and back."""
    if request.param == "host":
        return lambda x: x, np.asarray
    return lambda x: Array.from_host(x), lambda x: x.to_host()


def whole(rng, shape, dtype="f4"):
    x = np.asarray(rng.integers(-3, 4, shape))
    return (x + 1j * rng.integers(-3, 4, shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def garbage(shape, dtype="f4", value=np.nan):
    return np.full(shape, value, dtype)


def small_configuration(name):
    """One configuration of a variant with small tiles, so that a program builds soon."""
    header = next(v for v in all_variants() if v.name == name).header
    return TileConfig.of(name, **(header.get("TEST_CONFIGS") or (header["DEFAULT"],))[0])


def configurations(device, problem):
    """A configuration of each variant that can serve the problem here."""
    for name in VARIANTS:
        try:
            yield checked(small_configuration(name), problem, device.profile)
        except ConfigError:
            continue


def plain_problem(m, n, k, dtype="float32", a_order="C", b_order="C"):
    def seen(rows, cols, order):
        strides = (cols, 1) if order == "C" else (1, rows)
        return ArrayView(dtype, (rows, cols), strides, 0, 64)

    return Problem.from_arrays(seen(m, k, a_order), seen(k, n, b_order), seen(m, n, "C"))


# ---- alpha, beta, special values ------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_complex_product_with_beta_zero_does_not_read_c(device, kind, rng, dtype, value):
    bring, back = kind
    if dtype == "c16" and not device.profile.fp64:
        pytest.skip("the device has no float64")
    a, b = whole(rng, (5, 7), dtype), whole(rng, (7, 4), dtype)
    out = bring(garbage((5, 4), dtype, complex(value, value)))
    clmatmul.gemm(bring(a), bring(b), out, beta=0, out=out)
    assert np.array_equal(back(out), a @ b)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("m, n", [(64, 64), (65, 63), (64, 63), (65, 64), (1, 64), (64, 1)])
def test_beta_zero_on_every_specialised_path(device, rng, variant, m, n):
    """Transposed A, sizes that are multiples of tiles and not: full tiles and rims alike."""
    a, b = whole(rng, (32, m)), whole(rng, (32, n))
    out = garbage((m, n))
    try:
        plan = clmatmul.MatMul(a.T, b, out, config=small_configuration(variant))
    except ConfigError as error:
        pytest.skip(str(error))
    plan(a.T, b, out)
    assert np.array_equal(out, a.T @ b)


@pytest.mark.parametrize("beta", [0, 1, 2])
def test_alpha_zero_leaves_nan_in_the_operands_unread(kind, rng, beta):
    bring, back = kind
    a, b, c = garbage((5, 6)), garbage((6, 7), value=np.inf), whole(rng, (5, 7))
    got = clmatmul.gemm(bring(a), bring(b), bring(c), alpha=0, beta=beta)
    assert np.array_equal(back(got), beta * c)


def test_infinity_minus_infinity_only_where_ieee_says_so(kind):
    """[inf, 0, -inf] times [.789, .204, -.198] is +inf in bfloat16 and in all others."""
    bring, back = kind
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    for dtype in (bfloat16, "f2", "f4"):
        a = np.array([[np.inf, 0, -np.inf]]).astype(dtype)
        b = np.array([[0.789], [0.204], [-0.198]]).astype(dtype)
        assert np.isposinf(back(clmatmul.matmul(bring(a), bring(b))).astype("f8")).all()


def test_no_option_that_relaxes_arithmetic(device):
    plan = make_plan(plain_problem(8, 8, 8), device.profile, TileConfig.parse("naive()"))
    assert not [x for x in plan.options if "fast" in x or "unsafe" in x or "finite" in x]


def test_overflow_and_nan_stay_where_they_are(kind):
    bring, back = kind
    a = np.ones((40, 33), "f4")
    a[7, 3], a[20, 32] = np.inf, np.nan
    b = np.ones((33, 37), "f4")
    got = back(clmatmul.matmul(bring(a), bring(b)))
    assert np.isposinf(got[7]).all() and np.isnan(got[20]).all()
    assert np.isfinite(np.delete(got, (7, 20), 0)).all()


# ---- empty and degenerate -------------------------------------------------------------------


def test_a_batch_of_empty_sums_is_zeros(kind):
    bring, back = kind
    got = clmatmul.matmul(bring(np.ones((3, 2, 0), "f4")), bring(np.ones((3, 0, 3), "f4")))
    assert np.array_equal(back(got), np.zeros((3, 2, 3)))


@pytest.mark.parametrize("shapes", [
    ((0, 2, 3), (3, 4)), ((2, 0, 3), (3, 4)), ((2, 3), (3, 0)), ((2, 0), (0, 3)), ((0, 0), (0, 0)),
    ((0,), (0,)), ((2, 3, 0), (1, 0, 4)), ((0, 1, 2, 3), (5, 3, 1)),
])  # fmt: skip
def test_zero_size_of_every_dimension(kind, shapes):
    bring, back = kind
    a, b = np.ones(shapes[0], "f4"), np.ones(shapes[1], "f4")
    got = back(clmatmul.matmul(bring(a), bring(b)))
    assert got.shape == np.matmul(a, b).shape and np.array_equal(got, np.matmul(a, b))


def test_strides_of_empty_arrays_are_ignored(queue):
    for strides in ((0, 0), (4, 4), (-4, 12345), (1, 1)):
        a = cl_array.Array(queue, (0, 3), "f4", strides=strides)
        b = cl_array.to_device(queue, np.ones((3, 2), "f4"))
        assert clmatmul.matmul(a, b).shape == (0, 2)
        out = cl_array.Array(queue, (0, 2), "f4", strides=strides)
        assert clmatmul.matmul(a, b, out=out) is out


@pytest.mark.parametrize("out", [None, "garbage"])
def test_split_sums_do_not_add_to_what_was_there(device, rng, out):
    """k much longer than m and n, as a split of k wants it, in every variant's configurations."""
    a, b = whole(rng, (3, 5000)), whole(rng, (5000, 4))
    problem = plain_problem(3, 4, 5000)
    seen = 0
    for config in configurations(device, problem):
        target = None if out is None else garbage((3, 4))
        plan = clmatmul.MatMul(a, b, target, config=config)
        assert np.array_equal(plan(a, b, target), a @ b), config
        seen += 1
    assert seen >= 2


# ---- layout, strides, out -------------------------------------------------------------------


def test_outs_own_layout_is_honoured(kind, rng):
    bring, back = kind
    a, b = whole(rng, (2, 2)), whole(rng, (2, 2))
    out = bring(np.asfortranarray(garbage((2, 2))))
    clmatmul.matmul(bring(a), bring(b), out=out)
    assert np.array_equal(back(out), a @ b)
    a, b = whole(rng, (3, 2, 5)), whole(rng, (3, 5, 4))
    memory = bring(garbage((4, 2, 3)))
    out = clmatmul.transpose(memory)
    clmatmul.matmul(bring(a), bring(b), out=out if not isinstance(out, np.ndarray) else memory.T,
                    axes=[(-2, -1), (-2, -1), (-2, -1)])  # fmt: skip
    assert np.array_equal(back(memory).T, a @ b)


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_column_major_operands_are_not_taken_for_row_major(kind, rng, orders):
    bring, back = kind
    a, b = whole(rng, (2, 3)), whole(rng, (3, 2))
    got = clmatmul.matmul(
        *(bring(np.array(x, order=o)) for x, o in zip((a, b), orders, strict=True))
    )
    assert np.array_equal(back(got), a @ b)


@pytest.mark.parametrize("shape", [(1, 10), (10, 1)])
@pytest.mark.parametrize("stride", [-4, 0, 1, 12345, 2**40])
def test_the_stride_of_a_single_row_or_column_is_never_used(queue, rng, shape, stride):
    x = whole(rng, shape)
    strides = tuple(stride if n == 1 else 4 for n in shape)
    a = cl_array.Array(queue, shape, "f4", strides=strides, data=cl_array.to_device(queue, x).data)
    b = cl_array.to_device(queue, whole(rng, shape[::-1]))
    assert np.array_equal(clmatmul.matmul(a, b).get(), x @ b.get())
    assert np.array_equal(clmatmul.matmul(b, a).get(), b.get() @ x)
    out = cl_array.Array(queue, shape, "f4", strides=strides,
                         data=cl_array.zeros(queue, shape, "f4").data)  # fmt: skip
    one = cl_array.to_device(queue, np.ones((shape[0], shape[0]), "f4"))
    clmatmul.matmul(one, a, out=out)
    flat = cl_array.Array(queue, (10,), "f4", data=out.base_data)
    assert np.array_equal(flat.get(), (one.get() @ x).ravel())


def test_arrays_that_are_added_use_their_own_strides(kind, rng):
    """C, bias and residual in column order beside operands in row order."""
    bring, back = kind
    a, b, c = whole(rng, (3, 4)), whole(rng, (4, 5)), whole(rng, (3, 5))
    order = np.asfortranarray(c)
    got = clmatmul.gemm(bring(a), bring(b), bring(order), beta=2)
    assert np.array_equal(back(got), a @ b + 2 * c)
    epilogue = clmatmul.Epilogue(bias=bring(order), residual=bring(order))
    assert np.array_equal(
        back(clmatmul.matmul(bring(a), bring(b), epilogue=epilogue)), a @ b + 2 * c
    )


def test_an_out_of_another_dtype_is_written_or_refused(kind, rng):
    bring, back = kind
    a, b = whole(rng, (2, 3)), whole(rng, (3, 2))
    for dtype in ("f2", "f4", "c8"):
        out = bring(garbage((2, 2), dtype))
        assert clmatmul.matmul(bring(a), bring(b), out=out) is out
        assert np.array_equal(back(out), a @ b)
    out = bring(np.full((2, 2), 7, "i4"))
    with pytest.raises(TypeError, match="cannot cast"):
        clmatmul.matmul(bring(a), bring(b), out=out)
    assert (back(out) == 7).all()


def test_out_is_an_operand_of_a_large_batch(kind, rng):
    bring, back = kind
    x = whole(rng, (2, 399, 399))
    want = x @ x
    a = bring(x)
    assert clmatmul.matmul(a, a, out=a) is a
    assert np.array_equal(back(a), want)


def test_dot_into_its_own_operand(kind, rng):
    bring, back = kind
    for which in (0, 1):
        pair = [whole(rng, (3, 3)) for _ in "ab"]
        want = np.dot(*pair)
        a, b = map(bring, pair)
        clmatmul.dot(a, b, out=(a, b)[which])
        assert np.array_equal(back((a, b)[which]), want)


# ---- batch and broadcasting -----------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_repeated_matrix_meets_every_matrix_of_a_batch(queue, rng, side):
    one, many = whole(rng, (1, 32, 32)), whole(rng, (32, 32, 32))
    repeated = np.broadcast_to(one, many.shape)
    pair = (repeated, many) if side == "left" else (many, repeated)
    assert np.array_equal(clmatmul.matmul(*pair), np.matmul(*pair))
    here = cl_array.Array(queue, many.shape, "f4", strides=(0, 128, 4),
                          data=cl_array.to_device(queue, one).data)  # fmt: skip
    there = cl_array.to_device(queue, many)
    pair_there = (here, there) if side == "left" else (there, here)
    assert np.array_equal(clmatmul.matmul(*pair_there).get(), np.matmul(*pair))


def test_a_batch_of_one_side_only_reads_nothing_beyond_the_other(rng):
    """The second operand ends where memory that may not be read begins."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    b = np.frombuffer(memory, "f4", 12, page - 48).reshape(3, 4)
    b.flags.writeable = True
    b[...] = whole(rng, (3, 4))
    after = np.frombuffer(memory, np.uint8, page, page)
    after.flags.writeable = True
    after[...] = 255  # NaN: whatever reads it shows
    a = whole(rng, (10, 2, 3))
    assert np.array_equal(clmatmul.matmul(a, b), np.matmul(a, b))


def test_an_output_that_repeats_is_refused(queue, rng):
    """Batches that all write to one matrix have no right result."""
    a = cl_array.to_device(queue, whole(rng, (4, 2, 2)))
    out = cl_array.Array(queue, (4, 2, 2), "f4", strides=(0, 8, 4),
                         data=cl_array.zeros(queue, (2, 2), "f4").data)  # fmt: skip
    with pytest.raises(ValueError, match="share memory"):
        clmatmul.matmul(a, a, out=out)


def test_half_a_million_products_are_one_launch(monkeypatch, queue, rng):
    a, b = (cl_array.to_device(queue, whole(rng, (500_000, 2, 2))) for _ in "ab")
    plan = clmatmul.MatMul(a, b)
    launches = []
    launch = devices.Device.launch
    monkeypatch.setattr(
        devices.Device, "launch", lambda self, *x: launches.append(x) or launch(self, *x)
    )
    assert np.array_equal(plan(a, b).get(), a.get() @ b.get())
    assert len(launches) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_batches_like_16_bit_matrices(kind, rng, dtype):
    bring, back = kind
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    for shape in ((3, 4), (2, 3, 4), (2, 2, 3, 4)):
        a = whole(rng, shape).astype(dtype)
        b = np.swapaxes(a, -1, -2)
        got = back(clmatmul.matmul(bring(a), bring(b)))
        assert np.array_equal(got.astype("f4"), a.astype("f4") @ b.astype("f4"))


def test_batches_that_do_not_broadcast_are_a_value_error(kind):
    bring, _ = kind
    with pytest.raises(ValueError, match=r"\(5, 3, 1\).*\(3, 1, 4\)"):
        clmatmul.matmul(bring(np.ones((5, 3, 1), "f4")), bring(np.ones((3, 1, 4), "f4")))


# ---- large indices --------------------------------------------------------------------------


def far_apart(rows, pitch, columns):
    """A row-major int8 matrix whose rows are `pitch` bytes apart, in memory that is not there."""
    memory = mmap.mmap(-1, (rows - 1) * pitch + columns)
    return np.ndarray((rows, columns), "i1", memory, strides=(pitch, 1))


@pytest.fixture
def reach(device):
    """How far apart two rows may lie: beyond 2^31 bytes, if one buffer may be so large."""
    return min(2**31 + 64, device.profile.max_alloc_bytes - 4096)


@pytest.mark.parametrize("turned", [False, True])
def test_offsets_of_two_gigabytes(rng, reach, turned):
    """More than 2^31 elements between rows, and between columns for the transpose."""
    a = far_apart(2, reach, 16)
    a[...] = whole(rng, (2, 16), "i1")
    b = whole(rng, (2 if turned else 16, 3), "i1")
    left = a.T if turned else a
    assert np.array_equal(clmatmul.matmul(left, b), np.matmul(left.copy(), b))


def test_batches_two_gigabytes_apart(rng, reach):
    memory = far_apart(2, reach, 12)
    memory[...] = whole(rng, (2, 12), "i1")
    a = np.lib.stride_tricks.as_strided(memory, (2, 3, 4), (reach, 1, 3))
    b = whole(rng, (4, 2), "i1")
    assert np.array_equal(clmatmul.matmul(a, b), np.matmul(a.copy(), b))


def test_the_size_of_the_product_is_counted_in_64_bits():
    """46341 * 46341 elements are more than 2^31: indices are long, launches within limits."""
    problem = plain_problem(46341, 46341, 64)
    assert problem.wide_index and problem.kind.index == "long"
    assert problem.m * problem.n > 2**31
    small = plain_problem(46340, 100, 64)
    assert not small.wide_index


def test_more_columns_than_any_grid_limit(kind, rng):
    """n larger than 65,536 narrow tiles, and none computed twice (beta = 1)."""
    bring, back = kind
    n = 65_536 * 4 + 5
    a, b = whole(rng, (1, 2)), whole(rng, (2, n))
    c = whole(rng, (1, n))
    got = clmatmul.gemm(bring(a), bring(b), bring(c), beta=1)
    assert np.array_equal(back(got), a @ b + c)
    got = clmatmul.gemm(bring(b.T.copy()), bring(a.T.copy()), bring(c.T.copy()), beta=1)
    assert np.array_equal(back(got), (a @ b + c).T)


# ---- wrong kernels of one size, type or device ----------------------------------------------


@pytest.mark.parametrize("size", [31, 32, 33, 255, 256, 257, 300])
def test_shipped_and_chosen_kernels_above_each_switch_point(device, rng, size):
    """Whatever kernel is chosen at a size: whole numbers, so that every element must be equal."""
    for dtype in ("f4", "c8"):
        a, b = whole(rng, (size, 40), dtype), whole(rng, (40, size), dtype)
        assert np.array_equal(clmatmul.matmul(a, b), a @ b)


@pytest.mark.parametrize("pitch", [7, 64])
def test_seven_by_seven(device, rng, pitch):
    """dgemm of 7x7x7 with leading dimensions of 7 and 64, alpha = beta = 3.14."""
    if not device.profile.fp64:
        pytest.skip("the device has no float64")
    a, b, c = (rng.standard_normal((7, pitch))[:, :7] for _ in "abc")
    formula = {"compute": "float64", "out": "float64", "alpha": 3.14, "beta": 3.14, "c": c}
    value = reference.evaluate(a, b, result="float64", **formula)
    allowed = reference.allowed_error(a, b, value, **formula)
    for config in (None, *configurations(device, plain_problem(7, 7, 7, "float64"))):
        try:
            plan = clmatmul.MatMul(a, b, c=c, alpha=3.14, beta=3.14, config=config)
        except ConfigError:
            continue
        assert reference.error_ratio(plan(a, b, c=c), value, allowed) <= 1, config


def test_every_candidate_stays_within_its_operands(device, rng):
    """Ragged complex products in poisoned memory: nothing beyond an operand is read or written."""
    problem = plain_problem(13, 11, 17, "complex64")
    for config in configurations(device, problem):
        a, b = whole(rng, (13, 17), "c8"), whole(rng, (17, 11), "c8")
        guarded = garbage((15, 13), "c8")
        out = guarded[1:-1, 1:-1]
        inputs = []
        for x in (a, b):
            memory = garbage((x.shape[0] + 2, x.shape[1] + 2), "c8")
            memory[1:-1, 1:-1] = x
            inputs.append(memory[1:-1, 1:-1])
        try:
            plan = clmatmul.MatMul(*inputs, out, config=config)
        except ConfigError:
            continue
        plan(*inputs, out)
        assert np.array_equal(out, a @ b), config
        frame = np.ones(guarded.shape, bool)
        frame[1:-1, 1:-1] = False
        assert np.isnan(guarded[frame]).all()


def test_a_matrix_times_its_own_transpose(kind, rng):
    """One memory as both operands is no special case."""
    bring, back = kind
    x = rng.standard_normal((300, 672)).astype("f4")
    a = bring(x)
    first = back(clmatmul.matmul(a, clmatmul.transpose(a)))
    again = back(clmatmul.matmul(a, clmatmul.transpose(a)))
    apart = back(clmatmul.matmul(a, clmatmul.transpose(bring(x.copy()))))
    assert np.array_equal(first, again) and np.array_equal(first, apart)
    value = reference.evaluate(x, x.T, compute="float32", result="float32", out="float32")
    allowed = reference.allowed_error(x, x.T, value, compute="float32", out="float32")
    assert reference.error_ratio(first, value, allowed) <= 1


@pytest.mark.parametrize(
    "shapes", [((6, 3000), (3000,)), ((3000,), (3000, 6)), ((6, 3000), (3000, 1))]
)
def test_float16_with_a_vector(kind, rng, shapes):
    """alpha and beta beyond what float16 can hold in between; accumulated in float32."""
    bring, back = kind
    a, b = whole(rng, shapes[0], "f2"), whole(rng, shapes[1], "f2")
    want = a.astype("f8") @ b.astype("f8")
    c = np.ones(np.shape(want), "f2")
    got = back(clmatmul.gemm(bring(a), bring(b), bring(c), alpha=1e-6, beta=1000.1))
    assert np.allclose(got.astype("f8"), 1e-6 * want + 1000.1, rtol=1e-3)
    assert np.array_equal(back(clmatmul.matmul(bring(a), bring(b))), want.astype("f2"))


@pytest.mark.parametrize("dtype, k", [("f2", 4096), ("f2", 2049), ("bfloat16", 4096)])
def test_sums_of_ones_do_not_stall(kind, dtype, k):
    bring, back = kind
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    x = np.ones((2, k)).astype(dtype)
    got = back(clmatmul.matmul(bring(x), bring(x.T)))
    assert (got.astype("f8") == np.float64(np.array(k).astype(got.dtype))).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_every_template_builds_for_every_layout(device, rng, variant, layout):
    """Bit for bit on whole numbers: a sloppy cast is a build error on some runtimes only."""
    a = whole(rng, (9, 11)) if layout[0] == "N" else whole(rng, (11, 9)).T
    b = whole(rng, (11, 10)) if layout[1] == "N" else whole(rng, (10, 11)).T
    try:
        plan = clmatmul.MatMul(a, b, config=small_configuration(variant))
    except ConfigError as error:
        pytest.skip(str(error))
    assert np.array_equal(plan(a, b), a @ b)
