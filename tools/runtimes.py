"""OpenCL implementations for tests: which there are, where they lie, how a process gets just one.

A folder of runtimes (`default_folder()`) has one sub-folder per implementation::

    FOLDER/NAME/NAME.icd        one line: the absolute path of the vendor's library
    FOLDER/NAME/runtime.json    the `Runtime` below, with the device that was seen

`OCL_ICD_VENDORS` set to the *file* NAME.icd makes the OpenCL loader in pyopencl's wheel load that
library alone, without the system's list and without the PoCL that may lie beside it; set to a
folder it would still add the latter. So a process sees one platform, and cannot test another one
by mistake. The files are written by `install_runtimes` and read by `conformance`.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import platformdirs

TOOLS = Path(__file__).resolve().parent
PROBE_SECONDS = 180

#: Variables of the caller that would change what an OpenCL process sees or does.
OPENCL_PREFIXES = (
    "CLMATMUL_", "CL_CONFIG_", "OCLGRIND_", "OCL_ICD_", "OPENCL_", "POCL_", "PYOPENCL_", "RUSTICL_"
)  # fmt: skip


class UnavailableError(Exception):
    """An implementation cannot be used here; the message is the reason."""


@dataclass(frozen=True)
class Implementation:
    """One OpenCL implementation that the conformance suite knows.

    `platform` and `version` are parts of the platform's name and version: the proof that the
    library that was loaded is the one that was meant. `variables` are set for every process.
    """

    name: str
    summary: str
    platform: str
    version: str
    variables: tuple[tuple[str, str], ...] = ()
    simulator: bool = False


IMPLEMENTATIONS = {
    item.name: item
    for item in (
        Implementation("pocl-3.0", "PoCL 3.0, LLVM 14 (wheel)", "Portable Computing", "PoCL 3.0"),
        Implementation("pocl-3.1", "PoCL 3.1, LLVM 15 (Debian)", "Portable Computing", "PoCL 3.1"),
        Implementation("intel", "Intel CPU runtime (wheels)", "Intel", ""),
        Implementation(
            "rusticl", "Mesa rusticl on llvmpipe (Debian)", "rusticl", "",
            variables=(("RUSTICL_ENABLE", "llvmpipe"),),
        ),
        Implementation(
            "oclgrind", "Oclgrind, a simulator that reports faults", "Oclgrind", "",
            # Not OCLGRIND_CHECK_API: pyopencl asks devices for facts they may not know, each of
            # which it would report, and real API errors are exceptions in pyopencl anyway.
            variables=(
                ("OCLGRIND_DATA_RACES", "1"),
                ("OCLGRIND_UNINITIALIZED", "1"),
                ("OCLGRIND_UNIFORM_WRITES", "1"),
                ("OCLGRIND_MAX_ERRORS", "10000"),
                ("OCLGRIND_NUM_THREADS", "1"),
            ),
            simulator=True,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class DeviceFacts:
    """What a report says of a device; all texts as the implementation gives them."""

    platform: str
    platform_version: str
    device: str
    driver: str

    @property
    def selection(self):
        """The value of CLMATMUL_DEVICE that means this device."""
        return f"{self.platform}:{self.device}"


@dataclass(frozen=True)
class Runtime:
    """An implementation in place: its vendor library and the folders of what that needs."""

    name: str
    library: str
    library_path: tuple[str, ...] = ()
    origin: str = ""
    facts: DeviceFacts | None = None


def default_folder():
    """The folder of runtimes unless another is named: in the user's data folder."""
    return Path(platformdirs.user_data_dir("clmatmul", appauthor=False)) / "runtimes"


def icd_file(folder, name):
    """The .icd file of implementation `name` below `folder`."""
    return Path(folder) / name / f"{name}.icd"


def save(runtime, folder):
    """Write the .icd file and runtime.json of `runtime` below `folder`."""
    icd = icd_file(folder, runtime.name)
    icd.parent.mkdir(parents=True, exist_ok=True)
    icd.write_text(runtime.library + "\n", encoding="utf-8")
    text = json.dumps(asdict(runtime), indent=1, sort_keys=True)
    (icd.parent / "runtime.json").write_text(text + "\n", encoding="utf-8")


def load(name, folder):
    """The saved `Runtime`; UnavailableError if there is none, or its library has gone."""
    file = Path(folder) / name / "runtime.json"
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        facts = stored.pop("facts")
        stored["library_path"] = tuple(stored["library_path"])
        runtime = Runtime(**stored, facts=DeviceFacts(**facts) if facts else None)
    except FileNotFoundError:
        raise UnavailableError("not set up: run tools/install_runtimes") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnavailableError(f"{file} is not readable ({error}): delete it") from None
    if not Path(runtime.library).is_file():
        raise UnavailableError(f"its library {runtime.library} has gone: set it up again")
    return runtime


def without_opencl(environment):
    """`environment` without the variables that would change what an OpenCL process sees."""
    return {
        key: value
        for key, value in environment.items()
        if not key.startswith(OPENCL_PREFIXES) and key != "LD_PRELOAD"
    }


