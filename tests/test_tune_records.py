"""The tuning database as a whole: the commands of `clmatmul db`, and T4."""

import json
import os
import time
from dataclasses import replace

import pytest

from clmatmul.cli.main import main
from clmatmul.config import TileConfig
from clmatmul.database import TuningRecord, append_record, device_slug, publish_best, read_records
from clmatmul.errors import ArgumentError, DatabaseError
from clmatmul.explanation import plain_problem
from clmatmul.tune.records import (
    Database,
    export,
    import_file,
    is_live,
    merge,
    problem_of,
    prune,
    report,
    summary,
    verify,
)
from clmatmul.tune.t4 import from_t4, to_t4
from clmatmul.variants import load_variant

PROBLEM = plain_problem(24, 20, 16)


@pytest.fixture
def made(device):
    """made(m, **changes) → a TuningRecord of the device under test."""

    def record(m=24, **changes):
        first = TuningRecord(
            device=device.profile.key, kind=PROBLEM.kind.key, batch=1, m=m, n=20, k=16,
            config=TileConfig.of("naive", work_group_size=8), digest=load_variant("naive").digest,
            median_ns=2000.0, minimum_ns=1900.0, samples=5, time="2026-01-01T00:00:00+00:00",
        )  # fmt: skip
        return replace(first, **changes)

    return record


def fill(folder, *journals, best=()):
    """A database with these journals, each a list of records, and these best records."""
    database = Database(folder / "tuning")
    for i, records in enumerate(journals):
        for record in records:
            append_record(database.folder / "journals" / f"{folder.name}{i}.jsonl", record)
    for record in best:
        publish_best(database.folder / f"{device_slug(record.device)}.best.jsonl", [record])
    return database


def test_summary_and_report(tmp_path, made, device):
    crash = made(config=TileConfig.of("tiled", tile_m=4), status="crash", median_ns=None)
    stale = made(30, digest="0" * 64)
    database = fill(tmp_path, [made(), crash], [stale], best=[made(), stale])
    (database.folder / "journals" / "torn.jsonl").write_text('{"schema": 1, "dev')
    ((_, _, size), statuses, best), second = summary(database)
    assert size == (1, 24, 20, 16) and statuses == {"ok": 1, "crash": 1} and best == made()
    assert second[2] == stale
    found = report(database, device.profile.key)
    assert (found["trials"], found["best"], found["live"], found["stale"]) == (3, 2, 1, 1)
    assert (found["unreadable_lines"], found["of_this_device"]) == (1, 2)
    assert report(database)["of_other_devices_or_drivers"] == 2


def test_merging_adds_and_never_overwrites(tmp_path, made):
    slower = made(median_ns=9000.0)
    ours = fill(tmp_path / "ours", [made()], best=[made()])
    theirs = fill(tmp_path / "theirs", [made(31)], [slower], best=[slower, made(31)])
    assert merge(ours, [theirs]) == (2, 1)
    assert {x.m for x in ours.trials()} == {24, 31} and len(ours.trials()) == 3
    assert sorted((x.m, x.median_ns) for x in ours.best()) == [(24, 2000.0), (31, 2000.0)]
    assert merge(ours, [theirs]) == (0, 0)
    changed = theirs.journals()[0]
    append_record(changed, made(32))
    assert merge(ours, [theirs]) == (1, 0) and 32 in {x.m for x in ours.trials()}
    with pytest.raises(ArgumentError, match="no such folder"):
        merge(ours, [Database(tmp_path / "nothing")])


def test_pruning_removes_what_is_stale_and_leaves_what_is_in_use(tmp_path, made):
    stale = made(30, digest="0" * 64)
    database = fill(tmp_path, [made(), stale], [stale], [stale], best=[made(), stale])
    old = time.time() - 3600
    for path in database.journals()[:2]:
        path.write_text(path.read_text() + "rubbish\n")
        os.utime(path, (old, old))
    removed, left = prune(database)
    assert left == 1 and removed == 2 + 2 + 1
    assert database.trials() == [made(), stale] and database.best() == [made()]
    assert all(map(is_live, database.best())) and len(database.journals()) == 2


@pytest.mark.parametrize("form", ["jsonl", "t4"])
def test_export_and_import_are_inverse(tmp_path, made, form):
    failed = made(config=TileConfig.of("tiled", tile_m=4), status="hang", median_ns=None,
                  minimum_ns=None, note="still in launch", versions={"numpy": "2"})  # fmt: skip
    database = fill(tmp_path / "one", [made(), failed])
    file = tmp_path / "out.json"
    assert export(database, file, form) == 2
    other = Database(tmp_path / "two" / "tuning")
    assert import_file(other, file) == (2, 1)
    assert other.trials() == [made(), failed] and other.best() == [made()]


