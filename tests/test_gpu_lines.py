"""line_dot, line_sweep and line_fill: what is chosen for vectors, few rows and few terms, and what
tests of all lack.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kinds import plain_kind, test_configs

from clmatmul.cases import make_case
from clmatmul.choose import choose
from clmatmul.config import TileConfig
from clmatmul.device_profile import DeviceProfile
from clmatmul.explanation import plain_problem
from clmatmul.plan import make_plan
from clmatmul.trial import check_case

FOLDER = Path(__file__).parent / "profiles"
GPUS = ("nvidia-h200", "amd-mi210", "intel-iris-xe")
LINES = ("line_dot", "line_sweep", "line_fill")


def first_choice(gpu, m, n, k, layout, dtype="float32", batch=()):
    profile = DeviceProfile.from_json((FOLDER / f"{gpu}.json").read_text())
    return choose(plain_problem(m, n, k, dtype, layout, batch), profile)[0].config


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize(
    "m, n, k, layout, variant",
    [
        (1, 8192, 8192, "NT", "line_dot"),
        (8192, 1, 8192, "NT", "line_dot"),
        (8, 8192, 8192, "NT", "line_dot"),
        (1, 8192, 8192, "NN", "line_sweep"),
        (4, 4096, 4096, "NN", "line_sweep"),
        (4096, 4, 4096, "TN", "line_sweep"),
        (4096, 16, 4096, "NN", "register_blocked"),
        (2048, 2048, 2048, "NN", "register_blocked"),
        (64, 64, 64, "NN", "register_blocked"),
        (3000, 3000, 1, "NN", "line_fill"),
        (3000, 3000, 4, "TN", "line_fill"),
        (3000, 3000, 32, "NN", "register_blocked"),
    ],
)
def test_choice(gpu, m, n, k, layout, variant):
    assert first_choice(gpu, m, n, k, layout).variant == variant


@pytest.mark.parametrize("gpu", GPUS)
def test_a_long_k_is_split_and_a_short_one_not(gpu):
    assert first_choice(gpu, 128, 128, 65536, "NN").values()["splits"] > 8
    assert first_choice(gpu, 2, 2, 10**6, "NT").values()["splits"] > 8
    assert first_choice(gpu, 4096, 4096, 4096, "NN").values()["splits"] == 1
    assert first_choice(gpu, 64, 64, 64, "NN", batch=(1024,)).values()["splits"] == 1


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize(
    "size",
    [
        (1, 768, 768, "NN"), (768, 1, 768, "NT"), (64, 64, 1024, "NN"), (16, 1024, 1024, "NN"),
        (1, 4096, 1024, "NN"), (128, 768, 768, "NN"), (32, 4096, 1024, "NN"),
    ],
)  # fmt: skip
def test_a_second_launch_must_repay_itself(gpu, size):
    """These took 12 to 20 µs in one launch and 20 to 27 in two, on an H200."""
    assert first_choice(gpu, *size).values().get("splits", 1) == 1


def test_few_columns_across_k_are_read_as_they_lie_if_they_are_small():
    """512×2×512 and 512×4×512 took 5.6 and 5.8 µs, and 8.2 and 8.7 by register_blocked."""
    for n in (2, 4):
        chosen = first_choice("nvidia-h200", 512, n, 512, "NN").values()
        assert (chosen["lanes"], chosen["micro_m"], chosen["micro_n"]) == (128, 4, 1)
    assert first_choice("nvidia-h200", 8448, 4, 2816, "NN").variant != "line_dot"


@pytest.mark.parametrize("size", [(512, 16, 512), (16, 3072, 768), (16, 1600, 1600)])
def test_sixteen_lines_along_k_are_tiles_of_both_operands(size):
    """These took 6.6, 11.1 and 11.6 µs, and 9.1, 12.9 and 17.2 by others."""
    chosen = first_choice("nvidia-h200", *size, "NT").values()
    assert (chosen["lanes"], chosen["micro_m"], chosen["micro_n"]) == (32, 4, 4)
    assert first_choice("nvidia-h200", 16, 8192, 8192, "NT").variant != "line_dot"


def test_few_terms_are_left_of_the_last_whole_step():
    """8448×1×2816 took 28.2 µs by 32 lanes, and 30.4 by 128, which read 768 terms one by one."""
    chosen = first_choice("nvidia-h200", 8448, 1, 2816, "NT").values()
    assert chosen["lanes"] < 128


@pytest.mark.parametrize("variant", LINES)
def test_nothing_is_proposed_to_a_cpu(variant, device):
    if not device.profile.is_cpu:
        pytest.skip("this device is no CPU")
    for layout in ("NN", "NT"):
        chosen = choose(plain_problem(1, 512, 512, "float32", layout), device.profile)
        assert variant not in [x.config.variant for x in chosen]


def test_parts_are_whole_vectors_and_cover_k():
    """Every part begins where a vector may begin, and the parts are k."""
    profile = DeviceProfile.from_json((FOLDER / "nvidia-h200.json").read_text())
    for k in (1, 3, 4, 5, 31, 1000, 4099):
        for splits in (1, 2, 8, 128):
            for name, step in (("line_dot", 4), ("line_sweep", 8)):
                config = TileConfig.of(name, vector_width=4, splits=splits)
                plan = make_plan(plain_problem(3, 5, k, "float32", "NT"), profile, config)
                values = dict(plan.launches[0].values)
                if len(plan.launches) == 1:
                    assert "per_split" not in values
                    continue
                parts = dict(plan.launches[1].values)["splits"]
                assert values["per_split"] % step == 0
                assert (parts - 1) * values["per_split"] < k <= parts * values["per_split"]


@pytest.mark.numeric
@pytest.mark.tiny
@pytest.mark.parametrize("variant", LINES)
@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
def test_aligned_operands(device, about, rng, variant, layout):
    """Vector reads, of lines that end within a vector too."""
    about("aligned", variant)
    kind = plain_kind("float32", layout)
    aligned = {x: replace(getattr(kind, x), alignment=16) for x in ("a", "b", "out")}
    kind = replace(kind, **aligned)
    for config in test_configs(variant):
        for size in ((3, 37, 70), (2, 5, 33), (17, 4, 129)):
            for data in ("ids_a", "ids_b", "exact"):
                verdict = check_case(device, config, make_case(kind, *size, data, rng))
                assert verdict.fault is None, f"{config} {size} {data}: {verdict.fault}"


@pytest.mark.numeric
@pytest.mark.parametrize("dtype", ["float64", "complex64", "int8", "bfloat16"])
@pytest.mark.parametrize("variant", LINES)
def test_aligned_dtypes(device, about, rng, variant, dtype):
    about("aligned", variant)
    if dtype == "float64" and not device.profile.fp64:
        pytest.skip("the device has no float64")
    kind = plain_kind(dtype, "NT" if variant == "line_dot" else "NN")
    aligned = {x: replace(getattr(kind, x), alignment=16) for x in ("a", "b", "out")}
    config = test_configs(variant)[0]
    verdict = check_case(
        device, config, make_case(replace(kind, **aligned), 3, 21, 67, "exact", rng)
    )
    assert verdict.fault is None, verdict.fault


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("dtype, width", [("float32", 4), ("bfloat16", 8), ("float64", 2)])
def test_sixteen_bytes_are_written_at_once(gpu, dtype, width):
    profile = DeviceProfile.from_json((FOLDER / f"{gpu}.json").read_text())
    if dtype == "float64" and not profile.fp64:
        pytest.skip("the device has no float64")
    kind = plain_kind(dtype, "NN")
    sides = {x: replace(getattr(kind, x), alignment=16) for x in ("a", "b", "out")}
    out = replace(sides["out"], dtype=dtype)
    case = make_case(replace(kind, **{**sides, "out": out}), 800, 1600, 2, "exact",
                     np.random.default_rng(0), with_result=False)  # fmt: skip
    config = choose(case.problem, profile)[0].config
    assert config.variant == "line_fill" and config.values()["vector_width"] == width


@pytest.mark.numeric
@pytest.mark.parametrize("out", ["N", "T"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "float64"])
def test_lines_written_at_once(device, about, rng, dtype, out):
    """Whole vectors and what is left of a line, by rows and by columns, rounded where it is."""
    about("aligned", "line_fill")
    if dtype == "float64" and not device.profile.fp64:
        pytest.skip("the device has no float64")
    for reproducible in (False, True) if dtype == "float16" else (False,):
        kind = plain_kind(dtype, "TN" if out == "T" else "NN", out, reproducible=reproducible)
        aligned = {x: replace(getattr(kind, x), alignment=16) for x in ("a", "b", "out")}
        aligned["out"] = replace(aligned["out"], dtype=dtype)
        for config in test_configs("line_fill")[:3]:
            for data in ("ids_a", "ids_b", "exact", "special" if "float" in dtype else "exact"):
                case = make_case(replace(kind, **aligned), 19, 37, 3, data, rng)
                verdict = check_case(device, config, case)
                assert verdict.fault is None, f"{config} {data}: {verdict.fault}"
