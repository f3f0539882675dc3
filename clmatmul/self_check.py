"""selfcheck: the essential part of the contract, on the user's own device, in under a minute.

For each kernel variant that the device is offered, and for the choice that a plain product would
get, products are computed on poisoned memory and compared with the reference: exact integers,
one-hot matrices (each element proves its address), random data within the error bound, NaN and
infinity that must not spread.
"""

import time
from dataclasses import dataclass, field

import numpy as np

from clmatmul.cases import make_case
from clmatmul.choose import choose
from clmatmul.config import TileConfig
from clmatmul.element_types import ELEMENT_TYPES, product_type
from clmatmul.errors import BuildError, ConfigError, LaunchError
from clmatmul.problem import OperandKind, ProblemKind
from clmatmul.selection import resolve
from clmatmul.trial import check_case, check_sizes
from clmatmul.variants import all_variants

_SEED = 20260102
_DTYPES = ("float32", "float64", "complex64", "int8", "int64", "bool", "float16")
_ORDERS = {"N": "row", "T": "column"}


@dataclass(frozen=True)
class Finding:
    """One check: what was computed by what, and what was wrong (None if nothing)."""

    variant: str
    what: str
    checks: int
    fault: str | None = None
    skipped: str | None = None
    error_ratio: float | None = None


@dataclass(frozen=True)
class SelfCheckReport:
    """What the self-check found; `str()` is the report for people, `to_dict()` for a file."""

    device: str
    profile: object
    findings: tuple = field(default_factory=tuple)
    seconds: float = 0.0

    @property
    def ok(self):
        """True if every check that ran was right, and at least one ran."""
        return not self.faults and any(f.checks for f in self.findings)

    @property
    def faults(self):
        return tuple(f for f in self.findings if f.fault)

    def to_dict(self):
        return {
            "ok": self.ok,
            "device": self.device,
            "device_key": self.profile.key,
            "seconds": round(self.seconds, 3),
            "findings": [vars(f) for f in self.findings],
        }

    def __str__(self):
        lines = [f"selfcheck on {self.device}"]
        for f in self.findings:
            if f.skipped:
                state = f"skipped: {f.skipped}"
            elif f.fault:
                state = f"WRONG: {f.fault}"
            else:
                how = f"error {f.error_ratio:.2f} of allowed" if f.error_ratio else "exact"
                state = f"right ({f.checks} products, {how})"
            lines.append(f"  {f.variant:18s} {f.what:26s} {state}")
        total = sum(f.checks for f in self.findings)
        verdict = (
            f"All {total} products are right: clmatmul can be trusted on this device."
            if self.ok
            else "Some products are wrong on this device: please report this with the text above. "
            "clmatmul passes over kernels that fail when it first uses them."
        )
        return "\n".join([*lines, f"{verdict} ({self.seconds:.1f} s)"])


def selfcheck(device=None):
    """Check the device; returns a SelfCheckReport. device: as `use_device`; NoDeviceError."""
    opened = resolve(device)
    start = time.perf_counter()
    rng = np.random.default_rng(_SEED)
    findings = []
    for variant in all_variants():
        found = [_check_variant(opened, variant, *each, rng) for each in _matters()]
        reasons = {f.skipped for f in found}
        if len(reasons) == 1 and None not in reasons:  # a variant for other devices: one line
            found = [Finding(variant.name, "everything", 0, skipped=reasons.pop())]
        findings += found
    return SelfCheckReport(
        opened.profile.title, opened.profile, tuple(findings), time.perf_counter() - start
    )


def _matters():
    """(what it is called, kind, data) of everything that is checked for each variant."""
    for dtype in _DTYPES:
        yield dtype, _kind(dtype), ("ids_a", "ids_b", "exact")
    for layout in ("NT", "TN", "TT"):
        yield f"float32 {layout}", _kind("float32", layout), ("ids_a", "exact")
    yield "float32 batches", _kind("float32", batch_rank=2), ("exact",)
    fused = _kind(
        "float32", alpha="general", beta="general", c="float32", bias="float32", activation="relu"
    )
    yield "float32 alpha, beta, bias", fused, ("exact",)
    yield "float32 rounding", _kind("float32"), ("random",)
    yield "float32 NaN, infinity", _kind("float32"), ("special",)


def _check_variant(device, variant, what, kind, data, rng):
    if kind.needs_fp64 and not device.profile.fp64:
        return Finding(variant.name, what, 0, skipped="the device has no float64")
    unmet = variant.unmet(kind, device.profile)
    if unmet:
        return Finding(variant.name, what, 0, skipped=unmet[0])
    checks, worst = 0, None
    config = _offered(device, variant, kind, rng)
    for size in check_sizes(config):
        for each in data:
            try:
                verdict = check_case(device, config, make_case(kind, *size, each, rng))
            except ConfigError:
                continue  # a size that this configuration does not serve
            except (BuildError, LaunchError) as error:
                return Finding(variant.name, what, checks, fault=str(error).splitlines()[0])
            checks += 1
            if verdict.fault:
                place = "×".join(map(str, size))
                return Finding(variant.name, what, checks, fault=f"{place} {each}: {verdict.fault}")
            if verdict.error_ratio is not None:
                worst = max(worst or 0.0, verdict.error_ratio)
    skipped = None if checks else "no size suits its configuration"
    return Finding(variant.name, what, checks, skipped=skipped, error_ratio=worst)


def _offered(device, variant, kind, rng):
    """The configuration of a variant that a product of this kind would be offered."""
    problem = make_case(kind, 64, 64, 64, "exact", rng, with_result=False).problem
    for choice in choose(problem, device.profile):
        if choice.config.variant == variant.name:
            return choice.config
    return TileConfig.of(variant.name, **variant.default.values())


def _kind(dtype, layout="NN", **changes):
    result = product_type(dtype, dtype).name
    values = dict(
        a=OperandKind(dtype, _ORDERS[layout[0]], 1),
        b=OperandKind(dtype, _ORDERS[layout[1]], 1),
        out=OperandKind(result, "row", 1),
        c=None,
        alpha="one",
        beta="zero",
        bias=None,
        residual=None,
        row_scale=None,
        col_scale=None,
        activation="none",
        compute=ELEMENT_TYPES[result].compute,
        result=result,
        reproducible=False,
        batch_rank=0,
        index="int",
    )
    return ProblemKind(**{**values, **changes})
