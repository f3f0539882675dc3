"""dot, tensordot, vecdot, einsum and the others: NumPy is the oracle, on every kind of array."""

import importlib.util
import itertools
import math

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clmatmul
from clmatmul import contraction, products, views
from clmatmul import device as devices

PLACES = ("numpy", "pyopencl", "Array")


@pytest.fixture(params=PLACES)
def place(request, device):
    """A function that brings a NumPy array to the kind of array under test."""
    queue = device.queue()
    return {
        "numpy": lambda x: x,
        "pyopencl": lambda x: cl_array.to_device(queue, np.ascontiguousarray(x).reshape(x.shape)),
        "Array": lambda x: clmatmul.Array.from_host(x),
    }[request.param]


def on_host(x):
    if isinstance(x, cl_array.Array):
        x = clmatmul.Array(x)
    return x.to_host() if isinstance(x, clmatmul.Array) else x


def whole(rng, shape, dtype="f4"):
    """Small whole numbers, whose products and sums are exact."""
    x = np.asarray(rng.integers(-3, 4, shape))
    return (x + 1j * rng.integers(-3, 4, shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def same_as_numpy(place, name, *arguments, **keywords):
    """Our function of arrays of that kind against NumPy's of host arrays."""
    numpys = getattr(np, name, None) or getattr(np.linalg, name)
    want = numpys(*arguments, **keywords)
    brought = [place(x) if isinstance(x, np.ndarray) else x for x in arguments]
    got = getattr(clmatmul, name)(*brought, **keywords)
    kinds = {type(x) for x in brought if not isinstance(x, (str, tuple, list, int))}
    assert type(got) is type(want) if kinds == {np.ndarray} else type(got) in kinds
    assert got.dtype == want.dtype and tuple(got.shape) == want.shape
    assert np.array_equal(on_host(got), want)
    return got


# ---- dot and vdot ---------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((2, 3, 4), (5, 4, 6)),
    ((4, 3), (2, 2, 3, 5)), ((3,), (5, 3, 2)), ((2, 3, 4), (4,)), ((), (3, 2)), ((2,), ()),
    ((), ()), ((2, 0), (0, 3)), ((0,), (0,)), ((0, 3), (3, 2)), ((2, 3, 0), (4, 0, 5)),
])  # fmt: skip
def test_dot(place, rng, shapes):
    same_as_numpy(place, "dot", whole(rng, shapes[0]), whole(rng, shapes[1]))


@pytest.mark.parametrize("dtypes", [("c8", "f4"), ("i4", "i4"), ("f2", "f2")])
def test_dot_dtypes(place, rng, dtypes):
    same_as_numpy(place, "dot", *(whole(rng, (3, 3), x) for x in dtypes))


def test_dot_of_bfloat16_is_bfloat16(rng):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = whole(rng, (4, 4)).astype(bfloat16)
    assert clmatmul.dot(x, x).dtype == np.dot(x, x).dtype == bfloat16
    assert clmatmul.matmul(x, x).dtype == np.float32


def test_dot_out(place, rng):
    a, b = whole(rng, (2, 3, 4)), whole(rng, (5, 4, 6))
    out = place(np.full((2, 3, 5, 6), np.nan, "f4"))
    assert clmatmul.dot(place(a), place(b), out) is out
    assert np.array_equal(on_host(out), np.dot(a, b))
    x = place(whole(rng, (3, 3)))
    want = np.dot(on_host(x), on_host(x))
    assert clmatmul.dot(x, x, out=x) is x and np.array_equal(on_host(x), want)


def test_an_out_without_elements(place):
    out = place(np.empty((0, 2), "f4"))
    assert clmatmul.matmul(place(np.ones((0, 3), "f4")), place(np.ones((3, 2), "f4")), out) is out


@pytest.mark.parametrize("shape, dtype, order", [
    ((2, 3), "f8", "C"), ((2, 3), "f4", "F"), ((3, 2), "f4", "C"), ((2, 3, 1), "f4", "C"),
])  # fmt: skip
def test_dot_takes_only_an_exact_out(place, shape, dtype, order):
    a, b = place(np.ones((2, 4), "f4")), place(np.ones((4, 3), "f4"))
    out = np.empty(shape, dtype)
    out = place(out).reshape(shape) if order == "C" else place(out.T.copy()).T
    with pytest.raises(ValueError, match="out"):
        clmatmul.dot(a, b, out=out)
    with pytest.raises(TypeError, match="out must be an array"):
        clmatmul.dot(a, b, out=[0])


