"""Times products on an NVIDIA GPU beside cuBLAS (through torch), every output checked whole.

    python tools/peer_bench.py jobs.json --json $OUT/rows.json
    python tools/peer_bench.py public.csv --processes 15 --json $OUT/rows.json

public.csv: shapes, a line each: name,batch,m,n,k,transpose_a,transpose_b (that is the header);
each is run in float32 and bfloat16, two rounds. jobs.json is a list of objects: dtype, m, n, k, and
where they differ from the usual: batch, layout (NN), out (the output's dtype), precision, epilogue
(gelu: bias and GELU), configs (a list; "" is the package's own choice), rounds.

Ours and cuBLAS take turns, and every other round the order is reversed, because clocks fall with
heat and whoever comes first reads better. A sample of a round is the median of a few products:
from the start of a product's first launch to the end of its last by device events on our side,
between two CUDA events on cuBLAS's, or, for products of less than about 0.1 ms, a replayed graph
of 20 of them divided by 20, so that no time to submit them is counted. `ratio_events` has events
between single calls of theirs for these too, so that what submitting takes counts. `span` is the
time of a product as an application sees it: many are called one after another from Python, ours a
prepared MatMul of arrays on the device, theirs torch.mm (bmm) with an output, and then waited for
once, by the wall clock. PyOpenCL's launches leave an event at the arrays, torch's do not: `bare` is
as `span`, with MatMul(…, events=False). Before each round the output is filled with 0xff bytes;
after the first and the last every element is compared with a float64 product within the
componentwise bound. A ratio is cuBLAS's time divided by ours in the same round: 1 is level, more is
better.
"""

import argparse
import csv
import json
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from clmatmul import Epilogue, MatMul, selection  # noqa: E402
from clmatmul import device as devices  # noqa: E402
from clmatmul.config import TileConfig  # noqa: E402
from clmatmul.device_arrays import array_over  # noqa: E402
from clmatmul.element_types import ELEMENT_TYPES  # noqa: E402
from clmatmul.errors import ClmatmulError  # noqa: E402
from clmatmul.problem import ArrayView, Problem  # noqa: E402
from clmatmul.walk import find_route  # noqa: E402

_ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_GRAPH, _SHORT_NS = 20, 1e5
_SPAN_NS = 1e7  # of calls one after another, about
_OPERAND_ROUNDOFF = {"high": 2.0**-11, "medium": 2.0**-8}


@dataclass
class Job:
    """One product, and what is known of it: times in ns of each round."""

    dtype: str
    m: int
    n: int
    k: int
    batch: int = 1
    layout: str = "NN"
    out: str = ""
    precision: str = "highest"
    epilogue: str = ""
    configs: list = field(default_factory=lambda: [""])
    rounds: int = 10
    name: str = ""
    peer: list = field(default_factory=list)
    peer_events: list = field(default_factory=list)
    peer_span: list = field(default_factory=list)

    def __post_init__(self):
        plain = {"bfloat16": "bfloat16", "int8": "int32"}
        self.out = self.out or plain.get(self.dtype, self.dtype)

    @property
    def flops(self):
        return 2 * self.batch * self.m * self.n * self.k

    def problem(self):
        lead = (self.batch,) if self.batch > 1 else ()

        def view(dtype, rows, cols, letter):
            strides = (cols, 1) if letter == "N" else (1, rows)
            return ArrayView(
                dtype, (*lead, rows, cols), (*(rows * cols for _ in lead), *strides), 0, 64
            )

        result = {"bfloat16": "float32", "int8": "int32"}.get(self.dtype, self.dtype)
        extra = {}
        if self.epilogue:
            bias = ArrayView(self.dtype, (self.n,), (1,), 0, 64)
            extra["epilogue"] = {"bias": bias, "activation": "gelu"}
        return Problem.from_arrays(
            view(self.dtype, self.m, self.k, self.layout[0]),
            view(self.dtype, self.k, self.n, self.layout[1]),
            view(self.out, self.m, self.n, "N"),
            result=result, precision=self.precision, **extra,
        )  # fmt: skip


@dataclass
class Candidate:
    """A configuration of ours at a job."""

    config: str
    origin: str
    executable: object
    out: object
    plan: object = None  # the MatMul, another without events, and their arrays
    bare_plan: object = None
    arrays: tuple = ()
    samples: list = field(default_factory=list)
    spans: list = field(default_factory=list)
    bare_spans: list = field(default_factory=list)
    worst: float = 0.0
    built_s: float = 0.0

    def call(self):
        self.plan(*self.arrays)

    def bare_call(self):
        self.bare_plan(*self.arrays)


