"""What is done to each element of a product before its one rounding."""

from dataclasses import dataclass

from clmatmul.array_view import Operand
from clmatmul.errors import ArgumentError

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")


@dataclass(frozen=True)
class EpilogueSpec:
    """What is fused behind the product: layouts of the arrays taking part, not the arrays."""

    bias: Operand | None = None
    residual: Operand | None = None
    row_scale: Operand | None = None
    col_scale: Operand | None = None
    activation: str = "none"

    def operands(self):
        """(name, Operand) of each array that takes part, in a fixed order."""
        for name in EPILOGUE_OPERANDS:
            operand = getattr(self, name)
            if operand is not None:
                yield name, operand


EPILOGUE_OPERANDS = ("bias", "residual", "row_scale", "col_scale")


@dataclass(frozen=True, eq=False)
class Epilogue:
    """Work done on each element of the product before its one rounding; every part is optional.

    bias: array, added before the activation; broadcasts to the output (shape (n,) is along the
        last axis, (m, 1) along rows).
    residual: array, added after the activation; broadcasts to the output.
    activation: none, relu, gelu (exact, with erf), gelu_tanh, silu, sigmoid or tanh.
    row_scale, col_scale: factors of alpha*A@B, shapes (…, m) and (…, n).
    dtype: the output's dtype, if it is to differ from the product's.
    """

    bias: object = None
    residual: object = None
    activation: str | None = None
    row_scale: object = None
    col_scale: object = None
    dtype: object = None

    def __post_init__(self):
        if (self.activation or "none") not in ACTIVATIONS:
            raise ArgumentError(
                f"activation={self.activation!r} is unknown; allowed are {', '.join(ACTIVATIONS)}"
            )
