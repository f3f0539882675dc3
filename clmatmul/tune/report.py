"""What a search found, as values, as JSON and as text."""

from dataclasses import dataclass, field

from clmatmul.choose import Choice
from clmatmul.measure import Comparison
from clmatmul.tune.peaks import Peaks

_COST_NAMES = {"time": "median_ns", "energy": "energy_uj"}


@dataclass(frozen=True)
class Row:
    """One configuration in the final table. Times in ns; speed_up is against the default.

    energy_uj: of one run, where energy was sought; speed_up is then that of the energies.
    """

    name: str
    median_ns: float
    spread_ns: float | None = None
    speed_up: float | None = None
    origin: str = ""
    chosen: bool = False
    energy_uj: float | None = None


@dataclass(frozen=True)
class ProblemReport:
    """What came of one problem.

    combinations: configurations before any constraint. surveys: how many of them are valid, one
    Survey a variant, of a search that was not made.
    untuned: the Choices without any record of the user's. statuses: how many trials ended how.
    winner: the TuningRecord that products of this problem now use, None if nothing passed.
    comparison: the best against the default, run in turn. curve: (seconds, least cost) whenever
    the best improved: in ns, or in µJ where the objective is energy. trials: every TuningRecord
    of the search. peaks: what the device can do at most, if that was measured.
    """

    problem: object
    combinations: int
    untuned: tuple
    budget: object
    surveys: tuple = ()
    tried: int = 0
    skipped: int = 0
    statuses: dict = field(default_factory=dict)
    failures: tuple = ()
    rows: tuple = ()
    winner: object = None
    comparison: Comparison | None = None
    verdict: str = ""
    stopped: str = ""
    outlook: str = ""
    curve: tuple = ()
    trials: tuple = ()
    seconds: float = 0.0
    peaks: Peaks | None = None
    objective: str = "time"

    def to_dict(self):
        """The values as JSON can hold them."""
        problem = self.problem
        return {
            "problem": str(problem),
            "kind": problem.kind.key,
            "batch": problem.batch_count,
            "m": problem.m,
            "n": problem.n,
            "k": problem.k,
            "flops": problem.flops,
            "combinations": self.combinations,
            "surveys": [vars(survey) for survey in self.surveys],
            "untuned": [_choice(choice) for choice in self.untuned],
            "budget": str(self.budget),
            "objective": self.objective,
            "tried": self.tried,
            "skipped": self.skipped,
            "statuses": self.statuses,
            "failures": [
                {"config": str(x.config), "status": x.status, "note": x.note} for x in self.failures
            ],
            "rows": [{**vars(row), "gflops": problem.flops / row.median_ns} for row in self.rows],
            "chosen": None if self.winner is None else str(self.winner.config),
            "comparison": None if self.comparison is None else vars(self.comparison),
            "verdict": self.verdict,
            "stopped": self.stopped,
            "outlook": self.outlook,
            "peaks": None if self.peaks is None else self.peaks.to_dict(),
            "best_so_far": [{"seconds": s, _COST_NAMES[self.objective]: x} for s, x in self.curve],
        }


@dataclass(frozen=True)
class Report:
    """What came of a call of `tune`; `str()` prints it."""

    profile: object
    problems: tuple
    journal: str
    best_file: str
    interrupted: bool = False
    dry_run: bool = False

    @property
    def ok(self):
        """True if every problem has a configuration that passed."""
        return all(x.winner is not None for x in self.problems)

    def to_dict(self):
        """The values as JSON can hold them."""
        return {
            "device": self.profile.title,
            "device_key": self.profile.key,
            "interrupted": self.interrupted,
            "dry_run": self.dry_run,
            "journal": self.journal,
            "best_file": self.best_file,
            "problems": [x.to_dict() for x in self.problems],
        }

    def __str__(self):
        lines = [f"device      {self.profile.title}"]
        for found in self.problems:
            lines += _dry_lines(found) if self.dry_run else _lines(found)
        if self.dry_run:
            lines.append(f"records     would go to {self.journal} and {self.best_file}")
        else:
            lines.append(f"records     {self.journal}")
        return "\n".join(lines)


def _choice(choice: Choice):
    return {"config": str(choice.config), "origin": choice.origin, "note": choice.note}


def _lines(found):
    problem = found.problem
    counts = ", ".join(f"{n} {status}" for status, n in sorted(found.statuses.items())) or "none"
    yield f"problem     {problem}"
    yield (
        f"trials      {counts} ({found.skipped} known from earlier), of {found.combinations} "
        f"combinations; ended: {found.stopped}"
    )
    for row in found.rows:
        mark = "→" if row.chosen else " "
        spread = "" if row.spread_ns is None else f" ±{duration(row.spread_ns / 2)}"
        energy_text = "" if row.energy_uj is None else f"{energy(row.energy_uj):>10s}"
        against = "" if row.speed_up is None else f"  {row.speed_up:.2f}×"
        origin = f"  [{row.origin}]" if row.origin else ""
        yield (
            f"          {mark} {duration(row.median_ns) + spread:18s} "
            f"{speed(problem.flops, row.median_ns):>16s}{energy_text}{against}  {row.name}{origin}"
        )
    yield f"result      {found.verdict}"
    if found.outlook:
        yield f"outlook     {found.outlook}"
    if found.failures:
        yield f"failures    {len(found.failures)}, such as"
        for record in found.failures[:3]:
            yield f"            {record.config}: {record.status}: {record.note}"


def _dry_lines(found):
    yield f"problem     {found.problem}"
    yield f"budget      {found.budget}"
    for i, x in enumerate(found.surveys):
        share = f"{x.valid} valid"
        if x.checked < x.combinations:
            share = f"about {x.valid / x.checked:.0%} valid"
        most = f", most rejected by {x.rejections[0][0]}" if x.rejections else ""
        yield f"{'' if i else 'space':12s}{x.variant}: {x.combinations} combinations, {share}{most}"
    yield f"            {found.skipped} known from earlier"
    for i, choice in enumerate(found.untuned):
        yield f"{'untuned' if i == 0 else '':12s}{choice}"


def duration(ns):
    """A time in the unit that keeps it short: 870 ns, 12.3 µs, 4.56 ms, 1.2 s."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= 0.9995 * size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def energy(uj):
    """An energy in the unit that keeps it short: 870 µJ, 12.3 mJ, 4.56 J."""
    for unit, size in (("J", 1e6), ("mJ", 1e3)):
        if uj >= 0.9995 * size:
            return f"{uj / size:.3g} {unit}"
    return f"{uj:.3g} µJ"


def speed(flops, ns):
    """Operations a second: 12.3 GFLOP/s."""
    return f"{flops / ns:.1f} GFLOP/s"
