"""choose: the order of origins, for devices that nobody here owns."""

import contextlib
from pathlib import Path

import pytest
from extra_variants import kernel_folder, one_item

from clmatmul import walk
from clmatmul.choose import SAFE, choose
from clmatmul.config import TileConfig
from clmatmul.database import TuningDatabase, TuningRecord
from clmatmul.device_profile import DeviceProfile
from clmatmul.element_types import ELEMENT_TYPES
from clmatmul.errors import ConfigError, UnsupportedError
from clmatmul.explanation import plain_problem
from clmatmul.plan import make_plan
from clmatmul.variants import load_variant

__all__ = ["kernel_folder"]
PROFILES = {
    file.stem: DeviceProfile.from_json(file.read_text())
    for file in sorted((Path(__file__).parent / "profiles").glob("*.json"))
}
AMD = PROFILES["amd-mi210"]
PROBLEM = plain_problem(100, 90, 80)


def record(problem=PROBLEM, config="tiled(tile_m=4, tile_n=2, tile_k=1)", **values):
    config = TileConfig.parse(config)
    known = {"naive", "tiled"} & {config.variant}
    digest = load_variant(config.variant).digest if known else "0"
    values = {"digest": digest, "median_ns": 1000.0, **values}
    return TuningRecord(device=AMD.key, kind=problem.kind.key, batch=problem.batch_count,
                        m=problem.m, n=problem.n, k=problem.k, config=config, **values)  # fmt: skip


def choices(*records, shipped=(), problem=PROBLEM, profile=AMD):
    return choose(problem, profile, TuningDatabase(records, shipped))


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize("name", PROFILES)
def test_every_device_gets_valid_choices(name, dtype, caplog, monkeypatch):
    """For every dtype that it can hold: small, odd and large sizes, and nothing to add up."""
    monkeypatch.setattr("clmatmul.choose._reported", set())
    profile = PROFILES[name]
    sizes = ((1, 1, 1), (1, 4096, 4096), (33, 65, 17), (2048, 2048, 2048), (3, 2, 0), (1, 70000, 0))
    for m, n, k in sizes:
        for batch in ((), (5,)):
            problem = plain_problem(m, n, k, dtype, "NT", batch)
            if problem.kind.needs_fp64 and not profile.fp64:
                with pytest.raises(UnsupportedError, match="has no float64 .*fallback='numpy'"):
                    choose(problem, profile)
                continue
            found = choose(problem, profile)
            assert found[-1].config == SAFE
            for choice in found:
                make_plan(problem, profile, choice.config)
            assert len({x.config for x in found}) == len(found)
            assert all(x.note and x.origin in ("heuristic", "safe") for x in found)
    assert not caplog.records  # no variant's estimate failed


def test_a_gpu_is_not_left_with_the_safe_choice():
    for name in ("nvidia-h200", "intel-iris-xe", "amd-mi210", "rusticl-llvmpipe"):
        assert choose(PROBLEM, PROFILES[name])[0].origin == "heuristic"


def test_order_of_origins():
    other = plain_problem(128, 100, 80)
    found = choices(
        record(config="tiled(tile_m=2, tile_n=2, tile_k=2)"),
        record(other, "tiled(tile_m=1, tile_n=2, tile_k=4)"),
        shipped=[record(config="tiled(tile_m=1, tile_n=1, tile_k=1)")],
    )
    assert found[0].origin == "tuned" and found[0].config.values()["tile_m"] == 2
    origins = [x.origin for x in found]
    order = ("tuned", "shipped", "nearest", "heuristic", "safe")
    assert origins == sorted(origins, key=order.index) and origins[-1] == "safe"


def test_shipped_when_nothing_is_tuned():
    found = choices(shipped=[record()])
    assert found[0].origin == "shipped" and found[0].config.values()["tile_n"] == 2
    assert "recorded 1.0 µs" in str(found[0])


def test_nearest_when_the_size_differs():
    found = choices(
        record(plain_problem(150, 90, 80), "tiled(tile_m=2, tile_n=2, tile_k=2)"),
        record(plain_problem(110, 90, 80), "tiled(tile_m=4, tile_n=4, tile_k=4)"),
    )
    assert found[0].origin == "nearest" and found[0].config.values()["tile_m"] == 4
    assert found[0].note == "from 110×90×80"


@pytest.mark.parametrize("other", [
    plain_problem(100, 90, 80, "float64"), plain_problem(100, 90, 80, layout="TN"),
    plain_problem(1000, 90, 80), plain_problem(100, 90, 80, batch=(8,)),
])  # fmt: skip
def test_what_is_not_near(other):
    assert choices(record(other))[0].origin == "heuristic"


def test_records_of_another_text_are_only_hints():
    found = choices(record(digest="0" * 64))
    assert found[0].origin == "nearest" and "another version" in found[0].note


@pytest.mark.parametrize("values", [
    {"config": "gone(tile=3)"}, {"config": "tiled(tile_m=32, tile_n=64, tile_k=8)"},
    {"config": "tiled(tile_m=3)"}, {"config": "tiled(tile_x=4)"}, {"status": "wrong_result"},
])  # fmt: skip
def test_records_that_cannot_serve_are_passed_over(values):
    """A variant that is gone, limits of a larger device, values and parameters that are no more."""
    assert choices(record(**values))[0].origin == "heuristic"


