"""A prepared product of the same pyopencl arrays is one launch; anything else is described anew."""

import contextlib
import gc
import weakref

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from conftest import in_threads

from clmatmul import Epilogue, MatMul, operands
from clmatmul import device as devices
from clmatmul.errors import ArgumentError, ClmatmulError
from clmatmul.kept_launches import KeptLaunches


@pytest.fixture
def queue(device):
    return cl.CommandQueue(device.context, device.cl_device)


def prepared(queue, rng, m=20, n=30, k=40, **keywords):
    a = cl_array.to_device(queue, rng.standard_normal((m, k)).astype(np.float32))
    b = cl_array.to_device(queue, rng.standard_normal((k, n)).astype(np.float32))
    out = cl_array.zeros(queue, (m, n), np.float32)
    return MatMul(a, b, out, **keywords), a, b, out


def right(a, b, out):
    expected = a.get().astype(np.float64) @ b.get().astype(np.float64)
    return np.allclose(out.get(), expected, rtol=1e-4, atol=1e-4)


class Launches:
    """Counts of kept launches and of launches with arguments to set; refuse: fail the kept ones."""

    def __init__(self, monkeypatch):
        self.refuse = False
        self.forget()
        real_launcher, real_launch = devices.launcher, devices.Device.launch

        def launcher(*arguments):
            launch = real_launcher(*arguments)

            def counted(*waited):
                self.kept += 1
                if self.refuse:
                    raise cl.LogicError("enqueue", cl.status_code.OUT_OF_RESOURCES, "made up")
                return launch(*waited)

            return counted

        def described(device, *arguments):
            self.described += 1
            return real_launch(device, *arguments)

        monkeypatch.setattr(devices, "launcher", launcher)
        monkeypatch.setattr(devices.Device, "launch", described)

    def forget(self):
        self.kept = self.described = 0


@pytest.fixture
def launches(monkeypatch):
    return Launches(monkeypatch)


@pytest.mark.parametrize(
    "config",
    [
        None,
        "register_blocked(splits=4, tile_k=8, slices=2, unroll=4)",  # two launches, a workspace
    ],
)
def test_the_third_call_only_launches(queue, rng, launches, config):
    plan, a, b, out = prepared(queue, rng, config=config)
    for _ in range(2):
        assert plan(a, b, out) is out
    launches.forget()
    for i in range(3):
        a.set(np.full(a.shape, i + 1, np.float32))
        out.fill(0)
        assert plan(a, b, out) is out
        assert right(a, b, out)
    each = 1 if config is None else 2
    assert (launches.kept, launches.described) == (3 * each, 0)


def test_other_arrays_are_described(queue, rng, launches):
    plan, a, b, out = prepared(queue, rng)
    for _ in range(3):
        plan(a, b, out)
    launches.forget()
    other = cl_array.to_device(queue, rng.standard_normal(a.shape).astype(np.float32))
    plan(other, b, out)
    assert right(other, b, out) and launches.kept == 0
    plan(a, b, out)
    assert right(a, b, out) and launches.kept == 1


def test_an_array_with_new_memory_is_described(queue, rng, launches):
    plan, a, b, out = prepared(queue, rng)
    for _ in range(3):
        plan(a, b, out)
    launches.forget()
    fresh = cl_array.to_device(queue, rng.standard_normal(a.shape).astype(np.float32))
    a.base_data = fresh.base_data
    plan(a, b, out)
    assert right(fresh, b, out) and launches.kept == 0


def test_a_refused_launch_is_described(queue, rng, launches):
    plan, a, b, out = prepared(queue, rng)
    for _ in range(3):
        plan(a, b, out)
    launches.forget()
    launches.refuse = True
    out.fill(0)
    assert plan(a, b, out) is out and right(a, b, out)
    assert (launches.kept, launches.described) == (1, 1)


@pytest.mark.parametrize("name", ["shape", "strides", "offset", "queue", "base_data"])
def test_an_array_that_changed_is_described(queue, rng, launches, name):
    """Not launched as it was; what then serves it, or refuses it, is the long way's affair."""
    plan, a, b, out = prepared(queue, rng, m=40, k=40)
    for _ in range(3):
        plan(a, b, out)
    launches.forget()
    other = cl.CommandQueue(queue.context, queue.device)
    changed = dict(shape=(20, 40), strides=(4, 160), offset=4, queue=other, base_data=b.base_data)
    setattr(a, name, changed[name])
    with contextlib.suppress(ClmatmulError):
        plan(a, b, out)
    assert launches.kept == 0


def test_events_are_waited_for_and_handed_on(queue, rng):
    plan, a, b, out = prepared(queue, rng)
    for _ in range(3):
        plan(a, b, out)
    start = cl.UserEvent(queue.context)
    a.add_event(start)
    plan(a, b, out)
    assert all(x.events == out.events and len(x.events) == 1 for x in (a, b))
    assert not devices.is_complete(out.events[0])
    start.set_status(cl.command_execution_status.COMPLETE)
    assert right(a, b, out)


