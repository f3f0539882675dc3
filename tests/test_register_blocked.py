"""register_blocked beyond the contract: wide reads and writes, tile order, limits, proposals."""

import random
import re
from dataclasses import replace
from functools import cache
from itertools import islice
from types import SimpleNamespace

import pytest
from conftest import skip_without_fp64
from kinds import ORDERS, aligned, plain_kind, test_configs

from clmatmul import templates
from clmatmul.cases import make_case
from clmatmul.config import TileConfig
from clmatmul.device_profile import DeviceProfile
from clmatmul.explanation import plain_problem
from clmatmul.plan import make_plan, render
from clmatmul.space import SearchSpace
from clmatmul.trial import check_case, check_sizes
from clmatmul.variants import load_variant

pytestmark = pytest.mark.usefixtures("no_binaries")

VARIANT = load_variant("register_blocked")
CONFIGS = test_configs("register_blocked")


def aligned_kind(*arguments, bytes=16, **changes):
    return aligned(plain_kind(*arguments, **changes), bytes)


def sizes_of(config):
    """Borders, and sizes that are whole units of 4 but not whole tiles."""
    return (*check_sizes(config), (20, 36, 24))


def gpu_profile(local_kib=48, group=1024, **changes):
    """A GPU that nobody has, with everything that the header asks for."""
    return DeviceProfile(
        platform_name="Any", platform_version="OpenCL 3.0", vendor="Any", name="GPU",
        driver_version="1", device_version="OpenCL 3.0", c_version="OpenCL C 1.2", kind="gpu",
        family="other", compute_units=32, max_clock_mhz=1000, max_work_group_size=group,
        max_work_item_sizes=(group, group, group), local_mem_bytes=local_kib * 1024,
        local_mem_dedicated=True, global_mem_bytes=2**32, max_alloc_bytes=2**30, cache_bytes=2**20,
        max_parameter_bytes=1024, address_bits=64, base_alignment_bytes=128, unified_memory=False,
        fp64=True, fp16=False, denormals=True, hardware_fma=True, sub_groups=False, **changes,
    )  # fmt: skip


def check(device, config, kind, size, data, rng, **keywords):
    verdict = check_case(device, config, make_case(kind, *size, data, rng, **keywords))
    assert verdict.fault is None, f"{config} {kind.key} {size} {data}: {verdict.fault}"


@pytest.mark.numeric
@pytest.mark.tiny
@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_wide(device, about, rng, config, layout):
    """Aligned operands, of which several elements are moved at once."""
    about("wide", "register_blocked")
    kind = aligned_kind("float32", layout, "N" if layout == "NN" else "T")
    for size in sizes_of(config):
        for data in ("ids_a", "ids_b", "exact"):
            check(device, config, kind, size, data, rng)


@pytest.mark.numeric
@pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128", "int8", "uint16", "int64",
                                   "bool", "float16", "bfloat16"])  # fmt: skip
def test_wide_dtypes(device, about, rng, dtype):
    about("wide", "register_blocked")
    skip_without_fp64(device, dtype)
    kind = aligned_kind(dtype, "TN", bytes=64)
    for size in sizes_of(CONFIGS[0]):
        check(device, CONFIGS[0], kind, size, "exact", rng)


@pytest.mark.numeric
def test_wide_with_everything(device, about, rng):
    """Batches, a full epilogue, 64-bit indices, conversion of the output."""
    about("wide", "register_blocked")
    kind = aligned_kind(
        "float32", batch_rank=2, index="long", alpha="general", beta="general", c="float32",
        bias="float32", residual="float32", row_scale="float32",
    )  # fmt: skip
    kind = replace(kind, out=replace(kind.out, dtype="bfloat16"))
    check(device, CONFIGS[1], kind, (17, 9, 11), "exact", rng)
    kind = replace(kind, out=replace(kind.out, dtype="float32"))
    check(device, CONFIGS[1], kind, (17, 12, 11), "exact", rng)