def test_the_fastest_of_several_records():
    found = choices(
        record(config="tiled(tile_m=2, tile_n=2, tile_k=2)", median_ns=10.0),
        record(config="tiled(tile_m=4, tile_n=4, tile_k=4)", median_ns=5.0),
        record(config="tiled(tile_m=8, tile_n=8, tile_k=8)", median_ns=20.0),
    )
    assert found[0].config.values()["tile_m"] == 4


def test_forced_stands_alone():
    found = choose(PROBLEM, AMD, TuningDatabase([record()]), TileConfig.parse("tiled(tile_m=2)"))
    assert [x.origin for x in found] == ["forced"]
    assert found[0].config.values() == {"tile_m": 2, "tile_n": 8, "tile_k": 8}


@pytest.mark.parametrize("text, reason", [
    ("gone", "there is no such variant; there are .*naive.*tiled"),
    ("tiled(tile_m=32, tile_n=64)", "work_items <= profile.max_work_group_size: 2048 > 256"),
    ("tiled(tile_m=5)", r"tile_m=5 is not one of \(1, 2"), ("tiled(q=5)", "no parameter q"),
])  # fmt: skip
def test_forced_configurations_refused(text, reason):
    with pytest.raises(ConfigError, match=reason):
        choose(PROBLEM, AMD, None, TileConfig.parse(text))


def test_heuristics_by_rank(kernel_folder):
    kernel_folder("slow", one_item("slow", rank=0))
    kernel_folder("fast", one_item("fast", rank=900))
    ranked = [x.config.variant for x in choose(PROBLEM, AMD)]
    assert ranked[0] == "fast" and ranked.index("slow") > ranked.index("naive")


@pytest.mark.parametrize("fault", ["900 / 0", "{}[900]", "nothing"])
def test_a_failing_estimate_costs_a_warning_and_not_the_product(
    kernel_folder, caplog, monkeypatch, fault
):
    monkeypatch.setattr("clmatmul.choose._reported", set())
    kernel_folder("broken", one_item("broken", rank=fault))
    for _ in range(2):
        found = [x.config.variant for x in choose(PROBLEM, AMD)]
        assert "broken" not in found and "register_blocked" in found
    (warning,) = caplog.records
    assert "broken is passed over for 100×90×80 float32" in warning.getMessage()


def test_an_unreadable_database_warns_once_and_leaves_the_rest(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("CLMATMUL_DB", str(tmp_path))
    file = walk.best_file(AMD.key)
    file.mkdir(parents=True)  # a folder where a file should be
    walk.forget()
    try:
        for _ in range(3):
            database = walk.database_of(AMD.key)
        assert choose(PROBLEM, AMD, database)[0].origin in ("heuristic", "shipped", "nearest")
    finally:
        monkeypatch.undo()
        walk.forget()
    warnings = [x for x in caplog.records if x.levelname == "WARNING"]
    assert len(warnings) == 1
    assert str(file) in warnings[0].getMessage() and "untuned" in warnings[0].getMessage()


def test_damaged_lines_are_skipped(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("CLMATMUL_DB", str(tmp_path))
    file = walk.best_file(AMD.key)
    file.parent.mkdir(parents=True)
    lines = ["{", '"text"', record().to_json(), record().to_json()[:50], '{"schema": 99}', "\xff"]
    file.write_bytes("\n".join(lines).encode("latin-1"))
    walk.forget()
    try:
        found = choose(PROBLEM, AMD, walk.database_of(AMD.key))
    finally:
        monkeypatch.undo()
        walk.forget()
    assert found[0].origin == "tuned"
    assert "5 of 6 lines skipped" in caplog.text


@pytest.mark.parametrize("size", [(520, 600, 700), (1000, 1000, 1000), (3, 3, 60000)])
def test_a_device_that_ends_long_loops(size):
    """llvmpipe goes on behind any loop once an item has gone round 65535 times, and the sums lack
    terms: what is offered stays below, and more terms than that are refused."""
    profile = PROFILES["rusticl-llvmpipe"]
    assert profile.loop_limit == 65535
    problem = plain_problem(*size, "float32", "NN", ())
    offered = []
    for choice in choose(problem, profile):
        with contextlib.suppress(ConfigError):
            make_plan(problem, profile, choice.config)
            offered.append(choice.config)
    assert offered[-1].variant == "naive"
    if size[0] > 3:
        assert offered[0].variant.startswith("cpu_"), "tiles are made small enough"
    if size[0] == 3:
        return
    large = "cpu_packed(block_k=256, micro_m=6, tile_m=192, tile_n=256, unroll=4, vectors=1)"
    with pytest.raises(ConfigError, match="loop iterations of a work-item: up to"):
        make_plan(problem, profile, TileConfig.parse(large))
    with pytest.raises(UnsupportedError, match="ends loops after 65535"):
        choose(plain_problem(2, 2, 70000, "float32", "NN", ()), profile)
