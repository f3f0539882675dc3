"""torch as a contestant of bench: cuBLAS or rocBLAS where torch has a GPU, else its CPU product."""

import importlib

from clmatmul.errors import ArgumentError

HOW_TO_GET = "pip install torch"
_DTYPES = ("float16", "float32", "float64", "complex64", "complex128")


def unsupported(entry):
    """Why torch cannot serve as the baseline of an entry; None if it can."""
    if entry.dtype == "bfloat16":
        return "torch rounds a product of bfloat16 to bfloat16, and ours is float32"
    if entry.dtype not in _DTYPES:
        return f"torch has no fast product of {entry.dtype}"
    if entry.accumulate:
        return "torch chooses the accumulator itself"
    return None


def load():
    """The module, told to multiply float32 as such; ArgumentError says how to get it."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise ArgumentError(f"torch is not installed here ({error}): {HOW_TO_GET}") from None
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


class TorchProduct:
    """The product of two host arrays, copied to torch's device in their own layouts."""

    def __init__(self, torch, a, b, out):
        self._torch = torch
        self._on_gpu = torch.cuda.is_available()
        where = "cuda" if self._on_gpu else "cpu"
        self._a, self._b, self._out = (torch.from_numpy(x).to(where) for x in (a, b, out))

    def call(self):
        """Multiply, and wait until the result is there."""
        self._torch.matmul(self._a, self._b, out=self._out)
        if self._on_gpu:
            self._torch.cuda.synchronize()

    def reset(self):
        self._out.fill_(float("nan"))

    def result(self):
        return self._out.cpu().numpy()
