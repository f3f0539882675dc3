"""CLMATMUL_RECORD: what an application computed, counted and timed."""

import json
import subprocess
import sys

import numpy as np
import pytest
from processes import environment

import clmatmul
from clmatmul import call_log
from clmatmul.errors import ArgumentError


@pytest.fixture
def log(tmp_path):
    """The path of a log that is being written; `finish()` of the module ends it."""
    path = tmp_path / "deep" / "shapes.jsonl"
    call_log.start(path)
    yield path
    call_log.start(None)


def test_calls_of_each_problem_are_counted_and_timed(device, log):
    a, b = np.ones((6, 5), np.float32), np.ones((5, 7), np.float32)
    with clmatmul.use_device(device.cl_device):
        for _ in range(3):
            assert (clmatmul.matmul(a, b) == 5).all()
        clmatmul.gemm(a, b, alpha=2)
        prepared = clmatmul.MatMul(a, b)
        prepared(a, b)
    call_log.start(None)
    found = {(x.problem.m, x.problem.alpha): x for x in call_log.read_calls(log)}
    assert found[6, "one"].calls == 4 and found[6, "general"].calls == 1
    assert found[6, "one"].problem == prepared.problem
    assert all(x.seconds > 0 for x in found.values())


def test_device_arrays_are_counted_when_they_are_done(device, log):
    import pyopencl.array as cl_array

    queue = device.queue()
    a, b = (cl_array.to_device(queue, np.ones(s, np.float32)) for s in ((4, 3), (3, 9)))
    for _ in range(2):
        clmatmul.matmul(a, b).get()
    queue.finish()
    call_log.start(None)
    (found,) = call_log.read_calls(log)
    assert (found.problem.n, found.calls) == (9, 2)


def test_every_repeat_of_a_prepared_product_is_counted(device, log):
    import pyopencl.array as cl_array

    queue = device.queue()
    a, b = (cl_array.to_device(queue, np.ones(s, np.float32)) for s in ((4, 3), (3, 9)))
    out = cl_array.zeros(queue, (4, 9), np.float32)
    prepared = clmatmul.MatMul(a, b, out)
    for _ in range(5):
        prepared(a, b, out)
    queue.finish()
    call_log.start(None)
    assert [x.calls for x in call_log.read_calls(log)] == [5]


def test_lines_of_several_writers_add_up_and_the_slowest_comes_first(device, log, tmp_path):
    a, b = np.ones((6, 5), np.float32), np.ones((5, 7), np.float32)
    for _ in range(2):
        clmatmul.matmul(a, b)
        call_log.start(log)
    lines = log.read_text().splitlines()
    assert [json.loads(x)["calls"] for x in lines] == [1, 1]
    (found,) = call_log.read_calls(log)
    assert found.calls == 2


def test_a_program_that_knows_nothing_of_it_is_recorded(device, tmp_path):
    path = tmp_path / "shapes.jsonl"
    code = "import numpy as np, clmatmul; x = np.ones((8, 8), np.float32); clmatmul.matmul(x, x)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100,
                   env=environment(CLMATMUL_RECORD=str(path)))  # fmt: skip
    (found,) = call_log.read_calls(path)
    assert (found.problem.m, found.calls) == (8, 1)


def test_a_log_that_cannot_be_written_warns_once_and_the_product_is_right(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    call_log.start(tmp_path / "file" / "shapes.jsonl")
    x = np.eye(5, dtype=np.float32)
    assert (clmatmul.matmul(x, x) == x).all()
    call_log._active.finish()
    assert (clmatmul.matmul(x, x) == x).all()
    call_log.start(None)
    assert len([x for x in caplog.records if "CLMATMUL_RECORD" in x.getMessage()]) == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2}', '{"schema": 1, "problem": {}}'])
def test_what_is_no_log_is_refused_with_its_line(tmp_path, text):
    path = tmp_path / "shapes.jsonl"
    path.write_text(f"\n{text}\n")
    with pytest.raises(ArgumentError, match="line 2: not a recorded call"):
        call_log.read_calls(path)
    with pytest.raises(ArgumentError, match="cannot be read"):
        call_log.read_calls(tmp_path / "missing")
