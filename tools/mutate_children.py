"""Children of a process that never touches OpenCL, and so may fork: each computes results in turn.

Limits are of computing time: a machine that is busy, or that stops the process, is no fault.
"""

import json
import os
import select
import signal

_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS = 0.5  # between two looks at what a child does
_MOST_IDLE = 10  # looks in a row at a child that waits: memory that its threads need is damaged


def results(work, seconds):
    """What the generator `work()` yields (JSON), computed in a child.

    Where the child ends before its work does, or waits and waits, the last result is
    ["crash", why]; where one result takes more than `seconds` of computing, ["hang", why].
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _compute(work, writer)
    os.close(writer)
    try:
        yield from _lines(pid, reader, seconds)
    finally:
        os.close(reader)
        _end(pid)


def result(work, seconds):
    """The one result of `work()`, computed in a child."""

    def once():
        yield work()

    return next(results(once, seconds))


def _compute(work, writer):
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    for item in work():
        os.write(writer, json.dumps(item).encode() + b"\n")
    os._exit(0)


def _lines(pid, reader, seconds):
    rest, begin, before, idle = b"", 0.0, 0.0, 0
    while True:
        if select.select([reader], [], [], _LOOK_SECONDS)[0]:
            more = os.read(reader, 1 << 16)
            if not more:
                break
            *whole, rest = (rest + more).split(b"\n")
            for line in whole:
                yield json.loads(line)
            begin, idle = cpu_seconds(pid)[0], 0
            continue
        spent, waits = cpu_seconds(pid)
        idle = idle + 1 if waits and spent == before else 0
        before = spent
        if spent - begin > seconds:
            yield ["hang", f"no result after {seconds} s"]
            return
        if idle == _MOST_IDLE:
            yield ["crash", "the process waits for what never comes"]
            return
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if ended:
        yield ["crash", f"the process ended with status {ended}"]


def cpu_seconds(pid):
    """(seconds that all threads of a process have computed, whether it waits for something)."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        state, *fields = file.read().rpartition(")")[2].split()
    return (int(fields[10]) + int(fields[11])) / _TICKS, state == "S"


def _end(pid):
    """End a child, if it has not, and forget it."""
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass
