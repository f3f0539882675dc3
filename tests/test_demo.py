"""The demo: real data, verified, and the bound that such data needs."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import clmatmul
from clmatmul import demo, reference
from clmatmul.cli.main import main


def test_a_sum_of_one_number_needs_the_bound_for_any_data():
    # Added one after the other in float32, as every straightforward kernel does.
    a = np.full((1, 100_000), np.float32(0.1))
    b = np.ones((100_000, 1), np.float32)
    result = np.add.accumulate(a[0], dtype=np.float32)[-1:].reshape(1, 1)
    names = dict(compute="float32", out="float32")
    value = reference.evaluate(a, b, result="float32", **names)

    def ratio(any_data):
        allowed = reference.allowed_error(a, b, value, any_data=any_data, **names)
        return reference.error_ratio(result, value, allowed)

    assert ratio(any_data=False) > 1
    assert 0 < ratio(any_data=True) <= 1


def test_the_digits_are_those_of_the_archive():
    digits = demo.load_digits()
    assert (digits.shape, digits.dtype) == ((1797, 64), np.uint8)
    assert (digits.min(), digits.max(), int(digits.sum())) == (0, 16, 561718)
    assert digits[0, :8].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    """(exit code, report, standard error, home) of `demo --json` of a new user, in a process."""
    home = tmp_path_factory.mktemp("home")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CLMATMUL", "XDG"))}
    environment["HOME"] = str(home)
    environment["PYTHONPATH"] = os.path.dirname(os.path.dirname(clmatmul.__file__))
    done = subprocess.run(
        [sys.executable, "-m", "clmatmul", "demo", "--json", "--budget", "3"],
        env=environment, cwd=home, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout), done.stderr, home


def test_demo_of_a_new_user_is_verified_and_quick(demo_run):
    code, found, err, home = demo_run
    assert (code, found["ok"], found["schema"]) == (0, True, 1)
    assert found["seconds"] < 120
    assert [x["product"] for x in found["checks"]] == ["Gram matrix", "covariance"]
    for x in (*found["checks"], *found["timings"]):
        assert 0 <= x["error_ratio"] <= 1
    assert [x["name"] for x in found["timings"]] == ["untuned", "tuned", "NumPy"]
    assert "\x1b" not in err and "\r" not in err


def test_demo_explains_the_variance_as_numpy_does(demo_run):
    pixels = demo.load_digits().astype(float)
    eigenvalues = np.linalg.eigvalsh(np.cov(pixels.T))[::-1]
    expected = (eigenvalues / eigenvalues.sum())[:8]
    assert np.allclose(demo_run[1]["explained"], expected, rtol=1e-5)


def test_demo_leaves_a_record_that_products_use(demo_run):
    _, found, _, home = demo_run
    assert str(home) in found["record_file"]
    records = clmatmul.database.read_records(found["record_file"])
    assert [str(x.config) for x in records] == [found["timings"][1]["kernel"]]
    assert found["timings"][0]["origin"].split(":")[0] == "heuristic"
    assert found["timings"][1]["origin"].split(":")[0] == "tuned"


REPORT = demo.DemoReport(
    device="a device",
    data=demo.ATTRIBUTION,
    shape=(1797, 64),
    checks=(demo.Check("Gram matrix", (1797, 1797), 0.5),),
    explained=(0.6, 0.3),
    tried=7,
    known=2,
    verdict="the default is the fastest",
    record_file="/home/best.jsonl",
    timings=(demo.Timing("tuned", 0.01, 41.3, 1.5, 1.2, 2.0, 15, 0.5, "naive", "tuned: recorded"),),
    seconds=30.0,
)


@pytest.mark.parametrize("ratio", [0.5, 1.5, float("inf"), float("nan")])
def test_a_wrong_result_is_exit_code_5(monkeypatch, capsys, ratio):
    report = replace(REPORT, checks=(demo.Check("covariance", (64, 64), ratio),))
    monkeypatch.setattr("clmatmul.cli.demo.run_demo", lambda *given: report)
    code, out = main(["demo"]), capsys.readouterr().out
    assert code == (0 if ratio == 0.5 else 5)
    assert ("WRONG" in out) == (ratio != 0.5)
    assert ("Every result is right" in out) == (ratio == 0.5)
    assert all(c == "\n" or c.isprintable() for c in out)
    for text in ("CC BY 4.0", "60.0%", "90.0%", "tuned: recorded", "1.20 to 2.00", "7 conf"):
        assert text in out


def test_interrupted_while_tuning(monkeypatch, capsys):
    class Report:
        interrupted = True

    monkeypatch.setattr(demo, "tune", lambda *given, **keywords: Report())
    assert main(["demo"]) == 130
    assert capsys.readouterr() == ("", "clmatmul: interrupted\n")


def test_budget_must_be_a_time(capsys):
    assert main(["demo", "--budget", "soon"]) == 2
    assert "'soon' is not a number of seconds" in capsys.readouterr().err
