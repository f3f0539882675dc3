"""The devices that are installed, and what each says of itself."""

import os
from dataclasses import dataclass

import pyopencl as cl

from clmatmul.device_profile import DeviceProfile, family_of
from clmatmul.errors import DeviceError
from clmatmul.worker_threads import pinned

_KINDS = {
    "cpu": cl.device_type.CPU,
    "gpu": cl.device_type.GPU,
    "accelerator": cl.device_type.ACCELERATOR,
}
# Implementations that are never used, with the reason that a user is given.
REFUSED = {"clover": "Mesa Clover returns wrong results for vector types; use rusticl instead"}
FORKED = (
    "this process was forked after OpenCL was first used, and OpenCL does not survive a fork; "
    "start workers with the 'spawn' or 'forkserver' method"
)
_first_used_in = None  # the process that first asked for platforms


# ---- finding devices ------------------------------------------------------------------------


@dataclass(frozen=True)
class Installed:
    """A device that is there, with its profile and its place in the runtime's lists."""

    cl_device: object
    profile: DeviceProfile
    platform_index: int
    device_index: int


def installed_devices():
    """Every usable device, in the runtime's order."""
    found = []
    for i, cl_platform in enumerate(_platforms()):
        for j, cl_device in enumerate(_devices_of(cl_platform)):
            profile = read_profile(cl_device)
            if profile.family not in REFUSED:
                found.append(Installed(cl_device, profile, i, j))
    return found


def unused_platforms():
    """(name, reason) of each platform that offers no usable device."""
    for cl_platform in _platforms():
        devices = _devices_of(cl_platform)
        refused = REFUSED.get(family_of(cl_platform.name, cl_platform.vendor, ""))
        if not devices:
            yield cl_platform.name, _why_none(cl_platform)
        elif refused:
            yield cl_platform.name, f"is not used: {refused}"


def _why_none(cl_platform):
    if family_of(cl_platform.name, cl_platform.vendor, "") != "pocl":
        return "has no device"
    # it says nothing itself
    return (
        "has no device; PoCL has none where its cache cannot be written: set POCL_CACHE_DIR to a "
        "folder that can be, if ~/.cache (or XDG_CACHE_HOME) cannot"
    )


def _platforms():
    global _first_used_in
    if _first_used_in not in (None, os.getpid()):
        raise DeviceError(FORKED)
    _first_used_in = os.getpid()
    try:
        with pinned():  # PoCL starts its threads here, or when it is asked for devices
            return cl.get_platforms()
    except cl.Error:  # PLATFORM_NOT_FOUND_KHR: an ordinary state, not a failure
        return []


def _devices_of(cl_platform):
    try:
        with pinned():
            return cl_platform.get_devices()
    except cl.Error:  # a platform without a device
        return []


# ---- profiles -------------------------------------------------------------------------------


def read_profile(cl_device):
    """The DeviceProfile of a device; a fact that the runtime refuses to tell becomes a guess."""
    guesses = []

    def fact(name, guess):
        try:
            return getattr(cl_device, name)
        except (cl.Error, AttributeError):
            guesses.append(name)
            return guess

    extensions = tuple(sorted(set(fact("extensions", "").split())))
    config = fact("single_fp_config", 0)
    bits = fact("type", 0)
    kind = next((name for name, bit in _KINDS.items() if bits & bit), "other")
    family = family_of(cl_device.platform.name, cl_device.vendor, kind)
    unreliable = []
    if family == "rusticl":
        unreliable.append("kernel_work_group_size")  # says 32 for every kernel; 256 run
    if family == "nvidia":
        unreliable.append("kernel_work_group_size")  # says 256 for any program from PTX; 384 run
    return DeviceProfile(
        platform_name=cl_device.platform.name.strip(),
        platform_version=cl_device.platform.version.strip(),
        vendor=cl_device.vendor.strip(),
        name=cl_device.name.strip(),
        driver_version=cl_device.driver_version.strip(),
        device_version=cl_device.version.strip(),
        c_version=fact("opencl_c_version", "OpenCL C 1.1").strip(),
        kind=kind,
        family=family,
        compute_units=fact("max_compute_units", 1),
        max_clock_mhz=fact("max_clock_frequency", 0),
        max_work_group_size=fact("max_work_group_size", 1),
        max_work_item_sizes=tuple(fact("max_work_item_sizes", (1, 1, 1))),
        local_mem_bytes=fact("local_mem_size", 16384),
        local_mem_dedicated=fact("local_mem_type", 0) == cl.device_local_mem_type.LOCAL,
        global_mem_bytes=fact("global_mem_size", 2**28),
        max_alloc_bytes=fact("max_mem_alloc_size", 2**27),
        cache_bytes=fact("global_mem_cache_size", 0),
        max_parameter_bytes=fact("max_parameter_size", 256),
        address_bits=fact("address_bits", 32),
        base_alignment_bytes=max(fact("mem_base_addr_align", 1024) // 8, 1),
        unified_memory=bool(fact("host_unified_memory", kind == "cpu")),
        fp64="cl_khr_fp64" in extensions or bool(fact("double_fp_config", 0)),
        fp16="cl_khr_fp16" in extensions,
        denormals=bool(config & cl.device_fp_config.DENORM),
        hardware_fma=bool(config & cl.device_fp_config.FMA),
        sub_groups="cl_khr_subgroups" in extensions,
        extensions=extensions,
        guesses=tuple(guesses),
        unreliable=tuple(unreliable),
        probes=_compute_capability(cl_device, extensions),
    )


def _compute_capability(cl_device, extensions):
    """NVIDIA's number for a generation of its devices, such as 90, as a probe's result."""
    if "cl_nv_device_attribute_query" not in extensions:
        return ()
    try:
        major = cl_device.compute_capability_major_nv
        return (("compute_capability", 10 * major + cl_device.compute_capability_minor_nv),)
    except (cl.Error, AttributeError):
        return ()
