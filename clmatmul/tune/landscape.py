"""A recorded landscape: every trial of a space on one device, to try strategies without it.

`Landscape.from_records` takes the journal of an exhaustive search (of a part of the space, see
`tune(within=…)`); the file is one JSON object. A `Landscape` is a space to a strategy, and
`simulate` replays it.
"""

import json
import random
from dataclasses import dataclass
from functools import cached_property

from clmatmul.config import TileConfig
from clmatmul.errors import ArgumentError
from clmatmul.space import Steps
from clmatmul.tune.strategies import find_strategy

SCHEMA = 1


@dataclass(frozen=True)
class Replayed:
    """What a trial on a landscape gives, as a TuningRecord has it."""

    config: TileConfig
    status: str
    cost: float | None


@dataclass(frozen=True, eq=False)
class Landscape(Steps):
    """device: title of the device. problem: as text. values: variant → {parameter: values}, and
    trials: config → Replayed."""

    device: str
    problem: str
    values: dict
    trials: dict

    @classmethod
    def from_records(cls, device, problem, records):
        """From the TuningRecords of one problem on one device; of two of a config, the last."""
        found = {x.config: Replayed(x.config, x.status, x.cost) for x in records}
        values = {}
        for config in found:
            names = values.setdefault(config.variant, {})
            for name, value in config.parameters:
                names.setdefault(name, set()).add(value)
        ordered = {v: {k: tuple(sorted(x)) for k, x in p.items()} for v, p in values.items()}
        return cls(device, problem, ordered, found)

    def to_json(self):
        """One JSON object: parameters by variant, and a short row a trial."""
        names = {v: list(parameters) for v, parameters in self.values.items()}
        rows = [
            [x.config.variant, [x.config.values()[n] for n in names[x.config.variant]], x.status,
             x.cost and round(x.cost)]
            for x in self.trials.values()
        ]  # fmt: skip
        head = {"schema": SCHEMA, "device": self.device, "problem": self.problem, "names": names}
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        return json.dumps(head)[:-1] + ', "trials": [\n' + lines + "\n]}\n"

    @classmethod
    def from_json(cls, text):
        """The inverse of to_json; ArgumentError if the text is no landscape."""
        try:
            document = json.loads(text)
            if document["schema"] != SCHEMA:
                raise ArgumentError(f"not a landscape of schema {SCHEMA}")
            names = document["names"]
            records = []
            for variant, values, status, ns in document["trials"]:
                pairs = zip(names[variant], values, strict=True)
                records.append(Replayed(TileConfig.of(variant, **dict(pairs)), status, ns))
            return cls.from_records(document["device"], document["problem"], records)
        except (ValueError, KeyError, TypeError) as error:
            raise ArgumentError(f"not a landscape: {error}") from None

    # ---- what a strategy sees ---------------------------------------------------------------

    @property
    def offered(self):
        return tuple(self.values)

    @property
    def combinations(self):
        return len(self.trials)

    def parameters(self, variant):
        return self.values[variant]

    def default(self, variant):
        """None: the header's own configuration is recorded by chance at most."""

    def __contains__(self, config):
        return config in self.trials

    def __iter__(self):
        return iter(self.trials)

    def __len__(self):
        return len(self.trials)

    def draw(self, rng):
        """Every configuration once, in random order, each variant in turn as in SearchSpace."""
        of_variant = {}
        for config in self.trials:
            of_variant.setdefault(config.variant, []).append(config)
        for configs in of_variant.values():
            rng.shuffle(configs)
        turns = list(of_variant.values())
        while turns:
            for turn in list(turns):
                yield turn.pop()
                if not turn:
                    turns.remove(turn)

    @cached_property
    def best_ns(self):
        """The least time of all; ArgumentError if nothing passed."""
        passed = [x.cost for x in self.trials.values() if x.status == "ok"]
        if not passed:
            raise ArgumentError("nothing passed in this landscape")
        return min(passed)


def simulate(landscape, strategy, seed=0, enough=0.95, limit=None):
    """How many trials a strategy (its name) needs on a landscape, without seeds from elsewhere.

    Returns the trials made until one had `enough` of the best speed; None if the strategy ended,
    or `limit` trials were made, before.
    """
    seen = {}
    limit = len(landscape) if limit is None else limit
    for batch in find_strategy(strategy)(landscape, random.Random(seed), seen):
        for config in batch:
            if config in seen:
                continue
            record = landscape.trials[config]
            seen[config] = record
            if record.status == "ok" and landscape.best_ns >= enough * record.cost:
                return len(seen)
            if len(seen) >= limit:
                return None
    return None