def test_arrays_are_not_kept_alive(queue, rng):
    plan, a, b, out = prepared(queue, rng)
    for _ in range(3):
        plan(a, b, out)
    queue.finish()
    assert len(plan._kept._kept) == 1
    gone = weakref.ref(a)
    del a
    for _ in range(5):  # launches hold their arrays until a few later ones look
        other = cl_array.to_device(queue, np.ones((20, 40), np.float32))
        plan(other, b, out)
        queue.finish()
    gc.collect()
    assert gone() is None
    assert len(plan._kept._kept) == 0


def test_few_are_kept(queue, rng):
    plan, a, b, _ = prepared(queue, rng)
    outs = [cl_array.zeros(queue, (20, 30), np.float32) for _ in range(20)]
    for out in outs:
        for _ in range(2):
            plan(a, b, out)
    assert 0 < len(plan._kept._kept) <= 8
    for out in outs:
        plan(a, b, out)
        assert right(a, b, out)


def test_threads(queue, rng):
    plan, a, b, _ = prepared(queue, rng)
    faults = []

    def work():
        out = cl_array.zeros(queue, (20, 30), np.float32)
        for _ in range(20):
            plan(a, b, out)
        if not right(a, b, out):
            faults.append("wrong")

    in_threads(work, 4)
    assert not faults


def test_only_products_of_device_arrays_are_kept(rng):
    a = rng.standard_normal((4, 5)).astype(np.float32)
    assert MatMul(a, a.T)._kept is None
    assert KeptLaunches(None).again(a, a, a) is False


# ---- with an epilogue of the device's own arrays --------------------------------------------


def fused(queue, rng, **more):
    """A prepared product with bias, relu and residual, and its six arrays."""
    bias = cl_array.to_device(queue, rng.standard_normal(30).astype(np.float32))
    residual = cl_array.to_device(queue, rng.standard_normal((20, 30)).astype(np.float32))
    epilogue = Epilogue(bias=bias, activation="relu", residual=residual, **more)
    return *prepared(queue, rng, epilogue=epilogue), bias, residual


def right_fused(a, b, out, bias, residual):
    product = a.get().astype(np.float64) @ b.get().astype(np.float64)
    expected = np.maximum(product + bias.get(), 0) + residual.get()
    return np.allclose(out.get(), expected, rtol=1e-4, atol=1e-4)


def test_an_epilogue_is_kept_too(queue, rng, launches):
    plan, a, b, out, bias, residual = fused(queue, rng)
    for _ in range(2):
        assert plan(a, b, out) is out
    launches.forget()
    for i in range(3):
        bias.fill(i)
        residual.fill(10 * i)
        assert plan(a, b, out) is out
        event = out.events[-1]
        assert all(x.events == [event] for x in (a, b, bias, residual))
        assert right_fused(a, b, out, bias, residual)
    assert (launches.kept, launches.described) == (3, 0)


def test_an_epilogues_array_is_waited_for(device, queue, rng, launches):
    """What another queue does to a bias comes first."""
    plan, a, b, out, bias, residual = fused(queue, rng)
    for _ in range(3):
        plan(a, b, out)
    queue.finish()
    launches.forget()
    gate = cl.UserEvent(device.context)
    bias.events[:] = [gate]
    plan(a, b, out)
    complete = cl.command_execution_status.COMPLETE
    assert out.events[-1].command_execution_status != complete
    gate.set_status(complete)
    assert right_fused(a, b, out, bias, residual) and launches.kept == 1


def test_an_epilogues_array_with_new_memory_is_described(queue, rng, launches):
    plan, a, b, out, bias, residual = fused(queue, rng)
    for _ in range(3):
        plan(a, b, out)
    launches.forget()
    fresh = cl_array.to_device(queue, rng.standard_normal(30).astype(np.float32))
    bias.base_data = fresh.base_data
    plan(a, b, out)
    assert right_fused(a, b, out, fresh, residual) and launches.kept == 0


def test_a_residual_in_the_outputs_memory_is_described(queue, rng, launches):
    """out += a @ b: nothing of it is kept, and nothing is added twice."""
    _, a, b, out = prepared(queue, rng)
    plan = MatMul(a, b, out, epilogue=Epilogue(residual=out))
    launches.forget()
    for _ in range(4):
        plan(a, b, out)
    expected = 4 * (a.get().astype(np.float64) @ b.get().astype(np.float64))
    assert np.allclose(out.get(), expected, rtol=1e-4, atol=1e-4) and launches.kept == 0


def test_an_output_of_the_epilogues_own_is_described(queue, rng, launches):
    aux = cl_array.zeros(queue, (20, 30), np.float32)
    plan, a, b, out, bias, residual = fused(queue, rng, aux=aux)
    for _ in range(4):
        plan(a, b, out)
    assert right_fused(a, b, out, bias, residual) and launches.kept == 0
    product = a.get().astype(np.float64) @ b.get().astype(np.float64) + bias.get()
    assert np.allclose(aux.get(), product, rtol=1e-4, atol=1e-4)


# ---- without events ---------------------------------------------------------------------------


