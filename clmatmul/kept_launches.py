"""Launches kept ready: for a prepared product of the same pyopencl arrays, over and over.

Describing operands and setting a kernel's arguments take several times as long as starting it.
So when a product of the same three arrays comes a second time, kernel objects of its own are kept
with every argument set, and from then on a call is one launch. They are forgotten as soon as one
of the arrays is.
"""

import weakref

from clmatmul import device as devices
from clmatmul.operands import events_lock, hold_later

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
        self._in_order = devices.is_in_order(a.queue)
        self._arrays = tuple(
            (weakref.ref(x, forget), x.base_data, x.offset, x.shape, x.strides) for x in (a, b, out)
        )
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
        self._last = None  # the event of the last launch

    def serves(self, a, b, out):
        """True if these are the arrays, on the same queue and with the same memory."""
        queue = self._queue
        for x, (held, buffer, offset, shape, strides) in zip(
            (a, b, out), self._arrays, strict=True
        ):
            if held() is not x or x.base_data is not buffer or x.queue is not queue:
                return False
            if x.offset != offset or x.shape != shape or x.strides != strides:
                return False
        return True

    def launch(self, a, b, out):
        self._device.check_process()
        with events_lock:
            last, lists = self._last, (a.events, b.events, out.events)
            alone = all(len(x) == 1 and x[0] is last for x in lists)
            # An in-order queue waits for what was enqueued before, without being told.
            waited = [] if alone and self._in_order else _different(lists)
            for kernel, global_size, local_size in self._launches:
                event = self._device.enqueue(self._queue, kernel, global_size, local_size, waited)
                waited = [event]
            for events in lists:
                events[:] = waited
            self._last = event

    def __del__(self):
        # Memory must outlive the last launch, whoever lets go of the arrays first.
        if self._last is not None:
            hold_later(self._last, (self._arrays, self._workspace))


def _different(lists):
    """The events of some arrays, each once."""
    return list({id(event): event for events in lists for event in events}.values())
