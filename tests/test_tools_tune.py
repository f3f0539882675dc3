"""The tools that measure the tuner: steps that go on, the shapes, and one small run of each."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from clmatmul.choose import checked
from clmatmul.config import TileConfig
from clmatmul.device_profile import DeviceProfile
from clmatmul.explanation import plain_problem
from clmatmul.space import parse_within
from clmatmul.variants import load_variant

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import build_bench  # noqa: E402
import compare_choices  # noqa: E402
import steps  # noqa: E402
import timed_part  # noqa: E402
import tune_experiment  # noqa: E402
import tune_gain  # noqa: E402

CSV = "name,batch,m,n,k,transpose_a,transpose_b\n" + "".join(
    f"shape,{1 + i % 2},{8 + i},16,24,{i % 2},0\n" for i in range(90)
)


def test_steps_go_on_where_an_earlier_call_was_ended(tmp_path):
    made = []
    wanted = [(str(i), lambda i=i: made.append(i) or {"value": i}) for i in range(4)]
    path = tmp_path / "new" / "journal.jsonl"
    quiet = {"say": lambda text: None}
    assert steps.run_steps(steps.Journal(path), wanted[:2], 60, **quiet) == 0
    with open(path, "a") as file:
        file.write('{"step": "2", "fou')  # the call was killed
    assert steps.run_steps(steps.Journal(path), wanted, 60, **quiet) == 0
    assert made == [0, 1, 2, 3]
    assert steps.Journal(path).found == {str(i): {"value": i} for i in range(4)}


def test_no_step_is_begun_without_the_time_for_it(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(steps.time, "monotonic", lambda: clock[0])

    def take(seconds, found):
        clock[0] += seconds
        return found

    pieces = iter([None, None, {"x": 1}])
    wanted = [("long", lambda: take(40, next(pieces))), ("next", lambda: take(1, {}))]
    journal = steps.Journal(tmp_path / "journal")
    assert steps.run_steps(journal, wanted, 100, say=lambda text: None) == 2
    assert clock[0] == 80 and not journal.found  # twice, and a third time would not have ended
    assert steps.run_steps(journal, wanted, 100, say=lambda text: None) == 0


def test_forty_shapes_are_spread_over_the_file(tmp_path):
    (tmp_path / "shapes.csv").write_text(CSV + "too large,1,4000,4000,4000,0,0\n")
    found = [problem for _, problem in tune_gain.shapes(tmp_path / "shapes.csv")]
    assert len(found) == len(set(found)) == 40
    assert [x.flops for x in found] == sorted(x.flops for x in found)
    assert found[0].m == 8 and found[-1].flops < 5e9 and found[-1].batch_count == 2


@pytest.mark.parametrize("name", tune_gain.PARTS)
def test_the_parts_of_the_space_are_there(name):
    more = tune_gain.NARROW.get(name, ()) + tune_gain.SMALL.get(name, ())
    for text in tune_gain.PARTS[name] + more:
        ((variant, wanted),) = parse_within(text).items()
        allowed = load_variant(variant).all_parameters()
        assert set(wanted) <= set(allowed)
        for parameter, values in wanted.items():
            assert set(values) <= set(allowed[parameter]), (variant, parameter)


def test_only_what_is_to_be_run_is_compiled_where_a_part_was_gone_through(tmp_path):
    """On a GPU: the fastest of it, and what would be chosen."""
    text = (ROOT / "tests" / "profiles" / "nvidia-h200.json").read_text()
    profile, problem = DeviceProfile.from_json(text), plain_problem(512, 2, 512)
    journal = steps.Journal(tmp_path / "journal.jsonl")
    every = tune_gain._to_be_run("h200", "a", problem, profile, journal)
    assert every == tune_gain.candidates("h200", problem, profile)
    journal.add("a, part", {"configs": [str(every[-1])]})
    few = tune_gain._to_be_run("h200", "a", problem, profile, journal)
    assert few[0] == every[-1] and every[0] in few and len(few) < len(every) / 3


def test_every_landscape_has_its_problem():
    known = tune_experiment.problems("pocl")
    files = sorted((ROOT / "tests" / "landscapes").glob("pocl-*.json"))
    found = {tune_experiment.Landscape.from_json(x.read_text()).problem for x in files}
    assert len(files) == 10 and found == set(known)


def test_what_was_compared_is_summed_up():
    row = {"heuristic": 0.5, "default": 0.5, "tuned": 1.0, "tuned_slower_than_default": False}
    other = {**row, "default": 0.98, "tuned_slower_than_default": True}
    found = {"0 a, compared": row, "1 b, compared": other, "1 b, part": {}}
    lines = tune_gain.summary(found)
    assert "compared: default ÷ best 0.700 (geometric mean of 2)" in lines
    assert "compared: tuned ÷ best 1.000 (geometric mean of 2)" in lines
    assert lines[-1] == "slower than untuned: 1 b, compared"
    assert tune_gain.summary({}) == ["nothing is compared yet"]
    runs = {"a, run 0, compared": {"ratio": 0.94}, "a, run 1, compared": {"ratio": 0.96}}
    assert "1 of 2 runs have 0.95" in tune_experiment.summary(runs)[-1]


def test_the_fastest_is_ahead_round_by_round():
    """In four rounds of five b is ahead of a, but its median is the higher one."""
    times = {"a": [10, 10, 10, 20, 20], "b": [9, 9, 12, 19, 19], "c": [30, 30, 30, 30, 30]}
    assert tune_gain.fastest(times) == "b"
    assert tune_gain.fastest({"a": times["a"], "c": times["c"]}) == "a"
    circle = {"a": [1, 2, 3], "b": [2, 3, 1], "c": [3, 1, 2]}
    assert tune_gain.fastest(circle) in circle


def test_going_through_a_part_ranks_what_works_and_keeps_what_failed(device):
    problem = plain_problem(40, 30, 20)
    good = [TileConfig.parse(f"tiled(tile_m={x}, tile_n={x})") for x in (4, 16)]
    good = [checked(x, problem, device.profile) for x in good]
    bad = good[0].with_values(tile_m=3)
    found = timed_part.go_through(device, problem, [good[0], bad, good[1]])
    assert {x for x, _ in found.ranked} == set(good)
    assert [ns for _, ns in found.ranked] == sorted(ns for _, ns in found.ranked)
    assert [x for x, _ in found.failed] == [bad] and "tile_m" in found.failed[0][1]
    assert timed_part.compile_all(device, problem, [*good, bad]) == 1


def test_only_what_is_right_is_kept(device, monkeypatch):
    problem = plain_problem(40, 30, 20)
    good = checked("tiled(tile_m=8, tile_n=8)", problem, device.profile)
    wrong = checked("naive(work_group_size=1)", problem, device.profile)
    real = timed_part.Workload.result

    def result(self, executable):
        found = real(self, executable)
        return found if executable.plan.config == good else np.zeros_like(found)

    monkeypatch.setattr(timed_part.Workload, "result", result)
    assert timed_part.right_ones(device, problem, [wrong, good]) == [good]


def test_what_is_slow_is_left_after_one_run(monkeypatch):
    runs = []

    def run(i):
        runs.append(i)
        return None, None

    def timed_run(run, i, events):
        run(i)
        return 1e7, 1e7

    monkeypatch.setattr(timed_part.devices, "wait", lambda events: None)
    monkeypatch.setattr(timed_part, "timed_run", timed_run)
    workload = SimpleNamespace(has_events=True)
    assert timed_part._least_ns(workload, run, 1e6) == 1e7
    assert len(runs) == 2  # one to warm up
    assert timed_part._least_ns(workload, run, 9e6) == 1e7 and len(runs) == 2 + 7


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_tool_measures(device, tmp_path, monkeypatch, capsys):
    """Two minutes on two cores."""
    if not device.profile.is_cpu:
        pytest.skip("about CPUs")
    assert build_bench.main([str(tmp_path / "b.jsonl"), "--count", "4", "--seconds", "300"]) == 0
    assert "times as fast" in capsys.readouterr().out
    monkeypatch.setitem(tune_gain.PARTS, "pocl", ("cpu_dot(micro_m=1, micro_n=1, splits=1)",))
    (tmp_path / "shapes.csv").write_text(CSV)
    arguments = ["pocl", str(tmp_path / "shapes.csv"), str(tmp_path / "gain"), "--shapes", "0:1"]
    assert tune_gain.main([*arguments, "--compile"]) == 0
    assert "0 failed" in capsys.readouterr().out
    assert tune_gain.main([*arguments, "--budget", "3trials", "--seconds", "300"]) == 0
    assert "compared: tuned ÷ best" in capsys.readouterr().out
    file = str(ROOT / "tests" / "landscapes" / "pocl-2000x32x128-float64.json")
    monkeypatch.setattr(tune_experiment, "RUNS", 1)
    arguments = ["pocl", str(tmp_path / "runs"), file, "--budget", "3trials", "--seconds", "300"]
    assert tune_experiment.main(arguments) == 0
    assert "of 1 runs have 0.95" in capsys.readouterr().out


def test_choices_of_two_checkouts_are_compared_where_they_differ(
    device, tmp_path, monkeypatch, capsys
):
    if not device.profile.is_cpu:
        pytest.skip("the configurations are a CPU's")
    file = tmp_path / "shapes.csv"
    file.write_text("m,n,k,layout\n30,40,50,NT\n9,10,11,NN\n")
    same = compare_choices.choices(ROOT, file, "float32")
    assert len(same) == 2 and all(x.startswith("cpu_") for x in same)
    old = ["cpu_packed(micro_m=6)", same[1]]
    monkeypatch.setattr(
        compare_choices, "choices", lambda checkout, *_: old if checkout == tmp_path else same
    )
    assert compare_choices.main([str(tmp_path), str(file), "--each", "0.01"]) == 0
    worst, counts, mean = capsys.readouterr().out.splitlines()
    assert "30×40×50" in worst and "cpu_packed(micro_m=6) -> " in worst
    assert counts == "2 products, 1 choices differ, 1 compared" and mean.startswith("old ÷ new ")
    monkeypatch.setattr(compare_choices, "right_ones", lambda *_: [])
    with pytest.raises(RuntimeError, match="wrong result of 30×40×50"):
        compare_choices.main([str(tmp_path), str(file)])
