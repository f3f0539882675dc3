"""What is known of one problem while it is tuned, and the table that comes of it."""

import time
from dataclasses import dataclass

from clmatmul.database import TuningRecord
from clmatmul.problem import Problem
from clmatmul.space import SearchSpace
from clmatmul.tune.budget import Budget
from clmatmul.tune.report import Row

_SHOWN = 5
_SETTLED_AT = 1.01  # of the best time
_LEAST_PATIENCE = 100
_TELLING_TRIALS = 10
_NOISE = 0.005


@dataclass
class Search:
    """One problem's search while it lasts."""

    problem: Problem
    space: SearchSpace
    untuned: tuple  # Choices
    seeds: tuple  # configs
    budget: Budget
    begin: float
    records: dict  # config → TuningRecord, of this search and of earlier ones
    objective: str = "time"
    skipped: int = 0
    tried: int = 0
    best: TuningRecord | None = None
    curve: tuple = ()
    numpy_ns: float | None = None
    steps: tuple = ()  # (trials made, best cost) whenever the best improved

    @property
    def seconds(self):
        return time.monotonic() - self.begin

    def add(self, record, seconds):
        self.records[record.config] = record
        if record.status == "ok" and (self.best is None or record.cost < self.best.cost):
            self.best = record
            self.curve += ((seconds, record.cost),)
            self.steps += ((self.tried, record.cost),)

    def ranked(self):
        """The records that passed, best first."""
        passed = [x for x in self.records.values() if x.status == "ok"]
        return sorted(passed, key=lambda x: x.cost)

    @property
    def is_settled(self):
        """True if no gain is expected: many trials, none of which brought a hundredth.

        As many as it took to get here, and a hundred at least.
        """
        if not self.steps:
            return False
        here = self.steps[-1][1]
        gained = next(tried for tried, cost in self.steps if cost <= _SETTLED_AT * here)
        return self.tried - gained >= max(_LEAST_PATIENCE, gained)

    def outlook(self):
        """One sentence on what more time may bring, from what the last half of the trials did."""
        if self.best is None or self.tried < _TELLING_TRIALS:
            return "too few trials to tell what more would bring"
        halfway = [cost for tried, cost in self.steps if tried <= self.tried / 2]
        if not halfway:
            return "the best was found in the second half of the trials: more may well bring more"
        gain = halfway[-1] / self.best.cost - 1
        if gain < _NOISE:
            return "the second half of the trials brought nothing: more would hardly"
        return f"the second half of the trials brought {gain:.0%}: twice as many may bring as much"

    def default(self):
        """The record of the first untuned choice that works, or None."""
        for choice in self.untuned:
            record = self.records.get(choice.config)
            if record is not None and record.status == "ok":
                return record
        return None


def table_rows(search, winner):
    """The best few, the default and NumPy, best first; of NumPy only the time is known."""
    default = search.default()
    shown = search.ranked()[:_SHOWN]
    if default is not None and default not in shown:
        shown.append(default)
    origins = {choice.config: f"untuned: {choice.origin}" for choice in search.untuned}
    energy = search.objective == "energy"
    rows = [
        Row(
            name=str(x.config),
            median_ns=x.median_ns,
            spread_ns=x.spread_ns if x.samples > 1 else None,
            speed_up=default.final_cost / x.final_cost if default else None,
            origin="default" if x is default else origins.get(x.config, ""),
            chosen=winner is not None and x.config == winner.config,
            energy_uj=x.energy_uj if energy else None,
        )
        for x in sorted(shown, key=lambda x: x.final_cost)
    ]
    if search.numpy_ns:
        ratio = default.median_ns / search.numpy_ns if default and not energy else None
        rows.append(Row("NumPy", search.numpy_ns, None, ratio, "host"))
    return rows if energy else sorted(rows, key=lambda row: row.median_ns)
