"""Tuning records: what was measured, and which configuration was best for a problem.

A record is one line of JSON. Each tuning process appends to a journal of its own; the best
record of each problem is copied to one small `best` file per device, which is all that a product
reads, laid over the records that the package ships. Paths, locks and times are handed in.
"""

import contextlib
import errno
import hashlib
import json
import logging
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from clmatmul.config import TileConfig
from clmatmul.errors import ArgumentError, DatabaseError

SCHEMA = 1
# How a trial ended. too_slow: a part of the product took so long that the whole was not run;
# unstable: two runs differed, or times that cannot be true.
STATUSES = (
    "ok", "build_failed", "build_timeout", "launch_failed", "hang", "crash", "wrong_result",
    "unstable", "too_slow",
)  # fmt: skip
_LOCK_SECONDS = 30
_SHIPPED_LIMIT = 0.3
_MOST_BYTES = 2**28
_log = logging.getLogger("clmatmul")


@dataclass(frozen=True)
class TuningRecord:
    """One trial of one configuration. Times in ns; `error_ratio` is error ÷ allowed error."""

    device: str  # DeviceProfile.key
    kind: str  # ProblemKind.key
    batch: int
    m: int
    n: int
    k: int
    config: TileConfig
    digest: str  # of the variant's templates
    status: str = "ok"
    median_ns: float | None = None
    minimum_ns: float | None = None
    spread_ns: float | None = None
    samples: int = 0
    error_ratio: float | None = None
    note: str = ""
    versions: dict = field(default_factory=dict, hash=False)
    time: str = ""  # UTC, ISO 8601
    seed: int | None = None
    energy_uj: float | None = None  # of one run, where it was measured
    objective: str = "time"  # what the search looked for the least of

    @property
    def size(self):
        return (self.batch, self.m, self.n, self.k)

    @property
    def least_ns(self):
        """The least time, which other processes disturb the least."""
        return self.minimum_ns or self.median_ns

    @property
    def cost(self):
        """What a search compares: the least time in ns, or the energy in µJ."""
        return self.energy_uj if self.objective == "energy" else self.least_ns

    @property
    def final_cost(self):
        """What a final compares: the median time in ns, or the energy in µJ."""
        return self.energy_uj if self.objective == "energy" else self.median_ns

    @property
    def key(self):
        """What the record is about: device, kind, size."""
        return (self.device, self.kind, self.size)

    def to_json(self):
        """One line of JSON, with its schema number."""
        values = dict(vars(self))
        values["config"] = self.config.to_dict()
        return json.dumps({"schema": SCHEMA, **values}, sort_keys=True)

    @classmethod
    def from_json(cls, line):
        """The inverse of to_json; ArgumentError if the line is no record of this schema."""
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"not JSON: {error}") from None
        if not isinstance(values, dict) or values.pop("schema", None) != SCHEMA:
            raise ArgumentError(f"not a tuning record of schema {SCHEMA}")
        try:
            record = cls(**{**values, "config": TileConfig.parse(values["config"])})
        except (TypeError, KeyError, ArgumentError) as error:
            raise ArgumentError(f"not a tuning record: {error}") from None
        record._check()
        return record

    def _check(self):
        times = (self.median_ns, self.minimum_ns, self.spread_ns)
        if not all(_is_whole(x) for x in self.size) or self.status not in STATUSES:
            raise ArgumentError("not a tuning record: a size or the status is out of range")
        if not all(t is None or _is_time(t) for t in times):
            raise ArgumentError("not a tuning record: a time is no number of ns from 0 to 2^63")
        if not (self.energy_uj is None or _is_time(self.energy_uj)):
            raise ArgumentError("not a tuning record: the energy is no number of µJ")
        if self.objective not in ("time", "energy"):
            raise ArgumentError("not a tuning record: the objective is neither time nor energy")
        if self.status == "ok" and not (self.median_ns and self.cost):
            raise ArgumentError("not a tuning record: a trial that went well has a time")
        if not all(isinstance(x, str) for x in (self.device, self.kind, self.digest)):
            raise ArgumentError("not a tuning record: device, kind and digest are text")


def _is_whole(x):
    return isinstance(x, int) and not isinstance(x, bool) and 0 <= x < 2**63


def _is_time(x):
    # A comparison with NaN is false.
    return isinstance(x, (int, float)) and not isinstance(x, bool) and 0 <= x < 2**63


def read_records(path):
    """Every readable record of a JSON-lines file; others are skipped with one warning.

    A missing file has none. DatabaseError if the file exists but cannot be read.
    """
    records, bad = [], []
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            if os.fstat(lines.fileno()).st_size > _MOST_BYTES:
                raise DatabaseError(f"tuning database {path} is larger than any, and is not read")
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    records.append(TuningRecord.from_json(line))
                except ArgumentError as error:
                    bad.append((number, error))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DatabaseError(f"tuning database {path} cannot be read: {error.strerror}") from None
    if bad:
        number, error = bad[0]
        _log.warning(
            "%s: %d of %d lines skipped; the first is line %d: %s",
            path, len(bad), len(bad) + len(records), number, error,
        )  # fmt: skip
    return records


