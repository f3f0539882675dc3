"""A product by a kernel, or by what the request names instead: whole numbers, or NumPy."""

import numpy as np

from clmatmul import host_product
from clmatmul.arguments import product_dtypes
from clmatmul.arrangement import arrange
from clmatmul.calls import PreparedCall, prepare, recipe_of
from clmatmul.device_arrays import is_device_array
from clmatmul.emulated_calls import EmulatedCall, product_name
from clmatmul.errors import DtypeError, NoDeviceError, UnsupportedError
from clmatmul.operands import HOST_ONLY, plain_array, refuse_mask
from clmatmul.packed import Packed
from clmatmul.precision import read_precision
from clmatmul.repeats import remember

_DOUBLE = ("float64", "complex128")


def multiply(request, a, b, c, out, plain=False):
    """The product of a call; plain: it has no keyword that `repeat` would have to know."""
    if _on_host(a, b, c, out):
        a, b = plain_array(a, "the first operand"), plain_array(b, "the second operand")
        if request.beta != 0:
            refuse_mask(c, "c")
        if a.dtype.char in HOST_ONLY or b.dtype.char in HOST_ONLY:
            return host_product.numpy_product(request, a, b, c, out)
    try:
        prepared = prepare_any(request, a, b, c, out)
        result = prepared.run()
    except (UnsupportedError, NoDeviceError, DtypeError):
        if request.fallback == "numpy" and _on_host(a, b, c, out):
            return host_product.numpy_product(request, a, b, c, out)
        raise
    is_kernel = isinstance(prepared, PreparedCall) and prepared.route is not None
    if plain and is_kernel and (out is None or _is_usual(out, prepared.target, request, a, b)):
        remember(recipe_of(prepared, a, b), a, b)
    return result


def _is_usual(out, target, request, a, b):
    """True if a given output is like the one that would be made, and the kernel wrote into it."""
    if out is not target or not all(type(x) is np.ndarray for x in (a, b, out)):
        return False
    _, dtype = product_dtypes(request, {"a": a, "b": b}, None)
    return (
        out.dtype == dtype and out.flags.c_contiguous
        and out.shape == arrange(a.shape, b.shape).shape
    )  # fmt: skip


def prepare_any(request, a, b, c, out):
    """A PreparedCall, or an EmulatedCall if that is asked for, or if it is the way out that is
    asked for on a device without float64."""
    precision = read_precision(request.precision)
    if precision.emulated and product_name(request, a, b) in _DOUBLE:
        return EmulatedCall(request, a, b, c, out)
    try:
        return prepare(request, a, b, c, out)
    except (UnsupportedError, NoDeviceError, DtypeError):
        names = _DOUBLE if request.fallback == "emulate" else ()
        if precision.compensated:
            names += ("float32", "complex64")
        if names and product_name(request, a, b) in names:
            return EmulatedCall(request, a, b, c, out)
        raise


def _on_host(*arrays):
    return not any(is_device_array(x) or isinstance(x, Packed) for x in arrays)
