"""Products that were asked for before: what was found out then, so that a repeat only launches.

For a product of plain NumPy arrays on a device that shares the host's memory, everything but the
addresses follows from dtypes, shapes and strides; for pyopencl arrays it follows from these and
their offsets. A `Recipe` keeps what follows; a repeat of the first kind wraps the memory, launches
and waits, one of the second launches. Anything unusual (overlap, byte order, subclasses, keywords)
is left to the long way.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from clmatmul import call_log
from clmatmul import device as devices
from clmatmul.operands import hand_on, meet, overlap, pending, span
from clmatmul.problem import MAX_ALIGNMENT

_MAX_RECIPES = 512
_recipes = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class Recipe:
    """A launch but for its memory: the executable, the result's shape, dtype and order."""

    device: object
    executable: object
    scalars: dict
    shape: tuple
    dtype: np.dtype
    order: str
    swapped: bool
    is_scalar: bool  # the product of two host vectors
    out: tuple | None = None  # the signature of the output in a device's memory
    fused: tuple = ()  # (name, NumPy array) of the epilogue's arrays, which stay the same


def signature(x):
    """What decides how an array is used, but not where it is; None for unusual arrays.

    (kind, dtype, shape, strides, address as far as alignments go or offset, dtype's number); the
    number tells long from long long, which are equal dtypes but give other scalars.
    """
    if type(x) is np.ndarray:
        if not x.flags.aligned or not x.dtype.isnative:
            return None
        address = x.__array_interface__["data"][0]
        return ("host", x.dtype, x.shape, x.strides, address % MAX_ALIGNMENT, x.dtype.num)
    if devices.is_plain_device_array(x) and x.dtype.isnative:
        return ("device", x.dtype, x.shape, x.strides, x.offset, x.dtype.num)
    return None


def same_form(a, b, forms):
    """True if two arrays are like those of `forms` (two signatures); host memory may differ in
    alignment.
    """
    for x, form in ((a, forms[0]), (b, forms[1])):
        found = signature(x)
        if found is None or found[:4] != form[:4]:
            return False
        if found[0] == "device" and found[4] != form[4]:
            return False
    return True


def recall(device, a, b):
    """The Recipe for a plain product of two arrays on a device, or None."""
    key = (id(device), signature(a), signature(b))
    recipe = _recipes.get(key)
    return recipe if recipe is not None and recipe.device is device else None


def remember(recipe, a, b):
    """Keep a Recipe (or nothing, for None) for products of arrays like these, if plain."""
    if recipe is None:
        return
    key = (id(recipe.device), signature(a), signature(b))
    if None in key:
        return
    with _lock:
        _recipes[key] = recipe
        while len(_recipes) > _MAX_RECIPES:
            _recipes.popitem(last=False)


def forget():
    """Drop every recipe: the next call chooses afresh."""
    with _lock:
        _recipes.clear()


def follow(recipe, a, b, out=None):
    """The product by a Recipe, or None if the memory of out (or of a and b) forbids it."""
    spans = [span(a), span(b)]
    if out is None:
        target = np.empty(recipe.shape, recipe.dtype, order=recipe.order)
    else:
        target = out
        spans.append(span(out))
        fits = type(out) is np.ndarray and out.dtype == recipe.dtype and out.shape == recipe.shape
        if not fits or not out.flags.c_contiguous or not out.flags.writeable:
            return None
    fused = [(name, x, span(x)) for name, x in recipe.fused]
    device = recipe.device
    queue = device.queue()
    same = a is b
    if not same and overlap(spans[0], spans[1]) or out is not None and (
        overlap(spans[0], spans[2]) or overlap(spans[1], spans[2])
    ):  # fmt: skip
        return None
    if any(overlap(place, other) for _, _, place in fused for other in spans):
        return None
    buffers = [device.wrap(*spans[0], False)]
    buffers.append(buffers[0] if same else device.wrap(*spans[1], False))
    buffers.append(device.wrap(target.__array_interface__["data"][0], target.nbytes, True))
    first, second = (buffers[1], buffers[0]) if recipe.swapped else (buffers[0], buffers[1])
    offsets = [_offset(x, low) for x, (low, _) in ((a, spans[0]), (b, spans[1]))]
    if recipe.swapped:
        offsets.reverse()
    operands = {"a": (first, offsets[0]), "b": (second, offsets[1]), "out": (buffers[2], 0)}
    for name, x, place in fused:
        operands[name] = (device.wrap(*place, False), _offset(x, place[0]))
    event, keep = recipe.executable(queue, operands, recipe.scalars)
    call_log.launched(recipe.executable, event)
    device.synchronize_host(queue, buffers[2], target.nbytes, [event])
    del keep
    return target[()] if recipe.is_scalar and out is None else target


def follow_on_device(recipe, a, b, out=None):
    """As `follow`, for pyopencl arrays on one queue of the recipe's device; nothing waits."""
    queue = a.queue
    if queue is None or b.queue is not queue or a.base_data is None or b.base_data is None:
        return None
    device = recipe.device
    if devices.device_of_queue(queue) is not device:
        return None
    device.check_process()
    allocator = a.allocator if a.allocator is not None else b.allocator
    if out is None:
        target = devices.empty_array(queue, recipe.shape, recipe.dtype, recipe.order, allocator)
        if signature(target) != recipe.out:
            return None
    else:
        target = out
        if signature(out) != recipe.out or out.queue is not queue or out.base_data is None:
            return None
        range_ = devices.memory_range(out)
        if any(meet(devices.memory_range(x), range_) for x in (a, b)):
            return None
    first, second = (b, a) if recipe.swapped else (a, b)
    operands = {
        name: (x.base_data, x.offset // x.dtype.itemsize)
        for name, x in (("a", first), ("b", second), ("out", target))
    }
    arrays = (a, b, target)
    allocate = device.allocate if allocator is None else allocator
    event, keep = recipe.executable(
        queue, operands, recipe.scalars, pending(arrays), None, allocate
    )
    call_log.launched(recipe.executable, event)
    hand_on(event, arrays, keep)
    return target


def _offset(array, low):
    return (array.__array_interface__["data"][0] - low) // array.itemsize
