"""Random products: what is drawn, from which numbers, and how it is written down and run.

Everything drawn follows from (seed, shard, index) and the device's profile, so a run can be cut
short, gone on with, and any product of it made again. A *recipe* is what decides a program: the
kind of problem, the variant, the rendered parameters. A shard has few recipes and many products;
sizes, values, scalars and run-time parameters are drawn anew for each.
"""

import json
import random
from dataclasses import asdict, dataclass, replace

import numpy as np

from clmatmul.array_view import OperandKind
from clmatmul.cases import make_case
from clmatmul.config import TileConfig
from clmatmul.element_types import COMPUTE_TYPES, ELEMENT_TYPES, numpy_dtype, product_type
from clmatmul.epilogue import ACTIVATIONS
from clmatmul.errors import ConfigError
from clmatmul.plan import make_plan
from clmatmul.precision import LEVELS
from clmatmul.problem import ProblemKind
from clmatmul.trial import check_case
from clmatmul.variants import all_variants, load_variant

MOST_TERMS = 150_000  # multiply-adds of one product: the oracle's arithmetic is slow
MOST_ELEMENTS = 30_000  # of one operand
_TRIES = 300
_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 61, 67, 71, 79, 97, 101, 127)
_MIXED = (
    ("float32", "float64"), ("int32", "float32"), ("int8", "float32"), ("uint8", "int8"),
    ("int64", "int32"), ("bool", "float32"), ("float16", "float32"), ("float32", "complex64"),
    ("complex128", "float32"), ("uint32", "int32"), ("float16", "int8"), ("bool", "int16"),
    ("bfloat16", "float32"), ("complex64", "complex128"), ("uint64", "uint8"),
)  # fmt: skip
_OUTPUTS = {
    "real": ("float16", "bfloat16", "float32", "float64"),
    "complex": ("complex64", "complex128"),
    "integer": ("int8", "uint16", "int64", "float32", "complex64"),
    "bool": ("int32", "float32"),
}
_WIDER = {"float32": "float64", "complex64": "complex128", "uint32": "uint64"}
# Exact for small whole numbers, which is all that they are given.
_EXPRESSIONS = (
    "(col > row + 2 ? -fabs(acc) : acc * 2) + shift * (1.5 - .5) - (row - col) * 1e0",
    "row >= col ? acc + shift : 7",
    "shift * 0.25 - acc",
)
_FLOATING = ("half", "bfloat", "float", "complex")
_PARTS = ("bias", "residual", "row_scale", "col_scale")


@dataclass(frozen=True)
class Product:
    """One drawn product: everything that is needed to compute and to judge it."""

    kind: ProblemKind
    config: TileConfig
    size: tuple  # m, n, k
    batch: tuple
    data: str
    scalars: tuple  # (name, value)
    seed: int  # of the values

    def case(self):
        """Operands and what must come out."""
        rng = np.random.default_rng(self.seed)
        return make_case(
            self.kind, *self.size, self.data, rng, scalars=dict(self.scalars), batch=self.batch
        )

    def source_keys(self, profile):
        """The programs that it needs; ConfigError."""
        rng = np.random.default_rng(0)
        case = make_case(self.kind, *self.size, "exact", rng, batch=self.batch, with_result=False)
        plan = make_plan(case.problem, profile, self.config)
        return frozenset(launch.source_key for launch in plan.launches)

    def fault(self, device):
        """None if the device's result is right, else what is wrong with it."""
        return check_case(device, self.config, self.case()).fault

    def to_json(self):
        """One line from which `from_json` makes the product again."""
        values = asdict(self)
        values["config"] = str(self.config)
        values["scalars"] = [[name, repr(value)] for name, value in self.scalars]
        return json.dumps(values)

    @classmethod
    def from_json(cls, text):
        """The inverse of to_json; ValueError."""
        try:
            values = json.loads(text)
            kind = dict(values["kind"])
            kind.update({x: OperandKind(**kind[x]) for x in ("a", "b", "out")})
            kind["extras"] = tuple(map(tuple, kind.get("extras", ())))
            return cls(
                ProblemKind(**kind), TileConfig.parse(values["config"]), tuple(values["size"]),
                tuple(values["batch"]), values["data"],
                tuple((name, scalar(value)) for name, value in values["scalars"]), values["seed"],
            )  # fmt: skip
        except (KeyError, TypeError) as error:
            raise ValueError(f"no product: {error!r}") from None

    def __str__(self):
        batch = "".join(f"{x}×" for x in self.batch)
        scalars = "".join(f", {name} {value}" for name, value in self.scalars)
        size = "×".join(map(str, self.size))
        return f"{batch}{size} {self.data}{scalars}, {self.config}, {self.kind.key}"


