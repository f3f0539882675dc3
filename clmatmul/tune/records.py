"""What is in a tuning database, and what one may do with it as a whole.

A database is a folder: `journals/*.jsonl`, one line a trial, and `*.best.jsonl`, one line a
problem, which products read. Journals are only ever appended to, each by one process; merging is
copying them. `prune` alone removes lines, when it is asked to.
"""

import json
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from clmatmul.database import (
    check_writable,
    device_slug,
    publish_best,
    read_records,
    replace_file,
)
from clmatmul.errors import ArgumentError, DatabaseError
from clmatmul.explanation import plain_problem
from clmatmul.lanes import Lane
from clmatmul.problem_json import problem_to_dict
from clmatmul.supervisor import LIMITS, WorkerFailure
from clmatmul.tune.t4 import from_t4, to_t4
from clmatmul.variants import load_variant, variant_names

_IN_USE_SECONDS = 600  # a journal that was written to since then may be written to again


@dataclass(frozen=True)
class Database:
    """A tuning folder, read when it is asked."""

    folder: Path

    def journals(self):
        """The paths of the journals, in order."""
        return sorted((self.folder / "journals").glob("*.jsonl"))

    def best_files(self):
        """The paths of the files of best records, one a device."""
        return sorted(self.folder.glob("*.best.jsonl"))

    def trials(self):
        """Every TuningRecord of every journal."""
        return [x for path in self.journals() for x in read_records(path)]

    def best(self):
        """Every TuningRecord that products may use."""
        return [x for path in self.best_files() for x in read_records(path)]


def is_live(record):
    """True if the record was made from the kernel text that there is now."""
    name = record.config.variant
    return name in variant_names() and load_variant(name).digest == record.digest


def device_name(record):
    """The device's name and driver, for people."""
    key = json.loads(record.device)
    return f"{key.get('name')}, driver {key.get('driver_version')}"


def summary(database):
    """[(device, kind, size, trials, status → count, best record or None)], a problem a row."""
    best = {x.key: x for x in database.best()}
    found = {}
    for record in database.trials():
        found.setdefault(record.key, Counter())[record.status] += 1
    keys = sorted({*found, *best})
    return [(key, found.get(key, Counter()), best.get(key)) for key in keys]


def report(database, device_key=None):
    """A dict of counts: what is there, what is live, what products of this device cannot use."""
    trials, best = database.trials(), database.best()
    lines = sum(
        bool(line.strip())
        for path in (*database.journals(), *database.best_files())
        for line in path.read_bytes().splitlines()
    )
    mine = [x for x in best if x.device == device_key]
    return {
        "folder": str(database.folder),
        "journals": len(database.journals()),
        "trials": len(trials),
        "statuses": dict(Counter(x.status for x in trials)),
        "unreadable_lines": lines - len(trials) - len(best),
        "best": len(best),
        "live": sum(map(is_live, best)),
        "stale": sum(not is_live(x) for x in best),
        "of_this_device": len(mine),
        "of_other_devices_or_drivers": len(best) - len(mine),
        "devices": dict(Counter(device_name(x) for x in best)),
    }


def merge(database, others):
    """Copy the journals of other databases in, and publish the better of their best records.

    A journal that is there already is not copied again. Returns (journals, best records) added.
    """
    check_writable(database.folder / "journals")
    journals, records = 0, []
    for other in others:
        if not other.folder.is_dir():
            raise ArgumentError(f"{other.folder} is no tuning database: there is no such folder")
        for path in other.journals():
            target = database.folder / "journals" / path.name
            data = path.read_bytes()
            if target.exists() and target.read_bytes() == data:
                continue
            if target.exists():  # another machine's, begun in the same microsecond
                target = target.with_name(f"{path.stem}.merged{time.time_ns()}.jsonl")
            replace_file(target, data)
            journals += 1
        records += other.best()
    return journals, publish(database, records)


def publish(database, records):
    """Make records the best of their problems where none is live or theirs is slower; how many."""
    held = {x.key: x for x in database.best()}
    by_device = {}
    for record in records:
        have = held.get(record.key)
        if record.status != "ok" or not is_live(record) and have is not None:
            continue
        if have is None or not is_live(have) or _is_better(record, have):
            held[record.key] = record
            by_device.setdefault(record.device, {})[record.key] = record
    for key, found in by_device.items():
        publish_best(database.folder / f"{device_slug(key)}.best.jsonl", list(found.values()))
    return sum(map(len, by_device.values()))


