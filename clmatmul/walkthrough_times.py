"""Walkthrough, parts f and j: what is timed on the device: guard against pad, and tile sizes."""

import math
import statistics
import time
from dataclasses import dataclass

import numpy as np

from clmatmul import walkthrough_runs as runs
from clmatmul.config import TileConfig
from clmatmul.errors import (
    BuildError,
    ConfigError,
    LaunchError,
    MeasurementError,
    VerificationError,
)
from clmatmul.executable import build
from clmatmul.explanation import plain_problem
from clmatmul.plan import make_plan
from clmatmul.trial import first_use_check, time_plan
from clmatmul.variants import all_variants
from clmatmul.walkthrough_page import Code, HeatMap, Page, Prose, Table, speed_text

_TILE = 16
_ROUNDS = 4
_GRID_M = (4, 8, 16, 32)
_GRID_N = (8, 16, 32, 64)
_ROWS_SHOWN = 12
_SECONDS_EACH = 1.0
_LITTLE_GAIN = 2
_TITLE = "The experiment: which tile is best here?"


@dataclass(frozen=True)
class Edge:
    """One way to serve a size that is no multiple of the tile.

    terms: multiplications run, with those on padding. extra_bytes: memory beyond A, B and the
    result. kernel_ns: median of the kernel; copy_ns: median of all copies round it.
    """

    name: str
    size: tuple
    terms: int
    extra_bytes: int
    kernel_ns: float
    copy_ns: float

    @property
    def total_ns(self):
        return self.kernel_ns + self.copy_ns


@dataclass(frozen=True)
class Edges:
    """Part f: the size, the tile, the two ways, and the clock: "events" or "wall"."""

    size: tuple
    tile: int
    ways: tuple
    clock: str


@dataclass(frozen=True)
class Timed:
    """A configuration's time; fault says why it has none. clock: "events" or "wall"."""

    config: TileConfig
    median_ns: float | None
    spread_ns: float | None
    gflops: float | None
    fault: str = ""
    clock: str = "events"


@dataclass(frozen=True)
class Experiment:
    """Part j: size (m, n, k), every configuration tried, fastest first, failures last.

    Nothing is tried on a simulator.
    """

    size: tuple
    tried: tuple

    @property
    def best(self):
        return self.tried[0]


# ---- (f) guard or pad -----------------------------------------------------------------------


