"""CLMATMUL_TUNE: off, read, auto; and records that do not work any more."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from extra_variants import kernel_folder, one_item, two_kernels

import clmatmul
from clmatmul import first_tuning, walk
from clmatmul.config import TileConfig
from clmatmul.database import TuningRecord, kinship, publish_best, read_records
from clmatmul.errors import ArgumentError
from clmatmul.variants import load_variant

__all__ = ["kernel_folder", "two_kernels"]
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
    monkeypatch.setattr(first_tuning, "try_config", lambda *a, **k: pytest.fail("tuned again"))
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
    monkeypatch.setattr(
        first_tuning, "try_config",
        lambda d, w, config, real=first_tuning.try_config, **k: seen.append(config)
        or real(d, w, config, **k),
    )  # fmt: skip
    choice()
    assert len(seen) == 1


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
