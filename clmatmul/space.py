"""SearchSpace: the valid configurations of a variant for one problem on one device, in order."""

import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from clmatmul.config import TileConfig
from clmatmul.errors import ArgumentError
from clmatmul.variants import load_variant, variant_names

_ENUMERABLE = 2000  # combinations that take a fraction of a second to check
_PATIENCE = 20  # times as many take seconds


def parse_within(text):
    """{variant: {parameter: values}} of 'cpu_packed(micro_m=4|6, vectors=1)'; ArgumentError.

    What is not named keeps all its values.
    """
    match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", text)
    if not match:
        raise ArgumentError(f"{text!r} is no part of a space; write 'tiled(tile_m=8|16, tile_n=8)'")
    parts = {}
    for item in filter(None, (x.strip() for x in (match.group(2) or "").split(","))):
        name, equals, values = item.partition("=")
        if not equals or not values:
            raise ArgumentError(f"{text!r}: {item!r} is not of the form name=value|value")
        # one value is read as a configuration's values are
        parts[name.strip()] = tuple(
            TileConfig.parse(f"x(y={value})").values()["y"] for value in values.split("|")
        )
    return {match.group(1): parts}


class Steps:
    """What a search needs of a space beyond `offered`, `parameters(variant)` and `in`."""

    def neighbours(self, config):
        """The valid configurations that differ in one parameter by one step of its values."""
        found = []
        for name, allowed in self.parameters(config.variant).items():
            value = config.values()[name]
            if value not in allowed:  # a seed from outside a restricted space
                steps = allowed
            else:
                at = allowed.index(value)
                steps = allowed[max(at - 1, 0) : at] + allowed[at + 1 : at + 2]
            for step in steps:
                other = config.with_values(**{name: step})
                if other in self:
                    found.append(other)
        return tuple(found)


def program_of(config):
    """What decides a configuration's text: equal for those that share their programs."""
    if config.variant not in variant_names():
        return config
    rendered = load_variant(config.variant).parameters
    return config.variant, tuple(x for x in config.parameters if x[0] in rendered)


def restricted(variant, wanted):
    """The variant's parameters with the wanted values only, in the header's order.

    ArgumentError if it has no such parameter or value.
    """
    allowed = variant.all_parameters()
    for name, values in wanted.items():
        if name not in allowed:
            raise ArgumentError(
                f"{variant.name} has no parameter {name}; it has {', '.join(allowed)}"
            )
        unknown = [x for x in values if x not in allowed[name]]
        if unknown:
            raise ArgumentError(
                f"{variant.name}: {name}={unknown[0]} is not one of {allowed[name]}"
            )
    return {
        name: tuple(x for x in values if x in wanted.get(name, values))
        for name, values in allowed.items()
    }


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


class SearchSpace(Steps):
    """The configurations that pass every constraint; those that do not are counted by reason.

    In the order of the header's values. Iterating, drawing and stepping to a neighbour check
    configurations one by one; `len` and `configs` enumerate all, which takes minutes for a
    variant with many parameters. within: {variant: {parameter: values}} keeps to these variants
    and values, as `parse_within` gives them.
    """

    def __init__(self, variants, problem, profile, within=None):
        self.variants = tuple(v for v in variants if not within or v.name in within)
        self.problem = problem
        self.profile = profile
        self._parameters = {
            v.name: restricted(v, (within or {}).get(v.name, {})) for v in self.variants
        }
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
                for config in self._all_of(variant):
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
        for config in self._all_of(variant):
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
        if variant is None or set(config.values()) != set(self._parameters[config.variant]):
            return False
        allowed = self._parameters[config.variant]
        inside = all(value in allowed[name] for name, value in config.parameters)
        return inside and not variant.reject(config, self.problem, self.profile)

    @cached_property
    def offered(self):
        """Names of the variants that serve this kind of problem on this device."""
        return tuple(v.name for v in self.variants if not self._unmet(v))

    def parameters(self, variant):
        """name → values in order, of a variant."""
        return self._parameters[variant]

    def default(self, variant):
        """The configuration that a variant's header names, or None where it is not valid."""
        config = next(v.default for v in self.variants if v.name == variant)
        return config if config in self else None

    def _combinations(self, variant):
        return math.prod(len(choices) for choices in self._parameters[variant.name].values())

    def _all_of(self, variant):
        allowed = self._parameters[variant.name]
        for values in itertools.product(*allowed.values()):
            yield TileConfig.of(variant.name, **dict(zip(allowed, values, strict=True)))

    def _random(self, variant, rng):
        allowed = self._parameters[variant.name]
        return TileConfig.of(variant.name, **{x: rng.choice(y) for x, y in allowed.items()})

    def survey(self, rng):
        """A Survey of each variant; of a sample where there are many combinations."""
        for variant in self.variants:
            count = self._combinations(variant)
            if count <= _ENUMERABLE:
                checked = list(self._all_of(variant))
            else:
                checked = [self._random(variant, rng) for _ in range(_ENUMERABLE)]
            reasons = [self._reasons(variant, config) for config in checked]
            rejections = Counter(x for found in reasons for x in found)
            valid = sum(not found for found in reasons)
            yield Survey(variant.name, count, len(checked), valid, tuple(rejections.most_common()))

    @property
    def combinations(self):
        """How many configurations there are before any constraint: known at once."""
        return sum(self._combinations(variant) for variant in self.variants)

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
        while self._combinations(variant) > _ENUMERABLE and misses < _ENUMERABLE:
            config = self._random(variant, rng)
            if config in seen or variant.reject(config, self.problem, self.profile):
                misses += 1
                continue
            misses = 0
            seen.add(config)
            yield config
        if self._combinations(variant) <= _ENUMERABLE * _PATIENCE:
            rest = [config for config in self._valid(variant) if config not in seen]
            rng.shuffle(rest)
            yield from rest

    def _unmet(self, variant):
        return variant.unmet(self.problem.kind, self.profile)

    def sample(self, rng, count=1):
        """`count` different configurations, or all of them in random order if there are fewer."""
        configs = list(self.configs)
        return rng.sample(configs, min(count, len(configs)))
