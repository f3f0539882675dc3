"""Walkthrough, part e: what a missing barrier does.

`simulate` plays the work-items of one work-group in Python, step by step, in a chosen order, so
that the race shows on every machine and in the same way each time. `simulator_report` gives the
kernel itself, with a barrier taken out, to the Oclgrind simulator.
"""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from clmatmul import walkthrough_runs as runs
from clmatmul.explanation import plain_problem
from clmatmul.plan import make_plan
from clmatmul.walkthrough_kernels import SQUARE, serial_product
from clmatmul.walkthrough_page import Code, Drawing, Page, Prose, Table, beside, matrix_text

TILE = 2
BARRIERS = ("both", "no first", "no second")
SCHEDULES = ("one by one", "in step", "last first")
_SIMULATOR = "oclgrind-kernel"
_BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
_STEP, _WAIT = object(), object()


@dataclass(frozen=True)
class Outcome:
    """What the simulated first work-group computed, with these barriers, in this order."""

    barriers: str
    schedule: str
    result: tuple
    right: bool


@dataclass(frozen=True)
class Finding:
    """What Oclgrind said of the kernel. first: lines on the first race, with source lines.

    result: the whole product that it computed, as rows.
    """

    barriers: str
    races: int
    first: tuple
    result: tuple


@dataclass(frozen=True)
class Race:
    """Part e. findings is empty if the simulator is not installed or failed; note says why."""

    expected: tuple
    outcomes: tuple
    findings: tuple
    note: str


# ---- the simulation -------------------------------------------------------------------------


def simulate(a, b, barriers, schedule):
    """Work-group 0 of a tiled product with 2×2 tiles, its result as rows.

    barriers: one of BARRIERS. schedule: who goes next. "one by one": a work-item runs until it
    must wait or ends, then the next; "last first": the same from the last; "in step": each in
    turn does one step. Local memory starts as zeros.
    """
    tile_a, tile_b = ([[0] * TILE for _ in range(TILE)] for _ in "ab")
    result = [[0] * TILE for _ in range(TILE)]
    items = [
        _work_item(a, b, row, col, tile_a, tile_b, result, barriers)
        for row in range(TILE)
        for col in range(TILE)
    ]
    if schedule == "last first":
        items.reverse()
    turn = _one_step if schedule == "in step" else _until_waiting
    running = items
    while running:
        # One round: everyone to the next barrier. Those that have ended take no further part.
        arrived, moving = [], running
        while moving:
            states = [(item, turn(item)) for item in moving]
            arrived += [item for item, state in states if state is _WAIT]
            moving = [item for item, state in states if state is _STEP]
        running = [item for item in items if item in arrived]
    return runs.rows(result)


def _work_item(a, b, row, col, tile_a, tile_b, result, barriers):
    """The kernel for one element, pausing after each access to local memory."""
    for first in range(0, len(b), TILE):
        tile_a[row][col] = a[row][first + col]
        yield _STEP
        tile_b[row][col] = b[first + row][col]
        yield _STEP
        if barriers != "no first":
            yield _WAIT
        for i in range(TILE):
            result[row][col] += tile_a[row][i] * tile_b[i][col]
            yield _STEP
        if barriers != "no second":
            yield _WAIT


def _one_step(item):
    return next(item, None)


def _until_waiting(item):
    return next((state for state in item if state is _WAIT), None)


# ---- the simulator of OpenCL ------------------------------------------------------------------


def simulator_report(profile, a, b, barriers, seconds=60):
    """The Finding of Oclgrind on the tiled kernel with 2×2 tiles; OSError if it cannot be run.

    a, b: square matrices as rows, their extent a multiple of the tile.
    """
    extent = len(b)
    config = runs.tiled(TILE, TILE, TILE)
    plan = make_plan(plain_problem(extent, extent, extent), profile, config)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernel.cl").write_text(without_barrier(runs.source(plan), barriers))
        (folder / "run.sim").write_text(_simulation_file(plan, a, b))
        log = folder / "log"
        done = subprocess.run(
            [_SIMULATOR, "--data-races", "--max-errors", "1000", "--log", str(log),
             "--build-options", "-cl-std=CL1.2", "run.sim"],
            cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
        )  # fmt: skip
        printed = [float(x) for x in re.findall(r"^\s*out\[\d+\] = (\S+)", done.stdout, re.M)]
        if done.returncode or len(printed) != extent * extent:
            raise OSError((done.stderr or done.stdout or "no output").strip().splitlines()[0])
        text = log.read_text() if log.exists() else ""
    result = runs.rows(printed[i : i + extent] for i in range(0, len(printed), extent))
    return Finding(barriers, text.count(" data race "), _first_race(text), result)


def without_barrier(source, barriers):
    """The kernel's text without its first or its second barrier, or with both."""
    if barriers == "both":
        return source
    head, between, tail = source.split(_BARRIER)
    gone = f"/* {_BARRIER[:-1]} is missing */"
    return head + (gone + between + _BARRIER if barriers == "no first" else
                   _BARRIER + between + gone) + tail  # fmt: skip


