"""Launches kept for NumPy arrays by their addresses: whatever lies there is what is multiplied."""

import mmap

import numpy as np
import pytest
from conftest import in_threads

import clmatmul
from clmatmul import host_launches, repeats


@pytest.fixture(autouse=True)
def fresh(device):
    if not device.works_in_place:
        pytest.skip(f"{device.profile.title} may keep copies of host memory")
    repeats.forget()
    yield
    repeats.forget()


def matrices(rng, *shapes):
    return [rng.integers(-4, 5, s).astype("f4") for s in shapes]


def kept(plan):
    return plan._recipe.launches._kept


def used(monkeypatch):
    """A list that grows with each use of a kept launch."""
    uses, call = [], host_launches._Launch.__call__
    monkeypatch.setattr(host_launches._Launch, "__call__", lambda x: uses.append(x) or call(x))
    return uses


def test_new_values_in_the_same_arrays(rng, monkeypatch):
    a, b = matrices(rng, (20, 30), (30, 10))
    out = np.empty((20, 10), "f4")
    plan = clmatmul.MatMul(a, b)
    uses = used(monkeypatch)
    for count in range(5):
        a[:], b[:] = matrices(rng, a.shape, b.shape)
        out.fill(np.nan)
        assert plan(a, b, out) is out
        assert np.array_equal(out, a @ b)
        assert len(uses) == max(0, count - 1)  # the third call is the first by a kept launch


def test_matmul_keeps_launches_too(rng, monkeypatch):
    a, b = matrices(rng, (7, 9), (9, 5))
    out = np.empty((7, 5), "f4")
    uses = used(monkeypatch)
    for _ in range(6):
        a[:], b[:] = matrices(rng, a.shape, b.shape)
        assert np.array_equal(clmatmul.matmul(a, b, out=out), a @ b)
    assert uses


def test_other_arrays_that_come_to_lie_there(rng, monkeypatch):
    memory = np.empty((2, 16, 16), "f4")
    out = np.empty((16, 16), "f4")
    plan = clmatmul.MatMul(memory[0], memory[1])
    uses = used(monkeypatch)
    for _ in range(4):
        memory[:] = rng.integers(-4, 5, memory.shape)
        assert np.array_equal(plan(memory[0], memory[1], out), memory[0] @ memory[1])
    assert uses
    # another strides and shape at the same addresses is another product
    a, b = memory[0, :8, :8], memory[1, :8, :8]
    assert np.array_equal(clmatmul.matmul(a, b), a @ b)


def test_memory_that_is_gone_is_not_touched(rng):
    shape, size = (16, 16), 16 * 16 * 4
    plan = None
    for _ in range(3):
        pages = [mmap.mmap(-1, mmap.PAGESIZE) for _ in range(3)]
        a, b, out = (np.frombuffer(x, "f4", size // 4).reshape(shape) for x in pages)
        for _ in range(4):
            a[:], b[:] = matrices(rng, shape, shape)
            plan = plan or clmatmul.MatMul(a, b)
            assert np.array_equal(plan(a, b, out), a @ b)
        assert kept(plan)
        del a, b, out
        for x in pages:
            x.close()  # unmapped: to touch it now would end the process
    del plan
    repeats.forget()


def test_epilogue_arrays_and_swapped_products(rng, monkeypatch):
    a, b = matrices(rng, (12, 40), (40, 1))
    bias = rng.integers(-4, 5, 1).astype("f4")
    plan = clmatmul.MatMul(a, b, epilogue=clmatmul.Epilogue(bias=bias, activation="relu"))
    out = np.empty((12, 1), "f4")
    uses = used(monkeypatch)
    for _ in range(5):
        a[:], b[:] = matrices(rng, a.shape, b.shape)
        bias[:] = rng.integers(-4, 5, 1)
        assert np.array_equal(plan(a, b, out), np.maximum(a @ b + bias, 0))
    assert uses


def test_every_thread_has_its_own(rng):
    a, b = matrices(rng, (30, 30), (30, 30))
    plan = clmatmul.MatMul(a, b)
    expected, wrong = a @ b, []

    def work():
        out = np.empty((30, 30), "f4")
        for _ in range(50):
            out.fill(np.nan)
            if not np.array_equal(plan(a, b, out), expected):
                wrong.append(1)

    in_threads(work, 4)
    assert not wrong
    queues = {key[0] for key in kept(plan)}
    assert len(queues) >= 2


def test_their_number_is_bounded(rng):
    a, b = matrices(rng, (6, 6), (6, 6))
    plan = clmatmul.MatMul(a, b)
    outs = [np.empty((6, 6), "f4") for _ in range(host_launches._MOST + 20)]
    for out in outs:
        for _ in range(3):
            plan(a, b, out)
    assert 0 < len(kept(plan)) <= host_launches._MOST


def test_large_workspaces_are_not_kept(rng, device):
    a, b = matrices(rng, (900, 900), (900, 900))
    plan = clmatmul.MatMul(a, b)
    assert plan.workspace_bytes > host_launches._MOST_WORKSPACE
    out = np.empty((900, 900), "f4")
    for _ in range(3):
        plan(a, b, out)
    assert not kept(plan)


def test_a_result_in_place_is_waited_for_without_an_event(rng, device):
    a, b = matrices(rng, (300, 300), (300, 300))
    executable = clmatmul.MatMul(a, b)._route.executable
    out = np.full((300, 300), np.nan, "f4")
    operands = {
        name: (device.wrap(x.ctypes.data, x.nbytes, name == "out"), 0)
        for name, x in (("a", a), ("b", b), ("out", out))
    }
    queue = device.queue()
    _event, keep = executable(queue, operands)
    device.synchronize_host(queue, operands["out"][0], out.nbytes)
    assert np.array_equal(out, a @ b)
    del keep
