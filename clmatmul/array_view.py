"""How arrays lie in memory, without the arrays: views that may still be turned and broadcast,
and the operands and kinds of operands that become of them.
"""

from dataclasses import dataclass, replace

from clmatmul.element_types import element_type
from clmatmul.errors import DtypeError, ShapeError

MAX_ALIGNMENT = 64  # bytes; no OpenCL vector is wider than 128, no cache line counted here wider


@dataclass(frozen=True)
class ArrayView:
    """How an array lies in memory: shape, strides and offset in elements, alignment in bytes."""

    dtype: str
    shape: tuple
    strides: tuple
    offset: int = 0
    alignment: int = 1

    @classmethod
    def of(cls, array, offset=None, alignment=None):
        """Describe a numpy.ndarray or pyopencl.array.Array (anything with their attributes).

        `offset` in elements from the start of the memory, `alignment` of its first byte.
        DtypeError if a stride is no whole number of elements.
        """
        kind = element_type(array.dtype)
        size = kind.itemsize
        if offset is None:
            byte_offset = getattr(array, "offset", 0)
            if byte_offset % size:
                raise DtypeError(
                    f"an offset of {byte_offset} bytes is no multiple of the {size} bytes of "
                    f"{kind.name}; copy the array first"
                )
            offset = byte_offset // size
        if alignment is None:
            alignment = MAX_ALIGNMENT
        strides = []
        for extent, stride in zip(array.shape, array.strides, strict=True):
            if extent <= 1:
                stride = 0  # never multiplied with anything but 0
            elif stride % size:
                raise DtypeError(
                    f"a stride of {stride} bytes is no multiple of the {size} bytes of "
                    f"{kind.name}; copy the array first"
                )
            strides.append(stride // size)
        return cls(kind.name, tuple(map(int, array.shape)), tuple(strides), int(offset), alignment)

    def permuted(self, order):
        """The dimensions in another order, as numpy.transpose."""
        return replace(
            self,
            shape=tuple(self.shape[i] for i in order),
            strides=tuple(self.strides[i] for i in order),
        )

    def transposed(self):
        """The last two dimensions swapped."""
        n = len(self.shape)
        return self.permuted((*range(n - 2), n - 1, n - 2))

    def expanded(self, position):
        """With a new dimension of one element at `position`."""
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(position, 1)
        strides.insert(position, 0)
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def broadcast_to(self, shape, what="array"):
        """The same memory seen with `shape`; repeated dimensions get stride 0."""
        extra = len(shape) - len(self.shape)
        strides = [0] * extra
        fits = extra >= 0
        for have, want, stride in zip(
            self.shape, shape[max(extra, 0) :], self.strides, strict=False
        ):
            fits = fits and have in (1, want)
            strides.append(stride if have == want else 0)
        if not fits:
            raise ShapeError(
                f"{what} of shape {self.shape} does not broadcast to {tuple(shape)}: each "
                "dimension must be 1 or equal, counted from the last"
            )
        return replace(self, shape=tuple(shape), strides=tuple(strides))


@dataclass(frozen=True)
class Operand:
    """One matrix of a problem: dtype, strides in elements, alignment in bytes.

    `alignment` is the largest power of two, at most 64, that divides the address of every row
    (or column) start, so a kernel may read vectors of that many bytes.
    """

    dtype: str
    row_stride: int
    col_stride: int
    batch_strides: tuple = ()
    alignment: int = 1
    conjugate: bool = False

    @property
    def order(self):
        """row (elements of a row are neighbours), column, or strided (neither)."""
        if self.col_stride == 1:
            return "row"
        return "column" if self.row_stride == 1 else "strided"


@dataclass(frozen=True)
class OperandKind:
    """What a kernel's text may know of A, B or the output."""

    dtype: str
    order: str
    alignment: int
    conjugate: bool = False

    def __str__(self):
        conj = "*" if self.conjugate else ""
        return f"{self.dtype}{conj}:{self.order}"
