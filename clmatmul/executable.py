"""build: a plan becomes an Executable that runs on a device.

Programs are built once for each key and process, found on disk if an earlier process built them
(then neither Mako nor the compiler runs), and kept with one kernel object per thread, because
setting a kernel's arguments is the one OpenCL call that threads must not share.
"""

import logging
import threading
from collections import OrderedDict

import numpy as np

from clmatmul import device as devices
from clmatmul import program_cache
from clmatmul.element_types import COMPUTE_TYPES
from clmatmul.errors import BuildError, LaunchError
from clmatmul.plan import render_launch

_log = logging.getLogger("clmatmul")
_MAX_PROGRAMS = 1024
build_count = 0  # programs compiled from source by this process, for tests and reports


class Program:
    """One built program of one entry point, with a kernel object per thread."""

    def __init__(self, device, launch, built, key, compute, index):
        self.device = device
        self.key = key
        self._built = built
        self._entry = launch.entry
        host = np.dtype(COMPUTE_TYPES[compute].host)
        integer = np.int64 if index == "long" else np.int32
        types = {"buffer": None, "offset": integer, "index": integer, "scalar": host}
        self._dtypes = [types[x.role] for x in launch.arguments]
        self._threads = threading.local()
        self.limits = device.kernel_limits(self.kernel())

    def kernel(self):
        """This thread's kernel object."""
        kernel = getattr(self._threads, "kernel", None)
        if kernel is None:
            kernel = self._threads.kernel = self.new_kernel()
        return kernel

    def new_kernel(self):
        """A kernel object that no one else has."""
        return self.device.kernel(self._built, self._entry, self._dtypes)


class _Programs:
    """Programs of this process by (context, key); one build per key, however many threads ask."""

    def __init__(self):
        self._lock = threading.Lock()
        self._building = {}
        self._programs = OrderedDict()

    def get(self, device, plan, launch):
        post_build = plan.variant.post_build
        key = program_cache.program_key(
            launch.source_key, plan.options, post_build, device.profile.key
        )
        name = (device.context.int_ptr, key)
        with self._lock:
            program = self._programs.get(name)
            if program is not None and program.device is device:
                self._programs.move_to_end(name)
                return program
            gate = self._building.setdefault(name, threading.Lock())
        with gate:
            with self._lock:
                program = self._programs.get(name)
                if program is not None and program.device is device:
                    return program
            program = _build_program(device, plan, launch, key)
            with self._lock:
                self._programs[name] = program
                self._building.pop(name, None)
                while len(self._programs) > _MAX_PROGRAMS:
                    self._programs.popitem(last=False)
            return program


_programs = _Programs()


class Executable:
    """A plan with its built programs; call it with buffers to run it."""

    def __init__(self, device, plan, programs):
        self.device = device
        self.plan = plan
        self.programs = programs
        # Everything but buffers, offsets and scalars is known now.
        self._slots = []
        for launch in plan.launches:
            values = dict(launch.values)
            fixed = [values.get(x.name) for x in launch.arguments]
            open_slots = [
                (i, x.name, x.role)
                for i, x in enumerate(launch.arguments)
                if x.role != "index"
            ]  # fmt: skip
            self._slots.append((fixed, open_slots))

    def __call__(self, queue, operands, scalars=None, wait_for=(), workspace=None, allocate=None,
                 record=None, prepared=()):  # fmt: skip
        """Enqueue every launch of the plan.

        operands: name → (buffer, offset in elements), of arrays and instrument buffers.
        scalars: alpha and beta, if general. wait_for: events. workspace: name → buffer; what is
        missing is allocated with `allocate` (bytes → buffer), or is the queue's own. record: a
        list that gets the event of each launch. prepared: Preparations whose workspace is given
        and filled, so that their work-items are left out. Returns (last event, things that must
        live until it is complete). LaunchError.
        """
        workspace = dict(workspace or {})
        for scratch in self.plan.workspace:
            if scratch.name not in workspace:
                workspace[scratch.name] = (
                    allocate(scratch.bytes)
                    if allocate
                    else self.device.scratch(queue, scratch.name, scratch.bytes)
                )
        events = list(wait_for)
        if self.plan.counter_bytes:
            workspace["counters"], cleared = self.device.counters(queue, self.plan.counter_bytes)
            events += cleared
        buffers = {**workspace, **{name: x[0] for name, x in operands.items()}}
        for i in range(len(self.programs)):
            if any(p.launch == i for p in prepared):
                parts = [p for p in self.plan.preparations if p.launch == i and p not in prepared]
            else:
                parts = (None,)
            for part in parts:
                events = [self._launch(i, part, queue, buffers, operands, scalars or {}, events)]
                if record is not None:
                    record.append(events[0])
        return events[0], (operands, workspace)

    def prepare(self, part, queue, operand, buffer, wait_for=()):
        """Enqueue only a Preparation: operand (buffer, offset) into `buffer`; its event."""
        launch = self.plan.launches[part.launch]
        # The other operand's arguments are not used by these work-items.
        buffers = {x.name: buffer for x in launch.arguments if x.role == "buffer"}
        buffers[part.operand] = operand[0]
        operands = {"a": operand, "b": operand}
        return self._launch(part.launch, part, queue, buffers, operands, {}, list(wait_for))

    def launchers(self, queue, operands, scalars, workspace, make=None):
        """What enqueues each launch on `queue`, all arguments set: `make` gives it, or
        `device.launcher`.

        The kernels are new objects, so no other call changes their arguments; whoever has them
        keeps the buffers alive. operands, scalars, workspace: as for a call. LaunchError.
        """
        buffers = {**workspace, **{name: x[0] for name, x in operands.items()}}
        found = []
        for i, launch in enumerate(self.plan.launches):
            kernel = self.programs[i].new_kernel()
            arguments = self._arguments(i, buffers, operands, scalars)
            try:
                self.device.set_arguments(kernel, arguments)
            except devices.LaunchFailure as error:
                raise self._refused(launch, error) from None
            found.append(
                (make or devices.launcher)(queue, kernel, launch.global_size, launch.local_size)
            )
        return found

    def _arguments(self, i, buffers, operands, scalars):
        fixed, slots = self._slots[i]
        arguments = list(fixed)
        for place, name, role in slots:
            if role == "buffer":
                arguments[place] = buffers[name]
            elif role == "offset":
                arguments[place] = operands[name[: -len("_offset")]][1]
            else:
                arguments[place] = scalars[name]
        return arguments

    def _launch(self, i, part, queue, buffers, operands, scalars, events):
        launch = self.plan.launches[i]
        arguments = self._arguments(i, buffers, operands, scalars)
        size, first = launch.global_size, None
        if part is not None:
            size, first = (part.count, *size[1:]), (part.first, *(0 for _ in size[1:]))
        try:
            return self.device.launch(
                queue, self.programs[i].kernel(), arguments, size, launch.local_size, events,
                *(() if first is None else (first,)),
            )  # fmt: skip
        except devices.LaunchFailure as error:
            raise self._refused(launch, error) from None

    def _refused(self, launch, error):
        return LaunchError(
            f"{self.plan.config} could not be started ({launch}) on "
            f"{self.device.profile.title}: {error}"
        )


