"""Matrices in files and text: what other tools write is read, what is broken is refused."""

import builtins
import gzip
import io
import logging
import os
import stat
import sys
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from clmatmul import (
    matrix_elements,
    matrix_files,
    matrix_npy,
    matrix_sources,
    matrix_text,
    matrix_write,
)
from clmatmul.errors import ClmatmulError, MatrixFileError
from clmatmul.matrix_files import (
    check_writable_target,
    format_matrix,
    prompt_matrix,
    read_matrix,
    write_matrix,
)

LESSON = np.array([[1, 4], [2, 5], [3, 6]])


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current folder, so that messages have short names in them."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def same(found, expected):
    """Equal in shape, dtype and elements, nan and signed zeros included (nan has no sign)."""
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    for part in ("real", "imag"):
        signs = [
            np.signbit(np.nan_to_num(getattr(array, part).astype(float)))
            for array in (found, expected)
        ]
        np.testing.assert_array_equal(*signs)
    return True


def refusal(*args, **kwargs):
    """The message with which read_matrix refuses: one line of printable text."""
    with pytest.raises(MatrixFileError) as caught:
        read_matrix(*args, **kwargs)
    return one_line(caught)


def one_line(caught):
    message = str(caught.value)
    assert message.isprintable() and message
    return message


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


# --- text files that other tools write ----------------------------------------------------------


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


# --- .npy ---------------------------------------------------------------------------------------

NUMBER_DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "F", "D"]


