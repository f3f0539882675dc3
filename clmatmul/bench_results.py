"""What bench found, as values: times, ratios, rows, geometric means."""

import math
import statistics
from dataclasses import dataclass, field

from clmatmul.measure import Comparison, compare, spread

# The ways in which we take part, each an entry's own column.
OURS = ("launches", "device", "host")


@dataclass(frozen=True)
class Figures:
    """Times in ns of one contestant, from calls in several turns.

    best_ns: the least of all calls. median_ns, spread_ns: median and interquartile range of the
    turns' medians. calls: how many there were.
    """

    best_ns: float
    median_ns: float
    spread_ns: float
    calls: int

    @classmethod
    def of(cls, turns):
        """From the times of the calls of each turn."""
        medians = turn_medians(turns)
        return cls(
            best_ns=min(map(min, turns)),
            median_ns=statistics.median(medians),
            spread_ns=spread(medians),
            calls=sum(map(len, turns)),
        )

    def to_dict(self, flops):
        """The values as JSON can hold them, with the speed of the best call and of the median."""
        return {
            **vars(self),
            "gflops_best": flops / self.best_ns,
            "gflops": flops / self.median_ns,
        }


def turn_medians(turns):
    """The median of each turn's calls, in ns."""
    return [statistics.median(turn) for turn in turns]


@dataclass(frozen=True)
class Ratio:
    """How many times faster we are than the baseline: of the best calls, and of rounds in turn."""

    best: float
    rounds: Comparison

    @classmethod
    def of(cls, ours, baseline):
        """From the turns of both."""
        best = min(map(min, baseline)) / min(map(min, ours))
        return cls(best, compare(turn_medians(ours), turn_medians(baseline)))

    def to_dict(self):
        """The values as JSON can hold them."""
        values = vars(self.rounds) | {"verdict": self.rounds.verdict}
        values["median"] = values.pop("ratio")
        return {"best": self.best, **values}


@dataclass(frozen=True)
class Row:
    """One entry. flops: operations of the product. times: contestant → Figures, 'baseline' among
    them. ratios: launches, device, host → Ratio; host is left out where the baseline too works on
    data in the device's memory. error_ratio: largest error ÷ allowed error of all our results.
    baseline_fault: what is wrong with the baseline's result, None if nothing.
    """

    entry: object
    baseline: str
    config: str
    origin: str
    flops: int
    times: dict
    ratios: dict
    error_ratio: float
    baseline_fault: str | None = None

    def to_dict(self):
        """The values as JSON can hold them."""
        return {
            **self.entry.to_dict(),
            "baseline": self.baseline,
            "config": self.config,
            "origin": self.origin,
            "flops": self.flops,
            "times": {name: x.to_dict(self.flops) for name, x in self.times.items()},
            "ratios": {name: x.to_dict() for name, x in self.ratios.items()},
            "error_ratio": self.error_ratio,
            "baseline_fault": self.baseline_fault,
        }


@dataclass(frozen=True)
class Bench:
    """What `bench` measured. left_out: (entry, reason) of what could not be."""

    profile: object
    versions: dict
    baseline: str
    rounds: int
    rows: tuple
    left_out: tuple = ()
    interrupted: bool = False
    means: dict = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "means", means_of(self.rows))

    def to_dict(self):
        """The values as JSON can hold them."""
        return {
            "device": self.profile.title,
            "driver": self.profile.driver_version,
            "device_key": self.profile.key,
            "versions": self.versions,
            "baseline": self.baseline,
            "rounds": self.rounds,
            "interrupted": self.interrupted,
            "rows": [row.to_dict() for row in self.rows],
            "left_out": [{**entry.to_dict(), "reason": why} for entry, why in self.left_out],
            "geometric_means": self.means,
        }


def means_of(rows):
    """suite (and 'overall', of several) → baseline → launches, device, host → geometric mean of
    the ratios of the best calls.
    """
    groups = {}
    for row in rows:
        groups.setdefault(row.entry.suite, []).append(row)
    if len(groups) > 1:
        groups["overall"] = list(rows)
    return {suite: _means(group) for suite, group in groups.items()}


def _means(rows):
    found = {}
    for baseline in dict.fromkeys(row.baseline for row in rows):
        same = [row for row in rows if row.baseline == baseline]
        ratios = {x: [row.ratios[x].best for row in same if x in row.ratios] for x in OURS}
        found[baseline] = {x: geometric_mean(values) for x, values in ratios.items() if values}
    return found


def geometric_mean(values):
    """The n-th root of the product of n positive numbers."""
    return math.exp(statistics.fmean(map(math.log, values)))
