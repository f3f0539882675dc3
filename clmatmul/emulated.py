"""float64 products on devices without float64: whole numbers, multiplied exactly.

After Ozaki, Ogita, Oishi and Rump (2012), with integer digits instead of floating slices. Each row
of A, and each column of B, is scaled by a power of 2 below 1/2 and written in `digits` of b bits,

    a = 2^e (d0 2^-b + d1 2^-2b + …),   d whole, |d| <= 2^(b-1)

(exactly: splitting only shifts and rounds). The product of digits s and t belongs to level s + t,
and each level is one product of int32 matrices with 64-bit sums, whose b leaves room for every
sum. The host adds the levels as pairs of float64 and rounds once.

Bound: levels are left out only where all they hold is below 2^-53 |A||B|, element by element, so

    |result - A @ B| <= 2^-53 |A @ B| + 2^-53 |A||B|     unless it overflows or underflows,

however ill-conditioned; the same bits on every device. Range: within a row of A (a column of B),
numbers may differ by a factor of 2^130 at least (`MAX_DIGITS` digits hold them and their last
bits); more is refused. NaN and infinity go where IEEE arithmetic sends them.
"""

import math
from dataclasses import dataclass

import numpy as np

from clmatmul.errors import UnsupportedError

MAX_DIGITS = 10
# A level holds at most `pairs` products of 2^-2 times its weight, and a number is at least 2^-2
# of its row's scale below its span: levels this far below both hold less than 2^-53 |A||B|.
_EXACT_DROP = 56


@dataclass(frozen=True)
class Digits:
    """A matrix in digits: `cells` int32, (…, m, count, k) of A or (…, count, k, n) of B with the
    least significant digit first; exponents of the rows' (columns') scales; span: bits between
    the largest and the smallest exponent in a row (column), the greatest of all."""

    cells: np.ndarray
    exponents: np.ndarray
    count: int
    span: int


def multiply(a, b, integer_product, real_product):
    """a @ b in float64 (complex128): host arrays of two dimensions or more.

    integer_product: multiplies int32 matrices into int64 exactly. real_product: multiplies float32
    matrices, for where NaN and infinity go. UnsupportedError if a row or column spans too much.
    """
    if a.dtype.kind == "c" or b.dtype.kind == "c":
        # one product each for the real and the imaginary part, twice as deep
        left, turned = np.concatenate([a.real, -a.imag], -1), np.concatenate([a.real, a.imag], -1)
        below, above = np.concatenate([b.real, b.imag], -2), np.concatenate([b.imag, b.real], -2)
        real = multiply(left, below, integer_product, real_product)
        imag = multiply(turned, above, integer_product, real_product)
        return real + 1j * imag if np.isfinite(imag).all() else _joined(real, imag)
    a, b = a.astype(np.float64), b.astype(np.float64)
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + (a.shape[-2], b.shape[-1])
    if 0 in shape or not a.shape[-1]:
        return np.zeros(shape)
    finite_a, finite_b = np.isfinite(a), np.isfinite(b)
    if finite_a.all() and finite_b.all():
        return _finite(a, b, integer_product)
    result = _finite(np.where(finite_a, a, 0), np.where(finite_b, b, 0), integer_product)
    classes = [np.where(f, np.sign(x), x).astype(np.float32)
               for x, f in ((a, finite_a), (b, finite_b))]  # fmt: skip
    # contiguous, so that the sums below see NaN and infinity as IEEE arithmetic does
    special = real_product(*classes).astype(np.float64)
    return np.where(np.isfinite(special), result, special)


def _joined(real, imag):
    # real + 1j * imag would make NaN of infinities
    result = np.empty(real.shape, np.complex128)
    result.real, result.imag = real, imag
    return result


def _finite(a, b, integer_product):
    k = a.shape[-1]
    rows, columns = scales(a), scales(b.swapaxes(-1, -2))
    bits = digit_bits(k, max(rows[1], columns[1]))
    left = split(a, rows, bits, "row of the first operand")
    right = split(b.swapaxes(-1, -2), columns, bits, "column of the second operand")
    # (…, n, count, k) → (…, count reversed, k, n): what meets digit s has to lie at level - s
    cells_b = np.ascontiguousarray(np.moveaxis(right.cells[..., ::-1, :], -3, -1))
    needed = left.span + right.span + _EXACT_DROP
    levels = left.count + right.count - 1
    while levels > 1 and (levels - 1) * bits >= needed + math.log2(levels):
        levels -= 1
    high = low = 0.0
    for level in reversed(range(levels)):
        first, last = max(0, level - right.count + 1), min(level, left.count - 1)
        x = left.cells[..., first : last + 1, :]
        start = right.count - 1 - (level - first)
        y = cells_b[..., start : start + last + 1 - first, :, :]
        sums = integer_product(
            x.reshape(*x.shape[:-2], -1), y.reshape(*y.shape[:-3], -1, y.shape[-1])
        )
        high, low = _add(sums, high * 2.0**-bits, low * 2.0**-bits)
    exponents = left.exponents[..., :, None] + right.exponents[..., None, :] - 2 * bits
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(high + low, exponents)


def digit_bits(k, span):
    """How many bits a digit has: as many as leave room for a level's sums, of k terms for each
    digit that numbers with such a span need."""
    for count in range(2, MAX_DIGITS + 1):
        bits = min((64 - math.ceil(math.log2(count * k))) // 2, 30)
        if span + 54 <= bits * count:
            break
    return bits


def scales(x):
    """(the largest exponent of each row, the greatest span of a row) of a float64 matrix."""
    _, exponents = np.frexp(x)
    nonzero = x != 0
    high = np.where(nonzero, exponents, -(2**20)).max(axis=-1)
    low = np.where(nonzero, exponents, 2**20).min(axis=-1)
    high = np.where(nonzero.any(axis=-1), high, 0)
    return high, int(np.max(np.where(nonzero.any(axis=-1), high - low, 0), initial=0))


def split(x, scales, bits, what):
    """The Digits of a float64 matrix with these `scales` of its rows; UnsupportedError."""
    high, span = scales
    if span + 54 > bits * MAX_DIGITS:
        raise UnsupportedError(
            f"emulated float64: a {what} has numbers that differ by a factor of 2^{span}, and "
            f"2^{bits * MAX_DIGITS - 54} is the most; scale them, use another device, or "
            "fallback='numpy'"
        )
    rest = np.ldexp(x, -(high + 1)[..., None])  # below 1/2; exact, for all that is in range
    found = []
    while not found or rest.any():
        rest = rest * 2.0**bits
        digit = np.rint(rest)
        found.append(digit.astype(np.int32))
        rest = rest - digit
    return Digits(np.stack(found, axis=-2), high + 1, len(found), span)


def _add(sums, high, low):
    """A pair of float64 with the int64 `sums` added to (high, low)."""
    large = sums.astype(np.float64)
    small = (sums - large.astype(np.int64)).astype(np.float64)
    total = large + high
    other = total - large
    error = (large - (total - other)) + (high - other)
    rest = error + (small + low)
    return total + rest, rest - ((total + rest) - total)
