"""Times configurations on a GPU beside cuBLAS (through torch), every output checked.

    python tools/gpu_bench.py                         chosen configurations at 1024, 2048, 4096
    python tools/gpu_bench.py --search --sizes 4096   a list of candidates, to choose from

Both sides multiply the same numbers. Candidates and cuBLAS take turns, and every other round the
turn order is reversed, because clocks fall with heat and whoever comes first reads better. A
sample of a round is the median of a few launches: device events on our side, CUDA events on
cuBLAS's. Before each round the outputs are filled with NaN, and after it samples of every output
are compared with float64 sums within the componentwise bound. The ratio printed is cuBLAS's time
divided by ours in the same round (1 is level, more is better): median, smallest and largest.
"""

import argparse
import json
import os
import re
import statistics
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from clmatmul import MatMul  # noqa: E402
from clmatmul.config import TileConfig  # noqa: E402
from clmatmul.errors import ClmatmulError  # noqa: E402

_LAUNCHES = 5  # of which a sample is the median
_CHECKED = 48  # rows and columns of each output that are checked against float64
_VERBOSE = "-cl-nv-verbose"  # makes this compiler say how many registers a kernel takes


def config(tile_m, tile_n, tile_k, micro_m, micro_n, **more):
    """A configuration of register_blocked, in the order in which people write tiles."""
    values = dict(vector_width=4, prefetch=1, unroll=16, group_rows=8)
    values.update(more)
    values["unroll"] = min(values["unroll"], tile_k)
    return TileConfig.of(
        "register_blocked", tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, micro_m=micro_m,
        micro_n=micro_n, **values,
    )  # fmt: skip


CHOSEN = {
    "float32": (
        config(64, 128, 16, 8, 8),
        config(64, 64, 16, 8, 8),
        config(128, 128, 16, 16, 8, unroll=4),
        config(32, 64, 16, 4, 4),
    ),
    "float64": (
        config(64, 64, 8, 8, 8, vector_width=2, prefetch=0),
        config(64, 64, 16, 8, 4, vector_width=2),
        config(64, 64, 8, 8, 4, vector_width=2),
        config(32, 64, 16, 4, 4, vector_width=2),
    ),
}
SEARCHED = {
    "float32": (
        config(128, 128, 16, 16, 8),
        config(128, 128, 16, 16, 8, group_rows=1),
        config(128, 128, 16, 16, 8, unroll=4),
        config(128, 128, 16, 16, 8, prefetch=0),
        config(128, 128, 8, 16, 8),
        config(64, 128, 16, 8, 8),
        config(64, 128, 16, 8, 8, group_rows=1),
        config(64, 128, 16, 8, 8, unroll=8),
        config(64, 128, 16, 8, 8, prefetch=0),
        config(64, 128, 16, 8, 8, prefetch=0, unroll=4),
        config(64, 128, 8, 8, 8),
        config(128, 64, 16, 8, 8),
        config(128, 128, 16, 8, 8),
        config(128, 128, 16, 8, 8, prefetch=0),
        config(128, 128, 8, 8, 8, prefetch=0, unroll=4),
        config(128, 64, 16, 16, 8),
        config(64, 128, 16, 16, 8),
        config(64, 64, 16, 8, 8),
        config(64, 64, 16, 8, 4),
        config(64, 64, 16, 4, 4),
        config(64, 64, 8, 8, 4),
        config(32, 64, 16, 4, 4),
        config(32, 32, 16, 4, 4),
    ),
    "float64": (
        config(64, 64, 8, 8, 4, vector_width=2),
        config(64, 64, 16, 8, 4, vector_width=2),
        config(64, 64, 16, 8, 4, vector_width=2, prefetch=0),
        config(64, 64, 8, 8, 8, vector_width=2, prefetch=0),
        config(64, 64, 16, 4, 4, vector_width=2),
        config(64, 64, 16, 4, 4, vector_width=2, prefetch=0),
        config(64, 64, 8, 4, 8, vector_width=2),
        config(64, 64, 8, 8, 4, vector_width=4),
        config(128, 64, 8, 8, 4, vector_width=2),
        config(128, 64, 8, 8, 4, vector_width=2, prefetch=0),
        config(128, 128, 8, 8, 8, vector_width=2, prefetch=0),
        config(32, 64, 16, 4, 4, vector_width=2),
    ),
}


