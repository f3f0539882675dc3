"""SearchSpace: the valid configurations of a variant for one problem on one device, in order."""

import itertools
import math
from collections import Counter
from functools import cached_property

from clmatmul.config import TileConfig

_ENUMERABLE = 2000  # combinations that take a fraction of a second to check


def _combinations(variant):
    return math.prod(len(choices) for choices in variant.all_parameters().values())


class SearchSpace:
    """The configurations that pass every constraint; those that do not are counted by reason.

    Enumerated once, in the order of the header's values; sampling and stepping to a neighbour
    happen among valid configurations only.
    """

    def __init__(self, variants, problem, profile):
        self.variants = tuple(variants)
        self.problem = problem
        self.profile = profile
        self.rejections = Counter()  # (variant, constraint text) → configurations it refused

    @cached_property
    def configs(self):
        """Every valid configuration, in order."""
        found = []
        for variant in self.variants:
            for reason in self._unmet(variant):
                self.rejections[variant.name, reason] += 1
                break
            else:
                found += self._valid(variant)
        return tuple(found)

    def _valid(self, variant):
        allowed = variant.all_parameters()
        for values in itertools.product(*allowed.values()):
            config = TileConfig.of(variant.name, **dict(zip(allowed, values, strict=True)))
            reasons = variant.reject(config, self.problem, self.profile)
            if not reasons:
                yield config
            for reason in reasons:
                self.rejections[variant.name, reason.split(":")[0]] += 1

    def __len__(self):
        return len(self.configs)

    def __iter__(self):
        return iter(self.configs)

    def __contains__(self, config):
        return config in self._index

    @cached_property
    def _index(self):
        return {config: i for i, config in enumerate(self.configs)}

    @property
    def combinations(self):
        """How many configurations there are before any constraint: known at once."""
        return sum(_combinations(variant) for variant in self.variants)

    def draw(self, rng):
        """Every valid configuration once, in random order, each variant in turn.

        A large space is not enumerated for it: values are drawn until they are valid.
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
        seen = set()
        allowed = variant.all_parameters()
        misses = 0
        while _combinations(variant) > _ENUMERABLE and misses < _ENUMERABLE:
            values = {name: rng.choice(choices) for name, choices in allowed.items()}
            config = TileConfig.of(variant.name, **values)
            if config in seen or variant.reject(config, self.problem, self.profile):
                misses += 1
                continue
            misses = 0
            seen.add(config)
            yield config
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
