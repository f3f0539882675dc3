"""An open device: the only file besides installed.py that imports pyopencl.

Makes buffers and queues, compiles, launches and waits. Everything above it works with `Device`,
`DeviceProfile` and opaque buffers and events.
"""

import contextlib
import ctypes
import logging
import os
import threading
import time
import warnings
from collections import OrderedDict
from functools import cache, cached_property, partial

import numpy as np
import pyopencl as cl
from pyopencl import _cl

from clmatmul import huge_pages
from clmatmul.errors import ArgumentError, DeviceError
from clmatmul.installed import FORKED, read_profile
from clmatmul.probe_records import read_probes

_log = logging.getLogger("clmatmul")
_MAX_FOREIGN_CONTEXTS = 16
_MAX_COUNTING_QUEUES, _LEAST_COUNTER_BYTES = 16, 65536
_ASKING_SECONDS = 3e-3  # a launch that takes longer loses little by a late wake-up
_let_others_run = getattr(os, "sched_yield", lambda: time.sleep(0))
_lock = threading.Lock()
_opened = {}
_foreign = OrderedDict()


_forks = 0  # that lie between this process and the one which imported this module
Refusal = cl.Error  # what a `launcher` raises


def _forked():
    global _forks
    _forks += 1


# To ask for the process's number at each call would take longer than all else that is checked.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class CompileFailure(Exception):
    """The compiler refused a program; the text is its log."""


class LaunchFailure(Exception):
    """The runtime refused a launch; the text is its reason."""


@contextlib.contextmanager
def reported(what):
    """The runtime's refusals as DeviceErrors that say what could not be done."""
    try:
        yield
    except cl.Error as error:
        raise DeviceError(f"{what}: {error}") from None


# ---- open devices ---------------------------------------------------------------------------


def open_device(cl_device):
    """The Device of a cl.Device, with a context of its own that is made once a process."""
    with _lock:
        device = _opened.get(cl_device)
        if device is None:
            device = _opened[cl_device] = Device(cl_device)
            _log.info("using %s", device.profile.title)
        return device


def device_of_queue(queue):
    """The Device for a caller's own context, as a command queue shows it."""
    context, cl_device = queue.context, queue.device
    with _lock:
        for device in _opened.values():
            if device.context == context and device.cl_device == cl_device:
                return device
        key = (context.int_ptr, cl_device.int_ptr)
        device = _foreign.pop(key, None) or Device(cl_device, context)
        _foreign[key] = device  # most recently used last; holds the context, so its key is its own
        while len(_foreign) > _MAX_FOREIGN_CONTEXTS:
            _foreign.popitem(last=False)
        return device


