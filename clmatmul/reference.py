"""The oracle: what a product must be, and how far a result may be from it.

Integers and bool: exact, wrapping as NumPy's do. Floating point: evaluated in a wider type than
the kernel's, with the componentwise bound

    |result - exact| <= f * u * (|alpha| |A| |B| + …) + output rounding,
    f = min(gamma_K / u, 6 sqrt(K)) for real numbers (Higham, Accuracy and Stability of
    Numerical Algorithms, ch. 3; the second term is what rounding errors of random sign reach).

A float32 BLAS is never the oracle. The formula's other owner is `kernels/parts/store.mako`.
"""

import math

import numpy as np

from clmatmul.element_types import COMPUTE_TYPES, element_type, numpy_dtype
from clmatmul.expression import read_expression

# An activation may stretch an error by its largest slope, and rounds a few times itself: by
# less than 2 units in the last place (kernels/parts/activation.mako).
_SLOPE = {"none": 1.0, "relu": 1.0, "clamp": 1.0, "sigmoid": 0.25, "tanh": 1.0, "silu": 1.1,
          "gelu": 1.13, "gelu_tanh": 1.13}  # fmt: skip
_FUNCTION_ULPS = 4.0

# What an expression makes of an error nobody knows: enough to see that each element is its own.
_EXPRESSION_ERROR = 1e-3


def wide_type(compute):
    """The NumPy dtype in which the oracle evaluates a product that accumulates in `compute`."""
    kind = COMPUTE_TYPES[compute].kind
    wide = {"float32": np.float64, "float64": np.longdouble,
            "complex64": np.complex128, "complex128": np.clongdouble}  # fmt: skip
    return np.dtype(wide[compute]) if kind in ("real", "complex") else None


def evaluate(
    a, b, *, compute, result, out, alpha=1, beta=0, c=None, epilogue=None, before_activation=False
):
    """The formula of problem.py in wide arithmetic, *before* the rounding to `out`.

    a: (…, m, k), b: (…, k, n), c and the epilogue's arrays broadcast to (…, m, n); `epilogue` is
    a dict of arrays bias, residual, row_scale (…, m, 1), col_scale (…, 1, n), extra_NAME, of the
    activation's name, its bounds and the expression's text. compute, result, out: names of the
    accumulator, of the product's dtype and of the output's. before_activation: what an auxiliary
    output gets. Integer and bool results come back in `out`'s dtype, others in the wide one.
    """
    wide = wide_type(compute) or numpy_dtype(result)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = batch + (a.shape[-2], b.shape[-1])
    with np.errstate(all="ignore"):
        read = alpha != 0 and a.shape[-1]
        product = np.matmul(a.astype(wide), b.astype(wide)) if read else None
    value = finish(
        product, shape, wide, alpha=alpha, beta=beta, c=c, epilogue=epilogue,
        before_activation=before_activation,
    )  # fmt: skip
    return value.astype(numpy_dtype(out)) if wide_type(compute) is None else value


def finish(
    product, shape, wide, *, alpha=1, beta=0, c=None, epilogue=None, before_activation=False
):
    """The formula but for A @ B, which is `product` (None for no term), in `wide` arithmetic.

    shape: the result's, (…, m, n). The others: see `evaluate`.
    """
    epilogue = dict(epilogue or {})
    activation = epilogue.pop("activation", "none")
    if before_activation:
        epilogue = {**epilogue, "expression": None, "residual": None}
        activation = "none"
    with np.errstate(all="ignore"):
        terms = []
        if product is not None:
            product = _times(product, alpha, wide)
            for scale in ("row_scale", "col_scale"):
                if scale in epilogue:
                    product = product * epilogue[scale].astype(wide)
            terms.append(product)
        if beta != 0:
            terms.append(_times(c.astype(wide), beta, wide))
        if "bias" in epilogue:
            terms.append(epilogue["bias"].astype(wide))
        value = np.zeros(shape, wide)
        for i, term in enumerate(terms):
            # The first term is copied, not added to zero, which would turn -0 into 0.
            value = np.broadcast_to(term, shape) if i == 0 else value + term
        value = apply_activation(value, activation, epilogue.get("bounds"))
        if epilogue.get("residual") is not None:
            value = value + epilogue["residual"].astype(wide)
        if epilogue.get("expression"):
            value = _apply_expression(value, epilogue, wide)
        return np.asarray(value)


def _apply_expression(value, epilogue, wide):
    extras = {
        name.removeprefix("extra_"): np.broadcast_to(x, value.shape).astype(wide)
        for name, x in epilogue.items()
        if name.startswith("extra_")
    }
    m, n = value.shape[-2:]
    rows = np.broadcast_to(np.arange(m, dtype=wide)[:, None], value.shape)
    cols = np.broadcast_to(np.arange(n, dtype=wide)[None, :], value.shape)
    expression = read_expression(epilogue["expression"], tuple(extras))
    found = expression.evaluate({"acc": np.asarray(value), "row": rows, "col": cols, **extras})
    return np.broadcast_to(found, value.shape)