class Bench:
    def __init__(self, device, seconds):
        import torch

        self.torch = torch
        self.device = device
        self.queue = device.profiling_queue()
        self.plain_queue = device.queue()
        self.until = time.perf_counter() + seconds

    def types(self, name):
        t = self.torch
        return {"float32": t.float32, "float64": t.float64, "float16": t.float16,
                "bfloat16": t.bfloat16, "int8": t.int8, "int32": t.int32}[name]  # fmt: skip

    def operands(self, job):
        """(a, b, bias) as torch has them: (batch,) rows, columns, laid out as the job says."""
        t = self.torch
        t.manual_seed(1)
        lead = (job.batch,) if job.batch > 1 else ()

        def make(rows, cols, letter):
            shape = (*lead, rows, cols) if letter == "N" else (*lead, cols, rows)
            if job.dtype == "int8":
                x = t.randint(-128, 127, shape, device="cuda", dtype=t.int8)
            else:
                wide = t.float64 if job.dtype == "float64" else t.float32
                x = t.randn(shape, device="cuda", dtype=wide).to(self.types(job.dtype))
            return x if letter == "N" else x.mT

        a, b = make(job.m, job.k, job.layout[0]), make(job.k, job.n, job.layout[1])
        bias = t.randn((job.n,), device="cuda").to(self.types(job.dtype)) if job.epilogue else None
        return a, b, bias

    def upload(self, x):
        flat = (x if x.is_contiguous() else x.mT).contiguous().view(self.torch.uint8)
        return self.device.upload(flat.cpu().numpy().reshape(-1))

    def oracle(self, job, a, b, bias):
        """(value, allowed error) in float64, on the GPU."""
        t = self.torch
        value = a.double() @ b.double()
        if job.dtype == "int8":
            return value, None
        allowed = a.double().abs() @ b.double().abs()
        accumulate = 2.0**-53 if job.dtype == "float64" else 2.0**-24
        factor = min(job.k, 6 * job.k**0.5) * accumulate * (2 if job.dtype == "float64" else 1)
        # tensor cores add with a few bits less than float32's, in groups
        if job.dtype in ("float16", "bfloat16"):
            factor *= 2
        factor += 2 * _OPERAND_ROUNDOFF.get(job.precision, 0)
        if job.epilogue:
            value = t.nn.functional.gelu(value + bias.double())
        return value, factor * allowed + 2 * _ROUNDOFF[job.out] * value.abs()

    def peer(self, job, a, b, bias):
        """A function that lets cuBLAS do it once."""
        t = self.torch
        t.backends.cuda.matmul.allow_tf32 = job.precision != "highest"
        lead = (job.batch,) if job.batch > 1 else ()
        if job.dtype == "int8":
            right = b if job.layout[1] == "T" else b.mT.contiguous().mT
            return lambda: t._int_mm(a, right)
        out = t.empty((*lead, job.m, job.n), device="cuda", dtype=self.types(job.out))
        product = t.bmm if lead else t.mm
        return lambda: product(a, b, out=out)

    def graph(self, call):
        """A function that replays 20 calls which were recorded once."""
        t = self.torch
        graph = t.cuda.CUDAGraph()
        with t.cuda.graph(graph):
            for _ in range(_GRAPH):
                call()
        return graph.replay

    def sample_peer(self, call, launches, graph=None):
        if graph is not None:
            return self.sample_peer(graph, 5) / _GRAPH
        t = self.torch
        events = [t.cuda.Event(enable_timing=True) for _ in range(launches + 1)]
        events[0].record()
        for event in events[1:]:
            call()
            event.record()
        t.cuda.synchronize()
        return statistics.median(
            x.elapsed_time(y) * 1e6 for x, y in zip(events, events[1:], strict=False)
        )

    def sample_ours(self, candidate, operands, launches):
        operands = {**operands, "out": (candidate.out, 0)}
        runs = []
        for _ in range(launches):
            record = []
            candidate.executable(self.queue, operands, {}, record=record)
            runs.append(record)
        self.queue.finish()
        ends = [(devices.event_times(r[0])[0], devices.event_times(r[-1])[1]) for r in runs]
        return statistics.median(end - start for start, end in ends)

    def span(self, call, finish, calls):
        """ns a call, of so many one after another."""
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        finish()
        return (time.perf_counter_ns() - start) / calls

    def check(self, job, candidate, value, allowed):
        """Largest error divided by what is allowed; inf where something is not finite."""
        host = np.empty(value.numel() * ELEMENT_TYPES[job.out].itemsize, np.uint8)
        self.device.read(self.queue, candidate.out, host)
        result = self.torch.from_numpy(host).cuda().view(self.types(job.out)).view(value.shape)
        if allowed is None:
            return 0.0 if bool((result.double() == value).all()) else float("inf")
        if not bool(self.torch.isfinite(result).all()):
            return float("inf")
        return float(((result.double() - value).abs() / allowed).max())

    def fill(self, candidate):
        import pyopencl as cl

        cl.enqueue_fill_buffer(self.queue, candidate.out, np.uint8(0xFF), 0, candidate.out.size)

    def array(self, buffer, dtype, job, rows, cols, letter="N"):
        """A pyopencl array over a buffer, on the ordinary queue."""
        dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
        lead = (job.batch,) if job.batch > 1 else ()
        strides = (cols, 1) if letter == "N" else (1, rows)
        strides = [x * dtype.itemsize for x in (*(rows * cols for _ in lead), *strides)]
        return array_over(self.plain_queue, buffer, (*lead, rows, cols), dtype, strides)

    def prepare(self, job, candidate, operands):
        """The prepared product of arrays that a candidate's spans are of."""
        a = self.array(operands["a"][0], job.dtype, job, job.m, job.k, job.layout[0])
        b = self.array(operands["b"][0], job.dtype, job, job.k, job.n, job.layout[1])
        out = self.array(candidate.out, job.out, job, job.m, job.n)
        keywords = {"precision": job.precision, "dtype": "int32" if job.dtype == "int8" else None}
        if job.epilogue:
            bias = array_over(
                self.plain_queue, operands["bias"][0], (job.n,), a.dtype, (a.dtype.itemsize,)
            )
            keywords["epilogue"] = Epilogue(bias=bias, activation="gelu")
        candidate.plan = MatMul(a, b, out, config=candidate.config, **keywords)
        candidate.bare_plan = MatMul(a, b, out, config=candidate.config, events=False, **keywords)
        candidate.arrays = (a, b, out)

    def candidates(self, job):
        problem = job.problem()
        size = job.batch * job.m * job.n * ELEMENT_TYPES[job.out].itemsize
        for config in job.configs:
            start = time.perf_counter()
            try:
                forced = TileConfig.parse(config) if config else None
                route = find_route(self.device, problem, forced)
            except ClmatmulError as error:
                print(f"    {config}: {str(error)[:300]}", flush=True)
                continue
            for choice, why in route.passed_over:
                print(f"    passed over {choice.config}: {why[:200]}", flush=True)
            out = self.device.allocate(size)
            yield Candidate(
                str(route.choice.config), route.choice.origin, route.executable, out,
                built_s=time.perf_counter() - start,
            )  # fmt: skip

    def run(self, job):
        """The rows of a job, as dicts; prints a line each."""
        found = list(self.candidates(job))
        a, b, bias = self.operands(job)
        value, allowed = self.oracle(job, a, b, bias)
        call = self.peer(job, a, b, bias)
        operands = {"a": (self.upload(a), 0), "b": (self.upload(b), 0)}
        if bias is not None:
            operands["bias"] = (self.upload(bias), 0)
        assert not job.problem().swapped
        for candidate in list(found):
            self.fill(candidate)
            self.sample_ours(candidate, operands, 1)
            candidate.worst = self.check(job, candidate, value, allowed)
            if candidate.worst <= 1:
                self.prepare(job, candidate, operands)
            else:
                print(f"    WRONG ({candidate.worst:.3g}): {candidate.config}", flush=True)
                found.remove(candidate)
        call()
        short = self.sample_peer(call, 5) < _SHORT_NS and job.dtype != "int8"
        graph = self.graph(call) if short else None
        launches = 3 if job.flops > 4e11 else 5 if job.flops > 2e10 else 20
        for turn in range(job.rounds + 1):
            order = [*found, None]
            for x in order if turn % 2 else reversed(order):
                if x is None:
                    once = self.sample_peer(call, launches, graph)
                    calls = int(min(max(_SPAN_NS / once, 3), 300))
                    job.peer.append(once)
                    job.peer_events.append(self.sample_peer(call, launches) if graph else once)
                    job.peer_span.append(self.span(call, self.torch.cuda.synchronize, calls))
                else:
                    self.fill(x)
                    self.queue.finish()
                    once = self.sample_ours(x, operands, launches)
                    calls = int(min(max(_SPAN_NS / once, 3), 300))
                    x.samples.append(once)
                    x.spans.append(self.span(x.call, self.plain_queue.finish, calls))
                    x.bare_spans.append(self.span(x.bare_call, self.plain_queue.finish, calls))
        rows = []
        for x in found:
            x.worst = max(x.worst, self.check(job, x, value, allowed))
            rows.append(self.row(job, x))
        return rows

    def row(self, job, x):
        peer, ours = job.peer[1:], x.samples[1:]
        ratios = [p / t for p, t in zip(peer, ours, strict=True)]
        events = [p / t for p, t in zip(job.peer_events[1:], ours, strict=True)]
        span = [p / t for p, t in zip(job.peer_span[1:], x.spans[1:], strict=True)]
        bare = [p / t for p, t in zip(job.peer_span[1:], x.bare_spans[1:], strict=True)]
        median = statistics.median(ours)
        row = dict(
            name=job.name, dtype=job.dtype, batch=job.batch, m=job.m, n=job.n, k=job.k,
            layout=job.layout, out=job.out, precision=job.precision, epilogue=job.epilogue,
            config=x.config, origin=x.origin, us=median / 1e3,
            peer_us=statistics.median(peer) / 1e3, tflops=job.flops / median / 1e3,
            peer_tflops=job.flops / statistics.median(peer) / 1e3,
            ratio=statistics.median(ratios), low=min(ratios), high=max(ratios),
            ratio_events=statistics.median(events),
            peer_events_us=statistics.median(job.peer_events[1:]) / 1e3,
            ratio_span=statistics.median(span), span_us=statistics.median(x.spans[1:]) / 1e3,
            peer_span_us=statistics.median(job.peer_span[1:]) / 1e3,
            ratio_bare=statistics.median(bare), bare_us=statistics.median(x.bare_spans[1:]) / 1e3,
            error=x.worst,
            built_s=round(x.built_s, 2),
        )  # fmt: skip
        print(
            f"{job.dtype[:8]} {job.batch}x{job.m}x{job.n}x{job.k} {job.layout} {job.epilogue}"
            f"{'' if job.precision == 'highest' else job.precision} {row['us']:.1f} us "
            f"{row['tflops']:.1f}/{row['peer_tflops']:.1f} TF ratio {row['ratio']:.3f} "
            f"({row['low']:.2f}-{row['high']:.2f}) span {row['span_us']:.1f}/"
            f"{row['peer_span_us']:.1f} {row['ratio_span']:.3f} bare {row['bare_us']:.1f} "
            f"{row['ratio_bare']:.3f} events {row['ratio_events']:.2f} "
            f"err {x.worst:.2f} {x.config}{' [' + x.origin + ']' if x.origin != 'forced' else ''} "
            f"{x.built_s:.1f}s", flush=True,
        )  # fmt: skip
        return row