@pytest.mark.parametrize("shapes", [((3,), (4,)), ((2, 3), (2, 3)), ((2, 3), (4, 2, 5))])
def test_dot_of_shapes_that_do_not_fit(place, shapes):
    with pytest.raises(ValueError, match="not aligned"):
        clmatmul.dot(place(np.ones(shapes[0], "f4")), place(np.ones(shapes[1], "f4")))


@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_vdot(place, rng, dtype):
    a, b = whole(rng, (3, 4), dtype), whole(rng, (4, 3), dtype)
    same_as_numpy(place, "vdot", a, a + 1)
    same_as_numpy(place, "vdot", a, b)
    got = clmatmul.vdot(clmatmul.transpose(place(a)), place(b))
    assert np.array_equal(on_host(got), np.vdot(a.T, b))
    with pytest.raises(ValueError, match="sizes must be equal"):
        clmatmul.vdot(place(a), place(b[0]))


# ---- vecdot, matvec, vecmat -----------------------------------------------------------------


@pytest.mark.skipif(not hasattr(np, "matvec"), reason="NumPy 2.2 brought matvec")
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_products_with_vectors(place, rng, dtype):
    """vecdot and vecmat conjugate the first operand, matvec does not; batches broadcast."""
    for shapes in (((5,), (5,)), ((2, 5), (3, 1, 5)), ((2, 0), (2, 0))):
        same_as_numpy(place, "vecdot", *(whole(rng, x, dtype) for x in shapes))
    same_as_numpy(place, "vecdot", whole(rng, (5, 2), dtype), whole(rng, (5, 2), dtype), axis=0)
    for shapes in (((3, 5), (5,)), ((3, 2, 5), (3, 5)), ((2, 0), (0,))):
        same_as_numpy(place, "matvec", *(whole(rng, x, dtype) for x in shapes))
    for shapes in (((3,), (3, 5)), ((3, 2), (3, 2, 5)), ((2,), (2, 0))):
        same_as_numpy(place, "vecmat", *(whole(rng, x, dtype) for x in shapes))


def test_products_with_vectors_into_out(place, rng):
    a, x = whole(rng, (2, 3, 4), "c8"), whole(rng, (2, 4), "c8")
    out = place(np.full((2, 3), np.nan, "c8"))
    assert clmatmul.matvec(place(a), place(x), out=out) is out
    assert np.array_equal(on_host(out), np.einsum("bij,bj->bi", a, x))
    assert clmatmul.vecmat(place(x), clmatmul.matrix_transpose(place(a)), out=out) is out
    assert np.array_equal(on_host(out), np.einsum("bij,bj->bi", a, x.conj()))
    out = place(np.full(2, np.nan, "c8"))
    assert clmatmul.vecdot(place(x), place(x), out=out) is out
    assert np.array_equal(on_host(out), np.einsum("bj,bj->b", x.conj(), x))


@pytest.mark.parametrize("call, message", [
    (lambda x: clmatmul.vecdot(x, x[:, :2]), "lengths must be equal"),
    (lambda x: clmatmul.vecdot(x, x, axis=2), "axis 2 is out of range"),
    (lambda x: clmatmul.matvec(x[0], x[0]), "at least 2 dimensions"),
    (lambda x: clmatmul.vecmat(x, x[0]), "at least 2 dimensions"),
    (lambda x: clmatmul.matrix_transpose(x[0]), "at least two"),
    (lambda x: clmatmul.transpose(x, (0, 0)), "each of 2 dimensions once"),
    (lambda x: clmatmul.transpose(x, (0, 2)), "each of 2 dimensions once"),
])  # fmt: skip
def test_shapes_that_do_not_fit(place, call, message):
    with pytest.raises(ValueError, match=message):
        call(place(np.ones((4, 4), "f4")))


def test_transposes_are_views(place, rng):
    x = whole(rng, (2, 3, 4))
    here = place(x)
    calls = [("matrix_transpose", ()), ("transpose", ()), ("transpose", ((2, 0, 1),)),
             ("transpose", ((-1, 0, 1),))]  # fmt: skip
    for name, arguments in calls:
        got = getattr(clmatmul, name)(here, *arguments)
        want = getattr(np, name)(x, *arguments)
        assert tuple(got.shape) == want.shape and tuple(got.strides) == want.strides
        memory = [getattr(y, "cl", y) for y in (here, got)]
        if isinstance(memory[0], np.ndarray):
            assert np.shares_memory(*memory)
        else:
            assert memory[0].base_data is memory[1].base_data


