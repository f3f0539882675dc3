"""choose: which configurations to try for a problem on a device, best first.

Order of origin: forced (the caller's own), tuned (a user's record of exactly this problem),
shipped (the package's record of it), nearest (a record of a similar size, or of a related device),
heuristic, safe. The
last is always the naive kernel with one work-item a group, which works within any limits.
"""

import json
import logging
from dataclasses import dataclass

from clmatmul.config import TileConfig
from clmatmul.errors import ConfigError, UnsupportedError
from clmatmul.variants import all_variants, load_variant, variant_names

_log = logging.getLogger("clmatmul")
_reported = set()  # variants whose `propose` failed
SAFE = TileConfig.of("naive", work_group_size=1)
ORIGINS = ("forced", "tuned", "shipped", "nearest", "heuristic", "safe")


@dataclass(frozen=True)
class Choice:
    """A configuration, where it came from, and one sentence why."""

    config: TileConfig
    origin: str
    note: str = ""

    def __str__(self):
        return f"{self.config} [{self.origin}{': ' + self.note if self.note else ''}]"


def choose(problem, profile, database=None, forced=None):
    """Ranked Choices, ending in the safe one; a forced config stands alone.

    UnsupportedError if the device cannot hold the dtypes at all; ConfigError if `forced` breaks
    a constraint.
    """
    check_device(problem, profile)
    if forced is not None:
        return (Choice(checked(forced, problem, profile), "forced", "given by the caller"),)
    found = []
    if database is not None:
        found += _recorded(problem, profile, database)
    found += _heuristic(problem, profile)
    found.append(Choice(SAFE, "safe", "works within any limits"))
    unique = {}
    for choice in found:
        unique.setdefault(choice.config, choice)
    return tuple(unique.values())


def check_device(problem, profile):
    """UnsupportedError if the device lacks what the dtypes need; it names what can be done."""
    if problem.kind.needs_fp64 and not profile.fp64:
        raise UnsupportedError(
            f"{profile.title} has no float64 arithmetic, which a product of {problem.a.dtype} and "
            f"{problem.b.dtype} into {problem.out.dtype} needs; ask for precision='emulated' or "
            "fallback='emulate' (whole numbers give float64's accuracy, slower), use float32 or "
            "complex64 arrays, another device (device='cpu'), or fallback='numpy'"
        )
    limit = profile.loop_limit
    if limit is not None and problem.k > limit:
        raise UnsupportedError(
            f"{profile.title} ends loops after {limit} rounds, and a sum of {problem.k} terms "
            "needs more; use another device, fallback='numpy', or add up products of parts"
        )


def checked(config, problem, profile):
    """The config with all its parameters; ConfigError if it must not run here."""
    config = TileConfig.parse(config)
    if config.variant not in variant_names():
        raise ConfigError(
            config, [f"there is no such variant; there are {', '.join(variant_names())}"]
        )
    variant = load_variant(config.variant)
    config = variant.complete(config)
    reasons = variant.reject(config, problem, profile)
    if reasons:
        raise ConfigError(config, reasons)
    return config


def _recorded(problem, profile, database):
    exact = database.lookup(problem)
    if exact is not None:
        origin, record = exact
        note = f"recorded {record.median_ns / 1e3:.1f} µs" if record.median_ns else "recorded"
        if not _stale(record):
            yield from _if_valid(record.config, origin, note, problem, profile)
        else:
            note = "a record made with another version of this kernel"
            yield from _if_valid(record.config, "nearest", note, problem, profile)
    near = database.nearest(problem)
    if near is not None and (exact is None or near[1] is not exact[1]):
        _, record, _ = near
        yield from _if_valid(record.config, "nearest", f"from {_text(record)}", problem, profile)
    record = database.hint(problem)
    if record is not None:
        name = json.loads(record.device).get("name")
        note = f"from {_text(record)} on {name}, another driver or device"
        yield from _if_valid(record.config, "nearest", note, problem, profile)


def _text(record):
    return "×".join(map(str, record.size[1:]))


def _stale(record):
    known = record.config.variant in variant_names()
    return not known or load_variant(record.config.variant).digest != record.digest


def _if_valid(config, origin, note, problem, profile):
    try:
        yield Choice(checked(config, problem, profile), origin, note)
    except ConfigError:
        return  # a record made for other limits, or by a variant that is gone


def _heuristic(problem, profile):
    """Each variant's own proposal for this problem, by its header's `propose`, best rank first."""
    proposals = []
    for variant in all_variants():
        for rank, values, note in _proposed(variant, problem, profile):
            proposals.append((rank, variant.name, values, note))
    for _rank, name, values, note in sorted(proposals, key=lambda x: (-x[0], x[1])):
        config = TileConfig.of(name, **values)
        yield from _if_valid(config, "heuristic", note, problem, profile)
        if profile.loop_limit is not None:
            config = _of_small_tiles(name, values)
            yield from _if_valid(config, "heuristic", "more items, less each", problem, profile)


def _proposed(variant, problem, profile):
    """What a variant proposes; nothing, and a warning, if its own estimate fails.

    An estimate decides how fast a product is, and must not decide whether there is one.
    """
    propose = variant.header.get("propose")
    if propose is None or variant.unmet(problem.kind, profile):
        return []
    try:
        return list(propose(problem, profile))
    except Exception as error:  # whatever a header's function may raise
        if variant.name not in _reported:
            _reported.add(variant.name)
            _log.warning(
                "%s is passed over for %s on %s: its proposal could not be worked out (%s: %s); "
                "please report this", variant.name, problem, profile.title,
                type(error).__name__, error,
            )  # fmt: skip
        return []


def _of_small_tiles(name, values):
    """The configuration with the least of the tiles that no source depends on."""
    runtime = load_variant(name).runtime_parameters
    small = {x: min(runtime[x]) for x in ("tile_m", "tile_n") if x in runtime}
    return TileConfig.of(name, **{**values, **small})
