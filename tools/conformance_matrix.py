"""What the conformance runs mean: counts, verdicts, and the matrix as text and Markdown.

Everything here is pure: records and logs in, dataclasses and text out.
"""

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass, replace

from runtimes import DeviceFacts

FORMAT = 1
GENERAL = "general"
MOST_FAILURES_SHOWN = 20
KEPT = "<!-- Below this line the page is written by hand, and kept. -->"
ENDED = "the process ended during this test"


@dataclass(frozen=True)
class Result:
    """One test on one implementation; outcome is "passed", "failed" or "skipped"."""

    test: str
    outcome: str
    family: str = GENERAL
    variant: str = GENERAL
    reason: str = ""


@dataclass(frozen=True)
class Finding:
    """A fault that Oclgrind reported `count` times in `kernel`; addresses are left out."""

    kind: str
    kernel: str
    count: int


@dataclass(frozen=True)
class Cell:
    """How many tests of one family and variant ended which way."""

    family: str
    variant: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __str__(self):
        parts = ((self.failed, "FAILED"), (self.passed, "passed"), (self.skipped, "skipped"))
        return ", ".join(f"{count} {word}" for count, word in parts if count)


@dataclass(frozen=True)
class Run:
    """One implementation's column. `unavailable` is the reason why there is none.

    `problems` are faults of the run as a whole (a crash, a time-out, nothing selected); `skips`
    has (reason, number of tests); `failures` has (test, reason). `commits` are those at which its
    tests were run.
    """

    name: str
    date: str = ""
    unavailable: str = ""
    facts: DeviceFacts | None = None
    seconds: float = 0.0
    cells: tuple[Cell, ...] = ()
    skips: tuple[tuple[str, int], ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()

    @property
    def total(self):
        """All cells as one."""
        return Cell(
            "all", "all",
            sum(cell.passed for cell in self.cells),
            sum(cell.failed for cell in self.cells),
            sum(cell.skipped for cell in self.cells),
        )  # fmt: skip

    @property
    def verdict(self):
        """ "passed", "FAILED" or "not available"."""
        if self.unavailable:
            return "not available"
        if self.problems or self.failures or self.total.failed or not self.total.passed:
            return "FAILED"
        return "passed"


# ------------------------------------------------------------------------------ records in


def results(lines, findings=()):
    """The `Result`s in the plugin's JSON `lines`, and the crashes that cut runs short.

    Returns (results, crashed): `crashed` has the tests that started and never finished. A test
    for which `findings` (the answer of `findings_by_test`) has a text has failed, whatever
    pytest says.
    """
    tests, order = {}, {}  # a process of its own may tell a test's properties before its start
    for line in lines:
        event = json.loads(line)
        name = event.get("test", "")
        if event["event"] in ("start", "collect"):
            order[name] = None
        if name:
            tests.setdefault(name, []).append(event)
    log = dict(findings)
    found = [_result(name, tests[name], log.get(name, "")) for name in order]
    crashed = tuple(name for name in order if _unfinished(tests[name]))
    return tuple(result for result in found if result is not None), crashed


def kept_records(lines, again=(), simulated=False):
    """Of an earlier run's JSON `lines`, those that count in a run that goes on.

    A test that was not finished is to be run again, and so are those of the variants or families
    `again` or with one of these words in their names, and under the simulator those whose
    findings were not written.
    """
    if simulated:
        written = [i for i, line in enumerate(lines) if json.loads(line)["event"] == "findings"]
        lines = lines[: written[-1] + 1] if written else []
    events = [*map(json.loads, lines)]
    started = {e["test"] for e in events if e["event"] == "start"}
    gone = started - {e["test"] for e in events if e["event"] == "finish"}
    gone |= {test for test in started if any(word in test for word in again)}
    gone |= {
        e["test"] for e in events
        if e["event"] == "property" and (e["value"] in again or e["name"] == "filtered")
    }  # fmt: skip
    for event in events:
        if event["event"] == "findings":
            event["texts"] = {x: text for x, text in event["texts"].items() if x not in gone}
    kept = ("commit", "findings")
    return [
        json.dumps(e) for e in events
        if e["event"] in kept or e.get("test", "") in started - gone
    ]  # fmt: skip


def findings_of(lines):
    """What Oclgrind said of each test, as `findings_by_test`, of the JSON lines of several runs."""
    found = {}
    for event in map(json.loads, lines):
        if event["event"] == "findings":
            found.update(event["texts"])
    return found


def commits_of(lines):
    """The commits at which the tests of JSON lines were run, each once, in order."""
    names, current = [], ""
    for event in map(json.loads, lines):
        if event["event"] == "commit":
            current = event["name"]
        elif event["event"] == "start" and current not in ("", *names):
            names.append(current)
    return tuple(names)


def tests_left(lines):
    """How many tests the process that wrote these JSON lines left to others."""
    events = map(json.loads, lines)
    return sum(event["tests"] for event in events if event["event"] == "left")


def _unfinished(events):
    kinds = {event["event"] for event in events}
    return "start" in kinds and "finish" not in kinds


def _result(name, events, findings):
    """The `Result` of one test from its events; None if its family was not asked for."""
    properties = {e["name"]: e["value"] for e in events if e["event"] == "property"}
    if "filtered" in properties:
        return None
    outcome, reason = _outcome(events, findings)
    return Result(
        name, outcome, properties.get("family", GENERAL), properties.get("variant", GENERAL), reason
    )


def _outcome(events, findings):
    if findings:
        return "failed", "Oclgrind: " + describe(parse_oclgrind_log(findings))
    reports = [event for event in events if event["event"] in ("report", "collect")]
    for wanted in ("failed", "skipped"):
        for event in reports:
            if event["outcome"] == wanted:
                return wanted, event["reason"]
    if _unfinished(events):
        return "failed", ENDED
    return "passed", ""


def findings_by_test(log):
    """What Oclgrind's `log` says of each test, by the plugin's marks: test → text.

    Under "" is what was said outside of any test. A text of white space is left out.
    """
    found, test = {"": ""}, ""
    for index, part in enumerate(log.split("\0")):
        if index % 2:
            test = part
        else:
            found[test] = found.get(test, "") + part
    return {test: text for test, text in found.items() if text.strip()}


def parse_oclgrind_log(text):
    """The `Finding`s in an Oclgrind log, most frequent first; empty if the log is clean.

    A finding starts with a line at the margin; "Kernel: name" is indented below it. A log that
    is not empty has at least one finding, even if its form is unknown.
    """
    counts, kind = Counter(), None
    for line in text.splitlines():
        kernel = re.match(r"\s+Kernel:\s+(\S+)", line)
        if kernel and kind:
            counts[kind, kernel[1]] += 1
            kind = None
        elif line and not line[0].isspace():
            if kind:
                counts[kind, ""] += 1
            kind = re.sub(r"\s*(at|to|from)?\s*\b0x[0-9a-fA-F]+", "", line).strip()
            kind = kind.removesuffix(" address")
    if kind:
        counts[kind, ""] += 1
    if not counts and text.strip():
        counts["unreadable log entry", ""] += 1
    return tuple(Finding(*key, count) for key, count in counts.most_common())


def describe(findings):
    """The findings in a line."""
    return "; ".join(
        f"{item.kind}{f' in kernel {item.kernel}' if item.kernel else ''} ({item.count} times)"
        for item in findings
    )


def summarise(run, tests):
    """`run` with the cells, skips and failures of its `Result`s."""
    counts = Counter((item.family, item.variant, item.outcome) for item in tests)
    skips = Counter(item.reason or "no reason given" for item in tests if item.outcome == "skipped")
    return replace(
        run,
        cells=tuple(
            Cell(*key, *(counts[(*key, outcome)] for outcome in ("passed", "failed", "skipped")))
            for key in sorted({(item.family, item.variant) for item in tests})
        ),
        skips=tuple(sorted(skips.items(), key=lambda item: (-item[1], item[0]))),
        failures=tuple((item.test, item.reason) for item in tests if item.outcome == "failed"),
    )


def of_families(tests, families):
    """The tests of `families`; all if it is empty. A failed one stays: it may not have got as
    far as saying its family.
    """
    return [
        item
        for item in tests
        if not families or item.family in families or item.outcome == "failed"
    ]


def rejections(runs, required=()):
    """Why the runs together are no success, a line each; empty if they are one.

    An implementation that is not available is no reason unless it is `required`; but that none
    at all is available is one.
    """
    lines = [f"{run.name} failed" for run in runs if run.verdict == "FAILED"]
    tested = {run.name for run in runs if not run.unavailable}
    lines += [f"{name} is required and was not run" for name in required if name not in tested]
    return lines + ["no implementation is available"] * (not tested)


def without_paths(text, places):
    """`text` with each path of `places` (path → what to write for it) replaced, longest first."""
    for path in sorted(places, key=len, reverse=True):
        text = text.replace(path, places[path])
    return text


# ------------------------------------------------------------------------------------ JSON


def to_json(runs, commit=""):
    """The runs as the JSON text that `from_json` reads."""
    content = {"format": FORMAT, "commit": commit, "runs": [asdict(run) for run in runs]}
    return json.dumps(content, indent=1) + "\n"


def from_json(text):
    """The runs in `to_json`'s text; ValueError if it is something else."""
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']} is not {FORMAT}")
        return tuple(_run(item) for item in content["runs"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a file of tools/conformance --json ({error!r})") from None


def _run(item):
    pairs = {key: tuple(map(tuple, item.pop(key))) for key in ("skips", "failures")}
    item["commits"] = tuple(item.get("commits", ()))
    facts, cells = item.pop("facts"), item.pop("cells")
    return Run(
        **item | pairs | {"problems": tuple(item["problems"])},
        facts=DeviceFacts(**facts) if facts else None,
        cells=tuple(Cell(**cell) for cell in cells),
    )


# ------------------------------------------------------------------------------------ text


def matrix(runs):
    """Rows of texts: the heading, then one row per family and variant, then totals."""
    shown = [run for run in runs if not run.unavailable]
    columns = [{(cell.family, cell.variant): str(cell) for cell in run.cells} for run in shown]
    rows = [["family", "variant", *(run.name for run in shown)]]
    for key in sorted({key for column in columns for key in column}):
        rows.append([*key, *(column.get(key, "") for column in columns)])
    rows.append(["all", "", *(str(run.total) or "nothing" for run in shown)])
    rows.append(["verdict", "", *(run.verdict for run in shown)])
    return rows


def overview(runs):
    """Rows of texts: one per implementation, with what it is and how it ended."""
    facts_of = ["device", "platform", "driver"]
    rows = [["implementation", "verdict", "counts", *facts_of, "date", "commit", "s"]]
    for run in runs:
        facts = run.facts or DeviceFacts("-", "-", "-", "-")
        ends = [run.date, ", ".join(run.commits) or "-", f"{run.seconds:.0f}"]
        device = [facts.device, short_version(facts), facts.driver]
        rows.append([run.name, run.verdict, str(run.total) or "-", *device, *ends])
    return rows


def short_version(facts):
    """The platform with its version, without the build options that PoCL adds to it."""
    if facts.platform_version == "-":
        return "-"
    return f"{facts.platform}, {facts.platform_version.split('  ')[0].split(', ')[0]}"


def notes(run):
    """Lines on one run: why there is none, its problems, failures and reasons to skip."""
    if run.unavailable:
        return [f"not available: {run.unavailable}"]
    lines = [f"problem: {problem}" for problem in run.problems]
    lines += [f"failed: {test}: {reason}" for test, reason in run.failures[:MOST_FAILURES_SHOWN]]
    if len(run.failures) > MOST_FAILURES_SHOWN:
        lines.append(f"failed: {len(run.failures) - MOST_FAILURES_SHOWN} more")
    return lines + [f"skipped {count}: {reason}" for reason, count in run.skips]


def plain_table(rows):
    """The rows with columns lined up, for a terminal."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def plain_report(runs):
    """The whole report for a terminal."""
    parts = [plain_table(overview(runs)), plain_table(matrix(runs))]
    parts += ["\n".join([f"{run.name}:", *(f"  {note}" for note in notes(run))])
              for run in runs if notes(run)]  # fmt: skip
    return "\n\n".join(parts)


def markdown_table(rows):
    """The rows as a Markdown table."""
    rows = [[text.replace("|", "\\|") for text in row] for row in rows]
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def kept_part(page):
    """What of an earlier page is written by hand: the mark and all that follows it."""
    at = page.find(KEPT)
    return page[at:] if at >= 0 else ""


def markdown_report(runs, date, selection="", commit="", kept=""):
    """The page docs/conformance.md; `kept` is what `kept_part` found in the earlier one."""
    parts = [
        "# Conformance: the same tests on every OpenCL implementation",
        "Written by `tools/conformance`, but for what stands below its mark. Each implementation"
        " is another compiler, and each ran the tests marked `numeric` in a process that saw no"
        " other. Oclgrind, a"
        " simulator, runs the small ones among them and fails a test in which it reports a data"
        " race, an uninitialised value or an access outside a buffer.",
        f"Date: {date}{f', at commit {commit}' if commit else ''}."
        + (f" Only a part was run: {selection}." if selection else ""),
        "## Implementations",
        markdown_table(overview(runs)),
        "## Family × variant",
        markdown_table(matrix(runs)),
        "## Skips, failures and what was not available",
    ]
    for run in runs:
        parts.append(f"### {run.name}")
        parts.append("\n".join(f"- {note}" for note in notes(run)) or "Nothing to say.")
    if kept:
        parts.append(kept.rstrip())
    return "\n\n".join(parts) + "\n"
