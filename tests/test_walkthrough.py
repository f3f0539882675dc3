"""The walkthrough: every number of the lesson, read from the device, in the pages and in docs."""

import argparse
import io
import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from clmatmul import walkthrough_counts, walkthrough_race, walkthrough_times
from clmatmul.cli import walkthrough as command
from clmatmul.errors import ArgumentError, ConfigError, VerificationError
from clmatmul.variants import load_variant
from clmatmul.walkthrough import PARTS, Lesson, choose_parts, report
from clmatmul.walkthrough_page import (
    Code,
    Drawing,
    HeatMap,
    Page,
    Prose,
    Table,
    block_lines,
    plain_text,
    show,
)

FIXED = "abcdeghi"  # parts that show no times
DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "walkthrough.md"


@pytest.fixture(scope="module")
def lesson(device):
    return Lesson(device, quick=True)


@pytest.fixture(scope="module")
def pages(lesson):
    """letter → Page of every part without times."""
    return {part.letter: part.page(lesson) for part in choose_parts(FIXED)}


def whole(matrix):
    return tuple(tuple(map(int, row)) for row in matrix)


def words(page):
    """The page's text in one line."""
    return " ".join(plain_text(page).split())


# ---- the numbers of the lesson --------------------------------------------------------------


@pytest.mark.parametrize("letter", "ab")
def test_small_product(pages, letter):
    values = pages[letter].values
    assert whole(values.a) == ((1, 4), (2, 5), (3, 6))
    assert whole(values.b) == ((7, 8, 9), (10, 11, 12))
    assert values.result == ((47, 52, 57), (64, 71, 78), (81, 90, 99))
    assert "47 52 57" in plain_text(pages[letter])


def test_tiles_phase_by_phase(pages):
    values = pages["c"].values
    assert values.a == values.b == ((1, 2, 3, 4), (5, 6, 7, 8)) * 2
    assert values.result == ((34, 44, 54, 64), (82, 108, 134, 160)) * 2
    first, second = values.of_group(0)
    assert first.tile_a == first.tile_b == ((1, 2), (5, 6))
    assert (second.tile_a, second.tile_b) == (((3, 4), (7, 8)), ((1, 2), (5, 6)))
    assert (first.added[0][0], second.added[0][0]) == (11, 23)
    assert (first.sums[0][0], second.sums[0][0]) == (11, 34)
    assert "11 + 23 = 34" in plain_text(pages["c"])


def test_every_traced_phase_is_the_product_of_its_tiles(pages):
    values = pages["c"].values
    assert len(values.phases) == 8
    for phase in values.phases:
        assert phase.added == whole(np.array(phase.tile_a) @ np.array(phase.tile_b))
    last = [np.array(values.of_group(g)[-1].sums) for g in range(4)]
    assert whole(np.block([[last[0], last[1]], [last[2], last[3]]])) == values.result


def test_reads_of_the_small_product(pages):
    small = pages["d"].values.small
    for matrix in "AB":
        assert small.count("untiled", matrix).most == 4
        assert small.count("tiled", matrix).most == 2
        assert small.count("tiled", matrix, "local").most == 4


def test_reads_of_the_large_product(pages):
    values = pages["d"].values
    assert not values.large_is_whole  # the lesson is quick
    across, down = values.large
    assert (across.n, across.tile_n, down.m, down.tile_m) == (1024, 16, 1024, 16)
    for counted, matrix in ((across, "A"), (down, "B")):
        assert counted.count("untiled", matrix).most == 1024
        assert counted.count("tiled", matrix).most == 64


COUNTED = [
    ((4, 4, 4), (2, 2, 2)),
    ((5, 7, 6), (2, 4, 2)),
    ((1, 1, 1), (1, 1, 1)),
    ((1, 9, 3), (4, 2, 8)),
    ((17, 1, 5), (8, 8, 2)),
    ((16, 16, 16), (16, 16, 16)),
    ((15, 17, 33), (16, 16, 16)),
    ((33, 15, 1), (16, 4, 8)),
    ((13, 29, 31), (4, 16, 8)),
    ((31, 13, 29), (16, 4, 32)),
    ((64, 48, 40), (8, 16, 4)),
    ((37, 53, 11), (1, 8, 1)),
    ((23, 65, 7), (2, 64, 16)),
]


