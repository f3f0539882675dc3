"""Random products of every kind, drawn to find faults; the float64 oracle judges.

A *family* fixes what makes a program (dtypes, layouts, scalars); everything else is drawn: sizes
around tile borders and none at all, batches that broadcast, offsets, special values. Operands lie
in poisoned memory: nothing beside the output may change, no input may, and no poison may be read.
"""

import itertools
import math
import random
from dataclasses import dataclass

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import clmatmul
from clmatmul import executable, reference
from clmatmul.element_types import ELEMENT_TYPES, numpy_dtype, product_type

SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33)
LARGE = (47, 63, 64, 65, 96, 97, 128, 129)
SCALARS = {"zero": (0, -0.0), "one": (1,), "general": (-1, 0.5, math.nan, math.inf)}
DTYPES = (
    ("float32", "float32"), ("float64", "float64"), ("complex64", "complex64"),
    ("int32", "int32"), ("int8", "int8"), ("bool", "bool"), ("float16", "float16"),
    ("bfloat16", "bfloat16"), ("float32", "float16"), ("uint8", "int64"), ("complex128", "float32"),
)  # fmt: skip
LAYOUTS = ("C", "F", "apart", "backwards", "repeated")


@dataclass(frozen=True)
class Family:
    """What makes a program; `out` is None for a fresh result, `scalars` for matmul, else the
    classes of gemm's alpha and beta.
    """

    dtypes: tuple
    layouts: tuple
    out: str | None
    scalars: tuple | None

    def __str__(self):
        a, b = self.dtypes
        return f"{a} {self.layouts[0]} @ {b} {self.layouts[1]} -> {self.out} {self.scalars}"


def families(count):
    """`count` families: all dtypes in turn, the rest chosen once and for all."""
    chooser = random.Random(14)
    outs = (None, "C", "F", "apart", "backwards")
    for dtypes in itertools.islice(itertools.cycle(DTYPES), count):
        layouts = chooser.choice(LAYOUTS), chooser.choice(LAYOUTS)
        classes = ("zero", "one") if "bool" in dtypes else tuple(SCALARS)
        scalars = (chooser.choice(classes), chooser.choice(classes))
        yield Family(dtypes, layouts, chooser.choice(outs), chooser.choice((None, scalars)))


@dataclass
class Drawn:
    """A product: shapes, what the operands hold, alpha and beta, where memory begins."""

    family: Family
    batches: tuple  # of A, of B, and of the result
    m: int
    n: int
    k: int
    data: str
    alpha: object
    beta: object
    offset: int
    seed: int


@st.composite
def products(draw, chosen):
    family = draw(st.sampled_from(chosen))
    size = st.sampled_from(SIZES)
    m, n, k = draw(size), draw(size), draw(size)
    if draw(st.integers(0, 9)) == 0:  # one long dimension
        long = draw(st.sampled_from(LARGE))
        m, n, k = draw(st.sampled_from([(long, n, k), (m, long, k), (m, n, long)]))
    batch = tuple(draw(st.lists(st.sampled_from((0, 1, 2, 3)), max_size=2)))
    ones = [draw(st.lists(st.booleans(), min_size=len(batch), max_size=len(batch))) for _ in "ab"]
    batches = [tuple(1 if one else x for x, one in zip(batch, o, strict=True)) for o in ones]
    batches = [b[1:] if b and draw(st.booleans()) and b[0] == 1 else b for b in batches]
    whole = np.broadcast_shapes(*batches)
    alpha = beta = None
    if family.scalars is not None:
        exact = product_type(*map(numpy_dtype, family.dtypes)).kind in "iub"
        alpha, beta = (
            draw(st.sampled_from((-1, 7) if exact and x == "general" else SCALARS[x]))
            for x in family.scalars
        )
        if exact:
            alpha, beta = int(alpha), int(beta)
    return Drawn(
        family, (*batches, whole), m, n, k, draw(st.sampled_from(("exact", "random", "special"))),
        alpha, beta, draw(st.sampled_from((0, 1, 3, 16))), draw(st.integers(0, 2**32 - 1)),
    )  # fmt: skip


