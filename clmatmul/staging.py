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
SLOTS = 16
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
    if not is_staged(device, memory):
        return device.upload(memory)
    buffer = device.allocate(memory.nbytes)
    copy_to(device, queue, buffer, memory)
    return buffer


def fetch(device, queue, buffer, memory, wait_for=()):
    """Copy a buffer into a contiguous array of bytes once the events are complete; it waits."""
    if not is_staged(device, memory):
        device.read(queue, buffer, memory, wait_for=wait_for)
        return
    devices.wait(wait_for)
    copy_from(device, queue, buffer, memory)


def copy_to(device, queue, buffer, memory, byte_offset=0):
    """Copy an array of bytes into a part of a buffer, through pinned memory, and wait."""
    _staging_of(device).send(queue, memory, buffer, byte_offset)


def copy_from(device, queue, buffer, memory, byte_offset=0):
    """Copy a part of a buffer into an array of bytes, through pinned memory, and wait."""
    _staging_of(device).fetch(queue, buffer, memory, byte_offset)


def is_staged(device, memory):
    """True if an array of bytes goes through pinned memory."""
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

    def send(self, queue, memory, buffer, byte_offset=0):
        """Copy an array of bytes into a device buffer, and wait."""
        chunks = _chunks(memory.nbytes)
        with self._lock:
            slots, pool = self._pinned(queue), _pool()
            free, filling, leaving = deque(slots), deque(), deque()
            begun = 0
            while begun < len(chunks) or filling:
                while free and begun < len(chunks):
                    low, high = chunks[begun]
                    slot = free.popleft()
                    job = pool.submit(np.copyto, slot[: high - low], memory[low:high])
                    filling.append((low, high - low, slot, job))
                    begun += 1
                low, size, slot, job = filling.popleft()
                job.result()
                event = self._device.send(queue, buffer, byte_offset + low, slot[:size])
                leaving.append((slot, event))
                # Half of the slots may be on the bus, so that it never waits for this thread.
                while leaving and (len(leaving) > SLOTS // 2 or devices.is_complete(leaving[0][1])):
                    slot, event = leaving.popleft()
                    devices.wait([event])
                    free.append(slot)
            if leaving:
                devices.wait([event for _, event in leaving])

    def fetch(self, queue, buffer, memory, byte_offset=0):
        """Copy a device buffer into an array of bytes, and wait."""
        chunks = _chunks(memory.nbytes)
        with self._lock:
            slots, pool = self._pinned(queue), _pool()
            free, coming, emptying = deque(slots), deque(), deque()
            begun = 0
            while begun < len(chunks) or coming:
                while begun < len(chunks) and free and len(coming) < SLOTS // 2:
                    low, high = chunks[begun]
                    slot = free.popleft()
                    event = self._device.fetch(queue, buffer, byte_offset + low, slot[: high - low])
                    coming.append((low, high, slot, event))
                    begun += 1
                low, high, slot, event = coming.popleft()
                devices.wait([event])
                job = pool.submit(np.copyto, memory[low:high], slot[: high - low])
                emptying.append((slot, job))
                while emptying and (emptying[0][1].done() or not (free or coming)):
                    slot, job = emptying.popleft()
                    job.result()
                    free.append(slot)
            for _, job in emptying:
                job.result()

    def _pinned(self, queue):
        if self._slots is None:
            memory = self._device.pinned(queue, SLOTS * CHUNK_BYTES)
            self._slots = [memory[i * CHUNK_BYTES : (i + 1) * CHUNK_BYTES] for i in range(SLOTS)]
        return self._slots


def _chunks(size):
    return [(low, min(low + CHUNK_BYTES, size)) for low in range(0, size, CHUNK_BYTES)]
