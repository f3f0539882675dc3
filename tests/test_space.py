"""SearchSpace: the valid configurations, and nothing else."""

import itertools
import random
from pathlib import Path

import pytest

from clmatmul.config import TileConfig
from clmatmul.device_profile import DeviceProfile
from clmatmul.explanation import plain_problem
from clmatmul.space import SearchSpace
from clmatmul.variants import load_variant

FOLDER = Path(__file__).parent / "profiles"
TILED = load_variant("tiled")


def space_for(name, *variants):
    profile = DeviceProfile.from_json((FOLDER / f"{name}.json").read_text())
    return SearchSpace(variants or (TILED,), plain_problem(64, 64, 64), profile)


def test_the_valid_ones_in_order():
    space = space_for("amd-mi210")
    values = TILED.all_parameters()
    everything = [
        TileConfig.of("tiled", **dict(zip(values, x, strict=True)))
        for x in itertools.product(*values.values())
    ]
    valid = [x for x in everything if not TILED.reject(x, space.problem, space.profile)]
    assert list(space) == valid and 0 < len(space) < len(everything)
    assert valid[3] in space and TileConfig.of("tiled", tile_m=3) not in space
    for config in space:
        assert config.values()["tile_m"] * config.values()["tile_n"] <= 256


def test_refusals_are_counted_by_reason():
    space = space_for("amd-mi210")
    refused = 6 * 7 * 7 - len(space)
    assert refused == space.rejections["tiled", "work_items <= profile.max_work_group_size"]


def test_a_variant_that_is_not_offered_has_no_configuration():
    space = space_for("tiny-embedded")
    assert {(c.values()["tile_m"], c.values()["tile_n"]) for c in space} == {(1, 1)}


def test_two_variants():
    space = space_for("amd-mi210", TILED, load_variant("naive"))
    assert {c.variant for c in space} == {"tiled", "naive"}


def test_samples_differ_and_repeat():
    space = space_for("intel-iris-xe")
    first = space.sample(random.Random(3), 20)
    assert len(set(first)) == 20 and all(x in space for x in first)
    assert space.sample(random.Random(3), 20) == first != space.sample(random.Random(4), 20)
    assert sorted(map(str, space.sample(random.Random(0), 10**6))) == sorted(map(str, space))


def test_neighbours_differ_in_one_step():
    space = space_for("amd-mi210")
    config = TileConfig.of("tiled", tile_m=8, tile_n=8, tile_k=8)
    steps = {"tile_m": (4, 16), "tile_n": (4, 16), "tile_k": (4, 16)}
    assert set(space.neighbours(config)) == {
        config.with_values(**{name: value}) for name, two in steps.items() for value in two
    }
    corner = TileConfig.of("tiled", tile_m=1, tile_n=1, tile_k=1)
    assert len(space.neighbours(corner)) == 3
    full = TileConfig.of("tiled", tile_m=16, tile_n=16, tile_k=8)
    assert all(x in space for x in space.neighbours(full))
    assert full.with_values(tile_m=32) not in space.neighbours(full)


@pytest.mark.parametrize("name", [f.stem for f in sorted(FOLDER.glob("*.json"))])
def test_every_device_has_a_space(name):
    assert len(space_for(name)) >= 7
