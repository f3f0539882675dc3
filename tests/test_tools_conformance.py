"""tools/conformance: its options, and runs of a small suite without OpenCL."""

import gc
import json
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools"
sys.path.insert(0, str(TOOLS))

import conformance_matrix as matrix  # noqa: E402
import conformance_plugin  # noqa: E402
import conformance_run  # noqa: E402
import runtimes_install  # noqa: E402
from conformance_matrix import Result, Run  # noqa: E402
from conformance_records import FACTS, event, lines, sample_runs  # noqa: E402
from runtimes import IMPLEMENTATIONS  # noqa: E402

# --------------------------------------------------------------------------------- the commands


def options_of(*words):
    return conformance_run.parser().parse_args(words)


def fail(message):
    raise AssertionError(message)


def test_what_is_written_by_hand_is_kept():
    runs = sample_runs()
    page = matrix.markdown_report(runs, "2026-01-02") + f"\n{matrix.KEPT}\n\n## Fuzzing\n\nText.\n"
    kept = matrix.kept_part(page)
    again = matrix.markdown_report(runs, "2026-01-03", kept=kept)
    assert again.endswith("## Fuzzing\n\nText.\n") and again.count(matrix.KEPT) == 1
    assert "2026-01-03" in again and matrix.kept_part(again) == kept
    assert matrix.kept_part("# Another page\n") == ""


def test_targets_are_all_implementations_and_native_devices(tmp_path):
    options = options_of("--runtimes", str(tmp_path), "--native", "h200=gpu")
    names = [target.name for target in conformance_run.targets(options, fail)]
    assert names == [*IMPLEMENTATIONS, "h200"]
    only = options_of("--native", "h200=gpu", "--only", "h200")
    assert [item.native for item in conformance_run.targets(only, fail)] == ["gpu"]


@pytest.mark.parametrize(
    "words", [["--only", "cuda"], ["--native", "h200"], ["--native", "intel=cpu"],
              ["--native", "../x=cpu"]]
)  # fmt: skip
def test_wrong_targets_are_refused(words):
    with pytest.raises(AssertionError, match=words[1]):
        conformance_run.targets(options_of(*words), fail)


def test_markers():
    suite = conformance_run.Suite()
    assert suite.marker(False) == "numeric and not slow"
    assert suite.marker(True) == "numeric and tiny and not slow"
    assert conformance_run.Suite(slow=True).marker(True) == "numeric and tiny"


def test_a_part_does_not_overwrite_the_page(tmp_path):
    whole, part = options_of(), options_of("--only", "intel")
    page = conformance_run.page_for
    assert page(whole, conformance_run.selection(whole, ())) == conformance_run.PAGE
    assert page(part, conformance_run.selection(part, ())) is None
    assert page(whole, conformance_run.selection(whole, ("-k", "x"))) is None
    named = options_of("--only", "intel", "--markdown", "x.md")
    assert page(named, conformance_run.selection(named, ())) == Path("x.md")
    assert page(options_of("--no-markdown"), "") is None


SUITE = """
import os
import pytest
pytestmark = pytest.mark.numeric

@pytest.mark.parametrize("variant", ["naive", "tiled"])
def test_edges(variant, record_property):
    record_property("family", "edges")
    record_property("variant", variant)
    if variant == "tiled":
        pytest.skip("no fp64")

def test_abort(record_property):
    record_property("family", "large")
    os.abort()

def test_log(record_property):
    record_property("family", "races")
    with open(os.environ["OCLGRIND_LOG"], "w") as stream:
        stream.write("Data race at 0x1\\n\\tKernel: k\\n")
    open(os.environ["OCLGRIND_LOG"], "w").close()

@pytest.mark.slow
def test_slow():
    assert False

def test_other():
    pass
"""


def run_sample(tmp_path, **settings):
    """The results and problems of SUITE, run as the suite is run, without any OpenCL."""
    (tmp_path / "test_sample.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  numeric\n  tiny\n  slow\n")
    suite = conformance_run.Suite(tests=(str(tmp_path),), seconds=60, **settings)
    environment = dict(os.environ, OCLGRIND_LOG=str(tmp_path / "findings"))
    target = conformance_run.Target("here", tmp_path, native="cpu")
    tests, problems, commits = conformance_run.run_tests(target, suite, environment, tmp_path)
    assert set(commits) <= {conformance_run.commit()}
    return {item.test.partition("::")[2]: item for item in tests}, problems


