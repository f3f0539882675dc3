"""`Array`: an array in a device's memory that NumPy's functions and operators know.

It carries a pyopencl array and copies nothing to wrap one or to be unwrapped. Products of Arrays
are Arrays, asynchronously; what has no kernel here is a TypeError, never a slow result on the
host. After the array_view of C++ AMP, it may be bound to a host array: an input is never copied
back, and an output that is discarded first is never uploaded.
"""

import numbers

import numpy as np

from clmatmul import api, contraction, products, views
from clmatmul import device as devices
from clmatmul.containers import carried, is_container
from clmatmul.device_arrays import array_over, empty_array, fetch, is_device_array
from clmatmul.errors import ArgumentError, DeviceError, DtypeError, OperationError, ShapeError
from clmatmul.operands import host_array, span
from clmatmul.products import Place
from clmatmul.selection import resolve
from clmatmul.transfers import count


class _Binding:
    """The host array that an Array came from, and whether the device's values are newer."""

    def __init__(self, host, array):
        self.host = host
        self.array = array
        self.written = False


class Array:
    """An array on a device, for `@`, numpy.matmul and the products of this package.

    Array(x) wraps the pyopencl array x, and `.cl` is that array: the same memory. `from_host`
    copies a NumPy array to a device, `to_host` copies back. Basic indexing, `.T`, `transpose` and
    `reshape` give views; `*` takes numbers. All else is an OperationError, which is a TypeError:
    nothing is ever computed on the host, or copied there, unless it was asked for.
    """

    __array_priority__ = 1000
    __slots__ = ("_array", "_binding", "__weakref__")

    def __init__(self, x):
        x = carried(x)
        if not is_device_array(x):
            raise DtypeError(
                f"Array wraps a pyopencl array, not {type(x).__name__}; "
                "clmatmul.Array.from_host copies a NumPy array to a device"
            )
        self._array = x
        self._binding = None

    # -- from and to the host

    @classmethod
    def from_host(cls, x, *, device=None, queue=None, discard=False):
        """A copy of a NumPy array (or list) on a device, in the same memory order.

        The Array stays bound to x: `synchronize` copies what was computed into it back to x.
        discard: x's values are not needed (it is an output), so they are not copied. device: as
        `use_device`. queue: a pyopencl queue for the Array. DtypeError, NoDeviceError.
        """
        array = host_array(x, "the array")
        if span(array)[1] != array.nbytes or any(s < 0 for s in array.strides):
            array = np.ascontiguousarray(array)  # without gaps, rows forwards
        if queue is None:
            queue = resolve(device).queue()
        devices.check_queue(queue)
        opened = devices.device_of_queue(queue)
        opened.check_process()
        if not array.size:
            held = empty_array(queue, array.shape, array.dtype, "C", None)
        else:
            if discard:
                buffer = opened.allocate(array.nbytes)
            else:
                buffer = opened.upload(array.ravel(order="K").view(np.uint8))
                count(uploaded=array.nbytes)
            held = array_over(queue, buffer, array.shape, array.dtype, array.strides)
        made = cls(held)
        if isinstance(x, np.ndarray):
            made._binding = _Binding(x, held)
        return made

    @classmethod
    def empty(cls, shape, dtype="float32", *, order="C", device=None, queue=None):
        """An Array whose elements have no values yet."""
        if queue is None:
            queue = resolve(device).queue()
        devices.check_queue(queue)
        return cls(empty_array(queue, shape, np.dtype(dtype), order, None))

    def to_host(self):
        """A NumPy array with the values; waits for them. Strided views are packed on the device."""
        return _fetch(self._array)

    def synchronize(self):
        """Wait for the work on this Array, and copy what it computed to the host array.

        Only if it was made by `from_host` from a NumPy array, and a product (or the holder of
        `.cl`) wrote to it since; a view brings the whole up to date.
        """
        if self._binding is None or not self._binding.written:
            devices.wait(self._array.events)
            return
        if not self._binding.host.flags.writeable:
            raise ArgumentError("the host array that this Array was made from is read-only")
        np.copyto(self._binding.host, _fetch(self._binding.array))
        self._binding.written = False

    def discard(self):
        """What is in this Array now is not needed: `synchronize` will not copy it back."""
        if self._binding is not None:
            self._binding.written = False

    @property
    def cl(self):
        """The pyopencl array: the same memory. Who takes it may write to it."""
        return self.__opencl_array__(writing=True)

    # -- facts

    shape = property(lambda self: tuple(map(int, self._array.shape)))
    dtype = property(lambda self: self._array.dtype)
    ndim = property(lambda self: len(self._array.shape))
    size = property(lambda self: int(self._array.size))
    itemsize = property(lambda self: self._array.dtype.itemsize)
    nbytes = property(lambda self: int(self._array.nbytes))
    strides = property(lambda self: tuple(map(int, self._array.strides)))
    queue = property(lambda self: self._array.queue)

    @property
    def device(self):
        """The DeviceProfile of the device that has the memory."""
        return self._opened().profile

    def __len__(self):
        if not self.ndim:
            raise OperationError("len() of an Array without dimensions")
        return self.shape[0]

    def __repr__(self):
        return f"clmatmul.Array(shape={self.shape}, dtype={self.dtype}, on {self.device.title})"

    # -- views and copies

    def __getitem__(self, key):
        """A view: whole numbers, slices, None and Ellipsis."""
        return self.__opencl_view__(views.indexed(self._array, key))

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def transpose(self, *axes):
        """The dimensions in another order (reversed, if none is given), as a view."""
        if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)):
            axes = axes[0]
        return products.transpose(self, axes if axes is not None and len(axes) else None)

    T = property(transpose)
    mT = property(products.matrix_transpose)

    def reshape(self, *shape, copy=None):
        """Another shape in C order: a view where the strides allow it, else a copy.

        copy: False for an error instead of a copy, True for a copy in any case.
        """
        if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)):
            shape = tuple(shape[0])
        shape = _whole_shape(shape, self.size)
        seen = None if copy else views.reshaped(self._array, shape)
        if seen is not None:
            return self.__opencl_view__(seen)
        if copy is False:
            raise ShapeError(f"strides {self.strides} do not allow shape {shape} without a copy")
        return Array(views.reshaped(Place().copied(self._array), shape))

    def copy(self):
        """A copy in C order, on the same device."""
        return Array(Place().copied(self._array))

    def astype(self, dtype, *, copy=True):
        """The values as another dtype of the same kind or a wider one; DtypeError."""
        if not copy and self.dtype == dtype:
            return self
        return Array(Place().copied(self._array, np.dtype(dtype)))

    def to_device(self, device, /):
        """A copy on another device, through the host; self if it is on that device already."""
        if resolve(device).profile == self.device:
            return self
        return Array.from_host(self.to_host(), device=device)

    # -- products

    def dot(self, b, out=None):
        """As `clmatmul.dot`."""
        return products.dot(self, b, out)

    def __matmul__(self, other):
        return api.matmul(self, other) if _is_operand(other) else NotImplemented

    def __rmatmul__(self, other):
        return api.matmul(other, self) if _is_operand(other) else NotImplemented

    def __imatmul__(self, other):
        if not _is_operand(other):
            return NotImplemented
        if np.ndim(other) < 2:
            raise ShapeError(
                f"@= with an operand of shape {np.shape(other)} would change the shape {self.shape}"
            )
        return api.matmul(self, other, out=self)

    def __mul__(self, other):
        return api.scale(other, self) if _is_number(other) else NotImplemented

    __rmul__ = __mul__

    def __imul__(self, other):
        return api.scale(other, self, out=self) if _is_number(other) else NotImplemented

    # -- a single element

    def item(self):
        """The only element, as a Python number."""
        if self.size != 1:
            raise ShapeError(f"an Array of shape {self.shape} is no single number")
        return self.to_host().item()

    def __bool__(self):
        return bool(self.item())

    def __int__(self):
        return int(self.item())

    def __float__(self):
        return float(self.item())

    def __complex__(self):
        return complex(self.item())

    def __index__(self):
        return self.item().__index__()

    # -- protocols

    def __opencl_array__(self, writing=False):
        if writing and self._binding is not None:
            self._binding.written = True
        return self._array

    def __opencl_view__(self, array):
        seen = Array(array)
        seen._binding = self._binding
        return seen

    def __array__(self, dtype=None, copy=None):
        """numpy.asarray(A) is one of the ways to ask for the values on the host."""
        if copy is False:
            raise ArgumentError("the values are on a device: they cannot be had without a copy")
        host = self.to_host()
        return host if dtype is None else host.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc, method, *inputs, **keywords):
        function = _UFUNCS.get(ufunc)
        if function is None or method != "__call__":
            name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            raise _unknown(name)
        return function(*inputs, **keywords)

    def __array_function__(self, function, types, args, keywords):
        ours = _FUNCTIONS.get(function)
        if ours is None:
            raise _unknown(function.__name__)
        return ours(*args, **keywords)

    def __array_namespace__(self, *, api_version=None):
        """The array API standard's functions for Arrays: `clmatmul.array_api`."""
        import clmatmul

        return clmatmul.array_api.checked_version(api_version)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A DLPack capsule: on devices that share the host's memory, of the memory itself.

        It is mapped until the taker drops it; no product may write to it meanwhile. BufferError
        on other devices.
        """
        self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device)[0] != 1:
            raise BufferError(f"DLPack device {dl_device} is not the host's memory, (1, 0)")
        host = self.to_host() if copy else self._mapped()
        keywords = {} if max_version is None else {"max_version": max_version}
        return host.__dlpack__(**keywords)

    def __dlpack_device__(self):
        if not self._opened().has_host_memory:
            raise BufferError(
                f"the memory of {self.device.title} cannot be given through DLPack; use .to_host()"
            )
        return (1, 0)  # kDLCPU

    def _mapped(self):
        x = self._array
        if not x.size or any(s < 0 for s in x.strides):
            return self.to_host()
        size = x.dtype.itemsize + sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True))
        memory = self._opened().map(x.queue, x.base_data, x.offset, size, x.events)
        return np.ndarray(self.shape, self.dtype, memory, strides=self.strides)

    def _opened(self):
        if self.queue is None:
            raise DeviceError(
                "the pyopencl array has no queue; wrap array.with_queue(queue) instead"
            )
        return devices.device_of_queue(self.queue)


# ---- what NumPy's functions become ----------------------------------------------------------


def _multiply(x, y, out=None):
    number, array = (x, y) if _is_number(x) else (y, x)
    if not _is_number(number):
        raise _unknown("multiply, except by a number,")
    return api.scale(number, array, out)


def _swapaxes(x, first, second):
    order = list(range(x.ndim))
    order[first], order[second] = order[second], order[first]
    return x.transpose(order)


def _result_type(*given):
    return np.result_type(*(x.dtype if isinstance(x, Array) else x for x in given))


def _known(*pairs):
    """NumPy's function → ours, for those names that this NumPy has."""
    found = {}
    for owner, names in pairs:
        for name, function in names.items():
            if hasattr(owner, name):
                found[getattr(owner, name)] = function
    return found


