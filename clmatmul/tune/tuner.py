"""tune: search the configurations of a problem on a device, and publish the best.

Seeds first (records, the untuned choices), then what the strategy proposes, until the budget is
spent. Each trial is on disk before it counts. At the end the fastest few run against the untuned
default in turn, and the fastest replaces it only if it is faster beyond the noise.
"""

import math
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, replace

from clmatmul import selection, walk
from clmatmul.choose import check_device, choose
from clmatmul.database import STATUSES, TuningDatabase, check_writable
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import ArgumentError, DeviceError
from clmatmul.explanation import plain_problem
from clmatmul.measure import Measurement, compare
from clmatmul.problem import Problem
from clmatmul.space import SearchSpace, restricted
from clmatmul.trial import Trial
from clmatmul.tune.budget import Budget
from clmatmul.tune.host_time import numpy_time_ns
from clmatmul.tune.objective import find_objective
from clmatmul.tune.progress import Progress
from clmatmul.tune.report import ProblemReport, Report
from clmatmul.tune.search import Search, table_rows
from clmatmul.tune.store import Store
from clmatmul.tune.strategies import DEFAULT, STRATEGIES, find_strategy
from clmatmul.tune.trials import DeviceLost, Trials
from clmatmul.variants import all_variants, load_variant, variant_names

INTERRUPTED = "interrupted"
_FINALISTS = {"time": 5, "energy": 3}  # meters are slow
_WORDS = {
    "time": ("fastest", "fast"),
    "energy": ("thriftiest", "thrifty"),
}
_ROUNDS = 903
_FINAL_SECONDS = 4
_AGAIN_SECONDS = 1.5
_PROOF_SECONDS = 3
_NUMPY_SECONDS = 0.2
# An interrupted search publishes only a best that is this much faster; a final asks once more
# about one that may be less.
_CLEAR_WIN = 1.1
_LEAST_GAIN = 1.01  # what is less in one process is a loss in another as often


def tune(
    problems, device=None, budget="60s", *, strategy=DEFAULT, seed=0, timeout=None, db=None,
    force=False, variants=None, within=None, dry_run=False, progress=None, jobs=None, weights=None,
    objective="time", peaks=False,
):  # fmt: skip
    """Find the fastest configuration for each problem; the next product of it uses it.

    problems: a Problem (such as MatMul(a, b).problem), (m, n, k) for a float32 product, or a list
        of them.
    device: as for `matmul`. budget: of all problems together, such as '60s' or '5m,200trials'.
    strategy: 'local', 'random', 'tpe' or 'exhaustive'. seed: of the order of trials, the data.
    timeout: seconds for the build, first launch, check and timing of a trial, each.
    db: folder of the records instead of CLMATMUL_DB. force: try again what was tried before.
    variants: names of the kernels to search; all by default. within: {variant: {parameter:
    values}}, to search these variants and values only. weights: of each problem, by which the
    budget is shared; equal by default. dry_run: only say what would be
    done. progress: a `tune.progress.Progress` that is told of each trial. jobs: how many processes
    build side by side. objective: 'time', or 'energy' where the device has a meter. peaks: measure
    also, in a second, what the device can do at most.

    Returns a Report. Ctrl-C ends the search, not the call: the report says `interrupted`.
    Raises NoDeviceError, UnsupportedError (also where energy cannot be measured), ArgumentError,
    DatabaseError if the records cannot be written, and DeviceError if the device fails what it did
    before; what was tried is kept.
    """
    problems = _problems(problems)
    budget = Budget.parse(budget)
    search = find_strategy(strategy)
    find_objective(objective)
    options = _Options(search, seed, force, _variants(variants), _checked_within(within),
                       objective, peaks)  # fmt: skip
    shares = _shares(weights, len(problems))
    if timeout is not None and not timeout > 0:
        raise ArgumentError(f"timeout={timeout!r} must be a number of seconds above 0, or None")
    folder = walk.tuning_folder(db)
    if not dry_run:
        check_writable(folder / "journals")
    progress = progress or Progress()
    trials = Trials(_selector(device), timeout, progress.state, jobs, objective)
    try:
        profile = trials.profile
        for problem in problems:
            check_device(problem, profile)
        store = Store(profile, folder, walk.best_file(profile.key, db), seed, objective)
        tuner = _Tuner(trials, store, options, progress)
        tune_one = tuner.describe if dry_run else tuner.tune
        found = tuple(_each(problems, shares, budget, tune_one))
    finally:
        trials.kill()
        walk.forget()
    interrupted = found[-1].stopped == INTERRUPTED
    return Report(profile, found, str(store.journal), str(store.best_file), interrupted, dry_run)


