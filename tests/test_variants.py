"""Variants: reasons of refusal, limits, completeness of every header."""

from dataclasses import replace
from pathlib import Path

import pytest
from extra_variants import SPLIT_K, kernel_folder, one_item

from clmatmul.config import TileConfig
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import ConfigError, TemplateError
from clmatmul.explanation import plain_problem
from clmatmul.variants import Constraint, all_variants, load_variant, variant_names

__all__ = ["kernel_folder"]
PROFILES = {
    file.stem: DeviceProfile.from_json(file.read_text())
    for file in sorted((Path(__file__).parent / "profiles").glob("*.json"))
}
TINY = PROFILES["tiny-embedded"]
PROBLEM = plain_problem(100, 90, 80)


@pytest.mark.parametrize("name", variant_names())
def test_header_is_complete(name):
    variant = load_variant(name)
    assert variant.summary.endswith(".") and variant.sources
    assert set(variant.default.values()) == set(variant.all_parameters())
    for parameter, value in variant.default.parameters:
        assert value in variant.all_parameters()[parameter]
    for config in variant.header.get("TEST_CONFIGS", ()):
        for parameter, value in config.items():
            assert value in variant.all_parameters()[parameter], (parameter, value)
    assert not set(variant.parameters) & set(variant.runtime_parameters)


@pytest.mark.parametrize("name", variant_names())
def test_derived_values_share_no_name_with_parameters(name):
    variant = load_variant(name)
    for profile in PROFILES.values():
        if not variant.unmet(PROBLEM.kind, profile):
            derived = vars(variant.derived(variant.default, PROBLEM.kind, profile))
            assert not set(derived) & set(variant.all_parameters())


@pytest.mark.parametrize("name", variant_names())
def test_defaults_are_valid_where_the_variant_is_offered(name):
    variant = load_variant(name)
    for profile in PROFILES.values():
        if profile is not TINY and not variant.unmet(PROBLEM.kind, profile):
            reasons = variant.reject(variant.default, PROBLEM, profile)
            # not of every size on a device that ends long loops
            assert all(x.startswith("loop iterations") for x in reasons), profile.title


@pytest.mark.parametrize("name", variant_names())
def test_nothing_over_the_limits_is_valid(name):
    """Whatever a variant's own constraints say, its geometry fits the device."""
    variant = load_variant(name)
    for profile in PROFILES.values():
        for config in (variant.default, *variant.header.get("TEST_CONFIGS", ())):
            config = variant.complete(TileConfig.of(name, **(
                config.values() if isinstance(config, TileConfig) else config)))  # fmt: skip
            if variant.reject(config, PROBLEM, profile):
                continue
            derived = variant.derived(config, PROBLEM.kind, profile)
            assert getattr(derived, "local_bytes", 0) <= profile.usable_local_bytes
            for launch in variant.launches(config, PROBLEM, profile):
                items = 1
                for d, size in enumerate(launch["local_size"]):
                    assert size <= profile.max_work_item_sizes[d]
                    assert launch["global_size"][d] % size == 0
                    items *= size
                assert items <= profile.max_work_group_size


def test_naive_serves_every_device():
    for profile in PROFILES.values():
        config = TileConfig.of("naive", work_group_size=1)
        assert load_variant("naive").reject(config, PROBLEM, profile) == ()


def test_every_violated_constraint_is_listed_with_limit_and_value():
    config = TileConfig.of("tiled", tile_m=32, tile_n=64, tile_k=64)
    reasons = load_variant("tiled").reject(config, PROBLEM, TINY)
    assert reasons == (
        f"work_items <= profile.max_work_group_size: 2048 > 1 (tiled, {TINY.title})",
        f"tile_n <= profile.max_work_item_sizes[0]: 64 > 1 (tiled, {TINY.title})",
        f"tile_m <= profile.max_work_item_sizes[1]: 32 > 1 (tiled, {TINY.title})",
        f"local_bytes <= profile.usable_local_bytes: 24576 > 16384 (tiled, {TINY.title})",
    )


def test_a_probe_may_raise_the_limit_of_local_memory():
    config = TileConfig.of("tiled", tile_m=1, tile_n=1, tile_k=64)
    wide = replace(TINY, local_mem_bytes=100)
    assert len(load_variant("tiled").reject(config, PROBLEM, wide)) == 1
    probed = wide.with_probes(static_local_bytes=4096)
    assert load_variant("tiled").reject(config, PROBLEM, probed) == ()


