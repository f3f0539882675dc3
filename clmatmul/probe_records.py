"""What probes found on a device, on disk: one small file a device and driver version.

A record is a JSON object of names and whole numbers, filed under the device's key, which holds the
driver's version: another driver is asked afresh.
"""

import json
import logging
import os
from pathlib import Path

import platformdirs

from clmatmul.database import device_slug, replace_file

_log = logging.getLogger("clmatmul")


def probe_file(device_key):
    """The file of a device's probes: under CLMATMUL_DB, or the user's data folder."""
    chosen = os.environ.get("CLMATMUL_DB")
    folder = Path(chosen or platformdirs.user_data_dir("clmatmul", appauthor=False)) / "probes"
    return folder / f"{device_slug(device_key)}.json"


def read_probes(device_key):
    """name → number of every probe that was run; empty if there is no readable record."""
    try:
        record = json.loads(probe_file(device_key).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.info("the record of probes is unreadable and is made anew: %s", error)
        return {}
    values = record.get("probes") if isinstance(record, dict) else None
    if not isinstance(values, dict) or record.get("device") != device_key:
        return {}
    return {name: x for name, x in values.items() if type(x) is int}


def write_probes(device_key, values):
    """Keep what probes found; a folder that cannot be written is reported and borne."""
    file = probe_file(device_key)
    text = json.dumps({"device": device_key, "probes": values}, indent=1, sort_keys=True)
    try:
        replace_file(file, (text + "\n").encode())
    except OSError as error:
        _log.info("what probes found could not be kept: %s", error)
