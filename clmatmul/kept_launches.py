"""Launches kept ready: for a prepared product of the same pyopencl arrays, over and over.

Describing operands and setting a kernel's arguments take several times as long as starting it.
So when a product of the same three arrays comes a second time, kernel objects of its own are kept
with every argument set, and from then on a call is one launch. They are forgotten as soon as one
of the arrays is.
"""

import weakref

from clmatmul.operands import hand_on, pending

_MOST = 8  # triples of arrays of one prepared product


class KeptLaunches:
    """The kept launches of one prepared product, by the arrays that they work on."""

    def __init__(self, recipe):
        self._recipe = recipe
        self._seen = None  # the last triple of arrays that had no kept launch
        self._kept = {}

    def again(self, a, b, out):
        """Launch the product of these arrays if it is kept; True if so."""
        kept = self._kept.get((id(a), id(b), id(out)))
        if kept is None or not kept.serves(a, b, out):
            return False
        kept.launch(a, b, out)
        return True

    def remember(self, a, b, out):
        """Told of a product that was launched the long way; kept when it comes a second time."""
        key = (id(a), id(b), id(out))
        if self._seen != key:
            self._seen = key
            return
        while len(self._kept) >= _MOST:
            self._kept.pop(next(iter(self._kept)), None)
        kept = self._kept

        def forget(_dead):
            kept.pop(key, None)

        kept[key] = _Kept(self._recipe, a, b, out, forget)


class _Kept:
    """Kernel objects with their arguments set, and what must be as it was for them to serve."""

    def __init__(self, recipe, a, b, out, forget):
        self._device = recipe.device
        self._queue = a.queue
        self._arrays = tuple((weakref.ref(x, forget), *_place(x)) for x in (a, b, out))
        first, second = (b, a) if recipe.swapped else (a, b)
        operands = {
            name: (x.base_data, x.offset // x.dtype.itemsize)
            for name, x in (("a", first), ("b", second), ("out", out))
        }
        plan = recipe.executable.plan
        allocate = self._device.allocate if out.allocator is None else out.allocator
        # Calls with one output follow each other, so they can share what lies between launches.
        self._workspace = {x.name: allocate(x.bytes) for x in plan.workspace}
        self._launches = recipe.executable.bound(operands, recipe.scalars, self._workspace)

    def serves(self, a, b, out):
        """True if these are the arrays, on the same queue and with the same memory."""
        for x, (held, *place) in zip((a, b, out), self._arrays, strict=True):
            if held() is not x or x.queue is not self._queue or _place(x) != tuple(place):
                return False
        return True

    def launch(self, a, b, out):
        self._device.check_process()
        arrays = (a, b, out)
        events = waited = list({id(x): x for x in pending(arrays)}.values())
        for kernel, global_size, local_size in self._launches:
            events = [self._device.enqueue(self._queue, kernel, global_size, local_size, events)]
        hand_on(events[0], arrays, self._workspace, waited)


def _place(x):
    """Where an array's elements are; the buffer itself, so that its handle is not another's."""
    return x.base_data, x.offset, x.shape, x.strides
