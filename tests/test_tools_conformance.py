"""tools/install_runtimes and tools/conformance: their pure parts, and runs without OpenCL."""

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
import runtimes  # noqa: E402
import runtimes_install  # noqa: E402
from conformance_matrix import Cell, Finding, Result, Run  # noqa: E402
from runtimes import IMPLEMENTATIONS, DeviceFacts, Runtime, UnavailableError  # noqa: E402

FACTS = DeviceFacts("Portable Computing Language", "OpenCL 3.0 PoCL 3.1  Linux", "pthread-x", "3.1")

RACY_LOG = """
Read-write data race at local memory address 0x1000000000004
\tKernel: tiled

\tFirst entity:  Global(1,0,0) Local(1,0,0) Group(0,0,0)
\t  store float %1, float addrspace(3)* %arrayidx4, align 4

\tSecond entity: Global(0,0,0) Local(0,0,0) Group(0,0,0)
\t  %2 = load float, float addrspace(3)* %arrayidx6, align 4
\tAt line 1 (column 130) of input.cl:
\t  a line of the kernel that names a Kernel: other
\t

Read-write data race at local memory address 0x1000000000008
\tKernel: tiled

Invalid write of size 4 at global memory address 0x2000000000100
\tKernel: naive
\tEntity: Global(63,0,0) Local(15,0,0) Group(3,0,0)
"""


def lines(*events):
    return [json.dumps(event) for event in events]


def event(kind, **values):
    return {"event": kind, **values}


def passed_test(name, **properties):
    return [
        {"event": "start", "test": name},
        *({"event": "property", "test": name, "name": k, "value": v}
          for k, v in properties.items()),
        {"event": "report", "test": name, "when": "call", "outcome": "passed", "reason": ""},
        {"event": "finish", "test": name},
    ]  # fmt: skip


# ------------------------------------------------------------------------------ Oclgrind's log


def test_oclgrind_log_is_counted_by_kind_and_kernel():
    assert matrix.parse_oclgrind_log(RACY_LOG) == (
        Finding("Read-write data race at local memory", "tiled", 2),
        Finding("Invalid write of size 4 at global memory", "naive", 1),
    )


@pytest.mark.parametrize("text", ["", "\n", "  \n\t\n"])
def test_a_clean_log_has_no_findings(text):
    assert matrix.parse_oclgrind_log(text) == ()


@pytest.mark.parametrize("text", ["\tindented only", "Something new", "Work-group divergence\n\n"])
def test_no_text_in_the_log_is_overlooked(text):
    assert len(matrix.parse_oclgrind_log(text)) == 1


def test_findings_fail_a_test_that_passed():
    events = passed_test("t", family="edges", variant="tiled")
    (result,), crashed = matrix.results(lines(*events), {"t": RACY_LOG})
    assert (result.outcome, result.family, result.variant) == ("failed", "edges", "tiled")
    assert "data race" in result.reason and "kernel tiled (2 times)" in result.reason
    assert crashed == ()


def test_marks_tell_whose_a_finding_is():
    log = "x\0a\0\n\0\0y\0b\0one\0\0\0crashed\0two\0c\0three\0\0z"
    assert matrix.findings_by_test(log) == {"": "xyz", "b": "one", "crashed": "two", "c": "three"}
    assert matrix.findings_by_test("") == matrix.findings_by_test("\0a\0\0\0") == {}


# ------------------------------------------------------------------------------------- records


def test_tests_without_properties_are_general():
    (result,), _ = matrix.results(lines(*passed_test("t")))
    assert result == Result("t", "passed", "general", "general")


def test_properties_may_be_told_before_the_start():
    """As pytest-xdist's processes do, with whom nobody waits for the controller's line."""
    events = passed_test("t", family="edges", variant="tiled")
    first = [x for x in events if x["event"] == "property"]
    others = [x for x in events if x["event"] != "property"]
    (result,), _ = matrix.results(lines(*first, *others))
    assert (result.family, result.variant) == ("edges", "tiled")


