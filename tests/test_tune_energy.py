"""Energy as the objective: meters with made-up counters, refusals, what a search makes of it."""

import sys
import time
import types
from dataclasses import replace
from types import SimpleNamespace

import pytest
from made_up_devices import FAST, MS, Device, by_config, passed, search

from clmatmul.cli.main import main
from clmatmul.config import TileConfig
from clmatmul.database import read_records
from clmatmul.errors import ArgumentError, MeasurementError, UnsupportedError
from clmatmul.explanation import plain_problem
from clmatmul.problem_json import problem_to_dict
from clmatmul.tune import energy, html, worker
from clmatmul.tune.energy import POWERCAP, Nvml, Rapl, energy_uj, find_meter
from clmatmul.tune.progress import PlainProgress
from clmatmul.tune.report import energy as text_of
from clmatmul.tune.t4 import from_t4, to_t4

THRIFTY = TileConfig.of("tiled", tile_m=8, tile_n=8, tile_k=8)


def domain(folder, name, uj, most=999_999):
    """A domain of RAPL as Linux shows it; returns the file of its counter."""
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{most}\n")
    counter = folder / "energy_uj"
    counter.write_text(f"{uj}\n")
    return counter


# ---- RAPL -----------------------------------------------------------------------------------


def test_packages_and_their_memory_are_added_and_parts_are_not(tmp_path):
    first = domain(tmp_path / "intel-rapl:0", "package-0", 5)
    second = domain(tmp_path / "intel-rapl:1", "package-1-die-0", 100)
    memory = domain(tmp_path / "intel-rapl:0:1", "dram", 7)
    core = domain(tmp_path / "intel-rapl:0:0", "core", 1)
    whole = domain(tmp_path / "intel-rapl:2", "psys", 1)
    (tmp_path / "intel-rapl").mkdir()
    meter = Rapl(tmp_path)
    assert meter.read_uj() == 0
    for file, uj in ((first, 25), (second, 130), (memory, 8), (core, 500), (whole, 900)):
        file.write_text(str(uj))
    assert meter.read_uj() == 20 + 30 + 1


def test_a_counter_that_begins_anew_is_followed(tmp_path):
    counter = domain(tmp_path / "intel-rapl:0", "package-0", 990, most=999)
    meter = Rapl(tmp_path)
    counter.write_text("15")
    assert meter.read_uj() == 25
    counter.write_text("14")
    assert meter.read_uj() == 25 + 999


def test_without_a_counter_the_refusal_names_what_was_looked_for(tmp_path, device):
    folder = tmp_path / "powercap"
    for prepare in (lambda: None, lambda: domain(folder / "intel-rapl:0", "psys", 1)):
        prepare()
        with pytest.raises(UnsupportedError) as caught:
            find_meter(device, folder)
        assert f"{folder}/intel-rapl:*/energy_uj" in str(caught.value)


def test_a_counter_that_only_root_may_read_is_a_refusal_with_its_remedy(tmp_path):
    counter = domain(tmp_path / "intel-rapl:0", "package-0", 5)
    counter.unlink()
    counter.mkdir()  # what cannot be read, for root too
    with pytest.raises(UnsupportedError, match="cannot be read: .*; .*chmod a.r"):
        Rapl(tmp_path)


def test_a_counter_that_is_no_number_is_a_refusal(tmp_path):
    domain(tmp_path / "intel-rapl:0", "package-0", "")
    with pytest.raises(UnsupportedError, match="energy_uj holds no number"):
        Rapl(tmp_path)


# ---- NVML -----------------------------------------------------------------------------------


class NVMLError(Exception):
    pass


@pytest.fixture
def nvml(monkeypatch):
    """A pynvml of the test's own: names and mJ of its GPUs, by their PCI addresses."""
    fake = types.ModuleType("pynvml")
    fake.gpus = {"00000000:1b:00.0": ["NVIDIA H200", 1000], "00000000:2c:00.0": ["Other", 5]}
    addresses = list(fake.gpus)

    def at(address):
        if address not in fake.gpus:
            raise NVMLError("Not Found")
        return address

    def consumed(gpu):
        if fake.gpus[gpu][1] is None:
            raise NVMLError("Not Supported")
        return fake.gpus[gpu][1]

    fake.NVMLError = NVMLError
    fake.nvmlInit = lambda: None
    fake.nvmlDeviceGetCount = lambda: len(addresses)
    fake.nvmlDeviceGetHandleByIndex = lambda i: addresses[i]
    fake.nvmlDeviceGetHandleByPciBusId = at
    fake.nvmlDeviceGetName = lambda gpu: fake.gpus[gpu][0]
    fake.nvmlDeviceGetTotalEnergyConsumption = consumed
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def gpu(address="00000000:1b:00.0", family="nvidia"):
    profile = SimpleNamespace(kind="gpu", family=family, name="NVIDIA H200", title="a GPU")
    return SimpleNamespace(profile=profile, pci_address=lambda: address)


