"""What a search looks for the least of: time, or energy."""

from dataclasses import dataclass

from clmatmul.errors import ArgumentError


@dataclass(frozen=True)
class Objective:
    """`unit` is of operations by cost, `per_cost` what makes that number of it."""

    name: str
    unit: str
    per_cost: float

    def rate(self, flops, cost):
        """Operations by cost, in `unit`: cost is in ns, or in µJ."""
        return flops / cost * self.per_cost


OBJECTIVES = {
    "time": Objective("time", "GFLOP/s", 1.0),
    "energy": Objective("energy", "GFLOP/J", 1e-3),
}


def find_objective(name):
    """The Objective of this name; ArgumentError lists those that there are."""
    if name not in OBJECTIVES:
        raise ArgumentError(f"objective={name!r} is unknown; there are {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]
