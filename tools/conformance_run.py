"""Run the numeric tests on each OpenCL implementation; the work of tools/conformance."""

import argparse
import contextlib
import datetime
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import conformance_matrix as matrix
import runtimes
from conformance_matrix import Run
from runtimes import IMPLEMENTATIONS, TOOLS, UnavailableError

ROOT = TOOLS.parent
PAGE = ROOT / "docs" / "conformance.md"
MOST_RESTARTS = 5
SIMULATED_TESTS = 30  # that share a process: all their buffers live as long as it does
LINES_SHOWN = 30
RUNNING = set()  # processes of pytest
PYTEST_STATUSES = {2: "interrupted", 3: "internal error", 4: "wrong usage"}


@dataclass(frozen=True)
class Suite:
    """What is run on every implementation: the same for all but the marker."""

    tests: tuple[str, ...] = ("tests",)
    families: tuple[str, ...] = ()
    slow: bool = False
    brief: bool = False
    extra: tuple[str, ...] = ()
    seconds: float = 3600.0
    until: float = float("inf")  # of time.monotonic(): when the last implementation is to be done
    logs: Path | None = None
    journal: Path | None = None
    again: tuple[str, ...] = ()  # variants, families or tests that the journal is to forget

    def marker(self, simulator):
        """The expression for pytest's -m."""
        tiny = simulator or self.brief
        words = ["numeric"] + ["tiny"] * tiny + ["not slow"] * (not self.slow)
        return " and ".join(words)

    def command(self, records, simulator):
        """The command line of one run."""
        # Written with "=": pytest would take a separate word that is a path for a place of tests.
        families = [f"--conformance-families={','.join(self.families)}"] * bool(self.families)
        most = [f"--conformance-most={SIMULATED_TESTS}"] * simulator
        return [
            sys.executable, "-m", "pytest", *self.tests, "-m", self.marker(simulator), "-q",
            "-p", "conformance_plugin", "-p", "no:cacheprovider",
            "--continue-on-collection-errors", f"--conformance-records={records}",
            *families, *most, *self.extra,
        ]  # fmt: skip


@dataclass(frozen=True)
class Target:
    """One column to fill: an implementation from the folder, or a device of this machine."""

    name: str
    folder: Path
    native: str = ""

    @property
    def simulator(self):
        """True for Oclgrind."""
        return not self.native and IMPLEMENTATIONS[self.name].simulator

    def environment(self, scratch):
        """(environment, facts of the device) of its processes; UnavailableError if it has none."""
        if self.native:
            return self._native_environment(scratch)
        runtime = runtimes.load(self.name, self.folder)
        runtime = runtimes.probe(runtime, self.folder, os.environ, scratch)
        return runtimes.environment_of(runtime, self.folder, os.environ, scratch), runtime.facts

    def _native_environment(self, scratch):
        environment = runtimes.private_folders(dict(os.environ), scratch)
        environment.pop("PYOPENCL_CTX", None)
        facts = runtimes.find_device(runtimes.ask_devices(environment), self.native)
        return environment | {"CLMATMUL_DEVICE": self.native}, facts


# ------------------------------------------------------------------------------ one implementation


def run_target(target, suite):
    """The `Run` of `suite` on `target`.

    A brief run that ends early has no problem for it: what was done by then counts, the test in
    which it ended does not.
    """
    start = time.monotonic()
    run = Run(target.name, today())
    with tempfile.TemporaryDirectory(prefix="clmatmul-conformance-") as scratch:
        try:
            environment, facts = target.environment(scratch)
        except UnavailableError as error:
            progress(f"{target.name}: not available: {error}")
            return replace(run, unavailable=clean(str(error), target, scratch))
        progress(f"{target.name}: running on {facts.device}, driver {facts.driver}")
        tests, problems, commits = run_tests(target, suite, environment, Path(scratch))
        tests = [
            replace(item, reason=clean(item.reason, target, scratch))
            for item in matrix.of_families(tests, suite.families)
        ]
        problems = tuple(clean(problem, target, scratch) for problem in problems)
    if suite.brief and problems:
        progress(f"{target.name}: not done: {'; '.join(problems)}")
        tests = [item for item in tests if item.reason != matrix.ENDED]
        if not tests:
            return replace(run, facts=facts, unavailable="; ".join(problems))
        problems = ()
    seconds = round(time.monotonic() - start, 1)
    run = replace(run, facts=facts, seconds=seconds, problems=problems, commits=commits)
    run = matrix.summarise(run, tests)
    progress(f"{target.name}: {run.verdict}: {run.total or 'nothing was run'} in {seconds:.0f} s")
    return run


