"""The product by NumPy on the host: what no kernel computes, and the fallback that is asked for."""

import numpy as np

from clmatmul.arrangement import arrange
from clmatmul.errors import UnsupportedError


def numpy_product(request, a, b, c, out):
    """The product by NumPy on the host: for longdouble and object, and as the fallback."""
    if request.epilogue is not None or request.accumulate is not None or request.reproducible:
        raise UnsupportedError(
            "epilogue, accumulate and reproducible need a kernel, and NumPy computes this product "
            f"(dtypes {a.dtype} and {b.dtype})"
        )

    a, b = _turned(a, request.transpose_a), _turned(b, request.transpose_b)
    keywords = {"casting": request.casting, "order": request.order, "dtype": request.dtype}
    if request.axes is not None:
        keywords["axes"] = request.axes
    if request.alpha == 1 and request.beta == 0:
        return (
            np.matmul(a, b, out=out, **keywords) if out is not None else np.matmul(a, b, **keywords)
        )
    value = request.alpha * np.matmul(a, b, **keywords) if request.alpha != 0 else 0
    if request.beta != 0:
        value = value + request.beta * np.asarray(c)
    shape = arrange(a.shape, b.shape, axes=request.axes).shape
    value = np.broadcast_to(value, np.broadcast_shapes(shape, np.shape(value)))
    if out is None:
        return np.array(value, order=request.order)
    np.copyto(out, value, casting=request.casting)
    return out


def _turned(x, how):
    x = np.swapaxes(x, -1, -2) if how and x.ndim > 1 else x
    return x.conj() if how == "C" else x