# ---- tensordot ------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes, axes", [
    (((2, 3, 4), (3, 4, 5)), 2), (((2, 3), (3, 4)), 1), (((2, 3), (4, 5)), 0),
    (((2, 3, 4), (4, 3, 5)), ([1, 2], [1, 0])), (((2, 3, 4), (4, 3, 5)), ([2, 1], [0, 1])),
    (((2, 3), (3, 2)), ([-1, 0], [0, -1])), (((3, 4), (4, 5)), (1, 0)),
    (((2, 3, 4), (3, 5)), ([1], [0])), (((2, 0), (0, 3)), 1), (((), ()), 0), (((3,), ()), 0),
    (((2, 3, 2, 2), (2, 2, 3)), ([0, 1], [1, 2])), (((0, 3), (3, 2)), 1),
])  # fmt: skip
def test_tensordot(place, rng, shapes, axes):
    same_as_numpy(place, "tensordot", whole(rng, shapes[0]), whole(rng, shapes[1]), axes=axes)


@pytest.mark.parametrize("axes", [
    3, -1, ([1, 1], [0, 0]), ([0], [0]), ([0, 1], [1]), ([2], [0]), "ab", ([1], [0], [0]),
])  # fmt: skip
def test_tensordot_axes_refused(place, axes):
    with pytest.raises(ValueError):
        clmatmul.tensordot(place(np.ones((2, 3), "f4")), place(np.ones((3, 4), "f4")), axes=axes)


def test_nothing_is_copied_where_strides_allow(monkeypatch, place, rng):
    """Transposed operands and sums over several dimensions are views."""

    def copied(self, x, *more):
        raise AssertionError(f"copied {x.shape} {x.strides}")

    monkeypatch.setattr(products.Place, "copied", copied)
    a, b, c = whole(rng, (4, 5, 3, 2)), whole(rng, (3, 2, 7)), whole(rng, (7, 3, 2))
    here, there = place(a), clmatmul.transpose(place(c))
    for first, second, axes in (
        (here, place(b), ([2, 3], [0, 1])), (here, place(b), ([3, 2], [1, 0])),
        (here, there, ([2, 3], [1, 0])), (there, here, ([0, 1], [3, 2])),
    ):  # fmt: skip
        want = np.tensordot(on_host(first), on_host(second), axes)
        assert np.array_equal(on_host(clmatmul.tensordot(first, second, axes)), want)


# ---- einsum and multi_dot -------------------------------------------------------------------

EQUATIONS = {
    "ij,jk->ik": [(2, 3), (3, 4)], "ij,jk": [(2, 3), (3, 4)], "ji,jk": [(3, 2), (3, 4)],
    "ii->i": [(3, 3)], "ii": [(3, 3)], "ij->": [(3, 4)], "ij->j": [(3, 4)], "iij->j": [(2, 2, 3)],
    "iii->i": [(2, 2, 2)], "ij,ij->ij": [(3, 4)] * 2, "bij,bjk->bik": [(5, 2, 3), (5, 3, 4)],
    "...ij,...jk->...ik": [(5, 2, 3), (3, 4)], "i,j,k->kji": [(2,), (3,), (4,)],
    "ij,jk,kl,lm->im": [(2, 3), (3, 4), (4, 5), (5, 6)], "iij,jk->ki": [(2, 2, 3), (3, 4)],
    "ij,kl->i": [(2, 3), (4, 5)], "ijk->kij": [(2, 3, 4)], "i,i->": [(4,)] * 2,
    "ab,bc,ca->": [(2, 3), (3, 4), (4, 2)], "...,...->...": [(2, 3), (3,)], "i...->...": [(2, 3)],
    "ij,j->i": [(2, 1), (3,)], "bi,bi,bi->b": [(3, 4)] * 3, "ij,ij->ji": [(1, 3), (2, 3)],
    "Ab,bA->": [(2, 3), (3, 2)], " i j , j ": [(2, 3), (3,)], "ij,jk->ki": [(0, 3), (3, 2)],
    "ij,jk->ik ": [(2, 0), (0, 2)], ",i->i": [(), (3,)],
}  # fmt: skip


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(place, rng, equation):
    arrays = [whole(rng, shape) for shape in EQUATIONS[equation]]
    same_as_numpy(place, "einsum", equation, *arrays)