@dataclass
class Candidate:
    """A configuration at one size: plan, output, and its samples (ns) of each round."""

    config: TileConfig
    plan: object
    out: object
    samples: list = field(default_factory=list)
    worst: float = 0.0  # largest |error| / allowed


@dataclass(frozen=True)
class Built:
    """What building a configuration took, in a process of its own."""

    config: TileConfig
    dtype: str
    seconds: float
    lines: int
    registers: str
    error: str


def build_one(text, dtype):
    """Build and verify a configuration, so that the program cache has it; a `Built`."""
    import pyopencl as cl

    warnings.simplefilter("ignore", cl.CompilerWarning)  # the words it says are what we want
    start = time.perf_counter()
    queue = gpu_queue()
    try:
        a, out = np.zeros((256, 256), dtype), None
        a, out = to_device(queue, a), to_device(queue, a)
        plan = MatMul(a, a, out, config=text)
        source = plan.source
        program = cl.Program(queue.context, source).build(["-cl-std=CL1.2", _VERBOSE])
        log = program.get_build_info(queue.device, cl.program_build_info.LOG)
    except ClmatmulError as error:
        return Built(TileConfig.parse(text), dtype, 0.0, 0, "", str(error).splitlines()[0])
    seconds = time.perf_counter() - start
    said = re.findall(r"Used \d+ registers|\d+ bytes spill stores", log)
    return Built(
        TileConfig.parse(text), dtype, seconds, source.count("\n"),
        ", ".join(said).replace("Used ", ""), "",
    )  # fmt: skip


def gpu_queue():
    """A profiling queue on the first GPU."""
    import pyopencl as cl

    for platform in cl.get_platforms():
        for device in platform.get_devices(cl.device_type.GPU):
            context = cl.Context([device])
            profiling = cl.command_queue_properties.PROFILING_ENABLE
            return cl.CommandQueue(context, device, properties=profiling)
    raise SystemExit("gpu_bench: there is no OpenCL GPU")


def to_device(queue, array):
    from pyopencl.array import to_device

    return to_device(queue, array)


class Peer:
    """cuBLAS through torch, on the same numbers."""

    def __init__(self, a, b):
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        self.torch = torch
        self.a, self.b = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
        self.out = torch.empty((a.shape[0], b.shape[1]), dtype=self.a.dtype, device="cuda")
        self.samples = []

    def sample(self):
        """Median time of a few products in ns, each between two events of its own."""
        events = []
        for _ in range(_LAUNCHES):
            pair = [self.torch.cuda.Event(enable_timing=True) for _ in range(2)]
            pair[0].record()
            self.torch.mm(self.a, self.b, out=self.out)
            pair[1].record()
            events.append(pair)
        self.torch.cuda.synchronize()
        self.samples.append(statistics.median(x.elapsed_time(y) * 1e6 for x, y in events))


class Oracle:
    """Samples of the exact product, and how far a result may be from them."""

    def __init__(self, a, b, rng):
        m, k = a.shape
        n = b.shape[1]
        rows = np.union1d(rng.choice(m, min(_CHECKED, m), replace=False), [0, m - 1])
        cols = np.union1d(rng.choice(n, min(_CHECKED, n), replace=False), [0, n - 1])
        self.at = np.ix_(rows, cols)
        wide_a, wide_b = a[rows].astype(np.float64), b[:, cols].astype(np.float64)
        self.value = wide_a @ wide_b
        roundoff = np.finfo(a.dtype).eps / 2
        factor = min(k, 6 * k**0.5)
        # The oracle of a float64 product rounds as much itself.
        factor *= 2 if a.dtype == np.float64 else 1
        self.allowed = factor * roundoff * (np.abs(wide_a) @ np.abs(wide_b))

    def worst(self, result):
        """Largest error / allowed; inf if any element of the whole result is not finite."""
        if not np.isfinite(result).all():
            return float("inf")
        return float((np.abs(result[self.at] - self.value) / self.allowed).max())


