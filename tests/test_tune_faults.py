"""What may befall a search from outside: it is killed, others write too, the disk is full.

The tuner, its records and its command line are the real ones; trials come from a made-up device,
so that hundreds of searches take a minute. tests/test_tune.py has real kernels that misbehave.
"""

import json
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import bound_by_modes, environment

from clmatmul.database import TuningRecord, read_records

PROFILE = Path(__file__).parent / "profiles" / "amd-mi210.json"
# A tuner whose device is made up: trials at once, times from the configuration.
SCRIPT = f"""
import hashlib, sys, time
from pathlib import Path
from clmatmul.device_profile import DeviceProfile
from clmatmul.trial import Trial
from clmatmul.tune import tuner

class Made:
    jobs = 2
    def __init__(self, *arguments):
        self.profile = DeviceProfile.from_json(Path({str(PROFILE)!r}).read_text())
    def prepare(self, problem, seed): pass
    def prove(self, config, seconds): return None
    def kill(self): pass
    def ns(self, config):
        return 1e5 + int(hashlib.sha256(str(config).encode()).hexdigest()[:6], 16)
    def try_all(self, configs, best_ns):
        for config in configs:
            time.sleep(float(sys.argv[1]))
            ns = self.ns(config)
            yield Trial(config, "ok", ns, ns, 1.0, 5, 0.1)
    def compare(self, configs, rounds, max_seconds):
        return [[self.ns(x)] * rounds for x in configs]

tuner.Trials = Made
tuner.numpy_time_ns = lambda problem, seconds: 1e6
from clmatmul.cli.main import main
sys.exit(main(["tune", *sys.argv[2:]]))
"""


def start(database, *arguments, pause=0.002, **keywords):
    command = [sys.executable, "-c", SCRIPT, str(pause), "--jsonl", "-q", "--db", str(database)]
    return subprocess.Popen(
        [*command, "--strategy", "random", "--budget", "60trials", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), **keywords,
    )  # fmt: skip


def journals(database):
    return sorted((Path(database) / "tuning" / "journals").glob("*.jsonl"))


def saved(database):
    return [x for path in journals(database) for x in read_records(path)]


def records_of(lines):
    """The records among complete lines of --jsonl output."""
    whole = [x for x in lines if x.endswith("\n")]
    return [TuningRecord.from_json(x) for x in whole if '"command"' not in x]


def check_files(database):
    """Every line but a journal's last is whole, and the best file is whole."""
    for path in journals(database):
        for line in path.read_bytes().split(b"\n")[:-1]:
            TuningRecord.from_json(line.decode())
    for path in (Path(database) / "tuning").glob("*.best.jsonl"):
        for line in path.read_text().splitlines():
            TuningRecord.from_json(line)


def _kill_at_random(database, times, rng):
    acknowledged = []
    for _ in range(times):
        process = start(database, "--m", rng.choice((32, 48, 64)), "--seed", rng.randrange(10**6),
                        "--force")  # fmt: skip
        first = process.stdout.readline()
        time.sleep(rng.random() * 0.25)
        process.send_signal(signal.SIGKILL)
        acknowledged += records_of([first, *process.stdout.readlines()])
        process.communicate()
    return acknowledged


def _assert_nothing_is_lost(database, acknowledged):
    check_files(database)
    have = {x.to_json() for x in saved(database)}
    assert acknowledged and all(x.to_json() in have for x in acknowledged)
    out, err = start(database, "--m", 32).communicate()
    found = json.loads(out.splitlines()[-1])["problems"][0]
    assert found["skipped"] > 0 and found["chosen"], err
    assert "Traceback" not in err


def test_killed_a_few_times(tmp_path):
    _assert_nothing_is_lost(tmp_path, _kill_at_random(tmp_path, 4, random.Random(1)))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_two_hundred_times(tmp_path):
    _assert_nothing_is_lost(tmp_path, _kill_at_random(tmp_path, 200, random.Random(2)))


