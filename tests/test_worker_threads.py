"""PoCL's worker threads get a core each."""

import os
import subprocess
import sys
import threading

import pytest

from clmatmul import worker_threads

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or not os.path.isdir("/proc/self/task"),
    reason="this system moves no thread",
)
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
OPEN = """
import os
before = set(os.listdir("/proc/self/task"))
import clmatmul, numpy
started_by_imports = set(os.listdir("/proc/self/task")) - before
clmatmul.matmul(numpy.ones((4, 4)), numpy.ones((4, 4)))
started = set(os.listdir("/proc/self/task")) - before - started_by_imports
print(clmatmul.default_device().family, *(len(os.sched_getaffinity(int(x))) for x in started))
"""


@pytest.fixture
def idle():
    """Starts threads that live until the test ends; gives their numbers."""
    end = threading.Event()

    def start(count):
        threads = [threading.Thread(target=end.wait, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        return [thread.native_id for thread in threads]

    yield start
    end.set()


@pytest.fixture(autouse=True)
def undecided(monkeypatch):
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    monkeypatch.delenv("CLMATMUL_PIN_THREADS", raising=False)


@pytest.mark.skipif(CORES < 2, reason="one core")
def test_a_thread_for_each_core(idle):
    mine = os.sched_getaffinity(0)
    with worker_threads.pinned():
        started = idle(CORES)
    cores = [os.sched_getaffinity(x) for x in started]
    assert all(len(x) == 1 for x in cores)
    assert set().union(*cores) == mine
    assert os.sched_getaffinity(0) == mine  # the caller's own thread goes where it likes


@pytest.mark.skipif(CORES < 2, reason="one core")
@pytest.mark.parametrize("count", [1, CORES + 1])
def test_other_numbers_of_threads_are_left_alone(idle, count):
    with worker_threads.pinned():
        started = idle(count)
    assert all(os.sched_getaffinity(x) == os.sched_getaffinity(0) for x in started)


@pytest.mark.parametrize("variable, value", [("CLMATMUL_PIN_THREADS", "0"), ("POCL_AFFINITY", "0")])
def test_the_user_decides(idle, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with worker_threads.pinned():
        started = idle(CORES)
    assert all(os.sched_getaffinity(x) == os.sched_getaffinity(0) for x in started)


def test_a_sandbox_that_forbids_it(idle, monkeypatch):
    def forbid(thread, cores):
        raise PermissionError("not here")

    monkeypatch.setattr(os, "sched_setaffinity", forbid)
    with worker_threads.pinned():
        idle(CORES)


GATHER = """
import os, sys, threading
from clmatmul import worker_threads
end = threading.Event()
before = threading.Thread(target=end.wait)
before.start()
worker_threads.gather(int(sys.argv[1]))
after = threading.Thread(target=end.wait)
after.start()
print(*(len(os.sched_getaffinity(x)) for x in (0, before.native_id, after.native_id)))
end.set()
"""


@pytest.mark.parametrize("pin, cores", [("1", 1), ("0", CORES)])
def test_all_threads_of_a_process_on_one_core(pin, cores):
    environment = {**os.environ, "CLMATMUL_PIN_THREADS": pin}
    core = max(os.sched_getaffinity(0))
    done = subprocess.run([sys.executable, "-c", GATHER, str(core)], env=environment,
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.stdout.split() == [str(cores)] * 3, done.stderr


@pytest.mark.skipif(CORES < 2, reason="one core")
@pytest.mark.parametrize("pin, cores", [("1", 1), ("0", CORES)])
def test_a_device_that_is_opened(device, pin, cores):
    if device.profile.family != "pocl":
        pytest.skip("not PoCL")
    environment = {**os.environ, "CLMATMUL_PIN_THREADS": pin}
    done = subprocess.run(
        [sys.executable, "-c", OPEN], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    family, *found = done.stdout.split()
    assert family == "pocl"
    assert found.count(str(cores)) >= CORES
