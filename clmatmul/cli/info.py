"""`clmatmul info`: versions, drivers, devices, records, folders, environment."""

import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import clmatmul
from clmatmul import installed
from clmatmul.cli.devices import amount, device_table
from clmatmul.cli.output import print_json, print_table, print_text
from clmatmul.database import read_records
from clmatmul.errors import DatabaseError, NoDeviceError
from clmatmul.program_cache import cache_folder
from clmatmul.selection import icd_files, icd_folder, list_devices, resolve
from clmatmul.variants import variant_names
from clmatmul.walk import tuning_folder

_PACKAGES = ("numpy", "pyopencl", "pocl-binary-distribution", "mako", "rich", "scipy", "ml_dtypes")
_VARIABLES = (
    "CLMATMUL_", "PYOPENCL_", "OCL_ICD_", "OPENCL", "POCL_", "CL_", "RUSTICL_", "MESA_",
    "OCLGRIND_", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS",
    "LD_LIBRARY_PATH",
)  # fmt: skip


def add_arguments(parser):
    """None of its own."""


def run(arguments):
    """Print the facts; a machine without a device has facts too, so that is no error here."""
    facts = gather(arguments.device)
    if arguments.json:
        print_json("info", facts)
        return 0
    _print_pairs("versions", facts["versions"].items())
    icd = [(x["file"], f"{x['library']}  {x['problem'] or 'loads'}") for x in facts["drivers"]]
    _print_pairs(f"drivers in {facts['driver_folder']}", icd)
    if facts["unused_platforms"]:
        _print_pairs("platforms without a usable device", facts["unused_platforms"].items())
    _print_devices(facts)
    records = [
        (x["file"], x["problem"] or f"{x['records']} records") for x in facts["tuning_records"]
    ]
    _print_pairs(f"tuning records in {facts['tuning_folder']}", records)
    kept = f"{facts['cache_programs']} programs, {amount(facts['cache_bytes'])}"
    _print_pairs("program cache", [(facts["cache_folder"], kept)])
    _print_pairs("environment", facts["environment"].items())
    return 0


def gather(selector=None):
    """The facts as JSON can hold them."""
    found = list_devices()
    try:
        default, problem = resolve(selector).profile, ""
    except NoDeviceError as error:
        default, problem = None, str(error)
    programs, size = _cache_contents()
    return {
        "versions": versions(),
        "driver_folder": str(icd_folder()),
        "drivers": [
            {"file": file, "library": library, "problem": fault}
            for file, library, fault in icd_files()
        ],
        "unused_platforms": dict(installed.unused_platforms()),
        "devices": [json.loads(profile.to_json()) for profile in found],
        "default": found.index(default) if default in found else None,
        "problem": problem,
        "variants": list(variant_names()),
        "tuning_folder": str(tuning_folder()),
        "tuning_records": list(_record_files()),
        "cache_folder": str(cache_folder()),
        "cache_programs": programs,
        "cache_bytes": size,
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)
        },
    }


def versions():
    """name → version of everything that a result may depend on."""
    found = {
        "clmatmul": f"{clmatmul.__version__} ({Path(clmatmul.__file__).parent})",
        "Python": f"{sys.version.split()[0]} ({platform.python_implementation()})",
        "system": platform.platform(),
        "processors": str(os.cpu_count()),
    }
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _record_files():
    for file in sorted(tuning_folder().glob("**/*.jsonl")):
        name = str(file.relative_to(tuning_folder()))
        try:
            yield {"file": name, "records": len(read_records(file)), "problem": ""}
        except DatabaseError as error:
            yield {"file": name, "records": 0, "problem": str(error)}


def _cache_contents():
    """(number of programs, bytes of all files) in the cache."""
    files = [file for file in cache_folder().glob("*/*") if file.is_file()]
    return sum(file.suffix == ".bin" for file in files), sum(x.stat().st_size for x in files)


def _print_devices(facts):
    print_text("devices")
    if facts["problem"]:
        print_text("\n".join(f"  {line}" for line in facts["problem"].splitlines()))
    found = list_devices()
    if not found:
        return
    chosen = None if facts["default"] is None else found[facts["default"]]
    print_table(device_table(found, chosen))
    for i, profile in enumerate(found):
        extra = "".join(
            f"; {word}: {', '.join(names)}"
            for word, names in (("guessed", profile.guesses), ("unreliable", profile.unreliable))
            if names
        )
        print_text(
            f"  {i}: {profile.family}, driver {profile.driver_version}, "
            f"{profile.device_version}, {profile.c_version}{extra}"
        )


def _print_pairs(title, pairs):
    pairs = list(pairs)
    print_text(title)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        print_text(f"  {name.ljust(width)}  {value}")
    if not pairs:
        print_text("  none")
