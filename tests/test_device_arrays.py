"""pyopencl arrays: where they lie, on their queue, without waiting."""

import gc
import threading

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pyopencl.tools
import pytest
from extra_variants import two_kernels

import clmatmul
from clmatmul import calls, operands
from clmatmul import device as devices

__all__ = ["two_kernels"]
COMPLETE = cl.command_execution_status.COMPLETE


@pytest.fixture
def queue(device):
    return cl.CommandQueue(device.context, device.cl_device)


@pytest.fixture
def out_of_order(device):
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    return cl.CommandQueue(device.context, device.cl_device, properties=properties)


@pytest.fixture
def gate(device):
    """A user's event that holds work back; opened at the end, whatever happens."""
    event = cl.UserEvent(device.context)
    yield event
    if event.command_execution_status > COMPLETE:
        event.set_status(COMPLETE)


def whole(rng, shape, dtype="f4"):
    return rng.integers(-4, 5, shape).astype(dtype)


def view(queue, memory, shape, strides, offset, dtype="f4"):
    """A view of device memory, given in elements."""
    size = np.dtype(dtype).itemsize
    strides = tuple(s * size for s in strides)
    return cl_array.Array(queue, shape, dtype, strides=strides, data=memory, offset=offset * size)


def read_view(memory, shape, strides, offset):
    """The same view of a host copy of the memory."""
    size = memory.itemsize
    strides = [s * size for s in strides]
    return np.lib.stride_tricks.as_strided(memory[offset:], shape, strides)


