"""Walkthrough, part d: how often each element is read, predicted and counted on the device."""

import time
from dataclasses import dataclass

import numpy as np

from clmatmul import walkthrough_runs as runs
from clmatmul.errors import ArgumentError, VerificationError
from clmatmul.walkthrough_page import Page, Prose, Table

_MOST_TERMS = 2**30  # counters are 32 bits wide, and a padded read counts into a shared one
_PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Count:
    """Reads of the elements of one matrix from one memory, by one kernel.

    predicted: reads of each element. fewest, most: the least and the most often read element,
    as counted. outside_predicted, outside: reads in all where the matrix has no element.
    """

    kernel: str
    matrix: str
    memory: str
    predicted: int
    fewest: int
    most: int
    outside_predicted: int
    outside: int

    @property
    def agrees(self):
        return self.predicted == self.fewest == self.most and (
            self.outside == self.outside_predicted
        )


@dataclass(frozen=True)
class CountedProduct:
    """The counts of an untiled and of a tiled product of one size; seconds of the runs."""

    m: int
    n: int
    k: int
    tile_m: int
    tile_n: int
    tile_k: int
    counts: tuple
    seconds: float

    def count(self, kernel, matrix, memory="global"):
        """The one Count of that kernel, matrix and memory."""
        wanted = (kernel, matrix, memory)
        return next(x for x in self.counts if (x.kernel, x.matrix, x.memory) == wanted)

    @property
    def agrees(self):
        return all(x.agrees for x in self.counts)


@dataclass(frozen=True)
class Counts:
    """Part d: the small example, the user's size, the large one whole or in two slices."""

    small: CountedProduct
    chosen: CountedProduct
    large: tuple
    large_is_whole: bool