@pytest.mark.numeric
@pytest.mark.parametrize("bad", ["special", "exact"])
def test_padding_of_rows_is_never_used(device, about, rng, bad):
    """Rows with gaps: a wide read must not bring the gap's NaN into the product."""
    about("wide", "register_blocked")
    for n in (33, 34, 35, 36):
        kind = aligned_kind("float32", bytes=16)
        check(device, CONFIGS[1], kind, (9, n, n), bad, rng)


@pytest.mark.numeric
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 17])
def test_tile_order(device, about, rng, rows):
    """Every tile is computed once, for any number of rows of tiles."""
    about("tile order", "register_blocked")
    for group_rows in VARIANT.runtime_parameters["group_rows"]:
        config = CONFIGS[0].with_values(group_rows=group_rows)
        m, n = 8 * rows - 3, 16 * 3 - 5
        check(device, config, plain_kind("float32"), (m, n, 5), "ids_a", rng)


def test_run_time_parameters_need_no_new_program(device):
    problem = plain_problem(64, 64, 64)
    plans = [
        make_plan(problem, device.profile, CONFIGS[0].with_values(group_rows=x)) for x in (1, 8)
    ]
    assert plans[0].launches[0].source_key == plans[1].launches[0].source_key
    assert plans[0].launches[0].values != plans[1].launches[0].values


@cache
def sampled_configs(count):
    space = SearchSpace([VARIANT], plain_problem(4096, 4096, 4096), gpu_profile())
    return tuple(islice(space.draw(random.Random(7)), count))


