"""tune: search the configurations of a problem on a device, and publish the best.

Seeds first (records, the untuned choices), then what the strategy proposes, until the budget is
spent. Each trial is on disk before it counts. At the end the fastest few run against the untuned
default in turn, and the fastest replaces it only if it is faster beyond the noise.
"""

import random
import time
from collections import Counter
from dataclasses import replace

from clmatmul import selection, walk
from clmatmul.choose import check_device, choose
from clmatmul.database import STATUSES, TuningDatabase, check_writable
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import ArgumentError, DeviceError
from clmatmul.explanation import plain_problem
from clmatmul.measure import Measurement, compare
from clmatmul.problem import Problem
from clmatmul.space import SearchSpace
from clmatmul.tune.budget import Budget
from clmatmul.tune.host_time import numpy_time_ns
from clmatmul.tune.progress import Progress
from clmatmul.tune.report import ProblemReport, Report
from clmatmul.tune.search import Search, table_rows
from clmatmul.tune.store import Store
from clmatmul.tune.strategies import find_strategy
from clmatmul.tune.trials import DeviceLost, Trials
from clmatmul.variants import all_variants, load_variant, variant_names

INTERRUPTED = "interrupted"
_FINALISTS = 3
_ROUNDS = 21
_FINAL_SECONDS = 5
_CLEAR_WIN = 1.1  # an interrupted search publishes only a best that is this much faster


def tune(
    problems, device=None, budget="60s", *, strategy="random", seed=0, timeout=None, db=None,
    force=False, variants=None, dry_run=False, progress=None,
):  # fmt: skip
    """Find the fastest configuration for each problem; the next product of it uses it.

    problems: a Problem (such as MatMul(a, b).problem), (m, n, k) for a float32 product, or a list
        of them.
    device: as for `matmul`. budget: of all problems together, such as '60s' or '5m,200trials'.
    strategy: 'random' or 'exhaustive'. seed: of the order of trials and of the data.
    timeout: seconds for the build, first launch, check and timing of a trial, each.
    db: folder of the records instead of CLMATMUL_DB. force: try again what was tried before.
    variants: names of the kernels to search; all by default. dry_run: only say what would be
    done. progress: a `tune.progress.Progress` that is told of each trial.

    Returns a Report. Ctrl-C ends the search, not the call: the report says `interrupted`.
    Raises NoDeviceError, UnsupportedError, ArgumentError, DatabaseError if the records cannot be
    written, and DeviceError if the device fails what it did before; what was tried is kept.
    """
    problems = _problems(problems)
    budget = Budget.parse(budget)
    search = find_strategy(strategy)
    chosen = _variants(variants)
    if timeout is not None and not timeout > 0:
        raise ArgumentError(f"timeout={timeout!r} must be a number of seconds above 0, or None")
    folder = walk.tuning_folder(db)
    if not dry_run:
        check_writable(folder / "journals")
    progress = progress or Progress()
    trials = Trials(_selector(device), timeout, progress.state)
    try:
        profile = trials.profile
        for problem in problems:
            check_device(problem, profile)
        store = Store(profile, folder, walk.best_file(profile.key, db), seed)
        tuner = _Tuner(trials, store, search, seed, force, chosen, progress)
        found = tuple(_each(problems, budget, tuner.describe if dry_run else tuner.tune))
    finally:
        trials.kill()
        walk.forget()
    interrupted = found[-1].stopped == INTERRUPTED
    return Report(profile, found, str(store.journal), str(store.best_file), interrupted, dry_run)


