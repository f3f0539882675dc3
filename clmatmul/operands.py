"""Arrays on their way to a device and back: the two kinds of memory a product may live in.

`HostMemory` serves NumPy arrays. On devices that share the host's memory it wraps the span that
an array covers, so nothing is copied; elsewhere it uploads and downloads. `DeviceMemory` serves
pyopencl arrays: nothing blocks, events are waited for and handed on, and every buffer is held
until the work that uses it is complete.
"""

import math
import threading
from collections import deque
from dataclasses import dataclass

import numpy as np

from clmatmul import device as devices
from clmatmul import staging
from clmatmul.device_arrays import empty_array, is_device_array, memory_range
from clmatmul.element_types import element_type
from clmatmul.errors import ArgumentError, DeviceError, DtypeError
from clmatmul.plan import WRITTEN
from clmatmul.problem import MAX_ALIGNMENT, ArrayView
from clmatmul.transfers import count

HOST_ONLY = "gGO"  # dtype characters of longdouble, clongdouble and object: NumPy computes them
_PACK_RATIO = 2  # upload a packed copy when an array's span is more than this times its elements


@dataclass(frozen=True)
class Bound:
    """An array that a device can reach: how it lies there, and the buffer.

    array: what owns the memory under a buffer that wraps it; it must outlive the work.
    """

    view: ArrayView
    buffer: object
    array: object = None

    @property
    def operand(self):
        """(buffer, offset in elements), as an Executable takes it."""
        return self.buffer, self.view.offset


def span(array):
    """(address of the first byte, bytes) that a NumPy array's elements cover."""
    address = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        return address, array.nbytes
    low = high = 0
    for extent, stride in zip(array.shape, array.strides, strict=True):
        if extent == 0:
            return address, 0
        low += min(0, (extent - 1) * stride)
        high += max(0, (extent - 1) * stride)
    return address + low, high - low + array.itemsize


def normalised(array):
    """The array in native byte order, with whole-element strides and aligned elements."""
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    step = array.itemsize
    whole = all(s % step == 0 for n, s in zip(array.shape, array.strides, strict=True) if n > 1)
    return array if whole and array.flags.aligned else array.copy()


