"""How the operands' dimensions take part in a product: vectors, transposes, axes, batches.

Pure: shapes in, shapes and rearranged views out. NumPy's rules for matmul are the specification.
"""

from dataclasses import dataclass

import numpy as np

from clmatmul.errors import ArgumentError, ShapeError
from clmatmul.problem import raise_mismatch


@dataclass(frozen=True)
class Arrangement:
    """What to do to the views of A, B and the output so that they end in (m, k), (k, n), (m, n).

    shape: the result's own shape. a_order, b_order, out_order: permutations, None for none.
    """

    shape: tuple
    batch: tuple
    m: int
    n: int
    k: int
    a_is_vector: bool
    b_is_vector: bool
    a_order: tuple | None = None
    b_order: tuple | None = None
    out_order: tuple | None = None

    def a(self, view):
        view = view if self.a_order is None else view.permuted(self.a_order)
        return view.expanded(0) if self.a_is_vector else view

    def b(self, view):
        view = view if self.b_order is None else view.permuted(self.b_order)
        return view.expanded(1) if self.b_is_vector else view

    def out(self, view):
        """The output's view as (batch…, m, n); also for c and what the epilogue adds."""
        view = view if self.out_order is None else view.permuted(self.out_order)
        if self.b_is_vector:
            view = view.expanded(len(view.shape))
        if self.a_is_vector:
            view = view.expanded(len(view.shape) - 1)
        return view


def arrange(shape_a, shape_b, *, transpose_a=False, transpose_b=False, axes=None, out_shape=None):
    """The Arrangement of two shapes; ShapeError, ArgumentError.

    out_shape: the shape of an output that was given; its batch may be larger than the operands'.
    """
    for shape, what in ((shape_a, "first"), (shape_b, "second")):
        if not shape:
            raise ShapeError(
                f"the {what} operand has no dimension; a matrix product needs at least one "
                "(multiply by a scalar with clmatmul.scale)"
            )
    vectors = (len(shape_a) == 1, len(shape_b) == 1)
    core_axes = _core_axes(axes, vectors, len(shape_a), len(shape_b))
    a_order = _to_end(core_axes[0], len(shape_a), transpose_a)
    b_order = _to_end(core_axes[1], len(shape_b), transpose_b)
    a = shape_a if a_order is None else tuple(shape_a[i] for i in a_order)
    b = shape_b if b_order is None else tuple(shape_b[i] for i in b_order)
    m, k = (1, a[0]) if vectors[0] else a[-2:]
    k_b, n = (b[0], 1) if vectors[1] else b[-2:]
    if k != k_b:
        raise_mismatch(a, b)
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise ShapeError(
            f"the batch dimensions {a[:-2]} and {b[:-2]} of shapes {tuple(a)} and {tuple(b)} do "
            "not broadcast: each pair must be equal or contain a 1"
        ) from None
    core = (() if vectors[0] else (m,)) + (() if vectors[1] else (n,))
    out_order = None
    if out_shape is not None:
        out_order = _to_end(core_axes[2], len(out_shape), False)
        seen = out_shape if out_order is None else tuple(out_shape[i] for i in out_order)
        batch = _output_batch(seen, batch, core, a, b)
        shape = tuple(out_shape)
    else:
        shape = batch + core
        out_order = _to_end(core_axes[2], len(shape), False)
        if out_order is not None:
            placed = [0] * len(shape)
            for extent, position in zip(shape, out_order, strict=True):
                placed[position] = extent
            shape = tuple(placed)
    return Arrangement(shape, batch, m, n, k, *vectors, a_order, b_order, out_order)


def _output_batch(seen, batch, core, a, b):
    split = len(seen) - len(core)
    given, tail = seen[: max(split, 0)], seen[max(split, 0) :]
    try:
        fits = split >= 0 and tail == core and np.broadcast_shapes(batch, given) == given
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"non-broadcastable output: out has shape {tuple(seen)}, but a product of shapes "
            f"{tuple(a)} and {tuple(b)} needs {batch + core} (its batch dimensions may be larger "
            "by broadcasting)"
        )
    return given


def _core_axes(axes, vectors, ndim_a, ndim_b):
    """For each of A, B and out: the positions of its core dimensions, or None for the last."""
    if axes is None:
        return (None, None, None)
    expected = (2 - vectors[0], 2 - vectors[1], 2 - vectors[0] - vectors[1])
    axes = list(axes) if isinstance(axes, (list, tuple)) else [axes]
    if len(axes) == 2 and expected[2] == 0:
        axes.append(())
    if len(axes) != 3:
        raise ArgumentError(f"axes={axes!r} must list the axes of both operands and the output")
    found = []
    for entry, count, what in zip(axes, expected, ("first", "second", "output"), strict=True):
        entry = (entry,) if isinstance(entry, (int, np.integer)) else tuple(entry)
        if len(entry) != count:
            raise ArgumentError(f"axes={axes!r}: the {what} entry must name {count} axes")
        found.append(entry)
    return tuple(found)


def _to_end(core, ndim, transpose):
    """The permutation that brings the core axes to the end, or None if they are there."""
    order = list(range(ndim))
    if core is not None:
        chosen = []
        for axis in core:
            if not -ndim <= axis < ndim:
                raise ArgumentError(f"axis {axis} is out of range for {ndim} dimensions")
            chosen.append(axis % ndim)
        if len(set(chosen)) != len(chosen):
            raise ArgumentError(f"axes {tuple(core)} name one dimension twice")
        order = [i for i in order if i not in chosen] + chosen
    if transpose and ndim > 1:
        order[-1], order[-2] = order[-2], order[-1]
    return None if order == list(range(ndim)) else tuple(order)