def _each(problems, budget, tune_one):
    """The ProblemReport of one problem after the other, each with its part of the budget."""
    begin, tried = time.monotonic(), 0
    for i, problem in enumerate(problems):
        left = Budget(
            budget.seconds and round(max(budget.seconds - (time.monotonic() - begin), 1), 1),
            budget.trials and max(budget.trials - tried, 1),
        )
        report = tune_one(problem, left.share(len(problems) - i))
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

    def __init__(self, trials, store, strategy, seed, force, variants, progress):
        self._trials = trials
        self._store = store
        self._strategy = strategy
        self._seed = seed
        self._force = force
        self._variants = variants
        self._progress = progress

    def _search(self, problem, budget):
        profile = self._trials.profile
        space = SearchSpace(self._variants, problem, profile)
        untuned = choose(problem, profile, TuningDatabase((), self._store.shipped()))
        with_records = choose(problem, profile, self._store.database())
        # The safe choice, the last, is slow: it is tried only if nothing else works.
        seeds = [x.config for x in (*untuned[:1], *with_records[:-1], *untuned[1:-1])]
        known = {} if self._force else self._store.known(problem)
        return Search(problem, space, untuned, tuple(dict.fromkeys(seeds)), known, budget,
                       time.monotonic(), {})  # fmt: skip

    def describe(self, problem, budget):
        """The ProblemReport of a search that is not made."""
        search = self._search(problem, budget)
        search.skipped = len(search.known)
        surveys = tuple(search.space.survey(random.Random(self._seed)))
        return self._report(search, surveys=surveys)

    def tune(self, problem, budget):
        """Search, compare, publish; the ProblemReport."""
        search = self._search(problem, budget)
        self._progress.begin(search)
        try:
            search.numpy_ns = numpy_time_ns(problem)
            self._trials.prepare(problem, self._seed)
            stopped = self._run(search)
            return self._conclude(search, stopped)
        except KeyboardInterrupt:
            self._trials.kill()
            return self._conclude_early(search)
        except DeviceLost:
            self._conclude_early(search)
            raise
        finally:
            self._progress.end()

    def _run(self, search):
        """Trials until the budget is spent; returns why the search ended."""
        for config in search.seeds:
            if search.default() is None or not search.budget.is_spent(search.seconds, search.tried):
                self._try(search, config)
        if search.default() is None:
            self._try(search, search.untuned[-1].config)
        proposals = self._strategy(search.space, random.Random(self._seed))
        record = None
        while not search.budget.is_spent(search.seconds, search.tried):
            try:
                config = next(proposals) if record is None else proposals.send(record)
            except StopIteration:
                return "every configuration was tried"
            record = search.records.get(config) or self._try(search, config)
        return f"the budget of {search.budget} was spent"

    def _try(self, search, config):
        """The record of a configuration: an earlier session's, or that of a trial made now."""
        record = search.known.get(config)
        if record is not None:
            search.skipped += 1
        else:
            best_ns = search.best.median_ns if search.best else None
            trial = self._trials.try_config(config, best_ns)
            record = self._store.record(search.problem, trial)
            search.tried += 1
            self._progress.recorded(record)
        search.add(record, search.seconds)
        self._progress.update(search)
        return record

    def _conclude(self, search, stopped):
        """Compare the fastest with the default, and publish the winner."""
        default = search.default()
        ranked = search.ranked()
        if not ranked:
            return self._report(search, stopped, verdict="no configuration passed")
        if default is None:
            winner = self._store.publish(ranked[0], "the untuned choices do not work here")
            return self._report(search, stopped, winner, verdict=winner.note)
        finalists = [default, *[x for x in ranked if x is not default][:_FINALISTS]]
        try:
            times = self._trials.compare([x.config for x in finalists], _ROUNDS, _FINAL_SECONDS)
        except DeviceError as error:
            if isinstance(error, DeviceLost):
                raise
            winner = self._store.publish(default, f"the default is kept: {error}")
            return self._report(search, stopped, winner, verdict=winner.note)
        measured = [_remeasured(x, t) for x, t in zip(finalists, times, strict=True)]
        search.records.update({x.config: x for x in measured})
        at = min(range(len(measured)), key=lambda i: measured[i].median_ns)
        if at == 0:
            winner = self._store.publish(measured[0], "the default is the fastest")
            return self._report(search, stopped, winner, verdict=winner.note)
        against = compare(times[at], times[0])
        if against.verdict == "faster":
            note = f"{against} as fast as the default"
            winner = self._store.publish(measured[at], note)
        else:
            note = f"{against.verdict}: {measured[at].config} is {against} as fast; default kept"
            winner = self._store.publish(measured[0], note)
        return self._report(search, stopped, winner, against, note)

    def _conclude_early(self, search):
        """After Ctrl-C: what is saved, and a best that is clearly better is published."""
        best, default = search.best, search.default()
        if best is None:
            return self._report(search, INTERRUPTED, verdict="nothing passed so far")
        ahead = default is not None and default.median_ns > _CLEAR_WIN * best.median_ns
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
            curve=search.curve,
        )


def _remeasured(record, times_ns):
    """The record with the times of the final comparison."""
    timed = Measurement((), tuple(times_ns), 0)
    return replace(record, median_ns=timed.median_ns, minimum_ns=timed.minimum_ns,
                   spread_ns=timed.spread_ns, samples=len(times_ns))  # fmt: skip
