"""matmul on NumPy arrays, with NumPy as the oracle."""

import mmap
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from extra_variants import two_kernels

import clmatmul
from clmatmul import device as devices
from clmatmul import walk
from clmatmul.element_types import product_type

__all__ = ["two_kernels"]
DTYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")


@pytest.fixture(params=["host memory", "own memory"])
def each_memory(request, monkeypatch):
    """Devices that share the host's memory, and such as have memory of their own."""
    if request.param == "own memory":
        monkeypatch.setattr(devices.Device, "has_host_memory", property(lambda self: False))
    walk.forget()  # nothing remembered of the other kind


def whole(rng, shape, dtype="f4"):
    """Small whole numbers, whose products and sums are exact in every dtype."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    low = 0 if dtype.kind == "u" else -4
    x = rng.integers(low, 5, shape)
    return (x + 1j * rng.integers(-4, 5, shape) if dtype.kind == "c" else x).astype(dtype)


def same_as_numpy(a, b, **keywords):
    got = clmatmul.matmul(a, b, **keywords)
    want = np.matmul(a, b, **keywords)
    assert type(got) is type(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    assert np.array_equal(got, want)
    return got


# ---- shapes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,)),
    ((2, 3), (3, 4)), ((5, 1, 2, 3), (4, 3, 6)), ((4, 2, 3), (3, 6)), ((2, 3), (4, 3, 6)),
    ((2, 1, 2, 3), (2, 4, 3, 1)), ((1, 1), (1, 1)), ((1, 7), (7, 1)), ((7, 1), (1, 9)),
    ((3, 1, 1, 2, 2), (4, 1, 2, 5)), ((2, 3, 1, 5), (2, 3, 5, 1)), ((6, 1, 4), (6, 4, 3)),
])  # fmt: skip
def test_shapes(each_memory, rng, shapes):
    same_as_numpy(whole(rng, shapes[0]), whole(rng, shapes[1]))


def test_two_vectors_give_a_scalar():
    got = clmatmul.matmul(np.float32([1, 2]), np.float32([3, 4]))
    assert type(got) is np.float32 and got == 11


@pytest.mark.parametrize("shapes", [
    ((2, 0), (0, 3)), ((0,), (0,)), ((0, 2), (2, 3)), ((2, 3), (3, 0)), ((0, 0), (0, 0)),
    ((0, 2, 3), (3, 4)), ((4, 2, 0), (4, 0, 3)), ((3, 0, 2, 2), (1, 1, 2, 2)), ((0,), (0, 3)),
    ((1, 0, 2), (2, 2)),
])  # fmt: skip
@pytest.mark.numeric
def test_no_elements_or_no_terms(each_memory, shapes):
    same_as_numpy(np.ones(shapes[0], "f4"), np.ones(shapes[1], "f4"))  # not all have float64


@pytest.mark.numeric
def test_no_terms_overwrite_out(each_memory):
    out = np.full((2, 3), np.nan, "f4")
    assert clmatmul.matmul(np.ones((2, 0), "f4"), np.ones((0, 3), "f4"), out=out) is out
    assert np.array_equal(out, np.zeros((2, 3)))


@pytest.mark.parametrize("count, n", [(65_537, 1), (500_000, 2)])
def test_many_small_matrices_are_one_launch(monkeypatch, rng, count, n):
    launches = []
    launch = devices.Device.launch
    a, b = whole(rng, (count, n, n)), whole(rng, (count, n, n))
    clmatmul.matmul(a[:3], b[:3])

    def counted(self, *arguments):
        launches.append(arguments)
        return launch(self, *arguments)

    monkeypatch.setattr(devices.Device, "launch", counted)
    plan = clmatmul.MatMul(a, b)
    launches.clear()
    assert np.array_equal(plan(a, b), a @ b)
    assert len(launches) == 1


# ---- dtypes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("other", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_result_type(dtype, other):
    """Without a device: the rule for all pairs."""
    want = np.matmul(np.ones((1, 1), dtype), np.ones((1, 1), other)).dtype
    assert product_type(np.dtype(dtype), np.dtype(other)) == want


@pytest.mark.parametrize("dtypes", [
    ("i4", "f4"), ("i8", "f4"), ("i1", "f4"), ("f2", "f4"), ("f2", "i1"), ("f2", "i2"),
    ("u8", "i8"), ("c8", "f8"), ("?", "?"), ("?", "i2"), ("i4", "u4"),
])  # fmt: skip
def test_mixed_dtypes(rng, dtypes):
    a, b = whole(rng, (3, 5), dtypes[0]), whole(rng, (5, 4), dtypes[1])
    got = same_as_numpy(a, b)
    if got.dtype == bool:
        assert set(got.view(np.uint8).ravel()) <= {0, 1}


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_integers_wrap(rng, dtype):
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, (5, 9), dtype, endpoint=True)
    same_as_numpy(a, np.ascontiguousarray(a.T))


def test_bool_bytes_other_than_one():
    a = np.array([[2, 0], [0, 255]], np.uint8).view(bool)
    assert np.array_equal(clmatmul.matmul(a, a), [[True, False], [False, True]])


def test_float16_accumulates_wider():
    one = np.ones((1, 4096), "f2")
    got = clmatmul.matmul(one, one.T)
    assert got.dtype == np.float16 and got[0, 0] == 4096


def test_bfloat16():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    a = np.arange(12).reshape(3, 4).astype(bfloat16)
    got = clmatmul.matmul(a, a.T)
    assert got.dtype == np.float32
    assert np.array_equal(got, a.astype("f4") @ a.T.astype("f4"))
    narrow = clmatmul.matmul(a, a.T, dtype="bfloat16")
    assert narrow.dtype == bfloat16
    assert np.array_equal(narrow, (a.astype("f4") @ a.T.astype("f4")).astype(bfloat16))


@pytest.mark.parametrize("dtype", ["g", "G", "O"])
def test_numpy_computes_what_no_device_has(dtype):
    a = np.arange(6).reshape(2, 3).astype(dtype)
    same_as_numpy(a, a.T)


def test_dtype_and_casting(rng):
    a, b = whole(rng, (3, 5), "i4"), whole(rng, (5, 4), "f4")
    same_as_numpy(a, b, dtype="f4")
    same_as_numpy(a, b, dtype=np.complex128)
    same_as_numpy(a, a.T, dtype="f8", casting="safe")
    with pytest.raises(TypeError, match="cannot cast operand a from int32 to float32"):
        clmatmul.matmul(a, b, dtype="f4", casting="safe")
    with pytest.raises(TypeError, match="cannot cast operand b from float32 to int32"):
        clmatmul.matmul(a, b, dtype="i4")
    with pytest.raises(clmatmul.DtypeError, match="is no dtype"):
        clmatmul.matmul(a, b, dtype="floaty")


def test_accumulate(rng):
    a = whole(rng, (3, 500), "i1") * 30
    got = clmatmul.matmul(a, a.T, accumulate="int32")
    assert got.dtype == np.int32
    assert np.array_equal(got, a.astype("i4") @ a.T.astype("i4"))
    x = rng.standard_normal((4, 3000)).astype("f4")
    exact = x.astype("f8") @ x.T.astype("f8")
    got = clmatmul.matmul(x, x.T, accumulate="float64")
    assert got.dtype == np.float32 and np.array_equal(got, exact.astype("f4"))
    with pytest.raises(clmatmul.DtypeError, match="not at least as wide as float64"):
        clmatmul.matmul(exact, exact, accumulate="float32")
    with pytest.raises(clmatmul.DtypeError, match="'wide' is no dtype"):
        clmatmul.matmul(exact, exact, accumulate="wide")


# ---- memory ---------------------------------------------------------------------------------


def views(rng):
    """(name, array) of a (6, 4) matrix in every way that memory can hold one."""
    base = whole(rng, (40, 40))
    yield "row-major", whole(rng, (6, 4))
    yield "column-major", np.asfortranarray(whole(rng, (6, 4)))
    yield "rows apart", base[3:9, 5:9]
    yield "columns apart", base[3:15:2, 5:17:3]
    yield "transposed view", base[3:7, 5:11].T
    yield "negative rows", base[9:3:-1, 5:9]
    yield "negative columns", base[3:9, 9:5:-1]
    yield "both negative", base[20:8:-2, 30:22:-2]
    yield "repeated row", np.broadcast_to(whole(rng, 4), (6, 4))
    yield "repeated column", np.broadcast_to(whole(rng, (6, 1)), (6, 4))
    yield "one number", np.broadcast_to(np.float32(3), (6, 4))
    yield "sliding windows", np.lib.stride_tricks.as_strided(base, (6, 4), (4, 4))
    yield "byte-swapped", whole(rng, (6, 4)).astype(">f4")
    yield "unaligned", unaligned(whole(rng, (6, 4)))
    yield "odd strides", packed_fields(rng)
    yield "read-only", frozen(whole(rng, (6, 4)))
    yield "nested lists", whole(rng, (6, 4)).astype("f8").tolist()


def unaligned(x):
    memory = np.empty(x.nbytes + 1, np.uint8)
    view = memory[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    assert not view.flags.aligned
    return view


def packed_fields(rng):
    records = np.zeros((6, 4), np.dtype([("skip", "u1"), ("x", "f4")]))
    records["x"] = whole(rng, (6, 4))
    return records["x"]


def frozen(x):
    x.flags.writeable = False
    return x


VIEWS = [name for name, _ in views(np.random.default_rng(0))]


@pytest.mark.parametrize("name", VIEWS)
def test_views(each_memory, rng, name):
    a = dict(views(rng))[name]
    before = np.array(a, copy=True)
    b = dict(views(rng))[name]
    want = np.matmul(np.asarray(a), np.asarray(b).T)
    got = clmatmul.matmul(a, np.asarray(b).T)
    assert got.dtype == want.dtype and np.array_equal(got, want)
    assert np.array_equal(a, before)


def test_large_temporaries_live_until_the_product_is_done(rng):
    """What had to be copied (other byte order, lists) must not be freed before the launch."""
    a = rng.integers(-4, 5, (300, 700)).astype(">f4")
    b = rng.integers(-4, 5, (700, 200)).astype(">f8")
    want = a.astype("f8") @ b.astype("f8")
    for _ in range(3):
        assert np.array_equal(clmatmul.matmul(a, b), want)
    assert np.array_equal(clmatmul.matmul(a.tolist(), b.tolist()), want)


def test_views_of_one_memory_half_an_element_apart(rng):
    memory = whole(rng, 64).view(np.uint8)
    a = memory[:96].view("f4").reshape(4, 6)
    b = memory[2:98].view("f4").reshape(6, 4)
    with np.errstate(all="ignore"):
        want = np.matmul(a, b.copy())
    assert np.array_equal(clmatmul.matmul(a, b), want, equal_nan=True)


def test_absurd_strides_of_single_rows():
    memory = np.arange(12, dtype="f4")
    a = np.lib.stride_tricks.as_strided(memory, (1, 3), (2**40 + 1, 4))
    b = np.lib.stride_tricks.as_strided(memory, (3, 1), (4, -(2**50)))
    assert np.array_equal(clmatmul.matmul(a, b), [[5.0]])


@pytest.fixture
def wrapped(monkeypatch, device):
    """(address, bytes, writable) of each piece of host memory that becomes a buffer."""
    if not device.has_host_memory:
        pytest.skip("the device has memory of its own")
    found = []
    wrap = devices.Device.wrap

    def recorded(self, address, size, writable):
        found.append((address, size, writable))
        return wrap(self, address, size, writable)

    monkeypatch.setattr(devices.Device, "wrap", recorded)
    return found


def test_nothing_is_copied(wrapped, rng):
    """On a device that shares the host's memory, strided operands are read where they lie."""
    a, b = whole(rng, (9, 20))[:, ::2], np.asfortranarray(whole(rng, (10, 7)))
    out = np.empty((9, 7), "f4")
    clmatmul.matmul(a, b, out=out)
    addresses = {x.__array_interface__["data"][0]: w for x, w in ((a, 0), (b, 0), (out, 1))}
    assert {address: writable for address, _, writable in wrapped[-3:]} == addresses


