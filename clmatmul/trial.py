"""One configuration put to the test: built, verified on poisoned memory, timed."""

import logging
import math
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from clmatmul import cases, program_cache
from clmatmul import device as devices
from clmatmul.choose import SAFE
from clmatmul.element_types import COMPUTE_TYPES
from clmatmul.errors import (
    BuildError,
    ConfigError,
    DeviceError,
    LaunchError,
    MeasurementError,
    TemplateError,
    VerificationError,
)
from clmatmul.executable import build
from clmatmul.measure import measure, measure_host, rotation, stated_peak
from clmatmul.plan import WRITTEN, make_plan
from clmatmul.sample import Sample, Verdict

_log = logging.getLogger("clmatmul")
_CHECK_SEED = 20260101
_CHECK_DATA = ("ids_a", "ids_b", "exact")
_LONGEST_TILE = 512
_LEAST_CUT, _LONG_CUT = 64, 1024  # terms, of which a check has twice as many, and one
_PART_FLOPS = 3e7  # a product larger than this is first run in part, to tell how long it takes
_NOTE_LENGTH = 400
_HOPELESS = 3  # times slower than the best: one run says enough
_BEHIND = 1.5  # times slower than the best: a few runs say enough
_SHORT_NS = 1e6  # the first runs of a kernel take longer, by ten microseconds on an H200
_FEW_RUNS = 10
_MOMENT = 0.02  # seconds; three runs of 2 ms were seen to be disturbed, all of them
_PROOF_SIZES = 12
_PROOF_RUNS = 100


def run_case(device, config, case, instrument="none"):
    """Run a case's problem with a configuration; returns the output's memory afterwards.

    VerificationError if an input was changed.
    """
    return _run_case(device, config, case, instrument)["out"]


def _run_case(device, config, case, instrument="none"):
    """name → memory afterwards, of the arrays that a kernel writes."""
    plan = make_plan(case.problem, device.profile, config, instrument)
    executable = build(device, plan)
    queue = device.queue()
    memories = {id(x.cells): device.upload(x.cells) for x in case.memory.values()}
    buffers = {name: memories[id(x.cells)] for name, x in case.memory.items()}
    operands = {name: (buffers[name], x.offset) for name, x in case.memory.items()}
    compute = COMPUTE_TYPES[case.problem.compute]
    scalars = {name: kernel_scalar(value, compute) for name, value in case.scalars.items()}
    event, keep = executable(queue, operands, scalars)
    devices.wait([event])
    after = {}
    written = [case.memory[name] for name in WRITTEN if name in case.memory]
    for name, x in case.memory.items():
        now = np.empty_like(x.cells)
        device.read(queue, buffers[name], now)
        if any(x is y for y in written):
            after[name] = now
        elif now.tobytes() != x.cells.tobytes():
            raise VerificationError(f"{config} changed its input {name}")
    del keep
    return after


def check_case(device, config, case):
    """The Verdict on one case."""
    try:
        after = _run_case(device, config, case)
    except VerificationError as error:
        return Verdict(str(error), None)
    if case.aux is not None:
        fault, ratio = case.aux.judge(after["aux"])
        if fault:
            return Verdict(f"auxiliary output: {fault}", ratio)
    return Verdict(*case.judge(after["out"]))


def check_sizes(config):
    """(m, n, k) that put a configuration's tile borders to the test, small first."""
    m, n, k = tile_of(config)
    return (
        (m + 1, max(n - 1, 1), 2 * k + 1), (max(m - 1, 1), n + 1, k), (m, n, max(k - 1, 1)),
        (1, 1, 1),
    )  # fmt: skip


def tile_of(config):
    """(m, n, k) of what a work-group computes, as far as the names of parameters tell; bounded.

    k goes once round a ring of stages, gives each slice a phase, and can be cut into parts: into
    so many, if there may be many, that a loop over eight of them is gone through.
    """
    values = config.values()
    named = {x: [v for name, v in values.items() if name.endswith(f"_{x}")] for x in "mnk"}
    m, n, k = (max(named[x], default=4) for x in "mnk")
    line = values.get("lanes", 1) * values.get("vector_width", 1)
    if "large" in values:  # lines of the one operand, few of the other
        m, n = (line, values["few"]) if values["large"] == "a" else (values["few"], line)
    elif "lanes" in values and not named["m"]:
        m = n = line
    if not named["k"]:  # all work-items of a line side by side along k, or so many terms at once
        k = line * values["unroll"] if "unroll" in values else values.get("terms", k)
    if "bytes_k" in values:
        k //= 2  # most elements that are counted by their bytes have two
    k *= values.get("stages", 1) * values.get("slices", 1)
    splits = values.get("splits", 1)
    k = _LONG_CUT if splits > 8 else max(min(k, _LONGEST_TILE), _LEAST_CUT if splits > 1 else 1)
    return min(m, _LONGEST_TILE), min(n, _LONGEST_TILE), k


