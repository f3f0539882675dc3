"""Large arrays through pinned memory: every byte arrives, whatever the size and the order."""

import threading

import numpy as np
import pytest

from clmatmul import device as devices
from clmatmul import matmul, staging
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
    monkeypatch.setattr(staging, "_worth_it", lambda device, memory: memory.nbytes > 0)


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

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
