"""Large arrays through pinned memory: every byte arrives, whatever the size and the order."""

import threading

import numpy as np
import pyopencl as cl
import pytest
from conftest import in_threads

from clmatmul import Epilogue, gemm, matmul, row_blocks, staging
from clmatmul import device as devices
from clmatmul.staging import SLOTS, Staging, fetch, send


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 4 KiB, so that small arrays need many, and every slot more than once."""
    monkeypatch.setattr(staging, "CHUNK_BYTES", 4096)
    monkeypatch.setattr(staging, "LEAST_BYTES", 1)


@pytest.fixture
def apart(monkeypatch):
    """A device whose memory is not the host's."""
    monkeypatch.setattr(devices.Device, "has_host_memory", property(lambda self: False))
    monkeypatch.setattr(staging, "is_staged", lambda device, memory: memory.nbytes > 0)


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 4096 * SLOTS, 4096 * (3 * SLOTS + 1) + 5])
def test_there_and_back(device, small_chunks, rng, size):
    memory = rng.integers(0, 256, size, dtype=np.uint8)
    queue = device.queue()
    buffer = device.allocate(size)
    slots = Staging(device)
    slots.send(queue, memory, buffer)
    plain = np.empty_like(memory)
    device.read(queue, buffer, plain)
    assert np.array_equal(plain, memory)
    back = np.zeros_like(memory)
    slots.fetch(queue, buffer, back)
    assert np.array_equal(back, memory)


def test_only_large_arrays_of_other_memory_are_staged(device, rng, monkeypatch):
    used = []
    monkeypatch.setattr(staging, "_staging_of", lambda device: used.append(device))
    small = rng.integers(0, 256, 1000, dtype=np.uint8)
    queue = device.queue()
    back = np.empty_like(small)
    fetch(device, queue, send(device, queue, small), back)
    assert np.array_equal(back, small) and not used


def test_slots_are_kept_and_bounded(device, small_chunks, rng):
    slots = Staging(device)
    queue = device.queue()
    for size in (5000, 200_000):
        slots.send(queue, rng.integers(0, 256, size, dtype=np.uint8), device.allocate(size))
    first = slots._slots
    slots.send(queue, np.zeros(100, np.uint8), device.allocate(100))
    assert slots._slots is first
    assert sum(x.nbytes for x in first) == SLOTS * 4096


def test_products_of_arrays_apart(apart, small_chunks, rng):
    """Through `matmul`: transposed, strided and reversed operands, and a given output."""
    a = rng.standard_normal((300, 200)).astype(np.float32)
    b = rng.standard_normal((200, 150)).astype(np.float32)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for x, y in ((a, b), (a.T.copy().T, b), (a, b[::-1].copy()[::-1]), (a, b.T.copy().T)):
        np.testing.assert_allclose(matmul(x, y), expected, rtol=1e-4, atol=1e-3)
    out = np.empty((300, 150), np.float32)
    assert matmul(a, b, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-3)


def test_threads_share_the_slots(device, apart, small_chunks, rng):
    a, b = (rng.standard_normal((120, 120)).astype(np.float32) for _ in range(2))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    faults = []

    def work():
        for _ in range(3):
            if not np.allclose(matmul(a, b), expected, rtol=1e-4, atol=1e-3):
                faults.append("wrong")

    in_threads(work, 4)
    assert not faults


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 8 rows or a multiple, for matrices of any size."""
    monkeypatch.setattr(row_blocks, "_LEAST_BYTES", 1)
    monkeypatch.setattr(row_blocks, "_ROWS", 8)


@pytest.mark.parametrize("m, k, n", [(64, 40, 30), (67, 33, 21), (100, 17, 64), (9, 8, 8)])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int8"])
def test_blocks_of_rows(apart, small_chunks, small_blocks, rng, monkeypatch, m, k, n, dtype):
    """Any number of rows, a whole array, a part of one, and an output by columns."""
    blocks = []
    real = row_blocks.blocks_of

    def noted(problem):
        found = real(problem)
        blocks.append(len(found))
        return found

    monkeypatch.setattr(row_blocks, "blocks_of", noted)
    big = rng.integers(-9, 10, (m + 5, k + 3)).astype(dtype)
    b = rng.integers(-9, 10, (k, n)).astype(dtype)
    for a in (big[:m, :k].copy(), big[2 : m + 2, 1 : k + 1]):
        assert np.array_equal(matmul(a, b), a @ b)
        out = np.empty((m, n), dtype, order="F")
        assert np.array_equal(matmul(a, b, out=out), a @ b)
        assert np.array_equal(gemm(a, b, alpha=2), 2 * (a @ b))
        if dtype == "float32":
            rows = Epilogue(expression="acc + row")
            assert np.array_equal(matmul(a, b, epilogue=rows), a @ b + np.arange(m)[:, None])
        c = rng.integers(-9, 10, (m, n)).astype(dtype)
        assert np.array_equal(gemm(a, b, c, beta=1), a @ b + c)
    assert max(blocks) == (2 if m == 9 else 3 if m == 67 else 4), blocks
    assert min(blocks) == 1


def test_blocks_wait_for_events(apart, small_chunks, small_blocks, rng, device):
    a, b = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    start = cl.UserEvent(device.context)
    timer = threading.Timer(0.2, start.set_status, [cl.command_execution_status.COMPLETE])
    timer.start()
    result = matmul(a, b, wait_for=[start])
    assert not timer.is_alive()
    np.testing.assert_allclose(result, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
