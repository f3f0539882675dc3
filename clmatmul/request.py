"""The keywords of one call, read and checked."""

from dataclasses import dataclass

import numpy as np

from clmatmul.config import TileConfig
from clmatmul.containers import carried
from clmatmul.device_arrays import is_device_array
from clmatmul.errors import ArgumentError
from clmatmul.precision import default_precision, read_precision
from clmatmul.problem import EPILOGUE_OPERANDS, Epilogue


@dataclass(frozen=True)
class Request:
    """The keywords of one call, read and checked."""

    alpha: object = 1
    beta: object = 0
    transpose_a: object = False
    transpose_b: object = False
    axes: object = None
    casting: str = "same_kind"
    order: str = "K"
    dtype: object = None
    precision: str | None = None
    accumulate: object = None
    reproducible: bool = False
    fallback: str | None = None
    epilogue: Epilogue | None = None
    memory_limit: int | None = None
    device: object = None
    queue: object = None
    wait_for: object = None
    config: TileConfig | None = None

    def __post_init__(self):
        _one_of("casting", self.casting, ("no", "equiv", "safe", "same_kind", "unsafe"))
        _one_of("order", self.order, ("K", "A", "C", "F"))
        _one_of("fallback", self.fallback, (None, "numpy", "emulate"))
        _one_of("transpose_a", self.transpose_a, (False, True, "C"))
        _one_of("transpose_b", self.transpose_b, (False, True, "C"))
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if is_device_array(value) or np.ndim(value):
                raise ArgumentError(f"{name} must be a single number, not an array")
        if self.precision is None:
            # now, so that a prepared product does not change with the block it is called in
            object.__setattr__(self, "precision", default_precision())
        read_precision(self.precision)
        if self.epilogue is not None and not isinstance(self.epilogue, Epilogue):
            raise ArgumentError(
                f"epilogue={self.epilogue!r} is no clmatmul.Epilogue; write "
                "epilogue=clmatmul.Epilogue(bias=…, activation=…)"
            )


def least_accumulator(request, product):
    """The dtype that the product must accumulate in at least, or None for its default."""
    if request.accumulate is not None:
        return request.accumulate
    if read_precision(request.precision).accumulate == "float64":
        return {"float32": "float64", "complex64": "complex128"}.get(product.name)
    return None


def epilogue_arrays(epilogue):
    if epilogue is None:
        return {}
    found = {name: carried(getattr(epilogue, name)) for name in EPILOGUE_OPERANDS}
    found.update({f"extra_{x}": carried(array) for x, array in (epilogue.extras or {}).items()})
    return {name: x for name, x in found.items() if x is not None}


def _one_of(name, value, allowed):
    if not any(value is x or (value == x and type(value) is type(x)) for x in allowed):
        listed = ", ".join(map(repr, allowed))
        raise ArgumentError(f"{name}={value!r} is not allowed; allowed are {listed}")