@pytest.mark.parametrize("dtype", [*NUMBER_DTYPES, "g", "G"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_save(here, dtype, order):
    matrix = np.asarray(np.arange(6).reshape(2, 3), dtype, order=order)
    np.save("m.npy", matrix)
    found = read_matrix("m.npy")
    assert same(found, matrix)
    assert found.flags.f_contiguous == matrix.flags.f_contiguous
    found[0, 0] = 1  # the caller's own


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_versions_byte_orders_and_dimensions(here, version):
    for shape in [(6,), (2, 3), (1, 2, 3), (3, 0), (1, 1, 2, 3)]:
        for dtype in (">f8", "<i2", ">c8"):
            matrix = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
            with open("m.npy", "wb") as stream:
                np.lib.format.write_array(stream, matrix, version)
            found = read_matrix("m.npy")
            assert found.dtype.isnative
            assert same(found, matrix.astype(matrix.dtype.newbyteorder("=")))


def npy(header, data=b"", version=1):
    text = header if isinstance(header, bytes) else header.encode()
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def header(shape, descr="'<f8'", order=False):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"


DAMAGED = "the header is damaged: b\"{'descr': '<f8', 'fortran_order': False,\""
MALFORMED_NPY = [
    (b"\x93NUMPZ\x01\x00", "not a NumPy file: it begins b'\\x93NUMPZ\\x01\\x00'"),
    (b"hello", "not a NumPy file: it begins b'hello'"),
    (b"\x93NUMPY\x01", "not a version of .npy that is known (1, 2, 3)"),
    (npy("{}", version=9), "not a version of .npy that is known (1, 2, 3)"),
    (b"\x93NUMPY\x01\x00\x76\x00{'descr'", "the header is damaged: b\"{'descr'\""),
    (npy("{}"), "the header is damaged: b'{}'"),
    (npy("(" * 900), "the header is damaged: b'" + "(" * 40 + "'"),
    (npy(b"\xff\xfe"), "the header is damaged: b'\\xff\\xfe'"),
    (npy("__import__('os')"), "the header is damaged: b\"__import__('os')\""),
    (npy(header("(3L,)")), DAMAGED),
    (npy(header("(True,)")), DAMAGED),
    (npy(header("(-1, 3)")), "the header is damaged: shape '(-1, 3)'"),
    (npy(header("(1,) * 3")), DAMAGED),
    (npy(header("(0x" + "f" * 5000 + ",)")), DAMAGED),
    (
        npy(header("(2,)", "'\\d'")),
        "the header is damaged: b\"{'descr': '\\\\d', 'fortran_order': False, \"",
    ),
    (npy(header("(2,)", "'(2,-1)f8'")), "dtype '(2,-1)f8' is not known"),
    (
        npy(header("(2,)", "'(2,2)f8'")),
        "elements of a type that .npy does not name ('(2,2)f8', "
        "bfloat16 perhaps); save it as float32",
    ),
    (
        npy(header("(" + "1," * 40 + ")")),
        "the header is damaged: shape '(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ...'",
    ),
    (npy(header("()"), b"\0" * 8), "a single number (no dimensions), not a matrix"),
    (
        npy(header("(2, 3)"), b"\0" * 40),
        "cut short: 2 x 3 elements of float64 need 48 bytes, the file has 40",
    ),
    (
        npy(header("(2, 3)"), b"\0" * 49),
        "2 x 3 elements of float64 need 48 bytes, and more follow (.npz holds several arrays)",
    ),
    (npy(header("(100000, 100000)")), "100000 x 100000 elements, more than 2147483648, the limit"),
    (npy(header(f"(0, {2**70})")), f"0 x {2**70} elements, more than 2147483648, the limit"),
    (
        npy(header("(2,)", "'|O'"), b"\x80\x04."),
        "Python objects, which are never loaded (they could run code); save it as numbers, "
        "np.save(file, array.astype(float))",
    ),
    (npy(header("(2,)", "[('a', '<f8')]")), "records with named fields, not a matrix of numbers"),
    (npy(header("(2,)", "'<U3'")), "elements of type <U3, not numbers"),
    (npy(header("(2,)", "'<M8[s]'")), "elements of type datetime64[s], not numbers"),
    (
        npy(header("(2,)", "'|V2'")),
        "elements of a type that .npy does not name ('|V2', bfloat16 perhaps); save it as float32",
    ),
    (npy(header("(2,)", "'nonsense'")), "dtype 'nonsense' is not known"),
    (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "a header of 4294967295 bytes, more than 10000"),
]


@pytest.mark.parametrize(("content", "reason"), MALFORMED_NPY)
def test_malformed_npy(here, content, reason):
    (here / "m.npy").write_bytes(content)
    assert refusal("m.npy") == f"m.npy: {reason}"


def test_malformed_npy_on_a_pipe(here):
    """The same reasons without a size of the file to check first."""
    for content, reason in MALFORMED_NPY:
        if content.startswith(b"\x93NUMPY"):
            message = refusal("-", stdin=io.BytesIO(content))
            assert message == f"standard input: {reason}"


def test_object_arrays_are_not_unpickled(here):
    class Bomb:
        def __reduce__(self):
            return (sys.exit, ("unpickled",))

    np.save("m.npy", np.array([[Bomb()]], object), allow_pickle=True)
    assert "never loaded" in refusal("m.npy")
    np.savez("m.npz", np.array([[Bomb()]], object))
    assert refusal("m.npz").startswith("m.npz:arr_0: Python objects, which are never loaded")


def peak_bytes(call):
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_bounds_are_checked_before_memory_is_taken(here):
    pytest.importorskip("scipy.io")
    (here / "huge.npy").write_bytes(npy(header("(46000, 46000)")))
    (here / "dense.mtx").write_text("%%MatrixMarket matrix array real general\n46000 46000\n1\n")
    (here / "sparse.mtx").write_text(
        "%%MatrixMarket matrix coordinate real general\n20000 20000 1\n1 1 1\n"
    )
    (here / "entries.mtx").write_text(
        "%%MatrixMarket matrix coordinate real general\n9999 9999 99999999\n1 1 1\n"
    )
    content = npy(header("(46000, 46000)"))
    expected = {
        "huge.npy": "huge.npy: cut short: 46000 x 46000 elements of float64",
        "dense.mtx": "dense.mtx: cut short: 2116000000 elements cannot be in 55 bytes",
        "sparse.mtx": "sparse.mtx: 20000 x 20000 elements, more than 268435456, the limit",
        "entries.mtx": "entries.mtx: cut short: 99999999 elements cannot be in",
        "-": "standard input: cut short: 46000 x 46000 elements",
    }
    for source, reason in expected.items():
        call = lambda s=source: refusal(s, stdin=io.BytesIO(content))  # noqa: E731
        assert call().startswith(reason)
        assert peak_bytes(call) < 2**20


def test_max_elements(here):
    pytest.importorskip("scipy.io")
    np.save("m.npy", LESSON)
    np.savez("m.npz", LESSON)
    write_matrix("m.csv", LESSON)
    write_matrix("m.mtx", LESSON)
    (here / "s.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 2 1\n1 1 1\n")
    for source in ("m.npy", "m.npz", "m.csv", "m.mtx", "s.mtx", "1 4; 2 5; 3 6"):
        assert read_matrix(source, max_elements=6).shape == (3, 2)
        assert "more than 5" in refusal(source, max_elements=5)
    assert refusal("m.csv", max_elements=5) == "m.csv, line 3: more than 5 elements, the limit"


def test_text_bounds(here, monkeypatch):
    (here / "m.csv").write_text("1,2\n" * 5)
    monkeypatch.setattr(matrix_sources, "MAX_TEXT_BYTES", 19)
    assert refusal("m.csv") == "m.csv: 20 bytes, more than 19, the limit for text (use .npy)"
    assert refusal("-", stdin=io.BytesIO(b"1,2\n" * 5)) == (
        "standard input: more than 19 bytes, the limit for text"
    )
    monkeypatch.setattr(matrix_sources, "MAX_TEXT_BYTES", 2**30)
    monkeypatch.setattr(matrix_files, "MAX_LINE_CHARACTERS", 10)
    monkeypatch.setattr(matrix_text, "MAX_LINE_CHARACTERS", 10)
    (here / "m.csv").write_text("1,2\n" + "1," * 10 + "1\n")
    assert refusal("m.csv").startswith("m.csv, line 2: longer than 10 characters, the limit")
    (here / "m.csv").write_text("1,2,3,4,56\n")
    assert read_matrix("m.csv").shape == (1, 5)


def test_no_memory_is_one_line(here, monkeypatch):
    np.save("m.npy", LESSON)

    def no_memory(*args):
        raise MemoryError

    monkeypatch.setattr(matrix_npy, "_read_into", no_memory)
    assert refusal("m.npy") == "m.npy: this machine has not enough memory for it"


# --- .npz ---------------------------------------------------------------------------------------


def test_npz(here):
    for save in (np.savez, np.savez_compressed):
        save("one.npz", weights=LESSON)
        assert same(read_matrix("one.npz"), LESSON)
        assert same(read_matrix("one.npz:weights"), LESSON)
        save("two.npz", a=LESSON, b=np.asfortranarray(LESSON / 2), c=np.array(["x"]))
        assert same(read_matrix("two.npz:b"), LESSON / 2)
        assert same(read_matrix("two.npz", key="a"), LESSON)
        assert same(read_matrix("two.npz:a", key="a"), LESSON)
    assert refusal("two.npz") == "two.npz: 3 arrays, 'a', 'b', 'c'; name one: two.npz:a"
    assert refusal("two.npz:d") == "two.npz: no array 'd'; it has 'a', 'b', 'c'"
    assert refusal("two.npz:c") == "two.npz:c: elements of type <U1, not numbers"
    assert "names one array and key='b' another" in refusal("two.npz:a", key="b")
    np.savez("many.npz", *[LESSON] * 12)
    assert "'arr_9', ...; name one: many.npz:arr_0" in refusal("many.npz")
    with zipfile.ZipFile("odd.npz", "w") as archive:
        archive.writestr("a\nb.npy", b"hello")
    assert refusal("odd.npz").startswith("odd.npz:'a\\nb': not a NumPy file")


def test_npz_that_is_broken(here):
    (here / "m.npz").write_bytes(b"no zip")
    assert refusal("m.npz") == "m.npz: not an .npz archive (File is not a zip file)"
    with zipfile.ZipFile("m.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert refusal("m.npz") == "m.npz: no arrays in it"
    with zipfile.ZipFile("m.npz", "w") as archive:
        archive.writestr("a.npy", b"hello")
    assert refusal("m.npz") == "m.npz:a: not a NumPy file: it begins b'hello'"

    np.savez("m.npz", a=np.arange(1000))
    data = bytearray((here / "m.npz").read_bytes())
    data[3000] ^= 255
    (here / "m.npz").write_bytes(data)
    assert refusal("m.npz") == "m.npz:a: damaged: Bad CRC-32 for file 'a.npy'"
    np.savez_compressed("m.npz", a=np.random.default_rng(1).random(1000))
    data = bytearray((here / "m.npz").read_bytes())
    data[600:700] = bytes(100)
    (here / "m.npz").write_bytes(data)
    assert refusal("m.npz").startswith("m.npz:a: ")
    (here / "m.npz").write_bytes(data[:5000])
    assert refusal("m.npz") == "m.npz: not an .npz archive (File is not a zip file)"
    np.savez("m.npz", a=LESSON)
    data = bytearray((here / "m.npz").read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1  # says that it is encrypted
    (here / "m.npz").write_bytes(data)
    assert refusal("m.npz") == "m.npz:a: encrypted, which is not read"


def test_npz_bomb(here, monkeypatch):
    zeros = np.zeros((300, 300))
    np.savez_compressed("m.npz", a=zeros)
    assert same(read_matrix("m.npz"), zeros)  # small: harmless at any ratio
    monkeypatch.setattr(matrix_sources, "HARMLESS_BYTES", 2**16)
    message = refusal("m.npz")
    assert message.startswith("m.npz:a: ")
    assert message.endswith(" when decompressed, more than 200 times, the limit")


def test_scipy_sparse_npz_says_what_to_do(here):
    sparse = pytest.importorskip("scipy.sparse")
    sparse.save_npz("s.npz", sparse.csr_matrix(LESSON))
    assert refusal("s.npz").startswith("s.npz: a sparse matrix as scipy.sparse.save_npz writes it")


# --- Matrix Market ------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz"])
@pytest.mark.parametrize("dtype", ["i8", "f8", "D"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric", "hermitian"])
@pytest.mark.parametrize("layout", ["array", "coordinate"])
def test_scipy_mmwrite(here, suffix, dtype, symmetry, layout):
    sio = pytest.importorskip("scipy.io")
    sparse = pytest.importorskip("scipy.sparse")
    if symmetry == "hermitian" and dtype != "D":
        pytest.skip("hermitian is for complex numbers")
    rng = np.random.default_rng(3)
    full = rng.integers(-9, 10, (4, 4)).astype(dtype)
    if dtype != "i8":
        full = full / 7
    if dtype == "D":
        full = full + 1j * rng.integers(-9, 10, (4, 4)) / 3
    full = {
        "general": full[:3],
        "symmetric": full + full.T,
        "skew-symmetric": full - full.T,
        "hermitian": full + full.conj().T,
    }[symmetry]
    written = sparse.coo_matrix(full) if layout == "coordinate" else full
    sio.mmwrite("w.mtx", written, symmetry=symmetry, comment="by scipy", precision=17)
    data = (here / "w.mtx").read_bytes()
    assert f"{layout} " in data.splitlines()[0].decode() and symmetry.encode() in data
    if suffix == ".mtx.gz":
        data = gzip.compress(data)
    (here / f"m{suffix}").write_bytes(data)
    found = read_matrix(f"m{suffix}")
    np.testing.assert_array_equal(found, full)
    assert found.dtype == full.dtype and found.flags.c_contiguous


def test_matrix_market_pattern_and_duplicates(here):
    sio = pytest.importorskip("scipy.io")
    sparse = pytest.importorskip("scipy.sparse")
    sio.mmwrite("p.mtx", sparse.coo_matrix(LESSON > 3), field="pattern")
    assert b"pattern" in (here / "p.mtx").read_bytes()
    found = read_matrix("p.mtx")
    np.testing.assert_array_equal(found, LESSON > 3)
    assert found.dtype == np.float64
    (here / "d.mtx").write_text(
        "%%MatrixMarket matrix coordinate real general\n2 2 3\n1 1 1\n1 1 2\n2 2 5\n"
    )
    np.testing.assert_array_equal(read_matrix("d.mtx"), [[3, 0], [0, 5]])


BANNER = "%%MatrixMarket matrix "
MALFORMED_MTX = [
    ("1 2\n3 4\n", ", line 1: not '%%MatrixMarket matrix coordinate real general' or the like"),
    ("%%MatrixMarket vector array real general\n1\n", ", line 1: 'vector' is none of matrix"),
    (BANNER + "list real general\n1 1\n", ", line 1: 'list' is none of array, coordinate"),
    (BANNER + "array text general\n1 1\n", ", line 1: 'text' is none of real, double, complex,"),
    (BANNER + "array real lower\n1 1\n", ", line 1: 'lower' is none of general, symmetric,"),
    (BANNER + "array pattern general\n1 1\n", ", line 1: a pattern must be of kind coordinate"),
    (BANNER + "array real general\n% c\n", ": cut short: no line with the sizes"),
    (BANNER + "array real general\n% c\n2\n1\n", ", line 3: '2' is not: rows, columns"),
    (BANNER + "array real general\n2 x\n1\n", ", line 2: '2 x' is not: rows, columns"),
    (BANNER + "array real general\n-2 2\n1\n", ", line 2: '-2 2' is not: rows, columns"),
    (BANNER + "coordinate real general\n2 2\n", ", line 2: '2 2' is not: rows, columns, entries"),
    (BANNER + "array real symmetric\n2 3\n1\n", ", line 2: symmetric, but 2 x 3"),
    (BANNER + "array real general\n2 2\n1\n2\n", ": cut short: 4 elements cannot be in"),
    (BANNER + "array real general\n2 2\n1.25\n2.25\n3.5\n", ": "),
    (BANNER + "array real general\n2 1\n1\nabc\n", ": "),
    (BANNER + "array real general\n2 1\n1\n2\n3\n", ": "),
    (BANNER + "coordinate real general\n2 2 1\n3 1 1\n", ": "),
    (BANNER + "coordinate real general\n2 2 1\n0 1 1\n", ": "),
    (BANNER + "coordinate real general\n2 2 1\n1 1 xx\n", ": "),
    (BANNER + "coordinate integer general\n2 2 1\n1 1 99999999999999999999\n", ": "),
]


@pytest.mark.parametrize(("content", "reason"), MALFORMED_MTX)
def test_malformed_matrix_market(here, content, reason):
    pytest.importorskip("scipy.io")
    (here / "m.mtx").write_text(content)
    message = refusal("m.mtx")
    assert message.startswith(f"m.mtx{reason}")
    if reason == ": ":  # found by scipy, whose message names the line
        assert "line" in message.lower()


def test_gzip_that_is_broken_or_a_bomb(here, monkeypatch):
    pytest.importorskip("scipy.io")
    text = (BANNER + "array real general\n200 200\n" + "0\n" * 40000).encode()
    data = gzip.compress(text)
    (here / "m.mtx.gz").write_bytes(data)
    assert same(read_matrix("m.mtx.gz"), np.zeros((200, 200)))
    monkeypatch.setattr(matrix_sources, "HARMLESS_BYTES", 2**12)
    assert refusal("m.mtx.gz") == (
        "m.mtx.gz: grows more than 200 times when decompressed, the limit"
    )
    (here / "m.mtx.gz").write_bytes(data[:-20])
    assert refusal("m.mtx.gz").startswith("m.mtx.gz: damaged: ")
    (here / "m.mtx.gz").write_bytes(text)
    assert refusal("m.mtx.gz").startswith("m.mtx.gz: damaged: Not a gzipped file")


def test_scipy_missing_names_the_extra(here, monkeypatch):
    (here / "m.mtx").write_text(BANNER + "array real general\n1 1\n1\n")
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    monkeypatch.setattr(matrix_write.importlib.util, "find_spec", lambda name: None)
    advice = "m.mtx: Matrix Market files need scipy: pip install 'clmatmul[files]'"
    assert refusal("m.mtx") == advice
    with pytest.raises(MatrixFileError) as caught:
        check_writable_target("m.mtx")
    assert one_line(caught) == advice


# --- standard input -----------------------------------------------------------------------------


def saved(matrix):
    stream = io.BytesIO()
    np.save(stream, matrix)
    return stream.getvalue()


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


# --- writing ------------------------------------------------------------------------------------

SPECIAL = [0.1, 1 / 3, -0.0, 5e-324, 1.7976931348623157e308, np.nan, np.inf, -np.inf, 1e22, 47.0]


@pytest.mark.parametrize("dtype", NUMBER_DTYPES)
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".tsv", ".txt", ".mtx", ".mtx.gz", "-"])
def test_round_trip_of_every_dtype(here, dtype, suffix):
    if suffix.startswith(".mtx"):
        pytest.importorskip("scipy.io")
    dtype = np.dtype(dtype)
    if dtype.kind in "fc":
        with np.errstate(over="ignore"):
            matrix = (
                np.array(SPECIAL, "f8")
                .astype(dtype.char.lower() if dtype.kind == "c" else dtype)
                .reshape(5, 2)
            )
        if dtype.kind == "c":
            both = np.empty((5, 2), dtype)
            both.real, both.imag = matrix, matrix[::-1]
            matrix = both
    elif dtype.kind == "b":
        matrix = LESSON > 3
    else:
        info = np.iinfo(dtype)
        matrix = np.array([[info.min, info.max], [0, 1]], dtype)
    if suffix == "-":
        text = io.StringIO()
        write_matrix("-", matrix, stdout=text)
        found = read_matrix("-", stdin=io.StringIO(text.getvalue()))
        restored = read_matrix("-", stdin=io.StringIO(text.getvalue()), dtype=dtype)
    else:
        write_matrix(f"m{suffix}", matrix)
        found = read_matrix(f"m{suffix}")
        restored = read_matrix(f"m{suffix}", dtype=dtype)
    if suffix.startswith(".mtx"):  # scipy adds what it reads to zeros: the sign of -0.0 goes
        assert restored.dtype == matrix.dtype
        np.testing.assert_array_equal(restored, matrix)
    else:
        assert same(restored, matrix)
    if suffix in (".npy", ".npz"):
        assert same(found, matrix)
    np.testing.assert_array_equal(found, matrix)  # the same numbers without naming the dtype
    assert os.listdir(here) == ([] if suffix == "-" else [f"m{suffix}"])


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.bool_, np.int64, np.uint64, np.float32, np.float64, np.complex128]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=4),
    ),
    st.sampled_from([",", "\t", " "]),
)
def test_text_round_trip_of_anything(matrix, delimiter):
    lines = list(matrix_text.matrix_lines(matrix, delimiter))
    found = matrix_text.parse_lines(lines, "m", matrix_text.TextOptions(), max_elements=matrix.size)
    assert same(found.astype(matrix.dtype), matrix)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(alphabet='0123456789.,; \n\t+-ejinfa#"()_', max_size=30), st.text()))
