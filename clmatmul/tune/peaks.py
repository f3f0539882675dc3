"""What a device can do at most: multiply-adds in registers, and copies of memory, both measured.

These are the two lines of a roofline (Williams, Waterman and Patterson 2009). The arithmetic is
that of ordinary instructions: kernels for matrix units may go beyond it. The memory is far larger
than the caches, and what a cache reads before it writes is not counted.
"""

from dataclasses import asdict, dataclass

import numpy as np

from clmatmul.device import CompileFailure, LaunchFailure
from clmatmul.element_types import COMPUTE_TYPES
from clmatmul.errors import ClmatmulError, DeviceError
from clmatmul.measure import measure
from clmatmul.probe_records import read_probes, write_probes

_SECONDS = 0.15  # of each measurement
_CHAINS = (6, 12)  # independent sums of a work-item: few registers, or a long pipeline
_STEPS = 4096
_COPIED_CACHES = 4
_COPIED_BYTES = (2**26, 2**28)  # at least, at most
# Not fma(): PoCL 3.0 ends the process at that of a float16 vector.
_OPTIONS = ("-cl-std=CL1.2", "-cl-mad-enable")
_HOST = {"uint": np.uint32, "ulong": np.uint64, "float": np.float32, "double": np.float64}
_ARITHMETIC = """
%(pragma)s
typedef %(type)s%(width)s value;
__kernel __attribute__((reqd_work_group_size(%(group)d, 1, 1)))
void arithmetic(__global value *out, const %(type)s factor, const uint steps) {
    value %(sums)s;
    const value by = (value)(factor);
    for (uint i = 0; i < steps; i++) {
        %(adds)s
    }
    out[get_global_id(0)] = %(total)s;
}
"""
_COPY = """
__kernel __attribute__((reqd_work_group_size(%(group)d, 1, 1)))
void copy(__global const float%(width)d *from, __global float%(width)d *to, const uint part) {
    const uint first = get_group_id(0) * part + get_local_id(0);
    for (uint i = 0; i < part; i += %(group)d) to[first + i] = from[first + i];
}
"""


@dataclass(frozen=True)
class Peaks:
    """10^9 operations a second with accumulators of type `compute`, and 10^9 bytes a second that
    a copy reads and writes."""

    compute: str
    gflops: float
    gbs: float

    def roof(self, intensity):
        """10^9 operations a second that `intensity` operations a byte allow."""
        return min(self.gflops, intensity * self.gbs)

    def to_dict(self):
        return asdict(self)


def remembered(device_key, found):
    """The higher of these Peaks and of what earlier sessions found; kept with the probes' results.

    A measurement can only be too low, because something else ran.
    """
    names = (f"peak_mflops_{found.compute}", "copy_mbs")
    known = read_probes(device_key)
    best = [
        max(round(1000 * x), known.get(name, 0))
        for name, x in zip(names, (found.gflops, found.gbs), strict=True)
    ]
    write_probes(device_key, {**known, **dict(zip(names, best, strict=True))})
    return Peaks(found.compute, best[0] / 1000, best[1] / 1000)


def measure_peaks(device, compute, has_events=True):
    """The Peaks of a device for a compute type (its name); DeviceError if they cannot be had.

    has_events: False where the wall clock has to serve. Takes about a second.
    """
    real = COMPUTE_TYPES[compute]
    try:
        gflops = max(_arithmetic(device, real, count, has_events) for count in _CHAINS)
        gbs = _copy(device, has_events)
    except (CompileFailure, LaunchFailure, ClmatmulError) as error:
        if isinstance(error, DeviceError):
            raise
        raise DeviceError(f"the device's peaks could not be measured: {error}") from None
    return Peaks(compute, gflops, gbs)


def _arithmetic(device, real, chains, has_events):
    """GFLOP/s of multiply-adds in `chains` independent sums of each work-item."""
    part_bytes = real.itemsize // (2 if real.kind == "complex" else 1)
    # A CPU's work-item fills its widest registers; a GPU's has one lane of them.
    width, group = (64 // part_bytes, 1) if device.profile.is_cpu else (1, 256)
    groups = device.profile.compute_units * (16 if device.profile.is_cpu else 64)
    names = [f"x{i}" for i in range(chains)]
    source = _ARITHMETIC % {
        "pragma": "#pragma OPENCL EXTENSION cl_khr_fp64 : enable" if real.needs_fp64 else "",
        "type": real.scalar, "width": width if width > 1 else "", "group": group,
        "sums": ", ".join(f"{x} = (value)(get_global_id(0) + {i})" for i, x in enumerate(names)),
        "adds": " ".join(f"{x} = {x} * by + by;" for x in names),
        "total": " + ".join(names),
    }  # fmt: skip
    kernel = _kernel(device, source, "arithmetic", [None, _HOST[real.scalar], np.uint32])
    out = device.allocate(groups * group * width * part_bytes)
    # The factor keeps sums finite, and is none that a compiler knows.
    factor = 3 if real.kind in ("integer", "bool") else 0.5
    flops = 2 * groups * group * width * chains * _STEPS
    return _rate(device, kernel, [out, factor, _STEPS], (groups * group,), (group,), flops,
                 has_events)  # fmt: skip


def _copy(device, has_events):
    """GB/s read and written by a copy."""
    profile = device.profile
    width, group = (16, 1) if profile.is_cpu else (4, 256)
    groups = profile.compute_units * (4 if profile.is_cpu else 16)
    least, most = _COPIED_BYTES
    wanted = min(max(_COPIED_CACHES * profile.cache_bytes, least), most)
    wanted = min(wanted, profile.global_mem_bytes // 8, profile.max_alloc_bytes)
    part = max(wanted // (groups * 4 * width * group), 1) * group
    size = groups * part * 4 * width
    kernel = _kernel(device, _COPY % {"width": width, "group": group}, "copy",
                     [None, None, np.uint32])  # fmt: skip
    buffers = [device.upload(np.ones(size, np.uint8)) for _ in range(2)]
    return _rate(device, kernel, [*buffers, part], (groups * group,), (group,), 2 * size,
                 has_events)  # fmt: skip


def _kernel(device, source, entry, scalars):
    return device.kernel(device.compile(source, _OPTIONS), entry, scalars)


def _rate(device, kernel, arguments, global_size, local_size, count, has_events):
    """10^9 of `count` a second, at the quickest of several runs."""
    queue = device.profiling_queue()

    def run(i):
        event = device.launch(queue, kernel, arguments, global_size, local_size, [])
        return event, event

    found = measure(run, count, runs=5, min_seconds=_SECONDS, max_seconds=1.0, events=has_events)
    return count / found.minimum_ns
