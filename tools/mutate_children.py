"""Children of a process that never touches OpenCL, and so may fork: each computes results in turn.

Limits are of computing time: a machine that is busy, or that stops the process, is no fault.
"""

import json
import os
import select
import signal
import time

_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS = 0.5  # between two looks at what children do
_MOST_IDLE = 60  # looks in a row at a child that waits: memory that its threads need is damaged


class Child:
    """A process that computes what the generator `work()` yields (JSON).

    Where it ends before its work does, or waits and waits, the last result is ["crash", why];
    where one result takes more than `seconds` of computing, ["hang", why].
    """

    def __init__(self, work, seconds):
        self.seconds, self.over = seconds, False
        self._reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._reader)
            _compute(work, writer)
        os.close(writer)
        self._rest, self._begin, self._before, self._idle = b"", 0.0, 0.0, 0
        self._looked = time.monotonic()

    def fileno(self):
        return self._reader

    def read(self):
        """The results that have come since; to be called when there is something to read."""
        more = os.read(self._reader, 1 << 16)
        if not more:
            self.over = True
            ended = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
            return [["crash", f"the process ended with status {ended}"]] if ended else []
        *whole, self._rest = (self._rest + more).split(b"\n")
        self._begin, self._idle = cpu_seconds(self._pid)[0], 0
        return [json.loads(line) for line in whole]

    def look(self):
        """What is wrong with a child that says nothing, as its last results."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return []
        self._looked = time.monotonic()
        spent, waits = cpu_seconds(self._pid)
        self._idle = self._idle + 1 if waits and spent == self._before else 0
        self._before = spent
        if spent - self._begin > self.seconds:
            self.over = True
            return [["hang", f"no result after {self.seconds} s"]]
        if self._idle >= _MOST_IDLE:
            self.over = True
            return [["crash", "the process waits for what never comes"]]
        return []

    def end(self):
        """End the process, if it has not, and forget it."""
        os.close(self._reader)
        try:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def results(work, seconds):
    """What a Child of this work says, as it comes."""
    child = Child(work, seconds)
    try:
        while not child.over:
            for _, found in news([child]):
                yield from found
    finally:
        child.end()


def result(work, seconds):
    """The one result of `work()`, computed in a child."""

    def once():
        yield work()

    return next(results(once, seconds))


def news(children):
    """(child, results) of each child that is over or has something to say; waits a little."""
    ready = select.select(children, [], [], _LOOK_SECONDS)[0]
    for child in children:
        found = child.read() if child in ready else child.look()
        if found or child.over:
            yield child, found


def _compute(work, writer):
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    for item in work():
        os.write(writer, json.dumps(item).encode() + b"\n")
    os._exit(0)


def cpu_seconds(pid):
    """(seconds that all threads of a process have computed, whether it waits for something)."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        state, *fields = file.read().rpartition(")")[2].split()
    return (int(fields[10]) + int(fields[11])) / _TICKS, state == "S"
