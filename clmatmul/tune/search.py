"""What is known of one problem while it is tuned, and the table that comes of it."""

import time
from dataclasses import dataclass

from clmatmul.database import TuningRecord
from clmatmul.problem import Problem
from clmatmul.space import SearchSpace
from clmatmul.tune.budget import Budget
from clmatmul.tune.report import Row

_SHOWN = 5


@dataclass
class Search:
    """One problem's search while it lasts."""

    problem: Problem
    space: SearchSpace
    untuned: tuple  # Choices
    seeds: tuple  # configs
    known: dict
    budget: Budget
    begin: float
    records: dict  # config → TuningRecord, of this search
    skipped: int = 0
    tried: int = 0
    best: TuningRecord | None = None
    curve: tuple = ()
    numpy_ns: float | None = None

    @property
    def seconds(self):
        return time.monotonic() - self.begin

    def add(self, record, seconds):
        self.records[record.config] = record
        if record.status == "ok" and (self.best is None or record.median_ns < self.best.median_ns):
            self.best = record
            self.curve += ((seconds, record.median_ns),)

    def ranked(self):
        """The records that passed, fastest first."""
        passed = [x for x in self.records.values() if x.status == "ok"]
        return sorted(passed, key=lambda x: x.median_ns)

    def default(self):
        """The record of the first untuned choice that works, or None."""
        for choice in self.untuned:
            record = self.records.get(choice.config)
            if record is not None and record.status == "ok":
                return record
        return None


def table_rows(search, winner):
    """The fastest few, the default and NumPy, fastest first."""
    default = search.default()
    shown = search.ranked()[:_SHOWN]
    if default is not None and default not in shown:
        shown.append(default)
    origins = {choice.config: f"untuned: {choice.origin}" for choice in search.untuned}
    rows = [
        Row(
            name=str(x.config),
            median_ns=x.median_ns,
            spread_ns=x.spread_ns if x.samples > 1 else None,
            speed_up=default.median_ns / x.median_ns if default else None,
            origin="default" if x is default else origins.get(x.config, ""),
            chosen=winner is not None and x.config == winner.config,
        )
        for x in shown
    ]
    if search.numpy_ns:
        ratio = default.median_ns / search.numpy_ns if default else None
        rows.append(Row("NumPy", search.numpy_ns, None, ratio, "host"))
    return sorted(rows, key=lambda row: row.median_ns)
