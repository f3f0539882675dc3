"""Matrices in text files: what other tools write is read, what is broken is refused."""

import logging

import numpy as np
import pytest
from matrix_checks import LESSON, here, refusal, same

from clmatmul import matrix_elements
from clmatmul.matrix_files import read_matrix

__all__ = ["here"]


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.complex128])
@pytest.mark.parametrize(
    ("suffix", "delimiter"), [("csv", ","), ("tsv", "\t"), ("txt", " "), ("csv", ";"), ("txt", ",")]
)
def test_numpy_savetxt(here, dtype, suffix, delimiter):
    matrix = (LESSON * (1.5 - 0.1j if dtype is np.complex128 else 1.1)).astype(dtype)
    fmt = "%d" if dtype is np.int64 else "%.18e"
    name = f"m.{suffix}"
    np.savetxt(name, matrix, fmt, delimiter, header="made by NumPy", footer="the end")
    assert same(read_matrix(name), matrix)


@pytest.mark.parametrize("sep", [",", "\t", ";"])
@pytest.mark.parametrize(
    "columns", [["a", "b"], None, ["a b", "c;d"], ['x"y', "z,w"], ["k\tl", "m"]]
)
def test_pandas_with_index_and_header(here, sep, columns):
    pandas = pytest.importorskip("pandas")
    for matrix in (LESSON, LESSON / 7, np.array([[1.0, np.nan], [2, 3]])):
        pandas.DataFrame(matrix, columns=columns).to_csv("m.csv", sep=sep, na_rep="nan")
        assert same(read_matrix("m.csv"), matrix)


def test_pandas_other_indices(here):
    pandas = pytest.importorskip("pandas")
    for index in (["r s", "t,u", "v"], pandas.date_range("2026-01-01", periods=3), [5, 6, 7]):
        pandas.DataFrame(LESSON, columns=["a", "b"], index=index).to_csv("m.csv")
        assert same(read_matrix("m.csv"), LESSON)
    pandas.Series([1.5, 2.5]).to_csv("series.csv")
    assert same(read_matrix("series.csv"), [[1.5], [2.5]])
    pandas.DataFrame(LESSON > 3).to_csv("bool.csv")
    assert same(read_matrix("bool.csv"), LESSON > 3)
    pandas.DataFrame(LESSON * 1j).to_csv("complex.csv")
    assert same(read_matrix("complex.csv"), LESSON * 1j)


def test_pandas_without_index(here):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(LESSON / 4, columns=["a", "b"])
    frame.to_csv("m.csv", index=False)
    assert same(read_matrix("m.csv"), LESSON / 4)
    frame.to_csv("m.csv", index=False, header=False)
    assert same(read_matrix("m.csv"), LESSON / 4)
    frame[["a"]].to_csv("one column.csv", index=False)
    assert same(read_matrix("one column.csv"), LESSON[:, :1] / 4)
    frame.to_csv("quoted.csv", index=False, quoting=1)
    assert same(read_matrix("quoted.csv"), LESSON / 4)


def test_pandas_index_that_cannot_be_told_from_data(here):
    pandas = pytest.importorskip("pandas")
    matrix = LESSON / 4
    frame = pandas.DataFrame(matrix, columns=["a", "b"])

    frame.to_csv("m.csv", header=False)
    assert refusal("m.csv") == (
        "m.csv, line 1: the first column counts the rows, 0, 1, ... beside real numbers: an index "
        "or data? (index=True leaves it out, index=False keeps it)"
    )
    assert same(read_matrix("m.csv", index=True), matrix)
    assert read_matrix("m.csv", index=False).shape == (3, 3)

    frame.rename_axis("id").to_csv("m.csv")
    assert "line 2: the first column counts the rows" in refusal("m.csv")
    assert same(read_matrix("m.csv", index=True), matrix)

    frame.reset_index().to_csv("m.csv", index=False)
    assert refusal("m.csv") == (
        "m.csv, line 1: the column 'index' looks like an index that was saved as a column "
        "(index=True leaves it out, index=False keeps it)"
    )
    frame.to_csv("m.csv")
    pandas.read_csv("m.csv").to_csv("again.csv")
    assert refusal("again.csv") == (
        "again.csv, line 1: the column 'Unnamed: 0' looks like an index that was saved as a "
        "column (leave it out in pandas)"
    )
    frame.rename(index={0: "x"}).rename_axis("id").to_csv("m.csv")
    assert refusal("m.csv") == (
        "m.csv, line 2, element 1: 'x' is not a number "
        "(if the first column holds names of rows, index=True leaves it out)"
    )
    assert same(read_matrix("m.csv", index=True), matrix)


