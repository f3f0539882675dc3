"""The clock, with runs whose times are made up: no device is used."""

import itertools
import random

import pytest

from clmatmul import measure as clock
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import MeasurementError

MS = 1_000_000


class Run:
    """A run that takes `wall_ns` by a made-up wall clock, and says `event_ns` of itself."""

    def __init__(self, monkeypatch, event_ns, wall_ns):
        self.now = 0
        self.called = []
        self._event_ns, self._wall_ns = itertools.cycle(event_ns), itertools.cycle(wall_ns)
        monkeypatch.setattr(clock.devices, "wait", self._wait)
        monkeypatch.setattr(clock.devices, "event_times", lambda event: event)
        monkeypatch.setattr(clock.time, "perf_counter_ns", lambda: self.now)
        monkeypatch.setattr(clock.time, "perf_counter", lambda: self.now * 1e-9)

    def __call__(self, i):
        self.called.append(i)
        length = next(self._event_ns)
        # of two launches: the first event and the last
        return (1000, 1000 + length // 2), (1000 + length // 2, 1000 + length)

    def _wait(self, events):
        self.now += next(self._wall_ns)


@pytest.fixture
def run(monkeypatch):
    return lambda event_ns, wall_ns: Run(monkeypatch, event_ns, wall_ns)


def test_times_reach_from_the_first_launch_to_the_end_of_the_last(run):
    found = clock.measure(run([2 * MS], [3 * MS]), flops=4 * MS, runs=5)
    assert found.event_ns == (2 * MS,) * 5
    assert found.wall_ns == (3 * MS,) * 5
    assert found.median_ns == 2 * MS and found.gflops == 2.0 and found.spread_ns == 0


def test_warm_up_is_not_timed_and_buffers_rotate(run):
    fake = run([90 * MS, 2 * MS, 4 * MS, 3 * MS], [100 * MS, 5 * MS, 5 * MS, 5 * MS])
    found = clock.measure(fake, 1, warm_up=1, runs=3)
    assert fake.called == [0, 1, 2, 3]
    assert found.event_ns == (2 * MS, 4 * MS, 3 * MS)
    assert (found.minimum_ns, found.median_ns, found.spread_ns) == (2 * MS, 3 * MS, 2 * MS)


def test_a_run_goes_on_for_the_least_time_and_ends_at_the_most(run):
    assert len(clock.measure(run([MS], [MS]), 1, runs=2, min_seconds=0.01).event_ns) == 10
    slow = clock.measure(run([900 * MS], [900 * MS]), 1, runs=5, max_seconds=0.5)
    assert len(slow.event_ns) == 1
    assert len(clock.measure(run([MS], [MS]), 1, min_seconds=9, max_runs=20).event_ns) == 20


@pytest.mark.parametrize(
    "event_ns, wall_ns, words",
    [
        ([0], [MS], "below what a clock can tell"),
        ([99], [MS], "below what a clock can tell"),
        ([-MS], [MS], "below what a clock can tell"),
        ([2 * MS], [MS], "only 1000000 ns went by"),
        ([MS], [100 * MS], "but 100000000 ns went by"),
    ],
)
def test_impossible_times_are_refused(run, event_ns, wall_ns, words):
    with pytest.raises(MeasurementError, match=words):
        clock.measure(run(event_ns, wall_ns), flops=1)


def test_one_impossible_time_among_good_ones_is_refused(run):
    with pytest.raises(MeasurementError, match="below what"):
        clock.measure(run([MS, MS, MS, 0], [2 * MS]), flops=1, runs=5)


def test_one_run_that_waited_is_no_disagreement(run):
    found = clock.measure(run([MS], [MS, MS, 500 * MS, MS, MS, MS]), 1, runs=5)
    assert found.median_ns == MS
    alone = clock.measure(run([MS], [500 * MS]), 1, runs=1)
    assert alone.wall_ns == (500 * MS,)


def test_where_events_tell_no_time_the_wall_clock_does(run):
    found = clock.measure(run([1], [3 * MS]), flops=6 * MS, runs=5, events=False)
    assert found.event_ns == () and found.wall_ns == (3 * MS,) * 5
    assert found.median_ns == 3 * MS and found.gflops == 2.0
    assert clock.timed_run(run([1], [3 * MS]), 0, events=False) == (3 * MS, 3 * MS)


def test_a_time_above_the_peak_is_refused(run):
    fake = run([MS], [2 * MS])
    with pytest.raises(MeasurementError, match="exceed the device's 1e\\+09 a second"):
        clock.measure(fake, flops=2_000_000, peak_flops=1e9)
    assert clock.measure(fake, flops=900_000, peak_flops=1e9).median_ns == MS


def test_a_host_call_has_wall_times_only():
    calls = []
    found = clock.measure_host(lambda: calls.append(1), flops=8, warm_up=2, runs=4)
    assert len(calls) == 6 and len(found.wall_ns) == 4
    assert found.event_ns == () and found.times_ns == found.wall_ns


def profile(name):
    from pathlib import Path

    text = (Path(__file__).parent / "profiles" / f"{name}.json").read_text()
    return DeviceProfile.from_json(text)


def test_the_stated_peak_is_above_what_devices_achieve():
    h200 = profile("nvidia-h200")  # 67 TFLOP/s of float32, 990 of float16 with tensor cores
    assert 67e12 < clock.stated_peak(h200, "float32") < 67e14
    assert 990e12 < clock.stated_peak(h200, "float16") < 990e14


def test_no_peak_is_stated_for_a_device_that_tells_no_clock():
    from dataclasses import replace

    unknown = replace(profile("nvidia-h200"), max_clock_mhz=0)
    assert clock.stated_peak(unknown, "float32") is None
    assert clock.stated_peak(replace(unknown, kind="accelerator"), "float32") is None


def test_rotation_puts_twice_the_cache_between_two_uses():
    assert clock.rotation(1000, cache_bytes=10_000, limit_bytes=10**9) == 21
    assert clock.rotation(10**6, cache_bytes=1000, limit_bytes=10**9) == 2
    assert clock.rotation(10**6, cache_bytes=10**9, limit_bytes=3 * 10**6) == 3
    assert clock.rotation(1, cache_bytes=10**9, limit_bytes=10**9) == 64
    assert clock.rotation(10**9, cache_bytes=10**9, limit_bytes=1) == 1
    assert clock.rotation(0, 1, 1) == 1


def test_contestants_take_turns_in_an_order_that_alternates():
    order = []

    def contestant(name, ns):
        return lambda: order.append(name) or ns

    times = clock.interleave([contestant("a", 1), contestant("b", 2), contestant("c", 3)], 3)
    assert "".join(order) == "abccbaabc"
    assert times == ((1, 1, 1), (2, 2, 2), (3, 3, 3))


def test_turns_pause_and_stop_when_the_time_is_over(monkeypatch):
    now, pauses = [0.0], []
    monkeypatch.setattr(clock.time, "sleep", pauses.append)
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])

    def slow():
        now[0] += 10
        return 1

    (times,) = clock.interleave([slow], 100, pause_seconds=0.5, max_seconds=1, min_rounds=5)
    assert len(times) == 5 and pauses == [0.5] * 5