def test_a_test_that_never_finished_has_failed():
    started = [{"event": "start", "test": "t"},
               {"event": "property", "test": "t", "name": "family", "value": "large"}]  # fmt: skip
    (first, second), crashed = matrix.results(lines(*passed_test("s"), *started))
    assert first.outcome == "passed"
    assert (second.outcome, second.family) == ("failed", "large")
    assert crashed == ("t",)


@pytest.mark.parametrize("when", ["setup", "call", "teardown"])
def test_a_failure_in_any_phase_counts(when):
    events = passed_test("t")
    fault = {"event": "report", "test": "t", "when": when, "outcome": "failed", "reason": "why"}
    events.insert(1, fault)
    assert matrix.results(lines(*events))[0][0] == Result("t", "failed", reason="why")


def test_a_file_that_cannot_be_collected_counts():
    event = {"event": "collect", "test": "tests/test_x.py", "outcome": "failed", "reason": "why"}
    results, crashed = matrix.results(lines(event))
    assert results == (Result("tests/test_x.py", "failed", reason="why"),)
    assert crashed == ()


def test_filtered_tests_are_left_out():
    events = passed_test("t", filtered=True)
    assert matrix.results(lines(*events, *passed_test("s")))[0] == (Result("s", "passed"),)


def test_families_keep_failures_of_unknown_family():
    tests = [Result("a", "passed", "edges"), Result("b", "passed"), Result("c", "failed")]
    assert [item.test for item in matrix.of_families(tests, ["edges"])] == ["a", "c"]
    assert matrix.of_families(tests, []) == tests


# -------------------------------------------------------------------------------- verdicts, text


def sample_runs():
    tests = [
        Result("a", "passed", "edges", "naive"),
        Result("b", "passed", "edges", "tiled"),
        Result("c", "skipped", "edges", "tiled", "no fp64"),
        Result("d", "skipped", "types", "tiled", "no fp64"),
        Result("e", "skipped", "types", "tiled", ""),
    ]
    good = matrix.summarise(Run("pocl-3.1", "2026-01-02", facts=FACTS, seconds=2.5), tests)
    bad = matrix.summarise(
        Run("intel", "2026-01-02", facts=FACTS), [Result("t", "failed", "edges", "naive", "a | b")]
    )
    return good, bad, Run("rusticl", "2026-01-02", unavailable="not root")


def test_summary_has_cells_and_distinct_reasons():
    good, bad, gone = sample_runs()
    assert good.cells == (
        Cell("edges", "naive", 1, 0, 0),
        Cell("edges", "tiled", 1, 0, 1),
        Cell("types", "tiled", 0, 0, 2),
    )
    assert good.skips == (("no fp64", 2), ("no reason given", 1))
    assert bad.failures == (("t", "a | b"),)
    assert [run.verdict for run in (good, bad, gone)] == ["passed", "FAILED", "not available"]


def test_a_run_without_a_passed_test_or_with_a_problem_has_failed():
    only_skips = matrix.summarise(Run("x"), [Result("a", "skipped", reason="why")])
    crashed = matrix.summarise(Run("x", problems=("crashed",)), [Result("a", "passed")])
    assert [run.verdict for run in (Run("x"), only_skips, crashed)] == ["FAILED"] * 3


def test_what_is_no_success():
    good, bad, gone = sample_runs()
    assert matrix.rejections([good, gone]) == []
    assert matrix.rejections([good, bad]) == ["intel failed"]
    assert matrix.rejections([gone]) == ["no implementation is available"]
    assert "rusticl" in matrix.rejections([good, gone], ["rusticl"])[0]
    assert "h200" in matrix.rejections([good], ["h200"])[0]


def test_json_round_trip():
    runs = sample_runs()
    assert matrix.from_json(matrix.to_json(runs)) == runs


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2, "runs": []}', '{"format": 1, "runs": [{}]}',
             '{"format": 1, "runs": [7]}', '{"format": 1, "runs": 7}']
)  # fmt: skip
def test_other_json_is_refused(text):
    with pytest.raises(ValueError):
        matrix.from_json(text)


