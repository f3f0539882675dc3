"""Large buffers of CPU devices ask for pages of 2 MiB; nothing else changes."""

import mmap

import numpy as np
import pytest

from clmatmul import huge_pages

PAGE = 2**21
needs_advice = pytest.mark.skipif(not huge_pages.are_offered(), reason="no huge pages to ask for")


@pytest.fixture
def asked(monkeypatch):
    """The (address, size) of each request, which is then made."""
    requests, advise = [], huge_pages.advise

    def recording(address, size):
        requests.append((address, size))
        advise(address, size)

    monkeypatch.setattr(huge_pages, "advise", recording)
    return requests


@pytest.fixture
def in_host_memory(device):
    if device.profile.family not in ("pocl", "intel-cpu"):
        pytest.skip(f"{device.profile.title} keeps its buffers elsewhere")
    return device


@needs_advice
def test_only_whole_huge_pages_are_asked_for(monkeypatch):
    requests = []
    monkeypatch.setattr(huge_pages, "_madvise", lambda: lambda *x: requests.append(x) or 0)
    huge_pages.advise(PAGE - 4096, 2 * PAGE + 8192)
    huge_pages.advise(3 * PAGE, PAGE)
    huge_pages.advise(3 * PAGE + 1, PAGE)  # holds no whole one
    assert requests == [
        (PAGE, 2 * PAGE, mmap.MADV_HUGEPAGE), (3 * PAGE, PAGE, mmap.MADV_HUGEPAGE)
    ]  # fmt: skip


@needs_advice
def test_a_refusal_changes_nothing(monkeypatch, in_host_memory, rng):
    monkeypatch.setattr(huge_pages, "_madvise", lambda: lambda *_: -1)
    data = rng.integers(0, 256, huge_pages.LEAST_BYTES, dtype=np.uint8)
    back = np.empty_like(data)
    in_host_memory.read(in_host_memory.queue(), in_host_memory.upload(data), back)
    assert np.array_equal(back, data)


@needs_advice
def test_large_buffers_ask_and_small_ones_do_not(asked, in_host_memory):
    in_host_memory.allocate(huge_pages.LEAST_BYTES - 1)
    assert not asked
    in_host_memory.allocate(huge_pages.LEAST_BYTES)
    assert [size for _, size in asked] == [huge_pages.LEAST_BYTES]


def test_a_large_upload_is_a_copy(asked, device, rng):
    data = rng.integers(0, 256, huge_pages.LEAST_BYTES + 77, dtype=np.uint8)
    buffer = device.upload(data)
    expected, data[:] = data.copy(), 0
    back = np.empty_like(data)
    device.read(device.queue(), buffer, back)
    assert np.array_equal(back, expected)
