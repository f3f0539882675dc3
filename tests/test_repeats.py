"""Repeated products: the short way gives what the long way gives, or stands aside."""

from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clmatmul
from clmatmul import api, calls, repeats, walk


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


def test_a_first_call_with_an_output_is_remembered_if_the_output_is_usual(rng, device):
    if not device.has_host_memory:
        pytest.skip(f"{device.profile.title} copies host arrays")
    a, b = matrices(rng, (6, 8), (8, 4))
    for out in (np.empty((6, 4), "f8"), np.empty((4, 6), "f4").T, np.empty((2, 6, 4), "f4")):
        clmatmul.matmul(a, b, out=out)
        assert repeats.recall(device, a, b) is None
    assert clmatmul.matmul(a, b).dtype == np.float32
    repeats.forget()
    out = np.empty((6, 4), "f4")
    clmatmul.matmul(a, b, out=out)
    assert repeats.recall(device, a, b) is not None
    assert np.array_equal(twice(a, b), a @ b) and np.array_equal(out, a @ b)


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


# ---- pyopencl arrays ------------------------------------------------------------------------


@pytest.fixture
def queue(device):
    return device.queue()


@pytest.fixture
def no_long_way(monkeypatch):
    """A function after whose call a product that is not a repeat fails."""

    def forbid():
        def long_way(*args, **keywords):
            raise AssertionError("this product took the long way")

        monkeypatch.setattr(calls, "prepare", long_way)
        monkeypatch.setattr(api, "prepare", long_way)

    return forbid


def test_device_arrays_repeat(rng, queue, no_long_way):
    a, b = matrices(rng, (7, 9), (9, 5))
    x, y = cl_array.to_device(queue, a), cl_array.to_device(queue, b)
    first = clmatmul.matmul(x, y)
    no_long_way()
    second = clmatmul.matmul(x, y)
    assert second is not first and np.array_equal(second.get(), a @ b)
    out = cl_array.zeros(queue, (7, 5), "f4")
    assert clmatmul.matmul(x, y, out=out) is out and np.array_equal(out.get(), a @ b)
    assert out.events and second.events
    c, d = matrices(rng, (7, 9), (9, 5))
    again = clmatmul.matmul(cl_array.to_device(queue, c), cl_array.to_device(queue, d))
    assert np.array_equal(again.get(), c @ d)


@pytest.mark.parametrize("keywords", [{}, {"alpha": 3}, {"transpose_a": True}])
def test_a_prepared_product_of_device_arrays_repeats(rng, queue, no_long_way, keywords):
    shape = (9, 7) if "transpose_a" in keywords else (7, 9)
    a, b = matrices(rng, shape, (9, 5))
    x, y = cl_array.to_device(queue, a), cl_array.to_device(queue, b)
    out = cl_array.zeros(queue, (7, 5), "f4")
    plan = clmatmul.MatMul(x, y, out, **keywords)
    expected = plan(x, y).get()
    no_long_way()
    assert np.array_equal(plan(x, y).get(), expected)
    assert plan(x, y, out) is out and np.array_equal(out.get(), expected)


def test_a_repeat_waits_for_what_its_arrays_wait_for(rng, queue, device):
    """The operands are still being written, on another queue, when the repeat is asked for."""
    a, b = matrices(rng, (40, 40), (40, 40))
    other = cl.CommandQueue(queue.context)
    x, y = cl_array.to_device(queue, a), cl_array.to_device(queue, b)
    clmatmul.matmul(x, y)
    gate = cl.UserEvent(queue.context)
    late = cl.enqueue_copy(other, x.base_data, 2 * a, is_blocking=False, wait_for=[gate])
    x.events.append(late)
    product = clmatmul.matmul(x, y)
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert np.array_equal(product.get(), 2 * a @ b)


def test_device_arrays_of_other_forms_take_the_long_way(rng, queue):
    a, b = matrices(rng, (8, 8), (8, 8))
    x, y = cl_array.to_device(queue, a), cl_array.to_device(queue, b)
    clmatmul.matmul(x, y)
    assert clmatmul.matmul(x, y, out=x) is x and np.array_equal(x.get(), a @ b)  # overlaps
    x = cl_array.to_device(queue, a)
    turned = cl_array.zeros(queue, (8, 8), "f4", order="F")
    assert np.array_equal(clmatmul.matmul(x, y, out=turned).get(), a @ b)
    wide = cl_array.to_device(queue, np.concatenate([0 * a, a]))
    assert np.array_equal(clmatmul.matmul(wide[8:], y).get(), a @ b)
    assert np.array_equal(clmatmul.matmul(wide[8:], y).get(), a @ b)
    assert np.array_equal(
        clmatmul.matmul(wide[4:12], y).get(), np.concatenate([0 * a, a])[4:12] @ b
    )
    plan = clmatmul.MatMul(x, y)
    assert np.array_equal(plan(x, y).get(), a @ b)
    assert np.array_equal(np.asarray(clmatmul.matmul(a, b)), a @ b)
    context = cl.Context([queue.device])  # a queue of Intel's does not keep its own
    other = cl.CommandQueue(context)
    there = cl_array.to_device(other, a), cl_array.to_device(other, b)
    assert np.array_equal(clmatmul.matmul(*there).get(), a @ b)
    with pytest.raises(clmatmul.DeviceError):
        clmatmul.matmul(x, there[1])


def test_a_plan_for_device_arrays_takes_no_host_arrays_of_the_same_form(rng, queue):
    a, b = matrices(rng, (8, 8), (8, 8))
    x, y = cl_array.to_device(queue, a), cl_array.to_device(queue, b)
    plan = clmatmul.MatMul(x, y)
    assert np.array_equal(np.asarray(plan(a, b)), a @ b)
    host = clmatmul.MatMul(a, b)
    assert np.array_equal(host(x, y).get(), a @ b)