def _simulation_file(plan, a, b):
    """The launch as Oclgrind's own description of it: kernel, sizes, arguments."""
    (launch,) = plan.launches
    values = dict(launch.values)
    matrices = {"a": a, "b": b}
    size = 4 * len(a) * len(a)
    lines = ["kernel.cl", launch.entry]
    lines += [" ".join(map(str, (*x, 1))) for x in (launch.global_size, launch.local_size)]
    lines.append("")
    for argument in launch.arguments:
        if argument.name in matrices:
            elements = " ".join(str(x) for row in matrices[argument.name] for x in row)
            lines.append(f"<size={size} float> {elements}")
        elif argument.role == "buffer":
            lines.append(f"<size={size} float fill=0 dump>")
        else:
            lines.append(f"<size=4 int> {values.get(argument.name, 0)}")
    return "\n".join(lines) + "\n"


def _first_race(log):
    """The first race in a log: what it is, who took part and at which lines of the source."""
    races = [x for x in re.split(r"\n(?=\S)", log) if " data race " in x]
    if not races:
        return ()
    lines = [re.sub(r" 0x[0-9a-fA-F]+", "", races[0].strip().split("\n")[0])]
    entities = re.findall(
        r"(?:First|Second) entity:.*?Local(\([\d,]+\))\s+Group\(.*?\n\s*(.*?)\n"
        r"\s*At line \d+.*?:\n\s*(.*?)\n",
        races[0],
    )
    for who, instruction, text in entities:
        does = "writes" if instruction.startswith("store") else "reads"
        lines.append(f"work-item {who} {does}")
        lines.append(f"    {text}")
    return tuple(lines)


# ---- the page -------------------------------------------------------------------------------


def race(lesson):
    """(e) A missing barrier: simulated in Python, and found by Oclgrind if it is installed."""
    whole = runs.rows(serial_product(SQUARE, SQUARE))
    expected = tuple(row[:TILE] for row in whole[:TILE])
    outcomes = tuple(
        Outcome(barriers, schedule, result, result == expected)
        for barriers in BARRIERS
        for schedule in SCHEDULES
        for result in [simulate(SQUARE, SQUARE, barriers, schedule)]
    )
    findings, note = _findings(lesson)
    values = Race(expected, outcomes, findings, note)
    blocks = [
        Prose(
            "The first barrier stands between filling the tiles and reading them; the second "
            "between reading them and filling them again. Without the first, a work-item may "
            "read an element that its neighbour has not copied yet; without the second, a fast "
            "work-item may overwrite an element that a slow one still needs."
        ),
        Prose(
            "Who is fast and who is slow is up to the device. Here are the four work-items of "
            "work-group 0 of part (c), played in Python, in three orders: one by one, each until "
            "it must wait; in step, each in turn doing one access to local memory; and one by "
            "one from the last. The right result is"
        ),
        Drawing(beside(("A B, first tile", matrix_text(expected)))),
        _outcome_table(outcomes),
        Prose(
            "In step, nothing goes wrong: on a device that runs a work-group's items together, a "
            "kernel without its barriers may pass every test, and fail on the next device. A "
            "right result does not prove that a barrier can go."
        ),
        *_finding_blocks(values),
    ]
    return Page("e", "race", "What a missing barrier does", tuple(blocks), values)


def _outcome_table(outcomes):
    def cell(x):
        numbers = " / ".join(" ".join(map(str, row)) for row in x.result)
        return numbers if x.right else f"{numbers} wrong"

    rows = (
        (barriers, *(cell(x) for x in outcomes if x.barriers == barriers))
        for barriers in BARRIERS
    )  # fmt: skip
    return Table(("barriers", *SCHEDULES), tuple(rows))


def _findings(lesson):
    if shutil.which(_SIMULATOR) is None:
        return (), (
            "Oclgrind, a simulator that watches every access to memory, is not installed here; "
            "where it is (package oclgrind), this part shows what it finds in the kernel itself."
        )
    try:
        found = tuple(simulator_report(lesson.device.profile, SQUARE, SQUARE, x) for x in BARRIERS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), f"Oclgrind is installed but could not run the kernel: {error}"
    return found, ""


def _finding_blocks(values):
    if values.note:
        yield Prose(values.note)
        return
    yield Prose(
        "Oclgrind is installed here: a simulator that watches every access to memory. Given the "
        "kernel itself, as it is and with a barrier taken out, it finds"
    )
    rows = []
    for x in values.findings:
        first = " / ".join(" ".join(map(str, row[:TILE])) for row in x.result[:TILE])
        rows.append((x.barriers, str(x.races), first))
    yield Table(("barriers", "races reported", "first tile"), tuple(rows))
    for x in values.findings:
        if x.first:
            yield Prose(f"The first of its reports, barriers: {x.barriers}:")
            yield Code("\n".join(x.first), "text")