def test_t4_is_what_kernel_tuner_reads(made):
    document = to_t4([made(), made(status="wrong_result", median_ns=None)])
    assert document["schema_version"] == "1.0.0"
    first, second = document["results"]
    assert first["configuration"] == {"variant": "naive", "work_group_size": 8}
    assert first["invalidity"] == "correct" and first["objectives"] == ["time"]
    assert {"name": "time", "value": 0.002, "unit": "ms"} in first["measurements"]
    assert set(first["times"]) == {"compilation", "benchmark", "framework", "search_algorithm",
                                   "validation", "runtimes"}  # fmt: skip
    assert (second["invalidity"], second["correctness"]) == ("correctness", 0)
    assert from_t4(json.loads(json.dumps(document)), "x")[0] == made()


@pytest.mark.parametrize(
    "text, words",
    [
        ('{"schema_version": "9", "results": []}', "T4 schema '9'"),
        ('{"schema_version": "1.0.0", "results": [{}]}', "result 1 was not written by clmatmul"),
        ('{"schema_version": "1.0.0", "results": [{"clmatmul": {}}]}', "result 1"),
        ("rubbish", "holds no tuning record"),
    ],
)
def test_files_that_cannot_be_imported_say_why(tmp_path, text, words):
    file = tmp_path / "in.json"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=words):
        import_file(Database(tmp_path / "db"), file)
    assert not (tmp_path / "db").exists()


def test_a_database_that_cannot_be_written_is_an_error(tmp_path, made):
    file = tmp_path / "in.jsonl"
    file.write_text(made().to_json() + "\n")
    (tmp_path / "db").write_text("")
    for action in (lambda x: import_file(x, file), lambda x: merge(x, []), prune):
        with pytest.raises(DatabaseError, match="cannot be written"):
            action(Database(tmp_path / "db"))


def test_a_plain_problem_is_known_from_its_record(made):
    assert problem_of(made()) == PROBLEM
    batched = plain_problem(24, 20, 16, "float64", "TN", (3,))
    record = made(kind=batched.kind.key, batch=3)
    assert problem_of(record) == batched
    assert problem_of(made(kind=PROBLEM.kind.key + " bias=float32")) is None
    assert problem_of(made(kind="rubbish")) is None


def test_verification_finds_what_does_not_work(tmp_path, made, device):
    other = made(40, device=device.profile.key.replace('"name"', '"nome"'))
    best = [made(), made(30, digest="0" * 64), other,
            made(50, config=TileConfig.of("naive", work_group_size=1 << 20))]  # fmt: skip
    found = {x.m: y for x, y in verify(fill(tmp_path, best=best), None)}
    assert found[24] == "ok" and found[50].startswith("launch_failed")
    assert "another version" in found[30] and "another device" in found[40]


def test_the_command_line(tmp_path, made, capsys):
    fill(tmp_path, [made()], best=[made()])
    where = ["--db", str(tmp_path)]

    def output(*arguments, code=0):
        assert main(["db", *arguments, *where]) == code
        return capsys.readouterr().out

    assert "24×20×16  float32 NN       1  1 ok   2 µs" in output("list")
    assert "naive(work_group_size=8)" in output("best")
    assert json.loads(output("report", "--json"))["live"] == 1
    assert "live                        1" in output("report")
    assert json.loads(output("list", "--json"))["problems"][0]["statuses"] == {"ok": 1}
    assert json.loads(output("best", "--json"))["records"][0]["live"] is True
    assert "1 records were written" in output("export", str(tmp_path / "x.json"), "--t4")
    assert "1 records were read, 0 of them" in output("import", str(tmp_path / "x.json"))
    assert "were removed" in output("prune")
    assert "ok" in output("verify")
    assert output("merge", code=2) == "" and output("list", "file", code=2) == ""


def test_verify_ends_with_5_where_a_record_fails(tmp_path, made, capsys):
    fill(tmp_path, best=[made(config=TileConfig.of("naive", work_group_size=1 << 20))])
    assert main(["db", "verify", "--json", "--db", str(tmp_path)]) == 5
    assert json.loads(capsys.readouterr().out)["faults"] == 1
    assert len(read_records(next((tmp_path / "tuning").glob("*.best.jsonl")))) == 1