_UFUNCS = _known((np, {
    "matmul": api.matmul, "vecdot": products.vecdot, "matvec": products.matvec,
    "vecmat": products.vecmat, "multiply": _multiply,
}))  # fmt: skip
_FUNCTIONS = _known(
    (np, {
        "dot": products.dot, "vdot": products.vdot, "tensordot": products.tensordot,
        "einsum": contraction.einsum, "transpose": products.transpose,
        "matrix_transpose": products.matrix_transpose, "swapaxes": _swapaxes,
        "reshape": Array.reshape, "copy": Array.copy, "result_type": _result_type,
        "shape": lambda x: x.shape, "ndim": lambda x: x.ndim, "size": lambda x: x.size,
    }),
    (np.linalg, {
        "multi_dot": contraction.multi_dot, "matmul": api.matmul, "vecdot": products.vecdot,
        "tensordot": products.tensordot, "matrix_transpose": products.matrix_transpose,
    }),
)  # fmt: skip


def _unknown(name):
    names = sorted({x.__name__ for x in (*_UFUNCS, *_FUNCTIONS)})
    return OperationError(
        f"numpy.{name} has no kernel for clmatmul.Array; compute it on the host, with .to_host() "
        f"(there are {', '.join(names)})"
    )


def _is_operand(x):
    kinds = (np.ndarray, np.generic, numbers.Number, list, tuple)
    return isinstance(x, kinds) or is_device_array(x) or is_container(x)


def _is_number(x):
    return isinstance(x, (numbers.Number, np.number, np.bool_)) or (
        isinstance(x, np.ndarray) and x.ndim == 0
    )


def _whole_shape(shape, size):
    """A shape with its -1 replaced; ShapeError if it has not `size` elements."""
    known = 1
    for extent in shape:
        known *= extent if extent != -1 else 1
    if shape.count(-1) == 1 and known and size % known == 0:
        return tuple(size // known if x == -1 else int(x) for x in shape)
    if -1 in shape or known != size:
        raise ShapeError(f"{size} elements cannot have the shape {shape}")
    return tuple(map(int, shape))


def _fetch(array):
    """A pyopencl array's values as a NumPy array; waits."""
    if not array.size:
        return np.empty(array.shape, array.dtype)
    if not array.flags.forc:
        array = Place().copied(array)
    count(downloaded=array.nbytes)
    return fetch(array)
