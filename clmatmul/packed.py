"""Packed: an operand that stays on a device, ready for many products.

It has a contiguous copy of the operand there and, for kernels that first rewrite an operand into
panels of their own, those panels: the first product with a kernel makes them, the others read
them. They depend on the kernel's configuration, so there may be a few.
"""

import threading
from collections import OrderedDict

from clmatmul import device as devices
from clmatmul.operands import Bound
from clmatmul.problem import ArrayView

_MAX_PANELS = 8


class Packed:
    """What `clmatmul.pack` gives; use it in place of the operand. It is never written to."""

    __array_ufunc__ = None  # so that NumPy leaves `a @ packed` to this class

    def __init__(self, array):
        self._array = array
        self._panels = OrderedDict()
        self._lock = threading.Lock()

    shape = property(lambda self: tuple(map(int, self._array.shape)))
    dtype = property(lambda self: self._array.dtype)
    ndim = property(lambda self: len(self._array.shape))

    @property
    def device(self):
        """The DeviceProfile of the device that holds it."""
        return self.opened.profile

    @property
    def nbytes(self):
        """Bytes that it occupies on the device, with the panels that were made so far."""
        return int(self._array.nbytes) + sum(buffer.size for buffer, _ in self._panels.values())

    def __repr__(self):
        return f"clmatmul.Packed(shape={self.shape}, dtype={self.dtype}, on {self.device.title})"

    # -- for the line: api

    @property
    def array(self):
        """The pyopencl array with the operand's values."""
        return self._array

    @property
    def opened(self):
        return devices.device_of_queue(self._array.queue)

    def bound(self):
        """The operand as a launch takes it, and the events to wait for."""
        return Bound(ArrayView.of(self._array), self._array.base_data, self), self._array.events

    def panels(self, executable, name, queue):
        """(Preparation, buffer, event) for a plan in which this is operand `name`, or None.

        The buffer is filled by the time that the event is complete.
        """
        part = next((x for x in executable.plan.preparations if x.operand == name), None)
        if part is None:
            return None
        with self._lock:
            held = self._panels.get(part.key)
            if held is None:
                bound, events = self.bound()
                buffer = executable.device.allocate(part.bytes)
                event = executable.prepare(part, queue, bound.operand, buffer, events)
                held = self._panels[part.key] = (buffer, event)
                while len(self._panels) > _MAX_PANELS:
                    self._panels.popitem(last=False)
            self._panels.move_to_end(part.key)
            return part, *held
