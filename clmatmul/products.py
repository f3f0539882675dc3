"""NumPy's other products (dot, tensordot, einsum, …), each a matrix product of views.

Every function takes NumPy arrays (and lists), pyopencl arrays and `Array`s alike, with NumPy's
rules for shapes and dtypes, and computes where its operands are. An operand is seen as a matrix
through its strides; it is copied, on its own side, only where they do not allow that.
"""

import math
from dataclasses import dataclass

import numpy as np

from clmatmul import views
from clmatmul.api import gemm, scale
from clmatmul.containers import as_view, carried, takes_containers
from clmatmul.device_arrays import empty_array, is_device_array
from clmatmul.errors import ArgumentError, DtypeError, ShapeError
from clmatmul.operands import HOST_ONLY, common_queue, plain_array, single_output


@dataclass(frozen=True)
class Place:
    """Where a product runs, as its caller asked; None for what `matmul` would choose."""

    device: object = None
    queue: object = None
    wait_for: object = None

    def gemm(self, a, b, **keywords):
        return gemm(a, b, device=self.device, queue=self.queue, wait_for=self.wait_for, **keywords)

    def reshaped(self, x, shape):
        """x with another shape: a view if its strides allow, else a copy on its own side."""
        seen = views.reshaped(x, shape)
        return seen if seen is not None else views.reshaped(self.copied(x), shape)

    def copied(self, x, dtype=None, order="C"):
        """A copy of x in C order (or F), on its own side, with another dtype if one is given."""
        if isinstance(x, np.ndarray):
            return np.array(x, dtype, order=order)
        return self.store(x, self.empty(x.shape, dtype or x.dtype, x, order))

    def empty(self, shape, dtype, like, order="C"):
        """An array for a result: where `like`, a pyopencl array, is; on the host for None."""
        if like is None:
            return np.empty(shape, dtype, order)
        queue = common_queue([like], self.queue, None)
        return empty_array(queue, shape, dtype, order, like.allocator)

    def store(self, result, out, casting="same_kind"):
        """out[...] = result, and out; on a device casting is 'same_kind' at most."""
        if isinstance(out, np.ndarray):
            np.copyto(out, result, casting=casting)
            return out
        return scale(True, result, out=out, queue=self.queue, wait_for=self.wait_for)


# ---- vectors --------------------------------------------------------------------------------


@takes_containers
def dot(a, b, out=None, *, device=None, queue=None, wait_for=None):
    """The sum over the last dimension of a and the last but one of b, as numpy.dot.

    (…, k) and (…, k, n) give (… of a, … of b, n), without broadcasting; a 1-D operand is summed
    over its only dimension; with an operand without dimensions it is the product with a number.
    out: exactly the result's dtype and shape, and C-contiguous. ShapeError, DtypeError.
    """
    a, b, out = read_operand(a, "a"), read_operand(b, "b"), single_output(out)
    if host_only(a, b):
        return np.dot(a, b, out)
    place = Place(device, queue, wait_for)
    pairs = ((), ())
    if a.ndim and b.ndim:
        pairs = ((a.ndim - 1,), (max(b.ndim - 2, 0),))
        if a.shape[-1] != b.shape[pairs[1][0]]:
            raise ShapeError(
                f"shapes {tuple(a.shape)} and {tuple(b.shape)} are not aligned: the last dimension "
                f"of a has {a.shape[-1]} elements, dimension {pairs[1][0]} of b "
                f"{b.shape[pairs[1][0]]}"
            )
    a_labels, b_labels, out_labels = _labels(a.ndim, b.ndim, pairs)
    dtype = common_dtype(a, b)
    if out is not None:
        sizes = dict(zip((*a_labels, *b_labels), (*a.shape, *b.shape), strict=True))
        _check_dot_output(out, tuple(sizes[x] for x in out_labels), dtype)
    result = pair(place, a, a_labels, b, b_labels, out_labels, dtype, out)
    return out if out is not None else scalar(result)


