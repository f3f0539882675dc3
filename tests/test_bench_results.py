"""The arithmetic of bench on made-up times: figures, ratios, means, comparisons with a run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from clmatmul.bench_compare import compare_runs, read_run
from clmatmul.bench_results import Bench, Figures, Ratio, Row, geometric_mean, means_of
from clmatmul.bench_suites import SUITES, Entry, entries_of, left_out
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import ArgumentError


def test_figures_are_of_the_best_call_and_of_the_turns_medians():
    found = Figures.of([(5.0, 4.0, 6.0), (3.0, 9.0, 8.0), (7.0,)])
    assert found == Figures(best_ns=3.0, median_ns=7.0, spread_ns=3.0, calls=7)
    assert found.to_dict(flops=21)["gflops_best"] == 7.0
    assert found.to_dict(flops=21)["gflops"] == 3.0


def test_a_ratio_is_of_the_best_calls_and_of_rounds():
    ratio = Ratio.of(ours=[(2.0, 4.0, 4.0), (8.0,)], baseline=[(8.0, 8.0, 1.0), (8.0, 8.0)])
    assert ratio.best == 1.0 / 2.0
    assert ratio.rounds.ratio == (8 / 4 + 8 / 8) / 2
    values = ratio.to_dict()
    assert values["best"] == 0.5 and values["median"] == 1.5 and values["rounds"] == 2
    assert "ratio" not in values and values["verdict"] == "too close to call"


def test_the_geometric_mean():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([0.5]) == pytest.approx(0.5)
    assert geometric_mean([1e-200, 1e200, 8.0]) == pytest.approx(2.0)


def ratio(best):
    return Ratio.of([(1.0,)], [(best,)])


def row(suite="square", n=8, baseline="numpy", **ratios):
    times = {x: Figures(1.0, 2.0, 0.0, 3) for x in ("launches", "device", "host", "baseline")}
    return Row(
        entry=Entry(n, n, n, suite=suite), baseline=baseline, config="naive(work_group_size=1)",
        origin="safe", flops=2 * n**3, times=times,
        ratios={name: ratio(best) for name, best in ratios.items()}, error_ratio=0.5,
    )  # fmt: skip


def test_means_are_of_a_suite_and_baseline_and_overall():
    rows = [
        row(launches=2, device=1, host=0.5),
        row(n=9, launches=8, device=4, host=0.5),
        row("types", launches=4, device=2, host=1),
        row("types", n=9, baseline="own float32", launches=0.5, device=0.25),
    ]
    means = means_of(rows)
    assert list(means) == ["square", "types", "overall"]
    assert means["square"] == {"numpy": pytest.approx({"launches": 4, "device": 2, "host": 0.5})}
    assert means["types"]["own float32"] == pytest.approx({"launches": 0.5, "device": 0.25})
    assert means["overall"]["numpy"] == pytest.approx(
        {"launches": 4, "device": 2, "host": 0.25 ** (1 / 3)}
    )
    assert "overall" not in means_of(rows[:2]) and means_of([]) == {}


# ---- suites ---------------------------------------------------------------------------------


def test_the_suites():
    every = entries_of(["all"])
    assert list(dict.fromkeys(x.suite for x in every)) == list(SUITES)
    names = [(x.suite, x.name) for x in every]
    assert len(set(names)) == len(names)
    assert {x.m for x in every if x.suite == "square"} == {96, 128, 192, 256, 512, 1000, 1024, 2048}
    assert {x.layout for x in every if x.suite == "layouts"} == {"NN", "NT", "TN", "TT"}
    assert (4096, 1, 4096) in [(x.m, x.n, x.k) for x in every if x.suite == "skinny"]
    assert ((65536,), 4) in [(x.batch, x.m) for x in every if x.suite == "batched"]
    blas = {"float32", "float64", "complex64", "complex128"}
    assert all((x.against is None) == (x.dtype in blas) for x in every)


def test_suites_come_in_the_order_asked_for_and_once():
    wanted = [x.suite for x in entries_of(["small", "square", "small"])]
    assert list(dict.fromkeys(wanted)) == ["small", "square"]
    assert wanted.count("small") == len(SUITES["small"][1]())


@pytest.mark.parametrize("names", [["squares"], ["small", ""], []])
def test_an_unknown_suite(names):
    with pytest.raises(ArgumentError, match="square, ragged, skinny, small, batched"):
        entries_of(names)


def test_names_tell_entries_apart():
    assert Entry(4, 5, 6).name == "4×5×6 float32 NN"
    assert Entry(4, 5, 6, batch=(7,), layout="TN", out_order="F").name == (
        "7×4×5×6 float32 TN out F"
    )
    assert Entry(4, 5, 6, "int8", accumulate="int32").name == "4×5×6 int8→int32 NN"


def profile(**facts):
    text = (Path(__file__).parent / "profiles" / "tiny-embedded.json").read_text()
    return replace(DeviceProfile.from_json(text), **facts)


def test_what_a_device_cannot_hold_is_left_out():
    assert left_out(Entry(4, 4, 4, "complex128"), profile(fp64=False)) == (
        f"{profile().title} has no float64"
    )
    assert left_out(Entry(4, 4, 4, "complex128"), profile(fp64=True)) is None
    assert left_out(Entry(4, 4, 4), profile(fp64=False)) is None


# ---- comparing with an earlier run ----------------------------------------------------------


def run(*rows, **facts):
    """As JSON holds it, which is what is compared."""
    values = Bench(profile(**facts), {"numpy": "2"}, "numpy", 3, rows).to_dict()
    return json.loads(json.dumps({"schema": 1, "command": "bench", **values}))


def test_changes_are_new_by_old():
    old = run(row(device=1.0, host=0.8), row(n=9, device=2.0, host=1.0))
    new = run(row(device=0.95, host=0.8), row(n=9, device=2.0, host=0.5))
    found = compare_runs(old, new, 0.1)
    first, second = found.changes
    assert first.changes == pytest.approx({"device": 0.95, "host": 1.0})
    assert second.changes == pytest.approx({"device": 1.0, "host": 0.5})
    assert found.slower == (second,)
    values = found.to_dict()
    assert values["slower"] == 1 and values["tolerance"] == 0.1
    assert [x["slower"] for x in values["cases"]] == [False, True]
    assert values["cases"][1]["old"]["host"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "tolerance, new, slower", [(0.1, 0.91, 0), (0.1, 0.89, 1), (0.0, 0.999, 1), (0.5, 0.51, 0)]
)
def test_the_tolerance(tolerance, new, slower):
    found = compare_runs(run(row(device=1.0)), run(row(device=new)), tolerance)
    assert len(found.slower) == slower


def test_launches_alone_are_no_failure():
    old, new = run(row(launches=1.0, device=1.0)), run(row(launches=0.1, device=1.0))
    assert compare_runs(old, new).slower == ()


def test_what_is_in_one_run_only_or_has_another_baseline_is_no_failure():
    old = run(row(device=1), row(n=9, device=9), row(n=10, device=9))
    new = run(row(device=1), row(n=9, baseline="clblast", device=1), row(n=11, device=1))
    found = compare_runs(old, new)
    assert {x.case.split("×")[0]: x.reason for x in found.changes} == {
        "8": None, "9": "was compared with numpy", "11": "not in the earlier run",
        "10": "only in the earlier run",
    }  # fmt: skip
    assert found.slower == () and found.changes[1].changes == {}


def test_another_device_is_named():
    new = run(row(device=1))
    assert compare_runs(run(row(device=1)), new).other_device is None
    other = compare_runs(run(row(device=1), driver_version="7"), new).other_device
    assert other == profile().title


def test_runs_without_a_common_case():
    with pytest.raises(ArgumentError, match="no case in common"):
        compare_runs(run(row(device=1)), run(row(n=9, device=1)))


def test_a_tolerance_out_of_range():
    with pytest.raises(ArgumentError, match="at least 0 and less than 1"):
        compare_runs(run(row(device=1)), run(row(device=1)), 1.0)


def test_a_run_is_read_back(tmp_path):
    file = tmp_path / "run.json"
    file.write_text(json.dumps(run(row(device=1, host=2))))
    assert read_run(file) == run(row(device=1, host=2))


@pytest.mark.parametrize(
    "text, words",
    [
        (None, "No such file"),
        ("{", "Expecting"),
        ("[1]", "no result of bench"),
        ('{"command": "tune", "schema": 1, "rows": []}', "no result of bench"),
        ('{"command": "bench", "schema": 2, "rows": []}', "no result of bench"),
        ('{"command": "bench", "schema": 1}', "no result of bench"),
        ('{"command": "bench", "schema": 1, "rows": [{"case": "x"}]}', "cannot be read"),
        (
            '{"command": "bench", "schema": 1, "rows": [{"case": "x", "suite": "s", "baseline": '
            '"numpy", "ratios": {"device": {"best": 0}}}]}',
            "not positive",
        ),
    ],
)
def test_a_file_that_is_no_run(tmp_path, text, words):
    file = tmp_path / "run.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ArgumentError, match=words):
        read_run(file)
