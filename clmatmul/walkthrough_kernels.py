"""Walkthrough, parts a to c: the product as a loop, as a kernel, and as a kernel with tiles."""

import inspect
from dataclasses import dataclass

import numpy as np

from clmatmul import walkthrough_runs as runs
from clmatmul.errors import VerificationError
from clmatmul.walkthrough_page import Code, Drawing, Page, Prose, Table, beside, matrix_text

SMALL_A = ((1, 4), (2, 5), (3, 6))
SMALL_B = ((7, 8, 9), (10, 11, 12))
SQUARE = ((1, 2, 3, 4), (5, 6, 7, 8), (1, 2, 3, 4), (5, 6, 7, 8))


@dataclass(frozen=True)
class Product:
    """A and B with A @ B, each as a tuple of rows; work_items is 0 for the loop in Python."""

    a: tuple
    b: tuple
    result: tuple
    work_items: int = 0


@dataclass(frozen=True)
class Phase:
    """What one work-group held in one phase: its tiles, its sums after it, what it added."""

    group: int
    phase: int
    tile_a: tuple
    tile_b: tuple
    added: tuple
    sums: tuple


@dataclass(frozen=True)
class TiledProduct:
    """A tiled product with every phase of every work-group, in order."""

    a: tuple
    b: tuple
    result: tuple
    tile: int
    phases: tuple

    def of_group(self, group):
        return tuple(x for x in self.phases if x.group == group)


def serial_product(a, b):
    """The definition: for each element of the result, a sum over the shared dimension."""
    m, n, k = len(a), len(b[0]), len(b)
    result = [[0] * n for _ in range(m)]
    for row in range(m):
        for col in range(n):
            for i in range(k):
                result[row][col] += a[row][i] * b[i][col]
    return result


def equal_to_serial(run, a, b):
    """The rows of a run's result; VerificationError unless they are what the loop gives."""
    found, expected = runs.rows(run.result), runs.rows(serial_product(a, b))
    if found != expected:
        raise VerificationError(f"{run.plan.config} gave {found} instead of {expected}")
    return found


def drawing(a, b, result):
    """Three matrices side by side."""
    return Drawing(
        beside(("A", matrix_text(a)), ("B", matrix_text(b)), ("A B", matrix_text(result)))
    )


def serial(lesson):
    """(a) The triple loop, in Python, on the host."""
    result = runs.rows(serial_product(SMALL_A, SMALL_B))
    m, n, k = len(SMALL_A), len(SMALL_B[0]), len(SMALL_B)
    terms = " + ".join(f"{SMALL_A[0][i]}·{SMALL_B[i][0]}" for i in range(k))
    blocks = (
        Prose(
            f"A has {m} rows and {k} columns, B has {k} rows and {n} columns. The element of A B "
            "in a row and a column is the sum of the products of that row of A and that column "
            "of B, term by term."
        ),
        drawing(SMALL_A, SMALL_B, result),
        Prose(f"The first element is {terms} = {result[0][0]}. As three nested loops:"),
        Code(_loop_source(), "python"),
        Prose(
            f"{m} · {n} · {k} = {m * n * k} multiplications, one after another. Nothing in the two "
            "outer loops depends on their order: every element of the result may be computed at "
            "the same time as every other. That is what a device is for."
        ),
    )
    return Page("a", "serial", "The product, one element after another", blocks,
                Product(SMALL_A, SMALL_B, result))  # fmt: skip


def _loop_source():
    lines = inspect.getsource(serial_product).rstrip().split("\n")
    return "\n".join(x for x in lines if '"""' not in x)


def untiled(lesson):
    """(b) One work-item for each element of the result."""
    run = runs.run(lesson.device, runs.untiled(lesson.device, 9), SMALL_A, SMALL_B)
    result = equal_to_serial(run, SMALL_A, SMALL_B)
    text = runs.source(run.plan)
    items = run.plan.launches[0].global_size[0]
    m, n = len(SMALL_A), len(SMALL_B[0])
    blocks = (
        Prose(
            "The two outer loops are gone. The device starts one work-item for each element of "
            f"the result, {items} of them here, and each runs the loop that is left:"
        ),
        Code(runs.kernel_part(text, "const index_t row", "// epilogue")),
        Drawing(_picture_only(runs.picture(text))),
        Prose(f"On {lesson.device.profile.title} the same matrices give"),
        drawing(SMALL_A, SMALL_B, result),
        Prose(
            f"Work-item 0 computes the element in row 0 and column 0, {result[0][0]}; the last "
            f"one that in row {m - 1} and column {n - 1}, {result[-1][-1]}. The kernel is "
            "kernels/naive.cl.mako; what is shown is the text that was built for this device."
        ),
    )
    return Page("b", "untiled", "A work-item for each element", blocks,
                Product(SMALL_A, SMALL_B, result, items))  # fmt: skip


