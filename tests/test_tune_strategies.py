"""The strategies and the landscapes that they are compared on, with no device."""

import random
from collections import Counter

import pytest
from made_up_devices import FAST, MS, PROBLEM, passed, profile, towards

from clmatmul.config import TileConfig
from clmatmul.errors import ArgumentError
from clmatmul.space import SearchSpace
from clmatmul.tune.landscape import Landscape, Replayed, simulate
from clmatmul.tune.strategies import STRATEGIES
from clmatmul.variants import all_variants, load_variant


def replayed(trial):
    return Replayed(trial.config, trial.status, trial.median_ns)


def replay(strategy, space, landscape, limit=10_000, seed=3):
    """The configurations that a strategy proposes on a landscape, in order."""
    seen = {}
    for batch in STRATEGIES[strategy](space, random.Random(seed), seen):
        assert batch and isinstance(batch, tuple)
        seen.update((x, replayed(landscape(x))) for x in batch if x not in seen)
        if len(seen) >= limit:
            break
    return list(seen)


@pytest.mark.parametrize("strategy", ["local", "random", "exhaustive"])
def test_a_batch_is_for_all_builders(strategy):
    space = SearchSpace([load_variant("tiled")], PROBLEM, profile())
    seen = {FAST: replayed(passed(FAST, MS))}
    assert len(next(STRATEGIES[strategy](space, random.Random(0), seen, 8))) == 8


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_proposes_valid_configurations_and_repeats_itself(strategy):
    space = SearchSpace([load_variant("tiled"), load_variant("naive")], PROBLEM, profile())
    limit = {"exhaustive": 10_000, "random": 10_000, "tpe": 24}.get(strategy, 60)
    one, other = (replay(strategy, space, towards(FAST), limit) for _ in range(2))
    assert one == other and all(x in space for x in one)
    if limit > 100:
        assert sorted(map(str, one)) == sorted(map(str, space))


@pytest.mark.parametrize("strategy, seeds", [("local", 3), ("tpe", 1)])
def test_a_strategy_that_learns_comes_near_in_few_trials(strategy, seeds):
    space = SearchSpace([load_variant("tiled")], PROBLEM, profile())
    landscape = towards(FAST, otherwise=1e9)
    for seed in range(seeds):
        found = replay(strategy, space, landscape, 60, seed)
        assert min(landscape(x).median_ns for x in found) <= 1.3 * MS


def test_local_search_leaves_a_local_optimum():
    space = SearchSpace([load_variant("tiled")], PROBLEM, profile())
    trap = TileConfig.of("tiled", tile_m=1, tile_n=1, tile_k=1)

    def landscape(config):
        return min(towards(FAST)(config), towards(trap, 2 * MS)(config), key=lambda x: x.median_ns)

    found = replay("local", space, landscape, 250)
    assert trap in found and FAST in found


def tried_by_local(slower, count):
    """What local search tries of `tiled` and `naive`, which nothing proposed, round FAST.

    All of tiled take twice its time, all of naive `slower` times.
    """
    space = SearchSpace([load_variant("tiled"), load_variant("naive")], PROBLEM, profile())
    seen = {FAST: replayed(passed(FAST, MS))}
    tried = []
    for batch in STRATEGIES["local"](space, random.Random(1), seen):
        for x in batch:
            seen[x] = replayed(passed(x, (slower if x.variant == "naive" else 2) * MS))
        tried += batch
        if len(tried) > count:
            return tried
    return tried


def test_local_search_leaves_kernels_that_nothing_proposed_for_later():
    tried = tried_by_local(slower=2, count=60)
    naive = [i for i, x in enumerate(tried) if x.variant == "naive"]
    assert 20 <= naive[0] <= 40 and len(naive) > 1
    assert tried[naive[0]] == load_variant("naive").default


def test_local_search_leaves_kernels_that_are_far_behind_for_later():
    tried = tried_by_local(slower=10, count=130)
    naive = [i for i, x in enumerate(tried) if x.variant == "naive"]
    assert len(naive) > 1 and naive[0] <= 40 and naive[1] >= 98


