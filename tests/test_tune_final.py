"""The final of a search, on made-up devices: what replaces the default, and what does not."""

import random

import pytest
from made_up_devices import FAST, MS, Device, by_config, search, untuned

from clmatmul.config import TileConfig
from clmatmul.database import read_records
from clmatmul.errors import DeviceError
from clmatmul.trial import Trial


def test_a_winner_that_is_no_faster_in_turn_is_not_kept(tmp_path, monkeypatch):
    rng = random.Random(1)

    def noisy(configs, rounds):
        return [[10 * MS + rng.gauss(0, MS) for _ in range(rounds)] for _ in configs]

    device = Device(monkeypatch, by_config({FAST: MS}), noisy)
    default = untuned(device)[0].config
    (found,) = search(tmp_path).problems
    assert found.winner.config == default
    assert "default" in found.verdict
    assert device.compared[0][:2] == [default, FAST]


def test_too_close_to_call_is_said(tmp_path, monkeypatch):
    def close(configs, rounds):
        # a little faster in 11 of 21 rounds, slower in the others
        ours = [99 if i % 2 == 0 else 103 for i in range(rounds)]
        return [[100] * rounds, ours, *([200] * rounds for _ in configs[2:])]

    device = Device(monkeypatch, by_config({FAST: 9 * MS}), close)
    (found,) = search(tmp_path).problems
    assert found.verdict.startswith(f"too close to call: {FAST} is 1.01× (0.97 to 1.01")
    assert found.winner.config == untuned(device)[0].config


@pytest.mark.parametrize("gain, kept", [(1.008, True), (1.012, False)])
def test_a_gain_below_a_hundredth_is_none(tmp_path, monkeypatch, gain, kept):
    def times(configs, rounds):
        return [[100.0] * rounds, *([100 / gain] * rounds for _ in configs[1:])]

    device = Device(monkeypatch, by_config({FAST: 9 * MS}), times)
    (found,) = search(tmp_path).problems
    default = untuned(device)[0].config
    assert (found.winner.config == default) is kept
    assert found.verdict.startswith("too close to call: ") is kept


def test_finalists_are_ranked_by_rounds_and_doubt_about_one_does_not_end_the_final(
    tmp_path, monkeypatch
):
    other = TileConfig.of("tiled", tile_m=8, tile_n=8, tile_k=16)

    def times(configs, rounds):
        # The first has the better median, and is slower in seven of ten rounds. The second is a
        # little faster in all; the others are much faster in half of them, slower in the rest.
        default = [200 if i % 10 < 6 else 100 for i in range(rounds)]
        first = [205 if i % 20 < 9 else 110 for i in range(rounds)]
        second = [x / 1.05 for x in default]
        doubtful = [x / (0.7 if i % 2 else 1.5) for i, x in enumerate(default)]
        found = {configs[0]: default, FAST: first, other: second}
        return [found.get(x, doubtful) for x in configs]

    Device(monkeypatch, by_config({FAST: 8 * MS, other: 9 * MS}), times)
    (found,) = search(tmp_path).problems
    assert found.winner.config == other
    assert found.verdict.startswith("1.05× (1.05 to 1.05")


@pytest.mark.parametrize("gains, again, verdict", [
    ([1.04], 0.98, "1.04× (1.04 to 1.04 in 903 rounds) as fast, but not with other buffers"),
    # large in one round more than half (their number is odd), so it may be small
    ([1.3, 1.02], 0.9, "but not with other buffers"),
])  # fmt: skip
def test_a_gain_that_is_or_may_be_small_has_to_show_in_new_buffers(
    tmp_path, monkeypatch, gains, again, verdict
):
    calls = []

    def times(configs, rounds):
        calls.append(configs)
        first = len(calls) == 1
        ours = [100 / (gains[i % len(gains)] if first else again) for i in range(rounds)]
        return [[100.0] * rounds, ours, *([200.0] * rounds for _ in configs[2:])]

    device = Device(monkeypatch, by_config({FAST: 9 * MS}), times)
    (found,) = search(tmp_path).problems
    default = untuned(device)[0].config
    assert calls[1] == [default, FAST] and found.winner.config == default
    assert verdict in found.verdict


def test_the_default_is_the_first_untuned_choice_that_works(tmp_path, monkeypatch):
    device = Device(monkeypatch, by_config({}))
    first, second = (x.config for x in untuned(device)[:2])
    device.landscape = by_config({first: Trial(first, "crash", note="SIGSEGV"), FAST: MS})
    (found,) = search(tmp_path).problems
    assert device.compared[0][0] == second
    assert found.statuses["crash"] == 1
    assert [(x.config, x.status) for x in found.failures] == [(first, "crash")]


def test_a_comparison_that_fails_keeps_the_default(tmp_path, monkeypatch):
    def fails(configs, rounds):
        raise DeviceError("the comparison failed: still in state compare after 60 s")

    device = Device(monkeypatch, by_config({FAST: MS}), fails)
    (found,) = search(tmp_path).problems
    assert found.winner.config == untuned(device)[0].config
    assert "the comparison failed" in found.verdict


def test_a_winner_that_fails_its_proof_is_recorded_and_the_next_one_serves(tmp_path, monkeypatch):
    second = TileConfig.of("tiled", tile_m=8, tile_n=8, tile_k=8)
    device = Device(monkeypatch, by_config({FAST: MS, second: 2 * MS}))
    device.faults[FAST] = "run 7 on the same operands gave different bits"
    report = search(tmp_path, strategy="random")
    (found,) = report.problems
    assert found.winner.config == second and device.proven == [FAST, second]
    failed = [x for x in read_records(report.journal) if x.status == "wrong_result"]
    assert [x.config for x in failed] == [FAST] and "as a winner: run 7" in failed[0].note
    assert FAST in [x.config for x in found.failures]
