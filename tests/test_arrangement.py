"""How dimensions take part: NumPy's rules, without any array."""

import numpy as np
import pytest

from clmatmul.arrangement import arrange
from clmatmul.errors import ArgumentError, ShapeError
from clmatmul.problem import ArrayView


@pytest.mark.parametrize("shapes", [
    ((3,), (3,)), ((2, 3), (3, 4)), ((5, 1, 2, 3), (4, 3, 6)), ((3,), (5, 3, 4)),
    ((5, 2, 3), (3,)), ((0, 2, 3), (3, 4)), ((2, 0), (0, 4)),
])  # fmt: skip
def test_result_shape(shapes):
    want = np.matmul(*(np.ones(s) for s in shapes)).shape
    assert arrange(*shapes).shape == want


@pytest.mark.parametrize("shapes, words", [
    (((2, 3), (4, 5)), ["(2, 3)", "(4, 5)", "3 columns", "4 rows", "must be equal"]),
    (((3,), (4, 5)), ["(3,)", "(4, 5)", "3 columns", "4 rows"]),
    (((2, 3), (4,)), ["(2, 3)", "(4,)"]), (((3,), (4,)), ["(3,)", "(4,)"]),
    (((2, 2, 3), (3, 3, 4)), ["(2, 2, 3)", "(3, 3, 4)", "batch", "contain a 1"]),
    (((), (2, 2)), ["first operand has no dimension", "clmatmul.scale"]),
    (((2, 2), ()), ["second operand has no dimension"]),
])  # fmt: skip
def test_shapes_without_a_product(shapes, words):
    with pytest.raises(ShapeError) as caught:
        arrange(*shapes)
    for word in words:
        assert word in str(caught.value)


def test_the_shapes_named_are_those_after_transposing():
    with pytest.raises(ShapeError, match=r"\(3, 2\) and \(3, 4\).* 2 columns.* 3 rows"):
        arrange((2, 3), (3, 4), transpose_a=True)
    assert arrange((3, 2), (4, 3), transpose_a=True, transpose_b=True).shape == (2, 4)


def test_transposing_a_vector_changes_nothing():
    assert arrange((3,), (3, 4), transpose_a=True).shape == (4,)


@pytest.mark.parametrize("out", [(4, 2, 5), (7, 4, 2, 5), (1, 4, 2, 5)])
def test_out_may_have_a_larger_batch(out):
    found = arrange((4, 2, 3), (1, 3, 5), out_shape=out)
    assert found.shape == out and found.batch == out[:-2]


@pytest.mark.parametrize("out", [(2, 5), (1, 2, 5), (5, 2, 5), (4, 5, 2), (4, 2), (5,), ()])
def test_out_shapes_refused(out):
    with pytest.raises(ShapeError, match="out has shape") as caught:
        arrange((4, 2, 3), (3, 5), out_shape=out)
    assert str(out) in str(caught.value) and "(4, 2, 5)" in str(caught.value)


@pytest.mark.parametrize("axes, message", [
    ([(0, 1), (0, 1)], "must list the axes"), ([(0,), (0, 1), (0, 1)], "first entry"),
    ([(0, 1), (0, 1), (0,)], "output entry"), ([(0, 2), (0, 1), (0, 1)], "out of range"),
    ([(0, 0), (0, 1), (0, 1)], "twice"), (3, "must list"),
])  # fmt: skip
def test_axes_refused(axes, message):
    with pytest.raises(ArgumentError, match=message):
        arrange((2, 3), (3, 4), axes=axes)


def test_views_end_in_the_matrices():
    """(k, B, m) and (n, B, k) named by axes, into (m, n, B)."""
    axes = [(2, 0), (2, 0), (0, 1)]
    found = arrange((4, 6, 3), (5, 6, 4), axes=axes)
    assert found.shape == (3, 5, 6) and (found.m, found.n, found.k) == (3, 5, 4)
    a = found.a(ArrayView.of(np.empty((4, 6, 3), "f4"), 0))
    out = found.out(ArrayView.of(np.empty((3, 5, 6), "f4"), 0))
    assert a.shape == (6, 3, 4) and a.strides == (3, 1, 18)
    assert out.shape == (6, 3, 5) and out.strides == (1, 30, 6)


def test_vectors_become_matrices():
    found = arrange((3,), (5, 3, 4))
    assert found.a(ArrayView.of(np.empty(3, "f4"), 0)).shape == (1, 3)
    assert found.out(ArrayView.of(np.empty((5, 4), "f4"), 0)).shape == (5, 1, 4)
    found = arrange((5, 2, 3), (3,))
    assert found.b(ArrayView.of(np.empty(3, "f4"), 0)).shape == (3, 1)
    assert found.out(ArrayView.of(np.empty((5, 2), "f4"), 0)).shape == (5, 2, 1)
