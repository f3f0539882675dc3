"""CLMATMUL_TUNE: off, read, auto; and records that do not work any more."""

import logging
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from extra_variants import kernel_folder, one_item, two_kernels

import clmatmul
from clmatmul import first_tuning, templates, walk
from clmatmul.choose import SAFE, Choice
from clmatmul.config import TileConfig
from clmatmul.database import TuningRecord, kinship, publish_best, read_records
from clmatmul.errors import ArgumentError
from clmatmul.variants import load_variant

__all__ = ["kernel_folder", "two_kernels"]
VARIANTS = Path(__file__).parent / "variants"
A, B = np.ones((12, 10), np.float32), np.ones((10, 14), np.float32)


@pytest.fixture
def database(tmp_path, monkeypatch):
    """An empty database of the test's own."""
    monkeypatch.setenv("CLMATMUL_DB", str(tmp_path))
    walk.forget()
    yield tmp_path
    monkeypatch.undo()
    walk.forget()


def made_record(device, config, problem):
    config = TileConfig.parse(config)
    digest = load_variant(config.variant).digest
    return TuningRecord(
        device=device.profile.key, kind=problem.kind.key, batch=1, m=problem.m, n=problem.n,
        k=problem.k, config=config, digest=digest, median_ns=1000.0,
    )  # fmt: skip


def choice(a=A, b=B):
    return clmatmul.MatMul(a, b).choice


def test_off_leaves_records_unread(device, database, monkeypatch):
    problem = clmatmul.MatMul(A, B).problem
    wanted = TileConfig.of("naive", work_group_size=8)
    publish_best(walk.best_file(device.profile.key), [made_record(device, wanted, problem)])
    walk.forget()
    assert (choice().origin, choice().config) == ("tuned", wanted)
    monkeypatch.setenv("CLMATMUL_TUNE", "off")
    walk.forget()
    assert choice().origin == "heuristic"
    assert "tuned" not in str(clmatmul.explain(12, 14, 10))


def test_auto_tunes_the_first_call_and_remembers(device, database, monkeypatch):
    monkeypatch.setenv("CLMATMUL_TUNE", "auto")
    assert (clmatmul.matmul(A, B) == 10).all()
    best = walk.best_file(device.profile.key)
    (winner,) = read_records(best)
    assert winner.status == "ok" and "first call" in winner.note
    (journal,) = (database / "tuning" / "journals").glob("*.first-calls.*.jsonl")
    assert len(read_records(journal)) >= 3
    monkeypatch.setattr(first_tuning, "Lane", lambda *a, **k: pytest.fail("tuned again"))
    walk.forget()
    assert (choice().origin, choice().config) == ("tuned", winner.config)
    monkeypatch.delenv("CLMATMUL_TUNE")
    walk.forget()
    assert choice().origin == "tuned"


def test_auto_where_nothing_can_be_written_warns_and_goes_on(device, database, monkeypatch, caplog):
    (database / "tuning").write_text("")
    monkeypatch.setenv("CLMATMUL_TUNE", "auto")
    assert (clmatmul.matmul(A, B) == 10).all()
    assert "could not be tuned" in caplog.text


def test_auto_keeps_its_time(device, database, monkeypatch):
    seen = []
    monkeypatch.setenv("CLMATMUL_TUNE", "auto")
    monkeypatch.setenv("CLMATMUL_TUNE_SECONDS", "0.001")
    real = first_tuning._try
    monkeypatch.setattr(
        first_tuning, "_try", lambda lane, *rest: seen.append(rest[0]) or real(lane, *rest)
    )
    choice()
    assert len(seen) == 1


@pytest.fixture
def faulty(monkeypatch, database):
    """Each fault of tests/variants/faulty.cl.mako as a Choice."""
    caches = (templates._folders, templates.variant_files, load_variant)
    monkeypatch.setenv("CLMATMUL_KERNEL_PATH", str(VARIANTS))
    for cache in caches:
        cache.cache_clear()
    yield lambda fault: Choice(TileConfig.of("faulty", fault=fault), "heuristic", "")
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


def tuned(device, database, choices):
    """(winner, failed, records) of a first call with these choices."""
    problem = clmatmul.MatMul(A, B).problem
    safe = Choice(SAFE, "safe", "")
    journal = database / "journal.jsonl"
    found = first_tuning.tune_first_use(
        device, problem, [*choices, safe], journal, database / "best.jsonl"
    )
    return *found, read_records(journal)


