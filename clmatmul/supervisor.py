"""Starts the worker process, watches how long it takes, and ends it when it must be ended.

A driver or compiler may abort the process, or hang in a call that nothing can interrupt. So the
worker is a process of its own, in its own session, started afresh (never forked from a process
that uses OpenCL), and killed when a state lasts longer than its limit.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from clmatmul.errors import DeviceError
from clmatmul.worker_messages import raise_error

# Every state, and the seconds that it may last. open: import, find the device. prepare: make the
# operands, and what must come out. Then what happens to a trial, in order; the tuner sets the
# limits of 'verify' and 'time' by the problem.
LIMITS = {"open": 60, "prepare": 120, "build": 30, "launch": 20, "verify": 60, "time": 60,
          "meter": 30, "compare": 60, "prove": 60, "peaks": 30}  # fmt: skip
_TERMINATE_SECONDS = 2
_STDERR_TAIL = 2000
_BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
_OURS = ("CLMATMUL_RECORD", "CLMATMUL_TUNE")  # of the application, not of its workers


class WorkerFailure(Exception):
    """The worker is no more; `state` is what it was doing, `hung` whether it had to be killed."""

    def __init__(self, state, hung, reason):
        self.state = state
        self.hung = hung
        super().__init__(reason)


class Worker:
    """One worker process; `ask` sends a request and waits for the reply.

    arguments: of the Python interpreter that is started. programs: a folder for the programs
    that workers build for each other, instead of the user's cache. one_of_many: NumPy's BLAS
    starts no threads in it: they spin for a while after each use, on the others' cores.
    DeviceError if no process can be started.
    """

    def __init__(self, arguments=("-m", "clmatmul.tune.worker"), programs=None, one_of_many=False):
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115, lives as long as the process
        try:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=_environment(programs, one_of_many),
                **_own_session(),
            )
        except OSError as error:
            raise DeviceError(f"no process can be started here: {error}") from None
        self._said_before = 0
        self._lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def ask(self, request, state, limits, entered=lambda state: None):
        """The reply to a request.

        state: what the worker is doing until it says otherwise. limits: state → seconds.
        entered: told each further state. WorkerFailure if the worker dies or has to be killed;
        the package's own errors as the worker raised them.
        """
        self._said_before = self._stderr.seek(0, os.SEEK_END)
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._died(state) from None
        deadline = time.monotonic() + limits[state]
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                self._end()
                raise WorkerFailure(
                    state, True, f"still in state {state} after {limits[state]:g} s"
                ) from None
            if line is None:
                raise self._died(state)
            message = json.loads(line)
            if "state" in message:
                state = message["state"]
                deadline = time.monotonic() + limits[state]
                entered(state)
            elif "error" in message:
                raise_error(message)
            else:
                return message["reply"]

    def _died(self, state):
        code = self._process.wait()
        reason = f"the process ended with code {code}"
        if code < 0:
            reason = f"the process was ended by {signal.Signals(-code).name}"
        last = self._last_words()
        return WorkerFailure(
            state, False, f"{reason} in state {state}{': ' + last if last else ''}"
        )

    def _last_words(self):
        """The last line that the process wrote to standard error about this request."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(self._said_before, size - _STDERR_TAIL))
        lines = self._stderr.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _end(self):
        """Ask the process to end, and end it if it does not."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_TERMINATE_SECONDS)
        self.kill()

    def close(self):
        """End an idle worker: it goes when its standard input is closed."""
        try:
            self._process.stdin.close()
            self._process.wait(_TERMINATE_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()

    def kill(self):
        """End the process, and all that it started, at once."""
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()


def _environment(programs, one_of_many=False):
    """The worker imports the same clmatmul as this process, whatever lies in this folder."""
    root = str(Path(__file__).resolve().parent.parent)
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    if programs is not None:
        own["CLMATMUL_CACHE_DIR"] = str(programs)
    if one_of_many:
        own |= dict.fromkeys(_BLAS_THREADS, "1")
    inherited = {k: v for k, v in os.environ.items() if k not in _OURS}
    return {**inherited, **own}


def _own_session():
    if os.name == "posix":
        return {"start_new_session": True}
    return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