@pytest.mark.parametrize("optimize", [False, "greedy", "optimal", ["einsum_path", (1, 2), (0, 1)],
                                      ["einsum_path", (0, 1, 2)]])  # fmt: skip
def test_einsum_in_any_order(rng, optimize):
    arrays = [whole(rng, x) for x in ((2, 3), (3, 4), (4, 2))]
    want = np.einsum("ij,jk,kl->il", *arrays)
    assert np.array_equal(clmatmul.einsum("ij,jk,kl->il", *arrays, optimize=optimize), want)


@pytest.mark.parametrize("installed", [True, False])
def test_the_order_is_the_cheap_one(monkeypatch, rng, installed):
    """Matrix times matrix times vector is done from the right, with opt_einsum and without."""
    if installed:
        pytest.importorskip("opt_einsum")
    found = importlib.util.find_spec("opt_einsum") if installed else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    sizes = []

    def counted(place, a, a_labels, b, b_labels, *more):
        sizes.append(math.prod({**dict(zip(a_labels, a.shape, strict=True)),
                                **dict(zip(b_labels, b.shape, strict=True))}.values()))  # fmt: skip
        return products.pair(place, a, a_labels, b, b_labels, *more)

    monkeypatch.setattr(contraction, "pair", counted)
    a, b, x = whole(rng, (20, 30)), whole(rng, (30, 40)), whole(rng, (40,))
    assert np.array_equal(clmatmul.einsum("ij,jk,k->i", a, b, x), a @ b @ x)
    assert sizes == [30 * 40, 20 * 30]


def test_einsum_from_lists(rng):
    a, b = whole(rng, (2, 3)), whole(rng, (3, 4))
    assert np.array_equal(clmatmul.einsum(a, [0, 1], b, [1, 51], [51, 0]), (a @ b).T)
    assert np.array_equal(clmatmul.einsum(a, [1, 0]), a.T)
    assert np.array_equal(clmatmul.einsum(a, [Ellipsis, 1], b, [1, 2], [Ellipsis, 2]), a @ b)


def test_einsum_of_one_array_is_a_view(place, rng):
    x = whole(rng, (3, 3))
    here = place(x)
    for equation in ("ij->ji", "ii->i"):
        got = clmatmul.einsum(equation, here)
        memory = [getattr(y, "cl", y) for y in (here, got)]
        if isinstance(memory[0], np.ndarray):
            assert np.shares_memory(*memory) and got.flags.writeable
        else:
            assert memory[0].base_data is memory[1].base_data


def test_results_of_einsum_are_contiguous(place, rng):
    """So that a pyopencl array can be read with .get(); where strides allow, without a copy."""
    for equation, shapes in {"bij,bjk->kbi": [(5, 2, 3), (5, 3, 4)],
                             "ij,jk->ki": [(2, 3), (3, 4)],
                             "iaj,jbk->kbai": [(2, 2, 3), (3, 4, 2)]}.items():  # fmt: skip
        arrays = [whole(rng, x) for x in shapes]
        got = clmatmul.einsum(equation, *(place(x) for x in arrays))
        want = np.einsum(equation, *arrays)
        assert tuple(got.strides) == np.ascontiguousarray(want).strides
        assert np.array_equal(on_host(got), want)


def test_einsum_computes_in_the_common_dtype(place, rng):
    """int8 times int8 does not wrap on the way to a float32 result."""
    a, b = np.full((1, 2), 100, "i1"), np.full((2, 1), 100, "i1")
    c = np.full((1, 1), 0.5, "f4")
    got = clmatmul.einsum("ij,jk,kl->il", place(a), place(b), place(c), optimize=False)
    assert got.dtype == np.float32 and on_host(got)[0, 0] == 10000


def test_einsum_dtype_out_and_order(place, rng):
    a, b = whole(rng, (2, 3)), whole(rng, (3, 4))
    got = clmatmul.einsum("ij,jk->ik", place(a), place(b), dtype="f8")
    assert got.dtype == np.float64 and np.array_equal(on_host(got), a @ b)
    out = place(np.full((4, 2), np.nan, "f4"))
    assert clmatmul.einsum("ij,jk->ki", place(a), place(b), out=out) is out
    assert np.array_equal(on_host(out), (a @ b).T)
    got = clmatmul.einsum("ij->ij", place(a), order="F")
    assert tuple(got.strides) == (4, 8) and np.array_equal(on_host(got), a)
    with pytest.raises(TypeError, match="cannot cast"):
        clmatmul.einsum("ij->ij", place(a), dtype="i4")


