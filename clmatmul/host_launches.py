"""Launches kept ready for products whose NumPy arrays lie where they lay before.

A buffer over host memory costs a few microseconds to make, and PoCL takes each new one over with
a command of its own: a launch on three new buffers takes 40 µs, on known ones 10. Programs that
multiply in a loop use the same memory again and again, and even new results mostly come to lie
where old ones were. So the second time that a product's operands and result have the same
addresses, kernel objects are kept with every argument set, and from then on a call is one launch.

That is sound only where a kernel works in the host's memory itself (`Device.works_in_place`): a
kept buffer is then no more than an address and a size, which is touched only while a call that
was given arrays there runs. What lies there meanwhile, or whether anything does, is nothing to it.
"""

import threading
from collections import deque

_MOST = 32
_REMEMBERED = 8
_MOST_WORKSPACE = 2**20  # bytes; larger products do not notice the microseconds


class HostLaunches:
    """The kept launches of one recipe, by thread and by the addresses of its arrays."""

    def __init__(self):
        self._kept = {}
        self._seen = deque(maxlen=_REMEMBERED)
        self._lock = threading.Lock()

    def get(self, key):
        """What starts the product whose arrays are at these places, or None."""
        return self._kept.get(key)

    def offer(self, key, recipe, queue, operands):
        """Told of a launch on new buffers; it is kept when its key comes a second time.

        key: of the thread's queue and the arrays' addresses. operands: name → (buffer, offset).
        """
        plan, device = recipe.executable.plan, recipe.device
        if not device.works_in_place or plan.workspace_bytes > _MOST_WORKSPACE:
            return
        with self._lock:
            if key not in self._seen:
                self._seen.append(key)
                return
            while len(self._kept) >= _MOST:
                del self._kept[next(iter(self._kept))]
        workspace = {x.name: device.allocate(x.bytes) for x in plan.workspace}
        self._kept[key] = _Launch(recipe, queue, operands, workspace)


class _Launch:
    """Kernel objects with all arguments set, on an in-order queue that one thread has."""

    def __init__(self, recipe, queue, operands, workspace):
        # The queue is held so that no other one gets its identity, which is in the key.
        self._held = queue, workspace
        self.operands = operands
        self._launches = recipe.executable.launchers(queue, operands, recipe.scalars, workspace)

    def __call__(self):
        """Enqueue every launch; the last event. device.Refusal if the runtime will not."""
        for launch in self._launches:
            event = launch()
        return event
