"""selfcheck: the essential part of the contract, on the user's own device, in under a minute.

For each kernel variant that the device is offered, and for the choice that a plain product would
get, products are computed on poisoned memory and compared with the reference: exact integers,
one-hot matrices (each element proves its address), random data within the error bound, NaN and
infinity that must not spread. What matters most comes first, for every variant, so that a slow
compiler leaves out the least when the time is up.
"""

import json
import time
from dataclasses import dataclass, field

import numpy as np

from clmatmul import device as devices
from clmatmul import probes
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
_SECONDS = 45.0
_DTYPES = ("float64", "complex64", "int8", "int64", "bool", "float16")
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
    left_out: int = 0  # findings for which there was no time

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
            "left_out": self.left_out,
            "versions": devices.versions(),
            "profile": json.loads(self.profile.to_json()),
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
        return "\n".join([*lines, f"{self._verdict()} ({self.seconds:.1f} s)"])

    def _verdict(self):
        if self.faults:
            wrong = sorted({f.variant for f in self.faults})
            return (
                f"WRONG: {', '.join(wrong)}. clmatmul passes over kernels that fail when it first "
                "uses them, so your products are served by the others; please report this, with "
                "the file that `python -m clmatmul selfcheck --json FILE` writes."
            )
        total = sum(f.checks for f in self.findings)
        if not total:
            return "Nothing could be checked on this device."
        text = f"All {total} products are right: clmatmul can be trusted on this device."
        if self.left_out:
            text += (
                f" There was no time for {self.left_out} more checks; built programs are kept, so "
                "the same command gets further each time."
            )
        return text


def selfcheck(device=None, seconds=_SECONDS):
    """Check the device; returns a SelfCheckReport. device: as `use_device`; NoDeviceError.

    seconds: when to stop with new checks; float32 was checked by then, on all but the slowest
    compilers, and the report says how many checks were left out.
    """
    opened = resolve(device)
    probes.ensure_usual(opened)
    start = time.perf_counter()
    rng = np.random.default_rng(_SEED)
    variants = all_variants()
    found, left_out = {v.name: [] for v in variants}, 0
    for what, kind, data in _matters():
        for variant in variants:
            if time.perf_counter() - start > seconds:
                left_out += 1
                continue
            finding = _check_variant(opened, variant, what, kind, data, rng)
            found[variant.name].append(finding)
    findings = []
    for name, each in found.items():
        reasons = {f.skipped for f in each}
        if len(reasons) == 1 and None not in reasons:  # a variant for other devices: one line
            each = [Finding(name, "everything", 0, skipped=reasons.pop())]
        findings += each
    return SelfCheckReport(
        opened.profile.title, opened.profile, tuple(findings), time.perf_counter() - start, left_out
    )


def _matters():
    """(what it is called, kind, data) of everything that is checked for each variant."""
    plain = _kind("float32")
    yield "float32", plain, ("ids_a", "ids_b", "exact")
    yield "float32 rounding", plain, ("random",)
    yield "float32 NaN, infinity", plain, ("special",)
    fused = _kind(
        "float32", alpha="general", beta="general", c="float32", bias="float32", activation="relu"
    )
    yield "float32 alpha, beta, bias", fused, ("exact",)
    for dtype in _DTYPES:
        yield dtype, _kind(dtype), ("ids_a", "ids_b", "exact")
    for layout in ("NT", "TN", "TT"):
        yield f"float32 {layout}", _kind("float32", layout), ("ids_a", "exact")
    yield "float32 batches", _kind("float32", batch_rank=2), ("exact",)


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
