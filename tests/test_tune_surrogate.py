"""The model behind the default strategy: what it expects, and what it would try next."""

import itertools
import random

import numpy as np
import pytest

from clmatmul.config import TileConfig
from clmatmul.tune import surrogate
from clmatmul.tune.landscape import Replayed
from clmatmul.tune.surrogate import most_promising

VALUES = (1, 2, 4, 8, 16)
PARAMETERS = {"tiled": {"x": VALUES, "y": VALUES}, "naive": {"x": VALUES}}


def at(x, y):
    return TileConfig.of("tiled", x=x, y=y)


def seen_of(times):
    """config → record; a time of None is a crash."""
    return {c: Replayed(c, "ok" if ns else "crash", ns) for c, ns in times.items()}


def ns(config):
    """A valley: each step of x or y away from (8, 2) costs a half more."""
    steps = abs(VALUES.index(config.values()["x"]) - 3) + abs(
        VALUES.index(config.values().get("y", 2)) - 1
    )
    return 100 * 1.5**steps


def test_a_valley_is_followed_to_its_lowest_point():
    everything = [at(x, y) for x, y in itertools.product(VALUES, VALUES)]
    needed = []
    for seed in range(10):
        rng = random.Random(seed)
        seen = seen_of({c: ns(c) for c in rng.sample(everything, 3)})
        while at(8, 2) not in seen:
            fresh = [x for x in everything if x not in seen]
            rng.shuffle(fresh)
            seen |= seen_of({c: ns(c) for c in most_promising(seen, fresh, PARAMETERS, 2)})
        needed.append(len(seen))
    assert sum(needed) / len(needed) < 11  # at random: 13.5, or all of 25 to be sure


def test_the_best_values_of_each_parameter_are_put_together():
    seen = seen_of({at(x, 16): ns(at(x, 16)) for x in VALUES})
    seen |= seen_of({at(1, y): ns(at(1, y)) for y in VALUES})
    left = [at(x, y) for x, y in itertools.product(VALUES[1:], VALUES[:-1])]
    (first,) = most_promising(seen, left, PARAMETERS, 1)
    assert ns(first) <= 150


def test_what_lies_near_a_failure_comes_last():
    seen = seen_of({at(1, 1): 100.0, at(16, 16): None, at(16, 8): None, at(2, 1): 100.0})
    order = most_promising(seen, [at(16, 4), at(1, 2)], PARAMETERS, 2)
    assert order == [at(1, 2), at(16, 4)]


def test_a_batch_does_not_hold_the_same_twice_over():
    """The second of a batch is chosen as if the first were tried: not its neighbour again."""
    seen = seen_of({at(2, 2): 100.0})
    twins = [at(16, 8), at(16, 16), at(2, 16)]
    first, second = most_promising(seen, twins, PARAMETERS, 2)
    assert {first, second} != {at(16, 8), at(16, 16)}
    assert most_promising(seen, twins, PARAMETERS, 9) and len({first, second}) == 2


def test_of_two_alike_the_one_without_a_new_program_is_first():
    seen = seen_of({at(4, 4): 100.0})
    for cheap in (at(8, 4), at(4, 8)):
        candidates = [at(8, 4), at(4, 8)]
        assert most_promising(seen, candidates, PARAMETERS, 1, {cheap}) == [cheap]


def test_another_kernels_parameter_of_the_same_name_tells_something():
    seen = seen_of({at(x, 4): 100.0 * x for x in VALUES})
    seen |= seen_of({TileConfig.of("naive", x=4): 100.0})
    left = [TileConfig.of("naive", x=16), TileConfig.of("naive", x=1)]
    assert most_promising(seen, left, PARAMETERS, 1) == [TileConfig.of("naive", x=1)]


@pytest.mark.parametrize("stranger", [TileConfig.of("gone", z=1), at(3, 3)])
def test_records_from_outside_the_space_do_no_harm(stranger):
    seen = seen_of({at(1, 1): 100.0, stranger: 50.0})
    assert most_promising(seen, [at(2, 2)], PARAMETERS, 4) == [at(2, 2)]


def test_the_inverse_grows_with_its_matrix():
    rng = np.random.default_rng(1)
    root = rng.random((6, 6))
    matrix = root @ root.T + np.eye(6)
    grown = surrogate._with_one_more(np.linalg.inv(matrix[:5, :5]), matrix[:5, 5], matrix[5, 5])
    assert np.allclose(grown @ matrix, np.eye(6))


def test_thousands_of_trials_are_no_burden():
    wide = {"tiled": {"x": tuple(range(100)), "y": tuple(range(100))}}
    seen = seen_of({at(i % 100, i // 100): 100.0 + i for i in range(5000)})
    (found,) = most_promising(seen, [at(0, 99), at(1, 60)], wide, 1)
    assert found in (at(0, 99), at(1, 60))