def test_matrix_has_a_row_for_each_family_and_variant():
    rows = matrix.matrix(sample_runs())
    assert rows[0] == ["family", "variant", "pocl-3.1", "intel"]
    assert rows[1] == ["edges", "naive", "1 passed", "1 FAILED"]
    assert rows[2] == ["edges", "tiled", "1 passed, 1 skipped", ""]
    assert rows[-1] == ["verdict", "", "passed", "FAILED"]


def test_reports_say_everything():
    for text in (
        matrix.plain_report(sample_runs()),
        matrix.markdown_report(sample_runs(), "2026-01-02", "families edges", "abc123"),
    ):
        for part in ("pthread-x", "OpenCL 3.0 PoCL 3.1", "2026-01-02", "not root", "skipped 2"):
            assert part in text
    assert "families edges" in text and "abc123" in text


def test_markdown_cells_cannot_break_the_table():
    assert matrix.markdown_table([["a"], ["x|y"]]).splitlines()[-1] == "| x\\|y |"


def test_paths_are_replaced_longest_first():
    places = {"/a": "A", "/a/b": "B"}
    assert matrix.without_paths("/a/b/c and /a/x", places) == "B/c and A/x"


# ------------------------------------------------------------------------------------ runtimes


def test_environment_shows_one_implementation_only(tmp_path):
    runtime = Runtime("rusticl", "/x/lib.so", ("/x",), facts=FACTS)
    base = {"OCL_ICD_VENDORS": "other", "PYOPENCL_CTX": "1", "POCL_DEVICES": "basic",
            "LD_PRELOAD": "x.so", "LD_LIBRARY_PATH": "/y", "PATH": "/bin"}  # fmt: skip
    found = runtimes.environment_of(runtime, tmp_path, base, tmp_path / "scratch")
    assert found["OCL_ICD_VENDORS"] == str(tmp_path / "rusticl" / "rusticl.icd")
    assert found["RUSTICL_ENABLE"] == "llvmpipe"
    assert found["LD_LIBRARY_PATH"] == os.pathsep.join(["/x", "/y"])
    assert found["CLMATMUL_DEVICE"] == "Portable Computing Language:pthread-x"
    assert found["PATH"] == "/bin"
    assert not {"PYOPENCL_CTX", "POCL_DEVICES", "LD_PRELOAD", "OCLGRIND_LOG"} & set(found)
    for key in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "POCL_CACHE_DIR"):
        assert Path(found[key]).is_dir() and tmp_path in Path(found[key]).parents


def test_oclgrind_looks_for_every_kind_of_fault(tmp_path):
    found = runtimes.environment_of(Runtime("oclgrind", "/x.so"), tmp_path, {}, tmp_path)
    assert found["OCLGRIND_DATA_RACES"] == found["OCLGRIND_UNINITIALIZED"] == "1"
    assert Path(found["OCLGRIND_LOG"]).parent == tmp_path
    assert "LD_LIBRARY_PATH" not in found


def test_runtime_is_kept_in_its_folder(tmp_path):
    library = tmp_path / "lib.so"
    library.touch()
    runtime = Runtime("intel", str(library), ("/a", "/b"), "wheels", FACTS)
    runtimes.save(runtime, tmp_path)
    assert runtimes.load("intel", tmp_path) == runtime
    assert runtimes.icd_file(tmp_path, "intel").read_text() == f"{library}\n"
    library.unlink()
    with pytest.raises(UnavailableError, match="has gone"):
        runtimes.load("intel", tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"facts": null}'])
def test_an_unreadable_record_is_named(tmp_path, text):
    (tmp_path / "intel").mkdir()
    (tmp_path / "intel" / "runtime.json").write_text(text)
    with pytest.raises(UnavailableError, match="runtime.json is not readable"):
        runtimes.load("intel", tmp_path)