@pytest.mark.parametrize("arguments, error, message", [
    ((), ValueError, "needs subscripts"),
    (("ij,jk->ik", 1), ValueError, "2 terms"),
    (("ij", (2,)), ValueError, "does not fit"),
    (("ijk...", (2, 2)), ValueError, "does not fit|more labels"),
    (("i%", (2, 2)), ValueError, "no labels"),
    (("i->ij", (2,)), ValueError, "each once"),
    (("ij->ii", (2, 2)), ValueError, "each once"),
    (("ii->i", (2, 3)), ValueError, "collapses label 'i'"),
    (("ij,jk->ik", (2, 3), (4, 5)), ValueError, "label 'j' stands for 3 and for 4"),
    (("..", (2, 2)), ValueError, "no labels"),
    (("ij", (2, 2), {"order": "X"}), ValueError, "order='X'"),
    (("ij,jk,kl", (2, 2), (2, 2), (2, 2), {"optimize": [(0, 1)]}), ValueError, "leaves 2 terms"),
])  # fmt: skip
def test_einsum_refused(arguments, error, message):
    keywords = arguments[-1] if arguments and isinstance(arguments[-1], dict) else {}
    arguments = arguments[: len(arguments) - bool(keywords)]
    arrays = [np.ones(x, "f4") if isinstance(x, tuple) else x for x in arguments[1:]]
    with pytest.raises(error, match=message):
        clmatmul.einsum(*arguments[:1], *arrays, **keywords)


@pytest.mark.parametrize("operands, error", [
    ((np.ones(2), [52]), ValueError), ((np.ones(2), [-1]), ValueError), ((0, 0), TypeError),
])  # fmt: skip
def test_einsum_lists_refused(operands, error):
    with pytest.raises(error):
        clmatmul.einsum(*operands)


@pytest.mark.parametrize("shapes", [
    ((2, 3), (3, 4)), ((20, 3), (3, 30), (30, 4)), ((3,), (3, 4), (4, 5)), ((2, 3), (3, 4), (4,)),
    ((4,), (4, 4), (4, 4), (4,)), ((10, 2), (2, 10), (10, 2), (2, 10), (10, 1)),
])  # fmt: skip
def test_multi_dot(place, rng, shapes):
    arrays = [whole(rng, x) for x in shapes]
    want = np.linalg.multi_dot(arrays)
    got = clmatmul.multi_dot([place(x) for x in arrays])
    assert tuple(got.shape) == np.shape(want) and np.array_equal(on_host(got), want)
    if np.ndim(want):
        out = place(np.full_like(want, np.nan))
        assert clmatmul.multi_dot([place(x) for x in arrays], out=out) is out
        assert np.array_equal(on_host(out), want)


def cheapest(sizes):
    """The fewest multiplications of a chain, by trying every order."""
    if len(sizes) == 2:
        return 0
    return min(
        cheapest(sizes[: i + 1]) + cheapest(sizes[i:]) + sizes[0] * sizes[i] * sizes[-1]
        for i in range(1, len(sizes) - 1)
    )


def cost(splits, sizes, i, j):
    if i == j:
        return 0
    s = splits[i][j]
    here = sizes[i] * sizes[s + 1] * sizes[j + 1]
    return cost(splits, sizes, i, s) + cost(splits, sizes, s + 1, j) + here


def test_the_best_order_of_a_chain(rng):
    for sizes in itertools.product((1, 3, 20), repeat=6):
        splits = contraction.best_splits(list(sizes))
        assert cost(splits, sizes, 0, len(sizes) - 2) == cheapest(sizes)


@pytest.mark.parametrize("shapes", [((2, 3),), ((2, 3), (3, 4, 1)), ((2, 3), (3,), (3, 2)),
                                    ((2, 3), (4, 2))])  # fmt: skip
def test_multi_dot_refused(shapes):
    with pytest.raises(ValueError, match="multi_dot"):
        clmatmul.multi_dot([np.ones(x, "f4") for x in shapes])


