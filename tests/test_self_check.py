"""selfcheck: a verdict that a person understands, and that a wrong kernel changes."""

import json
from dataclasses import replace

import pytest

import clmatmul
from clmatmul import self_check
from clmatmul.trial import Verdict


@pytest.fixture
def few(monkeypatch):
    """Only two things to check for two variants, which keeps the test short."""
    two = list(self_check._matters())[:1] + list(self_check._matters())[-1:]
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
    assert "WRONG" in str(report) and "3 elements are wrong" in str(report)
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
