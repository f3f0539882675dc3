"""What is to be computed, described without any array: the first value on the line.

The product and all that is fused with it is, in one formula (its only owner is
`kernels/parts/store.mako`; `reference.py` states it again in float64 to check it):

    D = expression(activation(row_scale * col_scale * (alpha * A @ B) + beta * C + bias) + residual)

rounded once to the output's dtype; each part is optional. A is (m, k), B is (k, n), D and C are
(m, n), each with the same batch dimensions, where a stride of 0 repeats a matrix without a copy.

`Problem` has the sizes and strides and keys the cache of plans. `ProblemKind` is the same with
every size and stride taken away: it is all that a kernel's text may depend on, so that programs
stay few.
"""

import math
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np

from clmatmul.array_view import MAX_ALIGNMENT, ArrayView, Operand, OperandKind
from clmatmul.element_types import COMPUTE_TYPES, ELEMENT_TYPES, accumulator
from clmatmul.epilogue import ACTIVATIONS, EPILOGUE_OPERANDS, Epilogue, EpilogueSpec
from clmatmul.errors import DtypeError, ShapeError, UnsupportedError

_WIDE_BYTES = 2**31  # an offset that reaches this needs 64-bit indices
_WIDE_COUNT = 2**30  # a loop counter may run a tile past its end


@dataclass(frozen=True)
class ProblemKind:
    """A problem without its sizes, strides and scalars: all that a kernel's text may depend on.

    alpha and beta are classes (zero, one, general); c and the epilogue's entries are dtypes or
    None; `index` is the OpenCL C type of indices (int or long). `precision` is the least that a
    kernel must do, one of precision.LEVELS.
    """

    a: OperandKind
    b: OperandKind
    out: OperandKind
    c: str | None
    alpha: str
    beta: str
    bias: str | None
    residual: str | None
    row_scale: str | None
    col_scale: str | None
    activation: str
    compute: str
    result: str
    reproducible: bool
    batch_rank: int
    index: str
    precision: str = "highest"
    aux: str | None = None
    expression: str | None = None
    extras: tuple = ()  # (name, dtype)

    @property
    def layout(self):
        """BLAS letters: N where rows are contiguous, T where columns are, S for neither."""
        letters = {"row": "N", "column": "T", "strided": "S"}
        return letters[self.a.order] + letters[self.b.order]

    @property
    def key(self):
        """One line of text that names the kind but for alignments, which differ from run to run."""
        parts = []
        for f in fields(self):
            value = getattr(self, f.name)
            if value not in (None, False, "none", "highest", ()):
                parts.append(f"{f.name}={value}")
        return " ".join(parts)

    def with_alignment(self, classes):
        """The kind with each alignment rounded down to one of `classes` (bytes)."""

        def lower(operand):
            fitting = [c for c in classes if c <= operand.alignment]
            return replace(operand, alignment=max(fitting, default=1))

        return replace(self, a=lower(self.a), b=lower(self.b), out=lower(self.out))

    @property
    def compute_itemsize(self):
        """Bytes of one accumulator, and of an element staged as one."""
        return COMPUTE_TYPES[self.compute].itemsize

    @property
    def needs_fp64(self):
        names = [self.a.dtype, self.b.dtype, self.out.dtype, self.c, self.result]
        names += [getattr(self, name) for name in (*EPILOGUE_OPERANDS, "aux")]
        names += [dtype for _, dtype in self.extras]
        return COMPUTE_TYPES[self.compute].needs_fp64 or any(
            ELEMENT_TYPES[name].needs_fp64 for name in names if name
        )