def scalar(text):
    """A number from its repr: whole, floating or complex."""
    try:
        return int(text)
    except ValueError:
        number = complex(text)
    return number if "j" in text else number.real


# ---- what decides a program -----------------------------------------------------------------


def draw_kind(rng, profile):
    """A ProblemKind that the device's types allow."""
    while True:
        kind = _any_kind(rng)
        if profile.fp64 or not kind.needs_fp64:
            return kind


def _any_kind(rng):
    dtype = rng.choice(tuple(ELEMENT_TYPES))
    a, b = rng.choice(_MIXED) if rng.random() < 0.3 else (dtype, dtype)
    result = product_type(numpy_dtype(a), numpy_dtype(b)).name
    compute = ELEMENT_TYPES[result].compute
    if rng.random() < 0.1:
        compute = _WIDER.get(compute, compute)
    what = COMPUTE_TYPES[compute].kind
    out = rng.choice(_OUTPUTS[what]) if rng.random() < 0.25 else result
    alpha = rng.choice(("one", "one", "one", "general", "zero"))
    beta = rng.choice(("zero", "zero", "one", "general"))
    parts = dict.fromkeys(_PARTS)
    activation = "none"
    if rng.random() < 0.4:
        types = {"real": ("float32", "float16", result), "complex": (result, "float32")}
        for part in _PARTS:
            if rng.random() < 0.5:
                parts[part] = rng.choice(types.get(what, (result,)))
        if what == "real":
            activation = rng.choice(ACTIVATIONS)
    fused = {}
    if rng.random() < 0.15:
        fused["aux"] = rng.choice(("float32", "float16", result) if what == "real" else (result,))
    reproducible = rng.random() < 0.1
    if what == "real" and not reproducible and rng.random() < 0.15:
        fused.update(expression=rng.choice(_EXPRESSIONS), extras=(("shift", "float16"),))
    conjugate = what == "complex"
    return ProblemKind(
        a=_operand(rng, a, conjugate), b=_operand(rng, b, conjugate), out=_operand(rng, out, False),
        c=None if beta == "zero" else rng.choice((result, result, "float32")) if what == "real"
        else result,
        alpha=alpha, beta=beta, **parts, activation=activation, compute=compute, result=result,
        reproducible=reproducible, batch_rank=rng.choice((0, 0, 0, 1, 1, 2, 3)),
        index="long" if rng.random() < 0.1 else "int",
        precision=rng.choice(LEVELS) if rng.random() < 0.1 else "highest", **fused,
    )  # fmt: skip


def _operand(rng, dtype, conjugate):
    order = rng.choice(("row", "row", "column", "strided"))
    alignment = 1 if order == "strided" else rng.choice((1, 4, 16, 64))
    conjugate = conjugate and ELEMENT_TYPES[dtype].kind == "complex" and rng.random() < 0.3
    return OperandKind(dtype, order, alignment, conjugate)


