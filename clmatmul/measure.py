"""How long something takes: one clock for the tuner and the benchmark.

A run on the device is timed twice, by the device's own events (start of the first launch to end
of the last) and by the wall clock round enqueue and wait; a call on the host by the wall alone.
Buffers are rotated, so that a problem smaller than the cache is not always read from it. A time
that cannot be true is refused: below the clock's resolution, above what any device of that size
could do, or events that disagree with the wall. Two contestants are compared in alternation,
never one after the other, because a machine's speed drifts.
"""

import math
import statistics
import time
from dataclasses import dataclass

from clmatmul import device as devices
from clmatmul.element_types import ELEMENT_TYPES
from clmatmul.errors import MeasurementError

_CLOCK_NS = 100  # nothing on any device is quicker than this, and no event clock is finer
_WALL_SLACK_NS = 50_000  # two clocks read one after the other
_ENQUEUE_SLACK_NS = 20_000_000  # what a runtime may take to start a kernel and report its end
_ENQUEUE_FACTOR = 10

# Operations a cycle and compute unit that no device exceeds, with room for a clock that boosts.
# For 8- and 16-bit types there are matrix engines; a CPU's widest unit is far below a GPU's.
_MOST_PER_CYCLE = {"gpu": (4096, 65536), "cpu": (256, 8192)}


@dataclass(frozen=True)
class Measurement:
    """Times of repeated runs in ns; `event_ns` is empty for a call on the host.

    Medians, minimum and spread are of the event times, or of the wall times if there are none.
    """

    event_ns: tuple
    wall_ns: tuple
    flops: int

    @property
    def times_ns(self):
        return self.event_ns or self.wall_ns

    @property
    def median_ns(self):
        return statistics.median(self.times_ns)

    @property
    def minimum_ns(self):
        return min(self.times_ns)

    @property
    def wall_median_ns(self):
        return statistics.median(self.wall_ns)

    @property
    def spread_ns(self):
        """The interquartile range."""
        return spread(self.times_ns)

    @property
    def gflops(self):
        """10^9 operations a second at the median."""
        return self.flops / self.median_ns

    def __str__(self):
        return (
            f"{self.median_ns / 1e3:.1f} µs median of {len(self.times_ns)} "
            f"(±{self.spread_ns / 2e3:.1f}), {self.gflops:.1f} GFLOP/s"
        )


def measure(run, flops, *, warm_up=1, runs=5, max_runs=200, min_seconds=0.0, max_seconds=60.0,
            peak_flops=None, events=True):  # fmt: skip
    """Time `run(i)`, which enqueues on a profiling queue and returns its (first, last) events.

    run: called with 0, 1, 2, … so that it can rotate buffers. Stops after `runs` runs and
    `min_seconds`, after `max_runs`, or as soon as `max_seconds` are over and one run is timed.
    peak_flops: operations a second that the device cannot exceed. events: False where the
    runtime's events have no true times; then the wall clock's are used. MeasurementError for
    impossible times.
    """
    for i in range(warm_up):
        devices.wait([run(i)[1]])
    event_ns, wall_ns = [], []
    begin = time.perf_counter()
    while True:
        device_ns, host_ns = timed_run(run, warm_up + len(wall_ns), flops, peak_flops, events)
        event_ns.append(device_ns)
        wall_ns.append(host_ns)
        spent = time.perf_counter() - begin
        enough = len(wall_ns) >= runs and spent >= min_seconds
        if enough or len(wall_ns) >= max_runs or spent >= max_seconds:
            break
    found = Measurement(tuple(event_ns) if events else (), tuple(wall_ns), flops)
    if events and len(event_ns) >= 3:
        _refuse_idle_events(found)
    return found


def timed_run(run, i, flops=0, peak_flops=None, events=True):
    """(event time, wall time) in ns of `run(i)`; MeasurementError if they cannot be true.

    events: False to have the wall time for both.
    """
    start = time.perf_counter_ns()
    first, last = run(i)
    devices.wait([last])
    wall_ns = time.perf_counter_ns() - start
    event_ns = wall_ns
    if events:
        event_ns = devices.event_times(last)[1] - devices.event_times(first)[0]
    if event_ns < _CLOCK_NS:
        raise MeasurementError(f"{event_ns} ns is below what a clock can tell")
    if event_ns > wall_ns * 1.05 + _WALL_SLACK_NS:
        raise MeasurementError(f"events say {event_ns} ns, but only {wall_ns} ns went by")
    if peak_flops and flops / (event_ns * 1e-9) > peak_flops:
        raise MeasurementError(
            f"{flops} operations in {event_ns} ns exceed the device's {peak_flops:.3g} a second"
        )
    return event_ns, wall_ns


