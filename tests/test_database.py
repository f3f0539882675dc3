"""Tuning records and their files: what is written, what survives, what is refused."""

import json
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from processes import environment

from clmatmul.config import TileConfig
from clmatmul.database import (
    STATUSES,
    TuningDatabase,
    TuningRecord,
    append_record,
    check_writable,
    device_slug,
    publish_best,
    read_records,
    replace_file,
)
from clmatmul.errors import ArgumentError, DatabaseError
from clmatmul.explanation import plain_problem

KIND = plain_problem(64, 64, 64).kind.key
RECORD = TuningRecord(
    device='{"name": "Some device"}', kind=KIND, batch=1, m=64, n=64, k=64,
    config=TileConfig.of("tiled", tile_m=8, tile_n=8, tile_k=8), digest="abc", status="ok",
    median_ns=1000.5, minimum_ns=900, spread_ns=30.0, samples=5, error_ratio=0.25,
    note="ein Bär\n\u2028", versions={"numpy": "2"}, time="2026-01-01T00:00:00+00:00", seed=3,
)  # fmt: skip


def of_size(m, **changes):
    return replace(RECORD, m=m, **changes)


# ---- one record -----------------------------------------------------------------------------


def test_a_record_is_one_line_and_comes_back_equal():
    line = RECORD.to_json()
    assert "\n" not in line and line.isascii()
    assert TuningRecord.from_json(line) == RECORD
    assert json.loads(line)["schema"] == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 2},
        {"schema": None},
        {"status": "splendid"},
        {"m": -1},
        {"m": 2**63},
        {"m": 1.5},
        {"m": True},
        {"k": "64"},
        {"median_ns": 0},
        {"median_ns": None},
        {"median_ns": -5},
        {"median_ns": float("nan")},
        {"median_ns": float("inf")},
        {"median_ns": 10**400},
        {"median_ns": True},
        {"spread_ns": "wide"},
        {"device": 7},
        {"digest": None},
        {"config": {"parameters": {}}},
        {"config": {"variant": "tiled", "parameters": {"tile_m": [1]}}},
        {"config": {"variant": "tiled", "parameters": 3}},
        {"config": []},
        {"surprise": 1},
    ],
)
def test_a_line_that_is_no_record_of_this_schema_is_refused(changes):
    values = {**json.loads(RECORD.to_json()), **changes}
    with pytest.raises(ArgumentError, match="not a tuning record"):
        TuningRecord.from_json(json.dumps(values))


@pytest.mark.parametrize("line", ["", "{", "null", "[]", "3", '"x"', "[" * 100_000, "\x00", "{}"])
def test_a_line_that_is_no_object_is_refused(line):
    with pytest.raises(ArgumentError, match="not"):
        TuningRecord.from_json(line)


def test_every_status_but_ok_may_lack_times():
    for status in STATUSES[1:]:
        failed = replace(RECORD, status=status, median_ns=None, minimum_ns=None, spread_ns=None)
        assert TuningRecord.from_json(failed.to_json()) == failed


# ---- journals -------------------------------------------------------------------------------


def test_a_journal_gives_back_what_was_appended(tmp_path):
    journal = tmp_path / "deep" / "journal.jsonl"
    records = [of_size(m) for m in (1, 2, 3)]
    for record in records:
        append_record(journal, record)
    assert read_records(journal) == records
    assert read_records(tmp_path / "nothing.jsonl") == []


def test_a_torn_last_line_is_skipped_and_not_lengthened(tmp_path, caplog):
    journal = tmp_path / "journal.jsonl"
    append_record(journal, of_size(1))
    with open(journal, "a") as file:
        file.write(of_size(2).to_json()[:50])
    append_record(journal, of_size(3))
    with caplog.at_level(logging.WARNING, "clmatmul"):
        assert [x.m for x in read_records(journal)] == [1, 3]
    assert len(caplog.records) == 1
    assert "1 of 3 lines skipped; the first is line 2" in caplog.text


def test_garbage_never_hides_a_good_record_nor_raises(tmp_path):
    rng = random.Random(4)
    good = [of_size(m) for m in range(1, 21)]
    lines = [x.to_json().encode() for x in good]
    for _ in range(60):
        line = bytearray(rng.choice(lines))
        kind = rng.randrange(3)
        if kind == 0:
            line = line[: rng.randrange(len(line))]
        elif kind == 1:
            line = bytes(rng.randrange(256) for _ in range(rng.randrange(200)))
        else:
            line = b"[" * rng.randrange(2000)
        lines.insert(rng.randrange(len(lines)), bytes(line).replace(b"\n", b" "))
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(b"\n".join(lines))
    assert [x for x in read_records(journal) if x in good] == good


def test_a_journal_that_cannot_be_written_or_read_is_an_error_with_its_path(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "journal.jsonl", tmp_path):
        with pytest.raises(DatabaseError, match=str(path)):
            append_record(path, RECORD)
    with pytest.raises(DatabaseError, match="cannot be read"):
        read_records(tmp_path)
    with pytest.raises(DatabaseError, match="CLMATMUL_DB or --db"):
        check_writable(tmp_path / "file" / "journals")
    check_writable(tmp_path / "new" / "journals")
    assert list((tmp_path / "new" / "journals").iterdir()) == []


