"""The supervisor, with workers that misbehave in every way; and the real worker's own manners."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import environment

from clmatmul import lanes
from clmatmul.config import TileConfig
from clmatmul.errors import ClmatmulError, DeviceError, NoDeviceError
from clmatmul.explanation import plain_problem
from clmatmul.problem_json import problem_to_dict
from clmatmul.supervisor import LIMITS, Worker, WorkerFailure
from clmatmul.trial import Workload
from clmatmul.tune import worker as worker_module
from clmatmul.tune.trials import DeviceLost, Trials

QUICK = {state: 1 for state in LIMITS}
START = """
import json, os, signal, sys, time
def say(**message):
    print(json.dumps(message), flush=True)
request = sys.stdin.readline()
"""


@pytest.fixture
def worker():
    """worker(script) → a Worker that runs the script after the first request has come."""
    started = []

    def start(script):
        started.append(Worker(("-c", START + script)))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def failure_of(worker, limits=QUICK, state="build"):
    with pytest.raises(WorkerFailure) as caught:
        worker.ask({"do": "try"}, state, {**LIMITS, **limits})
    assert worker._process.poll() is not None, "it still runs"
    return caught.value


def test_states_and_reply(worker):
    states = []
    script = "say(state='launch'); say(state='time'); say(reply=json.loads(request)['do'])"
    assert worker(script).ask({"do": "try"}, "build", LIMITS, states.append) == "try"
    assert states == ["launch", "time"]


def test_a_process_that_dies(worker):
    failure = failure_of(worker("say(state='launch'); os.kill(os.getpid(), signal.SIGSEGV)"), {})
    assert (failure.state, failure.hung) == ("launch", False)
    assert "SIGSEGV in state launch" in str(failure)


def test_a_process_that_exits_with_words(worker):
    script = "print('LLVM ERROR: cannot select\\n', file=sys.stderr); sys.exit(3)"
    failure = failure_of(worker(script), {})
    assert "code 3 in state build: LLVM ERROR: cannot select" in str(failure)


def test_a_process_that_hangs(worker):
    begin = time.monotonic()
    failure = failure_of(worker("say(state='launch'); time.sleep(100)"))
    assert (failure.state, failure.hung) == ("launch", True)
    assert "still in state launch after 1 s" in str(failure)
    assert time.monotonic() - begin < 5


def test_a_process_that_hangs_and_ignores_being_asked_to_end(worker):
    script = "signal.signal(signal.SIGTERM, signal.SIG_IGN); say(state='time'); time.sleep(100)"
    assert failure_of(worker(script)).hung


def test_children_of_a_hung_process_end_with_it(worker, tmp_path):
    script = f"""
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
say(state="launch")
time.sleep(100)
"""
    failure_of(worker(script), {"launch": 1})
    pid = (tmp_path / "pid").read_text()
    deadline = time.monotonic() + 5
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(pid)


def _runs(pid):
    found = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True)
    return found.stdout.strip() not in ("", "Z")


def test_each_state_has_its_own_limit(worker):
    script = "time.sleep(0.6); say(state='launch'); time.sleep(0.6); say(reply=1)"
    assert worker(script).ask({"do": "try"}, "build", QUICK) == 1


def test_a_request_to_a_dead_process(worker):
    dead = worker("sys.exit(0)")
    failure_of(dead, {})
    assert failure_of(dead, {}).hung is False


def test_errors_of_the_package_come_through(worker):
    with pytest.raises(NoDeviceError, match="nothing here"):
        worker("say(error='NoDeviceError', message='nothing here')").ask({}, "open", LIMITS)
    with pytest.raises(ClmatmulError, match="does not build"):
        worker("say(error='BuildError', message='it does not build')").ask({}, "open", LIMITS)


# ---- the real worker ------------------------------------------------------------------------


def open_worker(device):
    worker = Worker()
    worker.ask({"do": "open", "device": device}, "open", LIMITS)
    return worker


def test_the_worker_ends_when_the_tuner_is_gone(device):
    worker = open_worker(None)
    worker._process.stdin.close()
    assert worker._process.wait(10) == 0


def test_the_worker_finds_the_device_by_name_and_by_profile(device):
    by_profile = Trials(device.profile)
    by_default = Trials(None)
    try:
        assert by_profile.profile == by_default.profile == device.profile
    finally:
        by_profile.kill()
        by_default.kill()
    with pytest.raises(NoDeviceError, match="no device matches 'abacus'"):
        Trials("abacus")


def test_the_parent_starts_no_opencl(tmp_path):
    """A driver that ends the process at its first use must not end the tuner."""
    script = """