@pytest.mark.parametrize("pitch", [2**30 + 64, 2**31 + 64])
def test_offsets_beyond_two_gigabytes(pitch):
    """Two rows of int8 far apart: read where they lie if one buffer may be so large."""
    k = 200
    memory = np.frombuffer(mmap.mmap(-1, pitch + k), np.int8)
    a = np.lib.stride_tricks.as_strided(memory, (2, k), (pitch, 1))
    a[0], a[1] = np.arange(k), np.arange(k)[::-1]
    b = np.eye(k, 3, dtype=np.int8)
    clmatmul.MatMul(a, b)  # built, so that the time below is that of a call
    start = time.perf_counter()
    got = clmatmul.matmul(a, b)
    assert time.perf_counter() - start < 2
    assert np.array_equal(got, a[:, :3])


def test_spans_too_large_for_one_buffer(monkeypatch, device, wrapped, rng):
    """Packed then, where they lie apart and where they overlap."""
    monkeypatch.setitem(device.__dict__, "profile", replace(device.profile, max_alloc_bytes=3000))
    walk.forget()
    memory = whole(rng, (30, 30))
    a, b, c = memory[::4, ::3], memory[:10, :8], memory[3:5, 9:18]
    assert np.array_equal(clmatmul.matmul(a, b), a @ b)
    assert np.array_equal(clmatmul.matmul(c, memory[20:29, 1:9]), c @ memory[20:29, 1:9])
    assert max(size for _, size, _ in wrapped) <= 3000