def test_any_text_is_read_or_refused_in_one_line(text):
    for parse in (
        lambda: matrix_text.parse_inline(text, max_elements=100),
        lambda: matrix_text.parse_lines(
            io.StringIO(text), "m", matrix_text.TextOptions(), max_elements=100
        ),
    ):
        try:
            assert parse().ndim == 2
        except MatrixFileError as error:
            assert str(error).isprintable()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_to_npy_is_read_or_refused(data):
    content = bytearray(saved(LESSON))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(6, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = bytes(content[: data.draw(st.integers(6, len(content)))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read_matrix("-", stdin=io.BytesIO(content))
        except MatrixFileError as error:
            assert str(error).isprintable()


def test_other_tools_read_what_is_written(here):
    sio = pytest.importorskip("scipy.io")
    pandas = pytest.importorskip("pandas")
    matrix = LESSON / 7
    for suffix in (".npy", ".npz", ".csv", ".tsv", ".txt", ".mtx", ".mtx.gz"):
        write_matrix(f"m{suffix}", matrix)
    np.testing.assert_array_equal(np.load("m.npy"), matrix)
    np.testing.assert_array_equal(np.load("m.npz")["arr_0"], matrix)
    np.testing.assert_array_equal(np.loadtxt("m.csv", delimiter=","), matrix)
    np.testing.assert_array_equal(np.loadtxt("m.txt"), matrix)
    frame = pandas.read_csv("m.tsv", sep="\t", header=None)  # not exact in all its versions
    np.testing.assert_allclose(frame.to_numpy(), matrix, rtol=1e-15)
    np.testing.assert_array_equal(sio.mmread("m.mtx"), matrix)
    np.testing.assert_array_equal(sio.mmread("m.mtx.gz"), matrix)
    write_matrix("c.csv", matrix * (1 - 2j))
    np.testing.assert_array_equal(np.loadtxt("c.csv", complex, delimiter=","), matrix * (1 - 2j))
    write_matrix("n.npz:scores", matrix)
    assert same(np.load("n.npz")["scores"], matrix)


def test_shapes_that_are_written(here):
    stack = np.arange(24.0).reshape(2, 3, 4)
    for shape_case in (stack, stack[0, 0], np.zeros((3, 0)), stack[:, ::2, ::-1]):
        for name in ("m.npy", "m.npz"):
            write_matrix(name, shape_case)
            assert same(read_matrix(name), shape_case)
    write_matrix("v.csv", [1, 2, 3])
    assert (here / "v.csv").read_text() == "1\n2\n3\n"  # as numpy.savetxt
    write_matrix("s.txt", np.float32(2.5))
    assert (here / "s.txt").read_text() == "2.5\n"
    write_matrix("t.csv", LESSON.T)
    assert (here / "t.csv").read_text() == "1,2,3\n4,5,6\n"


def test_standard_output(here, capsys):
    write_matrix("-", np.array([[1.5, -2], [0.1, 3]]))
    assert capsys.readouterr().out == "1.5 -2.0\n0.1 3.0\n"
    with pytest.raises(MatrixFileError, match="^standard output: 2 x 1 x 1 elements: only .npy"):
        write_matrix("-", np.ones((2, 1, 1)))


@pytest.mark.parametrize(
    ("array", "name", "reason"),
    [
        (np.ones((2, 2, 2)), "m.csv", "2 x 2 x 2 elements: only .npy and .npz hold such a shape"),
        (np.ones((2, 2, 2)), "m.mtx", "2 x 2 x 2 elements: only .npy and .npz hold such a shape"),
        (np.ones((0, 2)), "m.txt", "0 x 2 elements: only .npy and .npz hold such a shape"),
        (np.array([["a"]]), "m.csv", "elements of type <U1, not numbers"),
        (np.array([[None]]), "m.npy", "elements of type object, not numbers"),
        (np.array([[1]], "m8[s]"), "m.npz", "elements of type timedelta64[s], not numbers"),
        (np.zeros(2, "f4,i4"), "m.npy", "not numbers"),
    ],
)
def test_arrays_that_no_file_holds(here, array, name, reason):
    if name.endswith(".mtx"):
        pytest.importorskip("scipy.io")
    with pytest.raises(MatrixFileError) as caught:
        write_matrix(name, array)
    assert reason in one_line(caught)
    assert os.listdir(here) == []


def test_long_double_text(here):
    if np.finfo("g").nmant <= np.finfo("d").nmant:
        pytest.skip("long double is double here")
    write_matrix("m.csv", np.array([[0.5]], "g"))
    assert (here / "m.csv").read_text() == "0.5\n"
    with pytest.raises(MatrixFileError, match="more digits than float64: use .npy"):
        write_matrix("m.csv", np.array([[1]], "g") / 3)


@pytest.mark.parametrize("act", [check_writable_target, lambda path: write_matrix(path, LESSON)])
def test_targets_that_are_refused(here, act):
    (here / "folder.csv").mkdir()
    (here / "file").write_text("x")
    cases = {
        "m.xlsx": "m.xlsx: unknown kind of file to write; known are .npy .npz .csv .tsv .txt .mtx"
        " .mtx.gz and -",
        "m": "m: unknown kind of file to write; known are .npy .npz .csv .tsv .txt .mtx .mtx.gz"
        " and -",
        "folder.csv": "folder.csv: a folder, not a file to write",
        "no/m.csv": "no/m.csv: no folder no to write in",
        "file/m.csv": "file/m.csv: no folder file to write in",
    }
    for path, expected in cases.items():
        with pytest.raises(MatrixFileError) as caught:
            act(path)
        assert one_line(caught) == expected
    assert sorted(os.listdir(here)) == ["file", "folder.csv"]


@pytest.mark.parametrize("denied", ["folder", "file"])
def test_targets_without_permission(here, monkeypatch, denied):
    (here / "m.csv").write_text("old")
    real = os.access

    def access(path, mode):
        is_file = os.path.basename(path) == "m.csv"
        return real(path, mode) and is_file != (denied == "file")

    monkeypatch.setattr(os, "access", access)
    reason = "read-only" if denied == "file" else "no permission to write in its folder"
    with pytest.raises(MatrixFileError, match=f"^m.csv: {reason}$"):
        check_writable_target("m.csv")


def test_a_writable_target_is_left_alone(here):
    (here / "old.csv").write_text("old")
    for path in ("-", "new.npy", "old.csv", here / "new.npz", "new.npz:name", "new.TXT"):
        assert check_writable_target(path) is None
    assert os.listdir(here) == ["old.csv"]
    assert (here / "old.csv").read_text() == "old"


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".mtx"])
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(28, "No space left on device"), MatrixFileError),
        (MemoryError(), MatrixFileError),
        (Interrupted(), Interrupted),
    ],
)
@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_failure_in_the_middle_keeps_the_old_file(here, monkeypatch, suffix, error, raised, step):
    if suffix == ".mtx":
        pytest.importorskip("scipy.io")
    path = here / f"m{suffix}"
    path.write_bytes(b"old")

    def fail(*args, **kwargs):
        raise error

    def fail_after_some(*args, **kwargs):
        args[0].write(b"half")
        raise error

    def lines(*args):
        yield "1,2\n"
        raise error

    if step == "write":
        monkeypatch.setattr(np.lib.format, "write_array", fail_after_some)
        monkeypatch.setattr(matrix_write, "matrix_lines", lines)
        monkeypatch.setattr(matrix_write, "write_matrix_market", fail_after_some)
    else:
        monkeypatch.setattr(os, step, fail)
    with pytest.raises(raised) as caught:
        write_matrix(str(path), LESSON)
    if raised is MatrixFileError and isinstance(error, OSError):
        assert one_line(caught) == f"{path}: cannot be written: No space left on device"
    assert os.listdir(here) == [f"m{suffix}"]
    assert path.read_bytes() == b"old"