@dataclass(frozen=True)
class Problem:
    """One product: batch, m, n, k, operands with strides, scalar classes, fused work.

    batch: sizes of the batch dimensions that are left after merging, outermost first.
    swapped: the transposed product is computed, so `a` describes the caller's second operand.
    """

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    out: Operand
    batch: tuple = ()
    c: Operand | None = None
    alpha: str = "one"
    beta: str = "zero"
    epilogue: EpilogueSpec = field(default_factory=EpilogueSpec)
    compute: str = "float32"
    result: str = "float32"
    reproducible: bool = False
    wide_index: bool = False
    swapped: bool = False
    precision: str = "highest"

    @classmethod
    def from_arrays(
        cls,
        a,
        b,
        out,
        *,
        c=None,
        alpha="one",
        beta="zero",
        epilogue=None,
        result=None,
        accumulate=None,
        conjugate_a=False,
        conjugate_b=False,
        reproducible=False,
        precision="highest",
    ):
        """Describe alpha*A@B + … written to out; every array is an `ArrayView` of ≥ 2 dimensions.

        a: (…, m, k); b: (…, k, n); out, c: (…, m, n). Batch dimensions of a, b and c broadcast
        to out's. `epilogue` is a dict of ArrayViews (bias, residual, row_scale, col_scale, aux,
        and extra_NAME for each name that the expression uses), the activation's name and the
        expression, an expression.Expression. `result` is the product's dtype name before the
        output's. `precision` is one of precision.LEVELS.
        ShapeError, DtypeError, UnsupportedError.
        """
        m, k = a.shape[-2:]
        k_b, n = b.shape[-2:]
        if k != k_b:
            raise_mismatch(a.shape, b.shape)
        batch = out.shape[:-2]
        if out.shape[-2:] != (m, n):
            raise ShapeError(
                f"the output has shape {out.shape}, but a product of {a.shape} and {b.shape} "
                f"ends in ({m}, {n})"
            )
        epilogue = dict(epilogue or {})
        activation = epilogue.pop("activation", None) or "none"
        expression = epilogue.pop("expression", None)
        compute = accumulator(result or out.dtype, accumulate)
        views = {
            "a": a.broadcast_to(batch + (m, k), "the first operand"),
            "b": b.broadcast_to(batch + (k, n), "the second operand"),
            "out": out,
        }
        if beta != "zero":
            views["c"] = c.broadcast_to(batch + (m, n), "c")
        for name, view in epilogue.items():
            views[name] = _epilogue_view(name, view, batch, m, n)
        swapped = False
        if _better_transposed(views, m, n):
            views = {name: view.transposed() for name, view in views.items()}
            views["a"], views["b"] = views["b"], views["a"]
            conjugate_a, conjugate_b = conjugate_b, conjugate_a
            m, n = n, m
            swapped = True
        if k == 0:
            alpha = "zero"  # an empty sum: A and B have nothing to be read
        # An expression that says `row` must not meet a batch that became more rows.
        merge_rows = expression is None or not expression.uses_place
        batch, m, strides = _merge_batch(batch, m, k, n, views, merge_rows)
        conjugates = {"a": conjugate_a, "b": conjugate_b}
        operands = {
            name: _operand(
                view,
                strides[name],
                (m if name != "b" else k, k if name == "a" else n),
                conjugates.get(name, False),
                name == "b",
            )
            for name, view in views.items()
        }
        spec = EpilogueSpec(
            activation=activation,
            **{x: operands[x] for x in (*EPILOGUE_OPERANDS, "aux") if x in operands},
            expression=expression and expression.as_text(swapped),
            extras=tuple(
                (name.removeprefix("extra_"), x)
                for name, x in operands.items()
                if name.startswith("extra_")
            ),
        )
        exact_everywhere = compute.kind not in ("real", "complex")
        reproducible = reproducible and not exact_everywhere
        _check_epilogue(spec, compute, expression if reproducible else None)
        return cls(
            m=m,
            n=n,
            k=k,
            batch=batch,
            a=operands["a"],
            b=operands["b"],
            out=operands["out"],
            c=operands.get("c"),
            alpha=alpha,
            beta=beta,
            epilogue=spec,
            compute=compute.name,
            result=result or out.dtype,
            reproducible=reproducible,
            wide_index=_needs_wide_index(views, (m, n, k, math.prod(batch) * m * n)),
            swapped=swapped,
            precision=_least_precision(precision, operands, compute),
        )

    @cached_property
    def kind(self):
        """The part that a kernel's text may depend on."""

        def operand_kind(x):
            return OperandKind(x.dtype, x.order, x.alignment, x.conjugate)

        def dtype_of(x):
            return x.dtype if x is not None else None

        e = self.epilogue
        return ProblemKind(
            a=operand_kind(self.a),
            b=operand_kind(self.b),
            out=operand_kind(self.out),
            c=dtype_of(self.c),
            alpha=self.alpha,
            beta=self.beta,
            bias=dtype_of(e.bias),
            residual=dtype_of(e.residual),
            row_scale=dtype_of(e.row_scale),
            col_scale=dtype_of(e.col_scale),
            activation=e.activation,
            compute=self.compute,
            result=self.result,
            reproducible=self.reproducible,
            batch_rank=len(self.batch),
            index="long" if self.wide_index else "int",
            precision=self.precision,
            aux=dtype_of(e.aux),
            expression=e.expression,
            extras=tuple((name, x.dtype) for name, x in e.extras),
        )

    @property
    def batch_count(self):
        return math.prod(self.batch)

    @property
    def is_empty(self):
        """True if the output has no element, so that nothing is to be done."""
        return 0 in (self.m, self.n, self.batch_count)

    @property
    def flops(self):
        """Arithmetic operations of the product: 2 a term, 8 for complex numbers."""
        each = 8 if COMPUTE_TYPES[self.compute].kind == "complex" else 2
        return each * self.batch_count * self.m * self.n * self.k

    @property
    def minimum_bytes(self):
        """Bytes moved if A, B and C are read once and the output is written once."""
        size = {x: ELEMENT_TYPES[x].itemsize for x in ELEMENT_TYPES}
        a = self.m * self.k * size[self.a.dtype]
        b = self.k * self.n * size[self.b.dtype]
        out = self.m * self.n * size[self.out.dtype]
        c = self.m * self.n * size[self.c.dtype] if self.c else 0
        a_count = self.batch_count if any(self.a.batch_strides) else 1
        b_count = self.batch_count if any(self.b.batch_strides) else 1
        return a * a_count + b * b_count + (out + c) * self.batch_count

    def same_layout(self, other):
        """True if only alignments and the width of indices differ."""

        def plain(problem):
            flat = {name: replace(x, alignment=1) for name, x in problem.operands()}
            fused = {x: flat.pop(x) for x in (*EPILOGUE_OPERANDS, "aux") if x in flat}
            extras = tuple((name, flat.pop(f"extra_{name}")) for name, _ in problem.epilogue.extras)
            spec = replace(problem.epilogue, **fused, extras=extras)
            return replace(problem, **flat, epilogue=spec, wide_index=False)

        return plain(self) == plain(other)

    def operands(self):
        """(name, Operand) of every array that takes part: a, b, out, c, epilogue."""
        yield "a", self.a
        yield "b", self.b
        yield "out", self.out
        if self.c is not None:
            yield "c", self.c
        yield from self.epilogue.operands()

    def __str__(self):
        batch = "".join(f"{x}×" for x in self.batch)
        return (
            f"{batch}{self.m}×{self.n}×{self.k} {self.a.dtype}"
            + (f"@{self.b.dtype}" if self.b.dtype != self.a.dtype else "")
            + f" {self.kind.layout} → {self.out.dtype}"
        )


