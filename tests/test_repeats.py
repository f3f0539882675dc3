"""Repeated products: the short way gives what the long way gives, or stands aside."""

from dataclasses import replace

import numpy as np
import pytest

import clmatmul
from clmatmul import repeats, walk


@pytest.fixture(autouse=True)
def fresh():
    repeats.forget()
    yield
    repeats.forget()


def matrices(rng, *shapes, dtype="f4"):
    return [rng.integers(-4, 5, s).astype(dtype) for s in shapes]


def twice(a, b, **keywords):
    """The product by the long way and by the short one, which must be one."""
    first = clmatmul.matmul(a, b, **keywords)
    second = clmatmul.matmul(a, b, **keywords)
    assert np.array_equal(first, second) and type(first) is type(second)
    return second


@pytest.mark.parametrize("shapes", [
    ((7, 9), (9, 5)), ((9,), (9, 5)), ((7, 9), (9,)), ((9,), (9,)), ((3, 7, 9), (9, 5)),
    ((4, 1, 7, 9), (3, 9, 5)),
])  # fmt: skip
def test_repeats_are_right(rng, device, shapes):
    a, b = matrices(rng, *shapes)
    assert np.array_equal(twice(a, b), a @ b)
    if device.has_host_memory:
        assert repeats.recall(device, a, b) is not None
    c, d = matrices(rng, *shapes)  # other data of the same form
    assert np.array_equal(clmatmul.matmul(c, d), c @ d)


def test_views_and_transposes_repeat(rng):
    a, b = matrices(rng, (20, 30), (30, 20))
    for x, y in ((a.T, b.T), (a[::2, ::-1], b[:, ::3]), (a[:, 4:], b[4:]), (a, a.T), (a.T, a)):
        assert np.array_equal(twice(x, y), x @ y)


def test_the_same_array_twice(rng):
    (a,) = matrices(rng, (12, 12))
    assert np.array_equal(twice(a, a), a @ a)


def test_out_is_filled_or_the_long_way_taken(rng):
    a, b = matrices(rng, (6, 8), (8, 4))
    clmatmul.matmul(a, b)
    for out in (np.empty((6, 4), "f4"), np.empty((6, 4), "f8"), np.empty((4, 6), "f4").T,
                np.empty((2, 6, 4), "f4")):  # fmt: skip
        assert clmatmul.matmul(a, b, out=out) is out
        assert np.array_equal(out, np.broadcast_to(a @ b, out.shape))


def test_overlapping_memory_takes_the_long_way(rng):
    (a,) = matrices(rng, (9, 9), dtype="f8")
    clmatmul.matmul(a, a)
    expected = a @ a
    assert np.array_equal(clmatmul.matmul(a, a, out=a), expected)
    memory = rng.integers(-3, 4, 100).astype("f4")
    x, y = memory[:64].reshape(8, 8), memory[4:68].reshape(8, 8)
    assert np.array_equal(twice(x, y), x @ y)


def test_a_read_only_output_is_still_refused(rng):
    a, b = matrices(rng, (3, 3), (3, 3))
    clmatmul.matmul(a, b)
    out = np.empty((3, 3), "f4")
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        clmatmul.matmul(a, b, out=out)


def test_subclasses_byte_orders_and_misaligned_arrays_are_not_remembered(rng, device):
    a, b = matrices(rng, (4, 4), (4, 4))
    masked = np.ma.masked_array(a, mask=a > 0)
    swapped = a.astype(">f4")
    misaligned = np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view("f4").reshape(4, 4)
    for x in (masked, swapped, misaligned):
        assert repeats.signature(x) is None
    assert np.array_equal(twice(swapped, b), a @ b)
    assert np.array_equal(twice(misaligned, b), a @ b)


def test_products_without_terms_are_not_remembered(device):
    a, b = np.empty((3, 0), "f4"), np.empty((0, 2), "f4")
    assert np.array_equal(twice(a, b), np.zeros((3, 2), "f4"))
    assert repeats.recall(device, a, b) is None