# ---- around them ----------------------------------------------------------------------------


def test_opt_einsum_takes_this_as_its_backend(place, rng):
    opt_einsum = pytest.importorskip("opt_einsum")
    shapes = {
        "ij,jk,kl->il": [(2, 3), (3, 4), (4, 5)], "ab,ab,c->c": [(2, 3), (2, 3), (4,)],
        "abi,abj,c->ijc": [(2, 3, 4)] * 2 + [(5,)], "abc,bad->cd": [(2, 3, 4), (3, 2, 5)],
    }  # fmt: skip
    for equation, sizes in shapes.items():
        arrays = [whole(rng, x) for x in sizes]
        got = opt_einsum.contract(equation, *(place(x) for x in arrays), backend="clmatmul")
        assert type(got) is type(place(arrays[0]))
        assert np.array_equal(on_host(got), np.einsum(equation, *arrays))


@pytest.mark.parametrize("dtype", ["g", "O"])
def test_numpy_computes_what_no_device_has(rng, dtype):
    a = whole(rng, (3, 3)).astype(dtype)
    for name in ("dot", "tensordot", "vdot"):
        assert np.array_equal(getattr(clmatmul, name)(a, a), getattr(np, name)(a, a))
    assert np.array_equal(clmatmul.einsum("ij,jk->ki", a, a), np.dot(a, a).T)
    assert np.array_equal(clmatmul.multi_dot([a, a, a]), a.dot(a).dot(a))
    assert np.array_equal(clmatmul.vecdot(a, a), (a * a).sum(-1))


@pytest.mark.parametrize("name", ["dot", "tensordot", "vdot", "vecdot", "matvec"])
def test_strings_and_masks_are_refused(name):
    function = getattr(clmatmul, name)
    with pytest.raises(TypeError):
        function(np.array([["a"]]), np.array([["a"]]))
    with pytest.raises(TypeError, match="masked"):
        function(np.ma.ones((2, 2)), np.ones((2, 2)))


def test_lists_are_taken():
    assert clmatmul.dot([1, 2], [3, 4]) == 11
    assert np.array_equal(clmatmul.einsum("i,j->ij", [1, 2], [3, 4]), [[3, 4], [6, 8]])


def test_the_queue_and_events_are_passed_on(device, rng):
    """A product of host arrays on a given queue; one that waits for a user's event."""
    queue = cl.CommandQueue(device.context, device.cl_device)
    gate = cl.UserEvent(device.context)
    a, b = (cl_array.to_device(queue, whole(rng, (3, 3))) for _ in "ab")
    got = clmatmul.tensordot(a, b, 1, queue=queue, wait_for=[gate])
    assert got.queue == queue and not any(devices.is_complete(x) for x in got.events)
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert np.array_equal(got.get(), a.get() @ b.get())


# ---- views ----------------------------------------------------------------------------------


def test_views_of_device_memory_are_numpys(device, rng):
    queue = device.queue()
    x = whole(rng, (4, 6, 5))
    here = cl_array.to_device(queue, x)
    keys = [
        0, -1, (1, 2), (1, 2, 3), slice(1, 3), (..., slice(None, None, -2)), (None, 2),
        (slice(3, None, -1), ..., None), (slice(2, 2),), (np.int64(1), slice(-2, None)),
    ]  # fmt: skip
    for key in keys:
        got, want = views.indexed(here, key), x[key]
        assert tuple(got.shape) == np.shape(want), key
        assert np.array_equal(clmatmul.scale(True, got).get(), want), key
    for shape in ((24, 5), (4, 30), (2, 2, 6, 5), (120,), (4, 6, 1, 5)):
        assert np.array_equal(views.reshaped(here, shape).get(), x.reshape(shape))
    assert views.reshaped(views.turned(here), (20, 6)) is None
    assert views.repeated(views.indexed(here, 0), (3, 6, 5)).strides == (0, 20, 4)


@pytest.mark.parametrize("key", [[0, 1], True, np.array([1]), (0, [1]), 1.5, "a"])
def test_other_indices_are_refused(device, key):
    with pytest.raises(ValueError, match="whole numbers, slices"):
        views.indexed(cl_array.zeros(device.queue(), (3, 3), "f4"), key)
    with pytest.raises(IndexError):
        views.indexed(cl_array.zeros(device.queue(), (3, 3), "f4"), 3)
