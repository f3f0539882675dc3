"""Threads, queues, contexts, pools, events; memory that comes and goes; the end of a process."""

import gc
import mmap
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pyopencl.tools as cl_tools
import pytest
from extra_variants import two_kernels
from processes import environment

import clmatmul
from clmatmul import device as devices
from clmatmul.errors import DeviceError, LaunchError

__all__ = ["two_kernels"]
STATM = Path("/proc/self/statm")
OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE


def whole(rng, shape, dtype="f4"):
    return rng.integers(-4, 5, shape).astype(dtype)


@pytest.fixture(params=["in order", "out of order"])
def queue_of(request, device):
    """queue_of(context): a new queue of a new context, or of the one given."""

    def make(context=None):
        context = context or cl.Context([device.cl_device])
        if request.param == "in order":
            return cl.CommandQueue(context, device.cl_device)
        if not device.cl_device.queue_properties & OUT_OF_ORDER:
            pytest.skip("the device has no queues that run out of order")
        return cl.CommandQueue(context, device.cl_device, properties=OUT_OF_ORDER)

    return make


def run_all(work, count):
    """What `work(i)` gave in each of `count` threads that began together."""
    gate = threading.Barrier(count)

    def begin(i):
        gate.wait()
        return work(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def test_threads_with_contexts_and_queues_of_their_own(queue_of, rng):
    a, b = whole(rng, (33, 40)), whole(rng, (40, 21))
    queues = [queue_of() for _ in range(4)]

    def work(i):
        here = [cl_array.to_device(queues[i], x) for x in (a, b)]
        return [clmatmul.matmul(*here).get().tobytes() for _ in range(5)]

    assert {x for found in run_all(work, 4) for x in found} == {(a @ b).tobytes()}


def test_threads_that_share_a_context(queue_of, device, rng):
    """Each with a queue of its own on the same arrays."""
    context = cl.Context([device.cl_device])
    first = queue_of(context)
    a, b = whole(rng, (17, 64)), whole(rng, (64, 9))
    there = [cl_array.to_device(first, x) for x in (a, b)]
    first.finish()

    def work(i):
        mine = queue_of(context)
        return [clmatmul.matmul(*(x.with_queue(mine) for x in there)).get() for _ in range(5)]

    assert all(np.array_equal(x, a @ b) for found in run_all(work, 4) for x in found)


def test_a_chain_of_products_waits_for_each(queue_of, rng):
    """Nothing but the arrays' own events orders them."""
    queue = queue_of()
    steps = [whole(rng, (30, 30)) % 2 for _ in range(6)]
    there = [cl_array.to_device(queue, x) for x in steps]
    for _ in range(5):
        product = there[0]
        for x in there[1:]:
            product = clmatmul.matmul(product, x)
        want = steps[0]
        for x in steps[1:]:
            want = want @ x
        assert np.array_equal(product.get(), want)


def test_one_plan_from_many_threads(device, rng):
    a, b = whole(rng, (31, 65)), whole(rng, (65, 18))
    plan = clmatmul.MatMul(a, b)

    def work(i):
        return all(np.array_equal(plan(a * (i + 1), b), (i + 1) * (a @ b)) for _ in range(25))

    assert all(run_all(work, 6))


def test_one_plan_of_device_arrays_from_many_threads(queue_of, rng):
    queue = queue_of()
    a, b = whole(rng, (31, 65)), whole(rng, (65, 18))
    plan = clmatmul.MatMul(cl_array.to_device(queue, a), cl_array.to_device(queue, b))

    def work(i):
        mine = cl_array.to_device(queue, a * (i + 1))
        other = cl_array.to_device(queue, b)
        return np.array_equal(plan(mine, other).get(), (i + 1) * (a @ b))

    assert all(run_all(work, 6))


def test_a_product_waits_for_the_events_it_is_given(queue_of, rng):
    queue = queue_of()
    a, b = (cl_array.to_device(queue, whole(rng, (8, 8))) for _ in "ab")
    queue.finish()
    gate = cl.UserEvent(queue.context)
    out = cl_array.zeros(queue, (8, 8), "f4")
    queue.finish()
    threading.Timer(0.3, gate.set_status, [cl.command_execution_status.COMPLETE]).start()
    got = clmatmul.matmul(a, b, out=out, wait_for=[gate])
    assert got is out
    assert np.array_equal(out.get(), a.get() @ b.get())
    assert gate.command_execution_status == cl.command_execution_status.COMPLETE


def test_memory_pools_get_results_back(queue_of, rng):
    """All but the last product's, which may still be under way."""
    queue = queue_of()
    pool = cl_tools.MemoryPool(cl_tools.ImmediateAllocator(queue))
    a, b = (cl_array.to_device(queue, whole(rng, (50, 50)), allocator=pool) for _ in "ab")
    want = a.get() @ b.get()
    before = pool.active_blocks
    for _ in range(20):
        got = clmatmul.matmul(a, b)
        assert got.allocator is pool and np.array_equal(got.get(), want)
    del got
    gc.collect()
    assert pool.active_blocks <= before + 1


def test_operands_that_the_caller_drops_at_once(queue_of, rng):
    """They live until the product is done, whatever is allocated meanwhile."""
    queue = queue_of()
    a, b = whole(rng, (70, 90)), whole(rng, (90, 60))
    results = []
    for _ in range(10):
        results.append(clmatmul.matmul(cl_array.to_device(queue, a), cl_array.to_device(queue, b)))
        gc.collect()
        cl_array.to_device(queue, np.full((90, 90), np.nan, "f4"))
    assert all(np.array_equal(x.get(), a @ b) for x in results)


@pytest.mark.parametrize("ending", ["", "raise SystemExit"])
@pytest.mark.parametrize("thread", [False, True])
def test_a_process_ends_with_work_in_flight(ending, thread):
    code = f"""
import threading, numpy as np, pyopencl as cl, pyopencl.array as ca, clmatmul
from clmatmul import selection
device = selection.resolve()
queue = cl.CommandQueue(device.context)
a = ca.to_device(queue, np.ones((300, 300), "f4"))
clmatmul.matmul(a, a)
def work():
    for i in range(50):
        clmatmul.matmul(a, a)
if {thread}:
    threading.Thread(target=work).start()
else:
    work()
{ending}
"""
    run = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True,
                         text=True, timeout=120)  # fmt: skip
    assert run.returncode == 0 and "Traceback" not in run.stderr, run.stderr


