"""The element types that a product may have, and what each is called in OpenCL C.

A matrix element has a *storage* type (how it lies in memory) and takes part in the arithmetic
in a *compute* type (how it is accumulated). A 16-bit float is stored in 16 bits and accumulated
in float32; integers are accumulated unsigned, so that they wrap as NumPy's do.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from clmatmul.errors import DtypeError


@dataclass(frozen=True)
class ElementType:
    """One dtype: `kind` is bool, int, uint, float, half, bfloat or complex."""

    name: str
    kind: str
    itemsize: int
    storage: str  # OpenCL C type of the pointer's target; complex numbers are pairs of it
    compute: str  # name of the compute type in which a product of two of these accumulates
    needs_fp64: bool = False

    @property
    def is_integer(self):
        return self.kind in ("int", "uint")


@dataclass(frozen=True)
class ComputeType:
    """How accumulators are held: `scalar` is the OpenCL C type of a real part."""

    name: str
    kind: str  # bool, integer, real or complex
    scalar: str
    vector: str  # OpenCL C type of one accumulator: the scalar, or a pair
    itemsize: int
    host: str  # NumPy dtype of a kernel argument of this type
    unit_roundoff: float = 0.0
    needs_fp64: bool = False


_ELEMENTS = (
    ElementType("bool", "bool", 1, "uchar", "bool"),
    ElementType("int8", "int", 1, "char", "uint32"),
    ElementType("uint8", "uint", 1, "uchar", "uint32"),
    ElementType("int16", "int", 2, "short", "uint32"),
    ElementType("uint16", "uint", 2, "ushort", "uint32"),
    ElementType("int32", "int", 4, "int", "uint32"),
    ElementType("uint32", "uint", 4, "uint", "uint32"),
    ElementType("int64", "int", 8, "long", "uint64"),
    ElementType("uint64", "uint", 8, "ulong", "uint64"),
    ElementType("float16", "half", 2, "half", "float32"),
    ElementType("bfloat16", "bfloat", 2, "ushort", "float32"),
    ElementType("float32", "float", 4, "float", "float32"),
    ElementType("float64", "float", 8, "double", "float64", needs_fp64=True),
    ElementType("complex64", "complex", 8, "float", "complex64"),
    ElementType("complex128", "complex", 16, "double", "complex128", needs_fp64=True),
)
ELEMENT_TYPES = {e.name: e for e in _ELEMENTS}

_COMPUTE = (
    ComputeType("bool", "bool", "uint", "uint", 4, "uint32"),
    ComputeType("uint32", "integer", "uint", "uint", 4, "uint32"),
    ComputeType("uint64", "integer", "ulong", "ulong", 8, "uint64"),
    ComputeType("float32", "real", "float", "float", 4, "float32", 2.0**-24),
    ComputeType("float64", "real", "double", "double", 8, "float64", 2.0**-53, True),
    ComputeType("complex64", "complex", "float", "float2", 8, "complex64", 2.0**-24),
    ComputeType("complex128", "complex", "double", "double2", 16, "complex128", 2.0**-53, True),
)
COMPUTE_TYPES = {c.name: c for c in _COMPUTE}


def element_type(dtype):
    """The ElementType of a NumPy dtype or its name; DtypeError names what is supported."""
    if isinstance(dtype, str) and dtype in ELEMENT_TYPES:
        return ELEMENT_TYPES[dtype]  # NumPy itself does not know bfloat16 by its name
    if isinstance(dtype, np.dtype):
        return _of_dtype(dtype)
    try:
        return _of_dtype(np.dtype(dtype))
    except TypeError as error:
        raise DtypeError(f"{dtype!r} is no dtype: {error}") from None


@lru_cache(maxsize=256)
def _of_dtype(dtype):
    # NumPy makes a dtype's name anew each time, which a small product would notice.
    found = ELEMENT_TYPES.get(dtype.name)
    if found is None or dtype.kind == "O":
        raise DtypeError(
            f"dtype {dtype} has no OpenCL kernel here; supported are "
            f"{', '.join(ELEMENT_TYPES)} (convert with .astype, or pass fallback='numpy')"
        )
    return found


def numpy_dtype(name):
    """The NumPy dtype called `name`; bfloat16 comes from ml_dtypes."""
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise DtypeError(
                "bfloat16 needs the package ml_dtypes: pip install 'clmatmul[bfloat16]'"
            ) from None
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def product_type(a, b, dtype=None):
    """The dtype of the product of two dtypes, as numpy.matmul has it, or `dtype` if given.

    bfloat16 products are float32, as NumPy with ml_dtypes has it.
    """
    if dtype is not None:
        return numpy_dtype(element_type(dtype).name)
    a, b = np.dtype(a), np.dtype(b)
    if "bfloat16" in (a.name, b.name):
        if a.name == b.name:
            return np.dtype(np.float32)
        other = b if a.name == "bfloat16" else a
        return np.result_type(np.float32, other)
    try:
        return np.result_type(a, b)
    except TypeError:
        raise DtypeError(f"there is no common dtype for a product of {a} and {b}") from None


def accumulator(product, accumulate=None):
    """The ComputeType for a product of dtype `product`; `accumulate` may only widen it.

    DtypeError if `accumulate` is narrower than, or of another kind than, the default.
    """
    default = COMPUTE_TYPES[element_type(product).compute]
    if accumulate is None:
        return default
    wanted = COMPUTE_TYPES[element_type(accumulate).compute]
    if wanted.kind != default.kind or wanted.itemsize < default.itemsize:
        raise DtypeError(
            f"accumulate={np.dtype(accumulate)} is not at least as wide as {default.name}, in "
            f"which a product of dtype {np.dtype(product)} accumulates by default"
        )
    return wanted
