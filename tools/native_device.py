"""A stand-in for a Device: NVIDIA's kernels on this machine's processor, every access checked.

clang compiles the kernel's text, whose PTX native_text.py makes calls of, and native/*.c has what
it calls: work-items that are fibers, the instructions, and a look at each address. One launch after
another goes another way: items and groups forwards or backwards, asynchronous copies at once or as
late as a wait lets them be, groups one by one or side by side. So a read past a matrix, a missing
barrier and a wait for too few copies show, which a device may not let see.
"""

import ctypes
import hashlib
import math
import os
import platform
import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from native_text import UnknownInstruction, native_text

from clmatmul.device import CompileFailure
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import ClmatmulError

GAP = 1 << 24  # bytes between buffers, so that an address outside of one is in no other
WAYS = 8  # in which launches go: see native/native.h
HERE = Path(__file__).resolve().parent
PROFILE = HERE.parent / "tests" / "profiles" / "nvidia-h200.json"
CLANGS = ("clang", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14")
OPTIONS = ("-x", "cl", "-cl-std=CL1.2", "-O1", "-w", "-fPIC", "-fsanitize=address,array-bounds",
           "-mllvm", "-asan-instrumentation-with-call-threshold=0", "-mllvm", "-asan-globals=0",
           "-mllvm", "-asan-stack=0", "-Werror=array-bounds",
           "-ftrivial-auto-var-init=pattern", "-c")  # fmt: skip


class Finding(ClmatmulError):
    """An access outside of a buffer, an address that is not aligned, or a wait without an end."""


def missing():
    """What this machine lacks, or an empty text."""
    lacks = [x for x in ("gcc", "ld", "objcopy") if not shutil.which(x)]
    lacks += [] if _clang() else ["clang"]
    lacks += [] if platform.machine() == "x86_64" else ["an x86-64 processor"]
    return ", ".join(lacks)


def _clang():
    return next(filter(None, map(shutil.which, CLANGS)), None)


class Buffer:
    """Memory of its exact size, whose start is aligned as a device's is, far from all others."""

    def __init__(self, size, fill=0xFF):
        self.size = max(int(size), 1)
        self._all = np.empty(self.size + 2 * GAP, np.uint8)  # what is never touched costs nothing
        start = GAP - self._all.ctypes.data % 256
        self.bytes = self._all[start : start + self.size]
        self.bytes[:] = fill

    @property
    def address(self):
        return self.bytes.ctypes.data


def profile_of_h200():
    """The profile of the device whose part is played, with what the kernels' probes find there.

    Five compute units, so that small products have full waves of work-groups, and parts beside.
    """
    found = {"compute_capability": 90, "static_local_bytes": 231424, "wgmma": 1}
    profile = DeviceProfile.from_json(PROFILE.read_text())
    return replace(profile, compute_units=5).with_probes(**found)


class Context:
    int_ptr = 1


class Program:
    """A kernel that takes its arguments as 64-bit words, out of a library."""

    def __init__(self, library):
        self.library = library
        self.call = ctypes.CDLL(str(library)).native_call


class NativeDevice:
    """What `executable` and `trial` ask of a Device."""

    context = Context()

    def __init__(self, profile, folder):
        self.profile, self.folder, self.runs = profile, Path(folder), 0
        library = self.folder / "native.so"
        if not library.exists():
            made = f"{library}.{os.getpid()}"
            command = ["gcc", "-O2", "-march=native", "-w", "-shared", "-fPIC", "-o", made]
            subprocess.run([*command, *sorted((HERE / "native").glob("*.c"))], check=True)
            os.replace(made, library)
        self.library = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        self._counters = Buffer(4)

    def queue(self):
        return None

    def upload(self, cells):
        buffer = Buffer(cells.nbytes)
        buffer.bytes[:] = cells.view(np.uint8)[: buffer.size]
        return buffer

    def read(self, queue, buffer, host):
        host.view(np.uint8)[:] = buffer.bytes[: host.nbytes]

    def scratch(self, queue, name, size):
        return Buffer(size)

    def counters(self, queue, size):
        self._counters = Buffer(size, 0)
        return self._counters, []

    def compile(self, source, options):
        entry = re.search(r"__kernel[^{]*?void (\w+)\(", source)[1]
        digest = hashlib.sha256(source.encode()).hexdigest()[:16]
        library = self.folder / f"{digest}.so"
        if not library.exists():
            try:
                text = native_text(source, entry)
            except UnknownInstruction as error:
                raise CompileFailure(f"no such instruction: {error}") from None
            made = f"{library}.{os.getpid()}"
            Path(f"{made}.cl").write_text(text)
            build = (
                [_clang(), *OPTIONS, f"{made}.cl", "-o", f"{made}.o"],
                ["ld", "-shared", f"{made}.o", "-o", made],
            )
            for command in build:
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    raise CompileFailure(done.stderr[:2000])
            os.replace(made, library)
            os.remove(f"{made}.o")
            os.remove(f"{made}.cl")
        try:
            return Program(library)
        except OSError as error:  # a function that native/*.c has not
            raise CompileFailure(str(error)) from None

    def binary_of(self, program):
        """None: the steps after a build are for NVIDIA's driver."""
        return b""

    def code_of(self, program):
        """The machine code of a Program."""
        with tempfile.NamedTemporaryFile(dir=self.folder) as file:
            command = ["objcopy", "-O", "binary", "--only-section=.text"]
            subprocess.run([*command, str(program.library), file.name], check=True)
            return Path(file.name).read_bytes()

    def kernel(self, program, entry, dtypes):
        return program.call, dtypes

    def kernel_limits(self, kernel):
        return 1024, 0, 0

    def launch(self, queue, kernel, arguments, global_size, local_size, wait_for, first=None):
        call, dtypes = kernel
        words = np.zeros(len(arguments), np.uint64)
        buffers = []
        for i, (x, dtype) in enumerate(zip(arguments, dtypes, strict=True)):
            if dtype is None:
                words[i] = x.address
                buffers += [x.address, x.size, 1]
            else:
                value = np.array(x, dtype)
                cell = words[i : i + 1].view(np.uint8)
                cell[: value.nbytes] = np.frombuffer(value.tobytes(), np.uint8)
        listed = np.array(buffers, np.uint64)
        text = ctypes.create_string_buffer(400)
        run, self.runs = self.runs, self.runs + 1
        groups, items = global_size[0] // local_size[0], math.prod(local_size)
        numbers = [ctypes.c_ulong(x) for x in (len(words), groups, items, local_size[0])]
        wrong = self.library.native_launch(
            call, ctypes.c_void_p(words.ctypes.data), *numbers,
            ctypes.c_void_p(listed.ctypes.data), ctypes.c_ulong(len(listed) // 3), run, text,
        )  # fmt: skip
        if wrong:
            raise Finding(text.value.decode() + f"; way {run % WAYS}")
        if self._counters.bytes.any() and any(x is self._counters for x in arguments):
            raise Finding("counters are not 0 behind a launch")
