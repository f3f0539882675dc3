"""Which device, and what a user without one is told."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import clmatmul
from clmatmul import device as devices
from clmatmul import installed as installation
from clmatmul import selection, walk
from clmatmul.errors import DeviceError, NoDeviceError

FOLDER = Path(__file__).parent / "profiles"


class Platform:
    name, vendor = "Bare Platform", "Nobody"

    def __init__(self, name="Bare Platform"):
        self.name = name

    def get_devices(self):
        return []


@pytest.fixture
def no_platform(monkeypatch):
    monkeypatch.setattr(installation, "_platforms", list)
    monkeypatch.setattr(selection, "_defaults", {})
    for variable in ("CLMATMUL_DEVICE", "PYOPENCL_CTX"):
        monkeypatch.delenv(variable, raising=False)
    return monkeypatch


@pytest.fixture
def installed(monkeypatch):
    """Five devices that nobody here owns."""
    profiles = [clmatmul.DeviceProfile.from_json(f.read_text()) for f in sorted(FOLDER.iterdir())]
    found = [installation.Installed(p.name, p, i, 0) for i, p in enumerate(profiles)]
    monkeypatch.setattr(installation, "installed_devices", lambda: found)
    monkeypatch.setattr(devices, "open_device", lambda name: name)
    monkeypatch.setattr(selection, "_defaults", {})
    return {p.family: p.name for p in profiles}


def test_no_device_says_what_to_do(no_platform, tmp_path):
    no_platform.setenv("OCL_ICD_VENDORS", str(tmp_path))
    with pytest.raises(NoDeviceError) as caught:
        clmatmul.matmul(np.eye(2), np.eye(2))
    text = str(caught.value)
    assert f"There is no driver file in {tmp_path}" in text and "sought: any device" in text
    assert text.count("To get one: ") == 1
    if sys.platform == "linux" and os.uname().machine == "x86_64":
        assert "pip install 'pyopencl[pocl]'" in text


def test_driver_files_of_missing_libraries_are_named(no_platform, tmp_path):
    (tmp_path / "gone.icd").write_text("/opt/gone/libgone.so\n")
    (tmp_path / "text.icd").write_text(str(tmp_path / "text.icd"))
    no_platform.setenv("OCL_ICD_VENDORS", str(tmp_path))
    with pytest.raises(NoDeviceError) as caught:
        clmatmul.default_device()
    lines = str(caught.value).splitlines()
    line = next(x for x in lines if "gone.icd" in x)
    assert "/opt/gone/libgone.so, which cannot be loaded: " in line and "No such file" in line
    assert any("text.icd" in x and "cannot be loaded" in x for x in lines)


def test_platforms_without_devices_are_named(no_platform, tmp_path):
    no_platform.setattr(installation, "_platforms", lambda: [Platform(), Platform("Clover")])
    with pytest.raises(NoDeviceError) as caught:
        clmatmul.use_device("gpu").__enter__()
    text = str(caught.value)
    assert "platform Bare Platform has no device" in text
    assert "sought: a device matching 'gpu'" in text


def test_where_pocl_cannot_write_its_cache_the_report_says_what_to_set(device, tmp_path):
    if device.profile.family != "pocl":
        pytest.skip("the device is not PoCL's")
    nowhere = tmp_path / "a file"
    nowhere.touch()
    environment = {x: y for x, y in os.environ.items() if x not in ("POCL_CACHE_DIR", "HOME")}
    environment.update(XDG_CACHE_HOME=str(nowhere / "cache"), HOME=str(nowhere))
    command = [sys.executable, "-m", "clmatmul", "devices"]

    def run(**more):
        return subprocess.run(command, env={**environment, **more}, capture_output=True, text=True)

    refused = run()
    assert refused.returncode == 3
    assert "PoCL has none where its cache cannot be written: set POCL_CACHE_DIR" in refused.stderr
    assert run(POCL_CACHE_DIR=str(tmp_path / "cache")).returncode == 0


def test_numpy_serves_without_a_device_when_asked(no_platform):
    a = np.arange(4.0).reshape(2, 2)
    assert np.array_equal(clmatmul.matmul(a, a, fallback="numpy"), a @ a)
    assert np.array_equal(
        clmatmul.gemm(a, a, a, alpha=2, beta=3, fallback="numpy"), 2 * a @ a + 3 * a
    )
    with pytest.raises(clmatmul.UnsupportedError, match="epilogue"):
        clmatmul.matmul(a, a, fallback="numpy", epilogue=clmatmul.Epilogue(activation="relu"))


def test_in_a_process_without_drivers(tmp_path):
    """The whole way: a loader that finds nothing."""
    code = "import clmatmul, numpy as np\ntry: clmatmul.matmul(np.eye(2), np.eye(2))\n"
    code += "except clmatmul.NoDeviceError as error: print(error)"
    (tmp_path / "gone.icd").write_text("libgone.so")
    env = {**os.environ, "OCL_ICD_VENDORS": str(tmp_path), "OCL_ICD_FILENAMES": ""}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env,
                         cwd=Path(clmatmul.__file__).parent.parent)  # fmt: skip
    assert run.returncode == 0, run.stderr
    if run.stdout:  # PoCL of a wheel is found whatever the folder says
        assert "No OpenCL device was found" in run.stdout and "gone.icd" in run.stdout


def test_an_unknown_selector_lists_the_devices(installed):
    with pytest.raises(NoDeviceError) as caught:
        selection.select("quantum")
    text = str(caught.value)
    assert "no device matches 'quantum'" in text
    assert "  0: gfx90a" in text and "  4: Tiny" in text and "'cpu'" in text


def test_best_device_first(installed):
    assert selection.select() == installed["nvidia"]
    assert selection.select("cpu") == installed["rusticl"]
    assert selection.select("gpu") == installed["nvidia"]
    assert selection.select("accelerator") == installed["other"]


@pytest.mark.parametrize("selector, family", [
    ("iris", "intel-gpu"), ("H200", "nvidia"), ("mesa", "rusticl"), (4, "other"), ("4", "other"),
    ("0:0", "amd"), ("nvidia:h200", "nvidia"), ("rusticl:0", "rusticl"), (np.int64(1), "intel-gpu"),
])  # fmt: skip
def test_selectors(installed, selector, family):
    assert selection.select(selector) == installed[family]


def test_a_profile_selects_its_device(installed):
    profile = clmatmul.DeviceProfile.from_json((FOLDER / "amd-mi210.json").read_text())
    assert selection.select(profile) == installed["amd"]
    with pytest.raises(NoDeviceError):
        selection.select(replace(profile, driver_version="another"))


@pytest.mark.parametrize("selector", [7, "-1", "x:y", "gpu:9"])
def test_selectors_that_match_nothing(installed, selector):
    with pytest.raises(NoDeviceError, match="no device matches"):
        selection.select(selector)


def test_environment(installed, monkeypatch):
    monkeypatch.setenv("PYOPENCL_CTX", "1:0")
    assert selection.resolve() == installed["intel-gpu"]
    monkeypatch.setenv("CLMATMUL_DEVICE", "tiny")
    assert selection.resolve() == installed["other"]
    monkeypatch.setenv("CLMATMUL_DEVICE", "quantum")
    with pytest.raises(NoDeviceError, match="CLMATMUL_DEVICE=quantum: no device matches"):
        selection.resolve()
    assert selection.resolve("cpu") == installed["rusticl"]


def test_simulators_come_last():
    profile = clmatmul.DeviceProfile.from_json((FOLDER / "rusticl-llvmpipe.json").read_text())
    simulator = replace(profile, family="oclgrind", kind="gpu", compute_units=999)
    assert selection.rank(simulator) < selection.rank(profile)


def test_clover_is_refused(monkeypatch, device):
    clover = replace(device.profile, family="clover")
    monkeypatch.setattr(installation, "read_profile", lambda cl_device: clover)
    assert installation.installed_devices() == []


def test_float64_needs_fp64(monkeypatch, device):
    monkeypatch.setitem(device.__dict__, "profile", replace(device.profile, fp64=False))
    walk.forget()
    a = np.eye(3)
    for call in (
        lambda: clmatmul.matmul(a, a), lambda: clmatmul.gemm(a, a), lambda: clmatmul.MatMul(a, a),
        lambda: clmatmul.matmul(a.astype("f4"), a), lambda: clmatmul.scale(2.0, a),
        lambda: clmatmul.matmul(a.astype("c16"), a.astype("f4")),
        lambda: clmatmul.matmul(a.astype("f4"), a.astype("f4"), accumulate="f8"),
        lambda: clmatmul.explain(4, 4, 4, "float64"),
        lambda: clmatmul.matmul(a.astype("f4"), a.astype("f4"), out=np.full((3, 3), 7.0)),
    ):  # fmt: skip
        with pytest.raises(clmatmul.UnsupportedError, match="no float64 arithmetic.*float32"):
            call()
    assert np.array_equal(clmatmul.matmul(a, a, fallback="numpy"), a)
    single = a.astype("f4")
    assert np.array_equal(clmatmul.matmul(single, single), single)


FORK = """
import os, sys, signal
import numpy as np, clmatmul
a = np.eye(3, dtype="f4")
if {used}:
    clmatmul.matmul(a, a)
child = os.fork()
if child == 0:
    signal.alarm(60)
    try:
        {call}
        print("fine")
    except clmatmul.DeviceError as error:
        print("DeviceError", error)
    sys.stdout.flush()
    os._exit(0)
_, status = os.waitpid(child, 0)
sys.exit(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("call", [
    "clmatmul.matmul(a, a)", "clmatmul.devices()", "clmatmul.matmul(a, a, device=0)",
])  # fmt: skip
def test_a_fork_after_first_use_is_an_error_and_no_hang(call):
    run = run_fork(True, call)
    assert run.returncode == 0
    assert run.stdout.startswith("DeviceError") and "'spawn'" in run.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_before_first_use_is_fine():
    run = run_fork(False, "clmatmul.matmul(a, a)")
    assert run.returncode == 0 and run.stdout == "fine\n"


def run_fork(used, call):
    code = FORK.format(used=used, call=call)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          cwd=Path(clmatmul.__file__).parent.parent)  # fmt: skip


def test_errors_of_the_runtime_are_device_errors(device):
    with pytest.raises(DeviceError, match="bytes of device memory could not be had"):
        device.allocate(2**62)
