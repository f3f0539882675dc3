"""Plans: launches, arguments, workspace, and refusal before any launch."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from extra_variants import SPLIT_K, kernel_folder, one_item

from clmatmul.config import TileConfig
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import ConfigError, TemplateError
from clmatmul.explanation import plain_problem
from clmatmul.plan import build_options, make_plan
from clmatmul.problem import Operand
from clmatmul.variants import load_variant

__all__ = ["kernel_folder"]
FOLDER = Path(__file__).parent / "profiles"
AMD = DeviceProfile.from_json((FOLDER / "amd-mi210.json").read_text())
TINY = DeviceProfile.from_json((FOLDER / "tiny-embedded.json").read_text())
TILED = TileConfig.of("tiled", tile_m=8, tile_n=16, tile_k=4)
C = Operand("float32", 90, 1)


def test_geometry():
    (launch,) = make_plan(plain_problem(100, 90, 80, batch=(3,)), AMD, TILED).launches
    assert launch.local_size == (16, 8)
    assert launch.global_size == (3 * 13 * 6 * 16, 8)
    assert dict(launch.values)["tiles_m"] == 13 and dict(launch.values)["tiles_n"] == 6


def test_arguments_are_what_the_layout_needs():
    def names(problem):
        return [x.name for x in make_plan(problem, AMD, TILED).launches[0].arguments]

    plain = names(plain_problem(100, 90, 80))
    assert plain == [
        "a", "a_offset", "a_row_stride", "b", "b_offset", "b_row_stride",
        "out", "out_offset", "out_row_stride", "m", "n", "k", "batch_count", "tiles_m", "tiles_n",
    ]  # fmt: skip
    assert "a_col_stride" in names(plain_problem(100, 90, 80, layout="TN"))
    assert "a_row_stride" not in names(plain_problem(100, 90, 80, layout="TN"))
    assert "b_batch_stride_0" in names(plain_problem(100, 90, 80, batch=(2,)))


def test_what_is_zero_is_no_argument():
    """With beta = 0 C cannot be read, with alpha = 0 A and B cannot."""
    problem = plain_problem(100, 90, 80)
    with_c = replace(problem, c=C, beta="general", alpha="general")
    names = [x.name for x in make_plan(with_c, AMD, TILED).launches[0].arguments]
    assert {"c", "alpha", "beta", "a", "b"} <= set(names)
    names = [
        x.name for x in make_plan(replace(with_c, alpha="zero"), AMD, TILED).launches[0].arguments
    ]
    assert {"c", "beta"} <= set(names) and not {"a", "b", "alpha"} & set(names)
    names = [x.name for x in make_plan(problem, AMD, TILED).launches[0].arguments]
    assert not {"c", "alpha", "beta"} & set(names)


def test_equal_kinds_share_a_source():
    def key(*sizes, **keywords):
        return make_plan(plain_problem(*sizes, **keywords), AMD, TILED).launches[0].source_key

    assert key(100, 90, 80) == key(64, 64, 64)
    assert key(100, 90, 80) != key(100, 90, 80, layout="TN")
    other = TILED.with_values(tile_m=4)
    assert make_plan(plain_problem(64, 64, 64), AMD, other).launches[0].source_key != key(
        64, 64, 64
    )


def test_alignment_classes_do_not_share_a_source(kernel_folder):
    """A text with vector reads must never serve memory of a lower alignment."""
    kernel_folder("aligned", one_item("aligned", header="ALIGNMENT_CLASSES = (4, 16)"))
    config = load_variant("aligned").default

    def key(alignment):
        problem = plain_problem(64, 64, 64)
        problem = replace(problem, a=replace(problem.a, alignment=alignment))
        return make_plan(problem, AMD, config).launches[0].source_key

    assert key(64) == key(16) != key(8) == key(4)


def test_a_plan_is_a_value():
    problem = plain_problem(100, 90, 80)
    assert make_plan(problem, AMD, TILED) == make_plan(problem, AMD, TILED)
    hash(make_plan(problem, AMD, TILED))


def test_all_faults_at_once():
    with pytest.raises(ConfigError) as caught:
        make_plan(
            plain_problem(100, 90, 80),
            TINY,
            TileConfig.of("tiled", tile_m=32, tile_n=64, tile_k=64),
        )
    assert len(caught.value.reasons) == 4


def test_limits_hold_whatever_the_header_says(kernel_folder):
    """Local memory beyond the limit corrupts memory on some runtimes, so it is refused first."""
    kernel_folder("greedy", one_item("greedy", local=2048, derived="local_bytes=10**6"))
    with pytest.raises(ConfigError) as caught:
        make_plan(plain_problem(100, 90, 80), AMD, load_variant("greedy").default)
    assert caught.value.reasons == (
        "work-items a group: 2048 > 256", "work-items in dimension 0: 2048 > 1024",
        "local_bytes: 1000000 > 65536",
    )  # fmt: skip


def test_global_sizes_beyond_the_address_bits():
    problem = replace(plain_problem(64, 64, 64), m=2**20, n=2**20)
    with pytest.raises(ConfigError, match="global size 1099511627776 needs more than 32 bits"):
        make_plan(problem, TINY, TileConfig.of("naive", work_group_size=1))


def test_more_arguments_than_a_device_takes():
    stingy = replace(TINY, max_parameter_bytes=60)
    naive = TileConfig.of("naive", work_group_size=1)
    with pytest.raises(ConfigError, match=r"bytes of kernel arguments: \d+ > 60"):
        make_plan(plain_problem(64, 64, 64, batch=(3,)), stingy, naive)
    assert make_plan(plain_problem(64, 64, 64, batch=(3,)), TINY, naive)


def test_every_part_at_once_fits_the_smallest_full_profile():
    """1024 bytes of arguments are guaranteed; four batch dimensions and all operands fit."""
    problem = replace(plain_problem(4, 4, 4), wide_index=True, alpha="general", beta="general")
    strided = Operand("float32", 9, 3, (99, 999, 9999, 99999))
    spec = replace(problem.epilogue, bias=strided, residual=strided, row_scale=strided,
                   col_scale=strided)  # fmt: skip
    problem = replace(problem, batch=(2, 2, 2, 2), a=strided, b=strided, out=strided, c=strided,
                      epilogue=spec)  # fmt: skip
    full = replace(TINY, max_parameter_bytes=1024)
    assert make_plan(problem, full, TileConfig.of("naive", work_group_size=1))


def test_several_launches_with_workspace(kernel_folder):
    kernel_folder("split_k", SPLIT_K)
    plan = make_plan(plain_problem(10, 9, 80), AMD, TileConfig.of("split_k", pieces=5))
    assert [x.entry for x in plan.launches] == ["sum_pieces", "add_pieces"]
    (scratch,) = plan.workspace
    assert (scratch.name, scratch.first, scratch.last) == ("partial", 0, 1)
    assert plan.workspace_bytes == 10 * 9 * 5 * 4
    assert all(dict(x.values)["pieces"] == 5 for x in plan.launches)


def test_run_time_parameters_are_not_in_the_text(kernel_folder):
    kernel_folder("split_k", SPLIT_K)
    one, other = (
        make_plan(plain_problem(10, 9, 80), AMD, TileConfig.of("split_k", pieces=p)) for p in (2, 5)
    )
    assert [x.source_key for x in one.launches] == [x.source_key for x in other.launches]
    assert "pieces" not in dict(one.rendered) and "lanes" in dict(one.rendered)


def test_unknown_arguments_are_named(kernel_folder):
    kernel_folder("odd", one_item("odd").replace('"scalars")', '"scalars", "mystery")'))
    with pytest.raises(TemplateError, match="launch argument 'mystery' is unknown"):
        make_plan(plain_problem(4, 4, 4), AMD, load_variant("odd").default)


def test_options_never_relax_arithmetic():
    for file in FOLDER.glob("*.json"):
        options = " ".join(build_options(DeviceProfile.from_json(file.read_text())))
        for word in ("fast", "unsafe", "finite", "mad", "denorms", "signed"):
            assert word not in options


def test_values_of_a_plan_are_plain():
    """Nothing in a plan but what prints and travels."""
    plan = make_plan(plain_problem(100, 90, 80), AMD, TILED)
    json.dumps(
        [str(x) for x in plan.launches] + list(plan.options) + [list(x) for x in plan.rendered]
    )