def apply_activation(x, name, bounds=None):
    """The activation in x's own (wide) type; at -inf, silu and gelu are their limit, -0."""
    if name == "none":
        return x
    if name == "clamp":
        low, high = (x.dtype.type(b) for b in bounds)
        return np.where(x < low, low, np.where(x > high, high, x))
    if name == "relu":
        return np.where(x < 0, np.zeros_like(x), x)
    if name == "sigmoid":
        return 1 / (1 + np.exp(-x))
    if name == "tanh":
        return np.tanh(x)
    if name == "silu":
        value = x / (1 + np.exp(-x))
    elif name == "gelu_tanh":
        twice_root = x.dtype.type("1.595769121605730711759784")  # 2 sqrt(2 / pi)
        value = x / (1 + np.exp(-twice_root * (x + x.dtype.type("0.044715") * x * x * x)))
    elif name == "gelu":
        value = 0.5 * x * _erfc(-x / np.sqrt(x.dtype.type(2)))
    return np.where(np.isneginf(x), np.full_like(x, -0.0), value)


def _erfc(x):
    """The complementary error function in x's own type: float64's, and from there a short way."""
    near = x.astype(np.float64)
    value = np.frompyfunc(math.erfc, 1, 1)(near).astype(x.dtype)
    rest = np.where(np.isfinite(x), x - near, 0)
    return value - 2 / math.sqrt(math.pi) * np.exp(-x * x) * rest


def round_to(value, out):
    """The wide value rounded once to the output's dtype."""
    with np.errstate(all="ignore"):
        return value.astype(numpy_dtype(out))


def allowed_error(
    a, b, value, *, compute, out, alpha=1, beta=0, c=None, epilogue=None, any_data=False
):
    """Componentwise bound for floating-point results, in float64: |result - value| <= it.

    `value` is what `evaluate` gave. Infinite where the bound itself overflows. any_data: True
    leaves out the second term of f, which a right result may exceed if the rounding errors do not
    have random signs (a sum of one number, over and over, is rounded the same way each time).
    """
    epilogue = dict(epilogue or {})
    activation = epilogue.pop("activation", "none")
    u = COMPUTE_TYPES[compute].unit_roundoff
    k = a.shape[-1]
    terms = 2 * k if COMPUTE_TYPES[compute].kind == "complex" else k
    gamma = terms / (1 - terms * u)
    factor = gamma if any_data else min(gamma, 6 * math.sqrt(terms))
    with np.errstate(all="ignore"):
        scale = np.zeros(value.shape)
        size = np.zeros(value.shape)  # of everything that is added up
        if alpha != 0 and k:
            product = np.matmul(_magnitude(a), _magnitude(b)) * abs(alpha)
            for name in ("row_scale", "col_scale"):
                if name in epilogue:
                    product = product * _magnitude(epilogue[name])
            scale = scale + factor * product
            size = size + product
        if beta != 0:
            size = size + abs(beta) * _magnitude(c)
        for name in ("bias", "residual"):
            if epilogue.get(name) is not None:
                size = size + _magnitude(epilogue[name])
        # alpha, beta, scales and additions each round a few times more
        bound = u * (scale + 8 * size) * _SLOPE[activation]
        if activation not in ("none", "relu"):
            bound = bound + u * _FUNCTION_ULPS * np.abs(value).astype(np.float64)
        if epilogue.get("expression"):
            bound = bound + _EXPRESSION_ERROR * (1 + np.abs(value).astype(np.float64))
        epsilon, smallest = _float_info(out)
        return bound + epsilon * np.abs(value).astype(np.float64) + smallest


def error_ratio(result, value, allowed):
    """Largest |result - value| / allowed; inf if NaNs or infinities are not where they belong."""
    with np.errstate(all="ignore"):
        wide = result.astype(value.dtype)
        expected = round_to(value, result.dtype.name).astype(value.dtype)
        # A finite value may still round to infinity in a narrow output type.
        special = ~np.isfinite(value) | ~np.isfinite(expected)
        same = (wide == expected) | (np.isnan(wide) & np.isnan(expected))
        if not np.all(same[special]):
            return math.inf
        error = np.abs(wide - value)[~special].astype(np.float64)
        bound = allowed[~special]
        if error.size == 0:
            return 0.0
        if np.any(np.isnan(error)):
            return math.inf
        return float(np.max(error / bound))


def _times(x, factor, wide):
    if isinstance(factor, (int, np.integer)) and wide.kind in "iu":
        factor = np.array(factor % 2 ** (8 * wide.itemsize), dtype=f"u{wide.itemsize}").astype(wide)
        return x * factor
    return x if factor == 1 else x * np.asarray(factor).astype(wide)


def _magnitude(x):
    if element_type(x.dtype).kind == "complex":
        return np.abs(x.real).astype(np.float64) + np.abs(x.imag).astype(np.float64)
    return np.abs(x.astype(np.float64))


def _float_info(name):
    """(epsilon, smallest subnormal) of an output type; of its real part if it is complex."""
    if name == "bfloat16":
        return 2.0**-7, 2.0**-133
    info = np.finfo(np.dtype(name).type(0).real.dtype)
    return float(info.eps), float(info.smallest_subnormal)