def append_record(path, record):
    """Append one record to a journal and force it to disk before returning.

    DatabaseError if that cannot be done; the record counts as made only once this returns.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = not path.exists()
        with open(path, "a+b", buffering=0) as journal:
            # A process that was killed may have left half a line: do not lengthen it.
            torn = journal.seek(0, os.SEEK_END) and _last_byte(journal) != b"\n"
            data = (b"\n" if torn else b"") + record.to_json().encode() + b"\n"
            # One write to a file opened for appending: lines of two processes do not mix.
            if journal.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(journal.fileno())
        if fresh:
            _sync_folder(path.parent)
    except OSError as error:
        raise DatabaseError(f"tuning journal {path} cannot be written: {error.strerror}") from None


def check_writable(folder):
    """DatabaseError unless files can be made in a folder, which is made too if it is missing."""
    probe = Path(folder) / f".writable.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise DatabaseError(
            f"tuning database {folder} cannot be written: {error.strerror}; choose another place "
            "with CLMATMUL_DB or --db"
        ) from None


def publish_best(path, records):
    """Put records into a file of best records, in place of those about the same problem.

    Under a lock, so that tuners of other problems lose nothing. DatabaseError.
    """
    from filelock import FileLock, Timeout

    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock", timeout=_LOCK_SECONDS):
            merged = {record.key: record for record in [*read_records(path), *records]}
            lines = "".join(merged[key].to_json() + "\n" for key in sorted(merged))
            replace_file(path, lines.encode())
    except Timeout:
        raise DatabaseError(
            f"tuning database {path} was locked for {_LOCK_SECONDS} s by another process"
        ) from None
    except OSError as error:
        raise DatabaseError(f"tuning database {path} cannot be written: {error.strerror}") from None


def replace_file(path, data):
    """Write bytes to a temporary name beside `path`, force them to disk, then rename."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder):
    """Force a folder's list of names to disk, where the system can do that.

    Some network file systems refuse, and Windows has no such call: the file itself is safe.
    """
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def drop_best(path, record):
    """Take a record out of a file of best records, because it does not work any more.

    DatabaseError if the file cannot be written.
    """
    from filelock import FileLock, Timeout

    try:
        with FileLock(f"{path}.lock", timeout=_LOCK_SECONDS):
            kept = [x for x in read_records(path) if x != record]
            replace_file(path, "".join(x.to_json() + "\n" for x in kept).encode())
    except (OSError, Timeout) as error:
        raise DatabaseError(f"tuning database {path} cannot be written: {error}") from None


def device_slug(device_key):
    """A file name for a device key: readable words and a digest."""
    values = json.loads(device_key)
    words = "".join(c if c.isalnum() else "-" for c in str(values.get("name", "device")).lower())
    return f"{words[:40].strip('-')}-{hashlib.sha256(device_key.encode()).hexdigest()[:12]}"


class TuningDatabase:
    """Best records of one device: the user's, laid over those shipped with the package.

    `lookup` gives the record of exactly this problem, `nearest` that of a similar one. Records
    made from other kernel texts (another digest) are hints and never exact. hints: (kinship,
    record) of related devices, such as this one under another driver; see `kinship`.
    """

    def __init__(self, user=(), shipped=(), hints=()):
        self._hints = [(kin, x) for kin, x in hints if x.status == "ok"]
        self._origins = {}
        for origin, records in (("shipped", shipped), ("tuned", user)):
            for record in records:
                if record.status == "ok":
                    self._add(origin, record)

    def _add(self, origin, record):
        key = (record.kind, record.size)
        held = self._origins.get(key)
        better = held is None or held[0] != origin or _time(record) <= _time(held[1])
        if better:
            self._origins[key] = (origin, record)

    def __len__(self):
        return len(self._origins)

    def records(self):
        """(origin, record) of every problem that has one."""
        return tuple(self._origins.values())

    def lookup(self, problem):
        """(origin, record) for exactly this problem, or None."""
        return self._origins.get((problem.kind.key, _size(problem)))

    def nearest(self, problem, limit=2.0):
        """(origin, record, distance) of the closest size of the same kind within `limit`.

        The distance is the largest |log2| of the ratios of batch, m, n and k. A shipped record
        serves sizes within a fifth only: between those the heuristics know more.
        """
        best = None
        for origin, record in self._origins.values():
            if record.kind == problem.kind.key:
                distance = _distance(record.size, _size(problem))
                allowed = limit if origin == "tuned" else min(limit, _SHIPPED_LIMIT)
                if distance <= allowed and (best is None or distance < best[2]):
                    best = (origin, record, distance)
        return best

    def hint(self, problem, limit=0.5):
        """The record of the most closely related device, then of the closest size, or None."""
        kind, size = problem.kind.key, _size(problem)
        near = [
            (kin, _distance(x.size, size), i)
            for i, (kin, x) in enumerate(self._hints)
            if x.kind == kind and _distance(x.size, size) <= limit
        ]
        return self._hints[min(near)[2]][1] if near else None


def kinship(one, other):
    """How closely two device keys are related: 0 the same, 1 the same device under another driver
    or with other limits, 2 another device of this vendor and platform, None for strangers."""
    if one == other:
        return 0
    first, second = json.loads(one), json.loads(other)
    for kin, names in ((1, ("platform_name", "vendor", "name")), (2, ("platform_name", "vendor"))):
        if all(first.get(x) == second.get(x) is not None for x in names):
            return kin
    return None


def _time(record):
    return record.median_ns if record.median_ns else math.inf


def _size(problem):
    return (problem.batch_count, problem.m, problem.n, problem.k)


def _distance(one, other):
    pairs = zip(one, other, strict=True)
    return max(abs(math.log2(max(x, 1) / max(y, 1))) for x, y in pairs)


def _last_byte(journal):
    journal.seek(-1, os.SEEK_END)
    return journal.read(1)
