"""How long something takes: one clock for the tuner and the benchmark.

Each timed run is measured twice, by the device's own events (start of the first launch to end of
the last) and by the wall clock round enqueue and wait. Buffers are rotated, so that a problem
smaller than the cache is not always read from it. A time that cannot be true is refused: below
the clock's resolution, above what the device could do, or events that disagree with the wall.
"""

import math
import statistics
import time
from dataclasses import dataclass

from clmatmul import device as devices
from clmatmul.errors import MeasurementError

_CLOCK_NS = 100  # nothing on any device is quicker than this, and no event clock is finer


@dataclass(frozen=True)
class Measurement:
    """Times of repeated runs in ns. `spread_ns` is the interquartile range of the event times."""

    event_ns: tuple
    wall_ns: tuple
    flops: int

    @property
    def median_ns(self):
        return statistics.median(self.event_ns)

    @property
    def minimum_ns(self):
        return min(self.event_ns)

    @property
    def spread_ns(self):
        if len(self.event_ns) < 4:
            return max(self.event_ns) - min(self.event_ns)
        low, _, high = statistics.quantiles(self.event_ns, n=4)
        return high - low

    @property
    def gflops(self):
        """10^9 operations a second at the median."""
        return self.flops / self.median_ns

    def __str__(self):
        return (
            f"{self.median_ns / 1e3:.1f} µs median of {len(self.event_ns)} "
            f"(±{self.spread_ns / 2e3:.1f}), {self.gflops:.1f} GFLOP/s"
        )


def measure(run, flops, *, warm_up=1, runs=5, min_seconds=0.0, max_seconds=60.0, peak_flops=None):
    """Time `run(i)`, which enqueues on a profiling queue and returns its (first, last) events.

    run: called with 0, 1, 2, … so that it can rotate buffers. Stops after at least `runs` runs
    and `min_seconds`, or as soon as `max_seconds` are over and one run is timed. peak_flops:
    operations a second that the device cannot exceed. MeasurementError for impossible times.
    """
    for i in range(warm_up):
        devices.wait([run(i)[1]])
    event_ns, wall_ns = [], []
    begin = time.perf_counter()
    i = warm_up
    while True:
        start = time.perf_counter_ns()
        first, last = run(i)
        devices.wait([last])
        wall_ns.append(time.perf_counter_ns() - start)
        event_ns.append(devices.event_times(last)[1] - devices.event_times(first)[0])
        _refuse_impossible(event_ns[-1], wall_ns[-1], flops, peak_flops)
        i += 1
        spent = time.perf_counter() - begin
        if (len(event_ns) >= runs and spent >= min_seconds) or spent >= max_seconds:
            return Measurement(tuple(event_ns), tuple(wall_ns), flops)


def _refuse_impossible(event_ns, wall_ns, flops, peak_flops):
    if event_ns < _CLOCK_NS:
        raise MeasurementError(f"{event_ns} ns is below what a clock can tell")
    if event_ns > wall_ns * 1.5 + 1e6:
        raise MeasurementError(f"events say {event_ns} ns, but only {wall_ns} ns went by")
    if peak_flops and flops / (event_ns * 1e-9) > peak_flops:
        raise MeasurementError(
            f"{flops} operations in {event_ns} ns exceed the device's {peak_flops:.3g} a second"
        )


def rotation(bytes_per_set, cache_bytes, limit_bytes):
    """How many sets of buffers to rotate so that twice the cache lies between two uses."""
    if not bytes_per_set:
        return 1
    wanted = math.ceil(2 * cache_bytes / bytes_per_set) + 1
    return max(1, min(wanted, limit_bytes // bytes_per_set, 64))