@dataclass(frozen=True)
class _Options:
    """What decides a search besides problem and budget."""

    strategy: object
    seed: int
    force: bool
    variants: tuple
    within: dict | None
    objective: str
    peaks: bool


def _shares(weights, count):
    """Of what is left of the budget, the part that each problem in turn may spend."""
    weights = [1.0] * count if weights is None else [float(x) for x in weights]
    if len(weights) != count or not all(0 < x < math.inf for x in weights):
        raise ArgumentError(f"weights={weights} must be a number above 0 for each of {count}")
    return [x / sum(weights[i:]) for i, x in enumerate(weights)]


def _each(problems, shares, budget, tune_one):
    """The ProblemReport of one problem after the other, each with its part of the budget."""
    begin, tried = time.monotonic(), 0
    for problem, share in zip(problems, shares, strict=True):
        left = Budget(
            budget.seconds and round(max(budget.seconds - (time.monotonic() - begin), 1), 1),
            budget.trials and max(budget.trials - tried, 1),
        )
        report = tune_one(problem, left.share(share))
        tried += report.tried
        yield report
        if report.stopped == INTERRUPTED:
            break


def _problems(given):
    if isinstance(given, Problem) or (
        isinstance(given, tuple) and given and all(isinstance(x, int) for x in given)
    ):
        given = [given]
    problems = [x if isinstance(x, Problem) else _plain(x) for x in given]
    for problem in problems:
        if problem.is_empty or problem.k == 0:
            raise ArgumentError(
                f"{problem} has nothing to be computed, so there is nothing to tune"
            )
    if not problems:
        raise ArgumentError("problems is empty; name at least one, such as (1000, 1000, 1000)")
    return problems


def _plain(size):
    if len(size) != 3 or not all(isinstance(x, int) and x > 0 for x in size):
        raise ArgumentError(f"{size!r} is no problem; write (m, n, k), each at least 1")
    return plain_problem(*size)


def _variants(names):
    if names is None:
        return all_variants()
    unknown = sorted(set(names) - set(variant_names()))
    if unknown:
        raise ArgumentError(
            f"there is no kernel variant {unknown[0]!r}; there are {', '.join(variant_names())}"
        )
    return tuple(load_variant(name) for name in names)


def _checked_within(within):
    """The same, if there are such variants, parameters and values; ArgumentError."""
    if within:
        for variant in _variants(list(within)):
            restricted(variant, within[variant.name])
    return within


def _selector(device):
    """The device as another process can find it."""
    if device is None:
        device = selection.chosen()
    if device is None or isinstance(device, (str, DeviceProfile)):
        return device
    if isinstance(device, int):
        return str(device)
    return selection.select(device).profile  # opened by the caller already


