"""The same memory seen otherwise: views of NumPy and of pyopencl arrays, by NumPy's own rules.

For a pyopencl array, NumPy is asked what it would do to an array of the same shape and strides.
That stand-in has no memory behind it: whatever is asked must give a view, and never reads.
"""

import numpy as np

from clmatmul.device_arrays import view_of
from clmatmul.errors import ArgumentError, ShapeError

_ADDRESS = 2**46  # of the stand-ins' memory, which is never touched
_RESHAPE_REFUSES = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # knows copy=False


class _Memory:
    """What NumPy needs to see to make an array."""

    def __init__(self, array):
        self.__array_interface__ = {
            "shape": tuple(map(int, array.shape)),
            "strides": tuple(map(int, array.strides)),
            "typestr": f"|V{array.dtype.itemsize}",
            "data": (_ADDRESS, False),
            "version": 3,
        }


def view(x, change):
    """change(x), for a function of a NumPy array that returns a view of it.

    x: a NumPy or a pyopencl array; the result is of the same kind and shares its memory.
    """
    if isinstance(x, np.ndarray):
        return change(x)
    seen = change(np.asarray(_Memory(x)))
    distance = seen.__array_interface__["data"][0] - _ADDRESS if seen.size else 0
    return view_of(x, seen.shape, seen.strides, x.offset + distance)


def indexed(x, key):
    """x[key] as a view: whole numbers, slices, None and Ellipsis. ArgumentError, IndexError."""
    keys = key if isinstance(key, tuple) else (key,)
    for k in keys:
        whole = isinstance(k, (int, np.integer)) and not isinstance(k, bool)
        if not (whole or k is None or k is Ellipsis or isinstance(k, slice)):
            raise ArgumentError(
                f"index {k!r}: only whole numbers, slices, None and ... give a view of device "
                "memory; for others take the array to the host with .to_host()"
            )
    if not any(k is Ellipsis for k in keys):
        keys = (*keys, Ellipsis)  # so that even a single element is an array
    return view(x, lambda y: y[keys])


def permuted(x, order):
    """The dimensions of x in another order."""
    return view(x, lambda y: y.transpose(order))


def turned(x):
    """The last two dimensions of x swapped; ShapeError if there are fewer."""
    if x.ndim < 2:
        raise ShapeError(
            f"an array of shape {tuple(x.shape)} has no matrices to transpose; it takes at least "
            "two dimensions"
        )
    return view(x, lambda y: np.swapaxes(y, -1, -2))


def repeated(x, shape):
    """x broadcast to `shape`, with strides of 0."""
    return view(x, lambda y: np.broadcast_to(y, shape))


def diagonal(x, i, j):
    """x with its dimensions i and j, of equal extents, become one, which comes last."""

    def change(y):
        seen = np.diagonal(y, 0, i, j)
        seen.flags.writeable = y.flags.writeable  # NumPy makes it read-only
        return seen

    return view(x, change)


def reshaped(x, shape):
    """x with another shape in C order as a view, or None if its strides do not allow that."""
    shape = tuple(map(int, shape))
    try:
        return view(x, lambda y: _reshape(y, shape))
    except (ValueError, AttributeError):
        return None


def _reshape(y, shape):
    if _RESHAPE_REFUSES:
        return y.reshape(shape, copy=False)
    seen = y.view()
    seen.shape = shape  # unlike reshape, it never copies
    return seen
