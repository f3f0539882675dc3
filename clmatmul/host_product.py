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


def scaled_product(request, a, b, c, multiply):
    """alpha * op(a) @ op(b) + beta * c in float64 or complex128, where `multiply` multiplies
    matrices; a and b are not read if alpha is 0, nor c if beta is."""
    a, b = _turned(a, request.transpose_a), _turned(b, request.transpose_b)
    arrangement = arrange(a.shape, b.shape)
    x = a[None, :] if a.ndim == 1 else a
    y = b[:, None] if b.ndim == 1 else b
    if request.alpha == 0:
        value = np.zeros(arrangement.shape)
    else:
        value = multiply(x, y).reshape(arrangement.shape)
        value = value if request.alpha == 1 else request.alpha * value
    return value if request.beta == 0 else value + request.beta * np.asarray(c)


def _turned(x, how):
    x = np.swapaxes(x, -1, -2) if how and x.ndim > 1 else x
    return x.conj() if how == "C" else x