def test_a_crash_fails_one_test_and_the_rest_is_run(tmp_path):
    tests, problems = run_sample(tmp_path)
    assert problems == ["crashed with SIGABRT in test_sample.py::test_abort"]
    assert {name: item.outcome for name, item in tests.items()} == {
        "test_edges[naive]": "passed",
        "test_edges[tiled]": "skipped",
        "test_abort": "failed",
        "test_log": "failed",
        "test_other": "passed",
    }
    assert tests["test_edges[tiled]"].reason == "no fp64"
    assert tests["test_edges[tiled]"].variant == "tiled"
    assert tests["test_abort"].family == "large"
    assert tests["test_log"].reason == "Oclgrind: Data race in kernel k (1 times)"


def test_a_journal_goes_on_with_what_was_not_finished(tmp_path):
    """The test that crashed begins anew, those of a variant to be run again do, and no other."""
    journal = tmp_path / "journal"
    journal.mkdir()
    first, _ = run_sample(tmp_path, journal=journal, extra=("-k", "edges or abort or log"))
    records = (journal / "here.jsonl").read_text()
    second, problems = run_sample(tmp_path, journal=journal, again=("naive",))
    assert second == {**first, "test_other": second["test_other"]}
    assert problems == ["crashed with SIGABRT in test_sample.py::test_abort"]
    added = [*map(json.loads, (journal / "here.jsonl").read_text().splitlines())]
    begun = [e["test"].partition("::")[2] for e in added if e["event"] == "start"]
    again = ["test_edges[naive]", "test_abort", "test_other"]
    assert [x for x in begun if x in again] == again and len(begun) == 5
    assert records.count('"start"') == 4


def test_what_the_simulator_did_not_report_is_run_again():
    begun = [event("start", test="a"), event("finish", test="a")]
    told = event("findings", texts={"a": "Data race", "": ""})
    more = [event("start", test="b"), event("finish", test="b")]
    lines_of_a = lines(*begun, told)
    assert matrix.kept_records([*lines_of_a, *lines(*more)], simulated=True) == lines_of_a
    assert matrix.findings_of(lines_of_a) == {"a": "Data race", "": ""}
    named = lines(event("property", test="a", name="variant", value="tiled"))
    (left,) = matrix.kept_records([*lines_of_a, *named], ("tiled",), simulated=False)
    assert json.loads(left)["texts"] == {"": ""}
    assert matrix.kept_records(lines_of_a, ("a",)) == [left]


def test_tests_are_of_the_commits_at_which_they_ran():
    one, two = (event("commit", name=x) for x in ("1a", "2b"))
    ran = event("start", test="a")
    assert matrix.commits_of(lines(one, ran, ran, two, two, ran, one)) == ("1a", "2b")
    assert matrix.commits_of(lines(one)) == ()


def test_other_families_end_at_once(tmp_path):
    tests, problems = run_sample(tmp_path, families=("edges",))
    assert problems == []
    assert set(tests) == {"test_edges[naive]", "test_edges[tiled]", "test_other"}


def test_few_tests_share_a_process(tmp_path):
    """Each test runs once, in its order, and a crash takes nothing from the others."""
    tests, problems = run_sample(tmp_path, extra=("--conformance-most=2",))
    assert problems == ["crashed with SIGABRT in test_sample.py::test_abort"]
    assert list(tests) == [
        "test_edges[naive]", "test_edges[tiled]", "test_abort", "test_log", "test_other",
    ]  # fmt: skip
    events = [json.loads(line) for line in (tmp_path / "here.jsonl").read_text().splitlines()]
    assert [event["tests"] for event in events if event["event"] == "left"] == [3, 1]
    starts = [event["test"] for event in events if event["event"] == "start"]
    assert len(starts) == len(set(starts)) == 5


def test_a_brief_run_may_end_early(tmp_path, monkeypatch):
    """A crash is no failure, what failed before it is one; of the big tests none is run."""

    def run(text):
        (tmp_path / "test_sample.py").write_text(text)
        suite = conformance_run.Suite(tests=(str(tmp_path),), seconds=60, brief=True)
        return conformance_run.run_target(conformance_run.Target("here", tmp_path, "cpu"), suite)

    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  numeric\n  tiny\n  slow\n")
    monkeypatch.setattr(
        conformance_run.Target, "environment", lambda self, scratch: (dict(os.environ), FACTS)
    )
    tiny = SUITE.replace("pytest.mark.numeric", "[pytest.mark.numeric, pytest.mark.tiny]")
    ended = run(tiny.replace("def test_log", "def left_out"))
    assert ended.verdict == "passed" and ended.total.passed == 2 and not ended.problems
    wrong = run(tiny + "\ndef test_wrong():\n    assert False\n")
    assert wrong.verdict == "FAILED" and len(wrong.failures) == 1 + (
        "OCLGRIND_LOG" not in os.environ
    )
    gone = run("import os, pytest\n" + tiny[tiny.index("def test_abort") :].split("def test_log")[0]
               + "\npytestmark = [pytest.mark.numeric, pytest.mark.tiny]\n")  # fmt: skip
    assert gone.verdict == "not available" and "SIGABRT" in gone.unavailable
    assert conformance_run.Suite(brief=True).marker(False) == "numeric and tiny and not slow"