@takes_containers
def vdot(a, b, *, device=None, queue=None, wait_for=None):
    """The sum of conj(a) * b over all elements, as numpy.vdot; arrays of any, but equal, size."""
    a, b = read_operand(a, "a"), read_operand(b, "b")
    if host_only(a, b):
        return np.vdot(a, b)
    place = Place(device, queue, wait_for)
    if a.size != b.size:
        raise ShapeError(f"vdot of {a.size} and {b.size} elements; the sizes must be equal")
    if tuple(a.shape) == tuple(b.shape):  # in any order, if it is the same for both
        order = _contiguous_order(a)
        a, b = views.permuted(a, order), views.permuted(b, order)
    column_a, column_b = (place.reshaped(x, (x.size, 1)) for x in (a, b))
    result = place.gemm(column_a, column_b, transpose_a="C", dtype=common_dtype(a, b))
    return scalar(views.reshaped(result, ()))


@takes_containers
def vecdot(x1, x2, /, out=None, *, axis=-1, casting="same_kind", dtype=None, device=None,
           queue=None, wait_for=None):  # fmt: skip
    """The sum of conj(x1) * x2 over `axis` of both; other dimensions broadcast (numpy.vecdot)."""
    x1, x2 = read_operand(x1, "the first operand"), read_operand(x2, "the second operand")
    out = single_output(out)
    x1, x2 = (_axis_last(x, axis, what) for x, what in ((x1, "first"), (x2, "second")))
    if x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            f"vecdot of shapes {tuple(x1.shape)} and {tuple(x2.shape)} (the axis last): the "
            "vectors' lengths must be equal"
        )
    return _as_matrices(
        Place(device, queue, wait_for), views.indexed(x1, (..., None)),
        views.indexed(x2, (..., None)), out, (..., 0, 0), (..., None, None),
        transpose_a="C", casting=casting, dtype=dtype,
    )  # fmt: skip


@takes_containers
def matvec(x1, x2, /, out=None, *, casting="same_kind", dtype=None, device=None, queue=None,
           wait_for=None):  # fmt: skip
    """Matrices (…, m, n) times vectors (…, n): (…, m); the batch broadcasts (numpy.matvec)."""
    x1, x2 = read_operand(x1, "the first operand"), read_operand(x2, "the second operand")
    _needs_dimensions("matvec", (x1, 2), (x2, 1))
    return _as_matrices(
        Place(device, queue, wait_for), x1, views.indexed(x2, (..., None)), single_output(out),
        (..., 0), (..., None), casting=casting, dtype=dtype,
    )  # fmt: skip


@takes_containers
def vecmat(x1, x2, /, out=None, *, casting="same_kind", dtype=None, device=None, queue=None,
           wait_for=None):  # fmt: skip
    """conj of vectors (…, n) times matrices (…, n, m): (…, m); the batch broadcasts."""
    x1, x2 = read_operand(x1, "the first operand"), read_operand(x2, "the second operand")
    _needs_dimensions("vecmat", (x1, 1), (x2, 2))
    return _as_matrices(
        Place(device, queue, wait_for), views.indexed(x1, (..., None)), x2, single_output(out),
        (..., 0, slice(None)), (..., None, slice(None)), transpose_a="C", casting=casting,
        dtype=dtype,
    )  # fmt: skip


def _as_matrices(place, a, b, out, taken, given, **keywords):
    """A product of matrices of one row or column; `taken` leaves that out, `given` adds it."""
    whole = None if out is None else views.indexed(out, given)
    result = place.gemm(a, b, out=whole, **keywords)
    return out if out is not None else scalar(views.indexed(result, taken))


def _needs_dimensions(name, *wanted):
    for x, least in wanted:
        if x.ndim < least:
            raise ShapeError(
                f"{name}: an operand of shape {tuple(x.shape)} needs at least {least} dimensions"
            )


def _axis_last(x, axis, what):
    if not -x.ndim <= axis < x.ndim:
        raise ShapeError(f"axis {axis} is out of range for the {what} operand's {x.ndim}")
    order = [i for i in range(x.ndim) if i != axis % x.ndim] + [axis % x.ndim]
    return views.permuted(x, order)