def run_tests(target, suite, environment, scratch):
    """(results, problems, commits) of all processes: one ends after a crash, or its share.

    With a journal, of those of earlier runs, too.
    """
    records = (suite.journal or scratch) / f"{target.name}.jsonl"
    kept = matrix.kept_records(lines_of(records), suite.again, target.simulator)
    kept.append(json.dumps({"event": "commit", "name": commit()}))
    records.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    output = (suite.logs or scratch) / f"{target.name}.log"
    output.write_bytes(b"")
    environment = dict(environment)
    inherited = [environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else []
    environment["PYTHONPATH"] = os.pathsep.join([str(TOOLS), *inherited])
    command = suite.command(records, target.simulator)
    deadline = min(time.monotonic() + suite.seconds, suite.until)
    problems, crashes = [], 0
    with SimulatorLog(environment.get("OCLGRIND_LOG")) as log:
        while True:
            known = lines_of(records)
            status = run_once(command, environment, output, deadline - time.monotonic())
            lines = lines_of(records)
            if status in (0, 1, 5):
                if matrix.tests_left(lines[len(known) :]):
                    continue
                break
            crashed = matrix.results(lines)[1]
            problems.append(failure(status, crashed, suite.seconds, output))
            if status is None or status > 0 or len(lines) == len(known):
                break
            crashes += 1
            if crashes > MOST_RESTARTS:
                problems.append(f"given up after {MOST_RESTARTS} restarts; tests are missing")
                break
            progress(f"{target.name}: {problems[-1]}; going on with the tests after it")
    findings = matrix.findings_by_test(log.text)
    with records.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"event": "findings", "texts": findings}) + "\n")
    lines = lines_of(records)
    findings = matrix.findings_of(lines)
    tests = matrix.results(lines, findings)[0]
    if "" in findings:
        found = matrix.describe(matrix.parse_oclgrind_log(findings[""]))
        problems.append(f"Oclgrind, outside of a test: {found}")
    if not tests and not problems:
        problems.append("no test was selected")
    if problems or any(item.outcome == "failed" for item in tests):
        progress(f"{target.name}: the end of pytest's output:\n{tail(output)}")
    return tests, problems, matrix.commits_of(lines)


def lines_of(file):
    """The lines of a text file; none if it does not exist."""
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


class SimulatorLog:
    """Everything that is written to Oclgrind's log file while this is open, as `text`.

    Oclgrind empties its log whenever a context is made, which would lose what it said before. So
    the file is a named pipe, where emptying does nothing, and a thread here reads it. Without a
    path, nothing is done and the text is empty.
    """

    def __init__(self, path):
        self.path = path
        self.parts = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)

    @property
    def text(self):
        return b"".join(self.parts).decode("utf-8", "replace")

    def __enter__(self):
        if self.path:
            Path(self.path).unlink(missing_ok=True)
            os.mkfifo(self.path, 0o600)
            # For reading and writing: so it is never at its end, and no writer waits to open it.
            self.pipe = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
            self.thread.start()
        return self

    def __exit__(self, *error):
        if self.path:
            self.stop.set()
            self.thread.join()
            os.close(self.pipe)

    def _read(self):
        while True:
            last_time = self.stop.is_set()
            if select.select([self.pipe], [], [], 0 if last_time else 0.1)[0]:
                self.parts.append(os.read(self.pipe, 1 << 16))
            elif last_time:
                return


def run_once(command, environment, output, seconds):
    """pytest's exit status; negative if a signal ended it; None if it took over `seconds`."""
    with output.open("ab") as stream:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
            stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        RUNNING.add(process)
        try:
            return process.wait(timeout=max(seconds, 1))
        except subprocess.TimeoutExpired:
            return None
        finally:
            RUNNING.discard(process)
            end_group(process)