def test_a_full_disk_is_an_error(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DatabaseError, match="No space left"):
        append_record(tmp_path / "journal.jsonl", RECORD)


def _append_many(path, first):
    for m in range(first, first + 50):
        append_record(path, of_size(m))


def test_processes_that_append_to_one_journal_lose_nothing(tmp_path):
    journal = tmp_path / "journal.jsonl"
    start = multiprocessing.get_context("spawn").Process
    writers = [start(target=_append_many, args=(journal, 1 + 50 * i)) for i in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(x.m for x in read_records(journal)) == list(range(1, 151))
    assert all(line.startswith(b"{") for line in journal.read_bytes().splitlines() if line)


_APPEND = """
import sys
from dataclasses import replace
from clmatmul.database import TuningRecord, append_record, publish_best
record = TuningRecord.from_json(sys.stdin.readline())
for m in range(1, 10**6):
    made = replace(record, m=m)
    append_record(sys.argv[1], made)
    publish_best(sys.argv[2], [made])
    print(m, flush=True)
"""


def test_kill_at_any_moment_loses_no_acknowledged_record(tmp_path):
    journal, best = tmp_path / "journal.jsonl", tmp_path / "best.jsonl"
    rng = random.Random(5)
    for _ in range(4):
        journal.unlink(missing_ok=True)
        best.unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", _APPEND, journal, best], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(),
        )  # fmt: skip
        process.stdin.write(RECORD.to_json() + "\n")
        process.stdin.flush()
        acknowledged = [process.stdout.readline()]
        time.sleep(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.readlines()
        process.communicate()
        count = len([x for x in acknowledged if x.endswith("\n")])
        assert count >= 1
        for path in (journal, best):
            assert [x.m for x in read_records(path)][:count] == list(range(1, count + 1))


# ---- the file of the best -------------------------------------------------------------------


def test_publishing_replaces_the_same_problem_and_keeps_others(tmp_path):
    path = tmp_path / "deep" / "best.jsonl"
    publish_best(path, [of_size(1), of_size(2)])
    slower = of_size(2, median_ns=5000.0, note="measured again, and the fastest of that search")
    publish_best(path, [slower])
    assert read_records(path) == [of_size(1), slower]
    assert not list(path.parent.glob(".*best*"))


def _publish_many(path, first):
    for m in range(first, first + 10):
        publish_best(path, [of_size(m)])


def test_processes_that_publish_at_once_lose_nothing(tmp_path):
    path = tmp_path / "best.jsonl"
    start = multiprocessing.get_context("spawn").Process
    writers = [start(target=_publish_many, args=(path, 1 + 10 * i)) for i in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(x.m for x in read_records(path)) == list(range(1, 31))


def test_publishing_into_a_damaged_file_saves_what_is_readable(tmp_path):
    path = tmp_path / "best.jsonl"
    path.write_text(of_size(1).to_json() + "\nrubbish\n")
    publish_best(path, [of_size(2)])
    assert read_records(path) == [of_size(1), of_size(2)]
    assert "rubbish" not in path.read_text()


def test_publishing_where_it_cannot_be_done_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseError, match="cannot be written"):
        publish_best(tmp_path / "file" / "best.jsonl", [RECORD])


def test_a_replacement_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "best.jsonl"
    path.write_text("old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


# ---- looking up -----------------------------------------------------------------------------


def test_the_users_record_is_laid_over_the_shipped_one():
    shipped = [of_size(64, median_ns=10.0), of_size(128, median_ns=10.0)]
    database = TuningDatabase([of_size(64, median_ns=99.0)], shipped)
    assert len(database) == 2
    origin, record = database.lookup(plain_problem(64, 64, 64))
    assert (origin, record.median_ns) == ("tuned", 99.0)
    assert database.lookup(plain_problem(128, 64, 64))[0] == "shipped"
    assert database.lookup(plain_problem(65, 64, 64)) is None
    assert database.lookup(plain_problem(64, 64, 64, "float64")) is None


def test_failures_are_no_records_to_use():
    failed = replace(RECORD, status="crash", median_ns=None)
    assert len(TuningDatabase([failed], [])) == 0


def test_the_nearest_counts_each_dimension_by_itself():
    # Twice n is nearer than four times m, though the product of sizes is nearer for the latter.
    near = replace(RECORD, n=128, median_ns=2.0)
    far = replace(RECORD, m=256, n=16, median_ns=1.0)
    database = TuningDatabase([far, near])
    assert database.nearest(plain_problem(64, 64, 64))[1] == near
    assert database.nearest(plain_problem(64, 64, 4096)) is None


def test_a_shipped_record_serves_sizes_that_are_close_only():
    record = replace(RECORD, m=100, n=100, k=100)
    near, far = plain_problem(115, 100, 90), plain_problem(130, 100, 100)
    assert TuningDatabase((), [record]).nearest(near)[1] == record
    assert TuningDatabase((), [record]).nearest(far) is None
    assert TuningDatabase([record], ()).nearest(far)[1] == record


def test_a_device_gets_a_file_name_of_its_own():
    one = device_slug('{"name": "AMD gfx90a:sramecc+/x", "driver_version": "1"}')
    two = device_slug('{"name": "AMD gfx90a:sramecc+/x", "driver_version": "2"}')
    assert one != two and one.startswith("amd-gfx90a-sramecc")
    assert set(one) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