def first_use_check(device, plan, executable):
    """Check a plan's programs once a machine, on small exact data; VerificationError if wrong.

    The result is remembered beside the programs on disk.
    """
    keys = [program.key for program in executable.programs]
    if all(program_cache.is_verified(key) for key in keys):
        return
    fault = _border_fault(device, plan.config, plan.kind, _sizes_of_programs(device, plan))
    if fault:
        raise VerificationError(
            f"{plan.config} on {device.profile.title} failed its first-use check ({fault})"
        )
    for key in keys:
        program_cache.mark_verified(key)


@dataclass(frozen=True)
class Trial:
    """What came of one configuration at one problem. Times in ns, of the device's events.

    status: one of database.STATUSES. error_ratio: error ÷ allowed error at the problem's size.
    energy_uj: of one run, where that was asked for.
    """

    config: object
    status: str
    median_ns: float | None = None
    minimum_ns: float | None = None
    spread_ns: float | None = None
    samples: int = 0
    error_ratio: float | None = None
    note: str = ""
    energy_uj: float | None = None


class Workload:
    """Operands of one problem on a device, laid out as the problem's own, and what must come out.

    Made once and used by every configuration that is tried. sampled: False leaves the oracle
    out, for timing alone.
    """

    def __init__(self, device, problem, seed=0, sampled=True):
        self.device = device
        self.problem = problem
        rng = np.random.default_rng(seed)
        self.case = cases.case_of(problem, rng)
        self.sample = Sample(self.case, rng) if sampled else None
        total = sum(x.cells.nbytes for x in self.case.memory.values())
        profile = device.profile
        count = rotation(total, profile.cache_bytes, profile.global_mem_bytes // 8)
        self.rotated = count  # sets of buffers: run(i) uses the i-th of them
        self._may_hold_twice = 2 * count * total <= profile.global_mem_bytes // 4
        self._sets = self._uploaded()
        compute = COMPUTE_TYPES[problem.compute]
        self._scalars = {x: kernel_scalar(v, compute) for x, v in self.case.scalars.items()}

    def _uploaded(self):
        return [
            {name: (self.device.upload(x.cells), x.offset) for name, x in self.case.memory.items()}
            for _ in range(self.rotated)
        ]

    def move(self):
        """Put the operands elsewhere: where buffers lie can make a few percent. Runners made
        before keep to where they were."""
        if not self._may_hold_twice:
            self._sets = ()
        self._sets = self._uploaded()

    @cached_property
    def has_events(self):
        """False if this runtime's events have no true times: then the wall clock has to serve.

        Told from the safe kernel, so that every configuration is timed by the same clock.
        """
        p = self.problem
        part = replace(p, m=min(p.m, 16), n=min(p.n, 16), k=min(p.k, 64))
        run = self.runner(build(self.device, make_plan(part, self.device.profile, SAFE)))
        try:
            measure(run, part.flops, runs=3)
        except MeasurementError as error:
            _log.info("%s: %s; the wall clock is used", self.device.profile.title, error)
            return False
        return True

    def time(self, executable, *, warm_up=1, runs=5, min_seconds=0.0, max_seconds=60.0):
        """The Measurement of an executable on these operands; MeasurementError."""
        return measure(
            self.runner(executable),
            self.problem.flops,
            warm_up=warm_up,
            runs=runs,
            min_seconds=min_seconds,
            max_seconds=max_seconds,
            peak_flops=stated_peak(self.device.profile, self.problem.a.dtype),
            events=self.has_events,
        )

    def runner(self, executable):
        """run(i) → (first, last) events of one run, on the buffers of set i."""
        queue = self.device.profiling_queue()
        workspace = {x.name: self.device.allocate(x.bytes) for x in executable.plan.workspace}
        sets = self._sets

        def run(i):
            events = []
            operands = sets[i % len(sets)]
            last, _ = executable(queue, operands, self._scalars, workspace=workspace, record=events)
            return events[0], last

        return run

    def result(self, executable):
        """The output's memory after one run into poison; VerificationError if an input changed."""
        queue = self.device.queue()
        first, memory = self._sets[0], self.case.memory
        self.device.write(queue, first["out"][0], self.case.before)
        devices.wait([self.runner(executable)(0)[1]])
        after = np.empty_like(self.case.before)
        self.device.read(queue, first["out"][0], after)
        for name, x in memory.items():
            if name not in WRITTEN:
                now = np.empty_like(x.cells)
                self.device.read(queue, first[name][0], now)
                if not np.array_equal(now.view(np.uint8), x.cells.view(np.uint8)):
                    raise VerificationError(f"{executable.plan.config} changed its input {name}")
        return after

    def estimate_ns(self, config):
        """How long the whole product takes, from a part of it; 0 if it is too small to matter, or
        if the configuration serves no part of it."""
        p = self.problem
        plan = self._plan_of_part(config) if p.flops > _PART_FLOPS else None
        if plan is None:
            return 0
        part, run = plan.problem, self.runner(build(self.device, plan))
        # Some runtimes compile once more for the first launch of a size: the second run tells.
        # The least of three: one may have waited for another process.
        part_ns = measure_host(lambda: devices.wait([run(0)[1]]), part.flops, runs=3).minimum_ns
        return part_ns * p.flops / part.flops

    def _plan_of_part(self, config):
        """The plan of a part of the product, cut along the longest side that may be cut, or None.

        One that splits k serves no short k.
        """
        p = self.problem
        for name in sorted("mnk", key=lambda x: -getattr(p, x)):
            length = max(int(getattr(p, name) * _PART_FLOPS / p.flops), 1)
            with suppress(ConfigError):
                return make_plan(replace(p, **{name: length}), self.device.profile, config)
        return None


def try_config(device, workload, config, *, entered=lambda state: None, best_ns=None,
               slowest_ns=None, checked=False, energy_of=None):  # fmt: skip
    """The Trial of one configuration: build, first launch, verification, timing, in this order.

    entered: told each of 'build', 'launch', 'verify', 'time' as it begins. best_ns: time of the
    best so far; one that is far behind is timed by few runs. slowest_ns: not run at full size if
    it would take longer than this, and not once more if it did. checked: `check_config` has found
    it right already. energy_of: a function (run, ns of a run) → µJ, if energy is measured too.
    """
    problem = workload.problem

    def steps():
        entered("build")
        executable = build(device, make_plan(problem, device.profile, config))
        entered("launch")
        if not checked:
            fault = _border_fault(device, config, executable.plan.kind, entered=entered)
            if fault:
                return _failed(config, "wrong_result", fault)
        expected = workload.estimate_ns(config)
        if slowest_ns is not None and expected > slowest_ns:
            return _failed(config, "too_slow", f"would take about {expected / 1e6:.0f} ms")
        first = workload.result(executable)
        verdict = workload.sample.judge(first)
        if verdict.fault:
            return _failed(config, "wrong_result", verdict.fault)
        entered("time")
        timed = _time(workload, executable, best_ns)
        if slowest_ns is not None and timed.minimum_ns > slowest_ns:
            return _failed(config, "too_slow", f"took {timed.minimum_ns / 1e6:.0f} ms")
        energy_uj = energy_of and energy_of(workload.runner(executable), timed.minimum_ns)
        if workload.result(executable).tobytes() != first.tobytes():
            return _failed(config, "unstable", "two runs on the same operands gave different bits")
        return Trial(
            config, "ok", timed.median_ns, timed.minimum_ns, timed.spread_ns,
            len(timed.times_ns), verdict.error_ratio,
            "" if workload.has_events else "timed by the wall clock", energy_uj,
        )  # fmt: skip

    return _classified(config, steps)


def check_config(device, problem, config, *, entered=lambda state: None):
    """The Trial of a configuration that is built and checked round its tile borders, not timed."""

    def steps():
        entered("build")
        plan = build(device, make_plan(problem, device.profile, config)).plan
        entered("launch")
        fault = _border_fault(device, config, plan.kind, entered=entered)
        return _failed(config, "wrong_result", fault) if fault else Trial(config, "ok")

    return _classified(config, steps)


def _classified(config, steps):
    """The Trial that `steps` returns, or the status of the error that it raises."""
    try:
        return steps()
    except (BuildError, TemplateError) as error:
        return _failed(config, "build_failed", error)
    except (LaunchError, ConfigError, DeviceError) as error:
        return _failed(config, "launch_failed", error)
    except VerificationError as error:
        return _failed(config, "wrong_result", error)
    except MeasurementError as error:
        return _failed(config, "unstable", error)


def _failed(config, status, error):
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return Trial(config, status, note=lines[0][:_NOTE_LENGTH])


def fault_in_proof(device, workload, config, seconds):
    """What is wrong with a winner: at sizes of all kinds, and in many runs; None if nothing is.

    Sizes are random up to three tiles, on exact data. Then the same product again and again, each
    time into poison: a race shows as different bits. Ends after `seconds`.
    """
    begin = time.monotonic()
    rng = np.random.default_rng(_CHECK_SEED)
    kind = workload.problem.kind
    largest = check_sizes(config)[0]
    sizes = [
        tuple(int(x) for x in rng.integers(1, [min(3 * x, 700) for x in largest]))
        for _ in range(_PROOF_SIZES)
    ]
    fault = _border_fault(device, config, kind, sizes, data=("exact",), until=begin + seconds / 2)
    if fault:
        return fault
    executable = build(device, make_plan(workload.problem, device.profile, config))
    first = workload.result(executable).tobytes()
    for run in range(_PROOF_RUNS):
        if time.monotonic() - begin > seconds:
            return None
        if workload.result(executable).tobytes() != first:
            return f"run {run + 2} on the same operands gave different bits"
    return None


def _sizes_of_programs(device, plan):
    """The check's sizes that run the plan's own programs, so that no others are built for it.

    All sizes if none does: a program for large problems only is then checked with its relatives.
    """

    def programs(case_plan):
        return {launch.source_key for launch in case_plan.launches}

    def runs_the_same(size):
        case = cases.make_case(plan.kind, *size, "exact", rng, with_result=False)
        try:
            return programs(make_plan(case.problem, device.profile, plan.config)) == programs(plan)
        except ConfigError:
            return False

    rng = np.random.default_rng(_CHECK_SEED)
    sizes = check_sizes(plan.config)
    return tuple(filter(runs_the_same, sizes)) or sizes


def _border_fault(device, config, kind, sizes=None, entered=lambda state: None, data=_CHECK_DATA,
                  until=math.inf):  # fmt: skip
    """What is wrong round a configuration's tile borders, on exact data; None if nothing is.

    until: no further case is begun at this time of the monotonic clock.
    """
    rng = np.random.default_rng(_CHECK_SEED)
    launched = False
    for pattern in data:
        for m, n, k in sizes or check_sizes(config):
            if time.monotonic() > until:
                return None
            case = cases.make_case(kind, m, n, k, pattern, rng)
            try:
                verdict = check_case(device, config, case)
            except ConfigError:
                continue  # this size is none that the configuration serves
            if not launched:
                launched = True
                entered("verify")
            if verdict.fault:
                return f"{m}×{n}×{k}, {pattern}: {verdict.fault}"
    return None


def _time(workload, executable, best_ns):
    if best_ns:
        found = workload.time(executable, warm_up=0, runs=1)  # it has run for the check already
        if found.minimum_ns < _SHORT_NS:
            found = workload.time(executable, runs=_FEW_RUNS)
        if found.minimum_ns > _HOPELESS * best_ns:
            return found
        if found.minimum_ns > _BEHIND * best_ns:
            if len(found.times_ns) > 1:
                return found
            return workload.time(executable, runs=3, min_seconds=_MOMENT, max_seconds=5)
    return workload.time(executable, min_seconds=0.1, max_seconds=5)


def is_sane(device, problem):
    """True if the safe kernel still gives right results: does the device work at all?"""
    return _border_fault(device, SAFE, problem.kind) is None


def time_plan(device, executable, *, runs=5, min_seconds=0.0, max_seconds=60.0, seed=0):
    """Measure a built plan at its own size and strides, with random data in rotated buffers."""
    workload = Workload(device, executable.plan.problem, seed, sampled=False)
    return workload.time(executable, runs=runs, min_seconds=min_seconds, max_seconds=max_seconds)


def kernel_scalar(value, compute):
    """alpha or beta as a kernel argument of the accumulator's type; integers wrap."""
    host = np.dtype(compute.host)
    if host.kind == "u":
        return host.type(int(value) % 2 ** (8 * host.itemsize))
    return host.type(value)