@pytest.mark.numeric
@pytest.mark.parametrize("size, tiles", COUNTED)
def test_measured_is_predicted(device, about, size, tiles):
    about("reads counted", "tiled")
    (m, n, k), (tile_m, tile_n, tile_k) = size, tiles
    counted = walkthrough_counts.count_reads(device, *size, *tiles)
    assert counted.agrees
    across, down = -(-n // tile_n), -(-m // tile_m)
    for kernel, matrix, memory, expected in (
        ("untiled", "A", "global", n),
        ("untiled", "B", "global", m),
        ("tiled", "A", "global", across),
        ("tiled", "B", "global", down),
        ("tiled", "A", "local", across * tile_n),
        ("tiled", "B", "local", down * tile_m),
    ):
        found = counted.count(kernel, matrix, memory)
        assert (found.predicted, found.fewest, found.most) == (expected,) * 3
    # Reads in all: what every work-item and every staging loop does, inside and outside.
    groups, phases = across * down, -(-k // tile_k)
    for matrix, elements, staged in (("A", m * k, tile_m * tile_k), ("B", k * n, tile_k * tile_n)):
        found = counted.count("tiled", matrix)
        assert found.most * elements + found.outside == groups * phases * staged
        found = counted.count("tiled", matrix, "local")
        assert found.most * elements + found.outside == groups * phases * tile_m * tile_n * tile_k


def test_a_wrong_count_is_an_error(lesson, monkeypatch):
    right = walkthrough_counts.predict

    def wrong(*sizes):
        first, *others = right(*sizes)
        return ((*first[:3], first[3] + 1, first[4]), *others)

    monkeypatch.setattr(walkthrough_counts, "predict", wrong)
    with pytest.raises(VerificationError, match="not as predicted"):
        walkthrough_counts.reads(lesson)


def test_the_whole_large_product_is_counted_unless_it_takes_too_long(lesson, monkeypatch):
    sizes = []
    right = walkthrough_counts.count_reads

    def recorded(device, *size):
        sizes.append(size[:3])
        return right(device, *(min(x, 16) for x in size))

    monkeypatch.setattr(walkthrough_counts, "count_reads", recorded)
    told = []
    slow = replace(lesson, quick=False, tell=told.append)
    monkeypatch.setattr(walkthrough_counts, "_PATIENCE_SECONDS", 1e9)
    assert walkthrough_counts.reads(slow).values.large_is_whole
    assert sizes[-1] == (1024, 1024, 1024) and "1024×1024×1024" in told[0]
    monkeypatch.setattr(walkthrough_counts, "_PATIENCE_SECONDS", 0)
    assert not walkthrough_counts.reads(slow).values.large_is_whole
    assert sizes[-1] == (1024, 16, 16)


def test_sizes_and_tiles_are_checked(device):
    with pytest.raises(ConfigError, match="tile_m=3"):
        walkthrough_counts.count_reads(device, 4, 4, 4, 3, 2, 2)
    with pytest.raises(ArgumentError, match="at most"):
        walkthrough_counts.count_reads(device, 2000, 2000, 2000, 16, 16, 16)
    with pytest.raises(ArgumentError, match="tile_k=0"):
        Lesson(device, tile_k=0)


# ---- the race -------------------------------------------------------------------------------


def test_simulated_race(pages):
    values = pages["e"].values
    right = {(x.barriers, x.schedule): x.right for x in values.outcomes}
    assert all(right["both", schedule] for schedule in walkthrough_race.SCHEDULES)
    for barriers, schedule in product(("no first", "no second"), ("one by one", "last first")):
        assert not right[barriers, schedule]
    assert right["no first", "in step"] and right["no second", "in step"]
    assert values.expected == ((34, 44), (82, 108))


def test_simulation_is_the_same_each_time():
    a = [[3, 1, 4, 1], [5, 9, 2, 6]]
    b = [[5, 3], [5, 8], [9, 7], [9, 3]]
    for barriers, schedule in product(walkthrough_race.BARRIERS, walkthrough_race.SCHEDULES):
        found = {walkthrough_race.simulate(a, b, barriers, schedule) for _ in range(3)}
        assert len(found) == 1
        if barriers == "both":
            assert found == {whole(np.array(a) @ np.array(b))}


@pytest.mark.skipif(shutil.which("oclgrind-kernel") is None, reason="Oclgrind is not installed")
def test_oclgrind_finds_the_race_and_computes_as_simulated(pages):
    values = pages["e"].values
    assert [x.barriers for x in values.findings] == list(walkthrough_race.BARRIERS)
    both, *others = values.findings
    assert both.races == 0 and both.first == ()
    assert all(x.races > 0 and "data race" in x.first[0] for x in others)
    assert all(any("tile_a" in line for line in x.first) for x in others)
    simulated = {x.barriers: x.result for x in values.outcomes if x.schedule == "one by one"}
    for x in values.findings:
        assert tuple(row[:2] for row in x.result[:2]) == simulated[x.barriers]


def test_without_oclgrind_the_page_says_so(lesson, monkeypatch):
    monkeypatch.setattr(walkthrough_race.shutil, "which", lambda name: None)
    page = walkthrough_race.race(lesson)
    assert page.values.findings == ()
    assert "is not installed here" in words(page)


def test_an_oclgrind_that_fails_is_reported(lesson, monkeypatch):
    monkeypatch.setattr(walkthrough_race.shutil, "which", lambda name: "/bin/false")
    monkeypatch.setattr(walkthrough_race, "_SIMULATOR", "false")
    page = walkthrough_race.race(lesson)
    assert "could not run the kernel" in page.values.note
    assert "no output" in words(page)


# ---- host, scaling, rule --------------------------------------------------------------------


@pytest.mark.numeric
def test_copied_bytes(pages, device, about):
    about("copies", "tiled")
    values = pages["g"].values
    unit = values.matrix_bytes
    assert unit == 4 * values.extent**2
    assert [x.bytes // unit for x in values.one[:3]] == [6, 4, 3]
    assert [(x.uploads, x.downloads) for x in values.one[:3]] == [(3, 3), (3, 1), (2, 1)]
    assert [x.bytes // unit for x in values.two] == [6, 4]
    assert len(values.one) == 3 + device.has_host_memory
    assert not any(x.bytes for x in values.one[3:])


def test_scaling_and_the_rule(pages):
    assert pages["h"].values.result == ((2, 8), (4, 10), (6, 12))
    values = pages["i"].values
    assert values.error.count("(3, 2)") == 2 and "must be equal" in values.error
    assert values.result == ((17, 22, 27), (22, 29, 36), (27, 36, 45))
    assert values.error in words(pages["i"])


# ---- what is timed --------------------------------------------------------------------------


def test_guard_and_pad(lesson):
    values = walkthrough_times.edges(lesson).values
    guard, pad = values.ways
    assert all(x % values.tile for x in guard.size)
    assert not any(x % values.tile for x in pad.size)
    assert guard.terms == pad.terms == np.prod(pad.size)
    m, n, k = pad.size
    assert (guard.extra_bytes, pad.extra_bytes) == (0, 4 * (m * k + k * n + m * n))
    assert guard.kernel_ns > 0 and pad.kernel_ns > 0 and pad.copy_ns > 0 == guard.copy_ns


@pytest.fixture
def small_experiment(monkeypatch, lesson):
    """Two tiles, one of them too large for any device, and the untiled kernel, at 32×32×32."""
    if lesson.is_simulated:
        pytest.skip("nothing is timed on a simulator")
    monkeypatch.setattr(walkthrough_times, "_GRID_M", (4, 64))
    monkeypatch.setattr(walkthrough_times, "_GRID_N", (8,))
    monkeypatch.setattr(walkthrough_times, "experiment_size", lambda profile: (32, 32, 32))
    monkeypatch.setattr(walkthrough_times, "all_variants", lambda: (load_variant("naive"),))


def test_experiment(lesson, small_experiment):
    told = []
    page = walkthrough_times.experiment(replace(lesson, tell=told.append))
    values = page.values
    assert len(told) == len(values.tried) == 4
    times = [x.median_ns for x in values.tried[:3]]
    assert times == sorted(times) and min(times) > 0
    failed = values.tried[3]
    assert failed.median_ns is None and "tile_m=64 is not one of" in failed.fault
    text = plain_text(page)
    assert re.search(r"tiled\(tile_k=16, tile_m=64, tile_n=8\) +tile_m=64 is not one of", text)
    assert text.rstrip().endswith("python -m clmatmul.tune --m 32 --n 32 --k 32")
    assert walkthrough_times.heat_map(values).values[1] == (None,)


def test_experiment_asks_every_variant(lesson):
    from clmatmul.explanation import plain_problem

    found = walkthrough_times.candidates(plain_problem(64, 64, 64), lesson.device.profile)
    assert len(set(found)) == len(found)
    grid = len(walkthrough_times._GRID_M) * len(walkthrough_times._GRID_N)
    assert sum(x.variant == "tiled" for x in found) == grid
    assert {"naive", "tiled"} <= {x.variant for x in found}


def test_events_without_times_are_replaced_by_the_wall_clock(lesson, monkeypatch, small_experiment):
    from clmatmul import device as devices

    monkeypatch.setattr(devices, "event_times", lambda event: (2, 3))
    page = walkthrough_times.edges(lesson)
    assert page.values.clock == "wall"
    assert "by the wall clock" in words(page)
    assert walkthrough_times.experiment(lesson).values.best.clock == "wall"


def test_nothing_is_tried_on_a_simulator(lesson):
    profile = replace(lesson.device.profile, family="oclgrind")
    simulated = replace(lesson, device=argparse.Namespace(profile=profile))
    page = walkthrough_times.experiment(simulated)
    assert page.values.tried == () and "simulator" in words(page)


# ---- how it is shown ------------------------------------------------------------------------

SAMPLE = Page(
    "x",
    "sample",
    "Every kind of block",
    (
        Prose("word " * 60),
        Drawing("a  b\n  c"),
        Code("// " + "comment " * 20 + "\n    " + "x = y + " * 20 + "z;"),
        Table(("name", "ms"), (("tiled(" + "tile_m=16, " * 9 + "x)", "1.25"), ("b", "10.50"))),
        HeatMap("tile_m", "tile_n", ("8", "16"), ("8",), ((1.0,), (None,)), "GFLOP/s"),
        HeatMap("m", "n", ("8", "16"), ("8", "16"), ((1.0, 4.0), (2.5, None)), "GFLOP/s"),
    ),
    None,
)


def rich_text(page, width, **keywords):
    from rich.console import Console

    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, **keywords)
    show(page, console)
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_pages_fit_their_width(pages, width):
    for page in (*pages.values(), SAMPLE):
        for text in (plain_text(page, width), rich_text(page, width)):
            assert [x for x in text.split("\n") if len(x) > width] == []


def test_a_narrow_terminal_cuts_nothing_off(pages):
    """Only drawings run over; every word of tables and code is there, on further lines."""
    for page in pages.values():
        drawn = {x for b in page.blocks if isinstance(b, Drawing) for x in b.text.split("\n")}
        text = rich_text(page, 50)
        assert "…" not in text.replace("...", "")
        wide = [x for x in text.split("\n") if len(x.strip()) > 50]
        assert all(x.strip() in {y.strip() for y in drawn} for x in wide)


def test_both_renderers_show_the_same_words(pages):
    for page in pages.values():
        plain = re.findall(r"[\w.,]+", plain_text(page, 100))
        rich = re.findall(r"[\w.,]+", rich_text(page, 100))
        assert sorted(plain) == sorted(rich), page.letter


def test_plain_text_has_no_control_characters(pages):
    for page in (*pages.values(), SAMPLE):
        text = plain_text(page)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
        assert text.startswith(f"({page.letter}) {page.title}\n==")
        assert not re.search(r"[ ]+$", text, re.MULTILINE)


def test_heat_map_levels():
    heat = SAMPLE.blocks[-1]
    rows = block_lines(heat, 80)
    assert [x.split() for x in rows[2:4]] == [
        ["8", "1.0", "0", "4.0", "9"],
        ["16", "2.5", "4", "-"],
    ]
    drawn = rich_text(Page("x", "x", "x", (heat,), None), 80)
    assert "···· 1.0" in drawn and "████ 4.0" in drawn and "▒▒▒▒ 2.5" in drawn


def test_json_has_the_values(pages):
    for page in pages.values():
        again = json.loads(json.dumps(report(page)))
        assert again["letter"] == page.letter and again["values"]
    assert report(pages["a"])["values"]["result"] == [[47, 52, 57], [64, 71, 78], [81, 90, 99]]


# ---- the command ----------------------------------------------------------------------------


def run_command(*words, **common):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    arguments = parser.parse_args(words)
    vars(arguments).update({"json": False, "device": None, "quiet": False, **common})
    return command.run(arguments)


def test_parts_are_chosen_by_letter_or_name():
    assert [x.letter for x in choose_parts(["scale", "A", "c", "a"])] == ["a", "c", "h"]
    assert choose_parts() == PARTS
    assert [x.letter for x in choose_parts(quick=True)] == list("abcdefghi")
    assert [x.letter for x in choose_parts(["j"], quick=True)] == ["j"]
    with pytest.raises(ArgumentError, match=r"part 'z' is unknown; there are a \(serial\)"):
        choose_parts(["z"])


def test_every_part_bears_its_own_letter_and_name(pages):
    for part in choose_parts(FIXED):
        assert (pages[part.letter].letter, pages[part.letter].name) == (part.letter, part.name)


def test_command_prints_plain_text_elsewhere(capsys):
    assert run_command("h", "a") == 0
    out, err = capsys.readouterr()
    assert out.index("(a) ") < out.index("(h) ")
    assert "\x1b" not in out and err == ""


def test_command_counts_what_is_asked_for(capsys):
    sizes = ["--m=9", "--n=10", "--k=3", "--tile-m=4", "--tile-n=2", "--tile-k=1"]
    assert run_command("d", "--quick", *sizes, json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["command"]) == (1, "walkthrough")
    (part,) = document["parts"]
    chosen = part["values"]["chosen"]
    assert [chosen[x] for x in ("m", "n", "k", "tile_m", "tile_n", "tile_k")] == [9, 10, 3, 4, 2, 1]
    reads = {(x["kernel"], x["matrix"], x["memory"]): x["most"] for x in chosen["counts"]}
    assert (reads["tiled", "A", "global"], reads["tiled", "B", "global"]) == (5, 3)


@pytest.mark.parametrize("words, common", [(["--step"], {}), (["--step"], {"json": True})])
def test_step_needs_a_terminal(words, common):
    with pytest.raises(ArgumentError, match="--step waits for Enter"):
        run_command(*words, **common)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_steps_on_a_terminal():
    """Enter goes on, q stops; rich draws, and the prompt is on standard error."""
    text, code = at_terminal(["a", "h", "i"], ["\n", "q\n"])
    assert code == 0
    assert "(a) The product" in text and "(h) A number" in text and "(i) The dim" not in text
    assert text.count("q: stop") == 2 and "\x1b[" in text


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_all_on_a_terminal_without_colour():
    text, code = at_terminal(["--all", "a", "i"], [], NO_COLOR="1", TERM="xterm")
    assert code == 0 and "q: stop" not in text
    assert not re.search(r"\x1b\[[\d;]*3\dm", text)
    text, code = at_terminal(["--all", "a", "i"], [], TERM="dumb")
    assert code == 0 and "\x1b" not in text


def at_terminal(words, answers, **environment):
    """(what a terminal showed, exit code) of the command; an answer follows each prompt."""
    import pty

    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "clmatmul", "walkthrough", *words],
        stdin=follower, stdout=follower, stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
        cwd=DOCUMENT.parent.parent,
    )  # fmt: skip
    os.close(follower)
    text, answers = "", list(answers)
    prompts = 0
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 0.1)[0]:
            try:
                data = os.read(leader, 65536)
            except OSError:  # the other side is closed
                break
            text += data.decode(errors="replace")
        if text.count("q: stop") > prompts and answers:
            prompts += 1
            os.write(leader, answers.pop(0).encode())
    os.close(leader)
    return text, process.wait(10)


