"""Every fault that docs/reported-faults.md lists has its test."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reported-faults.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="not a checkout")
def test_every_reported_fault_has_its_test():
    lines = [x for x in PAGE.read_text(encoding="utf-8").splitlines() if x.startswith("| ")][2:]
    named = [line.split("|")[-2].strip() for line in lines]
    assert len(lines) >= 50 and len(lines) == len(set(lines))
    there = set()
    for file in (ROOT / "tests").glob("test_*.py"):
        there |= set(re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))
    assert [name for name in named if name not in there] == []