@pytest.mark.parametrize("address", ["00000000:1b:00.0", None])
def test_a_gpu_is_found_by_its_address_or_its_name(nvml, address):
    meter = find_meter(gpu(address))
    before = meter.read_uj()
    nvml.gpus["00000000:1b:00.0"][1] += 7
    nvml.gpus["00000000:2c:00.0"][1] += 100
    assert meter.read_uj() - before == 7000


def test_two_gpus_of_one_name_are_not_told_apart_by_it(nvml):
    nvml.gpus["00000000:2c:00.0"][0] = "NVIDIA H200"
    with pytest.raises(UnsupportedError, match="knows 2 GPUs of the name NVIDIA H200"):
        Nvml(None, "NVIDIA H200")


@pytest.mark.parametrize("case", ["address", "counter", "driver"])
def test_what_nvml_refuses_is_said(nvml, case):
    if case == "counter":
        nvml.gpus["00000000:1b:00.0"][1] = None
    if case == "driver":
        nvml.nvmlInit = lambda: nvml.nvmlDeviceGetHandleByPciBusId("none")
    with pytest.raises(UnsupportedError, match="does not count the energy .*Not (Found|Supp)"):
        find_meter(gpu("00000000:ff:00.0" if case == "address" else "00000000:1b:00.0"))


def test_without_nvidia_ml_py_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'clmatmul\[energy\]'"):
        find_meter(gpu())


def test_other_gpus_have_no_meter_that_is_known():
    with pytest.raises(UnsupportedError, match="for CPUs RAPL in .*, for NVIDIA's GPUs NVML"):
        find_meter(gpu(family="amd"))


def test_a_device_without_an_address_on_the_bus_has_none(device):
    if device.profile.family != "nvidia":
        assert device.pci_address() is None


# ---- what one run takes ---------------------------------------------------------------------


class Meter:
    """Counts what each run takes; 3 µJ by default."""

    name, seconds = "made up", 0.002

    def __init__(self, uj=3):
        self.uj, self.total = uj, 0

    def run(self, i):
        self.total += self.uj
        return None, None

    def read_uj(self):
        return self.total


@pytest.mark.parametrize("run_ns", [10, 5e6, 1e12])
def test_the_energy_of_a_run_is_the_mean_of_as_many_as_the_meter_needs(monkeypatch, run_ns):
    waits = []
    monkeypatch.setattr(energy, "wait", waits.append)
    meter = Meter()
    assert energy_uj(meter, meter.run, run_ns) == 3
    runs_a_wait = (meter.total / 3 - 1) / (len(waits) - 1)
    assert runs_a_wait == {10: 200, 5e6: 2, 1e12: 1}[run_ns]


def test_a_meter_that_stands_still_is_refused(monkeypatch):
    monkeypatch.setattr(energy, "wait", lambda events: None)
    meter = Meter(uj=0)
    with pytest.raises(MeasurementError, match="made up counted nothing"):
        energy_uj(meter, meter.run, 1e6)


def test_the_worker_measures_trials_and_the_final_on_the_device(monkeypatch, device):
    class Watch(Meter):
        """As if a watt were drawn all the time."""

        def read_uj(self):
            return time.perf_counter() * 1e6

    monkeypatch.setattr(worker, "find_meter", lambda device: Watch())
    states = []
    session = worker.Session(lambda message: states.append(message["state"]))
    session.answer({"do": "open", "device": None, "objective": "energy"})
    problem = problem_to_dict(plain_problem(24, 20, 16))
    session.answer({"do": "prepare", "problem": problem, "seed": 0})
    config = TileConfig.of("naive", work_group_size=8).to_dict()
    found = session.answer({"do": "try", "config": config, "best_ns": None, "slowest_ns": None,
                            "checked": False})  # fmt: skip
    assert found["status"] == "ok" and states[-2:] == ["time", "meter"]
    assert 0 < found["minimum_ns"] / 1e3 < found["energy_uj"] < 1e6
    request = {"do": "compare", "configs": [config, config], "rounds": 9, "max_seconds": 0.0}
    costs = session.answer(request)["costs"]
    assert [len(x) for x in costs] == [6, 6] and all(0 < x < 1e6 for own in costs for x in own)