def values(rng, shape, dtype, data):
    """Elements of a dtype; `special`: signed zeros, extremes, infinities and NaN among others."""
    kind = ELEMENT_TYPES[dtype].kind
    host = numpy_dtype(dtype)
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(host)
    if kind in ("int", "uint"):
        info = np.iinfo(host)
        low, high = (-4, 5) if data == "exact" and kind == "int" else (0, 5)
        if data != "exact":
            low, high = int(info.min), int(info.max)
        return rng.integers(low, high, shape, host, endpoint=data != "exact")
    x = rng.standard_normal(shape) if data != "exact" else rng.integers(-4, 5, shape).astype("f8")
    if data == "special":
        largest, smallest = (60000, 6e-5) if kind == "half" else (3e38, 1.2e-38)
        pool = np.array([0.0, -0.0, 1, -1, smallest, -smallest, smallest / 4, largest, -largest,
                         np.inf, -np.inf, np.nan])  # fmt: skip
        x = np.where(rng.random(shape) < 0.06, rng.choice(pool, shape), x)
    with np.errstate(all="ignore"):
        if kind == "complex":
            return (x + 1j * (rng.integers(-4, 5, shape) if data == "exact" else 1)).astype(host)
        return x.astype(host)


def poison(dtype):
    kind = ELEMENT_TYPES[dtype].kind
    host = numpy_dtype(dtype)
    return np.array(1 if kind == "bool" else 77 if kind in ("int", "uint") else np.nan).astype(host)


def laid_out(x, layout, offset, dtype):
    """(cells, view): x in memory of its own, in a layout, with poison around and between."""
    shape = x.shape
    strides = np.zeros(len(shape), int)
    order = list(range(len(shape)))[::-1]
    if layout == "F":
        order[0], order[1] = order[1], order[0]
    repeat = layout == "repeated" and shape[-2] > 0
    step = 2 if layout == "apart" else 1
    reach = step
    for i in order:
        if repeat and i == len(shape) - 2:
            continue  # a stride of 0: every row is the first
        strides[i] = reach
        reach *= max(shape[i], 1)
        reach += step  # a gap after each row, matrix, batch
    sign = -1 if layout == "backwards" else 1
    cells = np.full(offset + reach + 5, poison(dtype))
    start = offset + 2
    if sign < 0 and x.size:
        start += int(sum((n - 1) * s for n, s in zip(shape, strides, strict=True)))
        strides = -strides
    view = np.lib.stride_tricks.as_strided(
        cells[start:], shape, strides * cells.itemsize, writeable=True
    )
    if repeat and x.size:
        view[..., :1, :] = x[..., :1, :]
    else:
        view[...] = x
    return cells, view, start


def on_host(cells, view, start, queue):
    return view, lambda: cells


def on_device(cells, view, start, queue):
    """The same memory on the device, seen the same way."""
    if not view.size:
        return cl_array.empty(queue, view.shape, view.dtype), lambda: cells
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR,
                       hostbuf=cells.view(np.uint8))  # fmt: skip
    array = cl_array.Array(queue, view.shape, view.dtype, strides=view.strides, data=buffer,
                           offset=start * view.itemsize)  # fmt: skip

    def read():
        array.finish()
        after = np.empty_like(cells)
        cl.enqueue_copy(queue, after.view(np.uint8), buffer)
        return after

    return array, read


def check(drawn, bring, queue=None):
    family, rng = drawn.family, np.random.default_rng(drawn.seed)
    shapes = [drawn.batches[0] + (drawn.m, drawn.k), drawn.batches[1] + (drawn.k, drawn.n)]
    result = product_type(*map(numpy_dtype, family.dtypes)).name
    shape = drawn.batches[2] + (drawn.m, drawn.n)
    laid = [
        laid_out(values(rng, s, dtype, drawn.data), layout, drawn.offset, dtype)
        for s, dtype, layout in zip(shapes, family.dtypes, family.layouts, strict=True)
    ]
    brought = [bring(*x, queue) for x in laid]
    before = [x[0].tobytes() for x in laid]
    arguments, (a, b) = [x[0] for x in brought], [x[1] for x in laid]
    scalars, c = {}, None
    if family.scalars is not None:
        scalars = {"alpha": drawn.alpha, "beta": drawn.beta}
        c = values(rng, shape, result, drawn.data)
        arguments.append(bring(*laid_out(c, "C", drawn.offset, result), queue)[0])
    out_cells = out_view = None
    if family.out is not None:
        out_cells, out_view, start = laid_out(
            np.full(shape, poison(result)), family.out, drawn.offset, result
        )
        out, read_out = bring(out_cells, out_view, start, queue)
        scalars["out"] = out
    with np.errstate(all="ignore"):
        multiply = clmatmul.gemm if family.scalars else clmatmul.matmul
        got = multiply(*arguments, **scalars)
    if family.out is not None:
        assert got is out
        outside = np.ones(out_cells.shape, bool)
        np.lib.stride_tricks.as_strided(
            outside[start:], shape, np.array(out_view.strides) // out_view.itemsize, writeable=True
        )[...] = False
        after = read_out()
        assert np.array_equal(_bytes(after)[outside], _bytes(out_cells_of(result, after))[outside])
        got = np.lib.stride_tricks.as_strided(after[start:], shape, out_view.strides)
    elif queue is not None:
        got = clmatmul.Array(got).to_host()
    for (_, read), bytes_before in zip(brought, before, strict=True):
        assert read().tobytes() == bytes_before, "an input was modified"
    assert got.shape == shape and got.dtype == numpy_dtype(result)
    judge(drawn, got, a, b, c, result)