def test_a_comparison_says_faster_only_beyond_the_noise():
    rng = random.Random(1)
    theirs = [100 + rng.gauss(0, 5) for _ in range(21)]
    faster = clock.compare([80 + rng.gauss(0, 4) for _ in range(21)], theirs)
    assert faster.verdict == "faster" and 1.15 < faster.ratio < 1.35
    same = clock.compare([100 + rng.gauss(0, 5) for _ in range(21)], theirs)
    assert same.verdict == "too close to call" and same.low < 1 < same.high
    slower = clock.compare([120 + rng.gauss(0, 4) for _ in range(21)], theirs)
    assert slower.verdict == "slower"


def test_a_machine_that_slows_down_does_not_change_the_verdict():
    drift = [1 + i / 5 for i in range(21)]
    found = clock.compare([90 * x for x in drift], [100 * x for x in drift])
    assert found.verdict == "faster" and found.spread < 1e-9


def test_the_interval_holds_the_median_in_19_of_20_cases():
    rng = random.Random(2)
    for count, cut in ((6, 0), (9, 1), (21, 5)):
        assert clock.median_interval(range(count)) == (cut, count - 1 - cut)
        inside = 0
        for _ in range(1000):
            low, high = clock.median_interval([rng.gauss(0, 1) for _ in range(count)])
            inside += low <= 0 <= high
        assert inside >= 930
    assert clock.median_interval([3, 1, 2]) == (1, 3)
    assert clock.median_interval([7]) == (7, 7)
