"""A product by a kernel, or by what the request names instead: whole numbers, or NumPy."""

from clmatmul import device as devices
from clmatmul import host_product
from clmatmul.calls import prepare, recipe_of
from clmatmul.emulated_calls import multiply_emulated, product_name
from clmatmul.errors import DtypeError, NoDeviceError, UnsupportedError
from clmatmul.operands import HOST_ONLY, plain_array, refuse_mask
from clmatmul.packed import Packed
from clmatmul.precision import read_precision
from clmatmul.repeats import remember


def multiply(request, a, b, c, out, plain=False):
    if _on_host(a, b, c, out):
        a, b = plain_array(a, "the first operand"), plain_array(b, "the second operand")
        if request.beta != 0:
            refuse_mask(c, "c")
        if a.dtype.char in HOST_ONLY or b.dtype.char in HOST_ONLY:
            return host_product.numpy_product(request, a, b, c, out)
    precision = read_precision(request.precision)
    try:
        if precision.emulated and product_name(request, a, b) in ("float64", "complex128"):
            return multiply_emulated(request, a, b, c, out)
        prepared = prepare(request, a, b, c, out)
        result = prepared.run()
        if plain and out is None and prepared.route is not None:
            remember(recipe_of(prepared, a, b), a, b)
        return result
    except (UnsupportedError, NoDeviceError, DtypeError):
        if request.fallback == "numpy" and _on_host(a, b, c, out):
            return host_product.numpy_product(request, a, b, c, out)
        emulated_types = ("float64", "complex128") if request.fallback == "emulate" else ()
        if precision.compensated:
            emulated_types += ("float32", "complex64")
        if emulated_types and product_name(request, a, b) in emulated_types:
            return multiply_emulated(request, a, b, c, out)
        raise


def _on_host(*arrays):
    return not any(devices.is_device_array(x) or isinstance(x, Packed) for x in arrays)
