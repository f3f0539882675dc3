"""The array API standard's namespace for `Array`: what of it there are kernels or views for.

`A.__array_namespace__()` gives this module. It has the linear algebra of the standard's main
namespace, creation, views and data types. Functions that are not here (sums, elementwise
arithmetic, …) have no kernels: move the array to the host for them.
"""

import math
from types import SimpleNamespace

import numpy as np

from clmatmul import api, products, selection, views
from clmatmul.array import Array
from clmatmul.containers import carried
from clmatmul.errors import ArgumentError, ShapeError, UnsupportedError
from clmatmul.products import matrix_transpose  # noqa: F401  (part of the namespace)

__array_api_version__ = "2024.12"
_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None

bool = np.dtype("bool")
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float32, float64 = np.dtype("float32"), np.dtype("float64")
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")
_DTYPES = {
    "bool": (bool,),
    "signed integer": (int8, int16, int32, int64),
    "unsigned integer": (uint8, uint16, uint32, uint64),
    "real floating": (float32, float64),
    "complex floating": (complex64, complex128),
}
_DTYPES["integral"] = _DTYPES["signed integer"] + _DTYPES["unsigned integer"]
_DTYPES["numeric"] = _DTYPES["integral"] + _DTYPES["real floating"] + _DTYPES["complex floating"]


def checked_version(api_version):
    """This module, if it follows that version of the standard; UnsupportedError."""
    if api_version is not None and api_version not in _VERSIONS:
        raise UnsupportedError(
            f"version {api_version!r} of the array API standard; there are {', '.join(_VERSIONS)}"
        )
    import clmatmul

    return clmatmul.array_api


# ---- linear algebra -------------------------------------------------------------------------


def matmul(x1, x2, /):
    """The matrix product; two vectors give an Array without dimensions."""
    return api.matmul(x1, x2)


def tensordot(x1, x2, /, *, axes=2):
    """The sum over pairs of dimensions, without broadcasting or conjugation."""
    return products.tensordot(x1, x2, axes)


def vecdot(x1, x2, /, *, axis=-1):
    """The sum of conj(x1) * x2 over `axis`, counted from the last (-1)."""
    if axis >= 0:
        raise ArgumentError(f"axis={axis}: the standard counts vecdot's axis from the last, as -1")
    return products.vecdot(x1, x2, axis=axis)


linalg = SimpleNamespace(
    matmul=matmul, tensordot=tensordot, vecdot=vecdot, matrix_transpose=matrix_transpose
)


# ---- creation -------------------------------------------------------------------------------


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    """An Array of anything that NumPy makes an array of; an Array stays what it is."""
    if isinstance(obj, Array):
        made = obj if device is None else obj.to_device(device)
        if dtype is not None and made.dtype != dtype:
            made = made.astype(dtype)
        return made.copy() if copy and made is obj else made
    if copy is False:
        raise ArgumentError("what is on the host cannot become an Array without a copy")
    return Array.from_host(np.array(obj, dtype), device=device)


def from_dlpack(x, /, *, device=None, copy=None):
    """An Array with a copy of what x gives in host memory; an Array stays what it is."""
    if isinstance(x, Array):
        return asarray(x, device=device, copy=copy)
    if copy is False:
        raise ArgumentError("what is on the host cannot become an Array without a copy")
    return Array.from_host(np.from_dlpack(x), device=device)


def empty(shape, *, dtype=None, device=None):
    return Array.empty(_shape(shape), dtype or float64, device=device)


def zeros(shape, *, dtype=None, device=None):
    return full(shape, 0, dtype=dtype or float64, device=device)


def ones(shape, *, dtype=None, device=None):
    return full(shape, 1, dtype=dtype or float64, device=device)


def full(shape, fill_value, *, dtype=None, device=None):
    return Array.from_host(np.full(_shape(shape), fill_value, dtype), device=device)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    return Array.from_host(np.eye(n_rows, n_cols, k, dtype or float64), device=device)


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    start, stop = (0, start) if stop is None else (start, stop)
    return Array.from_host(np.arange(start, stop, step, dtype), device=device)


def _shape(shape):
    return (shape,) if isinstance(shape, int) else tuple(shape)


# ---- views ----------------------------------------------------------------------------------


def permute_dims(x, /, axes):
    return products.transpose(x, axes)


def reshape(x, /, shape, *, copy=None):
    return x.reshape(shape, copy=copy)


def expand_dims(x, /, *, axis=0):
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise ShapeError(f"axis {axis} is out of range for {x.ndim + 1} dimensions")
    return x[(slice(None),) * (axis % (x.ndim + 1)) + (None,)]


def squeeze(x, /, axis):
    axes = [i % x.ndim for i in ((axis,) if isinstance(axis, int) else axis)]
    if any(x.shape[i] != 1 for i in axes):
        raise ShapeError(f"dimensions {axes} of shape {x.shape} are not all of one element")
    return x[tuple(0 if i in axes else slice(None) for i in range(x.ndim))]


def broadcast_to(x, /, shape):
    return x.__opencl_view__(views.repeated(carried(x), tuple(shape)))


# ---- data types -----------------------------------------------------------------------------


def astype(x, dtype, /, *, copy=True, device=None):
    made = x if device is None else x.to_device(device)
    return made.astype(dtype, copy=copy)


def result_type(*arrays_and_dtypes):
    return np.result_type(*(getattr(x, "dtype", x) for x in arrays_and_dtypes))


def can_cast(from_, to, /):
    return np.can_cast(getattr(from_, "dtype", from_), to)


def isdtype(dtype, kind):
    """True if dtype is `kind`: a dtype, the name of a kind of dtypes, or a tuple of those."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    unknown = [x for x in kinds if isinstance(x, str) and x not in _DTYPES]
    if unknown:
        raise ArgumentError(f"kind {unknown[0]!r} is none of {', '.join(_DTYPES)}")
    return any(dtype in _DTYPES[x] if isinstance(x, str) else dtype == x for x in kinds)


finfo, iinfo = np.finfo, np.iinfo


class _Info:
    """What there is, as the standard's inspection functions tell it."""

    def capabilities(self):
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self):
        return selection.default_device()

    def devices(self):
        return selection.list_devices()

    def default_dtypes(self, *, device=None):
        return {
            "real floating": float64, "complex floating": complex128, "integral": int64,
            "indexing": int64,
        }  # fmt: skip

    def dtypes(self, *, device=None, kind=None):
        every = (bool, *_DTYPES["numeric"])
        return {str(x): x for x in every if kind is None or isdtype(x, kind)}


def __array_namespace_info__():
    return _Info()
