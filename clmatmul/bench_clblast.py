"""CLBlast as a contestant of bench: its GEMM through ctypes, on the same queue and buffers."""

import ctypes
import ctypes.util

from clmatmul.errors import ArgumentError, UnsupportedError

HOW_TO_GET = (
    "install it (Debian, Ubuntu: apt install libclblast1; conda: conda install -c conda-forge "
    "clblast; macOS: brew install clblast), or give its file with --clblast-library PATH"
)
_NAMES = ("libclblast.so.1", "libclblast.so", "libclblast.dylib", "clblast.dll")
_ROW_MAJOR, _COLUMN_MAJOR = 101, 102
_AS_IT_IS, _TRANSPOSED = 111, 112


class _Complex64(ctypes.Structure):
    _fields_ = [("real", ctypes.c_float), ("imag", ctypes.c_float)]


class _Complex128(ctypes.Structure):
    _fields_ = [("real", ctypes.c_double), ("imag", ctypes.c_double)]


# dtype → letter in the functions' names, type of alpha and beta
_PRECISIONS = {
    "float32": ("S", ctypes.c_float),
    "float64": ("D", ctypes.c_double),
    "complex64": ("C", _Complex64),
    "complex128": ("Z", _Complex128),
}


def unsupported(entry):
    """Why CLBlast cannot serve as the baseline of an entry; None if it can."""
    if entry.dtype not in _PRECISIONS:
        return f"CLBlast has no product of {entry.dtype}"
    if len(entry.batch) > 1:
        return "CLBlast has one batch dimension"
    return None


def load(path=None):
    """The library, from a file or as the system finds it; ArgumentError says how to get it."""
    if path is not None:
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            raise ArgumentError(f"CLBlast cannot be loaded: {error}; {HOW_TO_GET}") from None
    found = ctypes.util.find_library("clblast")
    for name in (found, *_NAMES) if found else _NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise ArgumentError(f"CLBlast is not installed here: {HOW_TO_GET}")


def arguments_of(entry):
    """(order, transpositions of A and B, leading dimensions of A, B and out) for an entry.

    Everything is said in the order of the output, in which an operand that lies the other way
    counts as transposed.
    """
    by_columns = entry.out_order == "F"
    usual = "T" if by_columns else "N"
    turned = [_AS_IT_IS if x == usual else _TRANSPOSED for x in entry.layout]
    a = entry.k if entry.layout[0] == "N" else entry.m
    b = entry.n if entry.layout[1] == "N" else entry.k
    out = entry.m if by_columns else entry.n
    return (_COLUMN_MAJOR if by_columns else _ROW_MAJOR, *turned, a, b, out)


def gemm(library, entry, queue, a, b, out):
    """Enqueue out = A @ B for an entry; queue, a, b, out are handles (addresses as numbers).

    UnsupportedError with CLBlast's status if it refuses.
    """
    letter, scalar = _PRECISIONS[entry.dtype]
    order, turn_a, turn_b, lead_a, lead_b, lead_out = arguments_of(entry)
    sizes = [ctypes.c_size_t(x) for x in (entry.m, entry.n, entry.k)]
    batched = bool(entry.batch)

    def operand(handle, lead, elements):
        stride = [ctypes.c_size_t(elements)] if batched else []
        return [ctypes.c_void_p(handle), ctypes.c_size_t(0), ctypes.c_size_t(lead), *stride]

    name = f"CLBlast{letter}gemm" + ("StridedBatched" if batched else "")
    status = getattr(library, name)(
        order, turn_a, turn_b, *sizes,
        scalar(1), *operand(a, lead_a, entry.m * entry.k),
        *operand(b, lead_b, entry.k * entry.n),
        scalar(0), *operand(out, lead_out, entry.m * entry.n),
        *([ctypes.c_size_t(entry.batch[0])] if batched else []),
        ctypes.byref(ctypes.c_void_p(queue)), None,
    )  # fmt: skip
    if status:
        raise UnsupportedError(f"{name} refused {entry.name}: status {status}")