@pytest.mark.skipif(os.name != "posix", reason="modes and links of POSIX")
def test_mode_and_links(here):
    old = os.umask(0o027)
    try:
        write_matrix("m.csv", LESSON)
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat("m.csv").st_mode) == 0o640
    (here / "folder").mkdir()
    (here / "folder" / "real.csv").write_text("old")
    os.symlink("folder/real.csv", "link.csv")
    write_matrix("link.csv", LESSON)
    assert os.path.islink("link.csv")
    assert same(read_matrix("folder/real.csv"), LESSON)
    assert os.listdir(here / "folder") == ["real.csv"]


def test_equal_matrices_give_equal_files(here):
    pytest.importorskip("scipy.io")
    for suffix in (".npy", ".csv", ".mtx", ".mtx.gz"):
        write_matrix(f"a{suffix}", LESSON)
        write_matrix(f"b{suffix}", LESSON.astype(np.int64))
        assert (here / f"a{suffix}").read_bytes() == (here / f"b{suffix}").read_bytes()


def test_long_names(here):
    name = "x" * 240 + ".csv"
    write_matrix(name, LESSON)
    assert same(read_matrix(name), LESSON)


# --- for people ---------------------------------------------------------------------------------


def test_format_matrix():
    assert format_matrix(LESSON) == "1  4\n2  5\n3  6"
    assert format_matrix(np.array([[1, -20], [300, 4]])) == "  1  -20\n300    4"
    assert format_matrix(np.array([[1.5, 100], [22.25, 1 / 3]])) == (
        " 1.5   100\n22.25    0.333333"
    )
    assert format_matrix(np.array([[1 / 3]]), precision=3) == "0.333"
    assert format_matrix(np.array([1 + 2j, -1.5j])) == "1+2j  -0-1.5j"
    assert format_matrix(np.array([[True], [False]])) == " True\nFalse"
    assert format_matrix(np.array(3)) == "3"
    assert format_matrix(np.zeros((0, 3))) == "(no elements: 0 x 3)"
    assert format_matrix(np.array([[np.nan, np.inf], [1.5, -1e300]])) == (
        "nan        inf\n  1.5  -1e+300"
    )


