"""What `tune` takes and refuses, on made-up devices."""

import json
from argparse import ArgumentParser
from dataclasses import asdict

import pytest
from made_up_devices import PROBLEM, Device, by_config, profile, search, untuned

from clmatmul.cli import tune as command
from clmatmul.errors import ArgumentError, DatabaseError, UnsupportedError
from clmatmul.explanation import plain_problem
from clmatmul.problem import ArrayView, Problem
from clmatmul.problem_json import problem_from_dict, problem_to_dict
from clmatmul.space import parse_within
from clmatmul.tune import tuner
from clmatmul.tune.budget import Budget


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
    assert str(Budget(16.0714)) == "16.1 s" and str(Budget(0.25)) == "0.25 s"
    assert not Budget(60, 5).is_spent(59, 4)
    assert Budget(60, 5).is_spent(60, 0) and Budget(60, 5).is_spent(0, 5)
    assert Budget(60, 5).share(0.1) == Budget(6, 1)


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


@pytest.mark.parametrize("given", [["30", "40", "50"], ["--m", "30", "--n", "40", "--k", "50"]])
def test_sizes_stand_alone_or_by_name(given):
    assert wanted(*given) == [plain_problem(30, 40, 50)]


def test_sizes_may_be_lists_and_stand_among_options():
    found = wanted("30,60", "--layout", "NT", "40", "50:52:1")
    assert found == [plain_problem(m, 40, k, layout="NT") for m in (30, 60) for k in (50, 51, 52)]


@pytest.mark.parametrize("given, words", [
    (["30", "40"], "three sizes, M N K, but 2 were given"),
    (["30", "40", "50", "--m", "30"], "not both"),
    (["30", "40", "50", "--suite", "square"], "have their own sizes"),
])  # fmt: skip
def test_sizes_that_say_too_much_or_too_little(given, words):
    with pytest.raises(ArgumentError, match=words):
        wanted(*given)


def wanted(*given):
    """The problems that the command line asks for."""
    parser = ArgumentParser()
    command.add_arguments(parser)
    return [x.problem for x in command._wanted(parser.parse_intermixed_args(given))]
