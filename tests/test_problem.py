"""Problem: what is computed, described without any array."""

from dataclasses import replace

import numpy as np
import pytest

from clmatmul.errors import ArgumentError, DtypeError, ShapeError
from clmatmul.explanation import plain_problem
from clmatmul.problem import ArrayView, Epilogue, Problem, scalar_class


def view(array, **keywords):
    return ArrayView.of(array, 0, **keywords)


def problem_of(a, b, out=None, **keywords):
    out = np.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]),
                   np.result_type(a, b)) if out is None else out  # fmt: skip
    return Problem.from_arrays(view(a), view(b), view(out), **keywords)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_layout_letters(layout):
    problem = plain_problem(10, 20, 30, layout=layout)
    assert problem.kind.layout == layout
    assert (problem.m, problem.n, problem.k) == (10, 20, 30)


def test_kind_has_no_size():
    """Sizes, strides and scalars must not reach a kernel's text."""
    one = plain_problem(128, 256, 512, layout="NT").kind
    assert one == plain_problem(64, 64, 64, layout="NT").kind
    assert one.key == plain_problem(64, 64, 64, layout="NT").kind.key
    for size in ("128", "256", "512"):
        assert size not in one.key


def test_kinds_that_differ_have_other_keys():
    plain = plain_problem(64, 64, 64).kind
    others = [
        plain_problem(64, 64, 64, "float64").kind, plain_problem(64, 64, 64, layout="TN").kind,
        plain_problem(64, 64, 64, batch=(3,)).kind, replace(plain, alpha="general"),
        replace(plain, c="float32", beta="one"), replace(plain, activation="relu"),
        replace(plain, index="long"), replace(plain, reproducible=True),
        replace(plain, bias="float32"), replace(plain, residual="float32"),
        replace(plain, a=replace(plain.a, conjugate=True)),
    ]  # fmt: skip
    assert len({plain.key, *(x.key for x in others)}) == len(others) + 1
    # A record of one run must be found by the next, whose arrays lie elsewhere.
    assert replace(plain, a=replace(plain.a, alignment=8)).key == plain.key


# ---- batches --------------------------------------------------------------------------------


def test_rows_of_a_batch_are_more_rows():
    problem = problem_of(np.empty((6, 5, 4), "f4"), np.empty((4, 3), "f4"))
    assert problem.batch == () and problem.m == 30


def test_batches_merge():
    problem = problem_of(np.empty((2, 3, 5, 4)), np.empty((2, 3, 4, 6)))
    assert problem.batch == (6,) and problem.batch_count == 6
    problem = problem_of(np.empty((1, 3, 1, 5, 4)), np.empty((3, 1, 4, 6)))
    assert problem.batch == (3,)


def test_batches_that_cannot_merge_stay_apart():
    problem = problem_of(np.empty((5, 1, 2, 3)), np.empty((4, 3, 6)))
    assert problem.batch == (5, 4)
    assert problem.a.batch_strides == (6, 0) and problem.b.batch_strides == (0, 18)


def test_rows_are_not_merged_over_gaps():
    out = np.empty((6, 7, 3), "f4")[:, :5]
    problem = problem_of(np.empty((6, 5, 4), "f4"), np.empty((4, 3), "f4"), out)
    assert problem.batch == (6,) and problem.m == 5


def test_no_elements():
    assert problem_of(np.empty((0, 2, 3)), np.empty((3, 4))).is_empty
    assert problem_of(np.empty((0, 3)), np.empty((3, 4))).is_empty


def test_no_terms_read_nothing():
    assert problem_of(np.empty((2, 0)), np.empty((0, 4))).alpha == "zero"


# ---- operands -------------------------------------------------------------------------------


def test_strides_of_single_rows_and_columns_do_not_matter():
    absurd = np.lib.stride_tricks.as_strided(np.empty(3, "f4"), (1, 3), (2**40 + 1, 4))
    assert view(absurd).strides == (0, 1)
    one = problem_of(absurd, np.empty((3, 4), "f4"))
    assert one == problem_of(np.empty((1, 3), "f4"), np.empty((3, 4), "f4"))


