"""tools/conformance_matrix.py: the simulator's log, what tests gave, and the reports of it."""

import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools"
sys.path.insert(0, str(TOOLS))

import conformance_matrix as matrix  # noqa: E402
from conformance_matrix import Cell, Finding, Result, Run  # noqa: E402
from conformance_records import lines, passed_test, sample_runs  # noqa: E402

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