def scalar_class(value):
    """zero, one or general; NaN and complex values are general."""
    if value == 0:
        return "zero"
    return "one" if value == 1 else "general"


def raise_mismatch(a, b):
    """The error of two shapes that have no product, with the rule."""
    raise ShapeError(
        f"shapes {tuple(a)} and {tuple(b)} have no product: the first has {a[-1]} columns, the "
        f"second {b[-2] if len(b) > 1 else b[0]} rows, and these must be equal"
    )


def _least_precision(precision, operands, compute):
    """`precision` where it makes a difference, else the name that every kernel serves."""
    differs = compute.name in ("float32", "complex64") and any(
        ELEMENT_TYPES[operands[x].dtype].storage == "float" for x in ("a", "b")
    )
    return precision if differs else "highest"


def _epilogue_view(name, view, batch, m, n):
    if name == "row_scale":  # (…, m): repeat along columns
        view = replace(view, shape=view.shape + (1,), strides=view.strides + (0,))
    elif name == "col_scale" and len(view.shape) > 1:  # (…, n): repeat along rows
        shape, strides = view.shape, view.strides
        view = replace(
            view, shape=shape[:-1] + (1, shape[-1]), strides=strides[:-1] + (0, strides[-1])
        )
    return view.broadcast_to(batch + (m, n), name)


def _better_transposed(views, m, n):
    """True if out.T = B.T @ A.T is the better form: an output stored by columns becomes one
    stored by rows, and a product with one column whose A is stored by columns one with one row.
    """
    out, a = views["out"], views["a"]
    if n == 1 and m > 1:
        return a.strides[-2] == 1 and a.shape[-1] > 1 and a.strides[-1] != 1
    return m > 1 and out.strides[-2] == 1 and out.strides[-1] != 1