VIEWS = {
    "dense": ((6, 4), (4, 1), 0), "offset": ((6, 4), (4, 1), 11), "apart": ((6, 4), (9, 2), 3),
    "column-major": ((6, 4), (1, 6), 5), "negative rows": ((6, 4), (-4, 1), 40),
    "all negative": ((6, 4), (-8, -2), 90), "one row": ((6, 4), (0, 1), 7),
    "one number": ((6, 4), (0, 0), 7), "windows": ((6, 4), (1, 1), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_views(queue, rng, name):
    """Read where they lie: nothing passes through the host."""
    host = whole(rng, 100)
    memory = cl_array.to_device(queue, host)
    a = view(queue, memory.base_data, *VIEWS[name])
    want = read_view(host, *VIEWS[name])
    b = cl_array.to_device(queue, whole(rng, (4, 3)))
    assert np.array_equal(clmatmul.matmul(a, b).get(), want @ b.get())
    c = cl_array.to_device(queue, whole(rng, (3, 6)))
    assert np.array_equal(clmatmul.matmul(c, a).get(), c.get() @ want)
    assert np.array_equal(clmatmul.gemm(a, a, transpose_b=True).get(), want @ want.T)
    assert np.array_equal(clmatmul.scale(2, a).get(), 2 * want)


def test_absurd_strides_of_single_rows(queue, rng):
    memory = cl_array.to_device(queue, np.arange(12, dtype="f4"))
    a = view(queue, memory.base_data, (1, 3), (2**40, 1), 1)
    b = view(queue, memory.base_data, (3, 1), (2, -(2**40)), 4)
    assert np.array_equal(clmatmul.matmul(a, b).get(), [[1 * 4 + 2 * 6 + 3 * 8]])


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i1", "u8", "f2"])
def test_shapes_and_dtypes(queue, rng, dtype):
    for shapes in (((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((5, 1, 2, 3), (4, 3, 6))):
        a, b = (whole(rng, s, dtype) for s in shapes)
        got = clmatmul.matmul(cl_array.to_device(queue, a), cl_array.to_device(queue, b))
        want = a @ b
        assert got.dtype == want.dtype and got.shape == want.shape
        assert np.array_equal(got.get(), want)


def test_vectors_give_an_array_of_no_dimension(queue, rng):
    a = cl_array.to_device(queue, whole(rng, 5))
    got = clmatmul.matmul(a, a)
    assert isinstance(got, cl_array.Array) and got.shape == ()
    assert got.get() == a.get() @ a.get()


@pytest.mark.parametrize("shapes", [((0, 3), (3, 4)), ((3, 0), (0, 4)), ((2, 3), (3, 0))])
def test_no_elements_or_no_terms(queue, shapes):
    a, b = (cl_array.zeros(queue, s, "f4") for s in shapes)
    got = clmatmul.matmul(a, b)
    assert got.shape == (shapes[0][0], shapes[1][1])
    assert np.array_equal(got.get(), np.zeros(got.shape))


# ---- queue, allocator, events ---------------------------------------------------------------


def test_on_the_arrays_queue_and_from_their_allocator(queue, rng):
    pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue))
    a = cl_array.to_device(queue, whole(rng, (3, 4)), allocator=pool)
    b = cl_array.to_device(queue, whole(rng, (4, 5)))
    got = clmatmul.matmul(a, b)
    assert got.queue is queue and got.allocator is pool
    assert type(got.base_data) is type(a.base_data)
    assert np.array_equal(got.get(), a.get() @ b.get())


def test_shared_virtual_memory(queue, device, rng):
    try:
        allocator = pyopencl.tools.SVMAllocator(device.context, alignment=0, queue=queue)
        memory = cl_array.to_device(queue, whole(rng, (8, 6)), allocator=allocator)
    except (cl.Error, AttributeError):
        pytest.skip("no shared virtual memory here")
    a, out = memory[:4], memory[2:8]
    host = memory.get()
    b = cl_array.to_device(queue, whole(rng, (6, 6)))
    c = cl_array.to_device(queue, whole(rng, (6, 4)))
    assert clmatmul.matmul(c, a, out=out) is out
    queue.finish()
    assert np.array_equal(memory.get()[2:], c.get() @ host[:4])
    assert np.array_equal(clmatmul.matmul(memory, b).get(), memory.get() @ b.get())


def test_everyone_gets_the_event(queue, rng):
    a, b = (cl_array.to_device(queue, whole(rng, (4, 4))) for _ in range(2))
    got = clmatmul.matmul(a, b)
    (event,) = got.events
    assert event in a.events and event in b.events
    out = cl_array.empty(queue, (4, 4), "f4")
    clmatmul.matmul(a, b, out=out)
    assert out.events[-1] in a.events


def test_the_inputs_events_are_waited_for(queue, gate, rng):
    a, b = (cl_array.to_device(queue, whole(rng, (4, 4))) for _ in range(2))
    clmatmul.matmul(a, b).get()  # built and checked
    a.add_event(gate)
    got = clmatmul.matmul(a, b)
    assert got.events[-1].command_execution_status > COMPLETE
    gate.set_status(COMPLETE)
    assert np.array_equal(got.get(), a.get() @ b.get())


@pytest.mark.parametrize("call", ["matmul", "gemm", "MatMul", "scale"])
def test_wait_for(queue, gate, rng, call):
    a, b = (cl_array.to_device(queue, whole(rng, (4, 4))) for _ in range(2))
    calls = {
        "matmul": lambda **k: clmatmul.matmul(a, b, **k),
        "gemm": lambda **k: clmatmul.gemm(a, b, a, beta=2, **k),
        "MatMul": lambda **k: clmatmul.MatMul(a, b)(a, b, **k),
        "scale": lambda **k: clmatmul.scale(2, a, **k),
    }
    want = calls[call]().get()
    got = calls[call](wait_for=[gate])
    assert got.events[-1].command_execution_status > COMPLETE
    gate.set_status(COMPLETE)
    assert np.array_equal(got.get(), want)


def test_nothing_waits_however_many_calls_are_pending(queue, gate, rng):
    """pyopencl's own add_event would wait for the first events, and here for ever."""
    a, b = (cl_array.to_device(queue, whole(rng, (4, 4))) for _ in range(2))
    want = clmatmul.matmul(a, b).get()
    results = [clmatmul.matmul(a, b, wait_for=[gate]) for _ in range(40)]
    overlapping = clmatmul.matmul(a, b, out=b)
    assert results[0].events[-1].command_execution_status > COMPLETE
    gate.set_status(COMPLETE)
    assert all(np.array_equal(x.get(), want) for x in results)
    assert np.array_equal(overlapping.get(), want)


def test_the_queue_is_never_finished(queue, monkeypatch, rng):
    a, b = (cl_array.to_device(queue, whole(rng, (4, 4))) for _ in range(2))
    out = cl_array.empty(queue, (4, 4), "f8")

    def calls():
        clmatmul.matmul(a, b)
        clmatmul.matmul(a, b, out=out)
        clmatmul.gemm(a, b, a, alpha=2, beta=3, out=a)
        clmatmul.matmul(a, a, out=a)

    def forbidden(*arguments, **keywords):
        raise AssertionError("waited")

    calls()  # built and checked, which does wait
    monkeypatch.setattr(devices, "wait", forbidden)
    for name in ("read", "write", "synchronize_host"):
        monkeypatch.setattr(devices.Device, name, forbidden)
    calls()


def test_a_chain_on_an_out_of_order_queue(out_of_order, gate, rng):
    """Each product waits for the one that it reads, also through overwritten operands."""
    host = rng.integers(0, 2, (8, 8)).astype("f8")
    a = cl_array.to_device(out_of_order, host)
    x = cl_array.to_device(out_of_order, np.eye(8))
    clmatmul.matmul(a, x).get()
    want = np.eye(8)
    for step in range(10):
        x = clmatmul.matmul(a, x, wait_for=[gate])
        want = host @ want
        if step == 5:
            clmatmul.matmul(host, host, out=a)  # after the reads above
            host = host @ host
    gate.set_status(COMPLETE)
    x.events[-1].wait()
    assert np.array_equal(x.get(), want)


def test_writes_wait_for_reads_on_an_out_of_order_queue(out_of_order, gate, rng):
    a = cl_array.to_device(out_of_order, whole(rng, (6, 6)))
    b = cl_array.to_device(out_of_order, whole(rng, (6, 6)))
    host_a, host_b = a.get(), b.get()
    clmatmul.matmul(a, b).get()
    first = clmatmul.matmul(a, b, wait_for=[gate])
    clmatmul.matmul(b, b, out=a)  # a is overwritten, but read before
    second = clmatmul.matmul(a, b)
    gate.set_status(COMPLETE)
    second.events[-1].wait()
    assert np.array_equal(first.get(), host_a @ host_b)
    assert np.array_equal(a.get(), host_b @ host_b)
    assert np.array_equal(second.get(), host_b @ host_b @ host_b)


def test_dropped_arrays_live_until_the_work_is_done(out_of_order, queue, gate, rng):
    """A pool would hand their memory to the next array."""
    pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(out_of_order))
    host = whole(rng, (64, 64))
    a = cl_array.to_device(out_of_order, host, allocator=pool)
    b = cl_array.to_device(out_of_order, host.T.copy(), allocator=pool)
    clmatmul.matmul(a, b).get()
    got = clmatmul.matmul(a, b, wait_for=[gate])
    del a, b
    gc.collect()
    spoilers = [cl_array.to_device(queue, np.full((64, 64), 9, "f4"), allocator=pool)
                for _ in range(3)]  # fmt: skip
    gate.set_status(COMPLETE)
    got.events[-1].wait()
    assert np.array_equal(got.get(), host @ host.T)
    assert len(spoilers) == 3


def test_pending_work_and_events_are_bounded(queue, rng):
    a, b = (cl_array.to_device(queue, whole(rng, (4, 4))) for _ in range(2))
    # what other tests' work that never ends (events nobody sets) still holds
    before = len(operands._pending)
    for _ in range(500):
        clmatmul.matmul(a, b)
    queue.finish()
    clmatmul.matmul(a, b)
    queue.finish()
    clmatmul.matmul(a, b)
    assert len(operands._pending) <= before + 2
    assert len(a.events) <= 2 and len(b.events) <= 2


def test_threads_with_queues_of_their_own(device, rng):
    a, b = whole(rng, (30, 40)), whole(rng, (40, 20))
    results, failures = [], []
    shared = cl_array.to_device(cl.CommandQueue(device.context, device.cl_device), a)
    shared.queue.finish()

    def work():
        try:
            queue = cl.CommandQueue(device.context, device.cl_device)
            other = cl_array.to_device(queue, b)
            for _ in range(10):
                results.append(clmatmul.matmul(shared.with_queue(queue), other).get().tobytes())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(results) == 60
    assert set(results) == {(a @ b).tobytes()}


# ---- out ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "f2"])
@pytest.mark.parametrize("strides", [(5, 1), (1, 7), (12, 2), (-9, 1), (-12, -2)])
def test_out(queue, rng, strides, dtype):
    a, b = whole(rng, (6, 3)), whole(rng, (3, 5))
    memory = cl_array.to_device(queue, np.full(150, 77, dtype))
    offset = 70 if strides[0] < 0 else 4
    out = view(queue, memory.base_data, (6, 5), strides, offset, dtype)
    got = clmatmul.matmul(cl_array.to_device(queue, a), cl_array.to_device(queue, b), out=out)
    assert got is out
    queue.finish()
    host = memory.get()
    seen = read_view(host, (6, 5), strides, offset)
    assert np.array_equal(seen, a @ b)
    seen[...] = 77
    assert (host == 77).all()


@pytest.mark.parametrize("offset", [0, 1, 5, 17])
def test_out_overlaps_an_operand(queue, rng, offset):
    host = whole(rng, 80)
    memory = cl_array.to_device(queue, host)
    a = view(queue, memory.base_data, (6, 6), (6, 1), 0)
    out = view(queue, memory.base_data, (6, 6), (6, 1), offset)
    b = cl_array.to_device(queue, whole(rng, (6, 6)))
    got = clmatmul.matmul(a, b, out=out)
    assert got is out and np.array_equal(memory[offset : offset + 36].get().reshape(6, 6),
                                         host[:36].reshape(6, 6) @ b.get())  # fmt: skip


def test_out_overlaps_through_a_sub_buffer(queue, device, rng):
    align = device.profile.base_alignment_bytes
    host = whole(rng, align)
    memory = cl_array.to_device(queue, host)
    part = memory.base_data.get_sub_region(align, 36 * 4)
    a = view(queue, memory.base_data, (6, 6), (6, 1), align // 4 - 3)
    out = view(queue, part, (6, 6), (6, 1), 0)
    want = host[align // 4 - 3 :][:36].reshape(6, 6)
    clmatmul.matmul(a, a, out=out)
    queue.finish()
    assert np.array_equal(memory.get()[align // 4 :][:36].reshape(6, 6), want @ want)


def test_gemm_with_c_as_out(queue, rng):
    a, b, c = (whole(rng, (5, 5)) for _ in range(3))
    x, y, z = (cl_array.to_device(queue, m) for m in (a, b, c))
    assert clmatmul.gemm(x, y, z, alpha=2, beta=3, out=z) is z
    assert np.array_equal(z.get(), 2 * (a @ b) + 3 * c)
    memory = cl_array.to_device(queue, np.concatenate([c.ravel(), c.ravel()]))
    shifted = view(queue, memory.base_data, (5, 5), (5, 1), 3)
    partly = view(queue, memory.base_data, (5, 5), (5, 1), 0)
    clmatmul.gemm(x, y, partly, beta=1, out=shifted)
    queue.finish()
    assert np.array_equal(memory.get()[3:28].reshape(5, 5), a @ b + c)


def test_out_may_not_repeat(queue, rng):
    a = cl_array.to_device(queue, whole(rng, (3, 3)))
    memory = cl_array.to_device(queue, whole(rng, 9))
    out = view(queue, memory.base_data, (3, 3), (0, 1), 0)
    with pytest.raises(clmatmul.ArgumentError, match="may share memory"):
        clmatmul.matmul(a, a, out=out)


# ---- mixed and refused ----------------------------------------------------------------------


def test_one_numpy_operand_goes_to_the_devices_side(queue, rng):
    a, b = whole(rng, (4, 6)), whole(rng, (6, 3))
    x, y = cl_array.to_device(queue, a), cl_array.to_device(queue, b)
    for one, other in ((x, b), (a, y), (x, np.asfortranarray(b)), (a[::1], y), (x, b.tolist())):
        got = clmatmul.matmul(one, other)
        assert isinstance(got, cl_array.Array) and np.array_equal(got.get(), a @ b)
    bias = np.arange(3, dtype="f4")
    got = clmatmul.matmul(x, y, epilogue=clmatmul.Epilogue(bias=bias, activation="relu"))
    assert np.array_equal(got.get(), np.maximum(a @ b + bias, 0))
    out = cl_array.empty(queue, (4, 3), "f4")
    assert clmatmul.matmul(a, b, out=out) is out and np.array_equal(out.get(), a @ b)


def test_a_queue_given_with_numpy_arrays(queue, rng):
    a = whole(rng, (4, 4))
    got = clmatmul.matmul(a, a, queue=queue)
    assert isinstance(got, np.ndarray) and np.array_equal(got, a @ a)


def test_a_context_of_the_users_own(device, rng):
    context = cl.Context([device.cl_device])
    queue = cl.CommandQueue(context)
    a = cl_array.to_device(queue, whole(rng, (4, 4)))
    got = clmatmul.matmul(a, a)
    assert got.context == context and np.array_equal(got.get(), a.get() @ a.get())


def test_arrays_of_different_contexts(queue, device, rng):
    other = cl.CommandQueue(cl.Context([device.cl_device]))
    a = cl_array.to_device(queue, whole(rng, (4, 4)))
    b = cl_array.to_device(other, whole(rng, (4, 4)))
    out = cl_array.to_device(queue, np.full((4, 4), 7, "f4"))
    with pytest.raises(clmatmul.DeviceError, match="different OpenCL contexts"):
        clmatmul.matmul(a, b, out=out)
    with pytest.raises(clmatmul.DeviceError, match="different OpenCL contexts"):
        clmatmul.matmul(a, a, queue=other)
    assert (out.get() == 7).all()


def test_a_device_that_disagrees(queue, device, monkeypatch, rng):
    a = cl_array.to_device(queue, whole(rng, (4, 4)))
    assert np.array_equal(clmatmul.matmul(a, a, device=device).get(), a.get() @ a.get())

    class Other:
        cl_device, profile = "another", device.profile

    monkeypatch.setattr(calls, "resolve", lambda selector: Other)
    with pytest.raises(clmatmul.DeviceError, match="disagrees with the arrays' queue"):
        clmatmul.matmul(a, a, device="another")


def test_arrays_without_a_queue(queue, rng):
    a = cl_array.to_device(queue, whole(rng, (4, 4)))
    bare = a.with_queue(None)
    with pytest.raises(clmatmul.ArgumentError, match="have no queue; pass queue="):
        clmatmul.matmul(bare, bare)
    got = clmatmul.matmul(bare, bare, queue=queue)
    assert np.array_equal(got.with_queue(queue).get(), a.get() @ a.get())
    assert np.array_equal(clmatmul.matmul(bare, a).get(), a.get() @ a.get())


@pytest.mark.parametrize("call, error, message", [
    (lambda a: clmatmul.matmul(a, a, queue="mine"), ValueError, "no pyopencl.CommandQueue"),
    (lambda a: clmatmul.matmul(a, a, out=np.empty((4, 4), "f4")), ValueError, "out is a NumPy"),
    (lambda a: clmatmul.matmul(a, a[:3]), ValueError, "4 columns, the second 3 rows"),
    (lambda a: clmatmul.matmul(a, a, out=a[:3]), ValueError, r"out has shape \(3, 4\)"),
    (lambda a: clmatmul.matmul(a, a, out=a.astype("i4")), TypeError, "cannot cast the product"),
    (lambda a: clmatmul.matmul(a, a.astype("c8"), out=a), TypeError, "from complex64 to float32"),
    (lambda a: clmatmul.gemm(a, a, a, beta=a), ValueError, "beta must be a single number"),
    (lambda a: clmatmul.matmul(a, np.ma.masked_array(np.eye(4))), TypeError, "masked"),
    (lambda a: clmatmul.matmul(a, np.array([["x"] * 4] * 4)), TypeError, "dtype <U1"),
])  # fmt: skip
def test_bad_input(queue, rng, call, error, message):
    host = whole(rng, (4, 4))
    a = cl_array.to_device(queue, host)
    with pytest.raises(error, match=message) as caught:
        call(a)
    assert isinstance(caught.value, clmatmul.ClmatmulError)
    assert np.array_equal(a.get(), host)


@pytest.mark.parametrize("dtype, precision", [("f4", "highest"), ("f8", "emulated")])
@pytest.mark.parametrize("where", ["first", "second", "c", "out"])
def test_foreign_byte_order(queue, rng, where, dtype, precision):
    plain = cl_array.to_device(queue, whole(rng, (4, 4)).astype(dtype))
    swapped = cl_array.to_device(queue, whole(rng, (4, 4)).astype(">" + dtype))
    a, b, c, out = (swapped if where == x else plain for x in ("first", "second", "c", "out"))
    with pytest.raises(clmatmul.DtypeError, match="of dtype >" + dtype):
        clmatmul.gemm(a, b, c, beta=1, out=out, precision=precision)


def test_offsets_that_are_no_whole_elements(queue, rng):
    memory = cl_array.to_device(queue, whole(rng, 40))
    odd = cl_array.Array(queue, (3, 3), "f4", data=memory.base_data, offset=2)
    with pytest.raises(clmatmul.DtypeError, match="offset of 2 bytes"):
        clmatmul.matmul(odd, odd)
    odd = cl_array.Array(queue, (3, 3), "f4", data=memory.base_data, strides=(14, 4))
    with pytest.raises(clmatmul.DtypeError, match="stride of 14 bytes"):
        clmatmul.matmul(odd, odd)