def build(entries, probes):
    """Build and check what jobs need, into the cache of programs; for a process of its own."""
    device = selection.resolve()
    device.learn(probes)
    for entry in entries:
        job = Job(**entry)
        for config in job.configs:
            try:
                find_route(device, job.problem(), TileConfig.parse(config) if config else None)
            except ClmatmulError as error:
                print(f"    {config}: {str(error)[:200]}", flush=True)


def build_all(entries, probes, processes):
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for job in [pool.submit(build, entries[i::processes], probes) for i in range(processes)]:
            job.result()


def read_jobs(file):
    """The jobs of a JSON file, or those that a list of shapes stands for."""
    if file.suffix != ".csv":
        return json.loads(file.read_text())
    with file.open(newline="") as lines:
        shapes = list(csv.DictReader(lines))
    return [
        dict(
            name=x["name"], dtype=dtype, rounds=2,
            layout="NT"[int(x["transpose_a"])] + "NT"[int(x["transpose_b"])],
            **{size: int(x[size]) for size in ("batch", "m", "n", "k")},
        )
        for x in shapes for dtype in ("float32", "bfloat16")
    ]  # fmt: skip


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("jobs", type=Path, help="a JSON file or a list of shapes, see above")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--seconds", type=float, default=500, help="begin no job after this")
    parser.add_argument("--probe", action="append", default=[], help="NAME=VALUE, taken as found")
    parser.add_argument("--processes", type=int, default=1, help="that build beforehand")
    options = parser.parse_args(arguments)
    entries = read_jobs(options.jobs)
    probes = {x.split("=")[0]: int(x.split("=")[1]) for x in options.probe}
    start = time.perf_counter()
    if options.processes > 1:
        build_all(entries, probes, options.processes)
        print(f"built in {time.perf_counter() - start:.1f} s", flush=True)
    device = selection.resolve()
    device.learn(probes)
    import torch

    print(f"{device.profile.title}, driver {device.profile.driver_version}, torch "
          f"{torch.__version__}, {time.strftime('%Y-%m-%d %H:%M')}, probes {device.profile.probes}",
          flush=True)  # fmt: skip
    bench, rows = Bench(device, options.seconds), []
    for entry in entries:
        if time.perf_counter() > bench.until:
            print("out of time")
            break
        job = Job(**entry)
        try:
            rows += bench.run(job)
        except Exception as error:
            print(f"    {entry}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            if "INVALID_COMMAND_QUEUE" in str(error) or "OUT_OF_RES" in str(error):
                break  # the context is lost
        torch.cuda.empty_cache()
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
