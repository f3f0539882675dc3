"""The tuner as people start it: a process of its own, on the device under test.

tests/variants/faulty.cl.mako has the faults; the search must record each and end normally.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from processes import bound_by_modes, environment

import clmatmul
from clmatmul import walk
from clmatmul.config import TileConfig
from clmatmul.database import TuningRecord, read_records
from clmatmul.tune import tune

VARIANTS = Path(__file__).parent / "variants"
SIZE = ("--m", "24", "--n", "20", "--k", "16")
TIMEOUT = 8  # seconds a state; generous for a build on a busy machine


def run(*arguments, database, preexec_fn=None, **changes):
    """The finished process `python -m clmatmul *arguments`."""
    return subprocess.run(
        [sys.executable, "-m", "clmatmul", *map(str, arguments)], capture_output=True, text=True,
        timeout=240, preexec_fn=preexec_fn, env=environment(CLMATMUL_DB=str(database), **changes),
    )  # fmt: skip


def start(*arguments, database, **changes):
    return subprocess.Popen(
        [sys.executable, "-m", "clmatmul.tune", *map(str, arguments)], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(CLMATMUL_DB=str(database), **changes),
    )  # fmt: skip


def journal_records(database):
    found = []
    for journal in sorted((Path(database) / "tuning" / "journals").glob("*.jsonl")):
        found += read_records(journal)
    return found


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, device):
    """A finished search among the faulty kernels: (process, its report, its database)."""
    database = tmp_path_factory.mktemp("database")
    process = run(
        "tune", *SIZE, "--variant", "faulty", "--strategy", "exhaustive", "--timeout", TIMEOUT,
        "--json", database=database, CLMATMUL_KERNEL_PATH=str(VARIANTS),
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return process, json.loads(process.stdout), database


def test_each_fault_is_recorded_as_such_and_the_search_ends(tuned, device):
    process, report, database = tuned
    statuses = {
        x.config.values()["fault"]: x.status
        for x in journal_records(database)
        if x.config.variant == "faulty"
    }
    expected = {"none": "ok", "slow": "ok", "refused": "build_failed", "wrong": "wrong_result",
                "wrong_when_large": "wrong_result", "outside": "wrong_result",
                "unwritten": "wrong_result", "hang": "hang"}  # fmt: skip
    if device.profile.family == "pocl":  # the only compiler known to fall for these
        expected |= {"crash": "crash", "build_hang": "build_timeout"}
    assert {fault: statuses[fault] for fault in expected} == expected
    assert report["problems"][0]["stopped"] == "every configuration was tried"
    assert "Traceback" not in process.stderr


def test_the_process_dies_of_the_crash_and_says_so(tuned, device):
    if device.profile.family != "pocl":
        pytest.skip("the crash is made for a compiler built with Clang's debugging pragmas")
    (crash,) = (x for x in journal_records(tuned[2]) if x.status == "crash")
    assert "ended by SIG" in crash.note and "in state build" in crash.note


def test_a_new_process_uses_the_record(tuned):
    _, report, database = tuned
    (found,) = report["problems"]
    process = run("explain", 24, 20, 16, "--json", database=database)
    explained = json.loads(process.stdout)
    assert explained["origin"] == "tuned"
    assert explained["chosen"] == found["chosen"]
    other = json.loads(run("explain", 24, 20, 17, "--json", database=database).stdout)
    assert other["origin"] == "nearest" and other["chosen"] == found["chosen"]


def test_what_failed_is_not_tried_again(tuned):
    _, report, database = tuned
    count = len(journal_records(database))
    process = run(
        "tune", *SIZE, "--variant", "faulty", "--strategy", "exhaustive", "--jsonl", "-q",
        database=database, CLMATMUL_KERNEL_PATH=str(VARIANTS),
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    *records, again = process.stdout.splitlines()
    assert records == [] and process.stderr == ""
    (found,) = json.loads(again)["problems"]
    assert found["tried"] == 0 and found["statuses"] == report["problems"][0]["statuses"]
    assert len(journal_records(database)) == count + 1  # the winner, measured again


@pytest.fixture
def own_database(tmp_path, monkeypatch):
    """A database of the test's own, forgotten afterwards."""
    with monkeypatch.context() as patched:
        patched.setenv("CLMATMUL_DB", str(tmp_path))
        walk.forget()
        yield
    walk.forget()


def test_the_next_product_of_this_process_uses_the_record(device, own_database):
    a, b = np.ones((23, 40), np.float32), np.ones((40, 31), np.float32)
    with clmatmul.use_device(device.cl_device):
        before = clmatmul.MatMul(a, b)
        assert before.choice.origin in ("heuristic", "shipped", "nearest")
        report = tune(before.problem, budget="4trials", variants=["naive"])
        assert report.ok and report.profile == device.profile
        after = clmatmul.MatMul(a, b)
        assert after.choice.origin == "tuned"
        assert after.config == report.problems[0].winner.config
        assert (after(a, b) == 40).all()