def draw_recipe(rng, profile, variants=()):
    """(kind, config): a variant that serves the kind, in any of its valid configurations.

    variants: names of those that may be drawn; all if there is none. ValueError if none of them
    serves any kind on this device.
    """
    allowed = [v for v in all_variants() if not variants or v.name in variants]
    for _ in range(10 * _TRIES):
        kind = draw_kind(rng, profile)
        serving = [v for v in allowed if not v.unmet(kind, profile)]
        if serving:
            break
    else:
        names = ", ".join(v.name for v in allowed) or f"none is called {' or '.join(variants)}"
        raise ValueError(f"{profile.title} is offered none of the variants ({names})")
    variant = rng.choice(serving)
    problem = make_case(
        kind, 33, 35, 37, "exact", np.random.default_rng(0), with_result=False
    ).problem
    for _ in range(_TRIES):
        values = {name: rng.choice(allowed) for name, allowed in variant.all_parameters().items()}
        config = TileConfig.of(variant.name, **values)
        if not variant.reject(config, problem, profile):
            return kind, config
    return kind, variant.default


def draw_recipes(rng, profile, programs, variants=()):
    """(recipes, source keys): as many recipes as need about `programs` programs."""
    recipes, keys = [], set()
    while len(keys) < programs:
        kind, config = draw_recipe(rng, profile, variants)
        needed = set()
        for _ in range(6):
            product = draw_product(rng, kind, config)
            try:
                needed |= product.source_keys(profile)
            except ConfigError:
                continue
        if needed and (len(keys | needed) <= programs or not recipes):
            recipes.append((kind, config))
            keys |= needed
        elif recipes and programs - len(keys) < 3:
            break
    return recipes, frozenset(keys)


# ---- what does not --------------------------------------------------------------------------


def draw_product(rng, kind, config):
    """A Product of a recipe: run-time parameters, sizes, values, scalars."""
    variant = load_variant(config.variant)
    runtime = {x: rng.choice(allowed) for x, allowed in variant.runtime_parameters.items()}
    config = config.with_values(**runtime)
    tiles = {letter: _tiles(config, letter) for letter in "mnk"}
    size = [_extent(rng, tiles[letter]) for letter in "mnk"]
    if kind.alpha == "zero" and rng.random() < 0.3:
        size[2] = 0
    batch = [rng.choice((1, 2, 2, 3, 5)) for _ in range(kind.batch_rank)]
    if batch and rng.random() < 0.03:
        batch[0], size = 1000, [min(x, 3) for x in size]
    _shrink_to_fit(size, batch)
    return Product(
        kind, config, tuple(size), tuple(batch), _data(rng, kind), _scalars(rng, kind),
        rng.randrange(2**32),
    )  # fmt: skip


def _tiles(config, letter):
    return [v for x, v in config.parameters if x.endswith(f"_{letter}") and isinstance(v, int)]


def _extent(rng, tiles):
    draw = rng.random()
    if draw < 0.15:
        return rng.choice((1, 2, 3))
    if draw < 0.65 and tiles:
        tile = rng.choice(tiles)
        return max(tile * rng.choice((1, 1, 1, 2, 3)) + rng.choice((-1, 0, 1)), 1)
    if draw < 0.9:
        return rng.choice(_PRIMES)
    return rng.randrange(1, 1500)


def _shrink_to_fit(size, batch):
    count = int(np.prod(batch, dtype=int))
    while True:
        m, n, k = size
        largest = max(m * k, k * n, m * n) * count
        if largest <= MOST_ELEMENTS and m * n * max(k, 1) * count <= MOST_TERMS:
            return
        i = max(range(3), key=size.__getitem__)
        size[i] = size[i] * 2 // 3


def _data(rng, kind):
    choices = ["exact", "exact", "ids_a", "ids_b"]
    if COMPUTE_TYPES[kind.compute].kind in ("real", "complex") and not kind.expression:
        choices.append("random")
        floating = all(ELEMENT_TYPES[x.dtype].kind in _FLOATING for x in (kind.a, kind.b))
        plain = kind.activation == "none" and kind.alpha != "zero" and not kind.aux
        if floating and plain:
            choices.append("special")
    return rng.choice(choices)


