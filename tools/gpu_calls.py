"""What a call costs on a GPU: prepared products beside torch's eager ones, and NumPy in and out.

    python tools/gpu_calls.py                       both
    python tools/gpu_calls.py --second              what a second launch costs (k in parts)
    python tools/gpu_calls.py --eager 64 128 256    products a second apart from the arithmetic
    python tools/gpu_calls.py --host 8192           NumPy in, NumPy out, and what it is made of

Eager: a few hundred calls one after another, then one wait; ours a prepared MatMul of arrays on
the device, theirs torch.mm with an output. They take turns, in reversed order every other round;
every output is checked. Host: the whole call by the wall clock, and its parts alone: copies
between the arrays and pinned memory, copies between pinned memory and the device, the launches.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from clmatmul import MatMul, matmul, staging  # noqa: E402
from clmatmul import device as devices  # noqa: E402
from clmatmul.selection import resolve  # noqa: E402
from clmatmul.walk import find_route  # noqa: E402

_CALLS = 300
_ROUNDS = 12


def check(result, a, b, what):
    """SystemExit if a sample of a product is not what float64 gives."""
    rows = np.linspace(0, len(a) - 1, 40).astype(int)
    exact = a[rows].astype(np.float64) @ b.astype(np.float64)
    bound = 6 * a.shape[1] ** 0.5 * 2.0**-24 * (np.abs(a[rows]) @ np.abs(b))
    if not np.isfinite(result).all() or (np.abs(result[rows] - exact) > bound).any():
        raise SystemExit(f"gpu_calls: {what} is wrong")


def eager(sizes):
    """Microseconds a call of ours and of torch's, and their ratio."""
    import pyopencl as cl
    import pyopencl.array as cl_array
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    device = resolve("gpu")
    queue = cl.CommandQueue(device.context, device.cl_device)
    for n in sizes:
        rng = np.random.default_rng(n)
        a, b = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(2))
        ours = [cl_array.to_device(queue, x) for x in (a, b, np.zeros_like(a))]
        theirs = [torch.from_numpy(x).cuda() for x in (a, b, np.zeros_like(a))]
        plan = MatMul(*ours)

        def call_ours(plan=plan, x=ours):
            for _ in range(_CALLS):
                plan(x[0], x[1], x[2])
            queue.finish()

        def call_theirs(x=theirs):
            for _ in range(_CALLS):
                torch.mm(x[0], x[1], out=x[2])
            torch.cuda.synchronize()

        times = {call_ours: [], call_theirs: []}
        for turn in range(_ROUNDS + 1):
            order = list(times)
            for call in order if turn % 2 else reversed(order):
                start = time.perf_counter()
                call()
                times[call].append((time.perf_counter() - start) / _CALLS * 1e6)
        mine, torchs = (x[1:] for x in times.values())
        check(ours[2].get(), a, b, f"our {n}")
        check(theirs[2].cpu().numpy(), a, b, f"torch's {n}")
        ratios = [y / x for x, y in zip(mine, torchs, strict=True)]
        print(f"eager float32 {n}³: ours {statistics.median(mine):.2f} µs, torch "
              f"{statistics.median(torchs):.2f} µs, {statistics.median(ratios):.2f} "
              f"({min(ratios):.2f} to {max(ratios):.2f})  {plan.config}")  # fmt: skip


def second():
    """What splitting k costs: as called, and by events of a queue that is waited for each time."""
    import pyopencl as cl
    import pyopencl.array as cl_array

    device = resolve("gpu")
    queue = cl.CommandQueue(device.context, device.cl_device)
    tile = "tile_m=32, tile_n=32, tile_k=32, micro_m=8, micro_n=4, unroll=8, slices=4"
    for m, n, k, splits in ((64, 64, 1024, 8), (256, 256, 4096, 8), (512, 2048, 1024, 2)):
        rng = np.random.default_rng(k)
        a, b = (rng.standard_normal(x).astype(np.float32) for x in ((m, k), (k, n)))
        arrays = [cl_array.to_device(queue, x) for x in (a, b, np.zeros((m, n), np.float32))]
        calls, events = [], []
        for parts in (1, splits):
            plan = MatMul(*arrays, config=f"register_blocked({tile}, splits={parts})")
            times = []
            for _ in range(_ROUNDS + 1):
                start = time.perf_counter()
                for _ in range(_CALLS):
                    plan(*arrays)
                queue.finish()
                times.append((time.perf_counter() - start) / _CALLS * 1e6)
            calls.append(statistics.median(times[1:]))
            check(arrays[2].get(), a, b, f"{m}×{n}×{k}")
            executable = find_route(device, plan.problem, plan.config).executable
            operands = {x: (y.base_data, 0) for x, y in zip(("a", "b", "out"), arrays, strict=True)}
            for _ in range(5 * _ROUNDS):
                record = []
                executable(device.profiling_queue(), operands, record=record)
                devices.wait(record)
                if parts > 1:
                    events.append([time / 1e3 for x in record for time in devices.event_times(x)])
        spans = [(x[2] - x[0], x[1] - x[0], x[3] - x[2]) for x in events]
        begun, first, last = (statistics.median(x) for x in zip(*spans, strict=True))
        print(f"{m}×{n}×{k}: {calls[0]:.1f} µs a call in one launch, {calls[1]:.1f} with k in "
              f"{splits} parts, of which the first takes {first:.1f} µs; the second begins "
              f"{begun:.1f} after it began, and takes {last:.1f}")  # fmt: skip


