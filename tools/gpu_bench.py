"""Times configurations on a GPU beside cuBLAS (through torch), every output checked.

    python tools/gpu_bench.py                         chosen configurations at 1024, 2048, 4096
    python tools/gpu_bench.py --search --sizes 4096   a list of candidates, to choose from
    python tools/gpu_bench.py --shapes                matrix times vector, skinny, batched, small
    python tools/gpu_bench.py --config portable       what another vendor's device would get here
    python tools/gpu_bench.py --clblast LIBRARY       CLBlast with its defaults takes turns as well

Both sides multiply the same numbers. Candidates and cuBLAS take turns, and every other round the
turn order is reversed, because clocks fall with heat and whoever comes first reads better. A
sample of a round is the median of a few launches: device events on our side (from the start of a
product's first launch to the end of its last), CUDA events on cuBLAS's. Before each round the
outputs are filled with NaN, and after it samples of every output are compared with float64 sums
within the componentwise bound. CLBlast works on our queue and buffers and is timed between two
markers. The ratio printed is cuBLAS's time divided by ours in the same round (1 is level, more is
better): median, smallest and largest; and so for CLBlast's time.
"""

import argparse
import json
import os
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

from gpu_bench_cases import CHOSEN, SEARCHED, SHAPES, Product  # noqa: E402

from clmatmul import MatMul, bench_clblast  # noqa: E402
from clmatmul import device as devices  # noqa: E402
from clmatmul.bench_suites import Entry  # noqa: E402
from clmatmul.choose import choose  # noqa: E402
from clmatmul.config import TileConfig  # noqa: E402
from clmatmul.errors import ClmatmulError  # noqa: E402
from clmatmul.explanation import plain_problem  # noqa: E402
from clmatmul.walk import find_route  # noqa: E402

_LAUNCHES = 5  # of which a sample is the median
_CHECKED = 48  # rows and columns of each output that are checked against float64


@dataclass
class Candidate:
    """A configuration of one product: how to run it, its output, its samples (ns) by round."""

    config: TileConfig
    run: object  # () → events of the launches of one product
    out: object
    samples: list = field(default_factory=list)
    worst: float = 0.0  # largest |error| / allowed


@dataclass(frozen=True)
class Built:
    """What building a configuration for a product took, in a process of its own."""

    config: TileConfig | None
    product: Product
    seconds: float
    error: str


def problem_of(product):
    """The Problem of a product of whole, aligned arrays."""
    batch = (product.batch,) if product.batch > 1 else ()
    return plain_problem(product.m, product.n, product.k, product.dtype, product.layout, batch)


def portable_choice(product, profile):
    """What would be chosen without the kernels of one vendor."""
    choices = choose(problem_of(product), profile)
    return next(x.config for x in choices if not x.config.variant.startswith("nv_"))


def build_one(text, product):
    """Build and verify a configuration, so that the program cache has it; a `Built`."""
    import pyopencl as cl

    warnings.simplefilter("ignore", cl.CompilerWarning)
    start = time.perf_counter()
    config = None if text is None else TileConfig.parse(text)
    try:
        device = devices.device_of_queue(gpu_queue())
        find_route(device, problem_of(product), config)
    except ClmatmulError as error:
        return Built(config, product, 0.0, str(error).splitlines()[0])
    return Built(config, product, time.perf_counter() - start, "")


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


def operands_of(product, rng):
    """A and B as host arrays (batch…, m, k) and (batch…, k, n); T: a view of the transposed."""
    batch = (product.batch,) if product.batch > 1 else ()

    def one(rows, cols, letter):
        shape = (cols, rows) if letter == "T" else (rows, cols)
        x = rng.standard_normal(batch + shape).astype(product.dtype)
        return np.swapaxes(x, -1, -2) if letter == "T" else x

    return one(product.m, product.k, product.layout[0]), one(
        product.k, product.n, product.layout[1]
    )


class Peer:
    """cuBLAS through torch, on the same numbers; vectors as vectors."""

    def __init__(self, a, b):
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        self.torch = torch
        self.a, self.b = self._moved(a), self._moved(b)
        if a.shape[-2] == 1:
            self.a = self.a[..., 0, :]
        if b.shape[-1] == 1:
            self.b = self.b[..., 0]
        self.out = torch.matmul(self.a, self.b)
        self.samples = []

    def _moved(self, x):
        """On the device in the same layout."""
        if x.flags.c_contiguous:
            return self.torch.from_numpy(x).cuda()
        turned = np.swapaxes(x, -1, -2)
        return self.torch.from_numpy(turned).cuda().transpose(-1, -2)

    def sample(self):
        """Median time of a few products in ns, each between two events of its own."""
        events = []
        for _ in range(_LAUNCHES):
            pair = [self.torch.cuda.Event(enable_timing=True) for _ in range(2)]
            pair[0].record()
            self.torch.matmul(self.a, self.b, out=self.out)
            pair[1].record()
            events.append(pair)
        self.torch.cuda.synchronize()
        self.samples.append(statistics.median(x.elapsed_time(y) * 1e6 for x, y in events))


