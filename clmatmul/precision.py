"""How exactly a product is computed, by name: what a caller asks for at least.

A name states the least that a kernel must do. What a device (or this package) has no kernel for
becomes the next better one, never a worse one:

    highest  IEEE arithmetic in the operands' type; 16-bit floats accumulate in float32 (default)
    high     float32 operands may be rounded to 11 bits (as TF32 has) before they are multiplied
    medium   … to 8 bits (as bfloat16 has)
    emulated float64 products from whole numbers (`emulated.py`), on devices without float64 too
    compensated  float32 products summed in float64, or in whole numbers where there is none: the
             error is a rounding of the result, and 2^-53 times what a float64 sum's is

and `LHS_RHS_ACCUM`, as JAX writes it, such as TF32_TF32_F32: the types to which operands may be
rounded, and the least accumulator; `_X3`, `_X6` or `_X9` behind it stands for several products
that together keep float32's bits. Only products of float32 and complex64 differ by it.
"""

import contextlib
import contextvars
import os
import re
from dataclasses import dataclass
from functools import cache

from clmatmul.errors import ArgumentError

LEVELS = ("highest", "high", "medium")  # best first
_BITS = {"BF16": 8, "F16": 11, "TF32": 11, "F32": 24, "F64": 53}
_LEAST_BITS = {"medium": 8, "high": 11}  # of an operand; others are highest
_TYPE = "|".join(_BITS)
_ALGORITHM = re.compile(rf"({_TYPE})_({_TYPE})_(BF16|F16|F32|F64)(_X[369])?")
_chosen = contextvars.ContextVar("clmatmul_precision", default=None)


@dataclass(frozen=True)
class Precision:
    """What a name asks for: one of LEVELS, and the least accumulator if it names a wider one."""

    level: str = "highest"
    accumulate: str | None = None
    emulated: bool = False
    compensated: bool = False


@cache
def read_precision(name):
    """The Precision called `name`; ArgumentError lists what there is."""
    if name in LEVELS:
        return Precision(name)
    if name == "emulated":
        return Precision(emulated=True)
    if name == "compensated":
        return Precision(accumulate="float64", compensated=True)
    match = _ALGORITHM.fullmatch(name) if isinstance(name, str) else None
    if not match:
        raise ArgumentError(
            f"precision={name!r} is unknown; there are {', '.join(LEVELS)}, emulated, "
            "compensated, and LHS_RHS_ACCUM such as 'F32_F32_F32', 'TF32_TF32_F32', "
            f"'BF16_BF16_F32' (types {', '.join(_BITS)})"
        )
    lhs, rhs, accumulator, several = match.groups()
    bits = max(_BITS[lhs], _BITS[rhs])
    fitting = [level for level, least in _LEAST_BITS.items() if bits <= least and not several]
    return Precision(
        fitting[0] if fitting else "highest", "float64" if accumulator == "F64" else None
    )


@contextlib.contextmanager
def use_precision(name):
    """Within the block, products that are given no `precision` are computed as `name` has it.

    Holds for this thread (or asynchronous task) only, and nests. ArgumentError.
    """
    read_precision(name)
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


def default_precision():
    """The name for products that are given none: of the innermost `use_precision`, of
    CLMATMUL_PRECISION (read once a process), or 'highest'."""
    return _chosen.get() or _of_environment()


@cache
def _of_environment():
    name = os.environ.get("CLMATMUL_PRECISION") or "highest"
    try:
        read_precision(name)
    except ArgumentError as error:
        raise ArgumentError(f"CLMATMUL_PRECISION={name}: {error}") from None
    return name