def test_eight_tuners_on_one_database_lose_nothing(tmp_path):
    # four problems, each tuned by two processes at a time
    running = [start(tmp_path, "--m", 32 + 16 * (i % 4), "--seed", i) for i in range(8)]
    acknowledged = []
    for process in running:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        acknowledged += records_of(out.splitlines(keepends=True))
    check_files(tmp_path)
    assert len(journals(tmp_path)) == 8 and len(acknowledged) >= 8 * 50
    have = {x.to_json() for x in saved(tmp_path)}
    assert all(x.to_json() in have for x in acknowledged)
    (best,) = (tmp_path / "tuning").glob("*.best.jsonl")
    assert sorted(x.m for x in read_records(best)) == [32, 48, 64, 80]


def test_a_disk_that_fills_up_ends_the_search_with_6_and_keeps_what_was_written(tmp_path):
    def little_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    process = start(tmp_path, "--m", 32, preexec_fn=little_room)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 6 and "cannot be written" in err and "Traceback" not in err
    acknowledged = records_of(out.splitlines(keepends=True))
    assert len(acknowledged) > 5
    have = {x.to_json() for x in saved(tmp_path)}
    assert all(x.to_json() in have for x in acknowledged)
    resumed, err = start(tmp_path, "--m", 32).communicate(timeout=60)
    found = json.loads(resumed.splitlines()[-1])["problems"][0]
    assert found["skipped"] == len(acknowledged), err


def test_torn_and_garbage_lines_are_passed_over(tmp_path):
    start(tmp_path, "--m", 32).communicate(timeout=60)
    (journal,) = journals(tmp_path)
    lines = journal.read_bytes().splitlines()
    rng = random.Random(3)
    for _ in range(20):
        line = rng.choice(lines)
        damaged = line[: rng.randrange(len(line))] + bytes(
            rng.randrange(128, 256) for _ in range(9)
        )
        lines.insert(rng.randrange(len(lines)), damaged.replace(b"\n", b" "))
    journal.write_bytes(b"\n".join(lines))
    out, err = start(tmp_path, "--m", 32).communicate(timeout=60)
    found = json.loads(out.splitlines()[-1])["problems"][0]
    assert found["skipped"] >= 55 and "Traceback" not in err


def test_ctrl_c_ends_within_two_seconds(tmp_path):
    process = start(tmp_path, "--m", 32, pause=0.2)
    lines = [process.stdout.readline() for _ in range(3)]
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert time.monotonic() - begin < 2 and process.returncode == 130
    assert json.loads(out.splitlines()[-1])["interrupted"] is True
    assert len(saved(tmp_path)) >= len(lines) and "Traceback" not in err


@pytest.mark.skipif(sys.platform != "linux", reason="about Linux's modes")
def test_a_home_that_cannot_be_written_ends_with_6_and_serves_products(tmp_path):
    """Neither records nor programs can be kept, and nothing says where else they may go.

    PoCL and pyopencl themselves do not work without a folder for what they compile.
    """
    home, elsewhere = tmp_path / "home", tmp_path / "compiled"
    home.mkdir(mode=0o500)
    elsewhere.mkdir()
    changes = {
        "HOME": str(home), "POCL_CACHE_DIR": str(elsewhere), "XDG_CACHE_HOME": str(elsewhere)
    }  # fmt: skip
    ours = {k: v for k, v in environment(**changes).items()
            if not k.startswith(("CLMATMUL_", "XDG_DATA"))}  # fmt: skip

    def run(*arguments):
        return subprocess.run([sys.executable, *arguments], capture_output=True, text=True,
                              env=ours, preexec_fn=bound_by_modes, timeout=120)  # fmt: skip

    process = run("-c", SCRIPT, "0", "--m", "32", "--budget", "9trials")
    assert process.returncode == 6 and process.stdout == "" and str(home) in process.stderr
    assert "Traceback" not in process.stderr and "--db" in process.stderr
    script = "import clmatmul, numpy; print(clmatmul.matmul(*2 * [numpy.eye(9)]).sum())"
    process = run("-c", script)
    assert process.returncode == 0 and process.stdout == "9.0\n", process.stderr
