"""Matrices written to files: whole or not at all, and read back the same."""

import io
import os
import stat
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from matrix_checks import LESSON, NUMBER_DTYPES, here, one_line, same, saved

from clmatmul import matrix_text, matrix_write
from clmatmul.errors import MatrixFileError
from clmatmul.matrix_files import check_writable_target, read_matrix, write_matrix

__all__ = ["here"]


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
