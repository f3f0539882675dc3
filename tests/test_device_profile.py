"""Device profiles: facts that travel as JSON."""

import json
from pathlib import Path

import pytest

from clmatmul.device_profile import DeviceProfile, family_of, short_version
from clmatmul.errors import ArgumentError

PROFILES = sorted((Path(__file__).parent / "profiles").glob("*.json"))


def test_there_are_profiles():
    assert len(PROFILES) >= 5


@pytest.mark.parametrize("file", PROFILES, ids=lambda f: f.stem)
def test_json_and_back(file):
    profile = DeviceProfile.from_json(file.read_text())
    assert DeviceProfile.from_json(profile.to_json()) == profile
    hash(profile)
    probed = profile.with_probes(static_local_bytes=10**6, note="x").with_probes(note="y")
    assert DeviceProfile.from_json(probed.to_json()) == probed
    assert probed.probe("note") == "y" and probed.probe("unknown", 3) == 3
    assert probed.usable_local_bytes == 10**6 > profile.usable_local_bytes


def test_profile_of_the_device_here(device):
    assert DeviceProfile.from_json(device.profile.to_json()) == device.profile
    assert device.profile.compute_units >= 1 and device.profile.max_work_group_size >= 1


def test_key_leaves_out_what_changes_from_day_to_day():
    profile = DeviceProfile.from_json(PROFILES[0].read_text())
    values = json.loads(profile.to_json())
    less_memory = DeviceProfile.from_json(json.dumps({**values, "global_mem_bytes": 2**28}))
    new_driver = DeviceProfile.from_json(json.dumps({**values, "driver_version": "9"}))
    assert less_memory.key == profile.key != new_driver.key


@pytest.mark.parametrize("text, message", [
    ("{", "not a device profile in JSON"), ("[]", "no object"), ("{}", "missing"),
])  # fmt: skip
def test_what_is_no_profile(text, message):
    with pytest.raises(ArgumentError, match=message):
        DeviceProfile.from_json(text)


def test_unknown_facts_are_named():
    values = json.loads(PROFILES[0].read_text())
    with pytest.raises(ArgumentError, match=r"unknown \['wheels'\]"):
        DeviceProfile.from_json(json.dumps({**values, "wheels": 4}))


@pytest.mark.parametrize("names, family", [
    (("Portable Computing Language", "AuthenticAMD", "cpu"), "pocl"),
    (("Intel(R) OpenCL", "Intel(R) Corporation", "cpu"), "intel-cpu"),
    (("Intel(R) OpenCL Graphics", "Intel(R) Corporation", "gpu"), "intel-gpu"),
    (("NVIDIA CUDA", "NVIDIA Corporation", "gpu"), "nvidia"),
    (("AMD Accelerated Parallel Processing", "Advanced Micro Devices, Inc.", "gpu"), "amd"),
    (("rusticl", "AMD", "gpu"), "rusticl"), (("Clover", "AMD", "gpu"), "clover"),
    (("Oclgrind", "University of Bristol", "cpu"), "oclgrind"), (("X", "Y", "gpu"), "other"),
])  # fmt: skip
def test_family(names, family):
    assert family_of(*names) == family


def test_short_version():
    assert short_version("OpenCL 3.0 PoCL 3.0-rc2  Linux, Release, LLVM") == "3.0 PoCL 3.0-rc2"
