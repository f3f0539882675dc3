"""The arrays of one call: read, checked, and what follows from their dtypes and shapes."""

from dataclasses import dataclass

import numpy as np

from clmatmul.arrangement import Arrangement, arrange
from clmatmul.containers import carried
from clmatmul.device_arrays import is_device_array
from clmatmul.element_types import (
    COMPUTE_TYPES,
    ComputeType,
    element_type,
    numpy_dtype,
    product_type,
)
from clmatmul.errors import ArgumentError, DtypeError, ShapeError
from clmatmul.expression import read_expression
from clmatmul.operands import host_array, refuse_byte_order
from clmatmul.packed import Packed
from clmatmul.precision import read_precision
from clmatmul.problem import Problem, scalar_class
from clmatmul.request import Request, epilogue_arrays, least_accumulator


@dataclass(frozen=True)
class Arguments:
    """A call's arrays, each a NumPy or a pyopencl array.

    arrays: by name, all that is read: a, b, c and the epilogue's. packed: those of a and b that
    were given as Packed. given: the pyopencl arrays, c among them even if beta is 0.
    scaled: the product is `scale`'s, alpha * A @ B + beta * c of c's own shape.
    """

    request: Request
    arrays: dict
    packed: dict
    out: object
    aux: object
    given: list
    scaled: bool
    product: np.dtype
    result: np.dtype
    compute: ComputeType
    scalars: dict
    arrangement: Arrangement

    @property
    def on_device(self):
        return bool(self.given)

    @property
    def shape(self):
        """The result's."""
        return tuple(self.arrays["c"].shape) if self.scaled else self.arrangement.shape

    @property
    def order(self):
        """C or F: how a new result is to lie."""
        order, a, b = self.request.order, self.arrays["a"], self.arrays["b"]
        if order == "A":
            return "F" if a.flags.f_contiguous and b.flags.f_contiguous else "C"
        return "F" if order == "F" else "C"

    @property
    def is_vector_product(self):
        return self.arrangement.a_is_vector and self.arrangement.b_is_vector

    def arranged(self, views):
        """Each ArrayView as (batch…, rows, columns)."""
        arranged = dict(views)
        if self.scaled:
            for name in ("c", "out"):
                view = views[name]
                while len(view.shape) < 2:
                    view = view.expanded(0)
                arranged[name] = view
            return arranged
        arrangement = self.arrangement
        arranged["a"] = arrangement.a(views["a"])
        arranged["b"] = arrangement.b(views["b"])
        arranged["out"] = arrangement.out(views["out"])
        for name in views:
            # What broadcasts to the result takes part with the result's own dimensions.
            if name in ("c", "bias", "residual", "aux") or name.startswith("extra_"):
                whole = views[name].broadcast_to(arrangement.shape, name)
                arranged[name] = arrangement.out(whole)
        return arranged

    def problem(self, views):
        """The Problem. views: an ArrayView of every array, and of `out` and `aux`."""
        request, views = self.request, self.arranged(views)
        alpha, beta = self.scalars["alpha"], self.scalars["beta"]
        return Problem.from_arrays(
            views["a"], views["b"], views["out"], c=views.get("c"),
            alpha=scalar_class(alpha),
            # scale: 0 times infinity is NaN there, so a zero is no reason to leave the array unread
            beta="general" if self.scaled and beta == 0 else scalar_class(beta),
            epilogue=_described(request.epilogue, views),
            result=self.product.name,
            accumulate=least_accumulator(request, self.product),
            conjugate_a=request.transpose_a == "C",
            conjugate_b=request.transpose_b == "C",
            reproducible=bool(request.reproducible),
            precision=read_precision(request.precision).level,
        )  # fmt: skip


def read_arguments(request, a, b, c, out, scaled=False):
    """The Arguments of a call; ArgumentError, ShapeError or DtypeError for what cannot be."""
    fused = epilogue_arrays(request.epilogue)
    aux = None if request.epilogue is None else carried(request.epilogue.aux)
    given = [x for x in (a, b, c, out, aux, *fused.values()) if is_device_array(x)]
    packed = {name: x for name, x in (("a", a), ("b", b)) if isinstance(x, Packed)}
    arrays = {"a": a, "b": b, **fused, **{name: x.array for name, x in packed.items()}}
    if c is not None and request.beta != 0 or scaled:
        arrays["c"] = c
    elif request.beta != 0:
        raise ArgumentError(f"beta={request.beta!r} needs c, the matrix that it multiplies")
    names = {"a": "the first operand", "b": "the second operand"}
    for name, x in arrays.items():
        if is_device_array(x):
            refuse_byte_order(x, names.get(name, name))
        else:
            arrays[name] = host_array(x, names.get(name, name))
    if out is not None:
        _check_written("out", out, bool(given))
    product, result = product_dtypes(request, arrays, out)
    arrangement = arrange(
        tuple(arrays["a"].shape), tuple(arrays["b"].shape),
        transpose_a=bool(request.transpose_a), transpose_b=bool(request.transpose_b),
        axes=request.axes, out_shape=None if out is None or scaled else tuple(out.shape),
    )  # fmt: skip
    compute = COMPUTE_TYPES[element_type(product).compute]
    scalars = {x: _checked_scalar(x, getattr(request, x), compute) for x in ("alpha", "beta")}
    found = Arguments(
        request, arrays, packed, out, aux, given, scaled, np.dtype(product), result, compute,
        scalars, arrangement,
    )  # fmt: skip
    if scaled and out is not None and tuple(out.shape) != found.shape:
        raise ShapeError(f"out has shape {tuple(out.shape)}, and the array {found.shape}")
    if aux is not None:
        _check_auxiliary(aux, bool(given), found.product, found.shape)
    return found


def _described(epilogue, views):
    """What Problem.from_arrays takes as its epilogue."""
    if epilogue is None:
        return None
    expression = epilogue.expression
    if expression is not None:
        expression = read_expression(expression, tuple(sorted(epilogue.extras or {})))
    arrays = {name: x for name, x in views.items() if name not in ("a", "b", "c", "out")}
    return {**arrays, "activation": epilogue.activation, "expression": expression}


def _check_written(name, x, on_device):
    if is_device_array(x) != on_device:
        raise ArgumentError(f"{name} is a NumPy array, but an operand is a pyopencl array")
    if on_device:
        refuse_byte_order(x, name)
    elif not x.flags.writeable:
        raise ArgumentError(f"{name} is read-only; pass an array that can be written")


def _check_auxiliary(aux, on_device, product, shape):
    """ArgumentError, ShapeError or DtypeError unless `aux` can take the product's values."""
    if not isinstance(aux, np.ndarray) and not is_device_array(aux):
        raise ArgumentError(f"aux must be an array, which is written, not {type(aux).__name__}")
    _check_written("aux", aux, on_device)
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


def _checked_scalar(name, value, compute):
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


def _can_cast(source, target, casting):
    if "bfloat16" in (source.name, target.name):
        kinds = {element_type(source).kind, element_type(target).kind}
        return kinds <= {"bfloat", "half", "float"} or source.kind in "biu"
    return np.can_cast(source, target, casting)
