"""A kernel variant as Python sees it: its header, checked, with the questions one may ask it.

The header's names are described in `kernels/README.md`. Everything here is pure: the same
variant, config, problem and profile always give the same answer, on any machine.
"""

import ast
import math
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

from clmatmul import templates
from clmatmul.config import TileConfig
from clmatmul.errors import ConfigError, TemplateError
from clmatmul.precision import LEVELS

# What a kernel serves that computes as the operands' types have it: every precision.
_PRECISIONS = LEVELS
_REQUIRED = ("SUMMARY", "SOURCES", "PARAMETERS", "DEFAULT", "CONSTRAINTS", "derive", "launches")
_NEGATED = {
    ast.LtE: ">", ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.Eq: "!=", ast.NotEq: "==",
}  # fmt: skip


class Constraint:
    """One expression over parameters, derived values, problem, kind and profile.

    Compiled once, because a search space asks it of thousands of configurations.
    """

    def __init__(self, text, file):
        self.text = text
        try:
            tree = ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise TemplateError(file, 0, f"constraint {text!r}: {error.msg}") from None
        self._code = _compile(tree)
        self._sides = None
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
            sign = _NEGATED.get(type(tree.ops[0]))
            if sign:
                self._sides = _compile(tree.left), sign, _compile(tree.comparators[0])

    def violation(self, names, where):
        """None if it holds, else the text with the values that break it."""
        scope = {"__builtins__": {"min": min, "max": max, "abs": abs, "any": any, "all": all}}
        if eval(self._code, scope, names):
            return None
        if not self._sides:
            return f"{self.text} ({where})"
        left, sign, right = self._sides
        values = f"{eval(left, scope, names)} {sign} {eval(right, scope, names)}"
        return f"{self.text}: {values} ({where})"


@dataclass(frozen=True, eq=False)
class Variant:
    """One kernel variant, read from the header of its file."""

    name: str
    summary: str
    sources: tuple
    requires: tuple
    parameters: dict
    runtime_parameters: dict
    default: TileConfig
    constraints: tuple
    instruments_allowed: tuple
    alignment_classes: tuple
    post_build: str | None
    header: dict
    digest: str

    def all_parameters(self):
        """name → allowed values: rendered ones first, then run-time ones."""
        return {**self.parameters, **self.runtime_parameters}

    def complete(self, config):
        """The config with the defaults of parameters that it does not name; ConfigError."""
        unknown = sorted(set(config.values()) - set(self.all_parameters()))
        if unknown:
            raise ConfigError(
                config,
                [f"{self.name} has no parameter {x}; it has {', '.join(self.all_parameters())}"
                 for x in unknown],
            )  # fmt: skip
        return self.default.with_values(**config.values())

    def derived(self, config, kind, profile):
        """The quantities that the header derives, as attributes.

        It is shown only the alignments that the variant tells apart, as its text is.
        """
        kind = kind.with_alignment(self.alignment_classes)
        values = self.header["derive"](SimpleNamespace(**config.values()), kind, profile)
        return SimpleNamespace(**values)

    def unmet(self, kind, profile):
        """Reasons why the variant is not offered for this kind on this device, if any."""
        names = {"profile": profile, "kind": kind}
        found = [c.violation(names, f"{self.name}, {profile.title}") for c in self.requires]
        return tuple(x for x in found if x)

    def reject(self, config, problem, profile):
        """Every reason why this configuration must not run, with limit and value."""
        reasons = list(self.unmet(problem.kind, profile))
        allowed = self.all_parameters()
        for name, value in config.parameters:
            # 16.0 and True equal 16 and 1, but are other text in a kernel
            if not any(value == x and type(value) is type(x) for x in allowed[name]):
                reasons.append(f"{name}={value} is not one of {tuple(allowed[name])}")
        if reasons:
            return tuple(reasons)
        kind = problem.kind
        derived = self.derived(config, kind, profile)
        names = {**config.values(), **vars(derived)}
        names.update(problem=problem, kind=kind, profile=profile)
        where = f"{self.name}, {profile.title}"
        found = [c.violation(names, where) for c in self.constraints]
        found = tuple(x for x in found if x)
        if not found and profile.loop_limit is not None:
            found = tuple(self._loop_faults(config, names, problem, profile))
        return found

    def _loop_faults(self, config, values, problem, profile):
        """A reason if an item may go round its loops more often than the device lets it.

        Where the header does not say how often that is: once for each term of a micro-tile, four
        times for those at the edges of an item's tile, and eight times k for what is copied.
        """
        if "loop_iterations" in self.header:
            rounds = self.header["loop_iterations"](problem)
        else:
            work = [x for x in self.launches(config, problem, profile) if "prepares" not in x]
            items = max(min(math.prod(x["global_size"]) for x in work), 1)
            micro_tile = values.get("micro_m", 1) * values.get("micro_n", 1)
            terms = problem.batch_count * problem.m * problem.n * problem.k
            rounds = 4 * terms // (items * micro_tile) + 8 * problem.k
        if rounds > profile.loop_limit:
            yield f"loop iterations of a work-item: up to {rounds} > {profile.loop_limit}"

    def workspace(self, config, problem, profile):
        """name → dict(bytes, alignment, first, last) of each scratch buffer."""
        function = self.header.get("workspace")
        if function is None:
            return {}
        derived = self.derived(config, problem.kind, profile)
        return function(SimpleNamespace(**config.values()), derived, problem, profile)

    def launches(self, config, problem, profile):
        """The header's launches, as it gives them."""
        derived = self.derived(config, problem.kind, profile)
        values = SimpleNamespace(**config.values())
        return self.header["launches"](values, derived, problem, profile)

    def instruments(self, mode, config, problem, profile):
        """name → number of elements of each buffer of a counting or tracing build."""
        if mode == "none":
            return {}
        if mode not in self.instruments_allowed:
            allowed = ", ".join(self.instruments_allowed)
            raise ConfigError(config, [f"instrument={mode!r}: {self.name} has {allowed}"])
        derived = self.derived(config, problem.kind, profile)
        values = SimpleNamespace(**config.values())
        return self.header["instruments"](mode, values, derived, problem)