def end_all(number, frame):
    """End what is running when this process is told to end."""
    for process in tuple(RUNNING):
        end_group(process)
    os._exit(128 + number)


def end_group(process):
    """End what is left of a process and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def failure(status, crashed, seconds, output):
    """Why a pytest process did not end as it should."""
    where = f" in {crashed[-1]}" if crashed else ""
    if status is None:
        return f"stopped after {seconds:.0f} s{where}"
    if status < 0:
        return f"crashed with {signal_name(-status)}{where}"
    last = [line for line in tail(output).splitlines() if line.strip()][-1:]
    return f"pytest: {PYTEST_STATUSES.get(status, f'exit status {status}')}: {' '.join(last)}"


def signal_name(number):
    """SIGSEGV for 11, and so on."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def tail(file):
    """The last lines of a text file."""
    text = file.read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-LINES_SHOWN:])


def clean(text, target, scratch):
    """`text` without the paths of this machine."""
    places = {
        f"{ROOT}/": "",
        str(target.folder): "RUNTIMES",
        str(scratch): "SCRATCH",
        str(Path.home()): "~",
        sys.prefix: "PYTHON",
        tempfile.gettempdir(): "TMP",
    }
    places = {path: name for path, name in places.items() if len(path) > 1}
    return matrix.without_paths(text, places)


# ------------------------------------------------------------------------------------ the command


def progress(text):
    """A line for who is waiting."""
    print(text, file=sys.stderr, flush=True)


def today():
    """The date, as YYYY-MM-DD, in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def commit():
    """The checkout's commit, with a word if files differ from it; empty if there is none."""

    def git(*arguments):
        done = subprocess.run(["git", "-C", str(ROOT), *arguments],
                              capture_output=True, text=True, check=False)  # fmt: skip
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        name = git("rev-parse", "--short", "HEAD")
        changed = name and git("status", "--porcelain", "--untracked-files=no")
    except OSError:
        return ""
    return f"{name} with changes" if changed else name


def parser():
    """The command line."""
    names = ", ".join(IMPLEMENTATIONS)
    result = argparse.ArgumentParser(
        prog="tools/conformance",
        usage="%(prog)s [options] [-- PYTEST-ARGUMENT ...]",
        description="Run the tests marked numeric on every OpenCL implementation, each in a "
        f"process that sees no other ({names}), and print what passed by implementation, family "
        "and variant. Set the implementations up with tools/install_runtimes.",
        epilog="Exit status: 0 if every available implementation passed; 1 if one failed or a "
        "required one is not available; 2 for a wrong command line. Arguments after -- go to "
        "pytest (-k, -x, -n; not -n for Oclgrind).",
    )
    add = result.add_argument
    add("--runtimes", type=Path, metavar="DIR", default=runtimes.default_folder(),
        help="folder of the runtimes (default: %(default)s)")  # fmt: skip
    add("--only", nargs="+", metavar="NAME", help=f"only these of {names} or of --native")
    add("--native", action="append", metavar="NAME=DEVICE", default=[],
        help="also a device that this machine's own OpenCL shows, such as h200=gpu; DEVICE as in "
        "CLMATMUL_DEVICE; may be given again")  # fmt: skip
    add("--merge", nargs="+", type=Path, metavar="FILE", default=[],
        help="add columns from --json files of other machines")  # fmt: skip
    add("--no-run", action="store_true", help="run nothing: only put --merge's columns together")
    add("--require", nargs="+", metavar="NAME", default=[],
        help="fail if one of these is not available")  # fmt: skip
    add("--families", nargs="+", metavar="FAMILY", default=[], help="only tests of these families")
    add("--slow", action="store_true", help="also tests marked slow")
    add("--brief", action="store_true",
        help="only tests that are small enough for the simulator; to end early, at --timeout or "
        "in a crash, is reported and is no failure")  # fmt: skip
    add("--tests", nargs="+", metavar="PATH", default=["tests"],
        help="files or folders for pytest (default: tests)")  # fmt: skip
    add("--jobs", type=positive, metavar="N", default=1,
        help="implementations at a time (default: %(default)s)")  # fmt: skip
    add("--timeout", type=positive, metavar="SECONDS", default=3600,
        help="for each implementation (default: %(default)s)")  # fmt: skip
    add("--within", type=positive, metavar="SECONDS", default=10**6,
        help="for all implementations together")  # fmt: skip
    add("--journal", type=Path, metavar="DIR",
        help="keep what each test gave as DIR/NAME.jsonl: the same command goes on where it was "
        "cut short, and a run with other arguments adds its tests")  # fmt: skip
    add("--again", nargs="+", metavar="NAME", default=[],
        help="of the journal, forget these variants, families or tests (a part of the name will "
        "do), and run them again")  # fmt: skip
    add("--logs", type=Path, metavar="DIR", help="keep pytest's output as DIR/NAME.log")
    add("--markdown", type=Path, metavar="FILE",
        help="write the page here (default: docs/conformance.md if the whole suite was run on "
        "all implementations, else nowhere)")  # fmt: skip
    add("--no-markdown", action="store_true", help="write no page")
    add("--json", type=Path, metavar="FILE", help="write the results for --merge")
    return result


