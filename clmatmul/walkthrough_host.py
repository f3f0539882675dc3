"""Walkthrough, parts g to i: copies between host and device, scaling, and the dimension rule."""

from dataclasses import dataclass

import numpy as np

from clmatmul import device as devices
from clmatmul import walkthrough_runs as runs
from clmatmul.api import gemm, matmul, scale
from clmatmul.errors import ShapeError, VerificationError
from clmatmul.executable import build
from clmatmul.explanation import plain_problem
from clmatmul.plan import make_plan
from clmatmul.walkthrough_kernels import SMALL_A, SMALL_B, drawing, serial_product
from clmatmul.walkthrough_page import Code, Drawing, Page, Prose, Table, beside, matrix_text

_EXTENT, _SIMULATED_EXTENT = 256, 16


@dataclass(frozen=True)
class Scenario:
    """One way to run the same work, with the copies that it made."""

    name: str
    uploads: int
    downloads: int
    bytes_up: int
    bytes_down: int

    @property
    def bytes(self):
        return self.bytes_up + self.bytes_down


@dataclass(frozen=True)
class Copies:
    """Part g: one product, then two in a row; matrix_bytes is the size of each matrix."""

    extent: int
    matrix_bytes: int
    one: tuple
    two: tuple


@dataclass(frozen=True)
class Scaled:
    """Part h."""

    factor: float
    a: tuple
    result: tuple


@dataclass(frozen=True)
class Rule:
    """Part i: the shapes that have no product, the error, and a product that there is."""

    shapes: tuple
    error: str
    result: tuple


class Traffic:
    """A device's buffers, with every copy between host and device counted."""

    def __init__(self, device):
        self.device = device
        self.up = []
        self.down = []

    def upload(self, array):
        self.up.append(array.nbytes)
        return self.device.upload(array)

    def download(self, buffer, array):
        self.down.append(array.nbytes)
        self.device.read(self.device.queue(), buffer, array)

    def scenario(self, name):
        return Scenario(name, len(self.up), len(self.down), sum(self.up), sum(self.down))


class _Products:
    """Products of square float32 matrices that lie in buffers, by one built kernel."""

    def __init__(self, device, extent):
        self.device = device
        problem = plain_problem(extent, extent, extent)
        self.executable = build(device, make_plan(problem, device.profile, runs.tiled(8, 8, 8)))

    def __call__(self, a, b, out):
        """out = a @ b, finished on return."""
        event, keep = self.executable(
            self.device.queue(), {"a": (a, 0), "b": (b, 0), "out": (out, 0)}
        )
        devices.wait([event])
        del keep


def copies(lesson):
    """(g) Copies that const inputs, discarded outputs and late synchronisation save."""
    device = lesson.device
    extent = _SIMULATED_EXTENT if lesson.is_simulated else _EXTENT
    rng = np.random.default_rng(1)
    a, b, c = (
        rng.integers(-4, 5, (extent, extent)).astype(np.float32) for _ in "abc"
    )  # fmt: skip
    product = _Products(device, extent)
    one, two = [], []
    for name, const, discard in (
        ("everything goes both ways", False, False),
        ("A and B are const", True, False),
        ("... and the output is discarded", True, True),
    ):
        one.append(_one_product(device, product, a, b, name, const, discard))
    if device.has_host_memory:
        one.append(_without_copies(device, product, a, b))
    for name, late in (("synchronize after each product", False), ("synchronize once", True)):
        two.append(_two_products(device, product, a, b, c, name, late))
    values = Copies(extent, a.nbytes, tuple(one), tuple(two))
    blocks = [
        Prose(
            "A device with its own memory needs its operands copied there, and the result copied "
            "back. Which copies are needed, only the program knows. An input that is const never "
            "needs to come back. An output whose old content is discarded never needs to go "
            "there. And a result needs to come back only when the host is to see it: when it is "
            "synchronized."
        ),
        Prose(
            f"A product of {extent}×{extent} matrices of float32, each {a.nbytes:,} bytes, run "
            "on this device with every copied byte counted:"
        ),
        _scenario_table(values.one),
        Prose("Two products in a row, (A B) C, inputs const and outputs discarded:"),
        _scenario_table(values.two),
        Prose(_copies_lesson(device)),
    ]
    return Page("g", "copies", "Copies between host and device", tuple(blocks), values)


def _copies_lesson(device):
    if device.has_host_memory:
        return (
            "This device shares the host's memory, so clmatmul.matmul lets it work on NumPy arrays "
            "where they lie, and copies nothing. On a device with its own memory it uploads the "
            "operands and downloads the result; keep intermediate results there by using "
            "pyopencl arrays."
        )
    return (
        "clmatmul.matmul uploads the operands of NumPy arrays and downloads the result, no more; "
        "keep intermediate results on the device by using pyopencl arrays."
    )