def _check_dot_output(out, shape, dtype):
    if tuple(out.shape) != shape:
        raise ShapeError(f"out has shape {tuple(out.shape)}, and the result {shape}")
    if out.dtype != dtype or not out.flags.c_contiguous:
        order = "" if out.flags.c_contiguous else " and not C-contiguous"
        raise ArgumentError(
            f"out of dtype {out.dtype}{order} is not acceptable: dot takes a C-contiguous array "
            f"of exactly {dtype} (matmul takes any that it can be cast to)"
        )


# ---- transposes -----------------------------------------------------------------------------


def matrix_transpose(x, /):
    """x with its last two dimensions swapped, as a view; ShapeError if it has fewer."""
    return as_view(x, views.turned(read_operand(carried(x), "the array")))


def transpose(a, axes=None):
    """a with its dimensions in another order (reversed, if axes is None), as a view."""
    x = read_operand(carried(a), "the array")
    return as_view(a, views.permuted(x, _order_of(axes, x.ndim)))


def _order_of(axes, ndim):
    order = tuple(range(ndim))[::-1] if axes is None else tuple(axes)
    if sorted(x % ndim if -ndim <= x < ndim else ndim for x in order) != list(range(ndim)):
        raise ArgumentError(f"axes={axes!r} do not name each of {ndim} dimensions once")
    return tuple(x % ndim for x in order)


# ---- tensors --------------------------------------------------------------------------------


@takes_containers
def tensordot(a, b, axes=2, *, device=None, queue=None, wait_for=None):
    """The sum over pairs of dimensions, as numpy.tensordot.

    axes: how many last dimensions of a and first of b to sum over, or a pair of dimensions (or
    of sequences of them), of a and of b. The others follow one another, a's first.
    """
    a, b = read_operand(a, "a"), read_operand(b, "b")
    pairs = _paired_axes(axes, a, b)
    if host_only(a, b):
        return np.tensordot(a, b, pairs)
    a_labels, b_labels, out_labels = _labels(a.ndim, b.ndim, pairs)
    place = Place(device, queue, wait_for)
    return pair(place, a, a_labels, b, b_labels, out_labels, common_dtype(a, b))


def _paired_axes(axes, a, b):
    if isinstance(axes, (int, np.integer)):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise ShapeError(
                f"axes={axes} dimensions cannot be summed over with shapes {tuple(a.shape)} and "
                f"{tuple(b.shape)}"
            )
        axes = (range(a.ndim - axes, a.ndim), range(axes))
    try:
        pairs = [(x,) if isinstance(x, (int, np.integer)) else tuple(map(int, x)) for x in axes]
    except TypeError:
        pairs = []
    if len(pairs) != 2 or len(pairs[0]) != len(pairs[1]):
        raise ShapeError(f"axes={axes!r} must be a number, or as many dimensions of a as of b")
    for side, x in zip(pairs, (a, b), strict=True):
        for axis in side:
            if not -x.ndim <= axis < x.ndim:
                raise ShapeError(f"axis {axis} is out of range for shape {tuple(x.shape)}")
    sides = [tuple(i % x.ndim for i in side) for side, x in zip(pairs, (a, b), strict=True)]
    for side in sides:
        if len(set(side)) != len(side):
            raise ShapeError(f"axes={axes!r} name a dimension twice")
    for i, j in zip(*sides, strict=True):
        if a.shape[i] != b.shape[j]:
            raise ShapeError(
                f"shape-mismatch for sum: dimension {i} of {tuple(a.shape)} and dimension {j} of "
                f"{tuple(b.shape)} are summed over together and must be equal"
            )
    return tuple(sides)


def _labels(ndim_a, ndim_b, pairs):
    """Numbers as labels of the dimensions of a, of b and of the result of summing over pairs."""
    a_labels = list(range(ndim_a))
    b_labels = list(range(ndim_a, ndim_a + ndim_b))
    for i, j in zip(*pairs, strict=True):
        b_labels[j] = i
    rest = [x for x in a_labels if x not in pairs[0]] + [x for x in b_labels if x >= ndim_a]
    return a_labels, b_labels, rest


