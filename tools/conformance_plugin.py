"""A pytest plugin that writes what happened, one JSON object a line, as it happens.

A file written at the end (JUnit's XML) would be lost when an OpenCL implementation crashes the
process. Here a crash leaves the test that had started and not finished. A second run with the
same file leaves out every test that was started before. Events:

    start     test                              a test begins
    property  test, name, value                 from record_property, at once
    report    test, when, outcome, reason       a phase (setup, call, teardown) ended
    finish    test
    collect   test, outcome, reason             a file could not be collected, or skipped itself
    left      tests                             so many tests are for the processes to come
    end       status                            pytest's exit status

Where OCLGRIND_LOG is set, marks go into that log, too: `NUL test NUL` before a test and `NUL NUL`
after it, so that what Oclgrind reports in between is known to be that test's. Besides, no buffer
is used twice or released there: Oclgrind 21.10 judges memory by the buffer that lay at its address
before. Where that was shorter, all beyond its end counts as never written; where it was not, what
was written into it counts as written into the new one, and a real fault is not seen.
"""

import functools
import json
import os
from pathlib import Path

import pytest

LONGEST_REASON = 400


def pytest_addoption(parser):
    group = parser.getgroup("conformance")
    group.addoption("--conformance-records", metavar="FILE", help="append one JSON line an event")
    group.addoption(
        "--conformance-families", metavar="NAMES", default="",
        help="comma-separated; a test that records another family ends there",
    )  # fmt: skip
    group.addoption(
        "--conformance-most", metavar="N", type=int, default=0,
        help="run the first N tests that no run with this file has started, and leave the rest",
    )  # fmt: skip


def pytest_configure(config):
    file = config.getoption("--conformance-records")
    if file:
        config.pluginmanager.register(Recorder(config, Path(file)), "conformance-recorder")
        if os.environ.get("OCLGRIND_LOG"):
            from clmatmul.device import Device

            keep_buffers(Device)


def keep_buffers(device_class):
    """Make a Device class give out memory that is new, and that lives as long as the process."""
    kept = []

    def keeping(make):
        @functools.wraps(make)
        def made(*arguments):
            kept.append(make(*arguments))
            return kept[-1]

        return made

    for name in ("allocate", "upload", "wrap"):
        setattr(device_class, name, keeping(getattr(device_class, name)))
    device_class.scratch = lambda self, queue, name, size: self.allocate(size)


@pytest.fixture
def record_property(request):
    """pytest's fixture; besides, the property is written at once and families are filtered."""
    recorder = request.config.pluginmanager.get_plugin("conformance-recorder")

    def record(name, value):
        request.node.user_properties.append((name, value))
        if recorder is not None:
            recorder.property(request.node.nodeid, name, value)

    return record


class Recorder:
    """Writes the events. Under xdist, workers write properties and the controller the rest."""

    def __init__(self, config, file):
        self.file = file
        self.controller = not hasattr(config, "workerinput")
        names = config.getoption("--conformance-families").split(",")
        self.families = {name.strip() for name in names if name.strip()}
        self.done = started_tests(file)
        self.most = config.getoption("--conformance-most")
        self.simulator_log = os.environ.get("OCLGRIND_LOG")

    def write(self, event, **values):
        line = json.dumps({"event": event, **values}) + "\n"
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(line)

    def property(self, test, name, value):
        if name not in ("family", "variant"):
            return
        if name == "family" and self.families and str(value) not in self.families:
            self.write("property", test=test, name="filtered", value=True)
            pytest.skip("not of the families asked for")
        self.write("property", test=test, name=name, value=str(value))

    @pytest.hookimpl(trylast=True)  # after -m and -k
    def pytest_collection_modifyitems(self, config, items):
        again = [item for item in items if item.nodeid in self.done]
        fresh = [item for item in items if item.nodeid not in self.done]
        left = fresh[self.most :] if self.most else []
        if again or left:
            config.hook.pytest_deselected(items=again + left)
            items[:] = fresh[: len(fresh) - len(left)]
        if left and self.controller:
            self.write("left", tests=len(left))

    def pytest_collectreport(self, report):
        if self.controller and report.outcome != "passed":
            self.write("collect", test=report.nodeid, outcome=report.outcome,
                       reason=reason_of(report))  # fmt: skip

    def pytest_runtest_logstart(self, nodeid):
        if self.controller:
            self.write("start", test=nodeid)
            self.mark(nodeid)

    def pytest_runtest_logreport(self, report):
        if self.controller:
            self.write("report", test=report.nodeid, when=report.when, outcome=report.outcome,
                       reason=reason_of(report))  # fmt: skip

    def pytest_runtest_logfinish(self, nodeid):
        if not self.controller:
            return
        self.mark("")
        self.write("finish", test=nodeid)

    def pytest_sessionfinish(self, exitstatus):
        if self.controller:
            self.write("end", status=int(exitstatus))

    def mark(self, test):
        """Write a mark into Oclgrind's log."""
        if not self.simulator_log:
            return
        stream = os.open(self.simulator_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(stream, b"\0" + test.encode() + b"\0")
        finally:
            os.close(stream)


def started_tests(file):
    """The tests that an earlier run with this file has started."""
    if not file.exists():
        return frozenset()
    events = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return frozenset(event["test"] for event in events if event["event"] == "start")


def reason_of(report):
    """Why a report did not pass, in a line; empty if it passed."""
    if hasattr(report, "wasxfail"):
        text = f"expected failure: {report.wasxfail}"
    elif report.outcome == "passed":
        return ""
    elif isinstance(report.longrepr, tuple):
        text = report.longrepr[2].removeprefix("Skipped: ")
    elif getattr(report.longrepr, "reprcrash", None):
        text = report.longrepr.reprcrash.message
    else:
        text = (str(report.longrepr).strip().splitlines() or [""])[-1]
    return " ".join(text.split())[:LONGEST_REASON]