def _refuse_idle_events(found):
    """MeasurementError if, in the middle of many runs, events cover next to none of the wall.

    One run may wait long before it starts; half of them do so only if the events are not those
    of the work.
    """
    event_ns, wall_ns = found.median_ns, found.wall_median_ns
    if wall_ns > event_ns * _ENQUEUE_FACTOR + _ENQUEUE_SLACK_NS:
        raise MeasurementError(f"events say {event_ns:.0f} ns, but {wall_ns:.0f} ns went by")


def measure_host(call, flops, *, warm_up=1, runs=5, max_runs=200, min_seconds=0.0,
                 max_seconds=60.0):  # fmt: skip
    """Time `call()` on the host by the wall clock; stops as `measure` does."""
    for _ in range(warm_up):
        call()
    wall_ns = []
    begin = time.perf_counter()
    while True:
        start = time.perf_counter_ns()
        call()
        wall_ns.append(time.perf_counter_ns() - start)
        spent = time.perf_counter() - begin
        enough = len(wall_ns) >= runs and spent >= min_seconds
        if enough or len(wall_ns) >= max_runs or spent >= max_seconds:
            return Measurement((), tuple(wall_ns), flops)


def stated_peak(profile, dtype):
    """Operations a second that a device cannot exceed with operands of a dtype, or None.

    A generous bound from compute units and clock: it tells a wrong clock, not a good kernel.
    """
    most = _MOST_PER_CYCLE.get(profile.kind)
    if most is None or not profile.max_clock_mhz or profile.family == "oclgrind":
        return None
    small = ELEMENT_TYPES[dtype].itemsize <= 2
    return profile.compute_units * profile.max_clock_mhz * 1e6 * most[small]


def rotation(bytes_per_set, cache_bytes, limit_bytes):
    """How many sets of buffers to rotate so that twice the cache lies between two uses."""
    if not bytes_per_set:
        return 1
    wanted = math.ceil(2 * cache_bytes / bytes_per_set) + 1
    return max(1, min(wanted, limit_bytes // bytes_per_set, 64))


# ---- comparing ------------------------------------------------------------------------------


# How long a BLAS's threads spin after a call and hold cores that the next contestant needs. With
# OpenBLAS 30 and 45 ms were too short: kernels of a millisecond looked half as fast as
# they are on two cores (512: 0.53 of NumPy, against 1.00).
BLAS_IDLE_SECONDS = 0.25


def interleave(contestants, rounds, *, pause_seconds=0.0, max_seconds=math.inf, min_rounds=5):
    """Run each contestant once a round, in reversed order every other round.

    contestants: functions without arguments that return a time in ns. pause_seconds: before
    each, so that threads of the one before go idle. Returns for each contestant its times, one
    a round. Stops early after `max_seconds`, but not before `min_rounds`.
    """
    times = [[] for _ in contestants]
    order = list(range(len(contestants)))
    begin = time.perf_counter()
    for done in range(rounds):
        for i in order if done % 2 == 0 else reversed(order):
            if pause_seconds:
                time.sleep(pause_seconds)
            times[i].append(contestants[i]())
        if done + 1 >= min_rounds and time.perf_counter() - begin >= max_seconds:
            break
    return tuple(map(tuple, times))


@dataclass(frozen=True)
class Comparison:
    """How many times faster one contestant is than another, from times of the same rounds.

    ratio: the median of the rounds' ratios. low, high: its 95 % confidence interval, which
    assumes nothing about the distribution. spread: the ratios' interquartile range.
    """

    ratio: float
    low: float
    high: float
    spread: float
    rounds: int

    @property
    def verdict(self):
        """faster, slower, or too close to call."""
        if self.low > 1:
            return "faster"
        return "slower" if self.high < 1 else "too close to call"

    def __str__(self):
        return f"{self.ratio:.2f}× ({self.low:.2f} to {self.high:.2f} in {self.rounds} rounds)"


def compare(ours_ns, theirs_ns):
    """The Comparison of two contestants' times, round by round: above 1, ours is faster."""
    ratios = sorted(theirs / ours for ours, theirs in zip(ours_ns, theirs_ns, strict=True))
    low, high = median_interval(ratios)
    return Comparison(statistics.median(ratios), low, high, spread(ratios), len(ratios))


def median_interval(values):
    """(low, high) between which the median lies with 95 % confidence, as far as they allow.

    By order statistics: the number of values below the true median is binomial. Fewer than six
    values cannot give that confidence; then it is their range.
    """
    ordered = sorted(values)
    n = len(ordered)
    cut, below = 0, 2.0**-n
    while 2 * (below + math.comb(n, cut + 1) * 2.0**-n) <= 0.05:
        cut += 1
        below += math.comb(n, cut) * 2.0**-n
    if 2 * 2.0**-n > 0.05:
        return ordered[0], ordered[-1]
    return ordered[cut], ordered[n - 1 - cut]


def spread(values):
    """The interquartile range; the whole range of fewer than four values."""
    if len(values) < 4:
        return max(values) - min(values)
    low, _, high = statistics.quantiles(values, n=4)
    return high - low
