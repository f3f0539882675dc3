"""Records of a conformance run, for tests of the tools that read them."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from conformance_matrix import Result, Run, summarise  # noqa: E402
from runtimes import DeviceFacts  # noqa: E402

FACTS = DeviceFacts("Portable Computing Language", "OpenCL 3.0 PoCL 3.1  Linux", "pthread-x", "3.1")


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


def sample_runs():
    tests = [
        Result("a", "passed", "edges", "naive"),
        Result("b", "passed", "edges", "tiled"),
        Result("c", "skipped", "edges", "tiled", "no fp64"),
        Result("d", "skipped", "types", "tiled", "no fp64"),
        Result("e", "skipped", "types", "tiled", ""),
    ]
    good = summarise(Run("pocl-3.1", "2026-01-02", facts=FACTS, seconds=2.5), tests)
    bad = summarise(
        Run("intel", "2026-01-02", facts=FACTS), [Result("t", "failed", "edges", "naive", "a | b")]
    )
    return good, bad, Run("rusticl", "2026-01-02", unavailable="not root")
