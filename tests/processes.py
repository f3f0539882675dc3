"""Processes that tests start, with the clmatmul under test."""

import ctypes
import os
from pathlib import Path

import clmatmul


def environment(**changes):
    """The environment of a process that imports the same clmatmul as this one."""
    root = str(Path(clmatmul.__file__).parent.parent)
    paths = filter(None, [root, os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **changes}


def bound_by_modes():
    """A preexec_fn: root, too, may then not write where a folder's mode forbids it (Linux)."""
    if os.geteuid() == 0:
        drop_from_bounding_set, dac_override = 24, 1
        assert ctypes.CDLL(None).prctl(drop_from_bounding_set, dac_override, 0, 0, 0) == 0