def build(device, plan):
    """The Executable of a plan on a device.

    BuildError (compiler's log, source), LaunchError (the built kernel's own limits are lower
    than the plan needs).
    """
    programs = [_programs.get(device, plan, launch) for launch in plan.launches]
    for launch, program in zip(plan.launches, programs, strict=True):
        _check_limits(device.profile, plan, launch, program)
    return Executable(device, plan, programs)


def _build_program(device, plan, launch, key):
    global build_count
    binary = program_cache.read(key)
    built = None
    if binary is not None:
        try:
            built = device.load_binary(binary, plan.options)
        except devices.CompileFailure as error:
            _log.info("program cache: the driver refused entry %s: %s", key[:12], error)
    if built is None:
        source = render_launch(plan, launch)
        build_count += 1
        _log.debug("building %s for %s", plan.config, device.profile.title)
        try:
            built = device.compile(source, plan.options)
            if program_cache.enabled() or plan.variant.post_build:
                binary = device.binary_of(built)
            if plan.variant.post_build:
                changed = plan.variant.header["post_build"](binary, device.profile)
                if changed != binary:
                    binary = changed
                    built = device.load_binary(binary, plan.options)
        except devices.CompileFailure as error:
            raise BuildError(plan.config, str(error), source) from None
        except ValueError as error:  # a post-build step that does not find what it must change
            step = plan.variant.post_build
            raise BuildError(plan.config, f"post-build step {step}: {error}", source) from None
        if binary and program_cache.enabled():
            about = {"config": str(plan.config), "kind": plan.kind.key,
                     "device": device.profile.title, "entry": launch.entry}  # fmt: skip
            program_cache.write(key, binary, source, about)
    try:
        return Program(device, launch, built, key, plan.kind.compute, plan.kind.index)
    except devices.CompileFailure as error:
        source = render_launch(plan, launch)
        raise BuildError(plan.config, f"kernel {launch.entry}: {error}", source) from None


def _check_limits(profile, plan, launch, program):
    """A compiler may allow a kernel less than the device: ask the kernel that was built."""
    work_group, local_bytes, _ = program.limits
    items = int(np.prod(launch.local_size))
    if work_group and items > work_group:
        text = (
            f"{plan.config} needs {items} work-items a group; as built on {profile.title} the "
            f"kernel allows {work_group}"
        )
        if "kernel_work_group_size" in profile.unreliable:
            _log.debug("%s (this runtime's answer is known to be false)", text)
        else:
            raise LaunchError(text)
    if profile.family == "nvidia":
        local_bytes -= 1024  # which the driver adds for itself, and does not count in the limit
    if local_bytes > profile.usable_local_bytes:
        raise LaunchError(
            f"{plan.config} needs {local_bytes} bytes of local memory; {profile.title} has "
            f"{profile.usable_local_bytes}"
        )
