"""Runs of kernels on the device for the walkthrough: plain, counting and tracing builds.

Every number that a page shows comes back from here: results, counters and traces are read from
the device's own buffers.
"""

from dataclasses import dataclass

import numpy as np

from clmatmul.config import TileConfig
from clmatmul.executable import build
from clmatmul.explanation import plain_problem
from clmatmul.plan import Plan, make_plan, render

_ITEM = np.dtype(np.float32)


@dataclass(frozen=True)
class Run:
    """A product that ran. recorded: (name, array) of each instrument buffer, flat."""

    plan: Plan
    result: np.ndarray  # (m, n) float32
    recorded: tuple

    def buffer(self, name):
        return dict(self.recorded)[name]


def tiled(tile_m, tile_n, tile_k):
    """The tiled kernel with these tile sizes."""
    return TileConfig.of("tiled", tile_m=tile_m, tile_n=tile_n, tile_k=tile_k)


def untiled(device, items):
    """The untiled kernel, with as many work-items a group as are useful for `items` elements."""
    size = 64 if items >= 64 and device.profile.max_work_group_size >= 64 else 1
    return TileConfig.of("naive", work_group_size=size)


def run(device, config, a, b, instrument="none"):
    """Multiply float32 matrices a (m, k) and b (k, n) with a configuration.

    instrument: none, count or trace; its buffers start as zeros.
    """
    a, b = (np.ascontiguousarray(x, _ITEM) for x in (a, b))
    (m, k), n = a.shape, b.shape[1]
    plan = make_plan(plain_problem(m, n, k), device.profile, config, instrument)
    executable = build(device, plan)
    queue = device.queue()
    result = np.empty((m, n), _ITEM)
    operands = {
        "a": (device.upload(a), 0),
        "b": (device.upload(b), 0),
        "out": (device.allocate(result.nbytes), 0),
    }
    kind = np.uint32 if instrument == "count" else _ITEM
    recorded = [(name, np.zeros(elements, kind)) for name, elements in plan.instruments]
    for name, zeros in recorded:
        operands[name] = (device.upload(zeros), 0)
    event, keep = executable(queue, operands)
    device.read(queue, operands["out"][0], result, wait_for=[event])
    for name, array in recorded:
        device.read(queue, operands[name][0], array)
    del keep
    return Run(plan, result, tuple(recorded))


def rows(matrix):
    """A matrix as a tuple of rows; whole numbers as int, so that they print as such."""
    return tuple(
        tuple(int(x) if float(x).is_integer() else float(x) for x in row) for row in matrix
    )


def source(plan):
    """The OpenCL C text of a plan with one launch."""
    return render(plan)[0]


def picture(text):
    """The comment that opens a kernel's text: its idea and its drawing."""
    lines = []
    for line in text.strip().split("\n"):
        if not line.startswith("//"):
            break
        lines.append(line[2:].removeprefix(" "))
    return "\n".join(lines)


def kernel_part(text, first, end):
    """The lines of a kernel from the one holding `first` to before the one holding `end`.

    Indentation common to all lines is dropped, and so are blank lines.
    """
    lines = text[text.index("__kernel") :].split("\n")
    start = next(i for i, x in enumerate(lines) if first in x)
    stop = next(i for i, x in enumerate(lines) if end in x)
    chosen = [x for x in lines[start:stop] if x.strip()]
    margin = min(len(x) - len(x.lstrip()) for x in chosen)
    return "\n".join(x[margin:] for x in chosen)
