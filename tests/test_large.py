"""Products whose memory, counts or launches pass 2^31 elements, 4 GiB, 65,535 or 2^16 groups.

Memory that is reserved and not touched costs nothing where the device shares the host's: most of
these need little of it. Those that must touch gigabytes are left to `-m slow`.
"""

import mmap

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from extra_variants import two_kernels

import clmatmul
from clmatmul.choose import choose
from clmatmul.explanation import plain_problem
from clmatmul.plan import make_plan

__all__ = ["two_kernels"]
GIB = 2**30


def needs(device, size):
    """Skip where one buffer may not be so large."""
    if device.profile.max_alloc_bytes < size:
        pytest.skip(f"one buffer of {size / GIB:.1f} GiB is more than this device allows")


def reserved(shape, strides, dtype):
    """An array in memory that is not there until it is touched; strides in bytes."""
    reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    memory = mmap.mmap(-1, reach + np.dtype(dtype).itemsize)
    return np.ndarray(shape, dtype, memory, strides=strides)


def whole(rng, shape, dtype):
    return rng.integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize("count", [65_535, 65_536, 65_537])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 3, 2)])
def test_batches_around_65535(device, rng, count, shape):
    m, n, k = shape
    a, b = whole(rng, (count, m, k), "i4"), whole(rng, (count, k, n), "i4")
    assert np.array_equal(clmatmul.matmul(a, b), a @ b)


@pytest.mark.parametrize("long", ["m", "n", "k", "batch"])
def test_each_dimension_past_every_grid_limit(device, rng, long):
    """2^16 groups of the smallest tiles, and some more."""
    size = {"m": 2, "n": 3, "k": 2, "batch": 1, long: 65_536 * 8 + 3}
    a = whole(rng, (size["batch"], size["m"], size["k"]), "i4")
    b = whole(rng, (size["batch"], size["k"], size["n"]), "i4")
    for config in (None, "naive(work_group_size=1)", "tiled(tile_m=2, tile_n=4, tile_k=8)"):
        try:
            plan = clmatmul.MatMul(a, b, config=config)
        except clmatmul.ConfigError:
            continue
        assert np.array_equal(plan(a, b), a @ b), config


@pytest.mark.parametrize("side", ["a", "b", "out", "c"])
@pytest.mark.parametrize("dtype", ["i1", "i4"])
def test_operands_that_reach_past_4_gib(device, rng, side, dtype):
    """Two lines of one operand lie more than 2^32 bytes (or 2^31 elements) apart."""
    size = np.dtype(dtype).itemsize
    pitch = 2**32 + 64
    needs(device, pitch + 64)
    m, n, k = 2, 3, 4
    shapes = {"a": (m, k), "b": (k, n), "out": (m, n), "c": (m, n)}
    arrays = {name: whole(rng, shape, dtype) for name, shape in shapes.items()}
    rows, cols = shapes[side]
    far = reserved((2, cols), (pitch, size), dtype)
    if rows > 2:
        arrays["b"] = whole(rng, (2, n), dtype)
        arrays["a"] = whole(rng, (m, 2), dtype)
    if far.shape == arrays[side].shape:
        far[...] = arrays[side]
    arrays[side] = far
    want = arrays["a"] @ arrays["b"] + np.array(arrays["c"])
    out = arrays["out"]
    got = clmatmul.gemm(arrays["a"], arrays["b"], arrays["c"], beta=1, out=out)
    assert got is out and np.array_equal(np.array(out), want)


def test_offsets_of_device_arrays_past_4_gib(device, rng):
    needs(device, 2**32 + 4096)
    queue = device.queue()
    try:
        buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 2**32 + 4096)
    except cl.MemoryError:
        pytest.skip("there is no memory for one buffer of 4 GiB")
    offset = 2**32 + 256
    a = cl_array.Array(queue, (5, 7), "f4", data=buffer, offset=offset)
    host = whole(rng, (5, 7), "f4")
    a.set(host)
    assert np.array_equal(clmatmul.matmul(a, a.T).get(), host @ host.T)
    out = cl_array.Array(queue, (5, 5), "f4", data=buffer, offset=offset + 1024)
    clmatmul.matmul(a, a.T, out=out)
    assert np.array_equal(out.get(), host @ host.T)


@pytest.mark.parametrize("m, n, k", [(46_341, 46_341, 8), (2, 2**31, 4), (1, 1, 2**31),
                                     (2**31, 2, 4), (2**17, 2**17, 1)])  # fmt: skip
def test_counts_past_2_31_are_64_bit_everywhere(device, m, n, k):
    """No index of such a plan is an int, and its launches keep to the device's limits."""
    problem = plain_problem(m, n, k)
    assert problem.wide_index and problem.kind.index == "long"
    for choice in choose(problem, device.profile):
        try:
            plan = make_plan(problem, device.profile, choice.config)
        except clmatmul.ConfigError:
            continue
        for launch in plan.launches:
            assert all(x >= 1 for x in launch.global_size)
            values = dict(launch.values)
            assert all(values[x] == size for x, size in (("m", m), ("n", n), ("k", k))
                       if x in values)  # fmt: skip


# ---- gigabytes that are touched -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_result_of_more_than_2_31_elements(device, rng):
    """46,341 x 46,341 bytes: each element is checked."""
    side = 46_341
    needs(device, side * side)
    a, b = whole(rng, (side, 2), "i1"), whole(rng, (2, side), "i1")
    got = clmatmul.matmul(a, b)
    for start in range(0, side, 4096):
        rows = slice(start, start + 4096)
        assert np.array_equal(got[rows], a[rows] @ b), start


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_sum_of_more_than_2_31_terms(device):
    """One row times one column, of bytes: 2^31 + 5 terms, counted modulo 256."""
    terms = 2**31 + 5
    needs(device, terms)
    ones = np.ones((1, terms), "i1")
    assert clmatmul.matmul(ones, ones.T)[0, 0] == np.int64(terms).astype("i1")
