"""Lists of problems: files, suites, ranges, recorded applications; budgets in proportion."""

import json

import pytest

from clmatmul.errors import ArgumentError
from clmatmul.explanation import plain_problem
from clmatmul.problem_json import problem_to_dict
from clmatmul.tune.budget import Budget
from clmatmul.tune.shapes import SUITES, read_shapes, size_range, suite
from clmatmul.tune.tuner import _each, _shares


def test_a_csv_with_names(tmp_path):
    file = tmp_path / "shapes.csv"
    file.write_text(
        "name,batch,m,n,k,transpose_a,transpose_b\n# a note\n"
        "one,1,128,768,64,0,1\ntwo,12,64,64,32,1,0\none again,1,128,768,64,0,1\n"
    )
    first, second = read_shapes(file)
    assert first.problem == plain_problem(128, 768, 64, layout="NT") and first.weight == 2
    assert second.problem == plain_problem(64, 64, 32, layout="TN", batch=(12,))
    file.write_text("m,n,k,dtype,layout,weight\n8,9,10,float64,TT,2.5\n")
    (only,) = read_shapes(file)
    assert (only.problem, only.weight) == (plain_problem(8, 9, 10, "float64", "TT"), 2.5)


def test_plain_lines(tmp_path):
    file = tmp_path / "shapes.txt"
    file.write_text("# m n k\n8 9 10\n8x9x11\n3 8 9 10\n")
    found = [x.problem for x in read_shapes(file, "float64", "NT")]
    assert found == [
        plain_problem(8, 9, 10, "float64", "NT"), plain_problem(8, 9, 11, "float64", "NT"),
        plain_problem(8, 9, 10, "float64", "NT", (3,)),
    ]  # fmt: skip


def test_what_an_application_recorded_is_weighted_by_its_time(tmp_path):
    file = tmp_path / "shapes.jsonl"
    one, other = plain_problem(8, 9, 10), plain_problem(16, 9, 10)
    lines = [(one, 5, 1.0), (other, 1, 4.0), (one, 5, 1.0)]
    file.write_text("".join(
        json.dumps({"schema": 1, "problem": problem_to_dict(p), "calls": c, "seconds": s}) + "\n"
        for p, c, s in lines
    ))  # fmt: skip
    assert [(x.problem, x.weight) for x in read_shapes(file)] == [(other, 4.0), (one, 2.0)]


@pytest.mark.parametrize(
    "text, words",
    [("", "names no product"), ("m,n,k\n", "names no product"), ("1 2\n", "line 1: '1 2' is not"),
     ("m,n,k\n1,0,3\n", "line 2: '0' is no size"), ("m,n,k,dtype\n1,1,3,float7\n", "float7"),
     ("m,n,k,layout\n1,1,3,XY\n", "'XY' is none"), ("m,n,k,weight\n1,1,3,-1\n", "above 0")],
)  # fmt: skip
def test_files_that_are_not_understood(tmp_path, text, words):
    file = tmp_path / "shapes.csv"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=words):
        read_shapes(file)
    with pytest.raises(ArgumentError, match="cannot be read"):
        read_shapes(tmp_path / "missing.csv")


def test_ranges():
    assert size_range("64") == [64]
    assert size_range("64,7") == [64, 7]
    assert size_range("64:256:64") == [64, 128, 192, 256]
    assert size_range("64:1000:x2") == [64, 128, 256, 512]
    assert size_range("3:5") == [3, 4, 5]
    for text in ("", "0", "a", "9:3", "1:8:x1", "1:2:3:4", "1:100000", "-4"):
        with pytest.raises(ArgumentError):
            size_range(text)


@pytest.mark.parametrize("name", SUITES)
def test_suites_hold_distinct_problems(name):
    problems = [x.problem for x in suite(name)]
    assert len(set(problems)) == len(problems) > 3
    with pytest.raises(ArgumentError, match="square"):
        suite("psychic")


def test_the_budget_is_spent_in_proportion():
    class Told:
        stopped, tried = "", 0

    told = Told()

    def tune_one(problem, budget):
        told.tried = budget.trials
        told.shares.append(budget.trials)
        return told

    told.shares = []
    shares = _shares([1, 2, 5], 3)
    list(_each(["a", "b", "c"], shares, Budget(None, 80), tune_one))
    assert told.shares == [10, 20, 50]
    for weights in ([1], [1, 0, 1], [1, float("nan"), 1]):
        with pytest.raises(ArgumentError, match="weights"):
            _shares(weights, 3)