@pytest.mark.parametrize("a, order", [
    (np.empty((4, 4), "f4"), "row"), (np.empty((4, 4), "f4").T, "column"),
    (np.empty((4, 8), "f4")[:, ::2], "strided"), (np.empty((4, 4), "f4")[:, ::-1], "strided"),
    (np.empty((4, 1), "f4"), "row"), (np.broadcast_to(np.float32(0), (4, 4)), "strided"),
])  # fmt: skip
def test_order(a, order):
    assert problem_of(a, np.empty((a.shape[1], 2), "f4")).a.order == order


def test_alignment_holds_for_every_row():
    def alignment(a, offset=0, memory=64):
        described = ArrayView.of(a, offset, memory)
        b = view(np.empty((a.shape[-1], 4), "f4"))
        return Problem.from_arrays(
            described, b, view(np.empty((*a.shape[:-1], 4), "f4"))
        ).a.alignment

    assert alignment(np.empty((4, 16), "f4")) == 64
    assert alignment(np.empty((4, 16), "f4"), memory=8) == 8
    assert alignment(np.empty((4, 16), "f4"), offset=4) == 16
    assert alignment(np.empty((4, 6), "f4")) == 8
    assert alignment(np.empty((4, 5), "f4")) == 4
    assert alignment(np.empty((4, 16), "f4")[::-1]) == 64
    assert alignment(np.empty((3, 4, 4), "f4")[:, :, :]) == 16


def test_alignment_classes():
    kind = replace(plain_problem(64, 64, 64).kind)
    kind = replace(kind, a=replace(kind.a, alignment=32), b=replace(kind.b, alignment=8))
    lowered = kind.with_alignment((4, 16))
    assert (lowered.a.alignment, lowered.b.alignment) == (16, 4)
    assert kind.with_alignment((16,)).b.alignment == 1


def test_views_that_are_no_whole_elements():
    odd = np.empty(40, np.uint8)[:36].view(np.uint8)
    records = np.zeros((6, 4), np.dtype([("skip", "u1"), ("x", "f4")]))["x"]
    with pytest.raises(DtypeError, match="a stride of 20 bytes|a stride of 5 bytes"):
        ArrayView.of(records[:, :1][:3] if odd is None else records)


def test_broadcasting_needs_ones_or_equals():
    with pytest.raises(ShapeError, match=r"bias of shape \(3,\) does not broadcast to \(2, 4\)"):
        view(np.empty(3)).broadcast_to((2, 4), "bias")
    with pytest.raises(ShapeError):
        view(np.empty((2, 2, 2))).broadcast_to((2, 2))
    assert view(np.empty((3, 1))).broadcast_to((2, 3, 5)).strides == (0, 1, 0)


# ---- indices --------------------------------------------------------------------------------


@pytest.mark.parametrize("stride, wide", [(2**27 - 1, False), (2**29, True), (2**31, True)])
def test_wide_indices(stride, wide):
    a = ArrayView("float32", (2, 3), (stride, 1))
    b, out = ArrayView("float32", (3, 4), (4, 1)), ArrayView("float32", (2, 4), (4, 1))
    assert Problem.from_arrays(a, b, out).wide_index is wide
    assert Problem.from_arrays(replace(a, strides=(-stride, 1)), b, out).wide_index is wide
    assert Problem.from_arrays(a, b, replace(out, offset=2**31)).wide_index


def test_wide_indices_of_many_elements():
    ones = ArrayView("int8", (2**15, 1), (0, 1))
    row = ArrayView("int8", (1, 2**15), (0, 0))
    out = ArrayView("int8", (2**15, 2**15), (0, 0))
    assert Problem.from_arrays(ones, row, out).wide_index


# ---- counts ---------------------------------------------------------------------------------