def test_all_implementations_together_have_a_limit(tmp_path):
    start = time.monotonic()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  numeric\n  tiny\n  slow\n")
    slow = "import time, pytest\n@pytest.mark.numeric\ndef test_long():\n    time.sleep(60)\n"
    (tmp_path / "test_sample.py").write_text(slow)
    suite = conformance_run.Suite(tests=(str(tmp_path),), until=time.monotonic() + 4)
    target = conformance_run.Target("here", tmp_path, native="cpu")
    _, problems, _ = conformance_run.run_tests(target, suite, dict(os.environ), tmp_path)
    assert len(problems) == 1 and "stopped after" in problems[0]
    assert time.monotonic() - start < 40


def test_who_is_told_to_end_ends_the_tests_first(monkeypatch):
    """A run that goes on by itself would write into a journal that is used again."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], start_new_session=True,
                               stdin=subprocess.PIPE)  # fmt: skip
    statuses = []
    monkeypatch.setattr(os, "_exit", statuses.append)
    monkeypatch.setattr(conformance_run, "RUNNING", {process})
    conformance_run.end_all(15, None)
    assert statuses == [143] and process.returncode == -9


def test_columns_that_were_run_before_are_put_together(tmp_path, capsys):
    run = matrix.summarise(Run("intel", "2026-01-02", facts=FACTS, commits=("1a", "2b")),
                           [Result("a", "passed")])  # fmt: skip
    (tmp_path / "intel.json").write_text(matrix.to_json([run]))
    page = tmp_path / "page.md"
    arguments = ["--no-run", "--merge", str(tmp_path / "intel.json"), "--markdown", str(page)]
    assert conformance_run.main(arguments) == 0
    assert "| intel | passed | 1 passed |" in page.read_text() and "1a, 2b" in page.read_text()
    assert "Only a part was run" not in page.read_text() and "intel" in capsys.readouterr().out


def test_the_simulator_runs_few_tests_in_a_process():
    suite = conformance_run.Suite()
    shared = f"--conformance-most={conformance_run.SIMULATED_TESTS}"
    assert shared in suite.command("records", True)
    assert shared not in suite.command("records", False)


def test_memory_under_the_simulator_is_new_and_kept():
    """Its shadow of a buffer is that of the buffer that lay there before."""

    class Buffer:
        pass

    class Device:
        def allocate(self, size):
            return Buffer()

        def upload(self, memory):
            return Buffer()

        def wrap(self, address, size, writable):
            return Buffer()

        def scratch(self, queue, name, size):
            return None

    conformance_plugin.keep_buffers(Device)
    device = Device()
    made = [weakref.ref(device.allocate(4)), weakref.ref(device.upload(b"")),
            weakref.ref(device.wrap(0, 4, True)), weakref.ref(device.scratch(None, "x", 4)),
            weakref.ref(device.scratch(None, "x", 4))]  # fmt: skip
    gc.collect()
    assert len({id(x()) for x in made}) == 5 and all(isinstance(x(), Buffer) for x in made)


def test_a_run_that_selects_nothing_is_a_problem(tmp_path):
    tests, problems = run_sample(tmp_path, extra=("-k", "no_such_test"))
    assert (tests, problems) == ({}, ["no test was selected"])


def test_signals_have_names():
    assert conformance_run.signal_name(signal.SIGSEGV) == "SIGSEGV"
    assert conformance_run.signal_name(999) == "signal 999"


@pytest.mark.parametrize("module", [runtimes_install, conformance_run])
def test_help(module, capsys):
    with pytest.raises(SystemExit) as stop:
        module.main(["--help"])
    assert stop.value.code == 0
    assert "--only" in capsys.readouterr().out


def test_the_scripts_can_be_started():
    for name in ("install_runtimes", "conformance"):
        assert os.access(TOOLS / name, os.X_OK)