def _one_product(device, product, a, b, name, const, discard):
    traffic = Traffic(device)
    out = np.zeros_like(a)
    buffers = [traffic.upload(a), traffic.upload(b)]
    target = device.allocate(out.nbytes) if discard else traffic.upload(out)
    product(*buffers, target)
    traffic.download(target, out)
    if not const:
        for buffer, array in zip(buffers, (a, b), strict=True):
            traffic.download(buffer, np.empty_like(array))
    _require_equal(out, a @ b)
    return traffic.scenario(name)


def _without_copies(device, product, a, b):
    out = np.zeros_like(a)
    arrays = (a, b, out)
    wrapped = [
        device.wrap(x.__array_interface__["data"][0], x.nbytes, writable=x is out) for x in arrays
    ]
    product(*wrapped)
    device.synchronize_host(device.queue(), wrapped[2], out.nbytes)
    _require_equal(out, a @ b)
    return Traffic(device).scenario("... where the arrays lie, no copy")


def _two_products(device, product, a, b, c, name, late):
    traffic = Traffic(device)
    host = np.empty_like(a)
    first, result = device.allocate(a.nbytes), device.allocate(a.nbytes)
    product(traffic.upload(a), traffic.upload(b), first)
    if not late:
        traffic.download(first, host)
        first = traffic.upload(host)
    product(first, traffic.upload(c), result)
    traffic.download(result, host)
    _require_equal(host, a @ b @ c)
    return traffic.scenario(name)


def _require_equal(found, expected):
    if not np.array_equal(found, expected):
        raise VerificationError("a product of whole numbers is not exact; run clmatmul selfcheck")


def _scenario_table(scenarios):
    rows = tuple(
        (x.name, str(x.uploads), f"{x.bytes_up:,}", str(x.downloads), f"{x.bytes_down:,}",
         f"{x.bytes:,}")
        for x in scenarios
    )  # fmt: skip
    return Table(("copies", "up", "bytes", "down", "bytes", "in all"), rows)


def scaling(lesson):
    """(h) A number times a matrix."""
    factor = 2
    a = np.array(SMALL_A, np.float32)
    result = runs.rows(scale(factor, a, device=lesson.device))
    if result != runs.rows(factor * a):
        raise VerificationError(f"{factor} times {SMALL_A} gave {result}")
    blocks = (
        Prose(
            "A number times a matrix multiplies each element. On its own it reads and writes the "
            "whole matrix for a single multiplication each:"
        ),
        Code("clmatmul.scale(2, a)", "python"),
        Drawing(beside(("A", matrix_text(SMALL_A)), (f"{factor} A", matrix_text(result)))),
        Prose(
            "As a factor of a product it costs nothing: the kernel multiplies each sum once, just "
            "before it is stored (clmatmul.gemm, alpha)."
        ),
    )
    return Page("h", "scale", "A number times a matrix", blocks, Scaled(factor, SMALL_A, result))


def rule(lesson):
    """(i) The dimension rule, the error, and a product that the rule allows."""
    a = np.array(SMALL_A, np.float32)
    try:
        matmul(a, a, device=lesson.device)
    except ShapeError as refusal:
        error = str(refusal)
    else:
        raise VerificationError(f"a product of {a.shape} and {a.shape} was not refused")
    result = runs.rows(gemm(a, a, transpose_b=True, device=lesson.device))
    expected = runs.rows(serial_product(SMALL_A, tuple(zip(*SMALL_A, strict=True))))
    if result != expected:
        raise VerificationError(f"A times A transposed gave {result} instead of {expected}")
    (m, k), n = a.shape, len(SMALL_B[0])
    blocks = (
        Prose(
            "A product needs as many columns on the left as rows on the right: these are the "
            "terms of each sum. The other two dimensions are those of the result."
        ),
        Drawing(f"(m × k) (k × n) = (m × n)        here ({m} × {k}) ({k} × {n}) = ({m} × {n})"),
        Prose(
            f"A times A would be ({m} × {k}) ({m} × {k}), so it is refused before anything runs:"
        ),
        Code("clmatmul.matmul(a, a)", "python"),
        Prose(f"ShapeError: {error}"),
        Prose("A times its own transpose is allowed, and needs no copy of A:"),
        Code("clmatmul.gemm(a, a, transpose_b=True)", "python"),
        drawing(SMALL_A, tuple(zip(*SMALL_A, strict=True)), result),
    )
    return Page("i", "rule", "The dimension rule", blocks, Rule((a.shape, a.shape), error, result))