def _scalars(rng, kind):
    what = COMPUTE_TYPES[kind.compute].kind
    values = {
        "real": (0.5, -1.0, 2.0, -3.0, 0.25, float("nan"), float("inf")),
        "complex": (2 - 1j, -1 + 2j, 0.5j, -1 + 0j),
        "integer": (2, -3, 7, -1, 2**31 - 1),
        "bool": (1,),
    }[what]
    if kind.activation != "none" or kind.expression:
        values = tuple(x for x in values if np.isfinite(x))
    names = [x for x in ("alpha", "beta") if getattr(kind, x) == "general"]
    return tuple((name, rng.choice(values)) for name in names)


# ---- a shard --------------------------------------------------------------------------------


class Shard:
    """The products number `shard` of a run: recipes first, then any index of its products."""

    def __init__(self, seed, shard, programs, profile, variants=()):
        self.name = f"{seed}/{shard}"
        self.profile = profile
        rng = random.Random(self.name)
        self.recipes, self.keys = draw_recipes(rng, profile, programs, variants)

    def product(self, index):
        """Product number `index`, which needs none but the shard's programs."""
        rng = random.Random(f"{self.name}/{index}")
        while True:
            product = draw_product(rng, *rng.choice(self.recipes))
            try:
                if product.source_keys(self.profile) <= self.keys:
                    return product
            except ConfigError:
                continue


def simplest(product):
    """Simpler products, one change each, the greatest simplification first."""
    kind, size, batch = product.kind, product.size, product.batch
    for i in range(len(batch)):
        yield replace(product, batch=batch[:i] + batch[i + 1 :],
                      kind=replace(kind, batch_rank=len(batch) - 1))  # fmt: skip
    for part in _PARTS:
        if getattr(kind, part):
            yield replace(product, kind=replace(kind, **{part: None}))
    if kind.activation != "none":
        yield replace(product, kind=replace(kind, activation="none"))
    if kind.beta != "zero":
        yield _with_scalars(product, replace(kind, beta="zero", c=None))
    if kind.alpha != "one" and size[2]:
        yield _with_scalars(product, replace(kind, alpha="one"))
    if kind.expression:
        yield replace(product, kind=replace(kind, expression=None, extras=()))
    for name, plain in (("aux", None), ("reproducible", False), ("index", "int"),
                        ("precision", "highest")):  # fmt: skip
        if getattr(kind, name) != plain:
            yield replace(product, kind=replace(kind, **{name: plain}))
    for name in ("a", "b", "out"):
        operand = getattr(kind, name)
        for change in ({"conjugate": False}, {"alignment": 1}, {"order": "row"}):
            plain = replace(operand, **change)
            if plain != operand:
                yield replace(product, kind=replace(kind, **{name: plain}))
    if kind.out.dtype != kind.result:
        yield replace(product, kind=replace(kind, out=replace(kind.out, dtype=kind.result)))
    if product.data != "exact":
        yield replace(product, data="exact")
    for i, name in enumerate("mnk"):
        small = max(_tiles(product.config, name), default=1)
        for value in (1, 2, 3, small, small + 1, size[i] // 2, size[i] - 1):
            if 0 < value < size[i]:
                yield replace(product, size=size[:i] + (value,) + size[i + 1 :])
    variant = load_variant(product.config.variant)
    for name, allowed in variant.all_parameters().items():
        at = allowed.index(product.config.values()[name])
        for value in allowed[:at]:
            yield replace(product, config=product.config.with_values(**{name: value}))


def _with_scalars(product, kind):
    kept = tuple(x for x in product.scalars if getattr(kind, x[0]) == "general")
    return replace(product, kind=kind, scalars=kept)
