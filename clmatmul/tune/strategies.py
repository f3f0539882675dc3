"""In which order configurations are tried.

A strategy is a generator over (space, rng, seen, builders): it yields batches (tuples of
configurations of the space), and when it goes on, `seen` holds the TuningRecord of each: of the
trial just made, or of one made before, at no cost. What `seen` holds at the start is known already:
seeds, and trials of earlier sessions. A batch may be cut short when the budget ends; so many of it
as there are builders are built in the time of one. A strategy ends when it has nothing more to
propose. It knows neither devices nor clocks, so it is tested by replaying recorded trials. To add
one, write the function and name it in STRATEGIES.
"""

import itertools
from importlib.util import find_spec

from clmatmul.config import TileConfig
from clmatmul.errors import ArgumentError
from clmatmul.space import program_of
from clmatmul.tune.surrogate import most_promising

_BATCH = 4  # two builders are busy with it, and not much is built in vain after an improvement
# What the first of a batch teaches comes too late for the others. With more builders it pays all
# the same: in batches of eight a sixth more trials are needed, on landscapes of an H200.
LEARNT_BATCH = 2
_FIRST_DRAWS = 3
_WORTH_CLIMBING = 1.5  # times as slow as the best
_ELITE = 3
_DRAWS = 48  # random candidates, of which the model chooses
_STRANGERS_AFTER = 24  # trials, before kernels that nothing proposed
_LAGGARDS_AFTER = 100  # trials, before more of kernels that are far behind: some compile for long
_KICKS = 6  # configurations that differ from the best in several parameters, at a time


def exhaustive(space, rng, seen, builders=LEARNT_BATCH):
    """Every configuration, in the space's order."""
    yield from _batches(space, builders)


def random(space, rng, seen, builders=LEARNT_BATCH):
    """Every configuration once, in random order, each variant in turn."""
    yield from _batches(space.draw(rng), builders)


def _batches(configs, builders):
    configs = iter(configs)
    while batch := tuple(itertools.islice(configs, max(_BATCH, builders))):
        yield batch


def local(space, rng, seen, builders=LEARNT_BATCH):
    """Round the best known, and first what a model of all that was seen promises most of.

    Candidates are the neighbours of the best few (also of other variants, if they are not far
    behind), configurations that differ from the best in several parameters, and random ones; at
    first only of variants that were tried already, as seeds.
    """
    draws, held = space.draw(rng), {}
    while best_of(seen, space.offered) is None:
        batch = tuple(itertools.islice((x for x in draws if x not in seen), _FIRST_DRAWS))
        if not batch:
            return
        yield batch
    parameters = {name: space.parameters(name) for name in space.offered}
    while True:
        if len(seen) >= _STRANGERS_AFTER:
            yield from _introductions(space, seen, held)
        near = [x for record in _elite(space, seen) for x in space.neighbours(record.config)]
        held.update(dict.fromkeys(itertools.islice(draws, _DRAWS - len(held))))
        pool = dict.fromkeys([*near, *_kicks(space, rng, seen), *held])
        fresh = [x for x in pool if x not in seen]
        if not fresh:
            return
        if len(seen) < _LAGGARDS_AFTER:
            promising = _promising(space, seen)
            fresh = [x for x in fresh if x.variant in promising] or fresh
        rng.shuffle(fresh)
        built = {program_of(x) for x in seen}
        cheap = {x for x in fresh if program_of(x) in built}
        batch = most_promising(seen, fresh, parameters, max(builders, LEARNT_BATCH), cheap)
        for config in batch:
            held.pop(config, None)
        yield tuple(batch)


def _introductions(space, seen, held):
    """One configuration of each kernel that was not tried, all in one batch.

    The header's own where it can be: it is moderate, so it compiles soon, which one at random of
    a kernel made for other devices may not: on a CPU some take ten seconds.
    """
    known = {x.variant for x in seen}
    strangers = [
        space.default(name) or next((x for x in held if x.variant == name), None)
        for name in space.offered
        if name not in known
    ]
    batch = tuple(x for x in strangers if x is not None)
    if batch:
        yield batch


