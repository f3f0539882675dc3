"""What bench times: suites of products, each a list of entries. No device, no clock."""

from dataclasses import dataclass
from importlib.util import find_spec

from clmatmul.element_types import ELEMENT_TYPES
from clmatmul.errors import ArgumentError

_REALS = ("float32", "float64")
_LAYOUTS = ("NN", "NT", "TN", "TT")


@dataclass(frozen=True)
class Entry:
    """One product to time: batch × (m, k) @ (k, n).

    layout: N (row-major) or T (column-major) for A and B. out_order: 'C', or 'F' for an output
    stored by columns. accumulate: as for `matmul`. against: a dtype whose own speed here is the
    baseline, in place of another library (which has no kernel worth the name for this type).
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    layout: str = "NN"
    batch: tuple = ()
    out_order: str = "C"
    accumulate: str | None = None
    against: str | None = None
    suite: str = "sizes"

    @property
    def name(self):
        """One line that names the product, the same from run to run."""
        batch = "".join(f"{x}×" for x in self.batch)
        wider = f"→{self.accumulate}" if self.accumulate else ""
        order = " out F" if self.out_order == "F" else ""
        return f"{batch}{self.m}×{self.n}×{self.k} {self.dtype}{wider} {self.layout}{order}"

    def to_dict(self):
        """The values as JSON can hold them."""
        return {"case": self.name, **vars(self), "batch": list(self.batch)}


def _square():
    sizes = (96, 128, 192, 256, 512, 1000, 1024, 2048)
    return [Entry(n, n, n, dtype) for dtype in _REALS for n in sizes]


def _ragged():
    sizes = (
        (250, 250, 250), (500, 500, 500), (777, 777, 777), (1001, 1001, 1001),
        (1000, 300, 200), (301, 1000, 203), (513, 511, 1025), (1999, 127, 513),
    )  # fmt: skip
    return [Entry(*size, dtype) for dtype in _REALS for size in sizes]


def _skinny():
    vectors = ((4096, 1, 4096), (1, 4096, 4096))
    sizes = (
        *vectors, (4096, 16, 4096), (16, 4096, 4096), (64, 64, 16384), (2000, 2000, 64),
        (2000, 64, 64), (64, 2000, 64),
    )  # fmt: skip
    transposed = [Entry(4096, 1, 4096, layout="TN"), Entry(1, 4096, 4096, layout="NT")]
    return [Entry(*x) for x in sizes] + transposed + [Entry(*x, "float64") for x in vectors]


def _small():
    return [Entry(n, n, n) for n in (8, 16, 24, 32, 48, 64, 80, 100, 112, 128)]


def _batched():
    products = (
        (65_536, (4, 4, 4)), (10_000, (8, 8, 8)), (4000, (16, 16, 16)), (1000, (32, 32, 32)),
        (256, (64, 64, 64)), (64, (128, 128, 128)), (12, (512, 64, 512)), (12, (512, 512, 64)),
        (4, (512, 512, 512)),
    )  # fmt: skip
    entries = [Entry(*size, batch=(count,)) for count, size in products]
    return [*entries, Entry(32, 32, 32, "float64", batch=(1000,))]


def _layouts():
    entries = [Entry(1024, 1024, 1024, dtype, layout) for dtype in _REALS for layout in _LAYOUTS]
    return entries + [Entry(1024, 1024, 1024, dtype, out_order="F") for dtype in _REALS]


def _types():
    size = (1024, 1024, 1024)
    own = dict(against="float32")
    return [
        Entry(*size, "complex64"),
        Entry(*size, "complex128"),
        Entry(*size, "float16", **own),
        Entry(*size, "bfloat16", **own),
        Entry(*size, "int8", accumulate="int32", **own),
        Entry(*size, "int32", **own),
        Entry(*size, "int64", **own),
        Entry(*size, "bool", **own),
    ]


# name → what it holds, its entries
SUITES = {
    "square": (
        "96³, 128³, 192³, 256³, 512³, 1000³, 1024³, 2048³ in float32 and float64",
        _square,
    ),
    "ragged": (
        "250³, 500³, 777³, 1001³, 1000×300×200, 301×1000×203, 513×511×1025, 1999×127×513 in "
        "float32 and float64",
        _ragged,
    ),
    "skinny": (
        "4096×1×4096 and 1×4096×4096 in both layouts and in float64; 4096×16×4096, 16×4096×4096, "
        "64×64×16384, 2000×2000×64, 2000×64×64, 64×2000×64",
        _skinny,
    ),
    "small": ("8³, 16³, 24³, 32³, 48³, 64³, 80³, 100³, 112³, 128³", _small),
    "batched": (
        "65,536 × 4³, 10,000 × 8³, 4000 × 16³, 1000 × 32³ (also in float64), 256 × 64³, 64 × 128³, "
        "12 × 512×64×512, 12 × 512×512×64, 4 × 512³",
        _batched,
    ),
    "layouts": (
        "1024³ with each operand by rows or by columns, and with an output by columns, in float32 "
        "and float64",
        _layouts,
    ),
    "types": (
        "1024³ in complex64 and complex128; in float16, bfloat16, int8 → int32, int32, int64 and "
        "bool against our own float32",
        _types,
    ),
}


def entries_of(names):
    """The entries of suites, in order, each with its suite's name; 'all' means every suite.

    ArgumentError for a name that is none.
    """
    names = list(SUITES) if "all" in names else list(dict.fromkeys(names))
    unknown = [x for x in names if x not in SUITES]
    if unknown or not names:
        raise ArgumentError(
            f"suite {unknown[0] if unknown else ''!r} is unknown; there are {', '.join(SUITES)} "
            "and all"
        )
    return [in_suite(name, entry) for name in names for entry in SUITES[name][1]()]


def in_suite(name, entry):
    """The entry under a suite's name."""
    return Entry(**{**vars(entry), "suite": name})


def left_out(entry, profile):
    """Why a product cannot be timed on a device or in this installation; None if it can."""
    if ELEMENT_TYPES[entry.dtype].needs_fp64 and not profile.fp64:
        return f"{profile.title} has no float64"
    if entry.dtype == "bfloat16" and find_spec("ml_dtypes") is None:
        return "bfloat16 needs the package ml_dtypes"
    return None
