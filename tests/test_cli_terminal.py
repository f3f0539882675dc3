"""The command line on a terminal: questions and answers, and lines that fit."""

import json
import os
import re
import subprocess
import sys

import pytest

import clmatmul

pty = pytest.importorskip("pty")


def on_terminal(argv, answers="", columns=80, stdout_too=False):
    """Run in a pseudo-terminal; returns (exit code, standard output, what the terminal shows)."""
    parent, child = pty.openpty()
    environment = {
        **os.environ,
        "PYTHONPATH": os.path.dirname(os.path.dirname(clmatmul.__file__)),
        "COLUMNS": str(columns),
        "LINES": "24",
        "TERM": "xterm",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "clmatmul", *argv],
        stdin=child,
        stdout=child if stdout_too else subprocess.PIPE,
        stderr=child,
        env=environment,
    )
    os.close(child)
    os.write(parent, answers.encode())
    shown = b""
    while True:
        try:
            data = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        shown += data
    os.close(parent)
    out = b"" if stdout_too else process.stdout.read()
    if process.stdout:
        process.stdout.close()
    return process.wait(60), out.decode(), shown.decode()


def test_multiply_asks_for_the_matrices_row_by_row():
    answers = "2\n2.5\n2\n1 2\n3\n3 x\n3 4\n2\n5 6\n7 8\n"
    code, out, shown = on_terminal(["multiply", "--json"], answers)
    assert code == 0
    assert json.loads(out)["result"] == [[19, 22], [43, 50]]  # nothing but the result
    for text in (
        "A: number of rows: ",
        "'2.5' is not a whole number",
        "A, row 2 (2 elements): ",
        "1 element, not 2",
        "'x' is not a number",
        "B: number of rows: 2, as the other matrix needs it",
        "B: number of columns: ",
    ):
        assert text in shown


def test_multiply_asks_and_the_input_ends():
    code, out, shown = on_terminal(["multiply"], "2\n\x04")
    assert (code, out) == (2, "")
    assert "A: the input ended before the matrix did" in shown


@pytest.mark.parametrize("argv", [["devices"], ["explain", "9", "9", "9"]])
def test_lines_fit_the_window(argv):
    code, _, shown = on_terminal(argv, stdout_too=True)
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= 80
    assert clmatmul.default_device().name.split()[0] in plain


def test_a_large_result_is_fitted_to_the_window(tmp_path):
    import numpy as np

    np.save(tmp_path / "a.npy", np.arange(10_000.0).reshape(100, 100) / 7)
    code, _, shown = on_terminal(["scale", "1", str(tmp_path / "a.npy")], stdout_too=True)
    lines = shown.splitlines()
    assert code == 0
    assert 10 < len(lines) < 24 and max(map(len, lines)) <= 80
    assert "..." in shown and lines[-2].startswith("100×100 float64")