def test_kill_loses_no_acknowledged_record_and_leaves_no_process(device, tmp_path):
    # of which there are so many that the search is far from its end, however busy the machine is
    process = start(*SIZE, "--variant", "tiled", "--jsonl", "--force", "-q", database=tmp_path)
    acknowledged = [process.stdout.readline() for _ in range(4)]
    workers = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True
    ).stdout.split()
    process.send_signal(signal.SIGKILL)
    acknowledged += [x for x in process.stdout.readlines() if x.endswith("\n")]
    process.communicate()
    saved = journal_records(tmp_path)
    assert [TuningRecord.from_json(x) for x in acknowledged] == saved[: len(acknowledged)]
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers and not any(Path(f"/proc/{pid}").exists() for pid in workers)
    resumed = run(
        "tune", *SIZE, "--variant", "tiled", "--json", "--budget", "1trials", database=tmp_path
    )
    assert json.loads(resumed.stdout)["problems"][0]["skipped"] >= 1


def test_ctrl_c_ends_a_hanging_search_at_once_saves_and_reports(device, tmp_path):
    process = start(
        *SIZE, "--variant", "faulty", "--strategy", "exhaustive", "--timeout", 100, "-v",
        database=tmp_path, CLMATMUL_KERNEL_PATH=str(VARIANTS),
    )  # fmt: skip
    # Until the crash is recorded and the endless build, or the endless kernel, has begun.
    for line in process.stderr:
        if "fault=crash" in line:
            break
    time.sleep(3)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert time.monotonic() - begin < 2
    assert process.returncode == 130
    assert "ended: interrupted" in out and "best so far: " in out
    assert "Traceback" not in err
    assert len(journal_records(tmp_path)) >= 3


# ---- the command line -----------------------------------------------------------------------


def test_exit_code_6_if_the_records_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    process = run("tune", *SIZE, database=tmp_path / "file")
    assert process.returncode == 6
    assert process.stdout == "" and len(process.stderr.splitlines()) == 1
    assert str(tmp_path / "file") in process.stderr and "--db" in process.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="about Linux's modes")
def test_exit_code_6_in_a_read_only_folder(tmp_path):
    tmp_path.chmod(0o500)
    assert run("tune", *SIZE, database=tmp_path, preexec_fn=bound_by_modes).returncode == 6


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["--budget", "soon"], 2, "60s, 5m, 1h, 200trials"),
        (["--strategy", "psychic"], 2, "invalid choice"),
        (["--m", "0"], 2, "is no size, list or range"),
        (["--dtype", "float7"], 2, "is none of"),
        (["--timeout", "-1"], 2, "above 0"),
        (["--force", "--resume"], 2, "not allowed with"),
        (["--variant", "nothing"], 2, "there is no kernel variant 'nothing'"),
        (["--device", "abacus"], 3, "no device matches 'abacus'"),
    ],
)
def test_mistakes_end_with_their_code_and_one_error(tmp_path, arguments, code, words):
    process = run("tune", *arguments, database=tmp_path)
    assert process.returncode == code, process.stderr
    assert words in process.stderr and process.stdout == ""
    assert "Traceback" not in process.stderr


def test_a_dry_run_prints_the_space_and_writes_nothing(device, tmp_path):
    process = run("tune", *SIZE, "--variant", "tiled", "--dry-run", "--db", tmp_path / "own",
                  "--budget", "5m", "--budget", "200trials", database=tmp_path / "not")  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert "combinations, " in process.stdout
    assert "300 s or 200 trials" in process.stdout and str(tmp_path / "own") in process.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_search_in_a_pipe_has_plain_text_only(device, tmp_path):
    process = run("tune", *SIZE, "--variant", "naive", "--budget", "5trials", "--layout", "TN",
                  "--dtype", "int32", "--batch", "2", database=tmp_path)  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert "problem     2×24×20×16 int32 TN → int32" in process.stdout
    assert "NumPy" in process.stdout and "[default]" in process.stdout
    assert process.stderr.startswith("tuning 2×24×20×16 int32 TN")
    assert not set(process.stdout + process.stderr) & {"\x1b", "\r"}
    kinds = {x.kind for x in journal_records(tmp_path)}
    assert len(kinds) == 1 and "a=int32:column" in kinds.pop()
    winner = TileConfig.parse(process.stdout.split("→ ")[2].split("×  ")[1].split("  [")[0].strip())
    assert winner in {x.config for x in journal_records(tmp_path)}