def test_pandas_header_that_cannot_be_told_from_data(here, caplog):
    pandas = pytest.importorskip("pandas")
    matrix = np.arange(6.0).reshape(2, 3) + 0.5
    pandas.DataFrame(matrix).to_csv("m.csv", index=False)
    assert refusal("m.csv") == (
        "m.csv, line 1: 0, 1, ... above real numbers: names of columns or data? "
        "(header=True leaves this line out, header=False keeps it)"
    )
    assert same(read_matrix("m.csv", header=True), matrix)
    assert read_matrix("m.csv", header=False).shape == (3, 3)
    pandas.DataFrame(matrix.astype(int)).to_csv("m.csv", index=False)
    with caplog.at_level(logging.WARNING, "clmatmul"):
        assert read_matrix("m.csv").shape == (3, 3)  # integers: nothing tells them apart
    assert "0, 1, 2, ... was read as data" in caplog.text
    assert same(read_matrix("m.csv", header=True), matrix.astype(int))


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ("1,2\r\n3,4\r\n", {}, [[1, 2], [3, 4]]),
        ("1,2\r3,4", {}, [[1, 2], [3, 4]]),
        ("\ufeff1,2\n3,4", {}, [[1, 2], [3, 4]]),
        ("# c\n\n1 2 # d\n   \n3\t4\n", {}, [[1, 2], [3, 4]]),
        ("1 2\n3 4.5\n", {}, [[1, 2], [3, 4.5]]),
        ("  1   2\n 10  20\n", {}, [[1, 2], [10, 20]]),
        ("height cm\n1.5\n", {}, [[1.5]]),
        ("x y\n1 2\n", {}, [[1, 2]]),
        ("i,j\n1,2\n", {}, [[1, 2]]),
        ('"a, b" "c"\n1   2\n', {}, [[1, 2]]),
        ("1|2\n3|4\n", {"delimiter": "|"}, [[1, 2], [3, 4]]),
        ("1;2\n3;4\n", {"delimiter": "semicolon"}, [[1, 2], [3, 4]]),
        ("1\t2\n", {"delimiter": "\\t"}, [[1, 2]]),
        ("1  2\n", {"delimiter": "space"}, [[1, 2]]),
        ("1,2\n3,4\n", {"header": True}, [[3, 4]]),
        ("id,0,1\nr,5,6\n", {"header": True, "index": True}, [[5, 6]]),
        ("0,0\n0,1\n", {}, [[0, 0], [0, 1]]),
        ("0,1\n1,0\n", {}, [[0, 1], [1, 0]]),
        ("0 0.5\n1 1.5\n", {}, [[0, 0.5], [1, 1.5]]),
        ("5", {}, [[5]]),
    ],
)
def test_text_files(here, content, options, expected):
    (here / "m.txt").write_bytes(content.encode())
    assert same(read_matrix("m.txt", **options), expected)


def test_utf16_as_powershell_writes_it(here):
    (here / "m.csv").write_bytes("1,2\r\n3,4\r\n".encode("utf-16"))
    assert same(read_matrix("m.csv"), [[1, 2], [3, 4]])
    (here / "m.csv").write_bytes(b"\xff\xfe1")
    assert "not UTF-16 text" in refusal("m.csv")


def test_latin1_header_is_only_a_header(here):
    (here / "m.csv").write_bytes(b"H\xf6he,b\n1,2\n")
    assert same(read_matrix("m.csv"), [[1, 2]])


