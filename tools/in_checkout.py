"""Asks another checkout of this project something, by a script that runs with its modules."""

import json
import os
import subprocess
import sys


def ask(checkout, script, argument):
    """What a script, given one argument as text, prints as JSON, in the folder of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
    run = subprocess.run([sys.executable, "-c", script, argument], capture_output=True, text=True,
                         env=environment, check=True, cwd=checkout)  # fmt: skip
    return json.loads(run.stdout)
