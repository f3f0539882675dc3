"""Made-up devices for tests of the tuner: trials come from a table, and no OpenCL is touched."""

import os
from pathlib import Path

from clmatmul.config import TileConfig
from clmatmul.database import TuningDatabase
from clmatmul.device_profile import DeviceProfile
from clmatmul.explanation import plain_problem
from clmatmul.trial import Trial
from clmatmul.tune import tune, tuner
from clmatmul.tune.peaks import Peaks
from clmatmul.variants import load_variant

PROBLEM = plain_problem(96, 80, 64)
FAST = TileConfig.of("tiled", tile_m=4, tile_n=8, tile_k=16)
MS = 1_000_000


def profile(name="amd-mi210"):
    text = (Path(__file__).parent / "profiles" / f"{name}.json").read_text()
    return DeviceProfile.from_json(text)


def passed(config, ns):
    return Trial(config, "ok", float(ns), float(ns), 1.0, 5, 0.1)


class Device:
    """Stands in for `Trials`: `landscape(config)` gives a Trial, or raises."""

    jobs = 2

    def __init__(self, monkeypatch, landscape, times=None, profile=profile()):  # noqa: B008
        self.profile = profile
        self.landscape = landscape
        self.tried, self.best_ns, self.compared, self.killed = [], [], [], 0
        self.proven, self.faults = [], {}
        self._times = times or self._own_times
        # Hundreds of trials need not reach the disk; tests/test_database.py is about that.
        monkeypatch.setattr(os, "fsync", lambda handle: None)
        monkeypatch.setattr(tuner, "Trials", lambda *arguments: self)
        monkeypatch.setattr(tuner, "numpy_time_ns", lambda problem, seconds: 3 * MS)

    def _own_times(self, configs, rounds):
        return [[self.landscape(x).median_ns] * rounds for x in configs]

    def prepare(self, problem, seed):
        self.prepared = problem

    def try_all(self, configs, best_ns):
        for config in configs:
            self.tried.append(config)
            self.best_ns.append(best_ns())
            yield self.landscape(config)

    def prove(self, config, seconds):
        self.proven.append(config)
        return self.faults.get(config)

    def compare(self, configs, rounds, max_seconds):
        self.compared.append(configs)
        return self._times(configs, rounds)

    def peaks(self, compute):
        return Peaks(compute, 5.0, 1.0)

    def kill(self):
        self.killed += 1


def by_config(found, otherwise=10 * MS):
    """A landscape: config → ns or Trial; anything else takes `otherwise`."""

    def landscape(config):
        value = found.get(config, otherwise)
        return passed(config, value) if isinstance(value, (int, float)) else value

    return landscape


def towards(best, ns=MS, otherwise=10 * MS):
    """A landscape that falls towards `best`: each step of a parameter away costs a quarter."""
    allowed = load_variant(best.variant).all_parameters()

    def landscape(config):
        if config.variant != best.variant:
            return passed(config, otherwise)
        steps = sum(
            abs(x.index(config.values()[name]) - x.index(best.values()[name]))
            for name, x in allowed.items()
        )
        return passed(config, min(ns * 1.25**steps, otherwise))

    return landscape


def search(tmp_path, problems=PROBLEM, **keywords):
    own = {"budget": "400trials", "variants": ["tiled"], "db": tmp_path, "strategy": "random"}
    keywords = {**own, **keywords}
    return tune(problems, **keywords)


def untuned(device, problem=PROBLEM):
    from clmatmul.choose import choose

    return choose(problem, device.profile, TuningDatabase())