def out_cells_of(dtype, like):
    return np.full(like.shape, poison(dtype))


def _bytes(x):
    return x.view(np.uint8).reshape(x.size, x.itemsize)


def judge(drawn, got, a, b, c, result):
    """Equal where all is exact, else within the bound wherever nothing may overflow."""
    compute = ELEMENT_TYPES[result].compute
    alpha = 1 if drawn.alpha is None else drawn.alpha
    beta = 0 if drawn.beta is None else drawn.beta
    formula = {"compute": compute, "out": result, "alpha": alpha, "beta": beta, "c": c}
    value = reference.evaluate(a, b, result=result, **formula)
    value = np.broadcast_to(value, got.shape)
    if reference.wide_type(compute) is None:
        assert np.array_equal(got, value)
        return
    with np.errstate(all="ignore"):
        finite = [np.where(np.isfinite(x.astype("c16")), x.astype("c16"), 0) for x in (a, b)]
        size = np.abs(finite[0]) @ np.abs(finite[1]) if drawn.k else np.zeros(got.shape)
        factor = abs(alpha) if math.isfinite(alpha) else 1
        size = size * max(factor, 1) + (0 if c is None else 2 * np.abs(np.nan_to_num(c)))
        limit = 6e4 if result == "float16" else 1e38
        safe = np.broadcast_to(np.nan_to_num(size, nan=np.inf), got.shape) < limit / 4
        allowed = reference.allowed_error(a, b, value, any_data=True, **formula)
    if reference.wide_type(compute).kind == "c":
        # The parts of a product of complex infinities and NaN differ between right libraries.
        safe = safe & np.isfinite(value)
    ratio = reference.error_ratio(got[safe], value[safe], np.broadcast_to(allowed, got.shape)[safe])
    assert ratio <= 1, f"error is {ratio:.3g} times what is allowed"


def run(chosen, examples, bring, queue=None, programs=None):
    before = len(executable._programs._programs)

    @seed(20)
    @settings(max_examples=examples, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(products(chosen))
    def prove(drawn):
        check(drawn, bring, queue)

    prove()
    built = len(executable._programs._programs) - before
    if programs is not None:
        assert built <= programs
    return built


QUICK = tuple(families(7))
EVERY = tuple(families(22))


def usable(chosen, device):
    return [x for x in chosen if device.profile.fp64 or not needs_fp64(x)]


def needs_fp64(family):
    names = (*family.dtypes, product_type(*map(numpy_dtype, family.dtypes)).name)
    return any(ELEMENT_TYPES[x].needs_fp64 for x in names)


def test_random_products(device):
    pytest.importorskip("ml_dtypes")
    run(usable(QUICK, device), 500, on_host)


def test_random_products_of_device_arrays(device):
    pytest.importorskip("ml_dtypes")
    run(usable(QUICK[:3], device), 150, on_device, device.queue())


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_twenty_thousand_products_over_few_programs(device, capsys):
    pytest.importorskip("ml_dtypes")
    built = run(usable(EVERY, device), 20_000, on_host, programs=500)
    with capsys.disabled():
        print(f"\n20,000 random products over {built} programs")


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_thousands_of_products_of_device_arrays(device, capsys):
    pytest.importorskip("ml_dtypes")
    built = run(usable(EVERY, device), 5_000, on_device, device.queue(), programs=500)
    with capsys.disabled():
        print(f"\n5,000 random products of device arrays over {built} programs")
