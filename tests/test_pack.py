"""Operands packed once, and calls that allocate nothing."""

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from conftest import in_threads

import clmatmul
from clmatmul import count_transfers, emulated_calls, operands, repeats
from clmatmul import device as devices

# Small tiles of the variant that rewrites its operands into panels.
PANELS = (
    "cpu_packed(micro_m=3, vectors=1, vector_width=4, unroll=2, tile_m=24, tile_n=32, block_k=64)"
)


def whole(rng, shape, dtype="f4"):
    x = np.asarray(rng.integers(-3, 4, shape))
    return (x + 1j * rng.integers(-3, 4, shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


@pytest.fixture
def launches(monkeypatch):
    """(items, first item or None) of each launch."""
    seen = []
    launch = devices.Device.launch

    def counted(self, queue, kernel, arguments, size, local, wait_for, first=None):
        seen.append((size, first))
        return launch(self, queue, kernel, arguments, size, local, wait_for, first)

    monkeypatch.setattr(devices.Device, "launch", counted)
    return seen


@pytest.mark.parametrize("shapes", [
    ((5, 70), (70, 9)), ((70,), (70, 9)), ((5, 70), (70,)), ((4, 5, 70), (70, 9)),
    ((5, 70), (4, 70, 9)), ((4, 5, 70), (4, 70, 9)), ((0, 70), (70, 9)), ((5, 0), (0, 9)),
])  # fmt: skip
@pytest.mark.parametrize("memory", ["host", "own"])
def test_in_place_of_either_operand(monkeypatch, rng, shapes, memory):
    if memory == "own":
        monkeypatch.setattr(devices.Device, "has_host_memory", property(lambda self: False))
    a, b = whole(rng, shapes[0]), whole(rng, shapes[1])
    want = a @ b
    for got in (
        clmatmul.matmul(a, clmatmul.pack(b)), clmatmul.matmul(clmatmul.pack(a), b),
        clmatmul.matmul(clmatmul.pack(a), clmatmul.pack(b)),
    ):  # fmt: skip
        assert type(got) is type(want) and got.dtype == want.dtype and got.shape == want.shape
        assert np.array_equal(got, want)


def test_the_other_operand_decides_what_the_result_is(device, rng):
    a, b = whole(rng, (5, 7)), whole(rng, (7, 3))
    for packed in (clmatmul.pack(b), clmatmul.pack(cl_array.to_device(device.queue(), b)),
                   clmatmul.pack(clmatmul.Array.from_host(b))):  # fmt: skip
        assert type(clmatmul.matmul(a, packed)) is np.ndarray
        got = clmatmul.matmul(cl_array.to_device(device.queue(), a), packed)
        assert type(got) is cl_array.Array and np.array_equal(got.get(), a @ b)
        got = clmatmul.matmul(clmatmul.Array.from_host(a), packed)
        assert type(got) is clmatmul.Array and np.array_equal(got.to_host(), a @ b)
        out = np.full((5, 3), np.nan, "f4")
        assert clmatmul.matmul(a, packed, out=out) is out and np.array_equal(out, a @ b)


@pytest.mark.parametrize("dtype", ["c8", "f2", "i1"])
def test_gemm_with_a_packed_operand(rng, dtype):
    a, b, c = whole(rng, (5, 7), dtype), whole(rng, (3, 7), dtype), whole(rng, (5, 3), dtype)
    how = "C" if dtype == "c8" else True
    want = clmatmul.gemm(a, b, c, beta=1, transpose_b=how)
    assert np.array_equal(clmatmul.gemm(a, clmatmul.pack(b), c, beta=1, transpose_b=how), want)
    accumulate = {"accumulate": "int32"} if dtype == "i1" else {}
    got = clmatmul.gemm(clmatmul.pack(b), a, transpose_b=True, **accumulate)
    assert np.array_equal(got, clmatmul.gemm(b, a, transpose_b=True, **accumulate))


def test_values_are_those_of_the_time_of_packing(device, rng):
    b, a = whole(rng, (7, 3)), whole(rng, (5, 7))
    want = a @ b
    there = cl_array.to_device(device.queue(), b)
    for x, change in ((b.copy(), lambda x: x.fill(9)), (there, lambda x: x.fill(9))):
        packed = clmatmul.pack(x)
        change(x)
        assert np.array_equal(clmatmul.matmul(a, packed), want)


def test_it_is_sent_once(monkeypatch, rng):
    monkeypatch.setattr(devices.Device, "has_host_memory", property(lambda self: False))
    a, b = whole(rng, (5, 70)), whole(rng, (70, 9))
    with count_transfers() as moved:
        packed = clmatmul.pack(b)
        assert moved.uploaded == b.nbytes
        for _ in range(3):
            clmatmul.matmul(a, packed)
    assert moved.uploaded == b.nbytes + 3 * a.nbytes and moved.downloaded == 3 * 5 * 9 * 4


@pytest.mark.parametrize("orders", ["CC", "FC", "CF"])
def test_panels_are_made_once_for_every_number_of_rows(device, launches, rng, orders):
    """The items that rewrite B run for the first product only, whatever m is."""
    if not device.profile.is_cpu:
        pytest.skip("the variant with panels is for CPUs")
    b = np.array(whole(rng, (70, 9)), order=orders[1])
    packed = clmatmul.pack(b)
    plain = packed.nbytes
    for m, expected in ((5, 3), (5, 2), (24, 2), (130, 2), (1000, 2)):
        a = np.array(whole(rng, (m, 70)), order=orders[0])
        plan = clmatmul.MatMul(a, packed, config=PANELS)
        launches.clear()
        assert np.array_equal(plan(a, packed), a @ b)
        assert len(launches) == expected  # (panels of B,) panels of A, product
        assert launches[-2][1] == (0,)
    assert packed.nbytes > plain


def test_panels_of_both_operands(device, launches, rng):
    if not device.profile.is_cpu:
        pytest.skip("the variant with panels is for CPUs")
    a, b = whole(rng, (30, 70), "c8"), whole(rng, (70, 9), "c8")
    left, right = clmatmul.pack(a), clmatmul.pack(b)
    plan = clmatmul.MatMul(left, right, config=PANELS)
    out = np.full((30, 9), np.nan, "c8")
    for expected in (3, 1, 1):
        launches.clear()
        assert np.array_equal(plan(left, right, out), a @ b)
        assert len(launches) == expected
    # as a column-major output wants it, the operands change places
    turned = np.full((9, 30), np.nan, "c8").T
    plan = clmatmul.MatMul(left, right, turned, config=PANELS)
    plan(left, right, turned)
    assert np.array_equal(turned, a @ b)


def test_large_products_take_a_kernel_with_panels(device, launches, rng):
    """Nothing is forced: once the panels exist, a kernel that reads them is the best choice."""
    if not device.profile.is_cpu:
        pytest.skip("the variant with panels is for CPUs")
    a, b = whole(rng, (8, 1100)), whole(rng, (1100, 1000))
    packed = clmatmul.pack(b)
    assert clmatmul.MatMul(a, packed).config.variant == "cpu_packed"
    assert np.array_equal(clmatmul.matmul(a, packed), a @ b)
    launches.clear()
    assert np.array_equal(clmatmul.matmul(a, packed), a @ b)
    assert len(launches) == 2


def test_panels_are_bounded(device, rng):
    if not device.profile.is_cpu:
        pytest.skip("the variant with panels is for CPUs")
    b = whole(rng, (600, 9))
    packed = clmatmul.pack(b)
    a = whole(rng, (5, 600))
    for k in (64, 128, 192, 256, 384, 512):
        for tile_n in (32, 64):
            config = PANELS.replace("block_k=64", f"block_k={k}").replace("=32", f"={tile_n}")
            assert np.array_equal(clmatmul.MatMul(a, packed, config=config)(a, packed), a @ b)
    assert packed.nbytes < b.nbytes * (1 + 2 * 8)


def test_panels_wait_and_are_waited_for(device, rng):
    """On an out-of-order queue, with work that is held back until everything is enqueued."""
    if not device.profile.is_cpu:
        pytest.skip("the variant with panels is for CPUs")
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    queue = cl.CommandQueue(device.context, device.cl_device, properties=properties)
    gate = cl.UserEvent(device.context)
    a, b = whole(rng, (30, 70)), whole(rng, (70, 9))
    source, here = cl_array.to_device(queue, b), cl_array.to_device(queue, a)
    plan = clmatmul.MatMul(here, source, config=PANELS)
    source.add_event(gate)
    packed = clmatmul.pack(source)
    results = [plan(here, packed) for _ in range(3)]
    assert not any(devices.is_complete(x) for r in results for x in r.events)
    gate.set_status(cl.command_execution_status.COMPLETE)
    for result in results:
        assert np.array_equal(result.get(), a @ b)


def test_from_many_threads(rng):
    a, b = whole(rng, (64, 256)), whole(rng, (256, 128))
    packed, wrong = clmatmul.pack(b), []

    def work():
        for _ in range(5):
            if not np.array_equal(clmatmul.matmul(a, packed), a @ b):
                wrong.append(1)

    in_threads(work, 4)
    assert not wrong


@pytest.mark.parametrize("call, error", [
    (lambda p: clmatmul.pack(np.float32(1)), ValueError),
    (lambda p: clmatmul.pack(np.array(["a"])), TypeError),
    (lambda p: clmatmul.pack(np.ones((2, 2)), queue=3), ValueError),
    (lambda p: clmatmul.pack(np.ones((2, 2)), device="none such"), clmatmul.NoDeviceError),
    (lambda p: clmatmul.matmul(np.ones((2, 3), "f4"), p), ValueError),
    (lambda p: clmatmul.matmul(np.ones((2, 4), "g"), p), TypeError),
    (lambda p: clmatmul.matmul(np.ma.ones((2, 4)), p), TypeError),
    (lambda p: np.ones((2, 4)) @ p, TypeError),
    (lambda p: np.matmul(np.ones((2, 4)), p), TypeError),
])  # fmt: skip
def test_refused(call, error):
    with pytest.raises(error):
        call(clmatmul.pack(np.ones((4, 2), "f4")))


def test_what_it_tells(device, rng):
    packed = clmatmul.pack(whole(rng, (7, 3)))
    assert packed.shape == (7, 3) and packed.dtype == np.float32 and packed.ndim == 2
    assert packed.device == device.profile and packed.nbytes == 84
    assert (
        repr(packed) == f"clmatmul.Packed(shape=(7, 3), dtype=float32, on {device.profile.title})"
    )


def test_another_context_is_refused(device, rng):
    context = cl.Context([device.cl_device])
    packed = clmatmul.pack(np.ones((4, 2), "f4"), queue=cl.CommandQueue(context))
    assert np.array_equal(clmatmul.matmul(np.ones((3, 4), "f4"), packed), np.full((3, 2), 4))
    with pytest.raises(clmatmul.DeviceError, match="different OpenCL contexts"):
        clmatmul.matmul(clmatmul.Array.from_host(np.ones((3, 4), "f4")), packed)


# ---- calls without allocation ---------------------------------------------------------------


@pytest.mark.parametrize("config", [PANELS, "naive()", None])
def test_a_callers_workspace_and_out(device, monkeypatch, rng, config):
    if config == PANELS and not device.profile.is_cpu:
        pytest.skip("the variant with panels is for CPUs")
    queue = cl.CommandQueue(device.context, device.cl_device)
    x, y = whole(rng, (30, 200)), whole(rng, (200, 9))
    a, b = cl_array.to_device(queue, x), cl_array.to_device(queue, y)
    out = cl_array.empty(queue, (30, 9), "f4")
    plan = clmatmul.MatMul(a, b, out, config=config)
    if config is not None:
        assert (plan.workspace_bytes > 0) == (config == PANELS)
    workspace = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, max(plan.workspace_bytes, 1))

    def refused(*arguments, **keywords):
        raise AssertionError("memory was allocated")

    for name in ("allocate", "scratch", "upload"):
        monkeypatch.setattr(devices.Device, name, refused)
    for module in (operands, repeats, emulated_calls):
        monkeypatch.setattr(module, "empty_array", refused)
    for _ in range(2):
        assert plan(a, b, out, workspace=workspace) is out
    assert np.array_equal(out.get(), x @ y)


def test_workspace_for_host_arrays(device, rng):
    if not device.profile.is_cpu:
        pytest.skip("the variant with panels is for CPUs")
    a, b = whole(rng, (30, 200)), whole(rng, (200, 9))
    plan = clmatmul.MatMul(a, b, config=PANELS)
    workspace = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, plan.workspace_bytes)
    assert np.array_equal(plan(a, b, workspace=workspace), a @ b)
    small = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, plan.workspace_bytes - 1)
    with pytest.raises(ValueError, match="workspace has .* needs"):
        plan(a, b, workspace=small)
    with pytest.raises(ValueError, match="no pyopencl.Buffer"):
        plan(a, b, workspace=np.empty(plan.workspace_bytes, "u1"))
