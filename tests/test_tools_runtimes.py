"""tools/install_runtimes: how runtimes are got, kept in their folder, and tried alone."""

import os
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools"
sys.path.insert(0, str(TOOLS))

import runtimes  # noqa: E402
import runtimes_install  # noqa: E402
from conformance_records import FACTS  # noqa: E402
from runtimes import IMPLEMENTATIONS, Runtime, UnavailableError  # noqa: E402

# ------------------------------------------------------------------------------------ runtimes


def test_environment_shows_one_implementation_only(tmp_path):
    runtime = Runtime("rusticl", "/x/lib.so", ("/x",), facts=FACTS)
    base = {"OCL_ICD_VENDORS": "other", "PYOPENCL_CTX": "1", "POCL_DEVICES": "basic",
            "LD_PRELOAD": "x.so", "LD_LIBRARY_PATH": "/y", "PATH": "/bin"}  # fmt: skip
    found = runtimes.environment_of(runtime, tmp_path, base, tmp_path / "scratch")
    assert found["OCL_ICD_VENDORS"] == str(tmp_path / "rusticl" / "rusticl.icd")
    assert found["RUSTICL_ENABLE"] == "llvmpipe"
    assert found["LD_LIBRARY_PATH"] == os.pathsep.join(["/x", "/y"])
    assert found["CLMATMUL_DEVICE"] == "Portable Computing Language:pthread-x"
    assert found["PATH"] == "/bin"
    assert not {"PYOPENCL_CTX", "POCL_DEVICES", "LD_PRELOAD", "OCLGRIND_LOG"} & set(found)
    for key in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "POCL_CACHE_DIR"):
        assert Path(found[key]).is_dir() and tmp_path in Path(found[key]).parents


def test_oclgrind_looks_for_every_kind_of_fault(tmp_path):
    found = runtimes.environment_of(Runtime("oclgrind", "/x.so"), tmp_path, {}, tmp_path)
    assert found["OCLGRIND_DATA_RACES"] == found["OCLGRIND_UNINITIALIZED"] == "1"
    assert Path(found["OCLGRIND_LOG"]).parent == tmp_path
    assert "LD_LIBRARY_PATH" not in found


def test_runtime_is_kept_in_its_folder(tmp_path):
    library = tmp_path / "lib.so"
    library.touch()
    runtime = Runtime("intel", str(library), ("/a", "/b"), "wheels", FACTS)
    runtimes.save(runtime, tmp_path)
    assert runtimes.load("intel", tmp_path) == runtime
    assert runtimes.icd_file(tmp_path, "intel").read_text() == f"{library}\n"
    library.unlink()
    with pytest.raises(UnavailableError, match="has gone"):
        runtimes.load("intel", tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"facts": null}'])
def test_an_unreadable_record_is_named(tmp_path, text):
    (tmp_path / "intel").mkdir()
    (tmp_path / "intel" / "runtime.json").write_text(text)
    with pytest.raises(UnavailableError, match="runtime.json is not readable"):
        runtimes.load("intel", tmp_path)


def test_a_runtime_that_is_not_set_up_says_how(tmp_path):
    with pytest.raises(UnavailableError, match="tools/install_runtimes"):
        runtimes.load("intel", tmp_path)


def seen(name="Portable Computing Language", version="OpenCL 3.0 PoCL 3.1", *, kernel="ok"):
    device = {"name": "pthread-x", "driver": "3.1", "kind": "cpu", "kernel": kernel}
    return {"name": name, "version": version, "devices": [device]}


def test_the_device_that_was_meant_is_accepted():
    facts = runtimes.check(IMPLEMENTATIONS["pocl-3.1"], [seen()])
    assert (facts.device, facts.driver) == ("pthread-x", "3.1")


@pytest.mark.parametrize(
    ("platforms", "reason"),
    [
        ([], "no platform"),
        ([seen(), seen("Clover")], "other platforms"),
        ([seen(version="OpenCL 3.0 PoCL 6.0")], "wanted Portable Computing PoCL 3.1"),
        ([seen() | {"devices": []}], "no devices"),
        ([seen(kernel="wrong result")], "wrong result"),
    ],
)
def test_anything_else_is_refused_with_the_reason(platforms, reason):
    with pytest.raises(UnavailableError, match=reason):
        runtimes.check(IMPLEMENTATIONS["pocl-3.1"], platforms)


@pytest.mark.parametrize("text", ["0", "cpu", "PTHREAD", "portable", "portable:pthread"])
def test_a_device_is_found_as_clmatmul_device_says(text):
    assert runtimes.find_device([seen()], text).device == "pthread-x"


@pytest.mark.parametrize("text", ["1", "gpu", "nvidia", "nvidia:pthread"])
def test_a_device_that_is_not_there_is_named(text):
    with pytest.raises(UnavailableError, match="pthread-x"):
        runtimes.find_device([seen()], text)


def test_every_implementation_has_a_way():
    assert set(runtimes_install.WAYS) == set(IMPLEMENTATIONS)


def test_apt_simulation_is_read():
    text = "Reading…\nRemv mesa [1]\nInst libhwloc15 (2.9)\nInst clang-15 (1)\nConf clang-15 (1)\n"
    assert runtimes_install.parse_simulation(text) == (("libhwloc15", "clang-15"), ("mesa",))


def test_only_libraries_are_unpacked_beside_the_package():
    missing = ("libhwloc15", "clang-15", "libobjc-12-dev", "libpocl2", "pocl-opencl-icd")
    expected = ("pocl-opencl-icd", "libhwloc15", "libpocl2")
    assert runtimes_install.packages_to_unpack("pocl-opencl-icd", missing) == expected


def way(label, answer, system=False):
    def find(folder):
        if isinstance(answer, Exception):
            raise answer
        return answer

    return runtimes_install.Way(label, find, system)


def test_ways_are_tried_in_order_and_reasons_kept(tmp_path, monkeypatch):
    good = Runtime("intel", "/x.so", facts=FACTS)
    ways = (way("first", UnavailableError("no pip")), way("second", good))
    monkeypatch.setitem(runtimes_install.WAYS, "intel", ways)
    monkeypatch.setattr(runtimes_install, "verified", lambda runtime, folder: runtime)
    outcome = runtimes_install.set_up("intel", tmp_path)
    assert (outcome.state, outcome.runtime) == ("installed", good)
    assert outcome.reasons == ("first: no pip",)


def test_what_cannot_be_had_is_reported(tmp_path, monkeypatch, capsys):
    ways = (way("one", UnavailableError("no pip")), way("two", Runtime("intel", ""), system=True))
    monkeypatch.setitem(runtimes_install.WAYS, "intel", ways)
    status = runtimes_install.main(["--prefix", str(tmp_path), "--only", "intel", "--no-system"])
    shown = capsys.readouterr().out
    assert status == 0
    assert "not available" in shown and "one: no pip" in shown and "--no-system" in shown