def private_folders(environment, scratch):
    """`environment` with caches and user data in `scratch`, so that no other run matters."""
    places = {
        "XDG_CACHE_HOME": "cache",
        "XDG_DATA_HOME": "data",
        "XDG_CONFIG_HOME": "config",
        "XDG_STATE_HOME": "state",
        "POCL_CACHE_DIR": "pocl",
    }
    for name in places.values():
        (Path(scratch) / name).mkdir(parents=True, exist_ok=True)
    return environment | {key: str(Path(scratch) / name) for key, name in places.items()}


def environment_of(runtime, folder, base, scratch):
    """The environment of a process that sees `runtime` and nothing else.

    `base` is the caller's environment; caches go to `scratch`. Oclgrind's log is
    `scratch/findings`.
    """
    implementation = IMPLEMENTATIONS[runtime.name]
    result = private_folders(without_opencl(base), scratch)
    result["OCL_ICD_VENDORS"] = str(icd_file(folder, runtime.name))
    result.update(implementation.variables)
    if runtime.library_path:
        inherited = [base["LD_LIBRARY_PATH"]] if base.get("LD_LIBRARY_PATH") else []
        result["LD_LIBRARY_PATH"] = os.pathsep.join([*runtime.library_path, *inherited])
    if runtime.facts:
        result["CLMATMUL_DEVICE"] = runtime.facts.selection
    if implementation.simulator:
        result["OCLGRIND_LOG"] = str(Path(scratch) / "findings")
    return result


def ask_devices(environment, python=sys.executable):
    """What a process with `environment` sees: device_probe's answer, parsed.

    UnavailableError with the reason if it crashes, hangs or finds no usable device.
    """
    try:
        done = subprocess.run(
            [python, str(TOOLS / "device_probe.py")],
            env=environment, capture_output=True, text=True, timeout=PROBE_SECONDS,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"listing its devices took over {PROBE_SECONDS} s") from None
    if done.returncode != 0:
        raise UnavailableError(f"listing its devices failed: {last_words(done)}")
    return json.loads(done.stdout.splitlines()[-1])


def last_words(done):
    """Why a finished process failed, in one line: its signal or its last line on stderr."""
    if done.returncode < 0:
        return f"ended by signal {-done.returncode}"
    lines = [line.strip() for line in (done.stderr or done.stdout or "").splitlines()]
    lines = [line for line in lines if line]
    errors = [line for line in lines if line.startswith(("E:", "ERROR:", "error:"))]
    return (errors or lines or [f"exit status {done.returncode}"])[-1]


def check(implementation, platforms):
    """The facts of the one working device that `implementation` must show; else why not.

    `platforms` is the answer of `ask_devices`.
    """
    if not platforms:
        raise UnavailableError("its library shows no platform (a library it needs may be missing)")
    seen = ", ".join(f"{item['name']} ({item['version']})" for item in platforms)
    first = platforms[0]
    if len(platforms) > 1:
        raise UnavailableError(f"the process sees other platforms, too: {seen}")
    wanted = implementation.platform, implementation.version
    if wanted[0] not in first["name"] or wanted[1] not in first["version"]:
        wanted = " ".join(filter(None, wanted))
        raise UnavailableError(f"wanted {wanted}, the library is {seen}")
    if not first["devices"]:
        raise UnavailableError(f"platform {seen} has no devices")
    device = first["devices"][0]
    if device["kernel"] != "ok":
        raise UnavailableError(f"{device['name']} does not run a small kernel: {device['kernel']}")
    return DeviceFacts(first["name"], first["version"].strip(), device["name"], device["driver"])


def probe(runtime, folder, base, scratch, python=sys.executable):
    """`runtime` with the facts of its device, after it ran a kernel; UnavailableError if not."""
    environment = environment_of(replace(runtime, facts=None), folder, base, scratch)
    platforms = ask_devices(environment, python)
    return replace(runtime, facts=check(IMPLEMENTATIONS[runtime.name], platforms))


def find_device(platforms, selection):
    """The facts of the device that CLMATMUL_DEVICE=`selection` means, or UnavailableError.

    "cpu", "gpu", an index, a part of a platform's or a device's name, or "platform:device" parts;
    upper and lower case are the same.
    """
    devices = [(item, device) for item in platforms for device in item["devices"]]
    text = selection.strip().lower()
    if text.isdigit():
        hits = devices[int(text) : int(text) + 1]
    else:
        hits = [pair for pair in devices if _matches(*pair, text)]
    if not hits:
        names = ", ".join(f"{p['name']}:{d['name']}" for p, d in devices) or "no device"
        raise UnavailableError(f'no device is "{selection}"; found {names}')
    item, device = hits[0]
    return DeviceFacts(item["name"], item["version"].strip(), device["name"], device["driver"])


def _matches(platform, device, text):
    if text in ("cpu", "gpu"):
        return text == device["kind"]
    names = platform["name"].lower(), device["name"].lower()
    left, colon, right = text.partition(":")
    if colon and left in names[0] and right in names[1]:
        return True
    return any(text in name for name in names)
