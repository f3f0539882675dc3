"""Two runs of bench side by side: what became faster, what slower."""

import json
import math
from dataclasses import dataclass

from clmatmul.errors import ArgumentError

TOLERANCE = 0.1
COMPARED = ("device", "host")  # what a user sees


@dataclass(frozen=True)
class Change:
    """One case in two runs. old, new: device, host → ratio of the best calls (how many times as
    fast as the baseline). reason: why it cannot be compared, None if it can.
    """

    suite: str
    case: str
    old: dict
    new: dict
    reason: str | None = None

    @property
    def changes(self):
        """device, host → new ÷ old: above 1 is faster."""
        if self.reason is not None:
            return {}
        return {x: self.new[x] / self.old[x] for x in COMPARED if x in self.new and x in self.old}

    def is_slower(self, tolerance):
        """True if a ratio fell by more than `tolerance` of itself."""
        return any(x < 1 - tolerance for x in self.changes.values())


@dataclass(frozen=True)
class BenchComparison:
    """All cases of two runs; other_device: the old run's, if it was another."""

    changes: tuple
    tolerance: float
    other_device: str | None = None

    @property
    def slower(self):
        """The changes that count as failures."""
        return tuple(x for x in self.changes if x.is_slower(self.tolerance))

    def to_dict(self):
        """The values as JSON can hold them."""
        return {
            "tolerance": self.tolerance,
            "other_device": self.other_device,
            "slower": len(self.slower),
            "cases": [
                {**vars(x), "changes": x.changes, "slower": x.is_slower(self.tolerance)}
                for x in self.changes
            ],
        }


def read_run(path):
    """The JSON object that an earlier run wrote; ArgumentError if the file holds none."""
    try:
        with open(path, encoding="utf-8") as file:
            run = json.load(file)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"--compare {path}: {error}") from None
    known = isinstance(run, dict) and run.get("command") == "bench" and run.get("schema") == 1
    if not known or not isinstance(run.get("rows"), list):
        raise ArgumentError(
            f"--compare {path} is no result of bench; write one with `bench --json FILE`"
        )
    try:
        for row in run["rows"]:
            _ratios(row), row["case"], row["suite"], row["baseline"]
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"--compare {path} has a row that cannot be read: {error}") from None
    return run


def compare_runs(old, new, tolerance=TOLERANCE):
    """The BenchComparison of two runs, each as JSON holds it.

    ArgumentError if they have no case in common, or for a tolerance that is not from 0 to 1.
    """
    if not 0 <= tolerance < 1:
        raise ArgumentError(f"tolerance={tolerance} must be at least 0 and less than 1")
    before = {_key(row): row for row in old["rows"]}
    after = {_key(row): row for row in new["rows"]}
    if not before.keys() & after.keys():
        raise ArgumentError("the earlier run and this one have no case in common")
    changes = []
    for key in dict.fromkeys((*after, *before)):
        reason = None
        if key not in before:
            reason = "not in the earlier run"
        elif key not in after:
            reason = "only in the earlier run"
        elif before[key]["baseline"] != after[key]["baseline"]:
            reason = f"was compared with {before[key]['baseline']}"
        old_ratios, new_ratios = (_ratios(x[key]) if key in x else {} for x in (before, after))
        changes.append(Change(*key, old_ratios, new_ratios, reason))
    other = old.get("device") if old.get("device_key") != new["device_key"] else None
    return BenchComparison(tuple(changes), tolerance, other)


def _key(row):
    return row["suite"], row["case"]


def _ratios(row):
    found = {x: float(row["ratios"][x]["best"]) for x in COMPARED if x in row["ratios"]}
    if not all(math.isfinite(x) and x > 0 for x in found.values()):
        raise ValueError(f"a ratio of {row['case']} is not positive")
    return found