def variant_names():
    """Every variant there is, in order of name."""
    return tuple(templates.variant_files())


@cache
def load_variant(name):
    """Read and check a variant's header; TemplateError says what is wrong with it."""
    header = templates.header(name)
    file = str(templates.variant_files()[name])
    missing = [x for x in _REQUIRED if x not in header]
    if missing:
        raise TemplateError(file, 1, f"the header lacks {', '.join(missing)}")
    parameters = {k: tuple(v) for k, v in header["PARAMETERS"].items()}
    runtime = {k: tuple(v) for k, v in header.get("RUNTIME_PARAMETERS", {}).items()}
    default = TileConfig.of(name, **header["DEFAULT"])
    if header.get("POST_BUILD") and "post_build" not in header:
        raise TemplateError(file, 1, "POST_BUILD names a step, and the header has no post_build")
    if set(header["DEFAULT"]) != {*parameters, *runtime}:
        raise TemplateError(file, 1, "DEFAULT must give a value to each parameter, and no other")
    return Variant(
        name=name,
        summary=header["SUMMARY"],
        sources=tuple(header["SOURCES"]),
        requires=tuple(Constraint(x, file) for x in _requirements(header)),
        parameters=parameters,
        runtime_parameters=runtime,
        default=default,
        constraints=tuple(Constraint(x, file) for x in _constraints(header)),
        instruments_allowed=tuple(header.get("INSTRUMENT", ("none",))),
        alignment_classes=tuple(header.get("ALIGNMENT_CLASSES", (1,))),
        post_build=header.get("POST_BUILD"),
        header=header,
        digest=templates.digest(name),
    )


def _requirements(header):
    """REQUIRES, with what the header's other names say about the kinds that it serves."""
    precisions = tuple(header.get("PRECISIONS", _PRECISIONS))
    served = [f"kind.precision in {precisions}"]
    if "REPRODUCIBLE" not in header:
        served.append("not kind.reproducible")
    return (*header.get("REQUIRES", ()), *served)


def _constraints(header):
    """CONSTRAINTS, with what must hold for sums in the one order of reproducible products."""
    ordered = [f"not kind.reproducible or {x}" for x in header.get("REPRODUCIBLE", ())]
    return (*header["CONSTRAINTS"], *ordered)


def all_variants():
    """Every variant, in order of name."""
    return tuple(load_variant(name) for name in variant_names())


def _compile(tree):
    return compile(ast.Expression(tree), "<constraint>", "eval")