def test_format_matrix_leaves_out_the_middle():
    matrix = np.arange(100).reshape(10, 10)
    assert format_matrix(matrix, max_rows=3, max_columns=4).splitlines() == [
        "  0    1  ...    8    9",
        " 10   11  ...   18   19",
        "...  ...  ...  ...  ...",
        " 90   91  ...   98   99",
    ]
    large = format_matrix(np.random.default_rng(1).random((500, 500)))
    lines = large.splitlines()
    assert len(lines) == 21 and large.isascii()
    assert all(line == line.rstrip() and len(line) < 120 for line in lines)
    assert format_matrix(np.arange(5), max_rows=1, max_columns=1) == "0  ...  4"


def test_format_matrix_of_more_dimensions():
    text = format_matrix(np.arange(12).reshape(6, 1, 2))
    assert text.startswith("[0]\n0  1\n\n[1]\n2  3\n\n")
    assert text.endswith("[3]\n6  7\n\n... (2 more)")
    assert format_matrix(np.zeros((1, 2, 1, 1), int)) == "[0, 0]\n0\n\n[0, 1]\n0"


# --- asking -------------------------------------------------------------------------------------


def ask(*answers):
    """The matrix and all that was printed, for these answers; then the input ends."""
    left = list(answers)
    prompts = []

    def answer(prompt):
        prompts.append(prompt)
        if not left:
            raise EOFError
        return left.pop(0)

    output = io.StringIO()
    try:
        matrix = prompt_matrix("A", input=answer, output=output)
    except MatrixFileError as error:
        matrix = error
    assert not left and set(prompts) <= {""}  # a prompt of input() would be on standard output
    return matrix, output.getvalue()