class HostMemory:
    """NumPy operands of one call."""

    def __init__(self, device):
        self.device = device
        self.queue = device.queue()
        self._target = None
        self._out = None
        self.unsent = {}  # name → (array, its bytes, buffer) of what is not yet on the device
        self._aux = ()  # the caller's auxiliary output and what is written, if there is one

    def output(self, shape, dtype, order, out, inputs, in_place=None):
        """The array that the kernel writes: `out` itself where that is safe, else a fresh one.

        inputs: arrays that are read. in_place: an array (c) that may be exactly `out`.
        """
        self._out = out
        direct = out is not None and self._writable_in_place(out, dtype, inputs, in_place)
        self._target = out if direct else np.empty(shape, dtype, order=order)
        return self._target

    def auxiliary(self, aux, others):
        """The array that the kernel writes for `aux`: itself where that is safe, else a fresh
        one. others: every other array of the call."""
        direct = self._writable_in_place(aux, aux.dtype, others, None)
        self._aux = (aux, aux if direct else np.empty(aux.shape, aux.dtype.newbyteorder("=")))
        return self._aux[1]

    def _writable_in_place(self, out, dtype, inputs, in_place):
        address, size = span(out)
        dense = size == out.nbytes and not _repeats(out)
        if out.dtype != dtype or not out.dtype.isnative or not out.flags.aligned or not dense:
            return False
        if any(overlap(span(x), (address, size)) for x in inputs):
            return False
        if in_place is None or not overlap(span(in_place), (address, size)):
            return True
        return span(in_place)[0] == address and _same_layout(in_place, out)

    def bind(self, arrays):
        """name → Bound for input arrays and 'out' (what `output` returned)."""
        if self.device.has_host_memory:
            return self._wrap(arrays)
        return {name: self._upload(name, x) for name, x in arrays.items()}

    def _wrap(self, arrays):
        # Overlapping host buffers are undefined in OpenCL: one buffer for all that overlap.
        # What would be too much for one buffer is copied without its gaps.
        limit = self.device.profile.max_alloc_bytes
        spans = sorted((*span(x), name) for name, x in arrays.items())
        groups, bound = [], {}
        for low, size, name in spans:
            overlaps = groups and low < groups[-1][1]
            if name not in WRITTEN and (low + size - groups[-1][0] if overlaps else size) > limit:
                bound |= self._wrap_alone(name, np.array(arrays[name], order="C"))
            elif overlaps:
                groups[-1][1] = max(groups[-1][1], low + size)
                groups[-1][2].append(name)
            else:
                groups.append([low, low + size, [name]])
        for low, high, names in groups:
            buffer = self.device.wrap(low, high - low, any(x in names for x in WRITTEN))
            for name in names:
                array = arrays[name]
                step = array.itemsize
                distance = array.__array_interface__["data"][0] - low
                if distance % step:  # views of one memory, half an element apart
                    bound |= self._wrap_alone(name, array.copy())
                    continue
                view = ArrayView.of(array, distance // step, math.gcd(MAX_ALIGNMENT, low))
                bound[name] = Bound(view, buffer, array)
        return bound

    def _wrap_alone(self, name, copy):
        address, size = span(copy)
        alignment = math.gcd(MAX_ALIGNMENT, address)
        buffer = self.device.wrap(address, size, writable=False)
        return {name: Bound(ArrayView.of(copy, 0, alignment), buffer, copy)}

    def _upload(self, name, array):
        address, size = span(array)
        if name in WRITTEN:  # dense, but its first element need not lie first (negative strides)
            distance = array.__array_interface__["data"][0] - address
            view = ArrayView.of(array, distance // array.itemsize)
            return Bound(view, self.device.allocate(size))
        if size > _PACK_RATIO * array.nbytes:
            array = np.ascontiguousarray(array)
            address, size = span(array)
        distance = array.__array_interface__["data"][0] - address
        memory = np.frombuffer(_bytes_at(address, size), np.uint8)
        count(uploaded=size)
        if staging.is_staged(self.device, memory):
            buffer = self.device.allocate(size)
            self.unsent[name] = (array, memory, buffer)
        else:
            buffer = self.device.upload(memory)
        return Bound(ArrayView.of(array, distance // array.itemsize), buffer)

    def send(self):
        """Copy what is not yet on the device."""
        while self.unsent:
            _, (_array, memory, buffer) = self.unsent.popitem()
            staging.copy_to(self.device, self.queue, buffer, memory)

    def finish_in_blocks(self, multiply):
        """As `finish`, where `multiply` fills the result's bytes by itself."""
        multiply(np.frombuffer(_bytes_at(*span(self._target), writable=True), np.uint8))
        count(downloaded=self._target.nbytes)
        return self._given()

    def finish(self, event, bound):
        """Wait, and return the result: `out` if it was given, else the fresh array."""
        target = self._target
        self._fetch(event, target, bound["out"].buffer)
        if self._aux:
            aux, written = self._aux
            self._fetch(event, written, bound["aux"].buffer)
            if written is not aux:
                np.copyto(aux, written)
        return self._given()

    def _given(self):
        """The result in the array that the caller gave, or as it is."""
        target = self._target
        if self._out is None:
            return target
        if self._out is not target:
            np.copyto(self._out, target, casting="same_kind")
        return self._out

    def _fetch(self, event, array, buffer):
        """Wait until what a kernel wrote to `buffer` is in the array's memory."""
        if self.device.has_host_memory:
            self.device.synchronize_host(self.queue, buffer, span(array)[1], [event])
            return
        # a fresh or dense array: its memory in its own order
        flat = np.frombuffer(_bytes_at(*span(array), writable=True), np.uint8)
        count(downloaded=flat.nbytes)
        staging.fetch(self.device, self.queue, buffer, flat, wait_for=[event])


class DeviceMemory:
    """pyopencl operands of one call (NumPy arrays among them are uploaded)."""

    def __init__(self, device, queue, allocator, wait_for):
        self.device = device
        self.queue = queue
        self.allocator = allocator
        self.wait_for = list(wait_for or ())
        self._arrays = []

    def allocate(self, size):
        """A workspace buffer, from the arrays' own allocator if they have one."""
        if self.allocator is None:
            return self.device.allocate(size)
        return self.allocator(size)

    def output(self, shape, dtype, order, out, inputs, in_place=None):
        """The array that the kernel writes; a fresh one if `out` is also read.

        A fresh array in place of `out` is recognised by the caller, who copies it.
        """
        if out is not None and not out.size:
            return out  # whatever its strides and memory are, nothing is written
        if out is not None and _repeats(out):
            raise ArgumentError(
                f"out of shape {out.shape} and strides {out.strides} has elements that may share "
                "memory; pass an array whose elements are apart"
            )
        if out is not None:
            range_ = memory_range(out)
            read = [x for x in inputs if is_device_array(x)]
            overlapping = any(meet(memory_range(x), range_) for x in read if x.size)
            if in_place is not None and is_device_array(in_place):
                meets = meet(memory_range(in_place), range_)
                same = memory_range(in_place) == range_ and _same_layout(in_place, out)
                overlapping = overlapping or (meets and not same)
            if not overlapping and out.dtype == dtype:
                return out
        return empty_array(self.queue, shape, dtype, order, self.allocator)

    def auxiliary(self, aux, others):
        """`aux` itself; ArgumentError if writing it would change another array of the call."""
        if _repeats(aux):
            raise ArgumentError("aux has elements that may share memory")
        range_ = memory_range(aux)
        for x in others:
            if is_device_array(x) and meet(memory_range(x), range_):
                raise ArgumentError(
                    "aux overlaps another array of the product; pass one of its own memory"
                )
        return aux

    def bind(self, arrays):
        """name → Bound; the arrays' pending events are added to what the launch waits for."""
        bound = {}
        for name, array in arrays.items():
            if is_device_array(array):
                if array.base_data is None:
                    raise ArgumentError(f"operand {name} of shape {array.shape} has no memory")
                self.wait_for += array.events
                self._arrays.append(array)
                bound[name] = Bound(ArrayView.of(array), array.base_data)
            else:
                packed = np.ascontiguousarray(array)
                count(uploaded=packed.nbytes)
                memory = packed.reshape(-1).view(np.uint8)
                buffer = staging.send(self.device, self.queue, memory)
                bound[name] = Bound(ArrayView.of(packed, 0), buffer)
        return bound

    def finish(self, event, keep):
        """Hand the event to every array, and hold all memory until it is complete."""
        hand_on(event, tuple(self._arrays), keep)


# ---- events, and keeping memory alive -------------------------------------------------------


def pending(arrays):
    """The events that a launch on these pyopencl arrays must wait for."""
    return [event for x in arrays for event in x.events]


def hand_on(event, arrays, keep):
    """Give a launch's event to every array, and hold them and `keep` until it is complete."""
    # Not by Array.add_event, which waits for old events once there are a dozen.
    with events_lock:
        for events in {id(x.events): x.events for x in arrays}.values():
            events[:] = [x for x in events if not devices.is_complete(x)] + [event]
    _hold(event, (keep, arrays))


_LOOKED_AT = 3
_pending = deque()
_pending_lock = threading.Lock()
events_lock = threading.Lock()  # while events of arrays are read and replaced


def _hold(event, things):
    """Keep `things` until `event` is complete; those of finished events are let go now.

    It gives up after a few that are not finished, because a call must not take the longer the
    more are on their way before it.
    """
    with _pending_lock:
        _pending.append((event, things))
        unfinished = 0
        for _ in range(len(_pending)):
            held = _pending.popleft()
            if not devices.is_complete(held[0]):
                _pending.append(held)
                unfinished += 1
                if unfinished == _LOOKED_AT:
                    return


def hold_later(event, things):
    """Keep `things` until `event` is complete; it takes no lock, so a destructor may call it."""
    _pending.append((event, things))


# ---- a caller's own workspace ---------------------------------------------------------------


def workspace_size(device, plan):
    """Bytes for all scratch buffers of a plan in one buffer, each where one may begin."""
    return sum(_rounded(w.bytes, device) for w in plan.workspace)


def workspace_parts(device, plan, buffer):
    """name → part of the caller's buffer for each scratch buffer of a plan; ArgumentError."""
    devices.check_buffer(buffer)
    needed = workspace_size(device, plan)
    if buffer.size < needed:
        raise ArgumentError(
            f"workspace has {buffer.size} bytes, and this plan needs {needed} (workspace_bytes)"
        )
    parts, begin = {}, 0
    for w in plan.workspace:
        parts[w.name] = devices.part_of(buffer, begin, w.bytes)
        begin += _rounded(w.bytes, device)
    return parts


def _rounded(size, device):
    step = max(device.profile.base_alignment_bytes, MAX_ALIGNMENT)
    return -(-size // step) * step


# ---- facts about arrays ---------------------------------------------------------------------


def _bytes_at(address, size, writable=False):
    import ctypes

    memory = (ctypes.c_ubyte * size).from_address(address)
    return memory if writable else memoryview(memory).toreadonly()


def overlap(one, other):
    """True if two spans (address, bytes) of host memory have a byte in common."""
    return one[1] and other[1] and one[0] < other[0] + other[1] and other[0] < one[0] + one[1]


def meet(one, other):
    """True if two ranges of device memory (device.memory_range) have a byte in common."""
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def _same_layout(x, y):
    return x.shape == y.shape and x.strides == y.strides and x.dtype == y.dtype


def _repeats(array):
    """True if two elements of the array may share memory."""
    reach = 0
    for stride, extent in sorted(
        (abs(s), n) for n, s in zip(array.shape, array.strides, strict=True) if n > 1
    ):
        if stride < reach + array.dtype.itemsize:
            return True
        reach += stride * (extent - 1)
    return False


def refuse_mask(x, what):
    """DtypeError if x is a masked array."""
    if isinstance(x, np.ma.MaskedArray):
        raise DtypeError(
            f"{what} is a masked array, and a product that ignores the mask would be wrong; use "
            "np.ma.dot, or fill it first (x.filled(0))"
        )


def refuse_byte_order(x, what):
    """DtypeError if a pyopencl array's elements are not in this machine's byte order."""
    if not x.dtype.isnative:
        raise DtypeError(
            f"{what} is a pyopencl array of dtype {x.dtype.str}, and devices compute in the byte "
            f"order {x.dtype.newbyteorder('=').str}; convert it before it is sent to the device"
        )


def single_output(out):
    """The array that was given as out, alone or in a tuple, or None; ArgumentError, DtypeError."""
    if isinstance(out, tuple):
        if len(out) != 1:
            raise ArgumentError(f"out is a tuple of {len(out)}; a product has one output")
        out = out[0]
    if out is not None and not isinstance(out, np.ndarray) and not is_device_array(out):
        raise DtypeError(f"out must be an array, not {type(out).__name__}")
    refuse_mask(out, "out")
    return out


def plain_array(x, what):
    """x as an array, before its dtype is looked at."""
    refuse_mask(x, what)
    if isinstance(x, np.ndarray):
        return x
    try:
        return np.asarray(x)
    except ValueError as error:
        raise ArgumentError(f"{what} is no array: {error}") from None


def host_array(x, what):
    """x as a NumPy array that has kernels here; DtypeError, ArgumentError."""
    refuse_mask(x, what)
    try:
        array = np.asarray(x)
    except ValueError as error:  # ragged nested lists
        raise ArgumentError(f"{what} is no array: {error}") from None
    element_type(array.dtype)
    return normalised(array)


def common_queue(arrays, queue, device):
    """The queue for a call on pyopencl arrays; DeviceError if they cannot share one."""
    if queue is not None:
        devices.check_queue(queue)
    queues = [x.queue for x in arrays if x.queue is not None]
    chosen = queue if queue is not None else (queues[0] if queues else None)
    if chosen is None:
        raise ArgumentError(
            "the pyopencl arrays have no queue; pass queue=, or use array.with_queue(queue)"
        )
    for x in arrays:
        if x.context != chosen.context:
            raise DeviceError(
                "the arrays live in different OpenCL contexts, between which memory cannot be "
                f"shared: {x.context} and {chosen.context}; copy one with .get() and to_device"
            )
    if device is not None and device.cl_device != chosen.device:
        raise DeviceError(
            f"device={device.profile.title} disagrees with the arrays' queue, which is on "
            f"{chosen.device.name.strip()}; leave device out, or move the arrays"
        )
    return chosen