def run_size(queue, dtype, n, configs, rounds, rng):
    """Candidates and peer in turn; returns (candidates, peer)."""
    a, b = (rng.standard_normal((n, n)).astype(dtype) for _ in range(2))
    oracle, peer = Oracle(a, b, rng), Peer(a, b)
    device_a, device_b = to_device(queue, a), to_device(queue, b)
    candidates = []
    for each in configs:
        out = to_device(queue, np.empty((n, n), dtype))
        candidates.append(Candidate(each, MatMul(device_a, device_b, out, config=each), out))
    for turn in range(rounds + 1):  # the first warms up
        for candidate in candidates:
            candidate.out.fill(np.nan)
        queue.finish()
        order = [*candidates, peer]
        for x in order if turn % 2 else reversed(order):
            if x is peer:
                peer.sample()
            else:
                sample(queue, x, device_a, device_b)
        for candidate in candidates:
            candidate.worst = max(candidate.worst, oracle.worst(candidate.out.get()))
            if not candidate.worst <= 1:
                raise SystemExit(f"gpu_bench: {candidate.config} is wrong at {n}, {dtype}")
    for x in (*candidates, peer):
        del x.samples[0]
    return candidates, peer


def sample(queue, candidate, a, b):
    """Median time of a few launches in ns, by device events."""
    events = []
    for _ in range(_LAUNCHES):
        candidate.plan(a, b, candidate.out)
        events.append(candidate.out.events[-1])
    queue.finish()
    candidate.samples.append(statistics.median(e.profile.end - e.profile.start for e in events))


def report(dtype, n, candidates, peer):
    """Print a table, best first; returns its rows as dicts."""
    rows = []
    flops = 2 * n**3
    base = statistics.median(peer.samples)
    spread = (max(peer.samples) - min(peer.samples)) / base
    print(f"\n{dtype} {n}: cuBLAS {flops / base / 1e3:.2f} TFLOP/s, spread {spread:.1%}")
    for c in sorted(candidates, key=lambda c: statistics.median(c.samples)):
        ratios = [p / t for p, t in zip(peer.samples, c.samples, strict=True)]
        median = statistics.median(c.samples)
        row = dict(
            dtype=dtype, size=n, config=str(c.config), tflops=flops / median / 1e3,
            peer_tflops=flops / base / 1e3, ratio=statistics.median(ratios),
            ratio_low=min(ratios), ratio_high=max(ratios), error=c.worst,
        )  # fmt: skip
        rows.append(row)
        print(f"  {row['tflops']:7.2f} TFLOP/s  {row['ratio']:.3f} ({row['ratio_low']:.3f} to "
              f"{row['ratio_high']:.3f})  error {c.worst:.2f}  {short(c.config)}")  # fmt: skip
    return rows


def short(config):
    """A configuration on one short line."""
    v = config.values()
    if config.variant != "register_blocked":
        return str(config)
    return (
        f"{v['tile_m']}x{v['tile_n']}x{v['tile_k']} {v['micro_m']}x{v['micro_n']} "
        f"vector {v['vector_width']} prefetch {v['prefetch']} unroll {v['unroll']} "
        f"group {v['group_rows']}"
    )


def build_all(wanted, processes):
    """Build every (config, dtype) in worker processes; prints a line each, returns those built."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(build_one, str(c), dtype) for c, dtype in wanted]
        done = [job.result() for job in jobs]
    for x in done:
        said = x.error or f"{x.seconds:5.1f} s twice, {x.lines} lines, {x.registers}"
        print(f"  {x.dtype} {short(x.config)}: {said}")
    return {(x.config, x.dtype) for x in done if not x.error}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"], choices=CHOSEN)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--search", action="store_true", help="time all candidates")
    parser.add_argument("--config", action="append", help="time these configurations instead")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args(arguments)

    table = SEARCHED if options.search else CHOSEN
    if options.config:
        table = {dtype: [TileConfig.parse(x) for x in options.config] for dtype in CHOSEN}
    queue = gpu_queue()
    import torch

    print(f"{queue.device.name}, driver {queue.device.driver_version}, torch {torch.__version__}, "
          f"{time.strftime('%Y-%m-%d')}\nbuilding:")  # fmt: skip
    built = build_all([(c, d) for d in options.dtypes for c in table[d]], options.processes)
    rows = []
    for dtype in options.dtypes:
        configs = [c for c in table[dtype] if (c, dtype) in built]
        for n in options.sizes:
            rng = np.random.default_rng(n)
            found = run_size(queue, dtype, n, configs, options.rounds, rng)
            rows += report(dtype, n, *found)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
