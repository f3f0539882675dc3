"""One trial on the device: operands as the problem has them, faults found, times taken."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import skip_without_fp64
from kinds import test_configs
from test_kernels import kind_for

from clmatmul import cases, measure, sample, templates, trial, variants
from clmatmul.config import TileConfig
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import ConfigError
from clmatmul.explanation import plain_problem
from clmatmul.plan import make_plan
from clmatmul.problem import ArrayView, Problem
from clmatmul.sample import Sample
from clmatmul.trial import Workload, is_sane, try_config

TILED = TileConfig.of("tiled", tile_m=4, tile_n=8, tile_k=4)
FAULTY_VARIANTS = Path(__file__).parent / "variants"


@pytest.fixture
def faulty(monkeypatch):
    """faulty(name) → the configuration of tests/variants/faulty.cl.mako with that fault."""
    caches = (templates._folders, templates.variant_files, variants.load_variant)
    monkeypatch.setenv("CLMATMUL_KERNEL_PATH", str(FAULTY_VARIANTS))
    for cache in caches:
        cache.cache_clear()
    yield lambda fault: TileConfig.of("faulty", fault=fault)
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


def strided_problem():
    """A product of transposed, broadcast, strided and reversed operands with all that is fused."""
    a = ArrayView("float32", (3, 20, 30), (0, -40, 1), 900, 4)  # one matrix for all, rows reversed
    b = ArrayView("float32", (3, 30, 24), (3000, 2, 100), 8, 32)
    out = ArrayView("float32", (3, 20, 24), (700, 31, 1), 3, 4)
    c = ArrayView("float32", (20, 24), (24, 1), 0, 64)
    bias = ArrayView("float32", (24,), (1,), 0, 64)
    residual = ArrayView("float32", (3, 20, 24), (480, 1, 20), 0, 64)
    row_scale = ArrayView("float32", (20,), (2,), 0, 64)
    return Problem.from_arrays(
        a, b, out, c=c, alpha="general", beta="general",
        epilogue={"bias": bias, "residual": residual, "row_scale": row_scale,
                  "activation": "relu"},
    )  # fmt: skip


def test_a_case_lies_exactly_as_the_problem_says(rng):
    problem = strided_problem()
    case = cases.case_of(problem, rng)
    assert case.problem is problem
    for name, operand in problem.operands():
        memory = case.memory[name]
        strides = (*operand.batch_strides, operand.row_stride, operand.col_stride)
        assert memory.view.strides == tuple(4 * s for s in strides), name
        assert memory.offset * 4 % operand.alignment == 0
    assert np.array_equal(case.memory["a"].view[0], case.memory["a"].view[2])  # repeated
    out = case.memory["out"]
    assert np.isnan(out.cells).all() and out.offset >= 67
    assert out.offset + 2 * 700 + 19 * 31 + 24 + 67 == out.cells.size
    # Inputs are allocated at their exact size, so that a simulator sees a read beyond them.
    c = case.memory["c"]
    assert c.offset == 0 and c.cells.size == 20 * 24


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64", "float16", "bool"])
def test_every_dtype_passes_at_its_own_size(device, dtype):
    skip_without_fp64(device, dtype)
    work = Workload(device, plain_problem(21, 35, 18, dtype, "TN"))
    found = try_config(device, work, TILED)
    assert found.status == "ok", found.note
    assert found.samples >= 5 and 0 < found.minimum_ns <= found.median_ns
    assert 0 <= found.error_ratio <= 1


def test_a_strided_and_fused_problem_passes(device):
    found = try_config(device, Workload(device, strided_problem()), TILED)
    assert found.status == "ok", found.note


def test_states_come_in_order(device):
    states = []
    try_config(device, Workload(device, plain_problem(9, 9, 9)), TILED, entered=states.append)
    assert states == ["build", "launch", "verify", "time"]


@pytest.mark.parametrize(
    "fault, status, words",
    [
        ("none", "ok", ""),
        ("refused", "build_failed", "not for you"),
        ("wrong", "wrong_result", "elements are wrong"),
        ("outside", "wrong_result", "outside the output"),
        ("unwritten", "wrong_result", "elements are wrong"),
        ("wrong_when_large", "wrong_result", "error is"),
    ],
)
def test_each_fault_has_its_status(device, faulty, fault, status, words):
    found = try_config(device, Workload(device, plain_problem(24, 20, 16)), faulty(fault))
    assert found.status == status, found.note
    assert words in found.note
    assert (found.median_ns is not None) == (status == "ok")


def test_faults_at_the_tuned_size_are_found_by_the_sample(rng):
    """Without the small checks: what is wrong in a sampled line, the guards, the gaps."""
    problem = plain_problem(24, 20, 16)
    case = cases.case_of(problem, rng)
    judge = Sample(case, rng).judge
    a, b = case.memory["a"].view, case.memory["b"].view
    right = case.before.copy()
    cases.like(right, case.memory["out"])[...] = a.astype(float) @ b.astype(float)
    assert judge(right).fault is None

    def judged(change):
        after = right.copy()
        change(after, cases.like(after, case.memory["out"]))
        return judge(after).fault

    assert "error is" in judged(lambda cells, out: out.__setitem__((23, 19), 0))
    assert "unwritten" in judged(lambda cells, out: out.__setitem__((5, 5), np.nan))
    assert "outside" in judged(lambda cells, out: cells.__setitem__(-1, 0))
    assert "outside" in judged(lambda cells, out: cells.__setitem__(0, 0))


def test_a_large_product_is_checked_in_some_rows_and_columns(rng, monkeypatch):
    monkeypatch.setattr(sample, "_SAMPLE_TERMS", {"float64": 5 * 90 * 20})
    case = cases.case_of(plain_problem(80, 90, 20), rng)
    judge = Sample(case, rng).judge
    a, b = case.memory["a"].view, case.memory["b"].view
    after = case.before.copy()
    out = cases.like(after, case.memory["out"])
    out[...] = a.astype(float) @ b.astype(float)
    seen = []
    for row in range(80):
        kept = out[row, 40]
        out[row, 40] = kept + 1
        seen.append(judge(after).fault is not None)
        out[row, 40] = kept
    assert seen[0] and seen[-1] and sum(seen) in (5, 80)  # 80: column 40 is in the sample
    for corner in ((0, 0), (0, 89), (79, 0), (79, 89)):
        kept = out[corner]
        out[corner] = kept + 1
        assert judge(after).fault is not None
        out[corner] = kept


def test_a_changed_input_is_a_wrong_result(device, monkeypatch):
    work = Workload(device, plain_problem(16, 16, 16))
    work.case.memory["b"].cells[3] += 1  # as if the kernel had written to its input
    found = try_config(device, work, TILED)
    assert found.status == "wrong_result" and "changed its input b" in found.note


def test_results_that_differ_from_run_to_run_are_unstable(device, monkeypatch):
    work = Workload(device, plain_problem(16, 16, 16))
    results = iter((0, 1))
    plain = work.result

    def result(executable):
        after = plain(executable)
        at = work.case.memory["out"].offset
        after[at] = np.nextafter(after[at], np.float32(np.inf)) if next(results) else after[at]
        return after

    monkeypatch.setattr(work, "result", result)
    found = try_config(device, work, TILED)
    assert found.status == "unstable" and "different bits" in found.note


def test_a_clock_that_lies_about_one_kernel_makes_its_trial_unstable(device, monkeypatch):
    work = Workload(device, plain_problem(16, 16, 16))
    assert work.has_events in (True, False)
    work.has_events = True
    monkeypatch.setattr(measure.devices, "event_times", lambda event: (5, 5))
    found = try_config(device, work, TILED)
    assert found.status == "unstable" and "below what a clock can tell" in found.note
    assert found.median_ns is None


def test_a_runtime_whose_events_never_tell_time_is_timed_by_the_wall(device, monkeypatch):
    monkeypatch.setattr(measure.devices, "event_times", lambda event: (5, 6))  # as rusticl has it
    work = Workload(device, plain_problem(16, 16, 16))
    found = try_config(device, work, TILED)
    assert not work.has_events
    assert found.status == "ok" and found.minimum_ns > 1000
    assert found.note == "timed by the wall clock"


def test_a_product_that_would_take_too_long_is_not_run_in_full(device, monkeypatch):
    monkeypatch.setattr(trial, "_PART_FLOPS", 1000)
    work = Workload(device, plain_problem(64, 64, 64))
    monkeypatch.setattr(work, "result", lambda executable: pytest.fail("it was run in full"))
    found = try_config(device, work, TILED, slowest_ns=1)
    assert found.status == "too_slow" and "would take about" in found.note


def test_one_that_took_too_long_is_run_twice_and_no_more(device, monkeypatch):
    work = Workload(device, plain_problem(16, 16, 16))  # too small to be run in part first
    real, runs = work.runner, []

    def runner(executable):
        run = real(executable)
        return lambda i: runs.append(i) or run(i)

    monkeypatch.setattr(work, "runner", runner)
    monkeypatch.setattr(trial, "_SHORT_NS", 0)
    assert work.has_events in (True, False)
    runs.clear()
    found = try_config(device, work, TILED, best_ns=1, slowest_ns=1)
    assert found.status == "too_slow" and found.note.startswith("took ")
    assert len(runs) == 2  # for the check, and to be timed


def test_a_part_of_a_product_tells_how_long_the_whole_takes(device, monkeypatch):
    work = Workload(device, plain_problem(16, 256, 32))
    assert work.estimate_ns(TILED) == 0  # small enough to be run at once
    monkeypatch.setattr(trial, "_PART_FLOPS", 16 * 256 * 32 / 4)
    assert 0 < work.estimate_ns(TILED) < 60e9


def test_a_part_is_cut_where_the_configuration_serves_it(device, monkeypatch):
    """One that splits k serves no short k, and the whole product all the same."""
    monkeypatch.setattr(trial, "_PART_FLOPS", 16 * 32 * 256 / 4)
    work = Workload(device, plain_problem(16, 32, 256))
    real, parts = trial.make_plan, []

    def make_plan(problem, profile, config):
        if problem.k < 256:
            raise ConfigError(config, ["splits * tile_k <= problem.k"])
        parts.append((problem.m, problem.n))
        return real(problem, profile, config)

    monkeypatch.setattr(trial, "make_plan", make_plan)
    assert work.estimate_ns(TILED) > 0 and parts[-1] == (16, 4)


def test_one_that_serves_no_part_is_run_in_full(device, monkeypatch):
    monkeypatch.setattr(trial, "_PART_FLOPS", 1000)
    work = Workload(device, plain_problem(64, 64, 64))
    real = trial.make_plan

    def make_plan(problem, profile, config, *more):
        if problem.m * problem.n * problem.k < 64**3 and max(problem.m, problem.n) == 64:
            raise ConfigError(config, ["this size is none that it serves"])
        return real(problem, profile, config, *more)

    monkeypatch.setattr(trial, "make_plan", make_plan)
    assert work.estimate_ns(TILED) == 0
    assert try_config(device, work, TILED, slowest_ns=60e9).status == "ok"


def test_one_that_is_far_behind_is_timed_once_or_a_few_times_if_it_is_short(device, monkeypatch):
    work = Workload(device, plain_problem(64, 64, 64))
    monkeypatch.setattr(trial, "_SHORT_NS", 1e9)
    assert try_config(device, work, TILED, best_ns=1).samples == 10
    monkeypatch.setattr(trial, "_SHORT_NS", 0)
    assert try_config(device, work, TILED, best_ns=1).samples == 1
    monkeypatch.setattr(trial, "_HOPELESS", 1e12)
    assert try_config(device, work, TILED, best_ns=1).samples > 3
    assert try_config(device, work, TILED, best_ns=1e12).samples >= 5


def test_the_safe_kernel_tells_whether_a_device_works(device, monkeypatch):
    assert is_sane(device, plain_problem(64, 64, 64))
    monkeypatch.setattr(trial, "check_case", lambda *arguments: trial.Verdict("wrong", None))
    assert not is_sane(device, plain_problem(64, 64, 64))


def test_a_plan_is_timed_at_its_own_size(device):
    from clmatmul.executable import build

    problem = plain_problem(32, 32, 32)
    found = trial.time_plan(device, build(device, make_plan(problem, device.profile, TILED)))
    assert found.flops == problem.flops and len(found.times_ns) == 5
    assert all(e <= w * 1.05 + 50_000 for e, w in zip(found.times_ns, found.wall_ns, strict=True))


def test_variants_of_the_tests_are_not_those_of_the_package():
    assert "faulty" not in variants.variant_names()


@pytest.mark.parametrize("name", variants.variant_names())
def test_checks_run_the_programs_of_large_products(name):
    """Parts of k too: a program that no check runs would be used unseen."""
    file = Path(__file__).parent / "profiles" / "nvidia-h200.json"
    profile = DeviceProfile.from_json(file.read_text())
    profile = profile.with_probes(compute_capability=90, static_local_bytes=231424, wgmma=1)
    if name.startswith("cpu_"):
        profile = replace(profile, kind="cpu", family="pocl", compute_units=2)
    kind = kind_for(name)
    for config in [*test_configs(name), variants.load_variant(name).default]:
        programs = []
        for sizes in (((700, 700, 700), (16, 700, 700)), trial.check_sizes(config)):
            programs.append(set())
            for m, n, k in sizes:
                case = cases.make_case(
                    kind, m, n, k, "exact", np.random.default_rng(0), with_result=False
                )
                with suppress(ConfigError):
                    plan = make_plan(case.problem, profile, config)
                    programs[-1] |= {x.entry for x in plan.launches}
        large, checked = programs
        assert checked and large <= checked, config


def test_checks_go_round_rings_and_through_unrolled_loops():
    """line_dot takes 4 lanes of 2 elements, twice; nv_async has stages; line_sweep slices."""

    def longest(name):
        return trial.check_sizes(test_configs(name)[0])[0]

    assert longest("line_dot")[2] > 4 * 2 * 2
    assert longest("nv_async")[2] > 3 * 8
    assert longest("line_sweep")[2] > 2 * 4
    assert (
        longest("line_sweep")[0] > 4 and trial.check_sizes(test_configs("line_sweep")[0])[1][1] > 8
    )