def _check_epilogue(spec, compute, reproducible_expression):
    if spec.expression is not None and compute.kind != "real":
        raise DtypeError(
            "an expression is for real floating-point products, this one accumulates in "
            f"{compute.name}"
        )
    if reproducible_expression is not None and not reproducible_expression.is_exact:
        raise UnsupportedError(
            f"expression {reproducible_expression.text!r} divides or calls functions that each "
            "device rounds in its own way; with reproducible=True it may use + - * ?: "
            "comparisons, fabs, floor, ceil, trunc, fmin, fmax and copysign"
        )
    if spec.activation != "none" and compute.kind != "real":
        raise DtypeError(
            f"activation {spec.activation!r} is for real floating-point products, "
            f"this one accumulates in {compute.name}"
        )
    for name, operand in spec.operands():
        needed = COMPUTE_TYPES[ELEMENT_TYPES[operand.dtype].compute]
        if not np.can_cast(needed.host, compute.host, "same_kind") or (
            needed.kind == "complex" and compute.kind != "complex"
        ):
            raise DtypeError(
                f"{name} of dtype {operand.dtype} cannot take part in a product that "
                f"accumulates in {compute.name}"
            )


def _merge_batch(batch, m, k, n, views, merge_rows=True):
    """Fewer batch dimensions for the same addresses.

    Returns the batch sizes left, m (a batch that is only more rows is folded into it, unless
    merge_rows is False), and for each operand its strides (batch strides left, row, column).
    """
    strides = {name: list(v.strides) for name, v in views.items()}
    sizes = list(batch)
    keep = [i for i, size in enumerate(sizes) if size != 1]
    for s in strides.values():
        s[:-2] = [s[i] for i in keep]
    sizes = [sizes[i] for i in keep]
    if 0 in sizes or 0 in (m, n):
        return (0,), m, {name: [0] + s[-2:] for name, s in strides.items()}
    i = len(sizes) - 2
    while i >= 0:
        if all(s[i] == s[i + 1] * sizes[i + 1] for s in strides.values()):
            sizes[i] *= sizes.pop(i + 1)
            for s in strides.values():
                del s[i]
        i -= 1
    while merge_rows and sizes and strides["b"][len(sizes) - 1] == 0:
        last = len(sizes) - 1
        rows = {name: s for name, s in strides.items() if name != "b"}
        if m == 1:
            for s in rows.values():
                s[-2] = s[last]
        elif any(s[last] != m * s[-2] for s in rows.values()):
            break
        m *= sizes.pop()
        for s in strides.values():
            del s[last]
    return tuple(sizes), m, strides


def _operand(view, strides, extents, conjugate, is_b):
    *batch_strides, row_stride, col_stride = strides
    rows, cols = extents
    # A stride of a dimension of one element is never used: give it the value that makes the
    # order a common one, whatever the array's own (possibly absurd) stride was.
    if cols <= 1 and is_b and row_stride == 1:
        col_stride = rows  # a contiguous vector: its terms are neighbours
    elif cols <= 1:
        col_stride = 1
    if rows <= 1 and col_stride != 1:
        row_stride = 1
    elif rows <= 1:
        row_stride = cols
    size = ELEMENT_TYPES[view.dtype].itemsize
    alignment = math.gcd(MAX_ALIGNMENT, view.alignment, view.offset * size)
    # A column vector's rows are 1 apart, and each is the start of a line all the same.
    between = (row_stride,) if col_stride == 1 else (col_stride,) if row_stride == 1 else ()
    for stride in (*(between or (row_stride, col_stride)), *batch_strides):
        alignment = math.gcd(alignment, stride * size)
    return Operand(
        dtype=view.dtype,
        row_stride=row_stride,
        col_stride=col_stride,
        batch_strides=tuple(batch_strides),
        alignment=alignment,
        conjugate=conjugate and ELEMENT_TYPES[view.dtype].kind == "complex",
    )


def _needs_wide_index(views, counts):
    if max(counts) >= _WIDE_COUNT:
        return True
    for view in views.values():
        if 0 in view.shape:
            continue
        # 2 for complex numbers, which kernels address as pairs of reals
        reach = view.offset + sum(
            (x - 1) * abs(s) for x, s in zip(view.shape, view.strides, strict=True)
        )
        if (reach + 1) * max(ELEMENT_TYPES[view.dtype].itemsize, 2) >= _WIDE_BYTES:
            return True
    return False


__all__ = [
    "ACTIVATIONS", "EPILOGUE_OPERANDS", "MAX_ALIGNMENT", "ArrayView", "Epilogue", "EpilogueSpec",
    "Operand", "OperandKind", "Problem", "ProblemKind", "raise_mismatch", "scalar_class",
]  # fmt: skip