from clmatmul import device, installed
def refuse(*arguments): raise SystemExit("OpenCL was used")
installed.installed_devices = device.open_device = refuse
from clmatmul.tune import tune
print(tune((8, 8, 8), budget="1trials").problems[0].verdict)
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True,
        env=environment(CLMATMUL_DB=str(tmp_path)),
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip()


# ---- replacing workers ----------------------------------------------------------------------


class Scripted:
    """Stands in for Worker: answers by the name of the request, from a table of functions."""

    def __init__(self, answers, log):
        self._answers, self._log = answers, log
        log.append("start")

    def ask(self, request, state, limits, entered=None):
        self._log.append(request["do"])
        return self._answers[request["do"]](request)

    def close(self):
        self._log.append("close")

    def kill(self):
        self._log.append("kill")


@pytest.fixture
def scripted(device, monkeypatch):
    """scripted(try=…, canary=…) → (Trials, log of what its workers were asked)."""

    def make(**answers):
        log = []
        profile = {"profile": json.loads(device.profile.to_json())}
        table = {"open": lambda r: profile, "prepare": lambda r: {}, "canary": lambda r: {}}
        table.update(answers)
        monkeypatch.setattr(lanes, "Worker", lambda programs, one_of_many: Scripted(table, log))
        made = Trials(None)
        made.prepare(plain_problem(8, 8, 8), 0)
        return made, log

    return make


CONFIG = TileConfig.of("naive", work_group_size=1)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are not listed here")
@pytest.mark.parametrize("jobs", [1, 2])
def test_builders_keep_out_of_each_others_way(device, jobs, monkeypatch):
    """On PoCL a core each if there are several; NumPy's BLAS spins on no other core."""
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    monkeypatch.delenv("CLMATMUL_PIN_THREADS", raising=False)
    cores = sorted(os.sched_getaffinity(0))
    made = Trials(None, jobs=jobs)
    try:
        made.prepare(plain_problem(8, 8, 8), 0)
        request = {"do": "check", "config": CONFIG.to_dict(),
                   "problem": problem_to_dict(plain_problem(8, 8, 8))}  # fmt: skip
        for lane in made._builders:  # each begins
            lane.ask(request, "build", LIMITS)
        kept = []
        for lane in made._builders:
            process = Path("/proc", str(lane._worker._process.pid))
            assert b"OPENBLAS_NUM_THREADS=1\0" in (process / "environ").read_bytes() + b"\0"
            threads = (os.sched_getaffinity(int(x)) for x in os.listdir(process / "task"))
            kept.append(set().union(*threads))
        if device.profile.family == "pocl" and jobs > 1:
            assert kept == [{cores[i % len(cores)]} for i in range(jobs)]
        else:
            assert kept == [set(cores)] * jobs
        timer = Path("/proc", str(made._timer._worker._process.pid))
        assert (timer / "environ").read_bytes().count(b"OPENBLAS_NUM_THREADS=1") == (
            os.environ.get("OPENBLAS_NUM_THREADS") == "1"
        )
    finally:
        made.kill()


def dies(hung, state="launch"):
    def answer(request):
        raise WorkerFailure(state, hung, "the reason")

    return answer