def pair(place, a, a_labels, b, b_labels, out_labels, dtype, out=None):
    """The product of a and b, summed over the labels that are in both and not in out_labels.

    Every label of a or b that is not summed over is in out_labels; no array has a label twice.
    A dimension of 1 broadcasts. out: of the result's shape. The result is C-contiguous.
    """
    sizes = {}
    for x, names in ((a, a_labels), (b, b_labels)):
        for label, size in zip(names, x.shape, strict=True):
            sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
    batch = [x for x in a_labels if x in b_labels and x in out_labels]
    rows = [x for x in a_labels if x not in b_labels]
    columns = [x for x in b_labels if x not in a_labels]
    summed = [x for x in a_labels if x in b_labels and x not in out_labels]
    a = _with_extents(a, a_labels, summed, sizes)
    b = _with_extents(b, b_labels, summed, sizes)
    larger, names = (a, a_labels) if a.size >= b.size else (b, b_labels)
    summed.sort(key=lambda x: -abs(larger.strides[names.index(x)]))

    def matrix(x, names, first, second):
        """x as (batch…, the dimensions `first` as one, the dimensions `second` as one)."""
        x = views.permuted(x, [names.index(y) for y in (*batch, *first, *second)])
        shape = tuple(x.shape)
        split = len(batch) + len(first)
        merged = (math.prod(shape[len(batch) : split]), math.prod(shape[split:]))
        return place.reshaped(x, shape[: len(batch)] + merged)

    left = matrix(a, a_labels, rows, summed)
    right = matrix(b, b_labels, summed, columns)
    found = [*batch, *rows, *columns]
    matrices = tuple(sizes[x] for x in batch) + (left.shape[-2], right.shape[-1])
    target = out
    if target is None and found != list(out_labels):
        device_array = next((x for x in (a, b) if is_device_array(x)), None)
        target = place.empty(tuple(sizes[x] for x in out_labels), dtype, device_array)
    if target is not None:
        seen = views.permuted(target, [out_labels.index(x) for x in found])
        whole = views.reshaped(seen, matrices)
        if whole is not None:
            place.gemm(left, right, dtype=dtype, out=whole)
            return target
    result = place.gemm(left, right, dtype=dtype)
    result = views.reshaped(result, tuple(sizes[x] for x in found))
    return (
        result
        if target is None
        else place.store(views.permuted(result, [found.index(x) for x in out_labels]), target)
    )


def _with_extents(x, labels, summed, sizes):
    """x with dimensions of 1 that are summed over with longer ones repeated."""
    shape = tuple(
        sizes[label] if label in summed else size
        for label, size in zip(labels, x.shape, strict=True)
    )
    return x if shape == tuple(x.shape) else views.repeated(x, shape)


# ---- shared ---------------------------------------------------------------------------------


def read_operand(x, what):
    """x as it is, if it is a pyopencl array, else as a NumPy array; DtypeError, ArgumentError."""
    return x if is_device_array(x) else plain_array(x, what)


def host_only(*arrays):
    """True if NumPy computes these on the host: longdouble and object arrays."""
    return any(x.dtype.char in HOST_ONLY for x in arrays)


def common_dtype(*arrays):
    """The dtype in which a product of arrays is computed; DtypeError if there is none."""
    try:
        return np.result_type(*(x.dtype for x in arrays))
    except TypeError:
        names = ", ".join(str(x.dtype) for x in arrays)
        raise DtypeError(f"there is no common dtype for a product of {names}") from None


def scalar(x):
    """NumPy gives a number for a host result without dimensions."""
    return x[()] if isinstance(x, np.ndarray) and x.ndim == 0 else x


def _contiguous_order(x):
    """The order of dimensions in which x lies in memory, outermost first."""
    return sorted(range(x.ndim), key=lambda i: -abs(x.strides[i]))