def predict(m, n, k, tile_m, tile_n, tile_k):
    """(kernel, matrix, memory, reads of each element, reads outside) of both kernels.

    Untiled: n reads of each element of A, m of each of B. Tiled: the columns of tiles for A, the
    rows of tiles for B; from local memory as often again as a tile has columns (rows).
    """
    rows, cols, phases = -(-m // tile_m), -(-n // tile_n), -(-k // tile_k)
    all_m, all_n, all_k = rows * tile_m, cols * tile_n, phases * tile_k
    return (
        ("untiled", "A", "global", n, 0),
        ("untiled", "B", "global", m, 0),
        ("tiled", "A", "global", cols, (all_m * all_k - m * k) * cols),
        ("tiled", "B", "global", rows, (all_k * all_n - k * n) * rows),
        ("tiled", "A", "local", all_n, (all_m * all_k - m * k) * all_n),
        ("tiled", "B", "local", all_m, (all_k * all_n - k * n) * all_m),
    )


def count_reads(device, m, n, k, tile_m, tile_n, tile_k):
    """The CountedProduct of a size: both kernels' counting builds, run on the device.

    ConfigError if a tile size is not allowed here, ArgumentError if the size is too large.
    """
    if m * n * k > _MOST_TERMS:
        raise ArgumentError(
            f"counting every read of a {m}×{n}×{k} product needs {m * n * k} terms; at most "
            f"{_MOST_TERMS} are allowed (1024×1024×1024)"
        )
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
    begin = time.perf_counter()
    recorded = {
        "untiled": runs.run(device, runs.untiled(device, m * n), a, b, "count"),
        "tiled": runs.run(device, runs.tiled(tile_m, tile_n, tile_k), a, b, "count"),
    }
    seconds = time.perf_counter() - begin
    counts = []
    for kernel, matrix, memory, each, outside in predict(m, n, k, tile_m, tile_n, tile_k):
        infix = "local_" if memory == "local" else ""
        counters = recorded[kernel].buffer(f"{matrix.lower()}_{infix}loads")
        apart = recorded[kernel].buffer(f"padded_{infix}loads")["AB".index(matrix)]
        counts.append(
            Count(kernel, matrix, memory, each, int(counters.min()), int(counters.max()),
                  outside, int(apart))
        )  # fmt: skip
    return CountedProduct(m, n, k, tile_m, tile_n, tile_k, tuple(counts), seconds)


def reads(lesson):
    """(d) Reads of each element: predicted, and counted on the device."""
    device = lesson.device
    small = count_reads(device, 4, 4, 4, 2, 2, 2)
    chosen = count_reads(device, lesson.m, lesson.n, lesson.k,
                         lesson.tile_m, lesson.tile_n, lesson.tile_k)  # fmt: skip
    large, whole = _large(lesson)
    values = Counts(small, chosen, large, whole)
    checked = _checked((small, chosen, *large))
    a_untiled, a_global, a_local = (
        small.count("untiled", "A").most, small.count("tiled", "A").most,
        small.count("tiled", "A", "local").most,
    )  # fmt: skip
    blocks = [
        Prose(
            "Global memory is far from the arithmetic, local memory is near. So count the reads. "
            "In the untiled kernel each of the n work-items of a row reads all of that row of A: "
            "each element of A is read n times, and likewise each of B m times. In the tiled "
            "kernel a work-group reads an element of A once from global memory, and there are "
            "ceil(n / tile_n) work-groups that need it; each element of B is read "
            "ceil(m / tile_m) times. From local memory the tile_n work-items of a row of the "
            "work-group then read its copy."
        ),
        Prose(
            "The counts come from builds of the same kernels with an atomic counter for each "
            "element and memory. Reads that fall outside the matrix, because a tile overhangs, "
            "are counted apart; their addresses are clamped and their values are set to zero."
        ),
        Prose(f"{_size(small)}, as in part (c):"),
        _table(small),
        Prose(
            f"Each element of A is read {a_untiled} times by the untiled kernel; by the tiled one "
            f"{a_global} times from global memory and {a_local} times from local memory."
        ),
        Prose(f"{_size(chosen)} (choose with --m --n --k --tile-m --tile-n --tile-k):"),
        _table(chosen),
        *_large_blocks(values),
        Prose(f"All {checked} counts are as predicted, for every single element."),
    ]  # fmt: skip
    return Page("d", "reads", "How often each element is read", tuple(blocks), values)


def _large(lesson):
    """1024×1024×1024, whole unless that would take minutes here, else two slices of it."""
    device = lesson.device
    count_reads(device, 16, 16, 16, 16, 16, 16)  # first launches compile
    slices = (
        count_reads(device, 16, 1024, 16, 16, 16, 16),
        count_reads(device, 1024, 16, 16, 16, 16, 16),
    )
    expected = slices[0].seconds * (1024 / 16) ** 2
    if lesson.quick or expected > _PATIENCE_SECONDS:
        return slices, False
    lesson.tell(f"counting every read of a 1024×1024×1024 product, up to {expected:.0f} s …")
    return (count_reads(device, 1024, 1024, 1024, 16, 16, 16),), True


def _large_blocks(values):
    if values.large_is_whole:
        (whole,) = values.large
        before, after = whole.count("untiled", "A").most, whole.count("tiled", "A").most
        yield Prose(f"{_size(whole)}, the size of the lesson:")
        yield _table(whole)
        yield Prose(
            f"{after} reads from global memory instead of {before}: {before // after} times fewer."
        )
        return
    across, down = values.large
    yield Prose(
        "1024×1024×1024 with 16×16×16 tiles, in two slices, to save time. How often an "
        "element of A is read depends on n alone, so 16 rows and 16 terms will do with n=1024; "
        "and for B 16 columns with m=1024:"
    )
    yield _table(across, "A")
    yield _table(down, "B")
    before, after = across.count("untiled", "A").most, across.count("tiled", "A").most
    yield Prose(
        f"{after} reads from global memory instead of {before}: {before // after} times fewer."
    )


def _size(x):
    return f"{x.m}×{x.n}×{x.k} (m×n×k) with tiles of {x.tile_m}×{x.tile_n}×{x.tile_k}"


def _table(counted, matrices="AB"):
    table = []
    for x in counted.counts:
        if x.matrix in matrices:
            span = str(x.most) if x.fewest == x.most else f"{x.fewest} to {x.most}"
            table.append((x.kernel, x.matrix, x.memory, str(x.predicted), span,
                          str(x.outside_predicted), str(x.outside)))  # fmt: skip
    return Table(
        ("kernel", "of", "memory", "predicted", "counted", "predicted outside", "counted outside"),
        tuple(table),
    )


def _checked(products):
    """How many counts there are; VerificationError unless each is as predicted."""
    wrong = [x for p in products for x in p.counts if not x.agrees]
    if wrong:
        raise VerificationError(
            f"{len(wrong)} counts are not as predicted: " + "; ".join(map(str, wrong))
        )
    return sum(len(p.counts) for p in products)