class Clblast:
    """CLBlast's product of the same arrays, on our queue, with an output of its own."""

    def __init__(self, library, queue, product, a, b, shape):
        batch = (product.batch,) if product.batch > 1 else ()
        self._library, self._queue = library, queue
        self._entry = Entry(
            product.m, product.n, product.k, product.dtype, product.layout, batch
        )  # fmt: skip
        self.out = to_device(queue, np.empty(shape, product.dtype))
        self._handles = devices.handles(queue, a.base_data, b.base_data, self.out.base_data)
        self.samples, self.worst = [], 0.0

    def sample(self):
        """Median time of a few products in ns, each between two markers."""
        import pyopencl as cl

        runs = []
        for _ in range(_LAUNCHES):
            before = cl.enqueue_marker(self._queue)
            bench_clblast.gemm(self._library, self._entry, *self._handles)
            runs.append((before, cl.enqueue_marker(self._queue)))
        self._queue.finish()
        self.samples.append(statistics.median(y.profile.end - x.profile.end for x, y in runs))


class Oracle:
    """Samples of the exact product, and how far a result may be from them."""

    def __init__(self, a, b, rng):
        m, k = a.shape[-2:]
        n = b.shape[-1]
        self.batches = [slice(None)]
        if a.ndim == 3:
            chosen = rng.choice(len(a), min(8, len(a)), replace=False)
            self.batches = [int(x) for x in np.union1d(chosen, [0, len(a) - 1])]
        rows = np.union1d(rng.choice(m, min(_CHECKED, m), replace=False), [0, m - 1])
        cols = np.union1d(rng.choice(n, min(_CHECKED, n), replace=False), [0, n - 1])
        self.at = np.ix_(rows, cols)
        self.value, self.allowed = [], []
        roundoff = np.finfo(a.dtype).eps / 2
        factor = min(k, 6 * k**0.5)
        # The oracle of a float64 product rounds as much itself.
        factor *= 2 if a.dtype == np.float64 else 1
        for i in self.batches:
            wide_a = a[i][rows].astype(np.float64)
            wide_b = b[i][:, cols].astype(np.float64)
            self.value.append(wide_a @ wide_b)
            self.allowed.append(factor * roundoff * (np.abs(wide_a) @ np.abs(wide_b)))

    def worst(self, result):
        """Largest error / allowed; inf if any element of the whole result is not finite."""
        if not np.isfinite(result).all():
            return float("inf")
        return max(
            float((np.abs(result[i][self.at] - value) / allowed).max())
            for i, value, allowed in zip(self.batches, self.value, self.allowed, strict=True)
        )


def candidate_of(queue, config, a, b, shape):
    """A Candidate whose runs go straight to the built launches."""
    out = to_device(queue, np.empty(shape, a.dtype))
    plan = MatMul(a, b, out, config=config)
    device = devices.device_of_queue(queue)
    executable = find_route(device, plan.problem, config).executable
    workspace = {x.name: device.allocate(x.bytes) for x in executable.plan.workspace}
    first, second = (b, a) if plan.problem.swapped else (a, b)
    operands = {"a": (first.base_data, 0), "b": (second.base_data, 0), "out": (out.base_data, 0)}

    def run():
        events = []
        executable(queue, operands, workspace=workspace, record=events)
        return events

    return Candidate(plan.config, run, out)


def run_product(queue, product, configs, rounds, rng, library=None):
    """Candidates and peers in turn; returns (candidates, cuBLAS, CLBlast or None)."""
    a, b = operands_of(product, rng)
    oracle, peer = Oracle(a, b, rng), Peer(a, b)
    device_a, device_b = to_device(queue, a), to_device(queue, b)
    shape = (*a.shape[:-1], b.shape[-1])
    found = [candidate_of(queue, each, device_a, device_b, shape) for each in configs]
    candidates = list({x.config: x for x in found}.values())
    clblast = library and Clblast(library, queue, product, device_a, device_b, shape)
    peers = [x for x in (peer, clblast) if x is not None]
    checked = [x for x in (*candidates, clblast) if x is not None]
    for turn in range(rounds + 1):  # the first warms up
        for x in checked:
            x.out.fill(np.nan)
        queue.finish()
        order = [*candidates, *peers]
        for x in order if turn % 2 else reversed(order):
            if x in peers:
                x.sample()
            else:
                sample(queue, x)
        for x in checked:
            x.worst = max(x.worst, oracle.worst(x.out.get()))
            if not x.worst <= 1:
                name = "CLBlast" if x is clblast else x.config
                raise SystemExit(f"gpu_bench: {name} is wrong for {product}")
    for x in (*candidates, *peers):
        del x.samples[0]
    return candidates, peer, clblast


