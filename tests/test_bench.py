"""bench: what it times, in which order, and that no wrong result is ever timed as if right."""

import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import skip_without_fp64
from processes import environment

import clmatmul
from clmatmul import bench as benching
from clmatmul import walk
from clmatmul.bench import bench
from clmatmul.errors import ArgumentError, VerificationError
from clmatmul.tune import tune


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(benching, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(benching, "_TURN_NS", 1)


def test_a_row_for_each_size_and_dtype(device):
    skip_without_fp64(device, "float64")
    told = []
    found = bench([24, (7, 33, 12)], ["float32", "float64"], rounds=3, device=device,
                  told=told.append)  # fmt: skip
    assert tuple(told) == found.rows
    assert [(row.problem.a.dtype, row.problem.m, row.problem.n) for row in found.rows] == [
        ("float32", 24, 24), ("float32", 7, 33), ("float64", 24, 24), ("float64", 7, 33),
    ]  # fmt: skip
    for row in found.rows:
        assert row.ratio.rounds == row.device_ratio.rounds == 3
        assert 0 <= row.error_ratio <= 1
        assert row.origin in ("tuned", "shipped", "nearest", "heuristic", "safe")
        for figures in (row.device, row.host, row.numpy):
            assert 0 < figures.best_ns <= figures.median_ns
        assert row.best_ratio == row.numpy.best_ns / row.host.best_ns
    assert found.profile == device.profile and found.versions["numpy"] == np.__version__


@pytest.mark.parametrize("layout", ["NT", "TN", "TT"])
def test_layouts_are_those_of_the_operands(device, layout):
    (row,) = bench([(9, 11, 13)], ["int32"], layout=layout, rounds=1, device=device).rows
    assert row.problem.kind.layout == layout and row.error_ratio == 0


def test_contestants_take_turns(device, monkeypatch):
    order = []
    plain = np.matmul
    monkeypatch.setattr(np, "matmul", lambda *a: order.append("numpy") or plain(*a))
    timed = benching.timed_run
    monkeypatch.setattr(
        benching, "timed_run", lambda *a, **k: order.append("device") or timed(*a, **k)
    )
    call = clmatmul.MatMul.__call__
    monkeypatch.setattr(clmatmul.MatMul, "__call__", lambda *a: order.append("matmul") or call(*a))
    bench([16], rounds=2, device=device)
    turn = ["numpy", "matmul", "device"]
    assert order[-6:] == turn + turn[::-1]


@pytest.fixture
def own_database(tmp_path, monkeypatch):
    """A database of the test's own, forgotten afterwards."""
    with monkeypatch.context() as patched:
        patched.setenv("CLMATMUL_DB", str(tmp_path))
        walk.forget()
        yield
    walk.forget()


def test_the_origin_of_a_tuned_choice_is_shown(device, own_database):
    tune((19, 23, 29), device.profile, budget="1trials", variants=["naive"])
    (row,) = bench([(19, 23, 29)], rounds=1, device=device).rows
    assert row.origin == "tuned"


def test_a_wrong_result_ends_the_benchmark(device, monkeypatch):
    call = clmatmul.MatMul.__call__
    calls = []

    def wrong(self, a, b):
        calls.append(1)
        result = call(self, a, b)
        if len(calls) > 4:
            result[-1, -1] += 100
        return result

    monkeypatch.setattr(clmatmul.MatMul, "__call__", wrong)
    with pytest.raises(VerificationError, match="error is"):
        bench([16], rounds=5, device=device)


def test_rounds_are_checked(device):
    with pytest.raises(ArgumentError, match="at least 1"):
        bench([8], rounds=0, device=device)


# ---- the command line -----------------------------------------------------------------------


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "clmatmul", "bench", *arguments], capture_output=True, text=True,
        env=environment(), timeout=120,
    )  # fmt: skip


def test_the_table(device):
    process = command("--sizes", "8,16x24x32", "--rounds", "2")
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert lines[0].startswith("device  ") and device.profile.driver_version in lines[0]
    assert "numpy" in lines[1] and "2 rounds" in lines[1]
    assert lines[3].split()[:2] == ["size", "dtype"]
    assert lines[4].split()[:2] == ["8×8×8", "float32"]
    assert lines[5].split()[:2] == ["16×24×32", "float32"]
    assert process.stderr == "" and "\x1b" not in process.stdout


def test_json(device):
    process = command("--sizes", "8", "--dtypes", "float32,int16", "--rounds", "1", "--json")
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert found["schema"] == 1 and found["command"] == "bench"
    assert [row["dtype"] for row in found["rows"]] == ["float32", "int16"]
    row = found["rows"][0]
    assert row["host"]["gflops"] == pytest.approx(2 * 8**3 / row["host"]["median_ns"])
    assert {"best_ratio", "ratio", "device_ratio", "origin", "config", "error_ratio"} <= set(row)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--sizes", "8,x"], "'x' is neither a size nor MxNxK"),
        (["--sizes", "8x9"], "'8x9' is neither"),
        (["--sizes", "0"], "is not from 1"),
        (["--sizes", ""], "'' is neither"),
        (["--dtypes", "float32,float7"], "float7"),
        (["--rounds", "0"], "no number from 1"),
        (["--layout", "AB"], "invalid choice"),
    ],
)
def test_mistakes(arguments, words):
    process = command(*arguments)
    assert process.returncode == 2 and process.stdout == ""
    assert words in process.stderr and len(process.stderr.splitlines()) == 1
