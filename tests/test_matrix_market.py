"""Matrices in Matrix Market files: what SciPy writes is read, what is broken is refused."""

import gzip
import sys

import numpy as np
import pytest
from matrix_checks import BANNER, LESSON, here, one_line, refusal, same

from clmatmul import matrix_sources, matrix_write
from clmatmul.errors import MatrixFileError
from clmatmul.matrix_files import check_writable_target, read_matrix

__all__ = ["here"]


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