# ---- out, order, axes -----------------------------------------------------------------------


def outputs(shape, dtype="f4"):
    m, n = shape
    yield "row-major", np.full((m, n), 77, dtype)
    yield "column-major", np.full((n, m), 77, dtype).T
    yield "negative", np.full((m, n), 77, dtype)[::-1, ::-1]
    yield "negative column-major", np.full((n, m), 77, dtype).T[::-1]
    yield "strided", np.full((3 * m, 2 * n), 77, dtype)[::3, ::2]
    yield "wider", np.full((m, n), 77, "f8")
    yield "complex", np.full((m, n), 77, "c16")
    yield "half", np.full((m, n), 77, "f2")
    yield "byte-swapped", np.full((m, n), 77, ">f4")
    yield "unaligned", unaligned(np.full((m, n), 77, dtype))


@pytest.mark.parametrize("name", [name for name, _ in outputs((2, 2))])
def test_out(each_memory, rng, name):
    a, b = whole(rng, (6, 5)), whole(rng, (5, 4))
    out = dict(outputs((6, 4)))[name]
    gaps = out.base if out.base is not None and name == "strided" else None
    assert clmatmul.matmul(a, b, out=out) is out
    assert np.array_equal(out, a @ b)
    if gaps is not None:
        assert np.count_nonzero(gaps != 77) <= out.size


