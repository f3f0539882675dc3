"""SearchSpace: the valid configurations of a variant for one problem on one device, in order."""

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from clmatmul.config import TileConfig
from clmatmul.variants import load_variant, variant_names

_ENUMERABLE = 2000  # combinations that take a fraction of a second to check
_PATIENCE = 20  # times as many take seconds


def _combinations(variant):
    return math.prod(len(choices) for choices in variant.all_parameters().values())


def _all_of(variant):
    allowed = variant.all_parameters()
    for values in itertools.product(*allowed.values()):
        yield TileConfig.of(variant.name, **dict(zip(allowed, values, strict=True)))


def _random(variant, rng):
    values = {name: rng.choice(choices) for name, choices in variant.all_parameters().items()}
    return TileConfig.of(variant.name, **values)


def program_of(config):
    """What decides a configuration's text: equal for those that share their programs."""
    if config.variant not in variant_names():
        return config
    rendered = load_variant(config.variant).parameters
    return config.variant, tuple(x for x in config.parameters if x[0] in rendered)


@dataclass(frozen=True)
class Survey:
    """How much of a variant's combinations is valid, from all of them or from a sample.

    rejections: (constraint, combinations of the checked ones that it refused), most first.
    """

    variant: str
    combinations: int
    checked: int
    valid: int
    rejections: tuple


class SearchSpace:
    """The configurations that pass every constraint; those that do not are counted by reason.

    In the order of the header's values. Iterating, drawing and stepping to a neighbour check
    configurations one by one; `len` and `configs` enumerate all, which takes minutes for a
    variant with many parameters.
    """

    def __init__(self, variants, problem, profile):
        self.variants = tuple(variants)
        self.problem = problem
        self.profile = profile
        self.rejections = Counter()  # (variant, constraint text) → configurations it refused

    @cached_property
    def configs(self):
        """Every valid configuration, in order; `rejections` is complete afterwards."""
        found = []
        for variant in self.variants:
            for reason in self._unmet(variant):
                self.rejections[variant.name, reason] += 1
                break
            else:
                for config in _all_of(variant):
                    reasons = self._reasons(variant, config)
                    if not reasons:
                        found.append(config)
                    self.rejections.update((variant.name, x) for x in reasons)
        return tuple(found)

    def _reasons(self, variant, config):
        """The constraints that refuse a configuration, without the values."""
        refused = variant.reject(config, self.problem, self.profile)
        return [reason.split(":")[0] for reason in refused]

    def _valid(self, variant):
        for config in _all_of(variant):
            if not variant.reject(config, self.problem, self.profile):
                yield config

    def __len__(self):
        return len(self.configs)

    def __iter__(self):
        for variant in self.variants:
            if not self._unmet(variant):
                yield from self._valid(variant)

    def __contains__(self, config):
        variant = next((v for v in self.variants if v.name == config.variant), None)
        known = variant is not None and set(config.values()) == set(variant.all_parameters())
        return known and not variant.reject(config, self.problem, self.profile)

    @cached_property
    def offered(self):
        """Names of the variants that serve this kind of problem on this device."""
        return tuple(v.name for v in self.variants if not self._unmet(v))

    def parameters(self, variant):
        """name → values in order, of a variant."""
        return next(v for v in self.variants if v.name == variant).all_parameters()

    def survey(self, rng):
        """A Survey of each variant; of a sample where there are many combinations."""
        for variant in self.variants:
            count = _combinations(variant)
            if count <= _ENUMERABLE:
                checked = list(_all_of(variant))
            else:
                checked = [_random(variant, rng) for _ in range(_ENUMERABLE)]
            reasons = [self._reasons(variant, config) for config in checked]
            rejections = Counter(x for found in reasons for x in found)
            valid = sum(not found for found in reasons)
            yield Survey(variant.name, count, len(checked), valid, tuple(rejections.most_common()))

    @property
    def combinations(self):
        """How many configurations there are before any constraint: known at once."""
        return sum(_combinations(variant) for variant in self.variants)

    def draw(self, rng):
        """Every valid configuration once, in random order, each variant in turn.

        A large variant is not enumerated for it: values are drawn until they are valid, and a
        very large one is given up when nothing valid and new is found for long.
        """
        turns = [self._draw(v, rng) for v in self.variants if not self._unmet(v)]
        while turns:
            for turn in list(turns):
                config = next(turn, None)
                if config is None:
                    turns.remove(turn)
                else:
                    yield config

    def _draw(self, variant, rng):
        seen, misses = set(), 0
        while _combinations(variant) > _ENUMERABLE and misses < _ENUMERABLE:
            config = _random(variant, rng)
            if config in seen or variant.reject(config, self.problem, self.profile):
                misses += 1
                continue
            misses = 0
            seen.add(config)
            yield config
        if _combinations(variant) <= _ENUMERABLE * _PATIENCE:
            rest = [config for config in self._valid(variant) if config not in seen]
            rng.shuffle(rest)
            yield from rest

    def _unmet(self, variant):
        return variant.unmet(self.problem.kind, self.profile)

    def sample(self, rng, count=1):
        """`count` different configurations, or all of them in random order if there are fewer."""
        configs = list(self.configs)
        return rng.sample(configs, min(count, len(configs)))

    def neighbours(self, config):
        """The valid configurations that differ in one parameter by one step of its values."""
        variant = next(v for v in self.variants if v.name == config.variant)
        found = []
        for name, allowed in variant.all_parameters().items():
            at = allowed.index(config.values()[name])
            for step in (at - 1, at + 1):
                if 0 <= step < len(allowed):
                    other = config.with_values(**{name: allowed[step]})
                    if other in self:
                        found.append(other)
        return tuple(found)
