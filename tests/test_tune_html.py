"""The HTML report: its charts' numbers, its elements in a real browser, and a screenshot."""

import dataclasses
import random
import re
import shutil
import subprocess

import pytest
from made_up_devices import FAST, MS, PROBLEM, Device, Trial, search, towards

from clmatmul.tune import charts
from clmatmul.tune.html import importance, page
from clmatmul.tune.landscape import Replayed

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture
def found(tmp_path, monkeypatch):
    """The Report of a made-up search with a crash in it."""
    device = Device(monkeypatch, towards(FAST))
    plain = device.landscape
    crash = FAST.with_values(tile_k=1)
    device.landscape = lambda config: (
        Trial(config, "crash", note="SIGSEGV <in> state build")
        if config == crash
        else plain(config)
    )
    return search(tmp_path, strategy="random", budget="120trials", seed=1, peaks=True)


def test_the_page_has_every_part_and_needs_nothing_else(found):
    text = page(found)
    for name in ("curve-0", "heat-0", "importance-0", "roofline-0", "device"):
        assert f'id="{name}"' in text, name
    assert str(PROBLEM) in text and found.problems[0].verdict in text
    assert "prefers-color-scheme:dark" in text and 'name="viewport"' in text
    assert not re.search(r"(src|href)=|<script|@import|url\(", text)
    assert "<in>" not in text
    crashed = [x for x in found.problems[0].failures if x.status == "crash"]
    assert ("SIGSEGV &lt;in&gt;" in text) == bool(crashed)


def test_a_search_that_found_nothing_has_a_page(tmp_path, monkeypatch):
    Device(monkeypatch, lambda config: Trial(config, "wrong_result", note="NaN"))
    text = page(search(tmp_path, budget="5trials"))
    assert "no configuration passed" in text and "wrong_result" in text
    assert 'id="heat-0"' not in text


def test_the_roofline_is_what_was_measured_and_says_how_much_of_it_is_reached(found):
    (one,) = found.problems
    intensity = PROBLEM.flops / PROBLEM.minimum_bytes
    assert one.peaks.roof(intensity) == 5.0 < intensity and one.peaks.roof(2.0) == 2.0
    best = PROBLEM.flops / min(x.least_ns for x in one.trials if x.status == "ok")
    text = page(found)
    assert f"allows 5 GFLOP/s; the best reaches {best / 5:.0%} of it" in text
    assert "5 GFLOP/s in ordinary float32 instructions" in text and "1 GB/s in a copy" in text
    assert one.to_dict()["peaks"] == {"compute": "float32", "gflops": 5.0, "gbs": 1.0}
    fast = dataclasses.replace(one, peaks=dataclasses.replace(one.peaks, gflops=best / 2))
    assert "200% of it. More than the line" in page(dataclasses.replace(found, problems=(fast,)))
    without = dataclasses.replace(one, peaks=None)
    text = page(dataclasses.replace(found, problems=(without,)))
    assert "were not measured" in text and 'id="roofline-0"' not in text


def test_the_roof_bends_where_memory_no_longer_limits():
    svg = charts.roofline("r", 100.0, [("best", 40.0), ("default", 39.0)], 80.0, 10.0)
    (left, _), (ridge, top), (right, same) = (
        tuple(map(float, x.split(","))) for x in re.search(r'points="([^"]*)"', svg)[1].split()
    )
    assert left < ridge < right and top == same
    marks = [float(x) for x in re.findall(r'cy="([\d.]+)"', svg)]
    assert top < min(marks)
    labels = [float(y) for y in re.findall(r'y="([\d.]+)"[^>]*>(?:best|default) ', svg)]
    assert labels[1] - labels[0] >= 13.9  # though the marks all but coincide


def test_the_importance_of_a_parameter_is_the_variance_that_it_explains():
    rng = random.Random(1)
    records = [
        Replayed(FAST.with_values(tile_m=m, tile_n=n, tile_k=8), "ok", MS * 4.0**m + rng.random())
        for m in (1, 2, 4) for n in (1, 2, 4)
    ]  # fmt: skip
    (first, part), (second, rest) = importance(records)
    assert (first, second) == ("tile_m", "tile_n")
    assert part > 0.99 and rest < 0.01
    assert importance(records[:1]) == []


def test_a_curve_climbs_and_a_cell_is_as_dark_as_it_is_fast():
    svg = charts.best_so_far("c", [(1.0, 10.0), (2.0, 20.0)], 4.0, 15.0)
    points = [tuple(map(float, x.split(","))) for x in
              re.search(r'points="([^"]*)"', svg).group(1).split()]  # fmt: skip
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert "NumPy" in svg
    cells = {(1, 1): 5.0, (1, 2): 10.0}
    svg = charts.heat_map("h", [1], [1, 2, 3], cells, "tile_m", "tile_n")
    assert re.findall(r"fill-opacity:([\d.]+)", svg) == ["0.50", "1.00", "0.00"]


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
@pytest.mark.parametrize("width", [1000, 390])
def test_a_browser_shows_the_charts(found, tmp_path, width):
    file, picture = tmp_path / "report.html", tmp_path / f"report-{width}.png"
    file.write_text(page(found), encoding="utf-8")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               f"--user-data-dir={tmp_path}/own", f"--window-size={width},2600"]  # fmt: skip
    shown = subprocess.run([BROWSER, *options, "--dump-dom", file.as_uri()], capture_output=True,
                           text=True, timeout=90)  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    for name, element in (("curve-0", "polyline"), ("heat-0", "rect"), ("importance-0", "rect"),
                          ("roofline-0", "polyline")):  # fmt: skip
        svg = re.search(f'<svg id="{name}".*?</svg>', shown.stdout, re.DOTALL).group()
        assert f"<{element}" in svg, name
    subprocess.run([BROWSER, *options, f"--screenshot={picture}", file.as_uri()], check=True,
                   capture_output=True, timeout=90)  # fmt: skip
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10_000