def test_forgetting_routes_forgets_recipes(rng, device):
    a, b = matrices(rng, (5, 5), (5, 5))
    clmatmul.matmul(a, b)
    walk.forget()
    assert repeats.recall(device, a, b) is None


def test_the_number_of_recipes_is_bounded(monkeypatch, rng):
    monkeypatch.setattr(repeats, "_MAX_RECIPES", 3)
    for n in range(2, 9):
        clmatmul.matmul(np.ones((n, n), "f4"), np.ones((n, n), "f4"))
    assert len(repeats._recipes) <= 3


def test_a_prepared_product_repeats_and_refuses_other_forms(rng):
    a, b = matrices(rng, (6, 8), (8, 4))
    plan = clmatmul.MatMul(a, b)
    c, d = matrices(rng, (6, 8), (8, 4))
    out = np.empty((6, 4), "f4")
    assert np.array_equal(plan(c, d), c @ d)
    assert plan(c, d, out=out) is out and np.array_equal(out, c @ d)
    with pytest.raises(clmatmul.ShapeError):
        plan(a[:5], b)
    scaled = clmatmul.MatMul(a, b, alpha=2)
    assert np.array_equal(scaled(c, d), 2 * (c @ d))
    nothing = clmatmul.MatMul(a, b, alpha=0)
    assert np.array_equal(nothing(np.full_like(c, np.nan), d), np.zeros((6, 4), "f4"))


def test_what_is_copied_for_its_strides_is_not_remembered(rng, device):
    """complex64 elements 12 bytes apart: aligned, as NumPy has it, but no whole elements apart."""
    records = np.zeros((4, 5), np.dtype([("z", "c8"), ("other", "f4")]))
    records["z"] = rng.integers(-4, 5, (4, 5)) + 1j * rng.integers(-4, 5, (4, 5))
    a, b = records["z"], rng.integers(-4, 5, (5, 3)).astype("c8")
    assert a.flags.aligned and a.strides[1] == 12
    expected = a @ b
    assert all(np.array_equal(clmatmul.matmul(a, b), expected) for _ in range(3))
    assert np.array_equal(clmatmul.matmul(b.T, a.T), expected.T)
    assert np.array_equal(clmatmul.matmul(b.T, a.T), expected.T)
    assert repeats.recall(device, a, b) is None
    plan = clmatmul.MatMul(a, b)
    assert np.array_equal(plan(a, b), expected)


def test_what_is_copied_because_it_overlaps_is_not_remembered(rng, device):
    """Views of one memory half an element apart; later ones of the same form are apart."""
    memory = rng.integers(-4, 5, 201).astype("f4")
    x = memory[:200].view("c8").reshape(10, 10)[:, ::2]
    y = memory[1:].view("c8").reshape(10, 10)[:5, ::2]
    expected = x @ y
    assert all(np.array_equal(clmatmul.matmul(x, y), expected) for _ in range(2))
    wide = (rng.integers(-4, 5, (2, 10, 10)) + 1j).astype("c8")
    c, d = wide[0][:, ::2], wide[1][:5, ::2]
    assert c.strides == x.strides and d.strides == y.strides
    assert np.array_equal(clmatmul.matmul(c, d), c @ d)


def test_what_is_copied_for_its_size_is_not_remembered(rng, device, monkeypatch):
    """An operand whose span is more than one allocation may have is packed."""
    if not device.has_host_memory:
        pytest.skip("operands are copied in any case")
    small = replace(device.profile, max_alloc_bytes=4096)
    monkeypatch.setitem(device.__dict__, "profile", small)
    wide = rng.integers(-4, 5, (8, 1000)).astype("f4")
    a, b = wide[:, ::200], rng.integers(-4, 5, (5, 3)).astype("f4")
    assert all(np.array_equal(clmatmul.matmul(a, b), a @ b) for _ in range(3))