def test_a_candidate_that_ends_its_process_does_not_end_the_program(device, database, faulty):
    choices = [faulty("crash"), faulty("none"), faulty("wrong")]
    winner, failed, records = tuned(device, database, choices)
    assert winner.config == choices[1].config
    assert [x.status for x in records[:-1]] == ["crash", "ok", "wrong_result"]
    assert set(failed) == {choices[0].config, choices[2].config}
    assert failed[choices[0].config].startswith("crash in the child process: the process ")


@pytest.mark.parametrize("fault", ["hang", "build_hang"])
def test_a_candidate_that_never_ends_costs_the_time_allowed_and_is_not_blamed(
    device, database, faulty, monkeypatch, fault
):
    monkeypatch.setenv("CLMATMUL_TUNE_SECONDS", "1")
    begin = time.monotonic()
    winner, failed, records = tuned(device, database, [faulty("none"), faulty(fault)])
    assert winner.config == faulty("none").config and "default" in winner.note
    assert not failed and [x.status for x in records] == ["ok", "ok"]
    assert time.monotonic() - begin < 30  # a start, one trial, a second, and two for the end


def test_a_choice_that_ended_the_child_is_passed_over_by_the_program(
    device, database, monkeypatch, caplog
):
    first = clmatmul.MatMul(A, B).choice.config
    why = "crash in the child process: SIGSEGV"
    monkeypatch.setattr(first_tuning, "tune_first_use", lambda *rest: (None, {first: why}))
    monkeypatch.setenv("CLMATMUL_TUNE", "auto")
    walk.forget()
    assert (clmatmul.matmul(A, B) == 10).all()
    assert choice().config != first
    assert f"{first}: {why}" in clmatmul.MatMul(A, B).explain()


def test_where_no_process_can_be_started_the_product_goes_on(device, database, monkeypatch, caplog):
    monkeypatch.setenv("CLMATMUL_TUNE", "auto")
    monkeypatch.setattr(sys, "executable", str(database / "gone"))
    assert (clmatmul.matmul(A, B) == 10).all()
    assert "could not be tuned: no process can be started here" in caplog.text


@pytest.mark.parametrize(
    "name, value", [("CLMATMUL_TUNE", "maybe"), ("CLMATMUL_TUNE_SECONDS", "soon")]
)
def test_values_that_mean_nothing_are_refused(device, database, monkeypatch, name, value):
    monkeypatch.setenv("CLMATMUL_TUNE", "auto")
    monkeypatch.setenv(name, value)
    with pytest.raises(ArgumentError, match=f"{name}='{value}'"):
        choice()


def test_a_record_that_fails_its_first_use_is_dropped_with_one_warning(
    device, kernel_folder, monkeypatch, caplog
):
    kernel_folder("wrong", one_item("wrong", sum_="add(sum, sum)"))
    problem = clmatmul.MatMul(A, B).problem
    config = TileConfig.of("wrong", unit=1)
    best = walk.best_file(device.profile.key)
    other = replace(made_record(device, "naive(work_group_size=8)", problem), m=99)
    publish_best(best, [made_record(device, config, problem), other])
    walk.forget()
    with caplog.at_level(logging.WARNING, "clmatmul"):
        for _ in range(2):
            assert (clmatmul.matmul(A, B) == 10).all()
    warnings = [x for x in caplog.records if "is passed over" in x.getMessage()]
    assert len(warnings) == 1 and read_records(best) == [other]


def test_a_record_made_under_another_driver_is_a_hint(device, database):
    problem = clmatmul.MatMul(A, B).problem
    profile = replace(device.profile, driver_version="an older one")
    assert kinship(profile.key, device.profile.key) == 1
    wanted = TileConfig.of("naive", work_group_size=8)
    record = replace(made_record(device, wanted, problem), device=profile.key)
    publish_best(walk.best_file(profile.key), [record])
    walk.forget()
    found = choice()
    assert (found.origin, found.config) == ("nearest", wanted)
    assert "another driver" in found.note


def test_strangers_are_no_hint(device):
    other = replace(device.profile, platform_name="another")
    assert kinship(other.key, device.profile.key) is None
    cousin = replace(device.profile, name="another processor")
    assert kinship(cousin.key, device.profile.key) == 2