@pytest.mark.parametrize("layout", ["NN", "TT"])
@pytest.mark.parametrize("alignment", [1, 16])
def test_every_element_is_loaded_once(layout, alignment):
    """The units that work-items move cover each tile exactly, whatever the shape."""
    kind = aligned_kind("float32", layout, bytes=alignment)
    for config in sampled_configs(25):
        d = VARIANT.derived(config, kind, gpu_profile())
        for x, tile in (("a", config.values()["tile_m"]), ("b", config.values()["tile_n"])):
            units, unit, piece, along_k, passes = (
                getattr(d, f"{x}_{name}")
                for name in ("units", "unit", "piece", "along_k", "passes")
            )
            seen = []
            for item in range(d.work_items):
                if along_k:
                    outer = item // piece % tile
                    term = (item % piece + item // (piece * tile) * piece) * unit
                else:
                    outer, term = item % units * unit, item // units
                for more_outer, more_term in passes:
                    for q in range(unit):
                        step = (0, q) if along_k else (q, 0)
                        seen.append((outer + more_outer + step[0], term + more_term + step[1]))
            whole = [(o, t) for o in range(tile) for t in range(config.values()["tile_k"])]
            assert sorted(seen) == whole, config


def test_every_element_is_stored_once():
    for order in ORDERS.values():
        kind = aligned_kind("float32")
        kind = replace(kind, out=replace(kind.out, order=order))
        for config in sampled_configs(25):
            v = SimpleNamespace(**config.values())
            d = VARIANT.derived(config, kind, gpu_profile())
            rows, cols = set(), set()
            for item in range(d.slice_items):
                lane, block = item % d.lane_items, item // d.lane_items
                row = block // d.lane_blocks_n * d.lane_rows + lane // d.lane_cols
                col = block % d.lane_blocks_n * d.lane_cols + lane % d.lane_cols
                rows |= {(col, row * d.width_m + x) for x in d.row_steps}
                cols |= {(row, col * d.width_n + x) for x in d.col_steps}
            assert len(rows) == v.tile_m * d.items_n, config
            assert len(cols) == v.tile_n * d.items_m, config
            assert max(r for _, r in rows) == v.tile_m - 1
            assert max(c for _, c in cols) == v.tile_n - 1
            held = [x for unit in d.out_units for x in unit]
            assert sorted(held) == [(i, j) for i in range(v.micro_m) for j in range(v.micro_n)]


@pytest.mark.parametrize(
    "changes, reason",
    [
        (dict(micro_m=16, tile_m=8), "micro_m <= tile_m: 16 > 8"),
        (dict(unroll=16, tile_k=8), "unroll <= terms: 16 > 8"),
        (dict(tile_m=128, tile_n=128, micro_m=2, micro_n=2), "profile.max_work_group_size"),
        (dict(tile_m=128, tile_n=128, micro_m=16, micro_n=8, tile_k=32), "local_bytes <= "),
        (dict(tile_k=4, tile_m=64, tile_n=64, micro_m=2, micro_n=2, unroll=4), "tile_m * tile_k"),
    ],
)
def test_limits(changes, reason):
    config = VARIANT.default.with_values(**changes)
    reasons = VARIANT.reject(config, plain_problem(512, 512, 512), gpu_profile())
    assert any(reason in x for x in reasons), reasons


def test_registers_are_bounded():
    config = VARIANT.default.with_values(
        tile_m=64, tile_n=64, micro_m=16, micro_n=8, tile_k=8, prefetch=1
    )
    assert not VARIANT.reject(config, plain_problem(512, 512, 512), gpu_profile())
    reasons = VARIANT.reject(config, plain_problem(512, 512, 512, "float64"), gpu_profile())
    assert any("registers <= 256" in x for x in reasons)


def test_default_fits_the_smallest_device():
    profile = gpu_profile(local_kib=16, group=64)
    for dtype in ("float32", "float64", "complex128", "int8"):
        assert not VARIANT.reject(VARIANT.default, plain_problem(99, 99, 99, dtype), profile)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int8", "bool"])
@pytest.mark.parametrize("local_kib", [32, 48, 64])
@pytest.mark.parametrize("group", [64, 128, 256, 1024])
def test_proposals_fit_the_device(dtype, local_kib, group):
    """Some proposal is valid for each family of limits, and better than one item an element."""
    profile = gpu_profile(local_kib, group)
    problem = plain_problem(2048, 2048, 2048, dtype)
    ranked = sorted(VARIANT.header["propose"](problem, profile), key=lambda x: -x[0])
    configs = [(rank, VARIANT.complete(TileConfig.of("register_blocked", **values)))
               for rank, values, _ in ranked]  # fmt: skip
    valid = [(rank, c) for rank, c in configs if not VARIANT.reject(c, problem, profile)]
    assert valid and valid[0][0] > 4, configs


def test_many_registers_only_where_they_are():
    """Micro-tiles of 8 x 8 spilled with every compiler tried for devices without 48 KiB."""
    problem = plain_problem(4096, 4096, 4096)
    for local_kib, most in ((32, 32), (48, 128), (64, 32)):
        proposals = VARIANT.header["propose"](problem, gpu_profile(local_kib))
        sizes = [v["micro_m"] * v["micro_n"] for _, v, _ in proposals]
        assert max(sizes) == most


def test_small_and_skinny_problems_get_small_tiles_or_others():
    def best(m, n, k):
        problem = plain_problem(m, n, k)
        return max(VARIANT.header["propose"](problem, gpu_profile()), key=lambda x: x[0])

    assert best(4096, 4096, 4096)[1]["micro_m"] >= 8
    few = best(128, 128, 4096)[1]
    assert few["tile_n"] < 64 or few["splits"] > 1
    assert best(128, 128, 65536)[1]["splits"] >= 16
    assert best(4096, 4096, 4096)[1]["splits"] == 1


@pytest.mark.parametrize("alignment, wide", [(1, False), (4, False), (16, True), (64, True)])
def test_alignment_decides_on_vectors(device, alignment, wide):
    """Without an alignment class, user memory is never read through a vector type."""
    problem = plain_problem(64, 64, 64)
    a, b, out = (replace(x, alignment=alignment) for x in (problem.a, problem.b, problem.out))
    problem = replace(problem, a=a, b=b, out=out)
    (source,) = render(make_plan(problem, device.profile, CONFIGS[0]))
    assert ("ext_vector_type" in source) == wide
    # vector builtins that some runtimes get wrong
    assert not re.search(r"\b(vload|vstore)\d|\b(fma|mad|min|max)\(", source)


def test_names_no_vendor():
    words = re.compile(r"nvidia|cuda|\bamd\b|radeon|intel|warp|wavefront|pocl|cutlass", re.I)
    texts = ["register_blocked", *(f"parts/{x}.mako" for x in ("stage", "wide", "micro_tile"))]
    for name in texts:
        assert not words.search(templates.text(name)), name