@pytest.mark.parametrize(
    "answer, status",
    [
        (dies(False), "crash"),
        (dies(False, "build"), "crash"),
        (dies(True), "hang"),
        (dies(True, "time"), "hang"),
        (dies(True, "build"), "build_timeout"),
    ],
)
def test_after_a_failure_a_new_worker_shows_that_the_device_works(scripted, answer, status):
    made, log = scripted(**{"try": answer})
    assert made.try_config(CONFIG).status == status
    del log[:]
    made.try_config(CONFIG)
    assert log == ["start", "open", "canary", "prepare", "try"]


@pytest.mark.parametrize("canary", [dies(True), dies(False), None])
def test_a_device_that_fails_the_safe_kernel_is_lost(scripted, canary):
    def wrong(request):
        raise DeviceError("the safe kernel gives wrong results")

    made, _ = scripted(**{"try": dies(False), "canary": canary or wrong})
    assert made.try_config(CONFIG).status == "crash"
    with pytest.raises(DeviceLost, match="restart the driver or the machine"):
        made.try_config(CONFIG)


def test_a_worker_serves_a_limited_number_of_trials(scripted, monkeypatch):
    monkeypatch.setattr(lanes, "_REQUESTS_PER_WORKER", 2)
    ok = {"status": "ok", "config": CONFIG.to_dict(), "median_ns": 5.0}
    made, log = scripted(**{"try": lambda request: ok})
    for _ in range(5):
        assert made.try_config(CONFIG).median_ns == 5.0
    assert log.count("start") == 3 and log.count("close") == 2


def test_limits_follow_the_best_or_the_timeout(scripted, monkeypatch):
    seen = []

    def note_limits(self, request, state, limits, entered=None):
        seen.append((request.get("slowest_ns"), limits))
        return {"status": "ok", "config": CONFIG.to_dict(), "median_ns": 5.0}

    made, _ = scripted()
    monkeypatch.setattr(Scripted, "ask", note_limits)
    made.try_config(CONFIG)
    made.try_config(CONFIG, best_ns=1e6)
    made.try_config(CONFIG, best_ns=1e9)
    assert [slowest for slowest, _ in seen] == [30e9, 0.1e9, 20e9]
    assert [limits["time"] for _, limits in seen] == [165, 15.5, 115]
    made._timeout = 3
    made.try_config(CONFIG)
    assert {seen[-1][1][state] for state in ("build", "launch", "verify", "time")} == {3}


def test_operands_that_cannot_be_made_are_an_error(scripted):
    with pytest.raises(DeviceError, match="the tuner's worker failed: the reason"):
        scripted(prepare=dies(False))


def test_a_comparison_runs_in_as_many_places_as_asked(monkeypatch):
    session = worker_module.Session(lambda message: None)
    session.answer({"do": "open", "device": None})
    problem = problem_to_dict(plain_problem(24, 20, 16))
    session.answer({"do": "prepare", "problem": problem, "seed": 0})
    places = []
    move = Workload.move

    def moved(workload):
        before = workload._sets
        move(workload)
        places.append((before, workload._sets))

    monkeypatch.setattr(Workload, "move", moved)
    config = TileConfig.of("naive", work_group_size=8).to_dict()
    request = {"do": "compare", "configs": [config, config], "rounds": 30, "max_seconds": 60.0}
    assert [len(x) for x in session.answer(request)["costs"]] == [30, 30] and not places
    costs = session.answer({**request, "places": 3})["costs"]
    assert [len(x) for x in costs] == [30, 30] and all(x > 0 for own in costs for x in own)
    assert len(places) == 2
    for before, after in places:
        assert len(before) == len(after)
        assert not {x[0].int_ptr for y in before for x in y.values()} & {
            x[0].int_ptr for y in after for x in y.values()
        }
    costs = session.answer({**request, "places": 3, "max_seconds": 0.0})["costs"]
    assert [len(x) for x in costs] == [6, 6]