def test_operations_and_bytes():
    problem = plain_problem(10, 20, 30, batch=(7,))
    assert problem.flops == 2 * 7 * 10 * 20 * 30
    assert problem.minimum_bytes == 4 * 7 * (10 * 30 + 30 * 20 + 10 * 20)
    assert plain_problem(10, 20, 30, "complex64").flops == 8 * 10 * 20 * 30
    shared = problem_of(np.empty((7, 5, 4), "f4"), np.empty((4, 3), "f4"))
    assert shared.minimum_bytes == 4 * (7 * 5 * 4 + 4 * 3 + 7 * 5 * 3)


def test_scalar_classes():
    assert [scalar_class(x) for x in (0, -0.0, 1, True, 0.5, float("nan"), 1j, 0j)] == [
        "zero", "zero", "one", "one", "general", "general", "general", "zero"
    ]  # fmt: skip


def test_same_layout_looks_past_alignment():
    a, b = np.empty((4, 6), "f4"), np.empty((6, 5), "f4")
    out = view(np.empty((4, 5), "f4"))
    one = Problem.from_arrays(ArrayView.of(a, 0, 64), view(b), out)
    other = Problem.from_arrays(ArrayView.of(a, 1, 4), view(b), out)
    assert one != other and one.same_layout(other)
    assert not one.same_layout(problem_of(np.asfortranarray(a), b))


# ---- epilogues ------------------------------------------------------------------------------


def test_epilogue_operands():
    problem = problem_of(np.empty((4, 6), "f4"), np.empty((6, 5), "f4"), epilogue={
        "bias": view(np.empty(5, "f4")), "row_scale": view(np.empty(4, "f2")),
        "col_scale": view(np.empty(5, "f4")), "residual": view(np.empty((4, 1), "f4")),
        "activation": "relu"})  # fmt: skip
    e = problem.epilogue
    assert (e.bias.row_stride, e.bias.col_stride) == (0, 1)
    assert (e.row_scale.row_stride, e.row_scale.col_stride) == (1, 0)
    assert (e.col_scale.row_stride, e.col_scale.col_stride) == (0, 1)
    assert (e.residual.row_stride, e.residual.col_stride) == (1, 0)
    assert problem.kind.row_scale == "float16" and problem.kind.activation == "relu"


@pytest.mark.parametrize("name, dtype, product", [
    ("bias", "c8", "f4"), ("residual", "f4", "i4"), ("row_scale", "f8", "?"),
])  # fmt: skip
def test_epilogue_dtypes_refused(name, dtype, product):
    with pytest.raises(DtypeError, match=f"{name} of dtype"):
        problem_of(np.empty((4, 6), product), np.empty((6, 5), product),
                   epilogue={name: view(np.empty(1, dtype))})  # fmt: skip


def test_activations():
    with pytest.raises(ArgumentError, match="allowed are none, relu"):
        Epilogue(activation="swish9")
    with pytest.raises(DtypeError, match="activation 'relu' is for real"):
        problem_of(np.empty((2, 2), "i4"), np.empty((2, 2), "i4"), epilogue={"activation": "relu"})


def test_needs_fp64():
    assert plain_problem(4, 4, 4, "float64").kind.needs_fp64
    assert plain_problem(4, 4, 4, "complex128").kind.needs_fp64
    assert not plain_problem(4, 4, 4, "complex64").kind.needs_fp64
    assert plain_problem(4, 4, 4, accumulate="float64").kind.needs_fp64
    with_bias = problem_of(np.empty((2, 2), "f4"), np.empty((2, 2), "f4"),
                           epilogue={"bias": view(np.empty(2, "f8"))})  # fmt: skip
    assert with_bias.kind.needs_fp64


def test_alignment_of_a_column_vector():
    """Its rows are one element apart: wide reads of more than one row would be misaligned."""
    column = ArrayView("bfloat16", (300, 1), (1, 1), 0, 64)
    row = ArrayView("bfloat16", (1, 320), (320, 1), 0, 64)
    out = ArrayView("bfloat16", (300, 320), (320, 1), 0, 64)
    problem = Problem.from_arrays(column, row, out, result="float32")
    assert problem.a.alignment == 2
    assert problem.b.alignment == problem.out.alignment == 64
