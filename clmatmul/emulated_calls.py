"""Products in emulated float64 from arguments to result: operands to the host, products of whole
numbers on the device, the result to where it belongs."""

import numpy as np

from clmatmul import device as devices
from clmatmul import emulated, host_product
from clmatmul.calls import as_scalar, prepare
from clmatmul.element_types import product_type
from clmatmul.errors import DtypeError, ShapeError, UnsupportedError
from clmatmul.operands import common_queue
from clmatmul.packed import Packed
from clmatmul.request import Request
from clmatmul.selection import resolve


def product_name(request, a, b):
    """The name of the product's dtype; None for packed operands, which stay on their device."""
    if isinstance(a, Packed) or isinstance(b, Packed):
        return None
    a, b = (x if hasattr(x, "dtype") else np.asarray(x) for x in (a, b))
    return product_type(a.dtype, b.dtype, request.dtype).name


def multiply_emulated(request, a, b, c, out):
    """The product from products of whole numbers on the device, exact but for the rounding of
    float64 and then of the result; it waits for them."""
    if request.epilogue is not None or request.axes is not None:
        raise UnsupportedError(
            "emulated float64 products take no epilogue and no axes; apply them to the result"
        )
    given = [x for x in (a, b, c, out) if devices.is_device_array(x)]
    queue = common_queue(given, request.queue, request.device and resolve(request.device)) \
        if given else request.queue  # fmt: skip
    plain = {"device": None if given else request.device, "queue": queue, "precision": "highest",
             "memory_limit": request.memory_limit}  # fmt: skip

    def product_in(dtype):
        request = Request(dtype=dtype, **plain)
        return lambda x, y: prepare(request, x, y, None, None).run()

    def on_host(x):
        if x is None:
            return None
        return devices.fetch(x) if devices.is_device_array(x) else np.asarray(x)

    def multiply_exactly(x, y):
        return emulated.multiply(x, y, product_in("int64"), product_in("float32"))

    value = host_product.scaled_product(
        request, on_host(a), on_host(b), on_host(c), multiply_exactly
    )
    dtype = np.dtype(product_name(request, a, b)) if out is None else out.dtype
    if not np.can_cast(value.dtype, dtype, "same_kind"):
        raise DtypeError(f"cannot cast the product from {value.dtype} to out's {dtype}")
    if not given:
        if out is None:
            return as_scalar(value.astype(dtype, copy=False), value.ndim == 0)
        if out.shape != value.shape:
            raise ShapeError(f"out has shape {out.shape}, and the product {value.shape}")
        np.copyto(out, value, casting="same_kind")
        return out
    target = devices.empty_array(queue, value.shape, dtype, "C", None) if out is None else out
    target.set(np.ascontiguousarray(value, dtype), queue)
    return target
