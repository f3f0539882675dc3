"""Long measurements in short steps, for a machine that is free now and then.

What each step found is a line of a journal; the next call goes on with the steps that are missing.
"""

import json
import os
import time
from pathlib import Path


class Journal:
    """The steps that are done: key → what it found, one JSON object a line."""

    def __init__(self, path):
        self.path = Path(path)
        self.found = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            try:
                step = json.loads(line)
                self.found[step["step"]] = step["found"]
            except (ValueError, KeyError):
                continue  # torn by the end of an earlier call: that step is made again

    def add(self, key, found):
        """Put a step down, on disk before this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"step": key, "found": found}) + "\n"
        with open(self.path, "a+b") as file:
            torn = file.seek(0, os.SEEK_END) and _last(file) != b"\n"
            file.write((b"\n" if torn else b"") + text.encode())
            file.flush()
            os.fsync(file.fileno())
        self.found[key] = found


def _last(file):
    file.seek(-1, os.SEEK_END)
    return file.read(1)


def go_on(journal, steps, seconds, summary):
    """Make missing steps for some seconds (0: none), print `summary` (of what was found → lines),
    and say what is left; returns the exit code.

    steps: a function that gives them, called if there is time for any.
    """
    left = run_steps(journal, list(steps()), seconds) if seconds else 0
    print("\n".join(summary(journal.found)))
    if left:
        print(f"{left} steps are left: call again")
    return 1 if left else 0


def run_steps(journal, steps, seconds, say=print):
    """Make the steps, (key, function) each, that are missing, for some seconds; how many are left.

    None is begun that would not be done in time if it took as long as the longest of this call. A
    function that returns None has not finished: it is called again.
    """
    begin, longest = time.monotonic(), 0.0
    for key, make in steps:
        while key not in journal.found:
            left = seconds - (time.monotonic() - begin)
            if left < longest or left <= 0:
                return sum(key not in journal.found for key, _ in steps)
            started = time.monotonic()
            found = make()
            longest = max(longest, time.monotonic() - started)
            if found is not None:
                journal.add(key, found)
                say(f"{key}: {found}")
    return 0
