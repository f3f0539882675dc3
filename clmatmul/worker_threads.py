"""PoCL's worker threads, one to a core.

PoCL starts one thread a core, and Linux is free to wake them where it likes. It likes to wake
both threads of a short kernel on the same core, and they then take turns for milliseconds, with
the other core idle: on two cores 512×512×512 took 5.4 ms instead of 2.8, and 256×256×256 405 µs
instead of 232 (medians). So each thread is kept on a core of its own.

POCL_AFFINITY=1 asks PoCL for the same, but counts cores from 0, whatever the process may use.
"""

import contextlib
import logging
import os

_log = logging.getLogger("clmatmul")


def is_wanted():
    """False where the user decides (POCL_AFFINITY), says no (CLMATMUL_PIN_THREADS=0), or no
    thread can be moved.
    """
    decided = "POCL_AFFINITY" in os.environ or os.environ.get("CLMATMUL_PIN_THREADS") == "0"
    return not decided and hasattr(os, "sched_setaffinity") and os.path.isdir("/proc/self/task")


@contextlib.contextmanager
def pinned():
    """Give each thread that starts inside a core of its own, if there is one for each.

    With fewer threads than cores nothing is done: two processes would choose the same cores.
    """
    if not is_wanted():
        yield
        return
    before = _threads()
    yield
    started = sorted(_threads() - before)
    cores = sorted(os.sched_getaffinity(0))
    if len(started) < 2 or len(started) != len(cores):
        return
    for thread, core in zip(started, cores, strict=True):
        try:
            os.sched_setaffinity(thread, {core})
        except OSError as error:  # a sandbox may forbid it; only speed depends on it
            _log.info("a worker thread stays where the system puts it: %s", error)
            return
    _log.debug("%d worker threads have a core each", len(started))


def gather(core):
    """Keep every thread of this process, and those to come, on one core.

    For a process that works beside others of its kind: threads with a core each, as `pinned` gives
    them, would meet those of the others on the same cores, and compile there in turns.
    """
    if not is_wanted():
        return
    for thread in sorted(_threads()):
        try:
            os.sched_setaffinity(thread, {core})
        except ProcessLookupError:
            continue  # it has just ended
        except OSError as error:  # a sandbox may forbid it; only speed depends on it
            _log.info("the threads stay where the system puts them: %s", error)
            return


def _threads():
    return {int(x) for x in os.listdir("/proc/self/task")}