def test_prompt_matrix():
    matrix, text = ask("3", "2", "1 4", "2, 5", "3,6")
    assert same(matrix, LESSON)
    assert text == (
        "A: number of rows: A: number of columns: A, row 1 (2 elements): A, row 2 (2 elements): "
        "A, row 3 (2 elements): "
    )
    assert same(ask("1", "1", " 2.5 ")[0], [[2.5]])
    assert same(ask("2", "1", "1", "2j")[0], [[1], [2j]])


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (("x", "1", "1", "5"), "'x' is not a whole number, such as 3"),
        (("", "1", "1", "5"), "'' is not a whole number, such as 3"),
        (("2.5", "1", "1", "5"), "'2.5' is not a whole number, such as 3"),
        (("-1", "1", "1", "5"), "'-1' is not a whole number, such as 3"),
        (("0", "1", "1", "5"), "0: must be from 1 to 10000"),
        (("1", "10001", "1", "5"), "10001: must be from 1 to 10000"),
        (("9" * 30, "1", "1", "5"), "is not a whole number, such as 3"),
        (("1", "1", "5 6", "5"), "2 elements, not 1: type the row again"),
        (("1", "1", "abc", "5"), "element 1: 'abc' is not a number: type the row again"),
        (("1", "1", "", "5"), "one row is asked for: 1 element, parted by spaces or commas"),
        (("1", "1", "5;", "5"), "one row is asked for: 1 element, parted by spaces or commas"),
    ],
)
def test_prompt_matrix_asks_again(answers, reason):
    matrix, text = ask(*answers)
    assert same(matrix, [[5]])
    assert f"  {reason}\n" in text or reason in text


