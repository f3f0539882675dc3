"""pyopencl arrays: told apart, made, seen in other shapes, and where in memory they are."""

import pyopencl as cl
import pyopencl.array as cl_array

from clmatmul.device import reported


def is_device_array(x):
    return isinstance(x, cl_array.Array)


def is_plain_device_array(x):
    """True for a pyopencl array that is of no class derived from it."""
    return type(x) is cl_array.Array


def empty_array(queue, shape, dtype, order, allocator):
    """An uninitialised pyopencl array."""
    return cl_array.empty(queue, shape, dtype, order=order, allocator=allocator)


def array_over(queue, buffer, shape, dtype, strides):
    """A pyopencl array over a buffer; strides in bytes."""
    return cl_array.Array(queue, shape, dtype, data=buffer, strides=strides)


def fetch(array):
    """The values of a contiguous pyopencl array as a NumPy array of the same order; it waits."""
    with reported("a kernel failed, or its result could not be read"):
        return array.get()


def view_of(array, shape, strides, offset):
    """The memory of a pyopencl array seen with another shape; strides and offset in bytes.

    It shares the array's events, so that each waits for what is done to the other.
    """
    source = array.queue if array.queue is not None else array.context
    return cl_array.Array(
        source, shape, array.dtype, allocator=array.allocator, data=array.base_data,
        offset=offset, strides=strides, events=array.events,
    )  # fmt: skip


def memory_range(array):
    """(identity of the memory, first byte, end) of a pyopencl array, sub-buffers resolved."""
    buffer, low, high = array.base_data, 0, 0
    for extent, stride in zip(array.shape, array.strides, strict=True):
        low += min(0, (extent - 1) * stride)
        high += max(0, (extent - 1) * stride)
    origin = array.offset
    if isinstance(buffer, cl.SVMPointer):  # all shared virtual memory is one address space
        origin += buffer.svm_ptr
        return "svm", origin + low, origin + high + array.dtype.itemsize
    parent = buffer.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
    if parent is not None:
        origin += buffer.get_info(cl.mem_info.OFFSET)
        buffer = parent
    return buffer.int_ptr, origin + low, origin + high + array.dtype.itemsize