def test_out_with_a_larger_batch(each_memory, rng):
    a, b = whole(rng, (2, 3)), whole(rng, (4, 3, 5))
    out = np.empty((6, 4, 2, 5), "f4")
    clmatmul.matmul(a, b, out=out)
    assert np.array_equal(out, np.broadcast_to(a @ b, out.shape))
    vector = np.empty((7,), "f4")
    clmatmul.matmul(a[0], b[0, :, 0], out=vector)
    assert np.array_equal(vector, np.full(7, a[0] @ b[0, :, 0]))


def test_out_is_an_operand(each_memory, rng):
    a = whole(rng, (6, 6))
    want = a @ a
    assert clmatmul.matmul(a, a, out=a) is a
    assert np.array_equal(a, want)


@pytest.mark.parametrize("offset", [1, 5, 17])
def test_out_overlaps_an_operand(each_memory, rng, offset):
    memory = whole(rng, 80)
    a, out = memory[:36].reshape(6, 6), memory[offset : offset + 36].reshape(6, 6)
    b = whole(rng, (6, 6))
    want, rest = a @ b, memory[offset + 36 :].copy()
    clmatmul.matmul(a, b, out=out)
    assert np.array_equal(out, want) and np.array_equal(memory[offset + 36 :], rest)


def test_out_as_tuple_and_of_vectors(rng):
    a, b = whole(rng, 5), whole(rng, (5, 3))
    out = np.empty(3, "f4")
    assert clmatmul.matmul(a, b, (out,)) is out
    assert np.array_equal(out, a @ b)
    scalar = np.empty((), "f4")
    assert clmatmul.matmul(a, a, out=scalar) is scalar
    assert scalar == a @ a


@pytest.mark.parametrize("order", "KACF")
@pytest.mark.parametrize("shapes", [((3, 4), (4, 5)), ((3, 1), (1, 4)), ((2, 3, 4), (4, 5))])
def test_order(rng, shapes, order):
    for order_a in "CF":
        for order_b in "CF":
            a = np.array(whole(rng, shapes[0]), order=order_a)
            b = np.array(whole(rng, shapes[1]), order=order_b)
            got = same_as_numpy(a, b, order=order)
            assert got.strides == np.matmul(a, b, order=order).strides


