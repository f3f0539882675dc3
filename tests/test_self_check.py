"""selfcheck: a verdict that a person understands, and that a wrong kernel changes."""

import json
from dataclasses import replace

import pytest

import clmatmul
from clmatmul import self_check
from clmatmul.sample import Verdict


@pytest.fixture
def few(monkeypatch):
    """Only two things to check for two variants, which keeps the test short."""
    two = [x for x in self_check._matters() if x[0] in ("float32", "float32 NaN, infinity")]
    variants = [v for v in self_check.all_variants() if v.name in ("naive", "cpu_dot")]
    monkeypatch.setattr(self_check, "_matters", lambda: iter(two))
    monkeypatch.setattr(self_check, "all_variants", lambda: variants)


def test_a_right_device(few, device):
    report = clmatmul.selfcheck(device)
    assert report.ok and not report.faults
    text = str(report)
    assert device.profile.title in text and "can be trusted" in text and "naive" in text
    checks = sum(f.checks for f in report.findings)
    assert f"All {checks} products are right" in text and checks >= 10
    assert json.loads(json.dumps(report.to_dict()))["ok"] is True


def test_a_wrong_kernel_is_told(few, device, monkeypatch):
    monkeypatch.setattr(
        self_check, "check_case", lambda device, config, case: Verdict("3 elements are wrong", None)
    )
    report = clmatmul.selfcheck(device)
    assert not report.ok and report.faults
    assert "WRONG: cpu_dot, naive." in str(report) or "WRONG: naive." in str(report)
    assert "3 elements are wrong" in str(report) and "--json FILE" in str(report)
    assert "can be trusted" not in str(report)


def test_a_variant_that_is_not_offered_takes_one_line(few, device):
    gpu = replace(device.profile, kind="gpu")
    variant = next(v for v in self_check.all_variants() if v.name == "cpu_dot")
    assert variant.unmet(next(iter(self_check._matters()))[1], gpu)
    lines = [x for x in str(clmatmul.selfcheck(device)).splitlines() if "cpu_dot" in x]
    assert len(lines) <= 2


def test_nothing_checked_is_not_right(device):
    report = self_check.SelfCheckReport(device.profile.title, device.profile, (), 0.0)
    assert not report.ok
    assert "Nothing could be checked" in str(report)


def test_what_there_is_no_time_for_is_counted(few, device):
    report = clmatmul.selfcheck(device, seconds=-1)
    assert report.left_out == 4 and not report.ok and not report.findings
    part = replace(clmatmul.selfcheck(device), left_out=7)
    assert part.ok and "no time for 7 more checks" in str(part)


def test_the_essential_comes_first():
    """Plain float32, its rounding, its special values, and what is fused, for every variant."""
    names = [what for what, _, _ in self_check._matters()]
    assert names[:3] == ["float32", "float32 rounding", "float32 NaN, infinity"]
    assert len(names) == len(set(names)) >= 13


def test_the_report_is_enough_for_a_bug_report(few, device):
    found = clmatmul.selfcheck(device).to_dict()
    assert found["profile"]["driver_version"] == device.profile.driver_version
    assert {"numpy", "pyopencl", "python"} <= set(found["versions"])
    assert all(f["variant"] and f["what"] for f in found["findings"])


@pytest.mark.slow
def test_the_whole_check_takes_less_than_a_minute(device):
    report = clmatmul.selfcheck(device)
    assert report.ok and report.seconds < 60, str(report)
