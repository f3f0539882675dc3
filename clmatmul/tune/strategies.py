"""In which order configurations are tried.

A strategy is a generator over (space, rng): it yields a configuration of the space and is sent
the trial's TuningRecord (status and times; a configuration of an earlier session comes with the
record of that session). It ends when it has nothing more to propose. It knows neither devices
nor clocks, so it is tested by replaying recorded trials. To add one, write the function and name
it in STRATEGIES.
"""

from clmatmul.errors import ArgumentError


def exhaustive(space, rng):
    """Every configuration, in the space's order."""
    for config in space:  # noqa: UP028, a space's iterator cannot be sent records
        yield config


def random(space, rng):
    """Every configuration once, in random order, each variant in turn."""
    yield from space.draw(rng)


STRATEGIES = {"exhaustive": exhaustive, "random": random}


def find_strategy(name):
    """The strategy of this name; ArgumentError lists those that there are."""
    if name not in STRATEGIES:
        raise ArgumentError(f"strategy={name!r} is unknown; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[name]