def test_kinds_meet_across_blocks(here, monkeypatch):
    monkeypatch.setattr(matrix_elements, "_BLOCK_ELEMENTS", 2)
    for last in (5, 2**63, 1.5, 1j):
        rows = [[1, 2], [3, 4], [last, 6]]
        (here / "m.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
        dtype = np.uint64 if last == 2**63 else None
        assert same(read_matrix("m.csv"), np.array(rows, dtype))
    (here / "m.csv").write_text("True,False\n1,2\n")
    assert refusal("m.csv") == "m.csv, line 2, element 1: numbers and True or False do not mix"
    (here / "m.csv").write_text(f"{2**63},1\n-1,2\n")
    assert refusal("m.csv").startswith(f"m.csv, line 1, element 1: '{2**63}' fits no 64-bit")


MALFORMED_TEXT = [
    ("1,2,3\n4,5,6\n7,8\n", "line 3: 2 elements, the rows above have 3"),
    ("1,2\n3,4,5\n", "line 2: 3 elements, the rows above have 2"),
    ("# c\n1 2\n\n3\n", "line 4: 1 element, the rows above have 2"),
    ("a,b,c\n1,2,3\n4,abc,6\n", "line 3, element 2: 'abc' is not a number"),
    ("a,b\n3\n", "line 1: 2 names of columns, the first row below has 1 element"),
    (
        "1,x\n3\n",
        "line 1, element 2: 'x' is not a number (if this line names columns: header=True,"
        " and index=True if the first is an index)",
    ),
    ("1,2\n3,x\n4\n", "line 2, element 2: 'x' is not a number"),
    ("1,2\n,4\n", "line 2, element 1: is empty (write nan for a missing number)"),
    (
        ",1.5,2.5\n1,2,3\n",
        "line 1, element 1: is empty (write nan for a missing number) (if this "
        "line names columns: header=True, and index=True if the first is an"
        " index)",
    ),
    (
        "1,2,\n3,4,\n",
        "line 1, element 3: is empty (write nan for a missing number) (if this line "
        "names columns: header=True, and index=True if the first is an index)",
    ),
    (
        "1,5;2,5\n",
        "line 1, element 1: '1,5' is not a number (write a decimal point: 1.5), and no rows follow",
    ),
    (
        "1 4; 2 5\n",
        "line 1, element 1: '1 4' is not one number (another separator between rows or "
        "elements?), and no rows follow",
    ),
    ("[1 2]\n", "line 1, element 1: '[1' is not a number, and no rows follow"),
    ("a;b\n1,5;2,5\n", "line 2, element 1: '1,5' is not a number (write a decimal point: 1.5)"),
    ("a b\n1 4; 2 5\n", "line 1: 1 name of columns, the first row below has 2 elements"),
    (
        "1;2\n1 4;5\n",
        "line 2, element 1: '1 4' is not one number (another separator between rows or elements?)",
    ),
    ("a,b,c\n1,2\n", "line 1: 3 names of columns, the first row below has 2 elements"),
    ("a,b\n", "line 1, element 1: 'a' is not a number, and no rows follow"),
    ("# only\n\n   \n", "no rows of numbers"),
    ('1,"2\n', "line 1: quotation marks: unexpected end of data"),
    ("1,2\n3,\0\n", "line 2: binary data, not text"),
    ("1,2\n3,1e400\n", "line 2, element 2: '1e400' is too large for float64"),
    ("1,2\n3,1d5\n", "line 2, element 2: '1d5' is not a number"),
    ("1,2\n3,0x10\n", "line 2, element 2: '0x10' is not a number"),
    ("1,2\n3,\u22124\n", "line 2, element 2: '\\u22124' is not a number"),
    ("1,2\n3,NA\n", "line 2, element 2: 'NA' is not a number"),
    ("1,2\n3,1 + 2j\n", "line 2, element 2: '1 + 2j' is not a number"),
    ("1,2\n3,True\n", "line 2, element 2: numbers and True or False do not mix"),
    (
        "x,y\nr1,2\n",
        "line 2, element 1: 'r1' is not a number (if the first column holds names of "
        "rows, index=True leaves it out)",
    ),
    ("1,2\n3," + "9" * 60 + "z\n", f"line 2, element 2: '{'9' * 37}...' is not a number"),
    (
        "%%MatrixMarket matrix array real general\n1 1\n1\n",
        "not rows of numbers but Matrix Market: name it .mtx",
    ),
    ("PK\x03\x04", "not text but a zip archive (.npz or a spreadsheet)"),
]


@pytest.mark.parametrize(("content", "reason"), MALFORMED_TEXT)
def test_malformed_text(here, content, reason):
    (here / "rows.csv").write_text(content, encoding="utf-8")
    assert refusal("rows.csv") in (f"rows.csv, {reason}", f"rows.csv: {reason}")


@pytest.mark.parametrize("delimiter", ["", "ab", "1", "x", ".", "#", "+", '"'])
def test_bad_delimiter(here, delimiter):
    (here / "rows.csv").write_text("1,2\n")
    assert refusal("rows.csv", delimiter=delimiter).startswith("delimiter ")
