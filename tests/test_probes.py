"""Probes: what is asked for, that a child process answers, what is kept, what a failure means."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from kinds import plain_kind

from clmatmul import probes
from clmatmul.device_profile import DeviceProfile
from clmatmul.probe_records import probe_file, read_probes, write_probes

HOPPER = DeviceProfile.from_json(
    Path(__file__).with_name("profiles").joinpath("nvidia-h200.json").read_text()
).with_probes(compute_capability=90)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CLMATMUL_DB", str(tmp_path))
    monkeypatch.setattr(probes, "_asked", set())


class Opened:
    """As much of a Device as probes look at."""

    def __init__(self, profile):
        self.profile = profile

    def learn(self, values):
        self.profile = self.profile.with_probes(**values)


def test_asked_only_where_a_variant_could_be_offered(device):
    kind = plain_kind("float16")
    assert set(probes.missing_probes(kind, HOPPER)) >= {"static_local_bytes", "wgmma"}
    assert not probes.missing_probes(plain_kind("complex64"), HOPPER)
    older = HOPPER.with_probes(compute_capability=86)
    assert "wgmma" not in probes.missing_probes(kind, older)
    known = HOPPER.with_probes(static_local_bytes=0, wgmma=0)
    assert not probes.missing_probes(kind, known)
    if device.profile.family != "nvidia":
        assert not probes.missing_probes(kind, device.profile)


def test_a_large_product_asks_once(monkeypatch):
    asked = []
    monkeypatch.setattr(
        probes, "run_probes", lambda profile, names: asked.append(names) or dict.fromkeys(names, 1)
    )
    small = SimpleNamespace(flops=1000, kind=plain_kind("float16"))
    large = SimpleNamespace(flops=1e12, kind=plain_kind("float16"))
    first = Opened(HOPPER)
    probes.learn(first, small)
    assert not asked
    probes.learn(first, large)
    probes.learn(first, large)
    assert len(asked) == 1
    assert first.profile.probe("wgmma") == 1
    # another process finds the record
    probes._asked.clear()
    second = Opened(HOPPER)
    probes.learn(second, large)
    assert len(asked) == 1
    assert second.profile.probe("wgmma") == 1


def test_another_driver_is_asked_afresh():
    write_probes(HOPPER.key, {"wgmma": 1})
    assert read_probes(HOPPER.key) == {"wgmma": 1}
    assert read_probes(replace(HOPPER, driver_version="999.1").key) == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"device": "other", "probes": {"wgmma": 1}}'])
def test_a_damaged_record_is_none(text):
    file = probe_file(HOPPER.key)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert read_probes(HOPPER.key) == {}


def test_values_that_are_no_numbers_are_left_out():
    file = probe_file(HOPPER.key)
    file.parent.mkdir(parents=True)
    values = {"wgmma": "yes", "static_local_bytes": 65536, "other": True}
    file.write_text(json.dumps({"device": HOPPER.key, "probes": values}))
    assert read_probes(HOPPER.key) == {"static_local_bytes": 65536}


def test_a_child_process_answers(device, caplog):
    """On a device that has no more local memory than it says, the probe fails, and says so."""
    if device.profile.family == "nvidia":
        pytest.skip("there it may succeed")
    with caplog.at_level(logging.WARNING, "clmatmul"):
        found = probes.run_probes(device.profile, ["static_local_bytes"])
    assert found == {"static_local_bytes": 0}
    assert "probe static_local_bytes failed" in caplog.text


def test_a_child_process_that_dies_is_a_failed_probe(device):
    value, why = probes._ask_child(device.profile, "no_such_probe")
    assert value == 0
    assert why == "its process ended with code 1"


def test_a_child_process_that_hangs_is_a_failed_probe(device, monkeypatch):
    monkeypatch.setattr(probes, "_SECONDS", 0.05)
    assert probes._ask_child(device.profile, "static_local_bytes") == (0, "no answer in 0.05 s")


def test_no_process_at_all_is_not_remembered(monkeypatch):
    def refused(*arguments, **keywords):
        raise PermissionError("no processes here")

    monkeypatch.setattr(probes.subprocess, "run", refused)
    opened = Opened(HOPPER)
    probes.learn(opened, SimpleNamespace(flops=1e12, kind=plain_kind("float16")))
    assert opened.profile.probe("wgmma") == 0
    assert read_probes(HOPPER.key) == {}
