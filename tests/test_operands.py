"""Arrays on their way to a device: spans, copies, overlaps."""

import numpy as np
import pytest

from clmatmul import operands
from clmatmul.errors import ArgumentError, DtypeError
from clmatmul.operands import HostMemory, host_array, normalised, span


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("key, first, size", [
    (np.s_[:], 0, 400), (np.s_[2:], 80, 320), (np.s_[::-1], 0, 400), (np.s_[:, ::-1], 0, 400),
    (np.s_[::2, 1::3], 4, 348), (np.s_[3:4, 4], 136, 4), (np.s_[:0], 0, 0),
    (np.s_[5:1:-2, 3], 132, 84),
])  # fmt: skip
def test_span(key, first, size):
    base = np.zeros((10, 10), "f4")
    assert span(base[key]) == (address(base) + first, size)


def test_spans_cover_every_element_and_no_more():
    rng = np.random.default_rng(0)
    base = np.zeros((9, 8, 7), "f8")
    for _ in range(50):
        view = base
        for axis in range(3):
            start, stop = sorted(rng.integers(0, view.shape[axis] + 1, 2))
            step = int(rng.choice([-3, -2, -1, 1, 2, 3]))
            part = np.arange(view.shape[axis])[start:stop][::step]
            if not part.size:
                continue
            end = part[-1] + step
            cut = slice(int(part[0]), int(end) if end >= 0 else None, step)
            view = view[(slice(None),) * axis + (cut,)]
        low, size = span(view)
        places = np.zeros(view.shape, int) + address(view)
        for axis, stride in enumerate(view.strides):
            shape = [-1 if i == axis else 1 for i in range(view.ndim)]
            places += (np.arange(view.shape[axis]) * stride).reshape(shape)
        assert low == places.min() and low + size == places.max() + 8


def test_normalised_copies_only_what_it_must():
    plain = np.zeros((4, 4), "f4")
    for view in (plain, plain.T, plain[::-2], np.broadcast_to(plain[0], (9, 4))):
        assert normalised(view) is view
    swapped = normalised(np.ones((2, 2), ">f4"))
    assert swapped.dtype.isnative and (swapped == 1).all()
    records = np.zeros(6, np.dtype([("skip", "u1"), ("x", "f4")]))["x"]
    assert normalised(records).strides == (4,)
    unaligned = np.zeros(9, np.uint8)[1:].view("f4")
    assert not unaligned.flags.aligned and normalised(unaligned).flags.aligned


@pytest.mark.parametrize("strides, shape, repeats", [
    ((16, 4), (3, 4), False), ((4, 12), (3, 4), False), ((0, 4), (3, 4), True),
    ((4, 4), (3, 4), True), ((-16, 4), (3, 4), False), ((8, 4), (3, 4), True),
    ((0, 4), (1, 4), False), ((2**40, 4), (1, 4), False), ((2, 4), (3, 1), True),
])  # fmt: skip
def test_repeating_elements(strides, shape, repeats):
    memory = np.zeros(64, "f4")
    assert (
        operands._repeats(np.lib.stride_tricks.as_strided(memory[32:], shape, strides)) is repeats
    )


@pytest.fixture
def memory(device):
    return HostMemory(device)


def test_out_is_written_in_place_only_where_that_is_safe(memory):
    a, b = np.zeros((4, 4), "f4"), np.zeros((4, 4), "f4")
    big = np.zeros((8, 8), "f4")

    def direct(out, inputs=(a, b), in_place=None, dtype="f4"):
        return memory.output(out.shape, np.dtype(dtype), "C", out, list(inputs), in_place) is out

    assert direct(np.zeros((4, 4), "f4")) and direct(np.zeros((4, 4), "f4").T[::-1])
    assert not direct(a) and not direct(big[::2, ::2]) and not direct(np.zeros((4, 4), ">f4"))
    assert not direct(np.zeros((4, 4), "f8"))
    assert not direct(big[:4, :4])  # gaps hold what is not ours
    rows = big[:4]
    assert direct(rows) and not direct(rows, inputs=[big[3:]]) and direct(rows, inputs=[big[4:]])
    assert direct(rows, in_place=rows) and not direct(rows, in_place=big[1:5])
    assert not direct(rows, in_place=rows[:, ::-1])


def test_overlapping_arrays_share_one_buffer(memory, device):
    if not device.has_host_memory:
        pytest.skip("the device has memory of its own")
    base = np.arange(64, dtype="f4")
    arrays = {"a": base[:24].reshape(4, 6), "b": base[20:44].reshape(6, 4), "c": np.ones(3, "f4")}
    bound = memory.bind(dict(arrays))
    assert bound["a"].buffer is bound["b"].buffer is not bound["c"].buffer
    assert (bound["a"].view.offset, bound["b"].view.offset) == (0, 20)
    for name, array in arrays.items():
        assert bound[name].array is array  # kept alive as long as the buffer


def test_host_arrays():
    assert host_array([[1, 2]], "it").dtype.kind == "i"
    array = np.zeros(3, "f4")
    assert host_array(array, "it") is array
    for x, error, message in (
        ([[1], [2, 3]], ArgumentError, "it is no array"),
        (np.ma.masked_array([1.0]), DtypeError, "it is a masked array"),
        (["x"], DtypeError, "supported are"), ([None], DtypeError, "object"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            host_array(x, "it")
