"""What is done to each element of a product before its one rounding."""

from dataclasses import dataclass

from clmatmul.array_view import Operand
from clmatmul.errors import ArgumentError
from clmatmul.expression import read_expression

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "clamp")


@dataclass(frozen=True)
class EpilogueSpec:
    """What is fused behind the product: layouts of the arrays taking part, not the arrays."""

    bias: Operand | None = None
    residual: Operand | None = None
    row_scale: Operand | None = None
    col_scale: Operand | None = None
    activation: str = "none"
    aux: Operand | None = None
    expression: str | None = None  # as expression.Expression.as_text has it
    extras: tuple = ()  # (name, Operand) of the arrays that the expression names

    def operands(self):
        """(name, Operand) of each array that takes part, in a fixed order."""
        for name in (*EPILOGUE_OPERANDS, "aux"):
            operand = getattr(self, name)
            if operand is not None:
                yield name, operand
        for name, operand in self.extras:
            yield f"extra_{name}", operand


EPILOGUE_OPERANDS = ("bias", "residual", "row_scale", "col_scale")


@dataclass(frozen=True, eq=False)
class Epilogue:
    """Work done on each element of the product before its one rounding; every part is optional.

    bias: array, added before the activation; broadcasts to the output (shape (n,) is along the
        last axis, (m, 1) along rows).
    residual: array, added after the activation; broadcasts to the output.
    activation: none, relu, gelu (exact, with erf), gelu_tanh, silu, sigmoid, tanh, or clamp to
        `bounds`, two numbers.
    row_scale, col_scale: factors of alpha*A@B, shapes (…, m) and (…, n).
    expression: one expression in OpenCL C, done last, over `acc` (the value so far), `row` and
        `col` (where in the product, from 0) and the names of `extras`, such as
        "col > row ? -INFINITY : acc * mask". What it may hold: see `clmatmul.expression`.
    extras: dict of arrays that broadcast to the output, by the names that `expression` uses.
    aux: array of the output's shape that gets the value that the activation is given.
    dtype: the output's dtype, if it is to differ from the product's.
    """

    bias: object = None
    residual: object = None
    activation: str | None = None
    row_scale: object = None
    col_scale: object = None
    expression: str | None = None
    extras: dict | None = None
    aux: object = None
    dtype: object = None
    bounds: tuple | None = None

    def __post_init__(self):
        self._check_activation()
        if self.extras and self.expression is None:
            raise ArgumentError(f"extras={sorted(self.extras)} are given, and no expression")
        if self.expression is not None:
            read_expression(self.expression, tuple(sorted(self.extras or {})))

    def _check_activation(self):
        if (self.activation or "none") not in ACTIVATIONS:
            raise ArgumentError(
                f"activation={self.activation!r} is unknown; allowed are {', '.join(ACTIVATIONS)}"
            )
        if (self.activation == "clamp") != (self.bounds is not None):
            raise ArgumentError(
                f"activation={self.activation!r} with bounds={self.bounds!r}: clamp, and only "
                "clamp, needs bounds=(least, greatest)"
            )
        if self.bounds is not None and not _are_bounds(self.bounds):
            raise ArgumentError(
                f"bounds={self.bounds!r} must be two real numbers, the second not less than the "
                "first"
            )


def _are_bounds(bounds):
    try:
        low, high = map(float, bounds)
    except (TypeError, ValueError):
        return False
    return low <= high
