"""tools/ladder: the tables, the marks in the page, and one small run."""

import sys
from pathlib import Path

import pytest

from clmatmul import bench_contestants
from clmatmul.bench_suites import SUITES

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import ladder  # noqa: E402
from ladder import BEGIN, END, Step, between_marks, configurations, table  # noqa: E402

STEPS = [
    Step("naive", "naive(work_group_size=64)", 2e6),
    Step("tiled", "tiled(tile_k=8)", 5e5),
    Step("NumPy", "", 1e5),
]


def test_the_table_has_the_gain_of_each_step():
    lines = table(100, "float32", STEPS).splitlines()
    assert lines[0] == "float32, 100 × 100 × 100:"
    cells = [[x.strip() for x in line.strip("|").split("|")] for line in lines[4:]]
    assert cells == [
        ["naive", "2 ms", "1.0", "", "1.0", "0.050"],
        ["tiled", "500 µs", "4.0", "4.00", "4.0", "0.200"],
        ["NumPy", "100 µs", "20.0", "", "20.0", "1"],
    ]
    assert len({line.count("|") for line in lines[2:]}) == 1


def test_configurations_are_listed_once():
    other = [Step("naive", "naive(work_group_size=8)", 1.0), STEPS[1], STEPS[2]]
    climbs = [(100, "float32", STEPS), (200, "float32", STEPS), (8, "float64", other)]
    assert configurations(climbs).splitlines()[2:] == [
        "- `naive(work_group_size=64)`: float32 100, 200",
        "- `tiled(tile_k=8)`: float32 100, 200; float64 8",
        "- `naive(work_group_size=8)`: float64 8",
    ]


def test_what_is_between_the_marks_is_replaced():
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert between_marks(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert between_marks(between_marks(page, "x"), "new") == between_marks(page, "new")


@pytest.mark.parametrize("page", ["", BEGIN, END, END + BEGIN, BEGIN + END + END, BEGIN * 2 + END])
def test_a_page_without_marks_is_left_alone(page, tmp_path, capsys):
    with pytest.raises(ValueError, match="the page needs one"):
        between_marks(page, "new")
    file = tmp_path / "page.md"
    file.write_text(page)
    with pytest.raises(SystemExit) as stopped:
        ladder.main(["--write", str(file)])
    assert stopped.value.code == 2 and file.read_text() == page
    assert "the page needs one" in capsys.readouterr().err


def test_the_page_of_this_checkout_has_the_marks_the_steps_and_the_suites():
    page = (ROOT / "docs" / "matmul.md").read_text()
    between_marks(page, "")
    sections = [line for line in page.splitlines() if line.startswith("## ")]
    for name in ladder.STEPS:
        assert sum(f"`{name}`" in line for line in sections) == 1, name
    text = " ".join(page.split())
    for name, (about, _) in SUITES.items():
        assert f"| `{name}` | {about} |" in text, name


def test_a_small_run(device, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench_contestants, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(bench_contestants, "_TURN_NS", 1)
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}")
    ladder.main(["--sizes", "24", "--dtypes", "float32", "--rounds", "1", "--write", str(page)])
    text = page.read_text()
    assert capsys.readouterr().out.strip() == text.removeprefix(BEGIN).removesuffix(END).strip()
    assert device.profile.title in text and "`python tools/ladder.py --sizes 24" in text
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert rows[:2] == ["kernel", "naive"] and rows[-1] == "NumPy"
    expected = [name for name in ladder.STEPS if name in rows]
    assert rows[1:-1] == expected and "tiled" in expected


def test_a_wrong_kernel_ends_it(device, monkeypatch):
    monkeypatch.setattr(bench_contestants, "_PAUSE_SECONDS", 0)
    plain = bench_contestants.Product.launches

    def idle(self):
        contestant = plain(self)
        contestant.call = lambda: None
        return contestant

    monkeypatch.setattr(bench_contestants.Product, "launches", idle)
    with pytest.raises(SystemExit, match="naive at 16, float32: left elements"):
        ladder.climb(device, 16, "float32", 1, 1)
