"""The keywords of one call: read, checked, and asked about dtypes and scalars."""

from dataclasses import dataclass

import numpy as np

from clmatmul import device as devices
from clmatmul.config import TileConfig
from clmatmul.containers import carried
from clmatmul.element_types import element_type, numpy_dtype, product_type
from clmatmul.errors import ArgumentError, DtypeError, ShapeError
from clmatmul.operands import refuse_byte_order
from clmatmul.precision import default_precision, read_precision
from clmatmul.problem import EPILOGUE_OPERANDS, Epilogue


@dataclass(frozen=True)
class Request:
    """The keywords of one call, read and checked."""

    alpha: object = 1
    beta: object = 0
    transpose_a: object = False
    transpose_b: object = False
    axes: object = None
    casting: str = "same_kind"
    order: str = "K"
    dtype: object = None
    precision: str | None = None
    accumulate: object = None
    reproducible: bool = False
    fallback: str | None = None
    epilogue: Epilogue | None = None
    memory_limit: int | None = None
    device: object = None
    queue: object = None
    wait_for: object = None
    config: TileConfig | None = None

    def __post_init__(self):
        _one_of("casting", self.casting, ("no", "equiv", "safe", "same_kind", "unsafe"))
        _one_of("order", self.order, ("K", "A", "C", "F"))
        _one_of("fallback", self.fallback, (None, "numpy", "emulate"))
        _one_of("transpose_a", self.transpose_a, (False, True, "C"))
        _one_of("transpose_b", self.transpose_b, (False, True, "C"))
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if devices.is_device_array(value) or np.ndim(value):
                raise ArgumentError(f"{name} must be a single number, not an array")
        if self.precision is None:
            # now, so that a prepared product does not change with the block it is called in
            object.__setattr__(self, "precision", default_precision())
        read_precision(self.precision)
        if self.epilogue is not None and not isinstance(self.epilogue, Epilogue):
            raise ArgumentError(
                f"epilogue={self.epilogue!r} is no clmatmul.Epilogue; write "
                "epilogue=clmatmul.Epilogue(bias=…, activation=…)"
            )


def check_output(out, on_device):
    if devices.is_device_array(out) != on_device:
        raise ArgumentError("out is a NumPy array, but an operand is a pyopencl array")
    if on_device:
        refuse_byte_order(out, "out")
    elif not out.flags.writeable:
        raise ArgumentError("out is read-only; pass an array that can be written")


def check_auxiliary(aux, on_device, product, shape):
    """ArgumentError, ShapeError or DtypeError unless `aux` can take the product's values."""
    if not isinstance(aux, np.ndarray) and not devices.is_device_array(aux):
        raise ArgumentError(f"aux must be an array, which is written, not {type(aux).__name__}")
    if devices.is_device_array(aux) != on_device:
        raise ArgumentError("aux is a NumPy array, but an operand is a pyopencl array")
    if on_device:
        refuse_byte_order(aux, "aux")
    elif not aux.flags.writeable:
        raise ArgumentError("aux is read-only; pass an array that can be written")
    if tuple(aux.shape) != tuple(shape):
        raise ShapeError(f"aux has shape {tuple(aux.shape)}, and the result {tuple(shape)}")
    element_type(aux.dtype)
    if not _can_cast(product, aux.dtype, "same_kind"):
        raise DtypeError(f"aux of dtype {aux.dtype} cannot take values of dtype {product}")


def product_dtypes(request, arrays, out):
    """(dtype of the product, dtype of the output); DtypeError if a cast is not allowed."""
    product = product_type(arrays["a"].dtype, arrays["b"].dtype, request.dtype)
    if request.dtype is None and "c" in arrays:
        product = product_type(product, arrays["c"].dtype)
    if request.accumulate is not None and request.dtype is None:
        # int8 @ int8 accumulated in int32 is an int32 product, not one that wraps at 8 bits
        wider = numpy_dtype(element_type(request.accumulate).name)
        if wider.kind in "iu" and product.kind in "iu" and wider.itemsize > product.itemsize:
            product = wider
    element_type(product)
    # casting='unsafe' allows kernels no more than 'same_kind' does
    casting = "same_kind" if request.casting == "unsafe" else request.casting
    for name in ("a", "b", "c"):
        if name in arrays and not _can_cast(arrays[name].dtype, product, casting):
            raise DtypeError(
                f"cannot cast operand {name} from {arrays[name].dtype} to {product} with "
                f"casting={casting!r}; convert it with .astype first"
            )
    epilogue = request.epilogue
    result = np.dtype(product)
    if epilogue is not None and epilogue.dtype is not None:
        result = numpy_dtype(element_type(epilogue.dtype).name)
    elif out is not None:
        result = out.dtype.newbyteorder("=")
    element_type(result)
    if not _can_cast(product, result, casting):
        raise DtypeError(
            f"cannot cast the product from {product} to {result} with casting={casting!r} "
            "(in NumPy's words: Cannot cast ufunc 'matmul' output)"
        )
    if out is not None and not _can_cast(result, out.dtype, casting):
        raise DtypeError(
            f"cannot cast the result from {result} to out's {out.dtype} with casting={casting!r} "
            "(in NumPy's words: Cannot cast ufunc 'matmul' output)"
        )
    return product, result


def least_accumulator(request, product):
    """The dtype that the product must accumulate in at least, or None for its default."""
    if request.accumulate is not None:
        return request.accumulate
    if read_precision(request.precision).accumulate == "float64":
        return {"float32": "float64", "complex64": "complex128"}.get(product.name)
    return None


def checked_scalar(name, value, compute):
    """alpha or beta as a plain number that the accumulator's type can hold."""
    value = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    allowed = {
        "complex": (bool, int, float, complex),
        "real": (bool, int, float),
        "integer": (bool, int),
        "bool": (bool, int),
    }[compute.kind]
    if not isinstance(value, allowed):
        raise DtypeError(
            f"{name}={value!r} cannot multiply a product that accumulates in {compute.name}; "
            "convert the operands with .astype, or pass dtype="
        )
    if compute.kind == "bool" and value not in (0, 1):
        raise DtypeError(f"{name}={value!r}: a product of bool arrays takes 0 or 1")
    return value


def output_order(order, a, b):
    if order == "F":
        return "F"
    if order == "A":
        return "F" if a.flags.f_contiguous and b.flags.f_contiguous else "C"
    return "C"


def epilogue_arrays(epilogue):
    if epilogue is None:
        return {}
    found = {name: carried(getattr(epilogue, name)) for name in EPILOGUE_OPERANDS}
    found.update({f"extra_{x}": carried(array) for x, array in (epilogue.extras or {}).items()})
    return {name: x for name, x in found.items() if x is not None}


def _one_of(name, value, allowed):
    if not any(value is x or (value == x and type(value) is type(x)) for x in allowed):
        listed = ", ".join(map(repr, allowed))
        raise ArgumentError(f"{name}={value!r} is not allowed; allowed are {listed}")


def _can_cast(source, target, casting):
    if "bfloat16" in (source.name, target.name):
        kinds = {element_type(source).kind, element_type(target).kind}
        return kinds <= {"bfloat", "half", "float"} or source.kind in "biu"
    return np.can_cast(source, target, casting)