@pytest.mark.parametrize("value", [3, 16.0, True, "16", -1, 10**30])
def test_values_that_are_not_listed(value):
    config = load_variant("tiled").complete(TileConfig.of("tiled", tile_m=value))
    reasons = load_variant("tiled").reject(config, PROBLEM, PROFILES["amd-mi210"])
    assert reasons == (f"tile_m={value} is not one of (1, 2, 4, 8, 16, 32)",)


def test_unknown_parameters_are_named():
    with pytest.raises(ConfigError) as caught:
        load_variant("tiled").complete(TileConfig.of("tiled", tile_q=1, width=2))
    assert [x.split(";")[0] for x in caught.value.reasons] == [
        "tiled has no parameter tile_q", "tiled has no parameter width"
    ]  # fmt: skip


def test_a_config_is_completed_with_defaults():
    config = load_variant("tiled").complete(TileConfig.of("tiled", tile_m=16))
    assert config.values() == {"tile_m": 16, "tile_n": 8, "tile_k": 8}


@pytest.mark.parametrize("text, message", [
    ("unit <= 0", "unit <= 0: 1 > 0 (here)"), ("unit == 2", "unit == 2: 1 != 2 (here)"),
    ("unit > 1 and unit < 3", "unit > 1 and unit < 3 (here)"), ("not unit", "not unit (here)"),
    ("0 < unit <= 0", "0 < unit <= 0 (here)"),
    ("min(unit, 5) > 3", "min(unit, 5) > 3: 1 <= 3 (here)"),
])  # fmt: skip
def test_constraint_text(text, message):
    assert Constraint(text, "f").violation({"unit": 1}, "here") == message


def test_a_constraint_that_holds():
    assert Constraint("unit <= 1", "f").violation({"unit": 1}, "") is None


def test_constraints_have_no_way_out():
    with pytest.raises(NameError):
        Constraint("open('x')", "f").violation({}, "")


def test_requirements(kernel_folder):
    text = one_item("gpu_only", header="REQUIRES = (\"profile.kind == 'gpu'\", 'profile.fp64')")
    kernel_folder("gpu_only", text)
    variant = load_variant("gpu_only")
    assert variant.unmet(PROBLEM.kind, PROFILES["amd-mi210"]) == ()
    assert variant.unmet(PROBLEM.kind, PROFILES["rusticl-llvmpipe"]) == (
        f"profile.kind == 'gpu': cpu != gpu (gpu_only, {PROFILES['rusticl-llvmpipe'].title})",
        f"profile.fp64 (gpu_only, {PROFILES['rusticl-llvmpipe'].title})",
    )
    assert variant in all_variants()


def test_instruments():
    variant = load_variant("naive")
    profile = PROFILES["amd-mi210"]
    assert variant.instruments("none", variant.default, PROBLEM, profile) == {}
    with pytest.raises(ConfigError, match="instrument='trace': naive has none, count"):
        variant.instruments("trace", variant.default, PROBLEM, profile)


def test_only_alignments_that_a_variant_tells_apart_are_shown(kernel_folder):
    header = "ALIGNMENT_CLASSES = (4, 16)\n\ndef late():\n    return 0"
    kernel_folder("aligned", one_item("aligned", derived="seen=kind.a.alignment", header=header))
    variant = load_variant("aligned")
    for alignment, shown in ((64, 16), (16, 16), (8, 4), (2, 1)):
        kind = replace(PROBLEM.kind, a=replace(PROBLEM.kind.a, alignment=alignment))
        assert variant.derived(variant.default, kind, TINY).seen == shown


def test_workspace_and_run_time_parameters(kernel_folder):
    kernel_folder("split_k", SPLIT_K)
    variant = load_variant("split_k")
    assert set(variant.parameters) == {"lanes"} and set(variant.runtime_parameters) == {"pieces"}
    config = variant.complete(TileConfig.of("split_k", pieces=5))
    assert variant.workspace(config, PROBLEM, TINY)["partial"]["bytes"] == 100 * 90 * 5 * 4
    with pytest.raises(TemplateError):
        load_variant("merge_k")
