"""In which order configurations are tried.

A strategy is a generator over (space, rng, seen): it yields batches (tuples of configurations of
the space), and when it goes on, `seen` holds the TuningRecord of each: of the trial just made, or
of one made before, at no cost. What `seen` holds at the start is known already: seeds, and trials
of earlier sessions. A batch may be cut short when the budget ends. A strategy ends when it has
nothing more to propose. It knows neither devices nor clocks, so it is tested by replaying
recorded trials. To add one, write the function and name it in STRATEGIES.
"""

import itertools
from importlib.util import find_spec

from clmatmul.config import TileConfig
from clmatmul.errors import ArgumentError
from clmatmul.space import program_of

_BATCH = 4  # two builders are busy with it, and not much is built in vain after an improvement
_BETTER = 0.99  # of the time: less may be noise
_FIRST_DRAWS = 8
_WORTH_CLIMBING = 1.5  # times as slow as the best
_WORTH_A_DETOUR = 1.15
_KICKS = 6  # configurations that differ from the best in several parameters, at a time


def exhaustive(space, rng, seen):
    """Every configuration, in the space's order."""
    yield from _batches(space)


def random(space, rng, seen):
    """Every configuration once, in random order, each variant in turn."""
    yield from _batches(space.draw(rng))


def _batches(configs):
    configs = iter(configs)
    while batch := tuple(itertools.islice(configs, _BATCH)):
        yield batch


def local(space, rng, seen):
    """Climbs from the best known, one parameter at a time; where that ends, kicks and restarts.

    A step to a configuration that shares the program is tried before one that has to be built.
    After a climb: the best of another variant, if it is not far behind; configurations that
    differ from the best in several parameters; random ones.
    """
    draws = space.draw(rng)
    if best_of(seen, space.offered) is None:
        yield tuple(itertools.islice(draws, _FIRST_DRAWS))
    climbed = set()
    for turn in itertools.count():
        start = _next_start(space, seen, climbed)
        if start is not None:
            yield from _climb(space, rng, seen, start, climbed)
            continue
        fresh = tuple(itertools.islice(draws, _BATCH)) if turn % 3 == 2 else ()
        fresh = fresh or _kicks(space, rng, seen)
        fresh = fresh or tuple(itertools.islice(draws, _BATCH))
        if not fresh:
            return
        yield fresh
        start = _promising(space, fresh, seen, climbed)
        if start is not None:
            yield from _climb(space, rng, seen, start, climbed)


def best_of(seen, variants):
    """The fastest record of these variants that passed, or None. Seeds may be of others."""
    passed = (x for x in seen.values() if x.status == "ok" and x.config.variant in variants)
    return min(passed, key=lambda x: x.cost_ns, default=None)


def _next_start(space, seen, climbed):
    """The best record, or the best of a variant that is not far behind, not climbed from yet."""
    of_each = [best_of(seen, (name,)) for name in space.offered]
    ranked = sorted((x for x in of_each if x is not None), key=lambda x: x.cost_ns)
    for record in ranked:
        if record.cost_ns > _WORTH_CLIMBING * ranked[0].cost_ns:
            return None
        if record.config not in climbed:
            return record
    return None


def _promising(space, configs, seen, climbed):
    """The best record of these, if it is worth a climb though it is not the best of all."""
    records = [seen[x] for x in configs if x in seen and x not in climbed]
    passed = [x for x in records if x.status == "ok"]
    best = min(passed, key=lambda x: x.cost_ns, default=None)
    if best is None or best.cost_ns > _WORTH_A_DETOUR * best_of(seen, space.offered).cost_ns:
        return None
    return best


def _climb(space, rng, seen, record, climbed):
    """Steps to better neighbours until there is none."""
    changed = {}
    while record is not None and record.config not in climbed:
        climbed.add(record.config)
        fresh = [x for x in space.neighbours(record.config) if x not in seen]
        rng.shuffle(fresh)
        built = {program_of(x) for x in seen}
        # what just proved right goes on; then what needs no new program
        fresh.sort(
            key=lambda x: (not _goes_on(x, record.config, changed), program_of(x) not in built)
        )
        better = None
        for batch in _batches(fresh):
            yield batch
            found = [seen[x] for x in batch if x in seen and seen[x].status == "ok"]
            better = min(found, key=lambda x: x.cost_ns, default=None)
            if better is not None and better.cost_ns < _BETTER * record.cost_ns:
                break
            better = None
        if better is not None:
            changed = _steps(record.config, better.config)
        record = better


def _steps(one, other):
    """name → up (True) or down, of the parameters that differ."""
    old, new = one.values(), other.values()
    return {name: new[name] > old[name] for name in new if new[name] != old.get(name)}


def _goes_on(config, start, changed):
    return bool(changed) and _steps(start, config) == changed


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


def tpe(space, rng, seen):
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
        return record.cost_ns if record.status == "ok" else None

    def teach():
        worst = max((x.cost_ns for x in seen.values() if x.cost_ns), default=1.0)
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