def positive(text):
    """An integer above zero, for argparse."""
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def targets(options, fail):
    """The `Target`s that the options ask for; `fail(message)` if they make no sense."""
    folder = options.runtimes.absolute()
    natives = {}
    for item in options.native:
        name, equals, device = item.partition("=")
        if not (name and equals and device):
            fail(f"--native {item}: write NAME=DEVICE")
        if name in IMPLEMENTATIONS or not name.replace("-", "").replace(".", "").isalnum():
            fail(f"--native {item}: {name} is no free name of letters, digits, dots and dashes")
        natives[name] = device
    names = [*IMPLEMENTATIONS, *natives]
    for name in options.only or ():
        if name not in names:
            fail(f"there is no implementation {name}; there are {', '.join(names)}")
    wanted = [name for name in names if options.only is None or name in options.only]
    return [Target(name, folder, natives.get(name, "")) for name in wanted]


def merged(files, fail):
    """The runs in JSON files of other machines."""
    found = []
    for file in files:
        try:
            found += matrix.from_json(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            fail(f"--merge {file}: {error}")
    return found


def selection(options, extra):
    """What of the whole was left out, in words; empty if nothing was."""
    parts = {
        "implementations": options.only or (),
        "families": options.families,
        "tests": options.tests if options.tests != ["tests"] else (),
        "tests marked": ("tiny",) if options.brief else (),
        "pytest arguments": extra,
    }
    return "; ".join(f"{key} {' '.join(value)}" for key, value in parts.items() if value)


def page_for(options, part):
    """The file for the page, or None."""
    if options.no_markdown:
        return None
    return options.markdown or (None if part else PAGE)


def main(arguments=None):
    """Run, print, write; the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    extra = tuple(arguments[cut + 1 :])
    cli = parser()
    options = cli.parse_args(arguments[:cut])
    wanted, others = targets(options, cli.error), merged(options.merge, cli.error)
    if options.no_run:
        wanted = []
    for folder in filter(None, (options.logs, options.journal)):
        folder.mkdir(parents=True, exist_ok=True)
    suite = Suite(tuple(options.tests), tuple(options.families), options.slow, options.brief,
                  extra, options.timeout, time.monotonic() + options.within,
                  options.logs and options.logs.absolute(),
                  options.journal and options.journal.absolute(), tuple(options.again))  # fmt: skip
    signal.signal(signal.SIGTERM, end_all)
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [*pool.map(lambda target: run_target(target, suite), wanted)]
    runs += [run for run in others if run.name not in {item.name for item in runs}]
    print(matrix.plain_report(runs))
    write_results(options, extra, runs)
    reasons = matrix.rejections(runs, options.require)
    for reason in reasons:
        progress(f"conformance: {reason}")
    return 1 if reasons else 0


def write_results(options, extra, runs):
    """Write the page and the JSON file that the options ask for."""
    part = selection(options, extra)
    page = page_for(options, part)
    if page:
        before = page.read_text(encoding="utf-8") if page.exists() else ""
        kept = matrix.kept_part(before)
        text = matrix.markdown_report(runs, today(), part, commit(), kept)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
        progress(f"wrote {page}")
    if options.json:
        options.json.write_text(matrix.to_json(runs, commit()), encoding="utf-8")
        progress(f"wrote {options.json}")
