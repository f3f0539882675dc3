"""The walkthrough: the lesson that clmatmul comes from, on the reader's own device.

A serial product, an untiled kernel, a tiled one, how often each reads memory, what barriers are
for, sizes that do not fit, copies, scaling, the dimension rule, and the advice to experiment.
Each part is a function from a `Lesson` to a `Page`: what it shows, and the values behind it.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from clmatmul.config import TileConfig
from clmatmul.errors import ArgumentError
from clmatmul.walkthrough_counts import reads
from clmatmul.walkthrough_host import copies, rule, scaling
from clmatmul.walkthrough_kernels import serial, tiled, untiled
from clmatmul.walkthrough_race import race
from clmatmul.walkthrough_times import edges, experiment


@dataclass(frozen=True)
class Part:
    """A part of the walkthrough: its letter, its name, and what makes its Page."""

    letter: str
    name: str
    summary: str
    page: Callable


PARTS = (
    Part("a", "serial", "the product as a loop in Python", serial),
    Part("b", "untiled", "a work-item for each element", untiled),
    Part("c", "tiled", "tiles in local memory, phase by phase", tiled),
    Part("d", "reads", "how often each element is read, counted", reads),
    Part("e", "race", "what a missing barrier does", race),
    Part("f", "edges", "sizes that are no multiple of the tile", edges),
    Part("g", "copies", "copies between host and device", copies),
    Part("h", "scale", "a number times a matrix", scaling),
    Part("i", "rule", "the dimension rule", rule),
    Part("j", "experiment", "which tile is best here", experiment),
)


def _silent(text):
    """Progress that nobody asked for."""


@dataclass(frozen=True)
class Lesson:
    """What a walkthrough works with.

    device: an open Device. m, n, k, tile_m, tile_n, tile_k: the size and tiles that part d counts
    besides its own. quick: shorter timings, and slices of the large count. tell: called with a
    line of text before something that takes long.
    """

    device: object
    m: int = 5
    n: int = 7
    k: int = 6
    tile_m: int = 2
    tile_n: int = 4
    tile_k: int = 2
    quick: bool = False
    tell: Callable = _silent

    @property
    def is_simulated(self):
        """True on a simulator, thousands of times slower than a device: small sizes will do."""
        return self.device.profile.family == "oclgrind"

    def __post_init__(self):
        for name in ("m", "n", "k", "tile_m", "tile_n", "tile_k"):
            value = getattr(self, name)
            if value < 1:
                raise ArgumentError(f"{name}={value} must be at least 1")


def choose_parts(names=(), quick=False):
    """The Parts that letters or names stand for, in the lesson's order; all if there are none.

    quick leaves the experiment out unless it is named. ArgumentError for an unknown name.
    """
    wanted = set()
    for name in names:
        found = [x for x in PARTS if name.lower() in (x.letter, x.name)]
        if not found:
            known = ", ".join(f"{x.letter} ({x.name})" for x in PARTS)
            raise ArgumentError(f"part {name!r} is unknown; there are {known}")
        wanted.add(found[0].letter)
    if not wanted:
        return tuple(x for x in PARTS if not (quick and x.name == "experiment"))
    return tuple(x for x in PARTS if x.letter in wanted)


def report(page):
    """A page's letter, name, title and values, as JSON can hold them."""
    return {
        "letter": page.letter,
        "name": page.name,
        "title": page.title,
        "values": _json(page.values),
    }


def _json(value):
    """Dataclasses as dicts of their fields; configurations as text."""
    if isinstance(value, TileConfig):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {x.name: _json(getattr(value, x.name)) for x in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_json(x) for x in value]
    return value
