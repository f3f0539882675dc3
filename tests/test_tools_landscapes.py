"""tools/landscapes: recorded landscapes are whole, and the default strategy is the better one."""

import math
import statistics
import sys
from pathlib import Path

import pytest

from clmatmul.space import parse_within
from clmatmul.tune.landscape import Landscape, simulate
from clmatmul.variants import load_variant, variant_names

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import landscapes as tools  # noqa: E402

FILES = sorted((ROOT / "tests" / "landscapes").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda x: x.stem)
def test_a_recorded_landscape_can_be_replayed(file):
    landscape = Landscape.from_json(file.read_text())
    passed = [x for x in landscape.trials.values() if x.status == "ok"]
    assert len(passed) > 50 and landscape.best_ns > 0
    assert len(landscape.offered) > 1 or "h200" in file.stem


def test_the_default_strategy_needs_far_fewer_trials_than_random_search():
    ratios = []
    for file in FILES[::3]:
        landscape = Landscape.from_json(file.read_text())
        local, random = (
            statistics.mean(simulate(landscape, x, seed) or len(landscape) for seed in range(8))
            for x in ("local", "random")
        )
        ratios.append(math.log(local / random))
    assert math.exp(statistics.mean(ratios)) < 0.8


PARTS = {**tools.SPACES, **tools.GPU_SPACES}


@pytest.mark.parametrize("name", PARTS)
def test_the_parts_of_the_space_are_there(name):
    for text in PARTS[name]:
        ((variant, wanted),) = parse_within(text).items()
        assert variant in variant_names()
        allowed = load_variant(variant).all_parameters()
        for parameter, values in wanted.items():
            assert set(values) <= set(allowed[parameter]), (variant, parameter)


def test_a_gpus_landscapes_are_compiled_first_and_then_run(device, tmp_path, monkeypatch):
    monkeypatch.setitem(tools.SHAPES, "h200", (((40, 24, 56), "float32", (2,)),))
    part = ("tiled(tile_m=8|16, tile_n=8, tile_k=8)", "naive(work_group_size=1|16)")
    monkeypatch.setitem(tools.GPU_SPACES, "batched", part)
    tools.record_all("h200", tmp_path, jobs=2, compile_seconds=60)
    (file,) = tmp_path.glob("*.json")
    landscape = Landscape.from_json(file.read_text())
    assert file.name == "h200-2x40x24x56-float32.json"
    assert set(landscape.offered) == {"tiled", "naive"} and len(landscape) == 4
    assert all(x.status == "ok" and x.cost > 0 for x in landscape.trials.values())
