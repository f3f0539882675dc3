"""The search itself, on made-up devices: what is tried, recorded and skipped, and when it ends."""

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from made_up_devices import (
    FAST,
    MS,
    PROBLEM,
    Device,
    by_config,
    passed,
    profile,
    search,
    towards,
    untuned,
)

from clmatmul import walk
from clmatmul.database import TuningDatabase, read_records
from clmatmul.errors import DeviceError
from clmatmul.explanation import plain_problem
from clmatmul.space import SearchSpace
from clmatmul.trial import Trial
from clmatmul.tune import tuner
from clmatmul.tune.progress import PlainProgress
from clmatmul.tune.trials import DeviceLost
from clmatmul.variants import load_variant


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


def test_nothing_passed(tmp_path, monkeypatch):
    device = Device(monkeypatch, lambda config: Trial(config, "wrong_result", note="NaN"))
    report = search(tmp_path)
    assert not report.ok and report.problems[0].winner is None
    assert report.problems[0].verdict == "no configuration passed"
    assert device.tried.count(untuned(device)[-1].config) == 1  # the safe one, too
    assert not Path(report.best_file).exists()
    assert len(read_records(report.journal)) == len(device.tried)


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
