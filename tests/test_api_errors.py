"""Bad input: one clear error of the right type, and nothing half written."""

import numpy as np
import pytest
from extra_variants import two_kernels

import clmatmul
from clmatmul import gemm, matmul

__all__ = ["two_kernels"]
A = np.ones((3, 5), "f4")
B = np.ones((5, 4), "f4")
RECORDS = np.zeros((3, 3), [("x", "f4")])
EMPTY = clmatmul.Epilogue()


def read_only():
    out = np.full((3, 4), 7, "f4")
    out.flags.writeable = False
    return out


@pytest.mark.parametrize("call, error, words", [
    # shapes: both, and the rule
    (lambda: matmul(A, A), "Shape", ["(3, 5) and (3, 5)", "5 columns", "3 rows", "must be equal"]),
    (lambda: matmul(A, B[:, :, None]), "Shape", ["(3, 5) and (5, 4, 1)"]),
    (lambda: matmul(A, B[0]), "Shape", ["(3, 5) and (4,)"]),
    (lambda: gemm(A, B, transpose_a=True), "Shape", ["(5, 3) and (5, 4)"]),
    (lambda: matmul(np.ones((2, 3, 3)), np.ones((4, 3, 3))), "Shape", ["(2,) and (4,)", "a 1"]),
    (lambda: matmul(np.float32(3), A), "Shape", ["first operand has no dimension", "scale"]),
    (lambda: matmul(A, 3), "Shape", ["second operand has no dimension"]),
    (lambda: gemm(A, B, np.ones(5, "f4"), beta=1), "Shape", ["c of shape (5,)", "(3, 4)"]),
    # out
    (lambda: matmul(A, B, out=np.empty((4, 3), "f4")), "Shape", ["(4, 3)", "needs (3, 4)"]),
    (lambda: matmul(A, B, out=np.empty(3, "f4")), "Shape", ["(3,)", "needs (3, 4)"]),
    (lambda: matmul(A, B, out=np.empty((3, 4), "i4")), "Dtype", ["float32 to int32"]),
    (lambda: matmul(A, B, out=np.empty((3, 4), "?")), "Dtype", ["float32 to bool"]),
    (lambda: matmul(A, B, out=[[0] * 4] * 3), "Dtype", ["out must be an array, not list"]),
    (lambda: matmul(A, B, out=read_only()), "Argument", ["read-only"]),
    (lambda: matmul(A, B, out=(read_only(), None)), "Argument", ["tuple of 2"]),
    (lambda: matmul(A, B, out=np.ma.zeros((3, 4), "f4")), "Dtype", ["out is a masked array"]),
    # dtypes
    (lambda: matmul([["a"]], [["b"]]), "Dtype", ["<U1", "supported are bool, int8"]),
    (lambda: matmul(np.zeros((2, 2), "S3"), np.eye(2)), "Dtype", ["S3"]),
    (lambda: matmul(np.zeros((2, 2), "M8[s]"), np.eye(2)), "Dtype", ["datetime64"]),
    (lambda: matmul(np.zeros((2, 2), "m8[s]"), np.eye(2)), "Dtype", ["timedelta64"]),
    (lambda: matmul(RECORDS, RECORDS), "Dtype", ["'x'"]),
    (lambda: gemm(A, B, np.full((3, 4), 1j), beta=1, dtype="f4"), "Dtype", ["operand c"]),
    (lambda: gemm(A.astype("i4"), B.astype("i4"), alpha=0.5), "Dtype", ["alpha=0.5", ".astype"]),
    (lambda: gemm(A, B, alpha=1j), "Dtype", ["alpha=1j"]),
    (lambda: gemm(A, B, alpha="2"), "Dtype", ["alpha='2'"]),
    (lambda: gemm(A, B, alpha=None), "Dtype", ["alpha=None"]),
    (lambda: gemm(A > 0, B > 0, alpha=2), "Dtype", ["alpha=2", "0 or 1"]),
    # masks
    (lambda: matmul(np.ma.masked_array(A), B), "Dtype", ["first operand is a masked", "np.ma.dot"]),
    (lambda: matmul(A, np.ma.masked_array(B), fallback="numpy"), "Dtype", ["second operand is a"]),
    (lambda: gemm(A, B, np.ma.zeros((3, 4)), beta=1, fallback="numpy"), "Dtype", ["c is a masked"]),
    # numbers and keywords
    (lambda: gemm(A, B, alpha=[1, 2]), "Argument", ["alpha must be a single number"]),
    (lambda: gemm(A, B, A, beta=np.ones(2)), "Argument", ["beta must be a single number"]),
    (lambda: gemm(A, B, beta=2), "Argument", ["beta=2 needs c"]),
    (lambda: matmul([[1, 2], [3]], B), "Argument", ["first operand is no array"]),
    (lambda: matmul(A, B, order="Q"), "Argument", ["order='Q'", "'K', 'A', 'C', 'F'"]),
    (lambda: matmul(A, B, casting="wild"), "Argument", ["casting='wild'", "'same_kind'"]),
    (lambda: matmul(A, B, fallback="blas"), "Argument", ["fallback='blas'", "'numpy'"]),
    (lambda: gemm(A, B, transpose_a="T"), "Argument", ["transpose_a='T'", "'C'"]),
    (lambda: gemm(A, B, transpose_b=1), "Argument", ["transpose_b=1", "True"]),
    (lambda: matmul(A, B, epilogue="relu"), "Argument", ["epilogue='relu'", "Epilogue("]),
    (lambda: matmul(A, B, queue="mine"), "Argument", ["queue='mine'"]),
    (lambda: matmul(A, B, axes=[(0, 1)]), "Argument", ["axes="]),
    (lambda: matmul(A, B, precision="low"), "Argument", ["precision='low'", "highest, high"]),
    (lambda: matmul(A, B, device="quantum"), "NoDevice", ["no device matches 'quantum'", "  0: "]),
])  # fmt: skip
def test_bad_input(call, error, words):
    with pytest.raises(getattr(clmatmul, error + "Error")) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    assert (A == 1).all() and (B == 1).all()


@pytest.mark.parametrize("call", [
    lambda out: matmul(A, A, out=out), lambda out: matmul(A.astype("c8"), B, out=out),
    lambda out: gemm(A, B, np.ones(5), beta=1, out=out), lambda out: gemm(A, B, alpha=1j, out=out),
    lambda out: matmul(A, B, out=out, epilogue=clmatmul.Epilogue(bias=np.ones(7))),
    lambda out: clmatmul.MatMul(A, B, out, config="tiled(tile_m=5)"),
])  # fmt: skip
def test_nothing_is_half_written(call):
    out = np.full((3, 4), 7, "f4")
    with pytest.raises(clmatmul.ClmatmulError):
        call(out)
    assert (out == 7).all()


def test_the_first_and_second_operand_are_positional():
    with pytest.raises(TypeError):
        matmul(x1=A, x2=B)


def test_an_empty_epilogue_changes_nothing():
    assert np.array_equal(matmul(A, B, epilogue=EMPTY), A @ B)