# ---- the document ---------------------------------------------------------------------------


def document_sections():
    """letter → text of each section of docs/walkthrough.md."""
    parts = re.split(r"^## \((\w)\) ", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def fenced(text):
    """The fenced blocks of a section, as lists of lines."""
    return [x.split("\n") for x in re.findall(r"^```\w+\n(.*?)\n```$", text, re.M | re.S)]


def test_document_has_every_part():
    sections = document_sections()
    assert list(sections) == [x.letter for x in PARTS]


@pytest.mark.parametrize("letter", FIXED)
def test_document_shows_what_the_device_gives(pages, letter, device):
    """Each fenced block is one of the page's own, and each number in the prose is on the page."""
    if device.profile.family == "oclgrind" or not device.has_host_memory:
        pytest.skip("the document shows a device that shares the host's memory")
    page, text = pages[letter], document_sections()[letter]
    own = [[x.rstrip() for x in block_lines(block, 100)] for block in page.blocks]
    blocks = fenced(text)
    assert blocks
    for block in blocks:
        assert block in own, "not what the walkthrough shows:\n" + "\n".join(block)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    shown = set(re.findall(r"[\d,]*\d", plain_text(page)))
    assert set(re.findall(r"[\d,]*\d", prose)) <= shown


def test_document_names_the_command_that_tunes(lesson):
    size = walkthrough_times.experiment_size(replace(lesson.device.profile, kind="cpu"))
    assert [walkthrough_times.tune_command(size)] in fenced(document_sections()["j"])


def test_document_quotes_the_error(pages):
    quoted = " ".join(document_sections()["i"].replace("\n> ", " ").split())
    assert f"ShapeError: {pages['i'].values.error}" in quoted
