"""A large product of host arrays in blocks of rows: one is computed while others travel.

On a device with memory of its own, a product waits for its operands and its result for the
product. So B goes first; then block after block of A's rows, each computed as soon as it is
there; and each block of the result comes back while the next ones are computed. The blocks are
problems of their own with the plan's configuration and the same programs.
"""

from dataclasses import replace

from clmatmul import device as devices
from clmatmul import staging
from clmatmul.element_types import ELEMENT_TYPES
from clmatmul.walk import find_route

_BLOCKS = 4
_LEAST_BYTES = 32 << 20  # of A and of the result; below, there is little time to win
_ROWS = 256  # a block is so many rows or a multiple, so that no tile is cut


def blocks_of(problem):
    """(first row, rows) of each block; one block where it is not worth it or not possible."""
    whole = [(0, problem.m)]
    size = {x: ELEMENT_TYPES[getattr(problem, x).dtype].itemsize for x in ("a", "out")}
    a, out = problem.a, problem.out
    large = min(problem.m * problem.k * size["a"], problem.m * problem.n * size["out"])
    fused = problem.epilogue
    plain = not problem.batch and problem.c is None and not list(fused.operands())
    plain = plain and fused.expression is None  # which may say `row`
    plain = plain and problem.epilogue.expression is None  # which may say `row`
    # Rows must lie one after another, in both.
    apart = a.order == "row" and a.row_stride >= problem.k
    dense = out.order == "row" and out.row_stride == problem.n
    if large < _LEAST_BYTES or not (plain and apart and dense):
        return whole
    rows = -(-problem.m // (_BLOCKS * _ROWS)) * _ROWS
    return [(i, min(rows, problem.m - i)) for i in range(0, problem.m, rows)]


def multiply_in_blocks(device, queue, route, problem, operands, scalars, wait_for, sources, target):
    """Multiply block by block; the result is in `target` when it returns.

    operands: name → (buffer, offset in elements) by the plan's names. sources: by the same names,
    the bytes of 'a' and 'b' that are still to be sent. target: the result's bytes.
    """
    travel = device.transfer_queue()
    if "b" in sources:
        staging.copy_to(device, travel, operands["b"][0], sources["b"])
    a, out = problem.a, problem.out
    a_size, out_size = ELEMENT_TYPES[a.dtype].itemsize, ELEMENT_TYPES[out.dtype].itemsize
    running = []
    for first, rows in blocks_of(problem):
        a_offset = operands["a"][1] + first * a.row_stride
        out_offset = operands["out"][1] + first * out.row_stride
        if "a" in sources:
            low = a_offset * a_size if first else 0
            last = first + rows == problem.m
            high = len(sources["a"]) if last else (a_offset + rows * a.row_stride) * a_size
            staging.copy_to(device, travel, operands["a"][0], sources["a"][low:high], low)
        part = replace(problem, m=rows)
        executable = find_route(device, part, route.choice.config).executable
        places = {**operands, "a": (operands["a"][0], a_offset),
                  "out": (operands["out"][0], out_offset)}  # fmt: skip
        event, keep = executable(queue, places, scalars, wait_for)
        devices.flush(queue)
        running.append((out_offset * out_size, rows * out.row_stride * out_size, event, keep))
    for low, size, event, _keep in running:
        devices.wait([event])
        staging.copy_from(device, travel, operands["out"][0], target[low : low + size], low)
    return running[-1][2]