def test_a_runtime_that_is_not_set_up_says_how(tmp_path):
    with pytest.raises(UnavailableError, match="tools/install_runtimes"):
        runtimes.load("intel", tmp_path)


def seen(name="Portable Computing Language", version="OpenCL 3.0 PoCL 3.1", *, kernel="ok"):
    device = {"name": "pthread-x", "driver": "3.1", "kind": "cpu", "kernel": kernel}
    return {"name": name, "version": version, "devices": [device]}


def test_the_device_that_was_meant_is_accepted():
    facts = runtimes.check(IMPLEMENTATIONS["pocl-3.1"], [seen()])
    assert (facts.device, facts.driver) == ("pthread-x", "3.1")


@pytest.mark.parametrize(
    ("platforms", "reason"),
    [
        ([], "no platform"),
        ([seen(), seen("Clover")], "other platforms"),
        ([seen(version="OpenCL 3.0 PoCL 6.0")], "wanted Portable Computing PoCL 3.1"),
        ([seen() | {"devices": []}], "no devices"),
        ([seen(kernel="wrong result")], "wrong result"),
    ],
)
def test_anything_else_is_refused_with_the_reason(platforms, reason):
    with pytest.raises(UnavailableError, match=reason):
        runtimes.check(IMPLEMENTATIONS["pocl-3.1"], platforms)


@pytest.mark.parametrize("text", ["0", "cpu", "PTHREAD", "portable", "portable:pthread"])
def test_a_device_is_found_as_clmatmul_device_says(text):
    assert runtimes.find_device([seen()], text).device == "pthread-x"


@pytest.mark.parametrize("text", ["1", "gpu", "nvidia", "nvidia:pthread"])
def test_a_device_that_is_not_there_is_named(text):
    with pytest.raises(UnavailableError, match="pthread-x"):
        runtimes.find_device([seen()], text)


def test_every_implementation_has_a_way():
    assert set(runtimes_install.WAYS) == set(IMPLEMENTATIONS)


def test_apt_simulation_is_read():
    text = "Reading…\nRemv mesa [1]\nInst libhwloc15 (2.9)\nInst clang-15 (1)\nConf clang-15 (1)\n"
    assert runtimes_install.parse_simulation(text) == (("libhwloc15", "clang-15"), ("mesa",))


def test_only_libraries_are_unpacked_beside_the_package():
    missing = ("libhwloc15", "clang-15", "libobjc-12-dev", "libpocl2", "pocl-opencl-icd")
    expected = ("pocl-opencl-icd", "libhwloc15", "libpocl2")
    assert runtimes_install.packages_to_unpack("pocl-opencl-icd", missing) == expected


def way(label, answer, system=False):
    def find(folder):
        if isinstance(answer, Exception):
            raise answer
        return answer

    return runtimes_install.Way(label, find, system)


def test_ways_are_tried_in_order_and_reasons_kept(tmp_path, monkeypatch):
    good = Runtime("intel", "/x.so", facts=FACTS)
    ways = (way("first", UnavailableError("no pip")), way("second", good))
    monkeypatch.setitem(runtimes_install.WAYS, "intel", ways)
    monkeypatch.setattr(runtimes_install, "verified", lambda runtime, folder: runtime)
    outcome = runtimes_install.set_up("intel", tmp_path)
    assert (outcome.state, outcome.runtime) == ("installed", good)
    assert outcome.reasons == ("first: no pip",)


def test_what_cannot_be_had_is_reported(tmp_path, monkeypatch, capsys):
    ways = (way("one", UnavailableError("no pip")), way("two", Runtime("intel", ""), system=True))
    monkeypatch.setitem(runtimes_install.WAYS, "intel", ways)
    status = runtimes_install.main(["--prefix", str(tmp_path), "--only", "intel", "--no-system"])
    shown = capsys.readouterr().out
    assert status == 0
    assert "not available" in shown and "one: no pip" in shown and "--no-system" in shown


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