def _picture_only(comment):
    """The drawing in a kernel's opening comment: its last run of indented lines."""
    lines = comment.split("\n")
    end = max(i for i, x in enumerate(lines) if x.startswith("    ") and x.strip()) + 1
    start = end
    while start and lines[start - 1].startswith("    ") and lines[start - 1].strip():
        start -= 1
    margin = min(len(x) - len(x.lstrip()) for x in lines[start:end])
    return "\n".join(x[margin:] for x in lines[start:end])


def tiled(lesson):
    """(c) Work-groups that share tiles in local memory, traced phase by phase."""
    tile = 2
    values, text = traced(lesson.device, SQUARE, SQUARE, tile)
    first = values.of_group(0)
    added = [x.added[0][0] for x in first]
    extent = len(SQUARE)
    blocks = [
        Prose(
            "Neighbouring work-items read the same rows and columns again and again. So let them "
            "read together. A work-group of "
            f"{tile}×{tile} work-items copies a {tile}×{tile} tile of A and one of B into local "
            "memory, each work-item one element of each; waits until both are complete; adds the "
            "terms that these tiles hold; waits until all have read them; and goes on to the next "
            "pair."
        ),
        Drawing(_picture_only(runs.picture(text))),
        Code(runs.kernel_part(text, "// for each k tile", "// epilogue")),
        Prose(
            f"With {extent}×{extent} matrices there are {extent // tile} phases. The lines below "
            f"are read from {lesson.device.profile.title}, from a build of the same kernel that "
            "also writes down its tiles and sums. Work-group 0 computes rows 0 and 1, columns 0 "
            "and 1:"
        ),
        *(Drawing(_phase_drawing(x)) for x in first),
        Prose(
            f"So the first element is {' + '.join(map(str, added))} = {first[-1].sums[0][0]}. The "
            "first elements of all four work-groups:"
        ),
        _groups_table(values),
        Prose("And the whole result:"),
        drawing(SQUARE, SQUARE, values.result),
    ]
    return Page("c", "tiled", "Tiles in local memory", tuple(blocks), values)


def traced(device, a, b, tile):
    """(TiledProduct, kernel text) of a traced run with square tiles that divide every size."""
    run = runs.run(device, runs.tiled(tile, tile, tile), a, b, "trace")
    result = equal_to_serial(run, a, b)
    groups_by_phases = (-1, len(b) // tile, tile, tile)
    tile_a, tile_b, sums = (
        run.buffer(name).reshape(groups_by_phases)
        for name in ("trace_a", "trace_b", "trace_sum")
    )  # fmt: skip
    before = np.concatenate([np.zeros_like(sums[:, :1]), sums[:, :-1]], axis=1)
    phases = tuple(
        Phase(group, phase + 1, runs.rows(tile_a[group, phase]), runs.rows(tile_b[group, phase]),
              runs.rows(sums[group, phase] - before[group, phase]), runs.rows(sums[group, phase]))
        for group in range(sums.shape[0])
        for phase in range(sums.shape[1])
    )  # fmt: skip
    ordinary = runs.run(device, runs.tiled(tile, tile, tile), a, b)
    return TiledProduct(runs.rows(a), runs.rows(b), result, tile, phases), runs.source(
        ordinary.plan
    )


def _phase_drawing(phase):
    return beside(
        (f"phase {phase.phase}", []),
        ("tile of A", matrix_text(phase.tile_a)),
        ("tile of B", matrix_text(phase.tile_b)),
        ("adds", matrix_text(phase.added)),
        ("sums", matrix_text(phase.sums)),
    )


def _groups_table(values):
    groups = sorted({x.group for x in values.phases})
    tiles_n = len(values.b[0]) // values.tile
    table = []
    for group in groups:
        phases = values.of_group(group)
        row, col = group // tiles_n * values.tile, group % tiles_n * values.tile
        added = [str(x.added[0][0]) for x in phases]
        table.append((str(group), f"row {row}, column {col}", *added, str(phases[-1].sums[0][0])))
    phase_names = [f"phase {x.phase} adds" for x in values.of_group(0)]
    return Table(("work-group", "first element", *phase_names, "sum"), tuple(table))
