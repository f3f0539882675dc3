"""Which device: by argument, by `use_device`, by environment, or the best there is.

The order is: the `device` argument, the innermost `use_device`, CLMATMUL_DEVICE, PYOPENCL_CTX,
and then the best found (discrete GPU, integrated GPU, accelerator, CPU). Nothing ever prompts.
"""

import contextlib
import contextvars
import ctypes
import os
import platform as python_platform
from pathlib import Path

from clmatmul import device as devices
from clmatmul import installed
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import NoDeviceError

_KINDS = ("cpu", "gpu", "accelerator")
_chosen = contextvars.ContextVar("clmatmul_device", default=None)


def list_devices():
    """The DeviceProfile of every usable device, in the runtime's order."""
    return [entry.profile for entry in installed.installed_devices()]


def default_device():
    """The DeviceProfile of the device that products of host arrays run on; NoDeviceError."""
    return resolve().profile


@contextlib.contextmanager
def use_device(selector):
    """Within the block, products of host arrays run on this device.

    selector: 'cpu', 'gpu', 'accelerator', an index into `devices()`, part of a device's or
    platform's name, 'platform:device', a DeviceProfile or a pyopencl.Device. Holds for this
    thread (or asynchronous task) only, and nests. NoDeviceError if nothing matches.
    """
    device = select(selector)
    token = _chosen.set(device)
    try:
        yield device.profile
    finally:
        _chosen.reset(token)


def chosen():
    """The open Device of the innermost `use_device`, or None."""
    return _chosen.get()


def resolve(selector=None):
    """The open Device for a call that was given `selector`, or None for the default."""
    if selector is not None:
        return select(selector)
    if chosen() is not None:
        return chosen()
    for variable in ("CLMATMUL_DEVICE", "PYOPENCL_CTX"):
        text = os.environ.get(variable)
        if text:
            try:
                return _cached_default(text)
            except NoDeviceError as error:
                raise NoDeviceError(f"{variable}={text}: {error}") from None
    return _cached_default(None)


_defaults = {}


def _cached_default(text):
    """Enumerating platforms costs far more than a small product: once a process and selector."""
    key = (text, os.getpid())
    if key not in _defaults:
        _defaults[key] = select(text)
    return _defaults[key]


def select(selector=None):
    """Open the device that `selector` names (see `use_device`), the best if several match."""
    if isinstance(selector, devices.Device):
        return selector
    if devices.is_cl_device(selector):
        return devices.open_device(selector)
    found = installed.installed_devices()
    if not found:
        raise NoDeviceError(no_device_report(selector))
    matching = [x for i, x in enumerate(found) if _matches(selector, x, i)]
    if not matching:
        listed = "\n".join(f"  {i}: {x.profile.title}" for i, x in enumerate(found))
        raise NoDeviceError(
            f"no device matches {selector!r}; there are\n{listed}\n"
            "Name one by its index, by part of its name, as 'platform:device', or as 'cpu' or "
            "'gpu'."
        )
    best = max(matching, key=lambda x: rank(x.profile))
    return devices.open_device(best.cl_device)


def _matches(selector, entry, index):
    profile = entry.profile
    if selector is None:
        return True
    if isinstance(selector, DeviceProfile):
        return profile.key == selector.key
    text = str(selector).strip().lower()
    if text.isdigit():
        return int(text) == index
    if text in _KINDS:
        return profile.kind == text
    if ":" in text:
        first, _, second = text.partition(":")
        return _part_matches(first, profile.platform_name, entry.platform_index) and _part_matches(
            second, profile.name, entry.device_index
        )
    names = (profile.name, profile.platform_name, profile.vendor, profile.platform_version)
    return any(text in name.lower() for name in names)


def _part_matches(part, name, index):
    return int(part) == index if part.isdigit() else part in name.lower()


def rank(profile):
    """Higher is better: discrete GPU, integrated GPU, accelerator, CPU; a simulator last."""
    order = {"gpu": 3 if not profile.unified_memory else 2, "accelerator": 1, "cpu": 0}
    return (profile.family != "oclgrind", order.get(profile.kind, -1), profile.compute_units)


def no_device_report(selector=None):
    """What was sought, which drivers are registered or broken, and the command that helps."""
    sought = "any device" if selector is None else f"a device matching {selector!r}"
    lines = [f"No OpenCL device was found (sought: {sought})."]
    for file, library, problem in icd_files():
        state = f"cannot be loaded: {problem}" if problem else "loads"
        lines.append(f"  driver file {file} names {library}, which {state}")
    for name, reason in installed.unused_platforms():
        lines.append(f"  platform {name} {reason}")
    if len(lines) == 1:
        lines.append(f"  There is no driver file in {icd_folder()}.")
    lines.append(f"To get one: {_install_hint()}")
    return "\n".join(lines)


def icd_folder():
    """The folder (or file) in which OpenCL drivers are registered on this system."""
    return Path(os.environ.get("OCL_ICD_VENDORS") or "/etc/OpenCL/vendors")


def icd_files():
    """(file, library, problem) of each registered driver; problem is '' if it loads."""
    folder = icd_folder()
    files = [folder] if folder.is_file() else sorted(folder.glob("*.icd"))
    for file in files:
        try:
            library = file.read_text().strip()
        except OSError as error:
            yield str(file), "?", f"unreadable: {error.strerror}"
            continue
        try:
            ctypes.CDLL(library)
            yield str(file), library, ""
        except OSError as error:
            yield str(file), library, str(error)


def _install_hint():
    if python_platform.system() == "Linux" and python_platform.machine() in ("x86_64", "AMD64"):
        return "pip install 'pyopencl[pocl]' (a CPU runtime; for a GPU, its vendor's OpenCL driver)"
    return (
        "install your device vendor's OpenCL driver, or a CPU runtime such as PoCL "
        "(conda install -c conda-forge pocl)"
    )
