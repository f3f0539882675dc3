"""Array: NumPy's functions and operators on device memory, and what is copied when."""

import operator
import subprocess
import sys

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clmatmul
from clmatmul import Array, count_transfers, walk
from clmatmul import device as devices


def whole(rng, shape, dtype="f4"):
    return np.asarray(rng.integers(-3, 4, shape)).astype(dtype)


@pytest.fixture
def x(rng):
    return whole(rng, (3, 4))


@pytest.fixture
def y(rng):
    return whole(rng, (4, 2))


# ---- from and to the host -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "f8", "c8", "c16", "bfloat16"])
def test_there_and_back(rng, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    x = whole(rng, (3, 4)).astype(dtype)
    for host in (x, x.T, x[::2, ::-1], x[1], x[1, 1:2][0], x[:0], np.asfortranarray(x),
                 np.broadcast_to(x, (2, 3, 4)), x.reshape(3, 2, 2).transpose(2, 0, 1)):  # fmt: skip
        got = Array.from_host(host)
        back = got.to_host()
        assert got.shape == back.shape == np.shape(host) and got.dtype == back.dtype == x.dtype
        assert np.array_equal(back.astype("c16"), np.asarray(host).astype("c16"))


def test_the_memory_order_is_kept(x):
    assert Array.from_host(np.asfortranarray(x)).strides == np.asfortranarray(x).strides
    assert Array.from_host(x[:, ::2]).strides == (8, 4)


def test_other_byte_orders_and_lists():
    assert np.array_equal(Array.from_host(np.ones(3, ">f4")).to_host(), np.ones(3, "f4"))
    assert Array.from_host([[1, 2]]).dtype == np.int64


@pytest.mark.parametrize("bad, error", [
    (np.array(["a"]), TypeError), (np.ones(2, "g"), TypeError), (np.array([None]), TypeError),
    (np.ma.ones(3), TypeError), ([[1], [1, 2]], ValueError),
])  # fmt: skip
def test_what_no_device_holds(bad, error):
    with pytest.raises(error):
        Array.from_host(bad)


def test_it_wraps_a_pyopencl_array_without_a_copy(device, x):
    inner = cl_array.to_device(device.queue(), x)
    outer = Array(inner)
    assert outer.cl is inner and Array(outer).cl is inner
    inner.fill(5)
    assert np.array_equal(outer.to_host(), np.full_like(x, 5))
    with pytest.raises(TypeError, match="from_host"):
        Array(x)


def test_facts(device, x):
    a = Array.from_host(x)
    assert (a.shape, a.ndim, a.size, a.itemsize, a.nbytes, len(a)) == ((3, 4), 2, 12, 4, 48, 3)
    assert a.device == device.profile
    with count_transfers() as moved:
        assert repr(a) == f"clmatmul.Array(shape=(3, 4), dtype=float32, on {a.device.title})"
    assert moved.downloaded == 0
    with pytest.raises(TypeError, match="len"):
        len(a[0, 0])


def test_single_elements():
    a = Array.from_host(np.float32([[2.5]]))
    assert a.item() == float(a) == complex(a) == 2.5 and int(a) == 2 and bool(a)
    assert operator.index(Array.from_host(np.int32(7))) == 7
    with pytest.raises(ValueError, match="no single number"):
        float(Array.from_host(np.ones(2)))


def test_asarray_asks_for_the_values(x):
    a = Array.from_host(x)
    assert type(np.asarray(a)) is np.ndarray and np.array_equal(np.asarray(a), x)
    assert np.array(a, dtype="f8").dtype == np.float64
    with pytest.raises(ValueError):
        a.__array__(copy=False)


# ---- bytes moved ----------------------------------------------------------------------------


def test_inputs_are_never_copied_back_and_outputs_never_uploaded(x, y):
    out = np.full((3, 2), np.nan, "f4")
    with count_transfers() as moved:
        a, b = Array.from_host(x), Array.from_host(y)
        c = Array.from_host(out, discard=True)
        assert (moved.uploaded, moved.downloaded) == (x.nbytes + y.nbytes, 0)
        clmatmul.matmul(a, b, out=c)
        for each in (a, b):
            each.synchronize()
        assert moved.downloaded == 0
        c.synchronize()
        assert (moved.uploaded, moved.downloaded) == (x.nbytes + y.nbytes, out.nbytes)
        assert np.array_equal(out, x @ y)
        c.synchronize()
        assert moved.downloaded == out.nbytes


def test_discarded_results_are_not_copied_back(x, y):
    out = np.zeros((3, 2), "f4")
    c = Array.from_host(out)
    with count_transfers() as moved:
        clmatmul.matmul(Array.from_host(x), Array.from_host(y), out=c)
        c.discard()
        c.synchronize()
    assert moved.downloaded == 0 and not out.any()
    assert np.array_equal(c.to_host(), x @ y)


@pytest.mark.parametrize("write", [
    lambda c, a: clmatmul.matmul(a, a, out=c[:2]),
    lambda c, a: clmatmul.matmul(a, a, out=c.T[:, :2].T),
    lambda c, a: clmatmul.matmul(a, a, out=clmatmul.transpose(c)[:, :2]),
    lambda c, a: clmatmul.matmul(a, a, out=(c.reshape(2, 2, 2)[0],)),
    lambda c, a: c[:2].cl.fill(1), lambda c, a: operator.imatmul(c[:2], a),
])  # fmt: skip
def test_writing_through_a_view_counts(rng, write):
    host = whole(rng, (4, 2))
    c = Array.from_host(host)
    write(c, Array.from_host(whole(rng, (2, 2))))
    assert not np.array_equal(host, c.to_host())
    c.synchronize()
    assert np.array_equal(host, c.to_host())


def test_the_host_array_may_be_strided(rng, x, y):
    big = np.zeros((6, 4), "f4")
    c = Array.from_host(big[::2, ::-2], discard=True)
    clmatmul.matmul(Array.from_host(x), Array.from_host(y), out=c)
    c.synchronize()
    assert np.array_equal(big[::2, ::-2], x @ y) and not big[1::2].any()
    fixed = np.zeros((3, 2), "f4")
    fixed.flags.writeable = False
    c = Array.from_host(fixed)
    clmatmul.matmul(Array.from_host(x), Array.from_host(y), out=c)
    with pytest.raises(ValueError, match="read-only"):
        c.synchronize()


def test_products_of_arrays_copy_nothing(x, y):
    a, b = Array.from_host(x), Array.from_host(y)
    with count_transfers() as moved:
        c = (a @ b) @ (b.T @ a.T) * 2
        with count_transfers() as inner:
            a[1:] @ b
    assert (moved.uploaded, moved.downloaded) == (0, 0) == (inner.uploaded, inner.downloaded)
    with count_transfers() as moved:
        a @ y
        c.to_host()
    assert (moved.uploaded, moved.downloaded) == (y.nbytes, c.nbytes)


@pytest.mark.parametrize("shared", [True, False])
def test_products_of_numpy_arrays(monkeypatch, x, y, shared):
    """Nothing is copied on devices that share the host's memory; no output is ever uploaded."""
    monkeypatch.setattr(devices.Device, "has_host_memory", property(lambda self: shared))
    walk.forget()  # what was remembered of arrays like these
    with count_transfers() as moved:
        clmatmul.matmul(x, y, out=np.full((3, 2), np.nan, "f4"))
    expected = (0, 0) if shared else (x.nbytes + y.nbytes, 24)
    assert (moved.uploaded, moved.downloaded) == expected


# ---- operators and NumPy's functions --------------------------------------------------------


def test_every_way_to_multiply_gives_an_array(device, x, y):
    a, b = Array.from_host(x), Array.from_host(y)
    inner = cl_array.to_device(device.queue(), y)
    for got in (a @ b, a @ y, x @ b, a @ inner, np.matmul(a, b), np.matmul(x, b), np.matmul(a, y),
                a @ y.tolist(), clmatmul.matmul(a, b), clmatmul.gemm(a, b), np.dot(a, b),
                np.linalg.multi_dot([a, b]), a.dot(b), np.tensordot(a, b, 1)):  # fmt: skip
        assert type(got) is Array and np.array_equal(got.to_host(), x @ y)
    assert type(cl_array.to_device(device.queue(), x) @ b) is Array


def test_two_vectors_give_an_array_of_no_dimension(x):
    got = Array.from_host(x[0]) @ Array.from_host(x[1])
    assert got.shape == () and got.item() == x[0] @ x[1]


def test_numpys_ufuncs(rng):
    x, y = whole(rng, (2, 3, 3)), whole(rng, (2, 3))
    a, v = Array.from_host(x), Array.from_host(y)
    for name, given in {"vecdot": ((v, v), (y, y)), "matvec": ((a, v), (x, y)),
                        "vecmat": ((v, a), (y, x))}.items():  # fmt: skip
        if hasattr(np, name):
            got = getattr(np, name)(*given[0])
            assert type(got) is Array
            assert np.array_equal(got.to_host(), getattr(np, name)(*given[1]))
    out = Array.empty((2, 3, 3))
    assert np.matmul(a, a, out=out) is out and np.array_equal(out.to_host(), x @ x)


def test_numpys_functions(x, y):
    a, b = Array.from_host(x), Array.from_host(y)
    for got, want in (
        (np.einsum("ij,jk->ki", a, b), (x @ y).T), (np.vdot(a, a), np.vdot(x, x)),
        (np.transpose(a), x.T), (np.swapaxes(a, 0, 1), x.T), (np.copy(a), x),
        (np.reshape(a, (2, 6)), x.reshape(2, 6)), (np.dot(a.T, a), x.T @ x),
    ):  # fmt: skip
        assert type(got) is Array and np.array_equal(got.to_host(), want)
    assert (np.shape(a), np.ndim(a), np.size(a)) == ((3, 4), 2, 12)
    assert np.result_type(a, np.float64) == np.float64


@pytest.mark.parametrize("call", [
    lambda a: np.add(a, 1), lambda a: np.sum(a), lambda a: np.ones((3, 4), "f4") + a,
    lambda a: np.multiply(a, a), lambda a: np.concatenate([a, a]), lambda a: np.add.reduce(a),
    lambda a: np.linalg.inv(a), lambda a: np.ones((3, 4)) * a, lambda a: np.equal(a, a),
])  # fmt: skip
def test_what_has_no_kernel_is_refused(x, call):
    with count_transfers() as moved, pytest.raises(TypeError, match=r"\.to_host\(\)"):
        call(Array.from_host(x))
    assert moved.downloaded == 0


@pytest.mark.parametrize("call", [
    lambda a: a + 1, lambda a: a * a, lambda a: a @ "text", lambda a: a @ None, lambda a: -a,
])  # fmt: skip
def test_operators_that_are_not_there(x, call):
    with pytest.raises(TypeError):
        call(Array.from_host(x))


def test_multiplied_by_numbers(x):
    a = Array.from_host(x)
    for got in (2 * a, a * 2, a * np.float32(2), np.float32(2) * a, np.multiply(2, a)):
        assert type(got) is Array and got.dtype == np.float32
        assert np.array_equal(got.to_host(), 2 * x)
    same = a
    a *= 3
    assert a is same and np.array_equal(a.to_host(), 3 * x)


def test_in_place(rng):
    x, y = whole(rng, (3, 3)), whole(rng, (3, 3))
    a = same = Array.from_host(x)
    a @= Array.from_host(y)
    assert a is same and np.array_equal(a.to_host(), x @ y)
    a @= y
    assert a is same and np.array_equal(a.to_host(), x @ y @ y)
    for other in (y[0], y[:, :1], np.ones((2, 3, 3), "f4")):
        with pytest.raises(ValueError):
            a @= other
    whole_numbers = Array.from_host(x.astype("i4"))
    with pytest.raises(TypeError, match="cannot cast"):
        whole_numbers @= y


def test_gemm_and_plans_and_epilogues(x, y):
    a, b, c = Array.from_host(x), Array.from_host(y), Array.from_host(np.ones((3, 2), "f4"))
    want = 2 * (x @ y) + 3
    got = clmatmul.gemm(a, b, c, alpha=2, beta=3)
    assert type(got) is Array and np.array_equal(got.to_host(), want)
    assert clmatmul.gemm(a, b, c, alpha=2, beta=3, out=c) is c
    assert np.array_equal(c.to_host(), want)
    plan = clmatmul.MatMul(a, b)
    assert type(plan(a, b)) is Array and plan(a, b, c) is c
    assert np.array_equal(c.to_host(), x @ y)
    bias = clmatmul.Epilogue(bias=Array.from_host(np.float32([1, 2])))
    got = clmatmul.matmul(a, b, epilogue=bias)
    assert np.array_equal(got.to_host(), x @ y + np.float32([1, 2]))
    assert np.array_equal(clmatmul.scale(2, a).to_host(), 2 * x)


def test_other_types_may_take_over(x):
    class Other:
        def __matmul__(self, other):
            return "left"

        def __rmatmul__(self, other):
            return "right"

    a = Array.from_host(x)
    assert Other() @ a == "left" and a @ Other() == "right"


def test_importing_patches_nothing():
    code = """
import numpy as np, pyopencl.array as a
before = {n: getattr(np, n) for n in ("matmul", "dot", "einsum", "ndarray")}, dict(vars(a.Array))
import clmatmul
after = {n: getattr(np, n) for n in before[0]}, dict(vars(a.Array))
assert before == after
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- views ----------------------------------------------------------------------------------


def test_views_share_memory(rng):
    x = whole(rng, (4, 3, 2))
    a = Array.from_host(x)
    for got, want in (
        (a[1], x[1]), (a[..., 0], x[..., 0]), (a[::2, None, ::-1], x[::2, None, ::-1]),
        (a.T, x.T), (a.mT, np.swapaxes(x, 1, 2)), (a.transpose(1, 0, 2), x.transpose(1, 0, 2)),
        (a.transpose((2, 0, 1)), x.transpose(2, 0, 1)), (a.reshape(12, 2), x.reshape(12, 2)),
        (a.reshape((6, -1)), x.reshape(6, -1)), (a.transpose(None), x.T),
    ):  # fmt: skip
        assert got.shape == want.shape and np.array_equal(got.to_host(), want)
        assert got.cl.base_data is a.cl.base_data
    assert [np.array_equal(i.to_host(), j) for i, j in zip(a, x, strict=True)] == [True] * 4


def test_reshape_copies_only_if_it_must(x):
    a = Array.from_host(x).T
    got = a.reshape(12)
    assert np.array_equal(got.to_host(), x.T.reshape(12)) and got.cl.base_data is not a.cl.base_data
    with pytest.raises(ValueError, match="without a copy"):
        a.reshape(12, copy=False)
    assert Array.from_host(x).reshape(12, copy=True).shape == (12,)
    for shape in ((5,), (-1, 5), (-1, -1)):
        with pytest.raises(ValueError, match="cannot have the shape"):
            a.reshape(shape)


def test_copies_and_casts(x):
    a = Array.from_host(x)
    copy = a.copy()
    copy.cl.fill(0)
    assert np.array_equal(a.to_host(), x)
    wide = a.astype("f8")
    assert wide.dtype == np.float64 and np.array_equal(wide.to_host(), x)
    assert a.astype("f4", copy=False) is a and a.astype("f4") is not a
    with pytest.raises(TypeError):
        a.astype("i4")


# ---- queues, events, devices ----------------------------------------------------------------


def test_nothing_waits(device, x, y):
    queue = cl.CommandQueue(device.context, device.cl_device)
    gate = cl.UserEvent(device.context)
    a = Array.from_host(x, queue=queue)
    a.cl.add_event(gate)
    got = a @ Array.from_host(y, queue=queue)
    assert not any(devices.is_complete(e) for e in got.cl.events)
    gate.set_status(cl.command_execution_status.COMPLETE)
    got.synchronize()
    assert np.array_equal(got.to_host(), x @ y) and got.queue == queue


def test_views_wait_for_each_other(device, rng):
    """A product into one half must be complete before the whole is read."""
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    queue = cl.CommandQueue(device.context, device.cl_device, properties=properties)
    gate = cl.UserEvent(device.context)
    x = whole(rng, (4, 4))
    a, c = Array.from_host(x, queue=queue), Array.from_host(np.zeros((4, 4), "f4"), queue=queue)
    clmatmul.matmul(a[:2], a, out=c[:2], wait_for=[gate])
    clmatmul.matmul(a[2:], a, out=c[2:])
    got = c @ a
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert np.array_equal(got.to_host(), x @ x @ x)


def test_on_a_chosen_device(device, x):
    index = clmatmul.devices().index(device.profile)
    a = Array.from_host(x, device=index)
    assert a.device == device.profile and a.to_device(index) is a
    with pytest.raises(clmatmul.NoDeviceError):
        Array.from_host(x, device="no such device")
    with pytest.raises(ValueError, match="CommandQueue"):
        Array.from_host(x, queue=1)
    without = Array(cl_array.to_device(device.queue(), x).with_queue(None))
    with pytest.raises(clmatmul.DeviceError, match="no queue"):
        without.device  # noqa: B018


# ---- DLPack ---------------------------------------------------------------------------------


def test_dlpack_shares_the_memory_of_cpus(device, x):
    if not device.has_host_memory:
        pytest.skip("the device has memory of its own")
    a = Array.from_host(x)
    for got, want in ((a, x), (a.T, x.T), (a[1:, ::2], x[1:, ::2])):
        assert got.__dlpack_device__() == (1, 0)
        taken = np.from_dlpack(got)
        assert np.array_equal(taken, want) and taken.dtype == want.dtype
        del taken
    shared = np.from_dlpack(a)
    address = shared.__array_interface__["data"][0]
    del shared
    a.cl.fill(7)
    again = np.from_dlpack(a)
    assert again.__array_interface__["data"][0] == address and (again == 7).all()
    assert np.array_equal(np.from_dlpack(a[::-1]), np.full((3, 4), 7))
    with pytest.raises(BufferError):
        a.__dlpack__(dl_device=(2, 0))


def test_dlpack_of_a_pending_result_waits(device, x, y):
    if not device.has_host_memory:
        pytest.skip("the device has memory of its own")
    assert np.array_equal(np.from_dlpack(Array.from_host(x) @ Array.from_host(y)), x @ y)


def test_dlpack_of_other_devices_is_refused(monkeypatch, x):
    a = Array.from_host(x)
    monkeypatch.setattr(devices.Device, "has_host_memory", property(lambda self: False))
    with pytest.raises(BufferError, match="to_host"):
        np.from_dlpack(a)
