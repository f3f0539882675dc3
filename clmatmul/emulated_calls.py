"""Products in emulated float64 from arguments to result: operands to the host, products of whole
numbers on the device, what is fused behind them on the host, the result to where it belongs."""

import math
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import as_strided

from clmatmul import device as devices
from clmatmul import emulated
from clmatmul.arguments import read_arguments
from clmatmul.calls import as_scalar, prepare
from clmatmul.device_arrays import empty_array, fetch, is_device_array, view_of
from clmatmul.element_types import product_type
from clmatmul.errors import UnsupportedError
from clmatmul.operands import common_queue
from clmatmul.packed import Packed
from clmatmul.problem import ArrayView
from clmatmul.reference import finish, round_to, wide_type
from clmatmul.request import Request
from clmatmul.selection import resolve


def product_name(request, a, b):
    """The name of the product's dtype; None for packed operands, which stay on their device."""
    if isinstance(a, Packed) or isinstance(b, Packed):
        return None
    a, b = (x if hasattr(x, "dtype") else np.asarray(x) for x in (a, b))
    return product_type(a.dtype, b.dtype, request.dtype).name


class EmulatedCall:
    """A call with its arguments checked; `run` computes, waits, and returns the result.

    problem: the product as it was asked for. The errors are those of `calls.prepare`.
    """

    def __init__(self, request, a, b, c, out):
        self.arguments = call = read_arguments(request, a, b, c, out)
        asked = None if request.device is None else resolve(request.device)
        self.queue = request.queue
        if call.on_device:
            self.queue = common_queue(call.given, request.queue, asked)
        written = {"out": np.empty(call.shape, call.result, call.order)}
        if call.aux is not None:
            written["aux"] = call.aux
        arrays = {**call.arrays, **written}
        self.problem = call.problem({name: ArrayView.of(x, 0) for name, x in arrays.items()})

    @cached_property
    def whole_numbers(self):
        """The PreparedCall of a product of whole numbers as large as this one: its kernel serves
        for all of them."""
        shape = self.arguments.arrangement
        a = np.empty(shape.batch + (shape.m, shape.k), np.int32)
        b = np.empty(shape.batch + (shape.k, shape.n), np.int32)
        return prepare(self._request("int64"), a, b, None, None)

    def run(self, workspace=None):
        """UnsupportedError if a row's numbers lie too far apart, or for a workspace."""
        if workspace is not None:
            raise UnsupportedError(
                "an emulated product has several launches and takes no workspace; leave it out"
            )
        call = self.arguments
        if call.request.wait_for:
            devices.wait(call.request.wait_for)
        values = {name: _on_host(x, self.queue) for name, x in call.arrays.items()}
        target = np.empty(call.shape, call.result, call.order)
        written = {"out": target}
        if call.aux is not None:
            written["aux"] = _on_host(call.aux, self.queue)
        seen = self._seen({**values, **written})
        value = self._value(seen)
        if call.aux is not None:
            before = self._finished(value, seen, before_activation=True)
            seen["aux"][...] = round_to(before, seen["aux"].dtype.name)
            if call.on_device:
                _to_device(written["aux"], call.aux, self.queue)
        seen["out"][...] = round_to(self._finished(value, seen), call.result.name)
        return self._delivered(target)

    def _value(self, seen):
        """A @ B in float64 or complex128; None if alpha is 0, and nothing is read."""
        if self.arguments.scalars["alpha"] == 0:
            return None
        request = self.arguments.request
        a, b = (
            x.conj() if how == "C" else x
            for x, how in ((seen["a"], request.transpose_a), (seen["b"], request.transpose_b))
        )
        return emulated.multiply(a, b, self._product_in("int64"), self._product_in("float32"))

    def _finished(self, value, seen, before_activation=False):
        """What is fused, in the host's widest floating type."""
        call = self.arguments
        epilogue = call.request.epilogue
        plain = epilogue is None and call.scalars == {"alpha": 1, "beta": 0}
        if plain and value is not None:
            return value
        fused = {x: y for x, y in seen.items() if x not in ("a", "b", "c", "out", "aux")}
        for name, axis in (("row_scale", -1), ("col_scale", -2)):
            if name in fused:
                fused[name] = np.expand_dims(fused[name], axis)
        if epilogue is not None:
            fused["activation"] = epilogue.activation or "none"
            fused["bounds"], fused["expression"] = epilogue.bounds, epilogue.expression
        wide = wide_type("complex128" if call.compute.kind == "complex" else "float64")
        value = None if value is None else value.astype(wide)
        return finish(
            value, seen["out"].shape, wide, **call.scalars, c=seen.get("c"), epilogue=fused,
            before_activation=before_activation,
        )  # fmt: skip

    def _delivered(self, target):
        call, out = self.arguments, self.arguments.out
        if not call.on_device:
            if out is None:
                return as_scalar(target, call.is_vector_product)
            np.copyto(out, target, casting="same_kind")
            return out
        if out is None:
            out = empty_array(self.queue, target.shape, call.result, call.order, None)
        _to_device(target, out, self.queue)
        return out

    def _product_in(self, dtype):
        return lambda x, y: prepare(self._request(dtype), x, y, None, None).run()

    def _request(self, dtype):
        """A plain product of NumPy arrays on the device of this call."""
        request = self.arguments.request
        return Request(
            dtype=dtype, precision="highest", queue=self.queue, memory_limit=request.memory_limit,
            device=None if self.arguments.on_device else request.device,
            config=request.config if dtype == "int64" else None,
        )  # fmt: skip

    def _seen(self, arrays):
        """NumPy arrays as (batch…, rows, columns), the memory being theirs."""
        views = {name: ArrayView.of(x, 0) for name, x in arrays.items()}
        views = self.arguments.arranged(views)
        return {
            name: as_strided(x, views[name].shape, [y * x.itemsize for y in views[name].strides])
            for name, x in arrays.items()
        }


def _on_host(x, queue):
    """The values of an array as a NumPy array; for one of a device it waits."""
    if not is_device_array(x):
        return x
    host, first = _span_on_host(x, queue)
    return as_strided(host[first:], x.shape, x.strides)


def _to_device(values, array, queue):
    """Write a NumPy array to a pyopencl array, whatever its strides; it waits."""
    if not array.size:
        return
    host, first = _span_on_host(array, queue)
    as_strided(host[first:], array.shape, array.strides)[...] = values
    _span(array, queue)[0].set(host, queue)


def _span_on_host(x, queue):
    """(all elements between an array's first and last in memory, the place of its [0, 0, …])."""
    if not math.prod(x.shape):
        return np.empty(0, x.dtype), 0
    span, first = _span(x, queue)
    return fetch(span), first


def _span(x, queue):
    ends = [(extent - 1) * stride for extent, stride in zip(x.shape, x.strides, strict=True)]
    low, high = sum(min(0, y) for y in ends), sum(max(0, y) for y in ends)
    size = x.dtype.itemsize
    x = x if x.queue is not None else x.with_queue(queue)
    count = (high - low) // size + 1
    return view_of(x, (count,), (size,), x.offset + low), -low // size
