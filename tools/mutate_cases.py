"""What mutants of a kernel are tried by: kinds of problems, configurations, sizes and data."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from kinds import aligned, cut_lengths, plain_kind, test_configs, whole_configs
from mutate_places import places_of
from native_device import WAYS

from clmatmul import templates
from clmatmul.cases import make_case
from clmatmul.element_types import ELEMENT_TYPES
from clmatmul.errors import ConfigError
from clmatmul.plan import make_plan, render_launch
from clmatmul.trial import check_sizes
from clmatmul.variants import load_variant

EMULATED = Path(__file__).resolve().parent.parent / "tests" / "emulated_ptx.mako"
MOST_TERMS_SIMULATED = 20_000  # of one matrix of a batch
ROUNDS = ("nv_mma",)  # float32 to TF32's 11 bits, to the nearest
LIVES_ON = ("nv_wgmma",)  # a work-group, from tile to tile, with consumers that take turns
LESS = 1 - 2**-13  # what whole numbers of 11 bits are times this is rounded to them
_SEED = 20260103


@dataclass(frozen=True)
class Target:
    """One kind of problem in one configuration of a variant: what its programs are tested by."""

    kind: object
    config: object
    profile: object
    made: dict = field(default_factory=dict, compare=False, repr=False)

    def cases(self, simulated=False):
        """(size, data) in the order in which they are likely to find something.

        simulated: only those that show another access, and only small ones.
        """
        if simulated:
            for m, n, k in self.sizes():
                if m * n * k < MOST_TERMS_SIMULATED:
                    yield (m, n, k), "exact"
            return
        floating = "float" in self.kind.compute or "complex" in self.kind.compute
        plain = self.kind.activation == "none" and self.kind.alpha != "zero"
        first, *others = sizes = self.sizes()
        for data in ("exact", "ids_a", "ids_b"):
            yield first, data
        for size in others:
            yield size, "exact"
        for size in sizes[1:3]:
            yield size, "ids_a"
            yield size, "ids_b"
        if self.kind.c == self.kind.out.dtype:
            yield from ((size, "in place") for size in sizes)
        if self.kind.batch_rank:
            yield first, "one a"
            yield first, "one b"
            yield sizes[-1], "odd batch"
        if floating and plain and not self.kind.aux:
            yield from ((size, "special") for size in sizes[:6])
        if floating and self.kind.precision == "highest":  # others have bounds of their own
            yield first, "random"
        if self.kind.precision != "highest" and self.config.variant in ROUNDS:
            yield first, "less a"
            yield first, "less b"
        if self.config.variant in LIVES_ON:  # long tiles and parts, in every order that there is
            m, n, k = sizes[4]
            size = m, n, k * min(self.config.values()["splits"], 2)
            yield from ((size, "exact") for _ in range(WAYS))

    def sizes(self):
        """The first-use check's sizes, others, and k so long that each part has several blocks."""
        found = check_sizes(self.config)
        m, n, k = found[0]
        values = self.config.values()
        parts, stage = values.get("splits", 1), k // 2 // values.get("stages", 1)
        band = values.get("group_rows", 1)  # rows of tiles that are walked together
        return (
            *found, (2 * m + 3, 2 * n + 5, k + 2), (m, n, 1), (m - 1, n + 1, k - 1),
            (1, n, k), (m, n, k - 1), (m, 1, k), (1, 1, k), (m + 1, n + 3, min(parts, 4) * k + 3),
            (max(m - 2, 1), n + 1, 2), (max(m - 2, 1), max(n - 1, 1), 3),
            (2, 3, k + 2), (2, 5 * n, 3), (2, n, found[2][2]),
            (m // 2, (n + 1) // 2, stage + 1), (2 * (m - 1), 2 * (n + 1), k - 1),
            *((max(m - 2, 1), n + 1, x) for x in cut_lengths(parts)),
            *(((band + 1) * (m - 1) + 1, 2 * n, k // 2),) * (band > 1),
            (3, 5, stage + stage // 4), (m - 1, n, max(stage - 1, 1)),
            *((*found[2][:2], x) for x in (3, 4, 5)),  # small numbers in a whole tile
            (m - 1, max(found[2][1] - 63, 1), k),  # one column in a tile's last 64
            *((m + 1, n, x) for x in self.many_phases()),
        )  # fmt: skip

    def many_phases(self):
        """Terms of three phases more than one has terms, where consumers take turns."""
        values = self.config.values()
        if self.config.variant not in LIVES_ON or values["stages"] != 3:
            return ()
        terms = values["bytes_k"] // ELEMENT_TYPES[self.kind.a.dtype].itemsize
        return ((terms + 2) * terms + 6,)

    def case(self, size, data):
        """The same Case every time: making one takes longer than running it."""
        if (size, data) not in self.made:
            self.made[size, data] = self.new_case(size, data)
        return self.made[size, data]

    def new_case(self, size, data):
        rng = np.random.default_rng((_SEED, *size))
        ways = {"in place": {"in_place": True}, "one a": {"repeated": ("a",)},
                "one b": {"repeated": ("b",)},
                "odd batch": {"batch": (1,) * (self.kind.batch_rank - 1) + (3,)}}  # fmt: skip
        if data in ways:
            return make_case(self.kind, *size, "exact", rng, **ways[data])
        if data in ("less a", "less b"):
            name = data[-1]
            case = make_case(self.kind, *size, f"ids_{name}", rng)
            case.memory[name].view[...] *= LESS
            return case
        return make_case(self.kind, *size, data, rng)

    def problem(self, size):
        rng = np.random.default_rng(_SEED)
        return make_case(self.kind, *size, "exact", rng, with_result=False).problem

    def serves(self, size):
        variant = load_variant(self.config.variant)
        return not variant.reject(self.config, self.problem(size), self.profile)

    def programs(self):
        """text → (entry point, the place of each line) of each program that the cases run."""
        found = {}
        for size in self.sizes():
            with suppress(ConfigError):
                plan = make_plan(self.problem(size), self.profile, self.config)
                for launch in plan.launches:
                    text = render_launch(plan, launch)
                    if text not in found:
                        found[text] = launch.entry, places_of(plan, launch)
        return found


def kinds_of(variant):
    """Kinds whose programs together show every line of a variant, those with most in it first."""
    layout = variant.header.get("TEST_LAYOUT", "NN")
    dtype = variant.header.get("TEST_DTYPE", "float32")
    out = plain_kind(dtype).out.dtype
    fused = dict(alpha="general", beta="general", bias="float32", row_scale="float32",
                 col_scale="float32", residual="float32")  # fmt: skip
    yield plain_kind(dtype, layout, batch_rank=2, c=out, **fused)
    yield plain_kind(dtype, layout)
    yield plain_kind(dtype, layout, "T", c=out, **fused)
    yield plain_kind(dtype, layout, batch_rank=1)
    yield plain_kind(dtype, "TT", "T", batch_rank=1)
    yield plain_kind(dtype, "SS", "S")
    conjugates = plain_kind("complex64", layout, "S", alpha="general")
    yield replace(conjugates, a=replace(conjugates.a, conjugate=True))
    narrow = plain_kind("float16", layout, alpha="general", bias="float32")
    yield replace(narrow, out=replace(narrow.out, dtype="bfloat16"))
    yield plain_kind(dtype, layout, activation="relu", aux="float16", residual="float32")
    yield plain_kind("bool", layout.replace("N", "S", 1))
    yield plain_kind("int8", "TN", alpha="zero", beta="general", c="int8")
    if "int8" in str(variant.header["REQUIRES"]):  # another instruction for each element type
        yield plain_kind("int8", "NT", batch_rank=1)
        yield plain_kind("float32", "NT", precision="medium")
    most = max(alignment_of(variant), *variant.header.get("ALIGNMENT_CLASSES", (1,)), 1)
    if most > 1:
        yield aligned(plain_kind(dtype, layout), most)
        yield aligned(plain_kind(dtype, "NT", batch_rank=1, c=out, **fused), most)
        yield aligned(plain_kind(dtype, "TT", "T"), most)
    if dtype in ("float16", "bfloat16"):  # activations of results of 16 bits are others
        yield aligned(plain_kind(dtype, layout, activation="gelu", bias="float32"), most)
        more = dict(activation="tanh", residual="float32", beta="one", c=dtype)
        yield aligned(plain_kind(dtype, layout, **more), most)


def alignment_of(variant):
    return variant.header.get("TEST_ALIGNMENT", 1)


def targets(name, profile):
    """Every Target of a variant on a device; operands are aligned where it serves no others."""
    variant = load_variant(name)
    plain = plain_kind(variant.header.get("TEST_DTYPE", "float32"),
                       variant.header.get("TEST_LAYOUT", "NN"))  # fmt: skip
    for kind in dict.fromkeys(kinds_of(variant)):
        if variant.unmet(kind, profile):
            kind = aligned(kind, alignment_of(variant))
        if variant.unmet(kind, profile) or (kind.needs_fp64 and not profile.fp64):
            continue
        every = aligned(kind, 1) in (plain, replace(plain, batch_rank=1)) or kind.batch_rank == 2
        listed = test_configs(name)
        if "along" in variant.header["PARAMETERS"]:
            listed += [x.with_values(along=1) for x in listed]
        some = (listed[0], *whole_configs(name))
        for config in map(variant.complete, (*listed, variant.default) if every else some):
            if kind.batch_rank == 1 and every and config.values().get("splits", 1) == 1:
                continue
            if {x for p, x in config.parameters if p.startswith("tile_")} == {1}:
                continue  # of one element, no index can be wrong
            target = Target(kind, config, of_few_units(profile, config))
            if any(target.serves(size) for size in check_sizes(config)[:-1]):
                yield target


def of_few_units(profile, config):
    """The profile of a device of one unit, so that groups that live on have several tiles each.

    Where whole waves of tiles come before others, it stays: they would leave none to cut.
    """
    if profile.family != "nvidia" or config.values().get("wave"):
        return profile
    return replace(profile, compute_units=1)


def emulating(profile):
    """The profile of a device in the guise of NVIDIA's; from now on, PTX is plain OpenCL C."""
    text = templates.text
    templates.text = lambda x: EMULATED.read_text() if x == "parts/ptx.mako" else text(x)
    return replace(profile, family="nvidia", compute_units=3).with_probes(
        compute_capability=90, static_local_bytes=231424
    )
