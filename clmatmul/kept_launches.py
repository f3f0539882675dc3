"""Launches kept ready: for a prepared product of the same pyopencl arrays, over and over.

Describing operands and setting a kernel's arguments take several times as long as starting it.
So when a product of the same three arrays comes a second time, kernel objects of its own are kept
with every argument set, and from then on a call is one launch. They are forgotten as soon as one
of the arrays is.
"""

import weakref

from clmatmul import call_log
from clmatmul import device as devices
from clmatmul.operands import events_lock, hold_later

_MOST = 8  # triples of arrays of one prepared product


class KeptLaunches:
    """The kept launches of one prepared product, by the arrays that they work on.

    events: whether each leaves its event at the arrays, or, where a queue's order makes up for
    it, none.
    """

    def __init__(self, recipe, events=True):
        self._recipe = recipe
        self._events = events
        self._seen = None  # the last triple of arrays that had no kept launch
        self._kept = {}

    def again(self, a, b, out):
        """Launch the product of these arrays if it is kept; True if so."""
        kept = self._kept.get((id(a), id(b), id(out)))
        if kept is None:
            return False
        try:
            return kept.launch(a, b, out)
        except devices.Refusal:
            return False  # the long way says why

    def remember(self, a, b, out):
        """Told of a product that was launched the long way; kept when it comes a second time."""
        if call_log.is_on():
            return  # a kept launch has no time to be counted
        if self._recipe.executable.plan.counter_bytes and not devices.is_in_order(a.queue):
            return  # it needs new counters each time
        key = (id(a), id(b), id(out))
        if self._seen != key:
            self._seen = key
            return
        while len(self._kept) >= _MOST:
            self._kept.pop(next(iter(self._kept)), None)
        kept = self._kept

        def forget(_dead):
            # Called before another array can have the same identity.
            kept.pop(key, None)

        kept[key] = _Kept(self._recipe, a, b, out, forget, self._events)


class _Kept:
    """Kernel objects with their arguments set, and what must be as it was for them to serve.

    Every tenth of a microsecond of `launch` is a hundredth of a small product, so it is written
    out for three arrays. A tuple of the same objects is equal before anyone looks into them.
    """

    def __init__(self, recipe, a, b, out, forget, events):
        self._device = recipe.device
        self._in_order = devices.is_in_order(a.queue)
        self._references = tuple(weakref.ref(x, forget) for x in (a, b, out))
        self._found = (
            a.queue, a.base_data, a.shape, a.strides, a.offset,
            b.queue, b.base_data, b.shape, b.strides, b.offset,
            out.queue, out.base_data, out.shape, out.strides, out.offset,
        )  # fmt: skip
        self._fused = tuple(x for _, x in recipe.fused)
        self._fused_found = self._look_at_fused()
        first, second = (b, a) if recipe.swapped else (a, b)
        operands = {
            name: (x.base_data, x.offset // x.dtype.itemsize)
            for name, x in (("a", first), ("b", second), ("out", out), *recipe.fused)
        }
        plan = recipe.executable.plan
        allocate = self._device.allocate if out.allocator is None else out.allocator
        # Calls with one output follow each other, so they can share what lies between launches.
        self._workspace = {x.name: allocate(x.bytes) for x in plan.workspace}
        if plan.counter_bytes:
            self._workspace["counters"], _ = self._device.counters(a.queue, plan.counter_bytes)
        self._launches = recipe.executable.launchers(
            a.queue, operands, recipe.scalars, self._workspace
        )
        self._silent = ()
        if self._in_order and not events:
            self._silent = recipe.executable.launchers(
                a.queue, operands, recipe.scalars, self._workspace, devices.silent_launcher
            )
            if None in self._silent:
                self._silent = ()
        self._last = None  # the event of the last launch that has one
        self._unmarked = False  # whether others came after it
        # The events of arrays that nothing else was done to since: an in-order queue waits for
        # what was enqueued before, without being told.
        self._after = [None]

    def launch(self, a, b, out):
        """Launch if the arrays still have their memory, layout and queue; True if so."""
        found = (
            a.queue, a.base_data, a.shape, a.strides, a.offset,
            b.queue, b.base_data, b.shape, b.strides, b.offset,
            out.queue, out.base_data, out.shape, out.strides, out.offset,
        )  # fmt: skip
        if found != self._found:
            return False
        if self._fused:
            return self._launch_fused((a, b, out, *self._fused))
        self._device.check_process()
        of_a, of_b, of_out = a.events, b.events, out.events
        events_lock.acquire()  # half of what `with` costs
        try:
            if of_a == of_b == of_out == self._after:
                if self._silent:
                    return self._launch_silently()
                for launch in self._launches:
                    event = launch()
                of_a[0] = of_b[0] = of_out[0] = self._after[0] = event
            else:
                waited = _different((of_a, of_b, of_out))
                for launch in self._launches:
                    event = launch(waited)
                    waited = [event]
                of_a[:] = of_b[:] = of_out[:] = waited
                if self._in_order:
                    self._after = waited
            self._last, self._unmarked = event, False
        finally:
            events_lock.release()
        return True

    def _launch_silently(self):
        """Launch what is known to follow what the arrays wait for; False if the runtime refuses."""
        self._unmarked, refused = True, 0
        for launch in self._silent:
            refused = refused or launch()
        return not refused

    def _launch_fused(self, arrays):
        """As `launch`, with the epilogue's arrays behind the three."""
        if self._look_at_fused() != self._fused_found:
            return False
        self._device.check_process()
        with events_lock:
            lists = [x.events for x in arrays]
            known = all(x == self._after for x in lists)
            if known and self._silent:
                return self._launch_silently()
            waited = [] if known else _different(lists)
            for launch in self._launches:
                event = launch(waited)
                waited = [event]
            for x in lists:
                x[:] = waited
            if self._in_order:
                self._after = waited
            self._last, self._unmarked = event, False
        return True

    def _look_at_fused(self):
        """What must stay as it was of the epilogue's arrays."""
        return tuple((x.queue, x.base_data, x.shape, x.strides, x.offset) for x in self._fused)

    def __del__(self):
        # Memory must outlive the last launch, whoever lets go of the arrays first.
        if getattr(self, "_last", None) is not None:
            last = devices.marker(self._found[10]) if self._unmarked else self._last
            hold_later(last, (self._found, self._fused_found, self._workspace))


def _different(lists):
    """The events of some arrays, each once."""
    return list({id(event): event for events in lists for event in events}.values())
