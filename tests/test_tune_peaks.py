"""What a device can do at most, measured."""

import pytest
from conftest import skip_without_fp64

from clmatmul import probe_records
from clmatmul.element_types import COMPUTE_TYPES
from clmatmul.errors import DeviceError
from clmatmul.explanation import plain_problem
from clmatmul.measure import stated_peak
from clmatmul.problem_json import problem_to_dict
from clmatmul.tune import peaks, worker
from clmatmul.tune.peaks import Peaks, measure_peaks, remembered


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.setattr(peaks, "_SECONDS", 0.02)
    monkeypatch.setenv("CLMATMUL_DB", str(tmp_path))


@pytest.mark.parametrize("compute", COMPUTE_TYPES)
def test_every_compute_type_has_peaks(device, compute):
    if COMPUTE_TYPES[compute].needs_fp64:
        skip_without_fp64(device)
    found = measure_peaks(device, compute)
    assert found.compute == compute and found.gflops > 0.01 and 0.01 < found.gbs < 1e5
    limit = stated_peak(device.profile, "float32")
    assert limit is None or found.gflops * 1e9 < limit


def test_longer_kernels_do_not_change_the_peak(device, monkeypatch):
    """The time is that of the arithmetic: a compiler that left the loop out would show here."""
    one = measure_peaks(device, "float32")
    monkeypatch.setattr(peaks, "_STEPS", 4 * peaks._STEPS)
    assert 0.3 < measure_peaks(device, "float32").gflops / one.gflops < 3


def test_the_higher_of_two_sessions_is_remembered(device):
    key = device.profile.key
    assert remembered(key, Peaks("float32", 100.0, 20.5)) == Peaks("float32", 100.0, 20.5)
    assert remembered(key, Peaks("float32", 90.0, 30.0)) == Peaks("float32", 100.0, 30.0)
    assert remembered(key, Peaks("float64", 50.0, 3.0)) == Peaks("float64", 50.0, 30.0)
    assert probe_records.read_probes(key)["peak_mflops_float32"] == 100_000


def test_a_device_that_cannot_says_so(device, monkeypatch):
    monkeypatch.setattr(peaks, "_COPY", "no kernel")
    with pytest.raises(DeviceError, match="peaks could not be measured"):
        measure_peaks(device, "float32")


def test_the_worker_measures_them(device):
    states = []
    session = worker.Session(lambda message: states.append(message["state"]))
    session.answer({"do": "open", "device": None})
    problem = problem_to_dict(plain_problem(8, 8, 8))
    session.answer({"do": "prepare", "problem": problem, "seed": 0})
    found = Peaks(**session.answer({"do": "peaks", "compute": "float32"}))
    assert states[-1] == "peaks" and found.gflops > 0 and found.gbs > 0
