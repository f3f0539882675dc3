"""Matrices in files and text: which source is meant, pipes, limits of files, and dtypes."""

import builtins
import io
import os
import sys
import warnings

import numpy as np
import pytest
from matrix_checks import BANNER, LESSON, here, refusal, same, saved

from clmatmul import matrix_sources
from clmatmul.errors import ClmatmulError, MatrixFileError
from clmatmul.matrix_files import check_writable_target, read_matrix, write_matrix

__all__ = ["here"]


# --- inline text and the choice of source -----------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["1 4; 2 5; 3 6", "1,4;2,5;3,6", " 1, 4 ;2 , 5;  3\t6 ", "1 4\n2 5\n3 6\n", "1 4; 2 5; 3 6;"],
)
def test_inline_text(here, text):
    assert same(read_matrix(text), LESSON)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", np.array([[7]])),
        ("-1 +2", np.array([[-1, 2]])),
        ("1.5 2", np.array([[1.5, 2.0]])),
        ("1e3", np.array([[1000.0]])),
        ("nan inf -inf -0.0", np.array([[np.nan, np.inf, -np.inf, -0.0]])),
        ("1+2j 3", np.array([[1 + 2j, 3]])),
        ("1-2i; 3j", np.array([[1 - 2j], [3j]])),
        ("(1e+00+-2e+00j) (-0-0j)", np.array([[1 - 2j, complex(-0.0, -0.0)]])),
        ("True false; TRUE FALSE", np.array([[True, False], [True, False]])),
        (str(2**63 - 1), np.array([[2**63 - 1]])),
        (f"{2**63} 1", np.array([[2**63, 1]], np.uint64)),
        (f"{2**64} 1.0", np.array([[2.0**64, 1.0]])),
        (f"{2**64} 1j", np.array([[2.0**64, 1j]])),
    ],
)
def test_inline_dtypes(here, text, expected):
    assert same(read_matrix(text), expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 4; 2", "row 2: 1 element, the rows above have 2"),
        ("1 4; 2 5 6", "row 2: 3 elements, the rows above have 2"),
        ("1 4; 2 abc", "row 2, element 2: 'abc' is not a number"),
        ("1 4;; 2 5", "row 2: no elements"),
        ("1,,2", "row 1, element 2: is empty (write nan for a missing number)"),
        ("1_000", "row 1, element 1: '1_000' is not a number"),
        ("\u0661", "row 1, element 1: '\\u0661' is not a number"),
        ("i j", "row 1, element 1: 'i' is not a number"),
        ("1 True", "row 1, element 2: numbers and True or False do not mix"),
        ("1e999 1", "row 1, element 1: '1e999' is too large for float64"),
        (f"{2**64}", f"row 1, element 1: '{2**64}' fits no 64-bit integer"),
        (f"-1 {2**63}", f"row 1, element 2: '{2**63}' fits no 64-bit integer"),
        ("1" + "0" * 400, "row 1, element 1: too large for float64"),
        ("rows", "row 1, element 1: 'rows' is not a number"),
        ("image.png", "row 1, element 1: 'image.png' is not a number"),
    ],
)
def test_what_is_neither_file_nor_text_says_both_readings(here, text, reason):
    message = refusal(text)
    assert "neither a file" in message and ".npy .npz .csv" in message
    assert reason in message


def test_the_choice_of_source_is_by_name(here):
    (here / "1 2").write_bytes(b"")
    assert refusal("1 2").startswith("1 2: unknown kind of file; known are .npy .npz .csv .tsv")
    assert refusal("1 2.csv") == "1 2.csv: no such file"
    assert refusal("1/2") == "1/2: no such file"
    assert refusal("a.npz:b") == "a.npz: no such file"
    assert refusal("") == "a matrix is needed, and the text is empty"
    assert refusal(here / "1 2").endswith("known are .npy .npz .csv .tsv .txt .mtx .mtx.gz")
    assert refusal(here / "rows").endswith("rows: no such file")  # a Path is never inline text
    np.savetxt("UPPER.CSV", LESSON, "%d", ",")
    assert same(read_matrix("UPPER.CSV"), LESSON)
    np.savez("odd.npz:x.npz", LESSON)  # the name of a file comes before a name in a file
    assert same(read_matrix("odd.npz:x.npz"), LESSON)


# --- files as such ------------------------------------------------------------------------------


def test_files_that_cannot_be_read(here):
    (here / "folder.csv").mkdir()
    assert refusal("folder.csv") == "folder.csv: a folder, not a file"
    assert refusal(".").startswith(".: a folder")
    assert refusal("missing.csv") == "missing.csv: no such file"
    assert refusal("no/such.csv") == "no/such.csv: no such file"
    (here / "f.csv").write_text("1\n")
    assert refusal("f.csv/x.csv") == "f.csv/x.csv: cannot be read: Not a directory"
    assert "embedded null" in refusal("a\0.csv")
    for suffix in matrix_sources.SUFFIXES:
        (here / f"empty{suffix}").write_bytes(b"")
        assert refusal(f"empty{suffix}") == f"empty{suffix}: the file is empty"
    assert refusal("f.csv", key="a") == "f.csv: key='a' picks an array of an .npz file only"
    assert "picks an array" in refusal("1 2", key="a")
    assert refusal("bad\nname.csv") == "'bad\\nname.csv': no such file"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_refused_without_waiting(here):
    os.mkfifo("pipe.csv")
    assert refusal("pipe.csv") == "pipe.csv: not an ordinary file (- reads standard input)"
    with pytest.raises(MatrixFileError, match="pipe.csv: not an ordinary file"):
        check_writable_target("pipe.csv")


