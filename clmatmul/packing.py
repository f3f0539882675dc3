"""pack: bring an operand to a device once, for many products."""

import numpy as np

from clmatmul import device as devices
from clmatmul.api import scale
from clmatmul.containers import carried
from clmatmul.device_arrays import array_over, empty_array, is_device_array
from clmatmul.errors import ShapeError
from clmatmul.operands import host_array
from clmatmul.packed import Packed
from clmatmul.selection import resolve
from clmatmul.transfers import count


def pack(x, *, device=None, queue=None):
    """An operand packed once for many products: use what this returns in its place.

    x: a NumPy array (or list), a pyopencl array or an `Array`, of one or more dimensions. Its
    values are copied to the device now: later changes of x are not seen. The kernels' own layout
    of it (panels) is made by the first product that needs it and kept. device: as `use_device`,
    for host arrays. queue: a pyopencl queue of the device. Either operand of matmul, gemm and
    MatMul may be packed; the other decides what the result is. ShapeError, DtypeError.
    """
    x = carried(x)
    if is_device_array(x):
        _needs_dimensions(x)
        return Packed(scale(True, x, device=device, queue=queue))
    array = host_array(x, "the operand")
    _needs_dimensions(array)
    array = np.ascontiguousarray(array)
    if queue is None:
        queue = resolve(device).queue()
    devices.check_queue(queue)
    if not array.size:
        return Packed(empty_array(queue, array.shape, array.dtype, "C", None))
    buffer = devices.device_of_queue(queue).upload(array.reshape(-1).view(np.uint8))
    count(uploaded=array.nbytes)
    return Packed(array_over(queue, buffer, array.shape, array.dtype, array.strides))


def _needs_dimensions(x):
    if not x.shape:
        raise ShapeError("a number cannot be packed; use clmatmul.scale")
