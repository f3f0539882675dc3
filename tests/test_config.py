"""TileConfig: text, JSON, hashing."""

import json

import pytest

from clmatmul.config import TileConfig
from clmatmul.errors import ArgumentError

CONFIG = TileConfig.of("tiled", tile_n=8, tile_m=16)


def test_text_and_back():
    assert str(CONFIG) == "tiled(tile_m=16, tile_n=8)"
    assert TileConfig.parse(str(CONFIG)) == CONFIG
    assert TileConfig.parse(" tiled ( tile_n = 8 ,tile_m=16, ) ") == CONFIG
    assert TileConfig.parse("naive") == TileConfig.parse("naive()") == TileConfig("naive")
    assert TileConfig.parse(CONFIG) is CONFIG


def test_values_in_text():
    parsed = TileConfig.parse("x(a=-1, b=True, c=false, d=word)")
    assert parsed.values() == {"a": -1, "b": True, "c": False, "d": "word"}


def test_json_and_back():
    assert TileConfig.parse(json.loads(CONFIG.to_json())) == CONFIG
    assert TileConfig.parse({"variant": "tiled", "tile_m": 16, "tile_n": 8}) == CONFIG


def test_hash_does_not_depend_on_order():
    other = TileConfig.of("tiled", tile_m=16, tile_n=8)
    assert other == CONFIG and hash(other) == hash(CONFIG)
    assert CONFIG.with_values(tile_m=4) == TileConfig.of("tiled", tile_m=4, tile_n=8)
    assert CONFIG.values()["tile_m"] == 16


def test_a_parameter_may_have_any_name():
    assert TileConfig.parse("x(variant=3)").values() == {"variant": 3}


@pytest.mark.parametrize("text", [
    "", "tiled(", "tiled)", "tiled(tile_m)", "tiled(tile_m=8) x", "a b", 3.5, [],
    "tiled(tile_m=8, tile_m=4)", {"tile_m": 4}, {"variant": 3}, {"variant": "x", "tile_m": 1.5},
    {"variant": "x", "parameters": [1]}, {"variant": "x", "tile_m": None},
])  # fmt: skip
def test_what_is_no_configuration(text):
    with pytest.raises(ArgumentError, match="config="):
        TileConfig.parse(text)
