"""Products that were asked for before: what was found out then, so that a repeat only launches.

For a product of plain NumPy arrays on a device that shares the host's memory, everything but the
addresses follows from dtypes, shapes and strides; for pyopencl arrays it follows from these and
their offsets. A `Recipe` keeps what follows; a repeat of the first kind wraps the memory, launches
and waits, one of the second launches. Anything unusual (overlap, byte order, subclasses, keywords)
is left to the long way.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from clmatmul import call_log
from clmatmul import device as devices
from clmatmul.device_arrays import empty_array, is_plain_device_array, memory_range
from clmatmul.host_launches import HostLaunches
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
    fused: tuple = ()  # (name, array) of the epilogue's arrays, which stay the same
    fused_forms: tuple = ()  # the signatures of those in a device's memory
    launches: HostLaunches = field(default_factory=HostLaunches, compare=False, repr=False)


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
    if is_plain_device_array(x) and x.dtype.isnative:
        return ("device", x.dtype, x.shape, x.strides, x.offset, x.dtype.num)
    return None


def same_form(a, b, forms):
    """True if two arrays are like those of `forms` (two signatures); host memory may differ in
    alignment.
    """
    return _has_form(a, forms[0]) and _has_form(b, forms[1])


def _has_form(x, form):
    if type(x) is np.ndarray:  # as a signature says it, but in half the time
        return (
            x.shape == form[2] and x.strides == form[3] and x.dtype == form[1]
            and form[0] == "host" and x.flags.aligned
        )  # fmt: skip
    found = signature(x)
    return found is not None and found[:5] == form[:5]


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
    if out is None:
        target = np.empty(recipe.shape, recipe.dtype, order=recipe.order)
    else:
        target = out
        fits = type(out) is np.ndarray and out.dtype == recipe.dtype and out.shape == recipe.shape
        if not fits or not out.flags.c_contiguous or not out.flags.writeable:
            return None
    device = recipe.device
    queue = device.queue()
    places = id(queue), *(x.__array_interface__["data"][0] for x in (a, b, target))
    launch = recipe.launches.get(places)
    if launch is None:
        operands = _wrapped(recipe, a, b, target, out is not None)
        if operands is None:
            return None
        event, keep = recipe.executable(queue, operands, recipe.scalars)
    else:
        try:
            event, operands, keep = launch(), launch.operands, None
        except devices.Refusal:
            return None  # the long way says why
    call_log.launched(recipe.executable, event)
    device.synchronize_host(queue, operands["out"][0], target.nbytes, [event])
    del keep
    if launch is None:
        recipe.launches.offer(places, recipe, queue, operands)
    return target[()] if recipe.is_scalar and out is None else target


def _wrapped(recipe, a, b, target, is_given):
    """name → (buffer over host memory, offset); None if the arrays' memory overlaps."""
    device, same = recipe.device, a is b
    spans = [span(a), span(b)]
    place = target.__array_interface__["data"][0], target.nbytes
    if not same and overlap(*spans) or is_given and any(overlap(x, place) for x in spans):
        return None
    fused = [(name, x, span(x)) for name, x in recipe.fused]
    others = [*spans, place] if is_given else spans
    if any(overlap(x, other) for _, _, x in fused for other in others):
        return None
    first = device.wrap(*spans[0], False)
    second = first if same else device.wrap(*spans[1], False)
    operands = {
        "a": (first, _offset(a, spans[0][0])),
        "b": (second, _offset(b, spans[1][0])),
        "out": (device.wrap(*place, True), 0),
    }
    if recipe.swapped:
        operands["a"], operands["b"] = operands["b"], operands["a"]
    for name, x, where in fused:
        operands[name] = (device.wrap(*where, False), _offset(x, where[0]))
    return operands


def follow_on_device(recipe, a, b, out=None):
    """As `follow`, for pyopencl arrays on one queue of the recipe's device; nothing waits."""
    queue = a.queue
    if queue is None or b.queue is not queue or a.base_data is None or b.base_data is None:
        return None
    device = recipe.device
    if devices.device_of_queue(queue) is not device:
        return None
    fused = [x for _, x in recipe.fused]
    if any(x.queue is not queue or x.base_data is None for x in fused):
        return None
    if tuple(signature(x) for x in fused) != recipe.fused_forms:
        return None
    device.check_process()
    allocator = a.allocator if a.allocator is not None else b.allocator
    if out is None:
        target = empty_array(queue, recipe.shape, recipe.dtype, recipe.order, allocator)
        if signature(target) != recipe.out:
            return None
    else:
        target = out
        if signature(out) != recipe.out or out.queue is not queue or out.base_data is None:
            return None
        range_ = memory_range(out)
        if any(meet(memory_range(x), range_) for x in (a, b, *fused)):
            return None
    first, second = (b, a) if recipe.swapped else (a, b)
    operands = {
        name: (x.base_data, x.offset // x.dtype.itemsize)
        for name, x in (("a", first), ("b", second), ("out", target), *recipe.fused)
    }
    arrays = (a, b, target, *fused)
    allocate = device.allocate if allocator is None else allocator
    event, keep = recipe.executable(
        queue, operands, recipe.scalars, pending(arrays), None, allocate
    )
    call_log.launched(recipe.executable, event)
    hand_on(event, arrays, keep)
    return target


def _offset(array, low):
    return (array.__array_interface__["data"][0] - low) // array.itemsize