# ---- when the device fails ------------------------------------------------------------------


def test_without_memory_there_is_an_error_and_then_no_trace(monkeypatch, rng):
    """The runtime has no memory for a while: said clearly, and products go on afterwards."""
    a, b = whole(rng, (13, 29), "i4"), whole(rng, (29, 7), "i4")
    queue = cl.CommandQueue(clmatmul.selection.resolve().context)
    there = [cl_array.to_device(queue, x) for x in (a, b)]

    class NoBuffer:
        def __new__(cls, *arguments, **keywords):
            raise cl.MemoryError("clCreateBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE")

    with monkeypatch.context() as patch:
        patch.setattr(devices.cl, "Buffer", NoBuffer)
        patch.setattr(cl_array.cl, "Buffer", NoBuffer)
        with pytest.raises((DeviceError, MemoryError, cl.MemoryError), match="memory|MEM_OBJECT"):
            clmatmul.matmul(*there)
    assert np.array_equal(clmatmul.matmul(*there).get(), a @ b)
    assert np.array_equal(clmatmul.matmul(a, b), a @ b)


def test_a_request_beyond_the_device_is_an_error_with_the_number(device):
    size = device.profile.global_mem_bytes * 4
    with pytest.raises(DeviceError, match=f"{size} bytes of device memory could not be had"):
        device.allocate(size)


@pytest.mark.parametrize("status", ["INVALID_CONTEXT", "DEVICE_NOT_AVAILABLE", "OUT_OF_RESOURCES"])
def test_a_context_that_is_lost_is_an_error_and_never_a_result(monkeypatch, rng, status):
    a, b = whole(rng, (12, 30)), whole(rng, (30, 5))
    plan = clmatmul.MatMul(a, b)
    out = np.full((12, 5), 7, "f4")

    def lost(self, *arguments):
        raise devices.LaunchFailure(f"clEnqueueNDRangeKernel failed: {status}")

    with monkeypatch.context() as patch:
        patch.setattr(devices.Device, "launch", lost)
        with pytest.raises(LaunchError, match=status):
            plan(a, b, out)
    assert (out == 7).all()
    assert np.array_equal(plan(a, b, out), a @ b)


def test_a_kernel_that_fails_while_it_runs_is_an_error(monkeypatch, device, rng):
    """The event of a product fails: reading the result says so."""
    with pytest.raises(DeviceError, match="failed"):
        gate = cl.UserEvent(device.context)
        gate.set_status(-5)
        devices.wait([gate])
    a = whole(rng, (6, 6))
    assert np.array_equal(clmatmul.matmul(a, a), a @ a)


# ---- long runs ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["host", "device", "plan", "shapes"])
def test_memory_is_stable_over_a_hundred_thousand_calls(device, rng, kind):
    if not STATM.exists():
        pytest.skip("this system does not tell a process how much memory it has")
    queue = cl.CommandQueue(device.context)
    a, b = whole(rng, (9, 17)), whole(rng, (17, 5))
    there = [cl_array.to_device(queue, x) for x in (a, b)]
    plan = clmatmul.MatMul(a, b)
    calls = {
        "host": lambda i: clmatmul.matmul(a, b),
        "device": lambda i: clmatmul.matmul(*there).events or queue.finish(),
        "plan": lambda i: plan(a, b),
        "shapes": lambda i: clmatmul.matmul(a[: 1 + i % 9], b[:, : 1 + i % 5]),
    }
    call = calls[kind]

    def resident():
        return int(STATM.read_text().split()[1]) * mmap.PAGESIZE

    for i in range(10_000):
        call(i)
    queue.finish()
    before = resident()
    for i in range(100_000):
        call(i)
        if i % 1000 == 0:
            queue.finish()
    grown = resident() - before
    assert grown < 2**24, f"{grown / 100_000:.0f} bytes a call"