@pytest.fixture
def silent(monkeypatch):
    """Counts launches without events; `status`: what the runtime gives back for one."""
    real = devices.silent_launcher

    class Silent:
        count, status = 0, None

        def launcher(self, *arguments):
            launch = real(*arguments)

            def counted():
                self.count += 1
                return launch() if self.status is None else self.status

            return counted

    found = Silent()
    monkeypatch.setattr(devices, "silent_launcher", found.launcher)
    return found


def renew(queue, rng, a, b, out):
    """New elements without anybody's event, as another library on the same queue may write them."""
    for x in (a, b):
        cl.enqueue_copy(queue, x.base_data, rng.standard_normal(x.shape).astype(np.float32))
    cl.enqueue_fill_buffer(queue, out.base_data, np.float32(np.nan), 0, out.nbytes)


def read(queue, x):
    """The elements, as float64; `get` would leave an event at the array."""
    host = np.empty(x.shape, x.dtype)
    cl.enqueue_copy(queue, host, x.base_data)
    return host.astype(np.float64)


@pytest.mark.parametrize(
    ("config", "each"), [(None, 1), ("register_blocked(splits=4, tile_k=8, slices=2, unroll=4)", 2)]
)
def test_launches_without_events(queue, rng, silent, config, each):
    plan, a, b, out = prepared(queue, rng, config=config, events=False)
    for _ in range(3):  # described, described and kept, launched with the event that others know
        plan(a, b, out)
    known = list(out.events)
    assert silent.count == 0
    for _ in range(3):
        renew(queue, rng, a, b, out)
        assert plan(a, b, out) is out
        assert a.events == b.events == out.events == known
        expected = read(queue, a) @ read(queue, b)
        assert np.allclose(read(queue, out), expected, rtol=1e-4, atol=1e-4)
    assert silent.count == 3 * each


def test_an_epilogue_without_events(queue, rng, silent):
    bias = cl_array.to_device(queue, rng.standard_normal(30).astype(np.float32))
    plan, a, b, out = prepared(queue, rng, epilogue=Epilogue(bias=bias), events=False)
    for _ in range(5):
        renew(queue, rng, a, b, out)
        plan(a, b, out)
        expected = read(queue, a) @ read(queue, b) + read(queue, bias)
        assert np.allclose(read(queue, out), expected, rtol=1e-4, atol=1e-4)
    assert silent.count == 2


def test_what_is_not_on_the_queue_is_waited_for_with_an_event(queue, rng, silent):
    plan, a, b, out = prepared(queue, rng, events=False)
    for _ in range(4):
        plan(a, b, out)
    assert silent.count == 1
    gate = cl.UserEvent(queue.context)
    a.add_event(gate)
    plan(a, b, out)
    assert silent.count == 1 and not devices.is_complete(out.events[-1])
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert right(a, b, out)


def test_memory_outlives_launches_without_events(queue, rng, silent):
    plan, a, b, out = prepared(queue, rng, events=False)
    for _ in range(3):
        plan(a, b, out)
    queue.finish()
    gate = cl.UserEvent(queue.context)
    cl.enqueue_barrier(queue, wait_for=[gate])
    plan(a, b, out)
    assert silent.count == 1
    memory = out.base_data
    del plan, a, b, out
    gc.collect()
    waiting = [event for event, things in operands._pending if memory in things[0]]
    assert waiting and not any(map(devices.is_complete, waiting))
    gate.set_status(cl.command_execution_status.COMPLETE)
    queue.finish()
    assert all(map(devices.is_complete, waiting))


def test_a_refused_launch_without_event_is_described(queue, rng, silent, launches):
    plan, a, b, out = prepared(queue, rng, events=False)
    for _ in range(3):
        plan(a, b, out)
    launches.forget()
    silent.status = -5
    renew(queue, rng, a, b, out)
    assert plan(a, b, out) is out and right(a, b, out)
    assert (silent.count, launches.kept, launches.described) == (1, 0, 1)


def test_events_where_order_cannot_make_up_for_them(device, rng, silent):
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if not device.cl_device.queue_properties & properties:
        pytest.skip("the device has no queues out of order")
    queue = cl.CommandQueue(device.context, device.cl_device, properties=properties)
    plan, a, b, out = prepared(queue, rng, events=False)
    for _ in range(5):
        before = list(out.events)
        plan(a, b, out)
        assert out.events != before
    assert silent.count == 0 and right(a, b, out)


def test_events_where_the_librarys_function_is_not_found(queue, rng, monkeypatch):
    monkeypatch.setattr(devices, "_enqueue_function", lambda: None)
    plan, a, b, out = prepared(queue, rng, events=False)
    for _ in range(5):
        before = list(out.events)
        plan(a, b, out)
        assert out.events != before
    assert right(a, b, out)


def test_host_arrays_have_no_events(rng):
    a = rng.standard_normal((4, 5)).astype(np.float32)
    with pytest.raises(ArgumentError, match="events=False concerns pyopencl arrays.*ndarray"):
        MatMul(a, a.T, events=False)