def test_prompt_matrix_keeps_one_kind():
    matrix, text = ask("2", "1", "1", "True", "2")
    assert same(matrix, [[1], [2]])
    assert "  element 1: numbers and True or False do not mix: type the row again\n" in text


@pytest.mark.parametrize("answers", [(), ("2",), ("2", "1"), ("2", "1", "5")])
def test_prompt_matrix_at_the_end_of_input(answers):
    error, text = ask(*answers)
    assert str(error) == "A: the input ended before the matrix did"
    assert text.endswith("\n")


def test_prompt_matrix_tells_a_size_that_is_known():
    output = io.StringIO()
    answers = iter(["2", "1 2", "3 4"])
    found = prompt_matrix("B", rows=2, input=lambda question: next(answers), output=output)
    assert same(found, np.array([[1, 2], [3, 4]]))
    assert output.getvalue().startswith("B: number of rows: 2, as the other matrix needs it\n")
    answers = iter(["1", "1 2 3"])
    assert prompt_matrix(
        "B", columns=3, input=lambda question: next(answers), output=output
    ).shape == (1, 3)


def test_prompt_matrix_by_default_asks_on_standard_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n2\n3 4\n"))
    assert same(prompt_matrix("B"), [[3, 4]])
    captured = capsys.readouterr()
    assert captured.out == "" and "B, row 1 (2 elements): " in captured.err
