"""What an application computes: CLMATMUL_RECORD=shapes.jsonl writes each distinct problem.

A line has a problem, how often it was computed since the line before about it, and how long that
took; lines about one problem add up, whichever process wrote them. `tune --shapes shapes.jsonl`
reads it. Without the variable nothing is done.
"""

import atexit
import json
import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from clmatmul.errors import ArgumentError
from clmatmul.problem_json import problem_from_dict, problem_to_dict

SCHEMA = 1
_FLUSH_SECONDS = 10  # what a process that is killed loses
_WAIT_SECONDS = 2
_log = logging.getLogger("clmatmul")


@dataclass(frozen=True)
class Calls:
    """A problem with the number of its calls, and the seconds from launch to completion."""

    problem: object
    calls: int
    seconds: float


class CallLog:
    """Counts calls, and appends what is new to a file now and then, and at the end."""

    def __init__(self, path):
        self.path = Path(path)
        self._lock = threading.Lock()
        self._done = threading.Condition(self._lock)
        self._running = 0
        self._counts = {}
        self._flushed = time.monotonic()

    def launched(self, problem, event):
        """A product was enqueued; `event` completes with it."""
        begin = time.perf_counter()
        with self._lock:
            self._running += 1
        event.set_callback(0, lambda status: self._add(problem, time.perf_counter() - begin))

    def _add(self, problem, seconds):
        with self._lock:
            calls, total = self._counts.get(problem, (0, 0.0))
            self._counts[problem] = (calls + 1, total + seconds)
            self._running -= 1
            self._done.notify_all()
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def finish(self):
        """Wait for what is running, for a moment, and append it."""
        with self._lock:
            self._done.wait_for(lambda: not self._running, _WAIT_SECONDS)
        self.flush()

    def flush(self):
        """Append what was counted since the last time; a file that cannot be written is reported
        once, and ends the counting."""
        global _active
        with self._lock:
            counts, self._counts = self._counts, {}
            self._flushed = time.monotonic()
        lines = [
            json.dumps({"schema": SCHEMA, "text": str(problem), "calls": calls,
                        "seconds": seconds, "problem": problem_to_dict(problem)})
            for problem, (calls, seconds) in counts.items()
        ]  # fmt: skip
        if not lines:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "ab", buffering=0) as file:
                file.write(("\n".join(lines) + "\n").encode())  # one write: lines do not mix
        except OSError as error:
            _log.warning("CLMATMUL_RECORD=%s cannot be written: %s", self.path, error.strerror)
            if _active is self:
                _active = None


_active = None


def start(path):
    """Log calls to a file from now on; None ends it. What was counted is written first."""
    global _active
    if _active is not None:
        _active.finish()
    _active = None if path is None else CallLog(path)


def is_on():
    """True while calls are logged."""
    return _active is not None


def launched(executable, event):
    """A product was enqueued by an Executable; `event` is its last."""
    if _active is not None:
        _active.launched(executable.plan.problem, event)


@atexit.register
def _finish():
    if _active is not None:
        _active.finish()


def read_calls(path):
    """The Calls of a file, those that took longest in all first; ArgumentError."""
    counts = {}
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
            if values["schema"] != SCHEMA:
                raise ArgumentError(f"schema {values['schema']!r} is not {SCHEMA}")
            problem = problem_from_dict(values["problem"])
            calls, seconds = int(values["calls"]), float(values["seconds"])
        except (ValueError, KeyError, TypeError, ArgumentError) as error:
            raise ArgumentError(f"{path}, line {number}: not a recorded call: {error}") from None
        before = counts.get(problem, (0, 0.0))
        counts[problem] = (before[0] + calls, before[1] + seconds)
    found = [Calls(problem, *count) for problem, count in counts.items()]
    return sorted(found, key=lambda x: -x.seconds)


start(os.environ.get("CLMATMUL_RECORD") or None)
