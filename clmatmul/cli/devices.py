"""`clmatmul devices`: what can compute here."""

import json

from clmatmul.cli.output import Table, print_json, print_table
from clmatmul.errors import NoDeviceError
from clmatmul.selection import list_devices, no_device_report, resolve

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def add_arguments(parser):
    """None of its own: --device marks the device that a command would then use."""


def run(arguments):
    """Print the devices, the one that would be used marked; NoDeviceError if there is none."""
    found = list_devices()
    if not found:
        raise NoDeviceError(no_device_report())
    chosen = resolve(arguments.device).profile
    if arguments.json:
        values = [json.loads(profile.to_json()) for profile in found]
        at = found.index(chosen)
        print_json("devices", {"devices": values, "default": at})
    else:
        print_table(device_table(found, chosen))
    return 0


def device_table(found, chosen):
    """The devices for people; `*` marks the chosen one."""
    rows = []
    for i, profile in enumerate(found):
        types = ["float32"] + ["float64"] * profile.fp64 + ["float16"] * profile.fp16
        rows.append(
            (
                f"{'*' if profile == chosen else ' '}{i}",
                profile.title,
                profile.kind,
                str(profile.compute_units),
                amount(profile.global_mem_bytes),
                amount(profile.local_mem_bytes),
                " ".join(types),
            )
        )
    columns = ("", "device", "kind", "units", "memory", "local", "arithmetic")
    return Table(columns, tuple(rows), right=("units", "memory", "local"))


def amount(count):
    """Bytes in the unit that keeps them short: 32 KiB, 15.6 GiB."""
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            return f"{count:.4g} {unit}"
        count /= 1024
    raise AssertionError("the last unit takes any number")
