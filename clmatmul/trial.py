"""One configuration put to the test: built, verified on poisoned memory, timed."""

import logging
from dataclasses import dataclass

import numpy as np

from clmatmul import cases, program_cache
from clmatmul.element_types import COMPUTE_TYPES
from clmatmul.errors import ConfigError, VerificationError
from clmatmul.executable import build
from clmatmul.measure import measure, rotation
from clmatmul.plan import make_plan

_log = logging.getLogger("clmatmul")
_CHECK_SEED = 20260101


@dataclass(frozen=True)
class Verdict:
    """What a check of one case found: `fault` is None if the result was right."""

    fault: str | None
    error_ratio: float | None


def run_case(device, config, case, instrument="none"):
    """Run a case's problem with a configuration; returns the output's memory afterwards.

    VerificationError if an input was changed.
    """
    plan = make_plan(case.problem, device.profile, config, instrument)
    executable = build(device, plan)
    queue = device.queue()
    buffers = {name: device.upload(x.cells) for name, x in case.memory.items()}
    operands = {name: (buffers[name], x.offset) for name, x in case.memory.items()}
    compute = COMPUTE_TYPES[case.problem.compute]
    scalars = {name: kernel_scalar(value, compute) for name, value in case.scalars.items()}
    event, keep = executable(queue, operands, scalars)
    after = np.empty_like(case.memory["out"].cells)
    device.read(queue, buffers["out"], after, wait_for=[event])
    for name, x in case.memory.items():
        if name != "out":
            now = np.empty_like(x.cells)
            device.read(queue, buffers[name], now)
            if now.tobytes() != x.cells.tobytes():
                raise VerificationError(f"{config} changed its input {name}")
    del keep
    return after


def check_case(device, config, case):
    """The Verdict on one case."""
    try:
        after = run_case(device, config, case)
    except VerificationError as error:
        return Verdict(str(error), None)
    return Verdict(*case.judge(after))


def check_sizes(config):
    """(m, n, k) that put a configuration's tile borders to the test, small first."""
    tiles = {"m": [], "n": [], "k": []}
    for name, value in config.parameters:
        for letter in tiles:
            if name.endswith(f"_{letter}") and isinstance(value, int):
                tiles[letter].append(value)
    one = {x: max(sizes, default=4) for x, sizes in tiles.items()}
    m, n, k = (min(one[x], 512) for x in "mnk")
    return ((m + 1, max(n - 1, 1), 2 * k + 1), (max(m - 1, 1), n + 1, k), (1, 1, 1))


def first_use_check(device, plan, executable):
    """Check a plan's programs once a machine, on small exact data; VerificationError if wrong.

    The result is remembered beside the programs on disk.
    """
    keys = [program.key for program in executable.programs]
    if all(program_cache.is_verified(key) for key in keys):
        return
    rng = np.random.default_rng(_CHECK_SEED)
    for data in ("ids_a", "ids_b", "exact"):
        for m, n, k in check_sizes(plan.config):
            case = cases.make_case(plan.kind, m, n, k, data, rng)
            try:
                verdict = check_case(device, plan.config, case)
            except ConfigError:
                continue  # this size is none that the configuration serves
            if verdict.fault:
                raise VerificationError(
                    f"{plan.config} on {device.profile.title} failed its first-use check "
                    f"({m}×{n}×{k}, {data}): {verdict.fault}"
                )
    for key in keys:
        program_cache.mark_verified(key)


def time_plan(device, executable, *, runs=5, min_seconds=0.0, max_seconds=60.0, peak_flops=None,
              seed=0):  # fmt: skip
    """Measure a built plan at its own size with random data in rotated device buffers."""
    plan = executable.plan
    problem = plan.problem
    queue = device.profiling_queue()
    rng = np.random.default_rng(seed)
    case = cases.make_case(
        problem.kind,
        problem.m,
        problem.n,
        problem.k,
        "random",
        rng,
        batch=problem.batch,
        with_result=False,
    )
    total = sum(x.cells.nbytes for x in case.memory.values())
    sets = rotation(total, device.profile.cache_bytes, device.profile.global_mem_bytes // 8)
    operands = [
        {name: (device.upload(x.cells), x.offset) for name, x in case.memory.items()}
        for _ in range(sets)
    ]
    compute = COMPUTE_TYPES[problem.compute]
    scalars = {name: kernel_scalar(value, compute) for name, value in case.scalars.items()}
    kept = []

    def run(i):
        events = []
        event, keep = executable(queue, operands[i % sets], scalars, record=events)
        kept[:] = [keep]
        return events[0], event

    return measure(
        run, problem.flops, runs=runs, min_seconds=min_seconds, max_seconds=max_seconds,
        peak_flops=peak_flops,
    )  # fmt: skip


def kernel_scalar(value, compute):
    """alpha or beta as a kernel argument of the accumulator's type; integers wrap."""
    host = np.dtype(compute.host)
    if host.kind == "u":
        return host.type(int(value) % 2 ** (8 * host.itemsize))
    return host.type(value)