class Device:
    """One device in one context: profile, queues, buffers, programs."""

    def __init__(self, cl_device, context=None):
        self.cl_device = cl_device
        self.context = context if context is not None else cl.Context([cl_device])
        self._forks = _forks
        self._thread = threading.local()
        self._counters = OrderedDict()

    @cached_property
    def profile(self):
        found = read_profile(self.cl_device)
        return found.with_probes(**read_probes(found.key))

    def learn(self, probes):
        """Take the results of probes, name → number, into the profile."""
        self.profile = self.profile.with_probes(**probes)

    def __repr__(self):
        return f"<Device {self.profile.title}>"

    def pci_address(self):
        """Where NVIDIA's device is on the PCI bus, such as '00000000:1b:00.0'; None if untold."""
        try:
            domain = self.cl_device.pci_domain_id_nv
            bus, slot = self.cl_device.pci_bus_id_nv, self.cl_device.pci_slot_id_nv
        except (cl.Error, AttributeError):
            return None
        return f"{domain:08x}:{bus:02x}:{slot:02x}.0"

    @property
    def has_host_memory(self):
        """True if kernels can work on host arrays where they lie."""
        return self.profile.is_cpu

    @cached_property
    def _is_pocl_cpu(self):
        return self.profile.is_cpu and self.profile.family == "pocl"

    @cached_property
    def works_in_place(self):
        """True if kernels compute in wrapped host memory itself, and know no other copy of it."""
        return self._is_pocl_cpu or self._follows_pointers

    @cached_property
    def _follows_pointers(self):
        """True if Intel's runtime lets kernels use any memory of the process by its address.

        A buffer over memory that does not begin at a multiple of 128 bytes is a copy there.
        """
        if self.profile.family != "intel-cpu":
            return False
        try:
            capabilities = self.cl_device.svm_capabilities
        except cl.Error:  # before OpenCL 2.0
            return False
        return bool(capabilities & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM)

    @cached_property
    def _keeps_buffers_in_host_memory(self):
        """Buffers are plain memory of this process, whose pages may be chosen."""
        plain = self._is_pocl_cpu or self.profile.family == "intel-cpu"
        return plain and huge_pages.are_offered()

    def queue(self):
        """This thread's own in-order queue."""
        self.check_process()
        queue = getattr(self._thread, "queue", None)
        if queue is None:
            queue = self._thread.queue = cl.CommandQueue(self.context, self.cl_device)
        return queue

    def transfer_queue(self):
        """This thread's own in-order queue for copies that go on beside kernels."""
        self.check_process()
        queue = getattr(self._thread, "transfer", None)
        if queue is None:
            queue = self._thread.transfer = cl.CommandQueue(self.context, self.cl_device)
        return queue

    def profiling_queue(self):
        """This thread's own queue whose events have times."""
        self.check_process()
        queue = getattr(self._thread, "profiling", None)
        if queue is None:
            properties = cl.command_queue_properties.PROFILING_ENABLE
            queue = cl.CommandQueue(self.context, self.cl_device, properties=properties)
            self._thread.profiling = queue
        return queue

    def check_process(self):
        """OpenCL does not survive a fork: say so instead of hanging."""
        if self._forks != _forks:
            raise DeviceError(FORKED)

    # -- buffers

    def allocate(self, size):
        """An uninitialised device buffer of at least one byte; DeviceError without memory."""
        with reported(f"{size} bytes of device memory could not be had"):
            buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, max(int(size), 1))
            if size >= huge_pages.LEAST_BYTES and self._keeps_buffers_in_host_memory:
                mapped, _ = cl.enqueue_map_buffer(
                    self.queue(), buffer, cl.map_flags.WRITE_INVALIDATE_REGION,
                    0, (size,), np.uint8, is_blocking=True,
                )  # fmt: skip
                huge_pages.advise(mapped.ctypes.data, size)
                mapped.base.release(self.queue()).wait()
            return buffer

    def scratch(self, queue, name, size):
        """A workspace buffer for launches on `queue`.

        A thread's own queues run in order, so each keeps one buffer per name for the next call:
        fresh memory costs page faults, a tenth of a product at 1024.
        """
        for kind in ("queue", "profiling"):
            if queue is getattr(self._thread, kind, None):
                break
        else:
            return self.allocate(size)
        kept = self._thread.__dict__.setdefault("scratch", {})
        buffer = kept.get((kind, name))
        if buffer is None or buffer.size < size:
            buffer = self.allocate(size)
            if size <= self.profile.global_mem_bytes // 16:
                kept[kind, name] = buffer
        return buffer

    def counters(self, queue, size):
        """(buffer, events to wait for): whole numbers that are 0 when a launch on `queue` begins.

        Kernels leave them 0 when they end. So a queue that runs in order keeps its counters, and
        one that does not gets new ones for each launch.
        """
        with _lock:
            _, buffer = self._counters.get(queue.int_ptr, (None, None))
            if buffer is not None and buffer.size >= size:
                return buffer, []
            buffer = self.allocate(max(size, _LEAST_COUNTER_BYTES))
            event = cl.enqueue_fill_buffer(queue, buffer, np.uint32(0), 0, buffer.size // 4 * 4)
            if not is_in_order(queue):
                return buffer, [event]
            self._counters[queue.int_ptr] = queue, buffer  # the queue, so that its key is its own
            while len(self._counters) > _MAX_COUNTING_QUEUES:
                self._counters.popitem(last=False)
            return buffer, []

    def upload(self, memory):
        """A device buffer with a copy of a contiguous host array."""
        if memory.nbytes >= huge_pages.LEAST_BYTES and self._keeps_buffers_in_host_memory:
            buffer = self.allocate(memory.nbytes)
            self.write(self.queue(), buffer, memory)
            return buffer
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        with reported(f"{memory.nbytes} bytes could not be sent to the device"):
            return cl.Buffer(self.context, flags, hostbuf=memory)

    def wrap(self, address, size, writable):
        """A kernel argument for `size` bytes of host memory; the caller keeps them alive."""
        memory = (ctypes.c_ubyte * size).from_address(address)
        if self._follows_pointers:
            return cl.SVM(np.frombuffer(memory, np.uint8))
        access = cl.mem_flags.READ_WRITE if writable else cl.mem_flags.READ_ONLY
        with reported(f"{size} bytes of host memory could not be given to the device"):
            return cl.Buffer(self.context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=memory)

    def synchronize_host(self, queue, buffer, size, wait_for=()):
        """Wait until host memory under a wrapped buffer shows what kernels wrote."""
        with reported("a kernel failed while running"):
            if self.works_in_place:
                # A map would only be two more commands, 15 to 40 µs, for a worker to take up.
                if wait_for:
                    self.finish(queue, wait_for[-1])
                else:
                    queue.finish()
                return
            # One wait for kernel, map and unmap costs half of a blocking map (22 against 54 µs
            # on PoCL); rusticl alone refuses to unmap what it has not mapped yet.
            blocking = self.profile.family == "rusticl"
            mapped, _ = cl.enqueue_map_buffer(
                queue, buffer, cl.map_flags.READ, 0, (size,), np.uint8,
                wait_for=list(wait_for), is_blocking=blocking,
            )  # fmt: skip
            self.finish(queue, mapped.base.release(queue))

    def finish(self, queue, event):
        """Wait until `event` and all that it waits for is complete; it belongs to `queue`.

        A thread that sleeps is woken too late for a short product, by 20 to 50 µs; so on PoCL
        the first milliseconds are spent asking, with the core left to whoever wants it. (In
        Intel's runtime the thread that waits is one of those that compute.)
        """
        if self._is_pocl_cpu:
            queue.flush()
            end = time.perf_counter() + _ASKING_SECONDS
            while not is_complete(event) and time.perf_counter() < end:
                _let_others_run()
        event.wait()

    def map(self, queue, buffer, byte_offset, size, wait_for=()):
        """`size` bytes of a buffer as a host array, until that array is dropped; it waits.

        Copies nothing on devices that share the host's memory.
        """
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        with reported("a kernel failed, or its result could not be mapped"):
            mapped, _ = cl.enqueue_map_buffer(
                queue, buffer, flags, byte_offset, (size,), np.uint8,
                wait_for=list(wait_for), is_blocking=True,
            )  # fmt: skip
        return mapped

    def read(self, queue, buffer, host, byte_offset=0, wait_for=()):
        """Copy a buffer's bytes into a contiguous host array, and wait."""
        events = list(wait_for)
        with reported("a kernel failed, or its result could not be read"):
            cl.enqueue_copy(
                queue, host, buffer, src_offset=byte_offset, wait_for=events, is_blocking=True
            )

    def write(self, queue, buffer, host):
        """Copy a contiguous host array into a buffer, and wait."""
        with reported("memory of the device could not be written"):
            cl.enqueue_copy(queue, buffer, host, is_blocking=True)

    def pinned(self, queue, size):
        """A host array of bytes that the device reaches by itself; unmapped when it is dropped."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        with reported(f"{size} bytes of pinned host memory could not be had"):
            buffer = cl.Buffer(self.context, flags, size)
        return self.map(queue, buffer, 0, size)

    def send(self, queue, buffer, byte_offset, host):
        """Begin to copy a contiguous host array into a buffer; the event."""
        with reported("memory of the device could not be written"):
            event = cl.enqueue_copy(queue, buffer, host, dst_offset=byte_offset, is_blocking=False)
            queue.flush()
        return event

    def fetch(self, queue, buffer, byte_offset, host):
        """Begin to copy a part of a buffer into a contiguous host array; the event."""
        with reported("memory of the device could not be read"):
            event = cl.enqueue_copy(queue, host, buffer, src_offset=byte_offset, is_blocking=False)
            queue.flush()
        return event

    # -- programs

    def compile(self, source, options):
        """Build a program from source; CompileFailure carries the log."""
        self.check_process()
        # Made here and now: pyopencl's own cache would hide the log behind errors of its own.
        program = cl.Program(_cl._Program(self.context, source))
        return self._build(program, options)

    def load_binary(self, binary, options):
        """Build a program from a binary; CompileFailure if the driver does not take it."""
        self.check_process()
        try:
            program = cl.Program(self.context, [self.cl_device], [binary])
        except cl.Error as error:
            raise CompileFailure(str(error)) from None
        return self._build(program, options)

    def _build(self, program, options):
        with warnings.catch_warnings():
            # Some compilers (Intel's) comment on every successful build.
            warnings.simplefilter("ignore", cl.CompilerWarning)
            try:
                program.build(list(options), devices=[self.cl_device])
            except (cl.Error, KeyError) as error:
                raise CompileFailure(_build_log(program, self.cl_device) or str(error)) from None
        return program

    def binary_of(self, program):
        """The built program as bytes, or b'' if the runtime has none."""
        try:
            devices = program.get_info(cl.program_info.DEVICES)
            binaries = program.get_info(cl.program_info.BINARIES)
            return bytes(binaries[devices.index(self.cl_device)])
        except (cl.Error, ValueError, IndexError):
            return b""

    def kernel(self, program, entry, scalar_dtypes):
        """A kernel object of its own, knowing its scalar arguments' types (None for buffers)."""
        try:
            kernel = cl.Kernel(program, entry)
            kernel.set_scalar_arg_dtypes(scalar_dtypes)
        except cl.Error as error:
            raise CompileFailure(str(error)) from None
        return kernel

    def kernel_limits(self, kernel):
        """(largest work-group, local bytes, private bytes) of a built kernel on this device."""

        def ask(what):
            try:
                return kernel.get_work_group_info(what, self.cl_device)
            except cl.Error:
                return 0

        info = cl.kernel_work_group_info
        return (ask(info.WORK_GROUP_SIZE), ask(info.LOCAL_MEM_SIZE), ask(info.PRIVATE_MEM_SIZE))

    def launch(self, queue, kernel, arguments, global_size, local_size, wait_for, first=None):
        """Set a kernel's arguments and enqueue it; LaunchFailure carries the runtime's reason.

        first: the global ids of the first work-item, if not all zero.
        """
        try:
            kernel.set_args(*arguments)
            return cl.enqueue_nd_range_kernel(
                queue, kernel, global_size, local_size, first, wait_for=wait_for
            )
        except (cl.Error, TypeError) as error:
            raise LaunchFailure(str(error)) from None

    def set_arguments(self, kernel, arguments):
        """Set every argument of a kernel; LaunchFailure."""
        try:
            kernel.set_args(*arguments)
        except (cl.Error, TypeError) as error:
            raise LaunchFailure(str(error)) from None


def _build_log(program, cl_device):
    try:
        return program.get_build_info(cl_device, cl.program_build_info.LOG).strip()
    except cl.Error:
        return ""


# ---- events ---------------------------------------------------------------------------------


def event_times(event):
    """(start, end) of a finished event in ns, from a profiling queue."""
    return event.profile.start, event.profile.end


def is_complete(event):
    """True once an event has finished (or failed)."""
    return event.command_execution_status <= cl.command_execution_status.COMPLETE


def wait(events):
    """Wait for events; DeviceError if one of them failed."""
    with reported("a kernel failed while running"):
        cl.wait_for_events(list(events))


# ---- queues, buffers -------------------------------------------------------------------------


def flush(queue):
    """Have the device begin what is enqueued."""
    queue.flush()


def launcher(queue, kernel, global_size, local_size):
    """A function that enqueues a kernel whose arguments are set; its event.

    It takes a list of events to wait for, or nothing. Refusal.
    """
    return partial(cl.enqueue_nd_range_kernel, queue, kernel, global_size, local_size, None)


def silent_launcher(queue, kernel, global_size, local_size):
    """As `launcher`, but what it enqueues has no event, and it gives 0 or the runtime's error.

    PyOpenCL asks for an event with every launch, and a device may stand still for it: an H200 for
    2 µs. So the OpenCL library's own function is called. None if it cannot be found.
    """
    enqueue = _enqueue_function()
    if enqueue is None:
        return None
    sizes = [(ctypes.c_size_t * len(x))(*x) for x in (global_size, local_size)]
    launch = partial(
        enqueue, queue.int_ptr, kernel.int_ptr, len(global_size), None, *sizes, 0, None, None
    )
    launch.held = queue, kernel  # which must live as long
    return launch


@cache
def _enqueue_function():
    """clEnqueueNDRangeKernel of the library that PyOpenCL works with, or None."""
    try:
        found = ctypes.CDLL(_cl.__file__).clEnqueueNDRangeKernel
    except (OSError, AttributeError) as error:
        _log.info("kernels cannot be launched without events here: %s", error)
        return None
    pointer = ctypes.c_void_p
    found.argtypes = [
        pointer,
        pointer,
        ctypes.c_uint,
        *[pointer] * 3,
        ctypes.c_uint,
        *[pointer] * 2,
    ]
    found.restype = ctypes.c_int
    return found


def marker(queue):
    """An event that is complete once all that was enqueued before is; Refusal."""
    return cl.enqueue_marker(queue)


def is_in_order(queue):
    """True if a queue runs its commands one after another, in their order."""
    return not queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE


def is_cl_device(x):
    return isinstance(x, cl.Device)


def handles(*objects):
    """The addresses of queues and buffers as numbers, for another library to work with them."""
    return tuple(x.int_ptr for x in objects)


def check_queue(queue):
    """ArgumentError unless `queue` is a pyopencl.CommandQueue."""
    if not isinstance(queue, cl.CommandQueue):
        raise ArgumentError(f"queue={queue!r} is no pyopencl.CommandQueue")


def check_buffer(buffer):
    """ArgumentError unless `buffer` is a pyopencl.Buffer."""
    if not isinstance(buffer, cl.Buffer):
        raise ArgumentError(f"workspace={buffer!r} is no pyopencl.Buffer")


def part_of(buffer, begin, size):
    """`size` bytes of a buffer from byte `begin`, as a buffer of their own."""
    with reported("a part of the workspace could not be had"):
        return buffer.get_sub_region(begin, size)


def versions():
    """Versions that a bug report and a tuning record need."""
    import sys

    return {
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "pyopencl": cl.VERSION_TEXT,
    }