def edges(lesson):
    """(f) Sizes that are no multiple of the tile: a guard in the kernel, or padded copies."""
    size = (105, 107, 109) if lesson.quick else (473, 475, 477)
    if lesson.is_simulated:
        size = (21, 19, 29)
    padded = tuple(-(-x // _TILE) * _TILE for x in size)
    rng = np.random.default_rng(2)
    a = rng.integers(-4, 5, (size[0], size[2])).astype(np.float32)
    b = rng.integers(-4, 5, (size[2], size[1])).astype(np.float32)
    extra_bytes, copy_ns = _check_both(lesson.device, a, b, padded)
    guard_ns, pad_ns, by_events = _kernel_times(lesson.device, size, padded)
    terms = math.prod(padded)
    guard = Edge("guard", size, terms, 0, guard_ns, 0.0)
    pad = Edge("pad", padded, terms, extra_bytes, pad_ns, copy_ns)
    values = Edges(size, _TILE, (guard, pad), "events" if by_events else "wall")
    names = "×".join(map(str, size))
    blocks = (
        Prose(
            f"{names} is no multiple of {_TILE} in any direction: the last tiles overhang. Either "
            "the kernel guards, so that elements outside the matrices count as zero and none is "
            f"stored there; or the matrices are copied into larger ones of {padded[0]}×{padded[2]} "
            f"and {padded[2]}×{padded[1]}, padded with zeros, and the result is cut out."
        ),
        _edge_table(values),
        *_clock_note(values.clock),
        Prose(
            "Both give the same result, checked. Both run the same kernel, whose guard never fails "
            "in the second case, and the same number of terms, for an overhanging tile is worked "
            "through whole; what padding adds is the copies and the memory. The kernels here "
            "guard. Padding pays where a matrix is packed anyway, once for many products."
        ),
    )
    return Page("f", "edges", "Sizes that are no multiple of the tile", blocks, values)


def _check_both(device, a, b, padded):
    """Run both ways and check their results; (bytes of the larger matrices, ns of the copies)."""
    config = runs.tiled(_TILE, _TILE, _TILE)
    _require_product(runs.run(device, config, a, b).result, a, b)
    m, n, k = padded
    larger = np.zeros((m, k), np.float32), np.zeros((k, n), np.float32)
    copy_ns = _median_ns(lambda: (_fill(larger[0], a), _fill(larger[1], b)))
    result = runs.run(device, config, *larger).result
    cut = np.empty((a.shape[0], b.shape[1]), np.float32)
    copy_ns += _median_ns(lambda: _fill(cut, result[: cut.shape[0], : cut.shape[1]]))
    _require_product(cut, a, b)
    return larger[0].nbytes + larger[1].nbytes + result.nbytes, copy_ns


def _kernel_times(device, *sizes):
    """The median ns of the kernel at each size, and whether the device's events told them.

    Taken in turns, so that all see the same load.
    """
    config = runs.tiled(_TILE, _TILE, _TILE)
    built = [build(device, make_plan(plain_problem(*x), device.profile, config)) for x in sizes]
    times = [[] for _ in sizes]
    for _ in range(_ROUNDS):
        for executable, found in zip(built, times, strict=True):
            timed = time_plan(device, executable, runs=2, max_seconds=2)
            found += timed.times_ns
    return *map(statistics.median, times), bool(timed.event_ns)


def _fill(target, source):
    """Copy into the first rows and columns; what lies beyond them stays zero."""
    target[: source.shape[0], : source.shape[1]] = source


def _median_ns(action, repeats=7):
    times = []
    for _ in range(repeats):
        begin = time.perf_counter_ns()
        action()
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times)


def _require_product(found, a, b):
    if not np.array_equal(found, a @ b):
        raise VerificationError("a product of whole numbers is not exact; run clmatmul selfcheck")


def _edge_table(values):
    rows = tuple(
        (x.name, "×".join(map(str, x.size)), f"{x.terms:,}", f"{x.extra_bytes:,}",
         f"{x.kernel_ns / 1e6:.2f}", f"{x.copy_ns / 1e6:.2f}", f"{x.total_ns / 1e6:.2f}")
        for x in values.ways
    )  # fmt: skip
    return Table(
        ("way", "m×n×k", "terms", "extra bytes", "kernel ms", "copies ms", "in all ms"), rows
    )


def _clock_note(clock):
    if clock == "wall":
        yield Prose(
            "This driver's events carry no usable times, so these are by the wall clock, with "
            "what it takes to start a kernel."
        )


# ---- (j) the experiment ---------------------------------------------------------------------


def experiment(lesson):
    """(j) Tile sizes and variants timed on this device: a table and a heat map."""
    device = lesson.device
    if lesson.is_simulated:
        return _nothing_to_try(device)
    size = experiment_size(device.profile)
    problem = plain_problem(*size)
    configs = candidates(problem, device.profile)
    tried = []
    for i, config in enumerate(configs, 1):
        lesson.tell(f"timing {i} of {len(configs)}: {config}")
        tried.append(_timed(device, problem, config))
    tried.sort(key=lambda x: (x.median_ns is None, x.median_ns or 0))
    values = Experiment(size, tuple(tried))
    if values.best.median_ns is None:
        raise VerificationError(f"no configuration works here; the first: {values.best.fault}")
    m, n, k = size
    blocks = [
        Prose(
            "Which tile is best? Larger tiles read global memory less often, but need more local "
            "memory and larger work-groups, and leave fewer groups to share out. The devices "
            "differ too much for a rule, so it is an experiment. Here "
            f"{len(tried)} configurations compute a {m}×{n}×{k} product of float32 on "
            f"{device.profile.title}; each is checked first. The fastest:"
        ),
        _experiment_table(values),
        *_clock_note(values.best.clock),
        Prose("The tiled kernel by the rows and columns of its tile, 16 terms at a time:"),
        heat_map(values),
        *_faults(values, device),
        *_gain(values, device),
        Prose(
            f"Best of these: {values.best.config}. The tuner searches all that there is, for the "
            "sizes you need, and what it finds is what clmatmul.matmul then uses:"
        ),
        Code(tune_command(size), "console"),
    ]
    return Page("j", "experiment", "The experiment: which tile is best here?",
                tuple(blocks), values)  # fmt: skip


def experiment_size(profile):
    """(m, n, k) large enough to tell tiles apart, small enough for all of them in a minute."""
    return (1024,) * 3 if profile.kind == "gpu" else (256,) * 3


def tune_command(size):
    """What tunes this size for real."""
    return "python -m clmatmul.tune --m {} --n {} --k {}".format(*size)


def _nothing_to_try(device):
    text = (
        f"{device.profile.title} is a simulator: it checks what a kernel does, and its times say "
        "nothing about tile sizes on a device. Run this part on another one (--device)."
    )
    return Page("j", "experiment", _TITLE, (Prose(text),), Experiment((), ()))


def candidates(problem, profile):
    """The configurations to be timed: a grid of tiles, the untiled kernel, and what each further
    variant proposes for the problem."""
    found = [runs.tiled(m, n, _TILE) for m in _GRID_M for n in _GRID_N]
    for variant in all_variants():
        if variant.name == "naive":
            found += [TileConfig.of("naive", work_group_size=x) for x in (1, 64)]
        elif variant.name != "tiled" and not variant.unmet(problem.kind, profile):
            propose = variant.header.get("propose", lambda problem, profile: ())
            for _rank, values, _why in propose(problem, profile):
                found.append(variant.complete(TileConfig.of(variant.name, **values)))
    return tuple(dict.fromkeys(found))


def _timed(device, problem, config):
    try:
        plan = make_plan(problem, device.profile, config)
        executable = build(device, plan)
        first_use_check(device, plan, executable)
        x = time_plan(device, executable, runs=5, max_seconds=_SECONDS_EACH)
    except (BuildError, ConfigError, LaunchError, MeasurementError, VerificationError) as error:
        return Timed(config, None, None, None, str(error).splitlines()[0])
    clock = "events" if x.event_ns else "wall"
    return Timed(config, x.median_ns, x.spread_ns, x.gflops, clock=clock)


def _experiment_table(values):
    works = [x for x in values.tried if x.median_ns is not None]
    chosen = works[:_ROWS_SHOWN]
    chosen += [x for x in works[_ROWS_SHOWN:] if x.config.variant == "naive"]
    rows = tuple(
        (
            str(x.config),
            f"{x.median_ns / 1e6:.2f}",
            f"{x.spread_ns / 2e6:.2f}",
            speed_text(x.gflops),
        )
        for x in chosen
    )
    return Table(("configuration", "ms", "±", "GFLOP/s"), rows)


def heat_map(values):
    """GFLOP/s of the tiled kernel over tile_m and tile_n."""
    speed = {x.config: x.gflops for x in values.tried}
    return HeatMap(
        "tile_m", "tile_n", tuple(map(str, _GRID_M)), tuple(map(str, _GRID_N)),
        tuple(tuple(speed[runs.tiled(m, n, _TILE)] for n in _GRID_N) for m in _GRID_M),
        "GFLOP/s",
    )  # fmt: skip


def _gain(values, device):
    """What tiles gained over the untiled kernel, and why it is little on a CPU."""
    best = {}
    for x in values.tried:
        if x.gflops is not None:
            best.setdefault(x.config.variant, x)
    if not {"tiled", "naive"} <= set(best):
        return
    times = best["tiled"].gflops / best["naive"].gflops
    text = f"The best tile here is {times:.1f} times as fast as the untiled kernel."
    if device.profile.is_cpu and times < _LITTLE_GAIN:
        text += (
            " This is a CPU: its local memory is ordinary memory that the caches hold, so copying "
            "tiles there saves little. Kernels made for CPUs keep their tiles in registers."
        )
    yield Prose(text)


def _faults(values, device):
    """What could not be timed and why, without the words that every line would repeat."""
    rows = tuple(
        (str(x.config), _reason(x).replace(device.profile.title, "this device"))
        for x in values.tried
        if x.fault
    )
    if rows:
        yield Prose("These could not be timed:")
        yield Table(("configuration", "reason"), rows)


def _reason(x):
    text = x.fault.removeprefix(f"{x.config} cannot be used here: ").removeprefix(f"{x.config} ")
    return text.replace(f" ({x.config.variant}, ", " (")