def test_a_kernel_whose_own_configuration_is_not_valid_is_introduced_by_another():
    within = {"tiled": {}, "naive": {"work_group_size": (8, 32)}}
    assert load_variant("naive").default.values()["work_group_size"] not in (8, 32)
    variants = [load_variant(x) for x in within]
    space = SearchSpace(variants, PROBLEM, profile(), within)
    assert space.default("naive") is None and space.default("tiled") in space
    seen = {FAST: replayed(passed(FAST, MS))}
    for batch in STRATEGIES["local"](space, random.Random(1), seen):
        seen.update((x, replayed(passed(x, 2 * MS))) for x in batch)
        if any(x.variant == "naive" for x in batch):
            break
    assert len(seen) <= 40


def made_landscape():
    space = SearchSpace([load_variant("tiled")], PROBLEM, profile())
    trials = {x: replayed(towards(FAST, otherwise=1e9)(x)) for x in space}
    trials[next(iter(space))] = Replayed(next(iter(space)), "crash", None)
    return Landscape.from_records("a device", str(PROBLEM), trials.values())


def test_a_landscape_travels_as_json_and_is_a_space():
    made = made_landscape()
    copy = Landscape.from_json(made.to_json())
    assert copy.trials.keys() == made.trials.keys() and copy.values == made.values
    assert copy.best_ns == MS and (copy.device, copy.problem) == ("a device", str(PROBLEM))
    assert [x.status for x in copy.trials.values()].count("crash") == 1
    assert set(copy.draw(random.Random(1))) == set(copy) and len(copy) == copy.combinations
    steps = {x.with_values(tile_m=4) for x in copy.neighbours(FAST.with_values(tile_m=8))}
    assert FAST in steps and all(x in copy for x in copy.neighbours(FAST))
    for text in ("", "{}", "[]", '{"schema": 2}', made.to_json()[:-5]):
        with pytest.raises(ArgumentError, match="not a landscape"):
            Landscape.from_json(text)


@pytest.mark.parametrize("strategy", ["local", "random", "exhaustive"])
def test_a_landscape_is_replayed(strategy):
    made = made_landscape()
    needed = simulate(made, strategy, 1)
    assert needed == simulate(made, strategy, 1) and 1 <= needed <= len(made)
    assert simulate(made, strategy, 1, limit=needed - 1) is None
    assert simulate(made, strategy, 1, enough=0.1) <= needed


def test_a_landscape_without_a_time_is_none():
    nothing = Landscape.from_records("x", "y", [Replayed(FAST, "crash", None)])
    assert simulate(nothing, "random") is None
    with pytest.raises(ArgumentError, match="nothing passed"):
        nothing.best_ns  # noqa: B018


def test_random_gives_each_variant_its_turn_without_enumerating_a_large_space():
    space = SearchSpace(all_variants(), PROBLEM, profile())
    drawn = space.draw(random.Random(1))
    first = [next(drawn) for _ in range(60)]
    assert "configs" not in vars(space), "the space was enumerated"
    assert len(set(first)) == 60
    counts = Counter(config.variant for config in first)
    offered = [v for v in all_variants() if not v.unmet(PROBLEM.kind, profile())]
    assert set(counts) == {v.name for v in offered}
    for config in first:
        assert not load_variant(config.variant).reject(config, PROBLEM, profile())


def test_a_drawn_space_ends_when_all_was_drawn(monkeypatch):
    monkeypatch.setattr("clmatmul.space._ENUMERABLE", 20)
    space = SearchSpace([load_variant("tiled")], PROBLEM, profile("tiny-embedded"))
    assert space.combinations > 20
    drawn = list(space.draw(random.Random(1)))
    assert len(drawn) == len(set(drawn)) and set(drawn) == set(space)


def test_drawing_gives_up_on_a_very_large_space(monkeypatch):
    monkeypatch.setattr("clmatmul.space._ENUMERABLE", 20)
    monkeypatch.setattr("clmatmul.space._PATIENCE", 0)
    space = SearchSpace([load_variant("tiled")], PROBLEM, profile())
    drawn = list(space.draw(random.Random(1)))
    assert len(space) / 2 < len(drawn) == len(set(drawn)) < len(space)