def test_no_permission(here, monkeypatch):
    (here / "f.csv").write_text("1\n")

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(builtins, "open", refuse)
    assert refusal("f.csv") == "f.csv: cannot be read: Permission denied"


def test_errors_are_of_this_package_and_value_errors():
    assert issubclass(MatrixFileError, ClmatmulError) and issubclass(MatrixFileError, ValueError)


# --- standard input -----------------------------------------------------------------------------


def test_standard_input(here, monkeypatch):
    for content in (
        b"1 4\n2 5\n3 6\n",
        b"a,b\n1,4\n2,5\n3,6",
        saved(LESSON),
        saved(np.asfortranarray(LESSON)),
    ):
        assert same(read_matrix("-", stdin=io.BytesIO(content)), LESSON)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert same(read_matrix("-"), LESSON)
    assert same(read_matrix("-", stdin=io.StringIO("1 4\n2 5\n3 6\n")), LESSON)
    assert refusal("-", stdin=io.BytesIO()) == "standard input: empty"
    assert refusal("-", stdin=io.StringIO()) == "standard input: empty"
    assert refusal("-", stdin=io.BytesIO(b"1 2\n3\n")) == (
        "standard input, line 2: 1 element, the rows above have 2"
    )
    assert refusal("-", stdin=io.BytesIO(b"PK\x03\x04rest")).startswith("standard input: not text")
    assert "picks an array" in refusal("-", key="a", stdin=io.BytesIO(b"1"))
    monkeypatch.setattr(sys, "stdin", None)
    assert refusal("-") == "standard input: closed"


def test_matrix_market_on_standard_input(here):
    pytest.importorskip("scipy.io")
    content = BANNER + "coordinate real general\n3 2 2\n1 1 5\n3 2 7.5\n"
    found = read_matrix("-", stdin=io.StringIO(content))
    assert same(found, [[5.0, 0], [0, 0], [0, 7.5]])


# --- dtype --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "dtype", "expected"),
    [
        ("1 2", "float32", np.array([[1, 2]], np.float32)),
        ("0.1", "float32", np.array([[0.1]], np.float32)),
        ("nan -inf", "float16", np.array([[np.nan, -np.inf]], np.float16)),
        ("1 2.0", "int8", np.array([[1, 2]], np.int8)),
        ("1 255", np.uint8, np.array([[1, 255]], np.uint8)),
        ("1+0j", "float64", np.array([[1.0]])),
        ("1 0", bool, np.array([[True, False]])),
        ("True False", "float32", np.array([[1, 0]], np.float32)),
        ("1 2", "complex64", np.array([[1, 2]], np.complex64)),
        (str(2**63), "float32", np.array([[2.0**63]], np.float32)),
    ],
)
def test_dtype(here, text, dtype, expected):
    assert same(read_matrix(text, dtype=dtype), expected)


@pytest.mark.parametrize(
    ("text", "dtype", "reason"),
    [
        ("1+2j", "float64", "complex numbers, which float64 does not hold"),
        ("1 2.5", "int32", "int32 cannot hold element (1, 2), 2.5"),
        ("1; 300", "int8", "int8 cannot hold element (2, 1), 300"),
        ("-1", "uint64", "uint64 cannot hold element (1, 1), -1"),
        (str(2**63), "int64", f"int64 cannot hold element (1, 1), {2**63}"),
        ("1e19", "int64", "int64 cannot hold element (1, 1), 1e+19"),
        (f"{2.0**63!r}", "int64", "int64 cannot hold element (1, 1), 9.2233"),
        ("nan", "int64", "int64 cannot hold element (1, 1), nan"),
        ("inf", "uint8", "uint8 cannot hold element (1, 1), inf"),
        ("2", "bool", "bool cannot hold element (1, 1), 2"),
        ("1e300", "float32", "float32 cannot hold element (1, 1), 1e+300"),
        ("70000", "float16", "float16 cannot hold element (1, 1), 70000"),
        ("1e300j", "complex64", "complex64 cannot hold element (1, 1), 1e+300j"),
        ("1", "flout32", "dtype 'flout32' is not known"),
        ("1", "U3", "dtype <U3 is not one of numbers"),
        ("1", "V2", "dtype |V2 is not one of numbers"),
    ],
)
def test_dtype_that_would_lose_more_than_digits(here, text, dtype, reason):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reason in refusal(text, dtype=dtype)


def test_dtypes_of_ml_dtypes(here):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    found = read_matrix("1 2.5", dtype=ml_dtypes.bfloat16)
    assert found.dtype == ml_dtypes.bfloat16 and found.astype(float).tolist() == [[1, 2.5]]
    assert "cannot hold" in refusal("1e300", dtype=ml_dtypes.bfloat16)
    assert "int4 cannot hold" in refusal("100", dtype=ml_dtypes.int4)
    write_matrix("m.csv", found)
    assert (here / "m.csv").read_text() == "1.0,2.5\n"
    with pytest.raises(MatrixFileError, match="m.npy: .npy has no name for bfloat16"):
        write_matrix("m.npy", found)