def host(n):
    """The time of a product of NumPy arrays, and of its parts alone, in ms."""
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    device = resolve("gpu")
    check(matmul(a, b, device=device), a, b, "the product")
    out = np.empty((n, n), np.float32)
    fresh = [_milliseconds(lambda: matmul(a, b, device=device)) for _ in range(7)]
    filled = [_milliseconds(lambda: matmul(a, b, out=out, device=device)) for _ in range(7)]
    queue, moved = device.queue(), 3 * a.nbytes
    copies = [_milliseconds(lambda: _copies(device, queue, a, out)) for _ in range(5)]
    bus = [_milliseconds(lambda: _bus(device, queue, a.nbytes)) for _ in range(5)]
    compute = _compute(device, n, a, b)
    best = {name: statistics.median(x) for name, x in (("copies", copies), ("bus", bus))}
    bound = max(best["copies"] + best["bus"], compute)
    whole = statistics.median(filled)
    print(f"host float32 {n}³: {statistics.median(fresh):.1f} ms into a fresh array, {whole:.1f} "
          f"ms into out (least {min(filled):.1f}); alone: copies to and from pinned memory "
          f"{best['copies']:.1f} ms ({moved / best['copies'] / 1e6:.1f} GB/s), bus "
          f"{best['bus']:.1f} ms ({moved / best['bus'] / 1e6:.1f} GB/s), launches {compute:.1f} "
          f"ms; {whole / bound:.2f} of the larger of copies + bus and launches")  # fmt: skip


def _milliseconds(call):
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def _slots(device, queue):
    return staging._staging_of(device)._pinned(queue)


def _copies(device, queue, source, target):
    """Two arrays' bytes into pinned memory and one array's out of it, by the staging's threads."""
    slots, pool = _slots(device, queue), staging._pool()
    read, write = (x.reshape(-1).view(np.uint8) for x in (source, target))
    jobs = []
    for whole, inwards in ((read, True), (read, True), (write, False)):
        for i, low in enumerate(range(0, whole.nbytes, staging.CHUNK_BYTES)):
            part = whole[low : low + staging.CHUNK_BYTES]
            slot = slots[i % staging.SLOTS][: part.nbytes]
            jobs.append(pool.submit(np.copyto, *((slot, part) if inwards else (part, slot))))
    for job in jobs:
        job.result()


def _bus(device, queue, size):
    """As many bytes between pinned memory and the device: two arrays there, one back."""
    slots, buffer = _slots(device, queue), device.allocate(size)
    for direction in (device.send, device.send, device.fetch):
        for i, low in enumerate(range(0, size, staging.CHUNK_BYTES)):
            slot = slots[i % staging.SLOTS][: min(staging.CHUNK_BYTES, size - low)]
            event = direction(queue, buffer, low, slot)
    devices.wait([event])


def _compute(device, n, a, b):
    """Milliseconds of the launches alone, by events."""
    plan = MatMul(a, b, device=device)
    executable = find_route(device, plan.problem).executable
    operands = {"a": (device.upload(a), 0), "b": (device.upload(b), 0),
                "out": (device.allocate(a.nbytes), 0)}  # fmt: skip
    times = []
    for _ in range(6):
        events = []
        executable(device.profiling_queue(), operands, record=events)
        devices.wait(events)
        times.append(devices.event_times(events[-1])[1] - devices.event_times(events[0])[0])
    return statistics.median(times[1:]) / 1e6


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--eager", type=int, nargs="*", metavar="N")
    parser.add_argument("--host", type=int, nargs="*", metavar="N")
    parser.add_argument("--second", action="store_true")
    options = parser.parse_args(arguments)
    if options.second:
        second()
        return
    both = options.eager is None and options.host is None
    if both or options.eager is not None:
        eager(options.eager or [64, 128, 256, 512])
    if both or options.host is not None:
        for n in options.host or [8192]:
            host(n)


if __name__ == "__main__":
    main()