class _Tuner:
    """Tunes one problem after the other on one device."""

    def __init__(self, trials, store, options, progress):
        self._trials = trials
        self._store = store
        self._options = options
        self._progress = progress
        # A search that learns nothing goes through everything, however long nothing is gained.
        self._peaks = {}  # compute type → Peaks, or None if they could not be measured
        self._may_settle = options.strategy not in (STRATEGIES["exhaustive"], STRATEGIES["random"])

    def _search(self, problem, budget):
        profile = self._trials.profile
        space = SearchSpace(self._options.variants, problem, profile, self._options.within)
        untuned = choose(problem, profile, TuningDatabase((), self._store.shipped()))
        with_records = choose(problem, profile, self._store.database())
        # The safe choice, the last, is slow: it is tried only if nothing else works.
        seeds = [x.config for x in (*untuned[:1], *with_records[:-1], *untuned[1:-1])]
        search = Search(problem, space, untuned, tuple(dict.fromkeys(seeds)), budget,
                        time.monotonic(), {}, self._options.objective)  # fmt: skip
        for config, record in ({} if self._options.force else self._store.known(problem)).items():
            if config in space or config in seeds or config == untuned[-1].config:
                search.add(record, 0.0)
        search.skipped = len(search.records)
        return search

    def describe(self, problem, budget):
        """The ProblemReport of a search that is not made."""
        search = self._search(problem, budget)
        surveys = tuple(search.space.survey(random.Random(self._options.seed)))
        return self._report(search, surveys=surveys)

    def tune(self, problem, budget):
        """Search, compare, publish; the ProblemReport."""
        search = self._search(problem, budget)
        self._progress.begin(search)
        try:
            search.numpy_ns = numpy_time_ns(problem, _numpy_seconds(budget))
            self._trials.prepare(problem, self._options.seed)
            stopped = self._run(search)
            self._measure_peaks(problem)
            return self._conclude(search, stopped)
        except KeyboardInterrupt:
            self._trials.kill()
            return self._conclude_early(search)
        except DeviceLost:
            self._conclude_early(search)
            raise
        finally:
            self._progress.end()

    def _measure_peaks(self, problem):
        if self._options.peaks and problem.compute not in self._peaks:
            self._peaks[problem.compute] = self._trials.peaks(problem.compute)

    def _run(self, search):
        """Trials until the budget is spent; returns why the search ended."""
        self._try_all(search, search.seeds[:1])
        self._try_all(search, search.seeds[1:])
        for choice in search.untuned:  # where no seed works, and where the budget was too small
            if search.default() is None:
                self._try_all(search, [choice.config], regardless=True)
        rng = random.Random(self._options.seed)
        strategy = self._options.strategy
        for batch in strategy(search.space, rng, search.records, self._trials.jobs):
            self._try_all(search, batch)
            if self._is_spent(search):
                return f"the budget of {search.budget} was spent"
            if self._may_settle and search.is_settled:
                return "no gain is expected from more trials"
        return "every configuration was tried"

    def _is_spent(self, search):
        return search.budget.searching().is_spent(search.seconds, search.tried)

    def _try_all(self, search, configs, regardless=False):
        """Try what has not been tried, until the budget is spent."""
        fresh = [x for x in dict.fromkeys(configs) if x not in search.records]
        if search.budget.trials is not None and not regardless:
            fresh = fresh[: max(search.budget.trials - search.tried, 0)]
        if not fresh or self._is_spent(search) and not regardless:
            return
        for trial in self._trials.try_all(fresh, lambda: search.best and search.best.least_ns):
            record = self._store.record(search.problem, trial)
            search.tried += 1
            self._progress.recorded(record)
            search.add(record, search.seconds)
            self._progress.update(search)
            if self._is_spent(search) and not regardless:
                return

    def _conclude(self, search, stopped):
        """Compare the fastest with the default, and publish the winner."""
        default = search.default()
        ranked = search.ranked()
        if not ranked:
            return self._report(search, stopped, verdict="no configuration passed")
        if default is None:
            winner = self._store.publish(ranked[0], "the untuned choices do not work here")
            return self._report(search, stopped, winner, verdict=winner.note)
        finalists = [
            default,
            *[x for x in ranked if x is not default][: _FINALISTS[search.objective]],
        ]
        try:
            seconds = _part_of(search.budget, _FINAL_SECONDS)
            costs = self._trials.compare([x.config for x in finalists], _ROUNDS, seconds)
        except DeviceError as error:
            if isinstance(error, DeviceLost):
                raise
            winner = self._store.publish(default, f"the default is kept: {error}")
            return self._report(search, stopped, winner, verdict=winner.note)
        measured = [_remeasured(x, found) for x, found in zip(finalists, costs, strict=True)]
        search.records.update({x.config: x for x in measured})
        return self._choose(search, stopped, measured, costs)

    def _choose(self, search, stopped, measured, costs):
        """The best that passes its proof and is better than the default beyond the noise."""
        best, better = _WORDS[search.objective]
        # By rounds, as the verdict is: medians may rank otherwise where times fall into two groups.
        comparisons = [compare(x, costs[0]) for x in costs]
        doubt, note = None, f"the default is the {best}"
        for at in sorted(range(len(measured)), key=lambda i: -comparisons[i].ratio):
            if at == 0:
                break
            against = comparisons[at]
            if against.verdict != "faster" or against.ratio < _LEAST_GAIN:
                if doubt is None:
                    doubt = against
                    note = (f"too close to call: {measured[at].config} is {against} as {better}; "
                            "default kept")  # fmt: skip
            elif against.low < _CLEAR_WIN and not self._holds(search, measured[0], measured[at]):
                if doubt is None:
                    doubt = against
                    note = (f"too close to call: {measured[at].config} is {against} as {better}, "
                            "but not with other buffers; default kept")  # fmt: skip
            elif self._is_proven(search, measured[at]):
                note = f"{against} as {better} as the default"
                winner = self._store.publish(measured[at], note)
                return self._report(search, stopped, winner, against, note)
        winner = self._store.publish(measured[0], note)
        return self._report(search, stopped, winner, doubt, note)

    def _holds(self, search, default, record):
        """Whether a winner is better in new buffers, too: where they lie can make a few percent."""
        seconds = _part_of(search.budget, _AGAIN_SECONDS)
        try:
            self._trials.prepare(search.problem, self._options.seed)
            costs = self._trials.compare([default.config, record.config], _ROUNDS, seconds)
        except DeviceLost:
            raise
        except DeviceError:
            return False
        return compare(costs[1], costs[0]).ratio > 1

    def _is_proven(self, search, record):
        """Whether a winner is right at sizes of all kinds and in every run; recorded if not."""
        fault = self._trials.prove(record.config, _part_of(search.budget, _PROOF_SECONDS))
        if fault is None:
            return True
        failed = Trial(record.config, "wrong_result", note=f"as a winner: {fault}")
        search.records[record.config] = self._store.record(search.problem, failed)
        return False

    def _conclude_early(self, search):
        """After Ctrl-C: what is saved, and a best that is clearly better is published."""
        best, default = search.best, search.default()
        if best is None:
            return self._report(search, INTERRUPTED, verdict="nothing passed so far")
        ahead = default is not None and default.final_cost > _CLEAR_WIN * best.final_cost
        note = f"best so far: {best.config}; tune again to compare it with the default"
        winner = None
        if ahead:
            note = f"best so far: {best.config}, not yet compared with the default in turn"
            winner = self._store.publish(best, note)
        return self._report(search, INTERRUPTED, winner, verdict=note)

    def _report(self, search, stopped="", winner=None, comparison=None, verdict="", surveys=()):
        records = search.records.values()
        statuses = Counter(x.status for x in records)
        return ProblemReport(
            problem=search.problem,
            combinations=search.space.combinations,
            untuned=search.untuned,
            budget=search.budget,
            surveys=surveys,
            tried=search.tried,
            skipped=search.skipped,
            statuses={x: statuses[x] for x in STATUSES if statuses[x]},
            failures=tuple(x for x in records if x.status != "ok"),
            rows=tuple(table_rows(search, winner)),
            winner=winner,
            comparison=comparison,
            verdict=verdict,
            stopped=stopped,
            outlook="" if surveys else search.outlook(),
            trials=tuple(records),
            seconds=search.seconds,
            curve=search.curve,
            objective=search.objective,
            peaks=self._peaks.get(search.problem.compute),
        )


def _numpy_seconds(budget):
    """The seconds for which NumPy is timed, or twice: a fiftieth of a short budget."""
    return _NUMPY_SECONDS if budget.seconds is None else min(_NUMPY_SECONDS, budget.seconds / 50)


def _part_of(budget, seconds):
    """The seconds that a final may take: a tenth of a short budget."""
    return seconds if budget.seconds is None else max(min(seconds, budget.seconds / 10), 0.3)


def _remeasured(record, costs):
    """The record with the times, or the energies, of the final comparison."""
    if record.objective == "energy":
        return replace(record, energy_uj=statistics.median(costs))
    times_ns = costs
    timed = Measurement((), tuple(times_ns), 0)
    return replace(record, median_ns=timed.median_ns, minimum_ns=timed.minimum_ns,
                   spread_ns=timed.spread_ns, samples=len(times_ns))  # fmt: skip
