"""The search itself, on made-up devices: trials come from a table, and no OpenCL is touched."""

import json
import os
import random
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from clmatmul import walk
from clmatmul.config import TileConfig
from clmatmul.database import TuningDatabase, read_records
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import ArgumentError, DatabaseError, DeviceError, UnsupportedError
from clmatmul.explanation import plain_problem
from clmatmul.measure import Measurement
from clmatmul.problem import ArrayView, Problem
from clmatmul.problem_json import problem_from_dict, problem_to_dict
from clmatmul.space import SearchSpace, parse_within
from clmatmul.trial import Trial
from clmatmul.tune import host_time, tune, tuner
from clmatmul.tune.budget import Budget
from clmatmul.tune.host_time import numpy_time_ns
from clmatmul.tune.landscape import Landscape, Replayed, simulate
from clmatmul.tune.peaks import Peaks
from clmatmul.tune.progress import PlainProgress
from clmatmul.tune.strategies import STRATEGIES
from clmatmul.tune.trials import DeviceLost
from clmatmul.variants import all_variants, load_variant

PROBLEM = plain_problem(96, 80, 64)
FAST = TileConfig.of("tiled", tile_m=4, tile_n=8, tile_k=16)
MS = 1_000_000


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """Hundreds of made-up trials need not reach the disk; tests/test_database.py is about that."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def profile(name="amd-mi210"):
    text = (Path(__file__).parent / "profiles" / f"{name}.json").read_text()
    return DeviceProfile.from_json(text)


def passed(config, ns):
    return Trial(config, "ok", float(ns), float(ns), 1.0, 5, 0.1)


class Device:
    """Stands in for `Trials`: `landscape(config)` gives a Trial, or raises."""

    jobs = 2

    def __init__(self, monkeypatch, landscape, times=None, profile=profile()):  # noqa: B008
        self.profile = profile
        self.landscape = landscape
        self.tried, self.best_ns, self.compared, self.killed = [], [], [], 0
        self.proven, self.faults = [], {}
        self._times = times or self._own_times
        monkeypatch.setattr(tuner, "Trials", lambda *arguments: self)
        monkeypatch.setattr(tuner, "numpy_time_ns", lambda problem, seconds: 3 * MS)

    def _own_times(self, configs, rounds):
        return [[self.landscape(x).median_ns] * rounds for x in configs]

    def prepare(self, problem, seed):
        self.prepared = problem

    def try_all(self, configs, best_ns):
        for config in configs:
            self.tried.append(config)
            self.best_ns.append(best_ns())
            yield self.landscape(config)

    def prove(self, config, seconds):
        self.proven.append(config)
        return self.faults.get(config)

    def compare(self, configs, rounds, max_seconds):
        self.compared.append(configs)
        return self._times(configs, rounds)

    def peaks(self, compute):
        return Peaks(compute, 5.0, 1.0)

    def kill(self):
        self.killed += 1


def by_config(found, otherwise=10 * MS):
    """A landscape: config → ns or Trial; anything else takes `otherwise`."""

    def landscape(config):
        value = found.get(config, otherwise)
        return passed(config, value) if isinstance(value, (int, float)) else value

    return landscape


def towards(best, ns=MS, otherwise=10 * MS):
    """A landscape that falls towards `best`: each step of a parameter away costs a quarter."""
    allowed = load_variant(best.variant).all_parameters()

    def landscape(config):
        if config.variant != best.variant:
            return passed(config, otherwise)
        steps = sum(
            abs(x.index(config.values()[name]) - x.index(best.values()[name]))
            for name, x in allowed.items()
        )
        return passed(config, min(ns * 1.25**steps, otherwise))

    return landscape


def search(tmp_path, problems=PROBLEM, **keywords):
    own = {"budget": "400trials", "variants": ["tiled"], "db": tmp_path, "strategy": "random"}
    keywords = {**own, **keywords}
    return tune(problems, **keywords)


def untuned(device, problem=PROBLEM):
    from clmatmul.choose import choose

    return choose(problem, device.profile, TuningDatabase())


# ---- what comes out -------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["local", "random", "exhaustive"])
def test_the_fastest_wins_and_is_what_products_then_use(tmp_path, monkeypatch, strategy):
    device = Device(monkeypatch, towards(FAST))
    report = search(tmp_path, strategy=strategy)
    (found,) = report.problems
    assert report.ok and not report.interrupted
    assert found.winner.config == FAST and device.proven == [FAST]
    everything = "every configuration was tried"
    settled = "no gain is expected from more trials"
    assert found.stopped == (settled if strategy == "local" else everything)
    assert found.comparison.verdict == "faster" and found.comparison.ratio > 1.5
    assert found.verdict == f"{found.comparison} as fast as the default"
    database = TuningDatabase(read_records(report.best_file))
    origin, record = database.lookup(PROBLEM)
    assert (origin, record.config, record.median_ns) == ("tuned", FAST, MS)
    assert record.digest == load_variant("tiled").digest
    chosen = tuner.choose(PROBLEM, device.profile, database)[0]
    assert (chosen.config, chosen.origin) == (FAST, "tuned")


def test_the_table_has_the_default_and_numpy_in_it(tmp_path, monkeypatch):
    Device(monkeypatch, by_config({FAST: MS}))
    (found,) = search(tmp_path).problems
    names = {row.origin: row for row in found.rows}
    assert names["default"].speed_up == 1 and not names["default"].chosen
    assert names["host"].name == "NumPy" and names["host"].median_ns == 3 * MS
    assert names["host"].speed_up == pytest.approx(10 / 3)
    assert [row.median_ns for row in found.rows] == sorted(row.median_ns for row in found.rows)
    assert [row.name for row in found.rows if row.chosen] == [str(FAST)]
    json.dumps(found.to_dict())


def test_every_valid_configuration_is_tried_once_after_the_untuned_choices(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({}))
    report = search(tmp_path, strategy="random")
    first = [x.config for x in untuned(device)[:-1]]
    assert device.tried[: len(first)] == first
    assert max(Counter(device.tried).values()) == 1
    space = SearchSpace([load_variant("tiled")], PROBLEM, device.profile)
    assert set(device.tried) == {*first, *space}
    assert report.problems[0].tried == len(device.tried)


def test_the_worker_is_told_the_best_so_far(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({FAST: MS}))
    search(tmp_path, strategy="exhaustive")
    at = device.tried.index(FAST)
    assert device.best_ns[0] is None
    assert set(device.best_ns[1 : at + 1]) == {10 * MS} and set(device.best_ns[at + 1 :]) == {MS}


def test_a_winner_that_is_no_faster_in_turn_is_not_kept(tmp_path, monkeypatch):
    rng = random.Random(1)

    def noisy(configs, rounds):
        return [[10 * MS + rng.gauss(0, MS) for _ in range(rounds)] for _ in configs]

    device = Device(monkeypatch, by_config({FAST: MS}), noisy)
    default = untuned(device)[0].config
    (found,) = search(tmp_path).problems
    assert found.winner.config == default
    assert "default" in found.verdict
    assert device.compared[0][:2] == [default, FAST]


def test_too_close_to_call_is_said(tmp_path, monkeypatch):
    def close(configs, rounds):
        # a little faster in 11 of 21 rounds, slower in the others
        ours = [99 if i % 2 == 0 else 103 for i in range(rounds)]
        return [[100] * rounds, ours, *([200] * rounds for _ in configs[2:])]

    device = Device(monkeypatch, by_config({FAST: 9 * MS}), close)
    (found,) = search(tmp_path).problems
    assert found.verdict.startswith(f"too close to call: {FAST} is 1.01× (0.97 to 1.01")
    assert found.winner.config == untuned(device)[0].config


def test_finalists_are_ranked_by_rounds_and_doubt_about_one_does_not_end_the_final(
    tmp_path, monkeypatch
):
    other = TileConfig.of("tiled", tile_m=8, tile_n=8, tile_k=16)

    def times(configs, rounds):
        # The first has the better median, and is slower in seven of ten rounds. The second is a
        # little faster in all; the others are much faster in half of them, slower in the rest.
        default = [200 if i % 10 < 6 else 100 for i in range(rounds)]
        first = [205 if i % 20 < 9 else 110 for i in range(rounds)]
        second = [x / 1.05 for x in default]
        doubtful = [x / (0.7 if i % 2 else 1.5) for i, x in enumerate(default)]
        found = {configs[0]: default, FAST: first, other: second}
        return [found.get(x, doubtful) for x in configs]

    Device(monkeypatch, by_config({FAST: 8 * MS, other: 9 * MS}), times)
    (found,) = search(tmp_path).problems
    assert found.winner.config == other
    assert found.verdict.startswith("1.05× (1.05 to 1.05")


def test_a_small_gain_that_new_buffers_do_not_show_is_not_kept(tmp_path, monkeypatch):
    calls = []

    def times(configs, rounds):
        calls.append(configs)
        gain = 1.04 if len(calls) == 1 else 0.98
        return [[100.0] * rounds, [100 / gain] * rounds, *([200.0] * rounds for _ in configs[2:])]

    device = Device(monkeypatch, by_config({FAST: 9 * MS}), times)
    (found,) = search(tmp_path).problems
    default = untuned(device)[0].config
    assert calls[1] == [default, FAST] and found.winner.config == default
    assert "1.04× (1.04 to 1.04 in 903 rounds) as fast, but not with other" in found.verdict


def test_a_large_gain_that_may_be_small_has_to_show_twice(tmp_path, monkeypatch):
    calls = []

    def times(configs, rounds):
        """1.3 times as fast in one round more than half, 1.02 times in the others; then slower."""
        calls.append(configs)
        gains = [1.3 if i % 10 < 5 or i == 6 else 1.02 for i in range(rounds)]
        ours = [100 / (x if len(calls) == 1 else 0.9) for x in gains]
        return [[100.0] * rounds, ours, *([200.0] * rounds for _ in configs[2:])]

    device = Device(monkeypatch, by_config({FAST: 9 * MS}), times)
    (found,) = search(tmp_path).problems
    default = untuned(device)[0].config
    assert calls[1] == [default, FAST] and found.winner.config == default
    assert "but not with other buffers" in found.verdict


def test_the_default_is_the_first_untuned_choice_that_works(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({}))
    first, second = (x.config for x in untuned(device)[:2])
    device.landscape = by_config({first: Trial(first, "crash", note="SIGSEGV"), FAST: MS})
    (found,) = search(tmp_path).problems
    assert device.compared[0][0] == second
    assert found.statuses["crash"] == 1
    assert [(x.config, x.status) for x in found.failures] == [(first, "crash")]


def test_nothing_passed(tmp_path, monkeypatch):
    device = Device(monkeypatch, lambda config: Trial(config, "wrong_result", note="NaN"))
    report = search(tmp_path)
    assert not report.ok and report.problems[0].winner is None
    assert report.problems[0].verdict == "no configuration passed"
    assert device.tried.count(untuned(device)[-1].config) == 1  # the safe one, too
    assert not Path(report.best_file).exists()
    assert len(read_records(report.journal)) == len(device.tried)


def test_a_comparison_that_fails_keeps_the_default(tmp_path, monkeypatch):
    def fails(configs, rounds):
        raise DeviceError("the comparison failed: still in state compare after 60 s")

    device = Device(monkeypatch, by_config({FAST: MS}), fails)
    (found,) = search(tmp_path).problems
    assert found.winner.config == untuned(device)[0].config
    assert "the comparison failed" in found.verdict


# ---- records, resuming, stopping ------------------------------------------------------------


def test_each_trial_is_on_disk_before_it_is_told(tmp_path, monkeypatch):
    Device(monkeypatch, by_config({FAST: Trial(FAST, "hang", note="still in state launch")}))
    seen = []

    class Telling(tuner.Progress):
        def recorded(self, record):
            (journal,) = (tmp_path / "tuning" / "journals").glob("*.jsonl")
            seen.append(record)
            assert read_records(journal) == seen

    search(tmp_path, progress=Telling(), budget="12trials", seed=7)
    assert len(seen) == 12
    assert {x.seed for x in seen} == {7} and {x.kind for x in seen} == {PROBLEM.kind.key}
    assert all(x.time.endswith("+00:00") and x.versions["clmatmul"] for x in seen)


def test_what_was_tried_is_skipped_also_if_it_failed(tmp_path, monkeypatch):
    crash = Trial(FAST, "crash", note="SIGSEGV")
    device = Device(monkeypatch, by_config({FAST: crash}))
    (first,) = search(tmp_path, strategy="random").problems
    count = len(device.tried)
    device.tried.clear()
    (second,) = search(tmp_path, strategy="random").problems
    assert device.tried == []
    assert (second.tried, second.skipped) == (0, count)
    assert second.statuses == first.statuses and second.statuses["crash"] == 1
    search(tmp_path, force=True, strategy="random")
    assert len(device.tried) == count


def test_another_kernel_text_another_size_and_another_device_are_tried_again(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({}))
    search(tmp_path, budget="5trials")
    for journal in (tmp_path / "tuning" / "journals").glob("*.jsonl"):
        text = journal.read_text()
        assert load_variant("tiled").digest in text
        journal.write_text(re.sub('"digest": "[0-9a-f]{64}"', '"digest": "changed"', text))
    assert search(tmp_path, budget="5trials").problems[0].skipped == 0
    other = plain_problem(97, 80, 64)
    assert search(tmp_path, other, budget="5trials").problems[0].skipped == 0
    device.profile = profile("nvidia-h200")
    assert search(tmp_path, budget="5trials").problems[0].skipped == 0


def test_an_earlier_best_takes_part_though_its_journal_is_gone(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({FAST: MS}))
    Path(search(tmp_path).journal).unlink()
    device.tried.clear()
    (found,) = search(tmp_path, budget="8trials").problems
    assert FAST in device.tried
    assert found.winner.config == FAST


def test_the_budget_ends_a_search(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({}))
    (found,) = search(tmp_path, budget="11trials").problems
    assert len(device.tried) == found.tried == 11
    assert found.stopped == "the budget of 11 trials was spent"


def test_a_budget_too_small_for_the_seeds_still_tries_the_default(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({}))
    (found,) = search(tmp_path, budget="1trials").problems
    assert device.tried == [untuned(device)[0].config] and found.winner is not None


def test_problems_share_the_budget(tmp_path, monkeypatch):
    Device(monkeypatch, by_config({}))
    report = search(tmp_path, [(32, 32, 32), (48, 48, 48), PROBLEM], budget="30trials")
    assert [x.tried for x in report.problems] == [10, 10, 10]
    assert len(read_records(report.best_file)) == 3


def test_ctrl_c_saves_ends_the_worker_and_keeps_a_clear_win(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({FAST: MS}))
    plain = device.landscape

    def landscape(config):
        if FAST in device.tried[:-1]:
            raise KeyboardInterrupt
        return plain(config)

    device.landscape = landscape
    report = search(tmp_path, [PROBLEM, (32, 32, 32)])
    (found,) = report.problems
    assert report.interrupted and found.stopped == "interrupted" and device.killed
    assert found.winner.config == FAST and "not yet compared" in found.verdict
    assert read_records(report.best_file)[0].config == FAST
    assert len(read_records(report.journal)) == len(device.tried) - 1 + 1  # and what is published


def test_ctrl_c_publishes_no_best_within_the_noise(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({FAST: 9.5 * MS}))
    plain = device.landscape

    def landscape(config):
        if FAST in device.tried[:-1]:
            raise KeyboardInterrupt
        return plain(config)

    device.landscape = landscape
    report = search(tmp_path)
    assert report.problems[0].winner is None and not Path(report.best_file).exists()
    assert str(FAST) in report.problems[0].verdict


def test_a_lost_device_stops_the_search_and_keeps_what_was_found(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({FAST: MS}))
    plain = device.landscape

    def landscape(config):
        if FAST in device.tried[:-1]:
            raise DeviceLost("the device does not work any more")
        return plain(config)

    device.landscape = landscape
    with pytest.raises(DeviceError, match="does not work any more"):
        search(tmp_path)
    best = walk.best_file(device.profile.key, tmp_path)
    assert read_records(best)[0].config == FAST and device.killed


def test_a_dry_run_tries_and_writes_nothing(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({}))
    report = search(tmp_path / "new", dry_run=True)
    (found,) = report.problems
    assert device.tried == [] and not (tmp_path / "new").exists()
    (survey,) = found.surveys
    space = SearchSpace([load_variant("tiled")], PROBLEM, device.profile)
    assert survey.checked == survey.combinations == found.combinations
    assert survey.valid == len(space)
    assert {("tiled", name): count for name, count in survey.rejections} == space.rejections
    text = str(report)
    assert f"{survey.valid} valid, most rejected by work_items <= profile.max_work" in text
    assert "0 known from earlier" in text and "untuned" in text


def test_a_survey_of_a_large_variant_is_an_estimate(monkeypatch):
    space = SearchSpace([load_variant("tiled")], PROBLEM, profile("tiny-embedded"))
    (exact,) = space.survey(random.Random(1))
    monkeypatch.setattr("clmatmul.space._ENUMERABLE", 200)
    (estimate,) = space.survey(random.Random(1))
    assert exact.checked == exact.combinations == estimate.combinations > estimate.checked == 200
    assert estimate.valid / 200 == pytest.approx(exact.valid / exact.checked, abs=0.15)
    assert estimate.rejections[0][0] == exact.rejections[0][0]


# ---- what goes in ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keywords, words",
    [
        ({"budget": "60"}, "60s, 5m, 1h, 200trials"),
        ({"budget": "1.5trials"}, "200trials"),
        ({"budget": "0s"}, "above 0"),
        ({"strategy": "psychic"}, "exhaustive, random"),
        ({"variants": ["nothing"]}, "there is no kernel variant 'nothing'"),
        ({"timeout": 0}, "seconds above 0"),
        ({"problems": []}, "name at least one"),
        ({"problems": [(1, 2)]}, r"write \(m, n, k\)"),
        ({"problems": [(1, 2, 0)]}, r"write \(m, n, k\)"),
        ({"problems": [(1, 2, "3")]}, r"write \(m, n, k\)"),
    ],
)
def test_bad_input_is_refused_before_a_worker_starts(tmp_path, monkeypatch, keywords, words):
    monkeypatch.setattr(tuner, "Trials", lambda *arguments: pytest.fail("a worker was started"))
    with pytest.raises(ArgumentError, match=words):
        search(tmp_path, **keywords)


def test_a_folder_that_cannot_be_written_is_found_before_a_worker_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(tuner, "Trials", lambda *arguments: pytest.fail("a worker was started"))
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseError, match="cannot be written"):
        search(tmp_path / "file")


def test_a_device_without_float64_tunes_no_float64(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({}), profile=profile("intel-iris-xe"))
    assert not device.profile.fp64
    with pytest.raises(UnsupportedError, match="float64"):
        search(tmp_path, plain_problem(8, 8, 8, "float64"))
    assert device.killed


def test_budgets():
    assert Budget.parse("60s") == Budget(60, None)
    assert Budget.parse("1.5m, 200trials") == Budget(90, 200)
    assert Budget.parse(["1h", "1 trial"]) == Budget(3600, 1)
    assert str(Budget(90.0, 200)) == "90 s or 200 trials" and str(Budget(None, 1)) == "1 trial"
    assert not Budget(60, 5).is_spent(59, 4)
    assert Budget(60, 5).is_spent(60, 0) and Budget(60, 5).is_spent(0, 5)
    assert Budget(60, 5).share(0.1) == Budget(6, 1)


def replayed(trial):
    return Replayed(trial.config, trial.status, trial.median_ns)


def replay(strategy, space, landscape, limit=10_000, seed=3):
    """The configurations that a strategy proposes on a landscape, in order."""
    seen = {}
    for batch in STRATEGIES[strategy](space, random.Random(seed), seen):
        assert batch and isinstance(batch, tuple)
        seen.update((x, replayed(landscape(x))) for x in batch if x not in seen)
        if len(seen) >= limit:
            break
    return list(seen)


@pytest.mark.parametrize("strategy", ["local", "random", "exhaustive"])
def test_a_batch_is_for_all_builders(strategy):
    space = SearchSpace([load_variant("tiled")], PROBLEM, profile())
    seen = {FAST: replayed(passed(FAST, MS))}
    assert len(next(STRATEGIES[strategy](space, random.Random(0), seen, 8))) == 8


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_proposes_valid_configurations_and_repeats_itself(strategy):
    space = SearchSpace([load_variant("tiled"), load_variant("naive")], PROBLEM, profile())
    limit = {"exhaustive": 10_000, "random": 10_000, "tpe": 24}.get(strategy, 60)
    one, other = (replay(strategy, space, towards(FAST), limit) for _ in range(2))
    assert one == other and all(x in space for x in one)
    if limit > 100:
        assert sorted(map(str, one)) == sorted(map(str, space))


@pytest.mark.parametrize("strategy, seeds", [("local", 3), ("tpe", 1)])
def test_a_strategy_that_learns_comes_near_in_few_trials(strategy, seeds):
    space = SearchSpace([load_variant("tiled")], PROBLEM, profile())
    landscape = towards(FAST, otherwise=1e9)
    for seed in range(seeds):
        found = replay(strategy, space, landscape, 60, seed)
        assert min(landscape(x).median_ns for x in found) <= 1.3 * MS


def test_local_search_leaves_a_local_optimum():
    space = SearchSpace([load_variant("tiled")], PROBLEM, profile())
    trap = TileConfig.of("tiled", tile_m=1, tile_n=1, tile_k=1)

    def landscape(config):
        return min(towards(FAST)(config), towards(trap, 2 * MS)(config), key=lambda x: x.median_ns)

    found = replay("local", space, landscape, 250)
    assert trap in found and FAST in found


def tried_by_local(slower, count):
    """What local search tries of `tiled` and `naive`, which nothing proposed, round FAST.

    All of tiled take twice its time, all of naive `slower` times.
    """
    space = SearchSpace([load_variant("tiled"), load_variant("naive")], PROBLEM, profile())
    seen = {FAST: replayed(passed(FAST, MS))}
    tried = []
    for batch in STRATEGIES["local"](space, random.Random(1), seen):
        for x in batch:
            seen[x] = replayed(passed(x, (slower if x.variant == "naive" else 2) * MS))
        tried += batch
        if len(tried) > count:
            return tried
    return tried


def test_local_search_leaves_kernels_that_nothing_proposed_for_later():
    tried = tried_by_local(slower=2, count=60)
    naive = [i for i, x in enumerate(tried) if x.variant == "naive"]
    assert 20 <= naive[0] <= 40 and len(naive) > 1
    assert tried[naive[0]] == load_variant("naive").default


def test_local_search_leaves_kernels_that_are_far_behind_for_later():
    tried = tried_by_local(slower=10, count=130)
    naive = [i for i, x in enumerate(tried) if x.variant == "naive"]
    assert len(naive) > 1 and naive[0] <= 40 and naive[1] >= 98


def test_a_kernel_whose_own_configuration_is_not_valid_is_introduced_by_another():
    within = {"tiled": {}, "naive": {"work_group_size": (8, 32)}}
    assert load_variant("naive").default.values()["work_group_size"] not in (8, 32)
    variants = [load_variant(x) for x in within]
    space = SearchSpace(variants, PROBLEM, profile(), within)
    assert space.default("naive") is None and space.default("tiled") in space
    seen = {FAST: replayed(passed(FAST, MS))}
    for batch in STRATEGIES["local"](space, random.Random(1), seen):
        seen.update((x, replayed(passed(x, 2 * MS))) for x in batch)
        if any(x.variant == "naive" for x in batch):
            break
    assert len(seen) <= 40


def made_landscape():
    space = SearchSpace([load_variant("tiled")], PROBLEM, profile())
    trials = {x: replayed(towards(FAST, otherwise=1e9)(x)) for x in space}
    trials[next(iter(space))] = Replayed(next(iter(space)), "crash", None)
    return Landscape.from_records("a device", str(PROBLEM), trials.values())


def test_a_landscape_travels_as_json_and_is_a_space():
    made = made_landscape()
    copy = Landscape.from_json(made.to_json())
    assert copy.trials.keys() == made.trials.keys() and copy.values == made.values
    assert copy.best_ns == MS and (copy.device, copy.problem) == ("a device", str(PROBLEM))
    assert [x.status for x in copy.trials.values()].count("crash") == 1
    assert set(copy.draw(random.Random(1))) == set(copy) and len(copy) == copy.combinations
    steps = {x.with_values(tile_m=4) for x in copy.neighbours(FAST.with_values(tile_m=8))}
    assert FAST in steps and all(x in copy for x in copy.neighbours(FAST))
    for text in ("", "{}", "[]", '{"schema": 2}', made.to_json()[:-5]):
        with pytest.raises(ArgumentError, match="not a landscape"):
            Landscape.from_json(text)


@pytest.mark.parametrize("strategy", ["local", "random", "exhaustive"])
def test_a_landscape_is_replayed(strategy):
    made = made_landscape()
    needed = simulate(made, strategy, 1)
    assert needed == simulate(made, strategy, 1) and 1 <= needed <= len(made)
    assert simulate(made, strategy, 1, limit=needed - 1) is None
    assert simulate(made, strategy, 1, enough=0.1) <= needed


def test_a_landscape_without_a_time_is_none():
    nothing = Landscape.from_records("x", "y", [Replayed(FAST, "crash", None)])
    assert simulate(nothing, "random") is None
    with pytest.raises(ArgumentError, match="nothing passed"):
        nothing.best_ns  # noqa: B018


def test_a_search_within_a_part_of_the_space(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({}))
    within = parse_within("tiled(tile_m=4|8, tile_n=8)")
    assert within == {"tiled": {"tile_m": (4, 8), "tile_n": (8,)}}
    (found,) = search(tmp_path, within=within, strategy="exhaustive", variants=None).problems
    searched = {x for x in device.tried if x.variant == "tiled"} - {
        x.config for x in untuned(device)
    }
    assert {x.values()["tile_m"] for x in searched} == {4, 8}
    assert {x.values()["tile_n"] for x in searched} == {8}
    assert len({x.values()["tile_k"] for x in searched}) > 3


@pytest.mark.parametrize(
    "text, words",
    [("tiled(tile_q=3)", "has no parameter tile_q"), ("tiled(tile_m=3)", "tile_m=3 is not one of"),
     ("gone", "there is no kernel variant"), ("tiled(tile_m)", "name=value"), ("(", "part of a")],
)  # fmt: skip
def test_parts_of_a_space_that_there_are_not(tmp_path, text, words):
    with pytest.raises(ArgumentError, match=words):
        search(tmp_path, within=parse_within(text), variants=None)


def test_a_batch_is_built_together_and_the_budget_is_kept(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({}))
    sizes = []
    plain = device.try_all
    device.try_all = lambda configs, best: sizes.append(len(configs)) or plain(configs, best)
    search(tmp_path, budget="23trials", strategy="random")
    assert len(device.tried) == 23 and max(sizes) > 1


def test_a_search_ends_when_nothing_is_gained_for_long(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({}))
    (found,) = search(tmp_path, strategy="local").problems
    assert found.stopped == "no gain is expected from more trials"
    assert 100 <= len(device.tried) < 200
    assert "would hardly" in found.outlook and "outlook" in str(found.to_dict())


def test_the_outlook_is_drawn_from_the_last_half_of_the_trials(tmp_path, monkeypatch):
    device = Device(monkeypatch, lambda config: passed(config, 10 * MS - 1e5 * len(device.tried)))
    (found,) = search(tmp_path, strategy="random", budget="40trials").problems
    assert found.outlook.startswith("the second half of the trials brought 3")
    device.tried.clear()
    (found,) = search(tmp_path / "other", strategy="random", budget="5trials").problems
    assert "too few" in found.outlook


def test_a_winner_that_fails_its_proof_is_recorded_and_the_next_one_serves(tmp_path, monkeypatch):
    second = TileConfig.of("tiled", tile_m=8, tile_n=8, tile_k=8)
    device = Device(monkeypatch, by_config({FAST: MS, second: 2 * MS}))
    device.faults[FAST] = "run 7 on the same operands gave different bits"
    report = search(tmp_path, strategy="random")
    (found,) = report.problems
    assert found.winner.config == second and device.proven == [FAST, second]
    failed = [x for x in read_records(report.journal) if x.status == "wrong_result"]
    assert [x.config for x in failed] == [FAST] and "as a winner: run 7" in failed[0].note
    assert FAST in [x.config for x in found.failures]


def test_random_gives_each_variant_its_turn_without_enumerating_a_large_space():
    space = SearchSpace(all_variants(), PROBLEM, profile())
    drawn = space.draw(random.Random(1))
    first = [next(drawn) for _ in range(60)]
    assert "configs" not in vars(space), "the space was enumerated"
    assert len(set(first)) == 60
    counts = Counter(config.variant for config in first)
    offered = [v for v in all_variants() if not v.unmet(PROBLEM.kind, profile())]
    assert set(counts) == {v.name for v in offered}
    for config in first:
        assert not load_variant(config.variant).reject(config, PROBLEM, profile())


def test_a_drawn_space_ends_when_all_was_drawn(monkeypatch):
    monkeypatch.setattr("clmatmul.space._ENUMERABLE", 20)
    space = SearchSpace([load_variant("tiled")], PROBLEM, profile("tiny-embedded"))
    assert space.combinations > 20
    drawn = list(space.draw(random.Random(1)))
    assert len(drawn) == len(set(drawn)) and set(drawn) == set(space)


def test_drawing_gives_up_on_a_very_large_space(monkeypatch):
    monkeypatch.setattr("clmatmul.space._ENUMERABLE", 20)
    monkeypatch.setattr("clmatmul.space._PATIENCE", 0)
    space = SearchSpace([load_variant("tiled")], PROBLEM, profile())
    drawn = list(space.draw(random.Random(1)))
    assert len(space) / 2 < len(drawn) == len(set(drawn)) < len(space)


def test_a_problem_travels_as_json():
    def view(*shape):
        strides = [1]
        for extent in reversed(shape[1:]):
            strides.insert(0, strides[0] * extent + 7)
        return ArrayView("float32", shape, tuple(strides), 0, 64)

    problem = Problem.from_arrays(
        view(3, 8, 5), view(3, 5, 6), view(3, 8, 6), c=view(3, 8, 6), alpha="general",
        beta="general", epilogue={"bias": view(6), "activation": "relu"}, reproducible=True,
    )  # fmt: skip
    for one in (problem, PROBLEM, plain_problem(1, 9, 9, "complex64", "TT", (2,))):
        copy = problem_from_dict(json.loads(json.dumps(problem_to_dict(one))))
        assert copy == one and copy.kind == one.kind and asdict(copy) == asdict(one)


def test_progress_in_a_log_is_a_line_for_each_improvement(tmp_path, monkeypatch, capsys):
    Device(monkeypatch, by_config({FAST: MS}))
    search(tmp_path, progress=PlainProgress())
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 3
    assert lines[0] == "tuning 96×80×64 float32 NN → float32: budget 400 trials"
    assert "best 0.1 GFLOP/s, NumPy 0.3" in lines[1]
    assert "best 1.0 GFLOP/s" in lines[2] and str(FAST) in lines[2]
    assert not set(err) & {"\x1b", "\r"}


@pytest.mark.parametrize("layout", ["NN", "TT"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64", "bool"])
def test_numpys_time_is_that_of_the_whole_product(monkeypatch, dtype, layout):
    seen = []
    real = np.matmul
    monkeypatch.setattr(np, "matmul", lambda a, b: seen.append((a, b)) or real(a, b))
    assert numpy_time_ns(plain_problem(12, 9, 7, dtype, layout, (2,))) > 0
    a, b = seen[-1]
    assert (a.shape, b.shape) == ((2, 12, 7), (2, 7, 9)) and a.dtype == b.dtype == dtype
    assert (a.strides[-1] == a.itemsize) == (layout == "NN")


def test_a_product_that_takes_numpy_long_is_timed_in_part(monkeypatch):
    rows = []
    row_ns = [0]

    def timed(call, flops, **keywords):
        call()
        # fewer than eight rows take as long as eight
        return Measurement((), (max(rows[-1], 8) * row_ns[0],), flops)

    monkeypatch.setattr(np, "matmul", lambda a, b: rows.append(len(a)))
    monkeypatch.setattr(host_time, "measure_host", timed)
    monkeypatch.setattr(host_time, "_FIRST_PART_FLOPS", 2 * 2 * 50 * 50)

    def time_of(m, ns):
        rows.clear()
        row_ns[0] = ns
        return numpy_time_ns(plain_problem(m, 50, 50))

    assert time_of(60, 2 * MS) == 120 * MS
    assert rows == [2, 60]  # at most 0.48 s: the whole is run
    assert time_of(60, 10 * MS) == 600 * MS
    assert rows == [2, 8, 60]  # two rows said 2.4 s, eight 0.6 s
    assert time_of(200, 10 * MS) == 2000 * MS
    assert rows == [2, 8, 32, 128]  # 1.28 s of it are long enough to be believed
    monkeypatch.setattr(host_time, "_TELLING_ROWS", 32)
    assert time_of(200, 10 * MS) == 2000 * MS
    assert rows == [2, 8, 32]