@pytest.mark.parametrize("shapes, axes", [
    (((2, 3, 4), (2, 4, 5)), [(-2, -1), (-2, -1), (-2, -1)]),
    (((3, 2, 4), (4, 2, 5)), [(0, 2), (0, 2), (0, 2)]),
    (((4, 3), (5, 4)), [(1, 0), (1, 0), (0, 1)]),
    (((4, 3), (5, 4)), [(1, 0), (1, 0), (1, 0)]),
    (((3, 4), (4,)), [(0, 1), (0,), (0,)]),
    (((4,), (4,)), [(0,), (0,), ()]),
])  # fmt: skip
def test_axes(each_memory, rng, shapes, axes):
    a, b = whole(rng, shapes[0]), whole(rng, shapes[1])
    got = same_as_numpy(a, b, axes=axes)
    out = np.empty(got.shape, "f4")
    clmatmul.matmul(a, b, out=out, axes=axes)
    assert np.array_equal(out, got)


# ---- numbers --------------------------------------------------------------------------------


def in_order(a, b):
    """The product in float32, term by term, each multiplication and addition rounded."""
    total = np.zeros((a.shape[0], b.shape[1]), "f4")
    for i in range(a.shape[1]):
        total = total + a[:, i : i + 1] * b[i : i + 1, :]
    return total


@pytest.mark.parametrize("config", [
    "naive(work_group_size=1)", "naive(work_group_size=64)", "tiled(tile_m=2, tile_n=4, tile_k=8)",
    "tiled(tile_m=16, tile_n=16, tile_k=16)", "tiled(tile_m=1, tile_n=8, tile_k=32)",
])  # fmt: skip
def test_reproducible(rng, config):
    """The same bits for every kernel and tile size: terms in order, each step rounded."""
    a = rng.standard_normal((19, 77)).astype("f4")
    b = rng.standard_normal((77, 23)).astype("f4")
    got = clmatmul.MatMul(a, b, config=config, reproducible=True)(a, b)
    assert got.tobytes() == in_order(a, b).tobytes()


def test_inputs_with_nan_and_infinity():
    a, b = np.ones((4, 5), "f4"), np.ones((5, 6), "f4")
    a[1, 2], b[3, 4] = np.nan, np.inf
    with np.errstate(all="ignore"):
        same = np.array_equal(clmatmul.matmul(a, b), a @ b, equal_nan=True)
    assert same


# ---- devices, threads, programs -------------------------------------------------------------


def test_use_device_nests_and_is_of_one_thread():
    profile = clmatmul.default_device()
    seen = []
    with clmatmul.use_device(profile.kind) as outer:
        with clmatmul.use_device(0) as inner:
            assert clmatmul.default_device().key == inner.key == clmatmul.devices()[0].key
        assert clmatmul.default_device().key == outer.key
        with pytest.raises(clmatmul.NoDeviceError), clmatmul.use_device("no such device"):
            pytest.fail("entered")
        thread = threading.Thread(target=lambda: seen.append(clmatmul.selection._chosen.get()))
        thread.start()
        thread.join()
    assert seen == [None]
    assert clmatmul.selection._chosen.get() is None


def test_device_argument(rng):
    a = whole(rng, (4, 4))
    for device in (0, clmatmul.devices()[0], "cpu" if clmatmul.devices()[0].is_cpu else "gpu"):
        assert np.array_equal(clmatmul.matmul(a, a, device=device), a @ a)


def test_many_threads_same_bits(rng):
    a = rng.standard_normal((50, 60)).astype("f4")
    b = rng.standard_normal((60, 40)).astype("f4")
    results, failures = [], []
    gate = threading.Barrier(8)

    def work():
        try:
            gate.wait()
            for _ in range(10):
                results.append(clmatmul.matmul(a, b).tobytes())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(results) == 80 and len(set(results)) == 1


@pytest.mark.numeric
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32"])
def test_products_larger_than_a_first_use_check(device, about, rng, dtype):
    """A device may go wrong where an item works long, which no small product shows."""
    about("size")
    a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((530, 720), (720, 610)))
    wide = "c16" if dtype == "complex64" else "f8"
    assert np.array_equal(clmatmul.matmul(a, b), a.astype(wide) @ b.astype(wide))
