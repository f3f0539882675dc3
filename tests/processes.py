"""Processes that tests start, with the clmatmul under test."""

import os
from pathlib import Path

import clmatmul


def environment(**changes):
    """The environment of a process that imports the same clmatmul as this one."""
    root = str(Path(clmatmul.__file__).parent.parent)
    paths = filter(None, [root, os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **changes}
