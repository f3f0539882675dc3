"""The array API standard's namespace for Array; array-api-strict is the oracle."""

import numpy as np
import pytest

from clmatmul import Array, array_api


def whole(rng, shape, dtype="f4"):
    return np.asarray(rng.integers(-3, 4, shape)).astype(dtype)


strict = pytest.importorskip("array_api_strict")
PAIRS = [
    ("matmul", ((3, 4), (4, 2)), {}), ("matmul", ((5,), (5,)), {}), ("matmul", ((2, 3), (3,)), {}),
    ("matmul", ((3,), (3, 2)), {}), ("matmul", ((4, 1, 2, 3), (5, 3, 2)), {}),
    ("matmul", ((0, 3), (3, 2)), {}), ("matmul", ((2, 0), (0, 2)), {}),
    ("matmul", ((2, 3), (2, 3)), {}), ("matmul", ((), (3,)), {}), ("matmul", ((3, 3), ()), {}),
    ("matmul", ((2, 2, 3), (3, 3, 2)), {}),
    ("tensordot", ((2, 3), (3, 4)), {"axes": 1}), ("tensordot", ((2, 3), (4, 5)), {"axes": 0}),
    ("tensordot", ((2, 3, 4), (3, 4, 5)), {}),
    ("tensordot", ((2, 3), (3, 2)), {"axes": ((-1,), (0,))}),
    ("tensordot", ((2, 3, 4), (4, 3, 5)), {"axes": ((1, 2), (1, 0))}),
    ("tensordot", ((2, 3), (4, 3)), {"axes": 1}),
    ("tensordot", ((1, 3), (3, 4)), {"axes": ((0,), (0,))}),
    ("vecdot", ((5,), (5,)), {}), ("vecdot", ((2, 5), (3, 1, 5)), {}),
    ("vecdot", ((5, 2), (5, 2)), {"axis": -2}), ("vecdot", ((5,), (4,)), {}),
    ("vecdot", ((2, 5), (2, 5)), {"axis": 1}), ("vecdot", ((5,), (5,)), {"axis": -2}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "int16", "complex64"])
@pytest.mark.parametrize("name, shapes, keywords", PAIRS)
def test_the_standards_linear_algebra(rng, name, shapes, keywords, dtype):
    """array-api-strict is the oracle: for values, shapes, dtypes, and for what is an error."""
    hosts = [whole(rng, s, dtype) + (1j if dtype == "complex64" else 0) for s in shapes]
    hosts = [x.astype(dtype) for x in hosts]
    theirs = [strict.asarray(x) for x in hosts]
    ours = [array_api.asarray(x) for x in hosts]
    namespace = ours[0].__array_namespace__(api_version=array_api.__array_api_version__)
    try:
        want = getattr(strict, name)(*theirs, **keywords)
    except (ValueError, IndexError):
        with pytest.raises((ValueError, IndexError)):
            getattr(namespace, name)(*ours, **keywords)
        return
    for home in (namespace, namespace.linalg):
        got = getattr(home, name)(*ours, **keywords)
        assert type(got) is Array and got.shape == want.shape
        assert str(got.dtype) == str(want.dtype).removeprefix("array_api_strict.")
        assert np.array_equal(got.to_host(), np.asarray(want))


@pytest.mark.parametrize("shape", [(2, 3), (4, 2, 3), (0, 3), (3,), ()])
def test_the_standards_matrix_transpose(rng, shape):
    x = whole(rng, shape)
    ours = array_api.asarray(x)
    if len(shape) < 2:
        with pytest.raises(ValueError):
            strict.matrix_transpose(strict.asarray(x))
        with pytest.raises(ValueError):
            array_api.matrix_transpose(ours)
        with pytest.raises(ValueError):
            ours.mT  # noqa: B018
        return
    want = np.asarray(strict.matrix_transpose(strict.asarray(x)))
    assert np.array_equal(array_api.matrix_transpose(ours).to_host(), want)
    assert np.array_equal(ours.mT.to_host(), want)


@pytest.mark.parametrize("a, b", [("int8", "uint8"), ("float32", "float64"), ("uint8", "int16"),
                                  ("float32", "complex128"), ("complex64", "float64")])  # fmt: skip
def test_the_standards_promotion(a, b):
    want = strict.result_type(getattr(strict, a), getattr(strict, b))
    assert str(array_api.result_type(getattr(array_api, a), getattr(array_api, b))) in str(want)
    got = array_api.ones((1, 1), dtype=getattr(array_api, a)) @ array_api.ones(
        (1, 1), dtype=getattr(array_api, b)
    )
    assert str(got.dtype) in str(want)


def test_the_rest_of_the_namespace(rng, device):
    xp = array_api
    for got, want in (
        (xp.zeros((2, 3)), np.zeros((2, 3))), (xp.ones(3, dtype=xp.int8), np.ones(3, "i1")),
        (xp.full((2,), 1.5, dtype=xp.float32), np.full(2, 1.5, "f4")),
        (xp.eye(2, 3, k=1), np.eye(2, 3, 1)), (xp.arange(4), np.arange(4)),
        (xp.arange(1, 7, 2), np.arange(1, 7, 2)),
        (xp.permute_dims(xp.eye(2, 3), (1, 0)), np.eye(2, 3).T),
        (xp.reshape(xp.eye(2), (4,)), np.eye(2).reshape(4)),
        (xp.expand_dims(xp.arange(3), axis=-1), np.arange(3)[:, None]),
        (xp.squeeze(xp.ones((1, 3, 1)), (0, 2)), np.ones(3)),
        (xp.broadcast_to(xp.arange(3), (2, 3)), np.broadcast_to(np.arange(3), (2, 3))),
        (xp.astype(xp.eye(2), xp.float32), np.eye(2, dtype="f4")),
        (xp.from_dlpack(np.eye(3)), np.eye(3)), (xp.asarray([[1, 2]]), np.array([[1, 2]])),
    ):  # fmt: skip
        assert type(got) is Array and got.dtype == want.dtype
        assert np.array_equal(got.to_host(), want)
    assert xp.empty((2, 3), dtype=xp.int32).shape == (2, 3)
    a = xp.eye(2)
    assert xp.asarray(a) is a and xp.asarray(a, copy=True) is not a and xp.from_dlpack(a) is a
    for bad in (
        lambda: xp.asarray(np.eye(2), copy=False), lambda: xp.squeeze(a, 0),
        lambda: xp.expand_dims(a, axis=5), lambda: xp.isdtype(xp.int8, "letters"),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            bad()
    with pytest.raises(NotImplementedError, match="2099"):
        a.__array_namespace__(api_version="2099.12")
    assert xp.isdtype(xp.int8, ("integral", "bool")) and not xp.isdtype(xp.int8, "real floating")
    assert xp.can_cast(xp.int8, xp.int16) and xp.result_type(a, xp.float32) == xp.float64
    info = xp.__array_namespace_info__()
    assert info.default_device() == device.profile and device.profile in info.devices()
    assert (
        info.default_dtypes()["integral"] == xp.int64
        and not info.capabilities()["boolean indexing"]
    )
    assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
