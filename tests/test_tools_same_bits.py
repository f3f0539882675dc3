"""tools/same_bits: the same products everywhere, and a comparison that sees one bit."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools"
if not TOOLS.is_dir():
    pytest.skip("not a checkout", allow_module_level=True)
sys.path.insert(0, str(TOOLS))
same_bits = pytest.importorskip("same_bits_run")

pytestmark = pytest.mark.usefixtures("device")


def test_the_products_are_the_same_each_time():
    first, again = (list(same_bits.digests(8)) for _ in range(2))
    assert first == again and len({name for name, _ in first}) == 8
    classes = {name.split(":")[1] for name, _ in first}
    assert classes == set(same_bits.CLASSES)


def test_what_is_known_is_not_computed_again():
    names = [name for name, _ in same_bits.digests(5, {"0:element:float32": "aa"})]
    assert [x.partition(":")[0] for x in names] == ["1", "2", "3", "4"]


def test_a_digest_is_that_of_a_loop_over_k():
    """One plain product, term by term in NumPy."""
    for name, dtype, compute in same_bits.problems(40):
        cells = dict(zip(compute.__code__.co_freevars, compute.__closure__, strict=True))
        a, b = (cells[x].cell_contents for x in "ab")
        keywords = cells["keywords"].cell_contents
        if dtype == "float32" and keywords == {"reproducible": True} and a.ndim == 2:
            total = np.zeros((a.shape[0], b.shape[1]), "f4")
            with np.errstate(all="ignore"):
                for i in range(a.shape[1]):
                    total = total + a[:, i, None] * b[None, i]
            got = compute()
            assert np.array_equal(got, total, equal_nan=True), name
            return
    pytest.fail("no plain product among them")


def test_comparison(capsys):
    right = {"0": "aa", "1": "bb", "2": None}
    assert same_bits.compare({"x": right, "y": dict(right)})
    assert same_bits.compare({"x": right, "y": {"0": "aa"}})
    assert not same_bits.compare({"x": right, "y": {"0": "aa", "1": "bc"}})
    assert "1 differ from another: 1" in capsys.readouterr().out


def test_lines_that_were_cut_off_are_left_out():
    text = (
        "".join(json.dumps(x) + "\n" for x in (["0", "aa"], ["1", None]))
        + "[driver]\n"
        + '["2", "b'
    )
    assert same_bits.read(text) == {"0": "aa", "1": None}
