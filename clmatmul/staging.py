"""Large host arrays on their way to a device with memory of its own, and back, by pinned memory.

A device fetches pinned memory by itself, several times as fast as a driver copies from memory
that may be paged out. So an array goes in chunks: threads copy them into slots of pinned memory
(one thread is slower than the bus), and the device takes each slot as soon as it is full, while
others are being filled. The way back is the same in reverse. A device's slots are kept from one
call to the next; they are never more than SLOTS * CHUNK_BYTES.
"""

import os
import threading
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from clmatmul import device as devices

CHUNK_BYTES = 4 << 20
SLOTS = 8
LEAST_BYTES = 2 << 20  # below, the driver's own copy costs less than the threads
_MAX_THREADS = 8

_lock = threading.Lock()
_stagings = weakref.WeakKeyDictionary()
_threads = None
_threads_of = None  # the process that they belong to


def send(device, queue, memory):
    """A device buffer with a copy of a contiguous array of bytes; complete when it returns.

    DeviceError if there is no memory for it.
    """
    if not _worth_it(device, memory):
        return device.upload(memory)
    buffer = device.allocate(memory.nbytes)
    _staging_of(device).send(queue, memory, buffer)
    return buffer


def fetch(device, queue, buffer, memory, wait_for=()):
    """Copy a buffer into a contiguous array of bytes once the events are complete; it waits."""
    if not _worth_it(device, memory):
        device.read(queue, buffer, memory, wait_for=wait_for)
        return
    devices.wait(wait_for)
    _staging_of(device).fetch(queue, buffer, memory)


def _worth_it(device, memory):
    return memory.nbytes >= LEAST_BYTES and not device.profile.unified_memory


def _staging_of(device):
    with _lock:
        staging = _stagings.get(device)
        if staging is None:
            staging = _stagings[device] = Staging(device)
        return staging


def _pool():
    """The threads that copy, of this process."""
    global _threads, _threads_of
    with _lock:
        if _threads_of != os.getpid():
            count = min(_MAX_THREADS, os.cpu_count() or 1)
            _threads = ThreadPoolExecutor(count, thread_name_prefix="clmatmul-copy")
            _threads_of = os.getpid()
        return _threads


class Staging:
    """The pinned slots of one device; one transfer at a time uses them."""

    def __init__(self, device):
        self._device = device
        self._lock = threading.Lock()
        self._slots = None

    def send(self, queue, memory, buffer):
        """Copy an array of bytes into a device buffer, and wait."""
        chunks = _chunks(memory.nbytes)
        with self._lock:
            slots, pool = self._pinned(queue), _pool()
            events = [None] * SLOTS
            filling = deque()

            def begin(i):
                low, high = chunks[i]
                if events[i % SLOTS] is not None:
                    devices.wait([events[i % SLOTS]])
                slot = slots[i % SLOTS][: high - low]
                filling.append((i, slot, pool.submit(np.copyto, slot, memory[low:high])))

            for i in range(min(SLOTS, len(chunks))):
                begin(i)
            while filling:
                i, slot, filled = filling.popleft()
                filled.result()
                events[i % SLOTS] = self._device.send(queue, buffer, chunks[i][0], slot)
                if i + SLOTS < len(chunks):
                    begin(i + SLOTS)
            devices.wait([x for x in events if x is not None])

    def fetch(self, queue, buffer, memory):
        """Copy a device buffer into an array of bytes, and wait."""
        chunks = _chunks(memory.nbytes)
        with self._lock:
            slots, pool = self._pinned(queue), _pool()
            coming, emptied = deque(), [None] * SLOTS

            def begin(i):
                low, high = chunks[i]
                if emptied[i % SLOTS] is not None:
                    emptied[i % SLOTS].result()
                slot = slots[i % SLOTS][: high - low]
                coming.append((i, slot, self._device.fetch(queue, buffer, low, slot)))

            for i in range(min(SLOTS, len(chunks))):
                begin(i)
            while coming:
                i, slot, event = coming.popleft()
                devices.wait([event])
                low, high = chunks[i]
                emptied[i % SLOTS] = pool.submit(np.copyto, memory[low:high], slot)
                if i + SLOTS < len(chunks):
                    begin(i + SLOTS)
            for copied in emptied:
                if copied is not None:
                    copied.result()

    def _pinned(self, queue):
        if self._slots is None:
            memory = self._device.pinned(queue, SLOTS * CHUNK_BYTES)
            self._slots = [memory[i * CHUNK_BYTES : (i + 1) * CHUNK_BYTES] for i in range(SLOTS)]
        return self._slots


def _chunks(size):
    return [(low, min(low + CHUNK_BYTES, size)) for low in range(0, size, CHUNK_BYTES)]