# ---- a search -------------------------------------------------------------------------------


def with_energy(config):
    """FAST is the fastest, THRIFTY takes the least energy."""
    ns = {FAST: MS, THRIFTY: 3 * MS}.get(config, 10 * MS)
    return replace(passed(config, ns), energy_uj={FAST: 900.0, THRIFTY: 200.0}.get(config, 1000.0))


def made(monkeypatch):
    device = Device(monkeypatch, with_energy)
    device._times = lambda configs, rounds: [[with_energy(x).energy_uj] * 6 for x in configs]
    return device


@pytest.mark.parametrize("strategy", ["local", "random"])
def test_the_thriftiest_wins_and_is_recorded_as_such(tmp_path, monkeypatch, strategy, capsys):
    device = made(monkeypatch)
    report = search(tmp_path, objective="energy", strategy=strategy, progress=PlainProgress())
    (found,) = report.problems
    assert found.winner.config == THRIFTY and found.objective == "energy"
    assert found.verdict.endswith("as thrifty as the default") and found.comparison.ratio == 5
    assert len(device.compared[0]) == 4
    (best,) = read_records(report.best_file)
    assert (best.objective, best.energy_uj, best.cost) == ("energy", 200.0, 200.0)
    text = str(report)
    assert text.index("200 µJ") < text.index("1 mJ") and "5.00×" in text
    assert found.to_dict()["best_so_far"][-1]["energy_uj"] == 200.0
    page = html.page(report)
    assert "GFLOP/J" in page and "200 µJ" in page
    assert "200 µJ a run" in capsys.readouterr().err
    copy = from_t4(to_t4(read_records(report.journal)), "x")
    assert copy == read_records(report.journal) and copy[-1].objective == "energy"


def test_trials_without_energy_are_made_again_and_the_other_way_round_they_are_not(
    tmp_path, monkeypatch
):
    Device(monkeypatch, by_config({}))
    tried = search(tmp_path, budget="20trials").problems[0].tried
    made(monkeypatch)
    assert search(tmp_path, budget="20trials", objective="energy").problems[0].skipped == 0
    assert search(tmp_path, budget="20trials").problems[0].skipped >= tried


def test_an_objective_that_there_is_not(tmp_path):
    with pytest.raises(ArgumentError, match="objective='beauty' is unknown; there are time, en"):
        search(tmp_path, objective="beauty")


@pytest.mark.skipif(any(POWERCAP.glob("intel-rapl:*")), reason="this machine has a meter")
def test_a_machine_without_a_meter_ends_with_4_and_tries_nothing(device, tmp_path, capsys):
    if not device.profile.is_cpu:
        pytest.skip("about CPUs")
    arguments = ["tune", "--m", "32", "--objective", "energy", "--db", str(tmp_path)]
    assert main(arguments) == 4
    out, err = capsys.readouterr()
    assert out == "" and "intel-rapl:*/energy_uj" in err and "Traceback" not in err
    assert not list(tmp_path.glob("tuning/journals/*.jsonl"))


@pytest.mark.parametrize("uj, text", [(3.21, "3.21 µJ"), (1234, "1.23 mJ"), (9.9996e5, "1 J")])
def test_energies_are_shown_in_a_fitting_unit(uj, text):
    assert text_of(uj) == text


def test_a_trial_without_energy_is_no_record_of_an_energy_search(tmp_path, monkeypatch):
    Device(monkeypatch, by_config({}))
    (record, *_) = read_records(search(tmp_path, budget="2trials").journal)
    with pytest.raises(ArgumentError, match="has a time"):
        type(record).from_json(replace(record, objective="energy").to_json())
    with pytest.raises(ArgumentError, match="neither time nor energy"):
        type(record).from_json(replace(record, objective="x").to_json())