def _is_better(record, other):
    """Of what was sought alike: least time and least energy cannot be compared."""
    return record.objective == other.objective and record.final_cost < other.final_cost


def prune(database):
    """Remove records of kernel texts that are no more, and lines that cannot be read.

    Journals that a process may still be writing to are left alone. Returns (records removed,
    journals left alone).
    """
    check_writable(database.folder / "journals")
    removed = left = 0
    for path in (*database.journals(), *database.best_files()):
        in_use = path.parent.name == "journals" and (
            time.time() - path.stat().st_mtime < _IN_USE_SECONDS
        )
        if in_use:
            left += 1
            continue
        records = read_records(path)
        lines = sum(bool(x.strip()) for x in path.read_bytes().splitlines())
        kept = [x for x in records if is_live(x)]
        if len(kept) == lines:
            continue
        removed += lines - len(kept)
        if kept:
            replace_file(path, "".join(x.to_json() + "\n" for x in kept).encode())
        else:
            path.unlink()
    return removed, left


def export(database, path, form="jsonl"):
    """Write every trial to a file, as JSON lines or in kernel_tuner's T4; how many."""
    records = database.trials() or database.best()
    if form == "t4":
        text = json.dumps(to_t4(records), indent=1)
    else:
        text = "".join(x.to_json() + "\n" for x in records)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written: {error.strerror}") from None
    return len(records)


def import_file(database, path):
    """Read JSON lines or T4 into a journal of its own; (records, published as best)."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} cannot be read: {error}") from None
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if isinstance(document, dict) and "results" in document:
        records = from_t4(document, str(path))
    else:
        records = read_records(path)
        if not records and text.strip():
            raise ArgumentError(f"{path} holds no tuning record, as JSON lines or as T4")
    check_writable(database.folder / "journals")
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%f")
    lines = "".join(x.to_json() + "\n" for x in records)
    try:
        replace_file(database.folder / "journals" / f"import.{stamp}.jsonl", lines.encode())
    except OSError as error:
        raise DatabaseError(
            f"tuning database {database.folder} cannot be written: {error.strerror}"
        ) from None
    fastest = {}
    for record in sorted((x for x in records if x.status == "ok"), key=lambda x: x.median_ns):
        fastest.setdefault(record.key, record)
    return len(records), publish(database, fastest.values())


def problem_of(record):
    """The plain Problem that a record is about, or None if it was fused, strided or the like."""
    pieces = dict(x.partition("=")[::2] for x in record.kind.split())
    a, b = (pieces.get(x, "").split(":") for x in "ab")
    letters = {"row": "N", "column": "T"}
    if len(a) < 2 or len(b) < 2 or a[1] not in letters or b[1] not in letters:
        return None
    batch = (record.batch,) if record.batch > 1 else ()
    layout = letters[a[1]] + letters[b[1]]
    try:
        problem = plain_problem(record.m, record.n, record.k, a[0], layout, batch)
    except (ArgumentError, KeyError, TypeError):
        return None
    return problem if problem.kind.key == record.kind else None


def verify(database, selector, programs=None):
    """Check the best records of a device, in a process that may be killed.

    Yields (record, outcome): 'ok', a fault, or why it was not checked. The lane is closed at
    the end.
    """
    lane = Lane(selector, programs, with_operands=False)
    try:
        profile = lane.open()
        for record in database.best():
            problem = problem_of(record)
            if record.device != profile.key:
                yield record, "not checked: another device or driver"
            elif not is_live(record):
                yield record, "not checked: made with another version of this kernel"
            elif problem is None:
                yield record, "not checked: its product cannot be made up from the record"
            else:
                lane.about(problem)
                yield record, _outcome(lane, record, problem)
    finally:
        lane.kill()


def _outcome(lane, record, problem):
    request = {"do": "check", "config": record.config.to_dict(),
               "problem": problem_to_dict(problem)}  # fmt: skip
    try:
        reply = lane.ask(request, "build", LIMITS)
    except WorkerFailure as failure:
        return str(failure)
    return "ok" if reply["status"] == "ok" else f"{reply['status']}: {reply['note']}"