def sample(queue, candidate):
    """Median time of a few products in ns, by device events."""
    runs = [candidate.run() for _ in range(_LAUNCHES)]
    queue.finish()
    candidate.samples.append(
        statistics.median(x[-1].profile.end - x[0].profile.start for x in runs)
    )


def ratios_of(peer, candidate):
    """Median, smallest and largest of the peer's time divided by ours, round by round."""
    ratios = [p / t for p, t in zip(peer.samples, candidate.samples, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def report(product, candidates, peer, clblast=None):
    """Print a table, best first; returns its rows as dicts."""
    rows = []
    base = statistics.median(peer.samples)
    spread = (max(peer.samples) - min(peer.samples)) / base
    print(f"\n{product}: cuBLAS {base / 1e3:.1f} µs, {product.flops / base / 1e3:.2f} TFLOP/s, "
          f"{product.least_bytes / base / 1e3:.2f} TB/s, spread {spread:.1%}")  # fmt: skip
    if clblast:
        theirs = statistics.median(clblast.samples)
        print(f"  CLBlast {theirs / 1e3:.1f} µs, {product.flops / theirs / 1e3:.2f} TFLOP/s")
    for c in sorted(candidates, key=lambda c: statistics.median(c.samples)):
        median = statistics.median(c.samples)
        ratio, low, high = ratios_of(peer, c)
        row = dict(
            product=str(product), config=str(c.config), microseconds=median / 1e3,
            peer_microseconds=base / 1e3, tflops=product.flops / median / 1e3,
            ratio=ratio, ratio_low=low, ratio_high=high, error=c.worst,
        )  # fmt: skip
        other = ""
        if clblast:
            row["clblast"] = ratios_of(clblast, c)
            other = "  CLBlast {:.3f} ({:.3f} to {:.3f})".format(*row["clblast"])
        rows.append(row)
        print(f"  {row['microseconds']:8.1f} µs  {ratio:.3f} ({low:.3f} to {high:.3f}){other}  "
              f"error {c.worst:.2f}  {short(c.config)}")  # fmt: skip
    return rows


def short(config):
    """A configuration on one short line."""
    if config is None or config.variant != "register_blocked":
        return "the library's choice" if config is None else str(config)
    v = config.values()
    return (
        f"{v['tile_m']}x{v['tile_n']}x{v['tile_k']} {v['micro_m']}x{v['micro_n']} "
        f"vector {v['vector_width']} prefetch {v['prefetch']} unroll {v['unroll']} "
        f"slices {v['slices']} group {v['group_rows']} splits {v['splits']}"
    )


def build_all(wanted, processes):
    """Build every (config, product) in worker processes; returns those that could be built."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(build_one, None if c is None else str(c), p) for c, p in wanted]
        done = [job.result() for job in jobs]
    for x in done:
        if x.error:
            print(f"  {x.product} {short(x.config)}: {x.error}")
    print(f"  {len(done)} built, the slowest in {max(x.seconds for x in done):.1f} s")
    return {(x.config, x.product) for x in done if not x.error}


def wanted_products(options, profile):
    """product → configurations to time for it."""

    def given(text, product):
        if text == "portable":
            return portable_choice(product, profile)
        return None if text == "choice" else TileConfig.parse(text)

    if options.shapes:
        table = {p: (None, *configs) for p, configs in SHAPES.items() if p.dtype in options.dtypes}
    else:
        configs = SEARCHED if options.search else CHOSEN
        table = {
            Product(dtype, n, n, n): configs[dtype]
            for dtype in options.dtypes
            for n in options.sizes
        }
    texts = options.config or ()
    return {p: [given(x, p) for x in texts] or configs for p, configs in table.items()}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"], choices=CHOSEN)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--search", action="store_true", help="time all candidates")
    parser.add_argument("--shapes", action="store_true", help="time the other shapes")
    parser.add_argument(
        "--config", action="append",
        help="time these configurations instead ('choice': our own; 'portable': without the "
             "kernels of one vendor)",
    )  # fmt: skip
    parser.add_argument("--clblast", metavar="LIBRARY", help="CLBlast's file; it takes turns too")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args(arguments)

    queue = gpu_queue()
    import torch

    print(f"{queue.device.name}, driver {queue.device.driver_version}, torch {torch.__version__}, "
          f"{time.strftime('%Y-%m-%d')}\nbuilding:")  # fmt: skip
    library = bench_clblast.load(options.clblast) if options.clblast else None
    table = wanted_products(options, devices.device_of_queue(queue).profile)
    built = build_all([(c, p) for p in table for c in table[p]], options.processes)
    rows = []
    for product, configs in table.items():
        rng = np.random.default_rng(product.k)
        usable = [c for c in configs if (c, product) in built]
        run = run_product(queue, product, usable, options.rounds, rng, library)
        rows += report(product, *run)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
