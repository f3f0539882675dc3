"""Goes through many configurations of one problem quickly, to find the fastest.

All in one process, with no check but that of the fastest few: for kernels whose correctness other
tests show. What is slow is left after one run. A crash of a kernel ends the process.
"""

import itertools
import math
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from clmatmul import device as devices
from clmatmul import probes
from clmatmul.errors import ClmatmulError
from clmatmul.executable import build
from clmatmul.measure import interleave, timed_run
from clmatmul.plan import make_plan
from clmatmul.selection import resolve
from clmatmul.trial import Workload

_BEHIND = 1.3  # times slower than the best: one run says enough
_RUNS = 6
_LEAST_NS = 3e6  # short products are run more often
_MOST_RUNS = 60
_KEEPERS = ("pocl", "nvidia")  # families whose runtimes keep what they compile
_AT_ONCE = 4  # programs that a process compiles before it reports
_opened = []  # the device, in a process that compiles


@dataclass(frozen=True)
class TimedPart:
    """What going through a part found: (config, least time in ns), fastest first, and failures."""

    ranked: tuple
    failed: tuple  # (config, what it said)


def opened(selector):
    """The device, its probes run, with programs kept by its runtime alone if that keeps any.

    A binary of ours would be compiled again there: NVIDIA's is PTX.
    """
    device = resolve(selector)
    probes.ensure_usual(device)
    if device.profile.family in _KEEPERS:
        os.environ["CLMATMUL_CACHE"] = "0"
    return device


def compile_all(device, problem, configs):
    """Build and run each once, so that the runtime has all programs on disk; how many failed."""
    workload, failed = Workload(device, problem, sampled=False), 0
    for config in configs:
        try:
            devices.wait([_runner(device, workload, config)(0)[1]])
        except ClmatmulError:
            failed += 1
    return failed


def compile_side_by_side(selector, parts, jobs, seconds):
    """Have a runtime that keeps what it compiles compile the programs of (problem, configs) pairs.

    By `jobs` processes, for some seconds: what is left then is compiled when it is run. Nothing is
    run. Returns (programs, compiled, failed).
    """
    profile, programs, wanted = resolve(selector).profile, set(), []
    for problem, configs in parts:
        for config in configs:
            texts = {x.source_key for x in make_plan(problem, profile, config).launches}
            if not texts <= programs:
                programs |= texts
                wanted.append((problem, config))
    begin, compiled, failed = time.monotonic(), 0, 0
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, spawn, _open, (selector,)) as pool:
        running = [
            pool.submit(_compile, wanted[at : at + _AT_ONCE])
            for at in range(0, len(wanted), _AT_ONCE)
        ]
        for future in running:
            if time.monotonic() - begin > seconds:
                pool.shutdown(wait=False, cancel_futures=True)
                break
            tried, refused = future.result()
            compiled, failed = compiled + tried, failed + refused
    return len(wanted), compiled, failed


def _open(selector):
    _opened.append(opened(selector))


def _compile(pairs):
    """How many (problem, config) pairs were built, and how many of them the compiler refused."""
    (device,), failed = _opened, 0
    for problem, config in pairs:
        try:
            build(device, make_plan(problem, device.profile, config))
        except ClmatmulError:
            failed += 1
    return len(pairs), failed


def go_through(device, problem, configs, seed=0, enough_ns=_LEAST_NS):
    """The TimedPart of these configurations, in this order: a good one first saves time.

    enough_ns: for how long each runs at least, up to sixty times.
    """
    workload = Workload(device, problem, seed, sampled=False)
    _touch_all(device, workload, configs[0])
    best_ns, found, failed = math.inf, [], []
    for config in configs:
        try:
            least = _least_ns(workload, _runner(device, workload, config), best_ns, enough_ns)
        except ClmatmulError as error:
            failed.append((config, str(error).splitlines()[0]))
            continue
        best_ns = min(best_ns, least)
        found.append((config, least))
    return TimedPart(tuple(sorted(found, key=lambda x: x[1])), tuple(failed))


def in_turn(device, problem, configs, rounds, seconds):
    """Times in ns of each configuration, run in turn; as a worker of the tuner does."""
    workload = Workload(device, problem, sampled=False)
    runs = [_runner(device, workload, config) for config in configs]
    for run in runs:
        devices.wait([run(0)[1]])
    turns = itertools.count(1)
    contestants = [
        lambda run=run: timed_run(run, next(turns), events=workload.has_events)[0] for run in runs
    ]
    return interleave(contestants, rounds, min_rounds=_RUNS, max_seconds=seconds)


def right_ones(device, problem, configs, seed=0):
    """Those that give the right result at the problem's own size."""
    workload = Workload(device, problem, seed)

    def is_right(config):
        executable = build(device, make_plan(problem, device.profile, config))
        return not workload.sample.judge(workload.result(executable)).fault

    return [x for x in configs if is_right(x)]


def _touch_all(device, workload, config):
    """Have every buffer's pages in place, which the first to write to them would pay for."""
    run = _runner(device, workload, config)
    for i in range(workload.rotated):
        devices.wait([run(i)[1]])


def _runner(device, workload, config):
    return workload.runner(build(device, make_plan(workload.problem, device.profile, config)))


def _least_ns(workload, run, best_ns, enough_ns=_LEAST_NS):
    devices.wait([run(0)[1]])  # the first launch compiles, or loads what was compiled
    least, spent, runs = math.inf, 0.0, 0
    while runs < _RUNS or spent < enough_ns and runs < _MOST_RUNS:
        took_ns = timed_run(run, runs + 1, events=workload.has_events)[0]
        least, spent, runs = min(least, took_ns), spent + took_ns, runs + 1
        if least > _BEHIND * best_ns and (took_ns > _LEAST_NS or runs >= _RUNS):
            break
    return least
