"""Matrices in .npy and .npz files: what NumPy writes is read, what is broken is refused."""

import io
import sys
import zipfile

import numpy as np
import pytest
from matrix_checks import LESSON, NUMBER_DTYPES, header, here, npy, peak_bytes, refusal, same

from clmatmul import matrix_files, matrix_npy, matrix_sources, matrix_text
from clmatmul.matrix_files import read_matrix, write_matrix

__all__ = ["here"]


# --- .npy ---------------------------------------------------------------------------------------


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