def _promising(space, seen):
    """Names of the variants that were tried and are not far behind.

    The more of a variant was tried, the nearer to the best it must be: one trial within 4 times
    the time of the best, two within 2.5, six or more within 1.5.
    """
    best = best_of(seen, space.offered)
    found = set()
    for name in {x.variant for x in seen} & set(space.offered):
        mine = best_of(seen, (name,))
        tries = sum(x.variant == name for x in seen)
        if mine is not None and mine.cost <= max(1 + 3 / tries, _WORTH_CLIMBING) * best.cost:
            found.add(name)
    return found


def _elite(space, seen):
    """The best few records, and the best of each variant that is not far behind."""
    of_each = [best_of(seen, (name,)) for name in space.offered]
    best = min((x.cost for x in of_each if x is not None), default=None)
    near = [x for x in of_each if x is not None and x.cost <= _WORTH_CLIMBING * best]
    passed = [x for x in seen.values() if x.status == "ok" and x.config.variant in space.offered]
    few = sorted(passed, key=lambda x: x.cost)[:_ELITE]
    return list({x.config: x for x in (*few, *near)}.values())


def best_of(seen, variants):
    """The fastest record of these variants that passed, or None. Seeds may be of others."""
    passed = (x for x in seen.values() if x.status == "ok" and x.config.variant in variants)
    return min(passed, key=lambda x: x.cost, default=None)


def _kicks(space, rng, seen):
    """Valid configurations that differ from the best in two to four parameters."""
    best = best_of(seen, space.offered)
    if best is None:
        return ()
    found = {}
    for _ in range(50 * _KICKS):
        config = best.config
        for _ in range(rng.randint(2, 4)):
            name, allowed = rng.choice(list(space.parameters(config.variant).items()))
            at = allowed.index(config.values()[name]) + rng.choice((-2, -1, 1, 2))
            config = config.with_values(**{name: allowed[min(max(at, 0), len(allowed) - 1)]})
        if config not in seen and config not in found and config in space:
            found[config] = True
        if len(found) == _KICKS:
            break
    return tuple(found)


def tpe(space, rng, seen, builders=LEARNT_BATCH):
    """Optuna's tree-structured Parzen estimator: a model of which values are good."""
    import warnings

    import optuna

    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(
        seed=rng.randrange(2**31), multivariate=True, group=True, constant_liar=True,
        n_startup_trials=_FIRST_DRAWS,
    )  # fmt: skip
    study = optuna.create_study(sampler=sampler)
    told = set()

    def distributions(variant):
        found = {"variant": optuna.distributions.CategoricalDistribution(space.offered)}
        for name, allowed in space.parameters(variant).items():
            found[f"{variant}.{name}"] = optuna.distributions.CategoricalDistribution(allowed)
        return found

    def value(record):
        return record.cost if record.status == "ok" else None

    def teach():
        worst = max((x.cost for x in seen.values() if x.cost), default=1.0)
        for config, record in list(seen.items()):
            if config in told or config.variant not in space.offered:
                continue
            told.add(config)
            params = {f"{config.variant}.{k}": v for k, v in config.values().items()}
            study.add_trial(optuna.trial.create_trial(
                params={"variant": config.variant, **params},
                distributions=distributions(config.variant), value=value(record) or 10 * worst,
            ))  # fmt: skip

    draws = space.draw(rng)
    while True:
        teach()
        batch = {}
        for _ in range(20 * _BATCH):
            asked = study.ask()
            variant = asked.suggest_categorical("variant", space.offered)
            config = TileConfig.of(variant, **{
                name: asked.suggest_categorical(f"{variant}.{name}", allowed)
                for name, allowed in space.parameters(variant).items()
            })  # fmt: skip
            if config not in seen and config in space:
                batch[config] = True
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
            if len(batch) == _BATCH:
                break
        if not batch:
            batch = dict.fromkeys(itertools.islice((x for x in draws if x not in seen), _BATCH))
        if not batch:
            return
        yield tuple(batch)


STRATEGIES = {"local": local, "exhaustive": exhaustive, "random": random, "tpe": tpe}
DEFAULT = "local"


def find_strategy(name):
    """The strategy of this name; ArgumentError lists those that there are."""
    if name not in STRATEGIES:
        raise ArgumentError(f"strategy={name!r} is unknown; there are {', '.join(STRATEGIES)}")
    if name == "tpe" and find_spec("optuna") is None:
        raise ArgumentError("strategy='tpe' needs optuna: pip install 'clmatmul[optuna]'")
    return STRATEGIES[name]
