"""A user's expression behind a product: read, checked, and written as OpenCL C.

The text may come from anyone, so nothing of it reaches a compiler: it is taken apart into
tokens, read by a grammar that knows arithmetic, comparisons, `&&`, `||`, `!`, `?:` and the
functions below, and written anew from what was understood. Numbers and names are values of the
accumulator's type, `row` and `col` too, so nothing can divide an integer by zero. There are no
statements, casts, brackets, strings or preprocessor.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from clmatmul.errors import ArgumentError

MAX_LENGTH = 1000  # characters
MAX_DEPTH = 100  # of operations within each other
# name → (number of arguments, what NumPy calls it). These are exact, the same on every device …
_EXACT = {
    "fabs": (1, np.abs), "floor": (1, np.floor), "ceil": (1, np.ceil), "trunc": (1, np.trunc),
    "fmin": (2, np.fmin), "fmax": (2, np.fmax), "copysign": (2, np.copysign),
    "isnan": (1, np.isnan), "isinf": (1, np.isinf), "isfinite": (1, np.isfinite),
}  # fmt: skip
# … and these round, each device in its own way.
_ROUNDED = {
    "exp": (1, np.exp), "exp2": (1, np.exp2), "expm1": (1, np.expm1), "log": (1, np.log),
    "log2": (1, np.log2), "log1p": (1, np.log1p), "sqrt": (1, np.sqrt), "sin": (1, np.sin),
    "cos": (1, np.cos), "tanh": (1, np.tanh), "pow": (2, np.power), "fmod": (2, np.fmod),
    "rsqrt": (1, lambda x: 1 / np.sqrt(x)), "atan": (1, np.arctan),
}  # fmt: skip
_FUNCTIONS = {**_EXACT, **_ROUNDED}
_CONSTANTS = {"INFINITY": np.inf, "NAN": np.nan}
_VALUES = ("acc", "row", "col")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>&&|\|\||[<>=!]=|[-+*/()?:,<>!]))"
)
# Binary operators by how tightly they bind, loosest first; as NumPy has them.
_BINARY = (
    {"||": np.logical_or},
    {"&&": np.logical_and},
    {"==": np.equal, "!=": np.not_equal},
    {"<": np.less, ">": np.greater, "<=": np.less_equal, ">=": np.greater_equal},
    {"+": np.add, "-": np.subtract},
    {"*": np.multiply, "/": np.divide},
)


@dataclass(frozen=True)
class Expression:
    """An expression as it was understood: a tree of tuples (kind, …), and the names it uses."""

    text: str
    tree: tuple
    names: frozenset

    @property
    def uses_place(self):
        """True if it says `row` or `col`."""
        return bool(self.names & {"row", "col"})

    @property
    def is_exact(self):
        """True if every device gives the same bits: no division, no function that rounds."""
        return not self.names & {"/", *_ROUNDED}

    def as_text(self, swapped=False):
        """The expression as understood, fully in parentheses, to be read again.

        swapped: for the transposed product, whose rows are the caller's columns.
        """
        places = {"row": "col", "col": "row"} if swapped else {}
        return _text(self.tree, places)

    def as_c(self, literal):
        """OpenCL C over in_acc, in_row, in_col and in_NAME; `literal` writes a number."""
        return _write(self.tree, literal)

    def evaluate(self, values):
        """The expression of NumPy arrays, by name, in their own type."""
        with np.errstate(all="ignore"):
            return np.asarray(_evaluate(self.tree, values, values["acc"].dtype))


@lru_cache(maxsize=256)
def read_expression(text, extras=()):
    """The Expression of a text over acc, row, col and `extras`; ArgumentError says what is wrong,
    and where."""
    if not isinstance(text, str):
        raise ArgumentError(f"expression={text!r} is no text")
    if len(text) > MAX_LENGTH:
        raise ArgumentError(
            f"an expression of {len(text)} characters; at most {MAX_LENGTH} are allowed"
        )
    for name in extras:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ArgumentError(f"extras: {name!r} is no name of letters, digits and _")
        if name in _VALUES or name in _FUNCTIONS or name in _CONSTANTS:
            raise ArgumentError(f"extras: the name {name!r} has a meaning of its own")
    reader = _Reader(text, extras)
    tree = reader.condition(0)
    reader.expect_end(tree)
    unused = sorted(set(extras) - reader.names)
    if unused:
        raise ArgumentError(f"expression {text!r} does not use extras {unused}")
    return Expression(text, tree, frozenset(reader.names))


class _Reader:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text, extras):
        self.text = text
        self.allowed = {*_VALUES, *extras}
        self.names = set()
        self._tokens = self._split()
        self._at = 0

    def _split(self):
        found, at = [], 0
        end = len(self.text.rstrip())
        while at < end:
            match = _TOKEN.match(self.text, at)
            if not match:
                at += len(self.text[at:]) - len(self.text[at:].lstrip())
                raise self._error(f"{self.text[at]!r} is not allowed", at)
            kind = match.lastgroup
            found.append((kind, match.group(kind), match.start(kind)))
            at = match.end()
        return [*found, ("end", "the end", len(self.text))]

    def _error(self, what, at=None):
        if at is None:
            at = self._tokens[self._at][2]
        return ArgumentError(f"expression {self.text!r}: {what} (at character {at + 1})")

    def _peek(self):
        return self._tokens[self._at][1] if self._tokens[self._at][0] != "end" else None

    def _take(self):
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _expect(self, sign):
        if self._peek() != sign:
            found = self._tokens[self._at][1]
            raise self._error(f"{sign!r} is expected, not {found!r}")
        self._at += 1

    def _check_depth(self, depth):
        if depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} operations within each other")

    def expect_end(self, tree):
        if self._peek() is not None:
            raise self._error(f"{self._peek()!r} is not expected here")
        level, depth = [tree], 0
        while level:  # a chain, such as a + a + …, is as deep as it is long
            self._check_depth(depth)
            level = [x for node in level for x in node if isinstance(x, tuple)]
            depth += 1

    def condition(self, depth):
        """a ? b : c, or what binds more tightly."""
        self._check_depth(depth)
        test = self._binary(0, depth + 1)
        if self._peek() != "?":
            return test
        self._at += 1
        yes = self.condition(depth + 1)
        self._expect(":")
        return ("choice", test, yes, self.condition(depth + 1))

    def _binary(self, level, depth):
        if level == len(_BINARY):
            return self._unary(depth)
        left = self._binary(level + 1, depth)
        while self._peek() in _BINARY[level]:
            sign = self._take()[1]
            if sign == "/":
                self.names.add("/")
            left = ("binary", sign, left, self._binary(level + 1, depth))
        return left

    def _unary(self, depth):
        self._check_depth(depth)
        if self._peek() in ("-", "+", "!"):
            sign = self._take()[1]
            return ("unary", sign, self._unary(depth + 1))
        return self._primary(depth)

    def _primary(self, depth):
        kind, text, at = self._take()
        if kind == "number":
            return ("number", text.rstrip("fF"))
        if text == "(":
            inside = self.condition(depth + 1)
            self._expect(")")
            return inside
        if kind != "name":
            raise self._error(f"a value is expected, not {text!r}", at)
        if text in _FUNCTIONS:
            return self._call(text, depth)
        if text in _CONSTANTS:
            return ("constant", text)
        if text not in self.allowed:
            known = ", ".join(sorted(self.allowed))
            functions = ", ".join(sorted(_FUNCTIONS))
            raise self._error(
                f"{text!r} is unknown; there are {known}, the functions {functions}, and "
                "INFINITY and NAN",
                at,
            )
        self.names.add(text)
        return ("name", text)

    def _call(self, name, depth):
        count = _FUNCTIONS[name][0]
        self.names.add(name)
        self._expect("(")
        arguments = [self.condition(depth + 1)]
        while self._peek() == ",":
            self._at += 1
            arguments.append(self.condition(depth + 1))
        self._expect(")")
        if len(arguments) != count:
            raise self._error(f"{name} takes {count} values, not {len(arguments)}")
        return ("call", name, *arguments)


def _text(tree, places):
    kind, *rest = tree
    parts = [_text(x, places) for x in rest if isinstance(x, tuple)]
    if kind == "choice":
        return "({} ? {} : {})".format(*parts)
    if kind == "binary":
        return f"({parts[0]} {rest[0]} {parts[1]})"
    if kind == "unary":
        return f"({rest[0]}{parts[0]})"
    if kind == "call":
        return f"{rest[0]}({', '.join(parts)})"
    return places.get(rest[0], rest[0])


def _write(tree, literal):
    kind, *rest = tree
    if kind == "number":
        text = rest[0]
        # literal adds a suffix to what has a point: 1e5 becomes 1.0e5
        mantissa, e, exponent = text.lower().partition("e")
        return literal(("0" if mantissa.startswith(".") else "") + mantissa
                       + ("" if "." in mantissa else ".0") + e + exponent)  # fmt: skip
    if kind == "constant":
        return f"((scalar_t){rest[0]})"
    if kind == "name":
        return f"in_{rest[0]}"
    parts = [_write(x, literal) for x in rest if isinstance(x, tuple)]
    if kind == "choice":
        return f"(({parts[0]}) != {literal('0')} ? {parts[1]} : {parts[2]})"
    if kind == "unary":
        if rest[0] == "!":
            return f"(scalar_t)({parts[0]} == {literal('0')})"
        return f"({rest[0]}{parts[0]})"
    if kind == "call":
        return f"(scalar_t){rest[0]}({', '.join(parts)})"
    sign = rest[0]
    if sign in ("&&", "||"):
        zero = literal("0")
        return f"(scalar_t)(({parts[0]}) != {zero} {sign} ({parts[1]}) != {zero})"
    if sign in ("+", "-", "*", "/"):
        return f"({parts[0]} {sign} {parts[1]})"
    return f"(scalar_t)({parts[0]} {sign} {parts[1]})"


def _evaluate(tree, values, dtype):
    kind, *rest = tree
    if kind == "number":
        return dtype.type(rest[0])
    if kind == "constant":
        return dtype.type(_CONSTANTS[rest[0]])
    if kind == "name":
        return values[rest[0]]
    parts = [_evaluate(x, values, dtype) for x in rest if isinstance(x, tuple)]
    if kind == "choice":
        return np.where(np.not_equal(parts[0], 0), parts[1], parts[2])
    if kind == "unary":
        value = parts[0]
        if rest[0] == "!":
            return np.equal(value, 0).astype(dtype)
        return -value if rest[0] == "-" else value
    if kind == "call":
        return np.asarray(_FUNCTIONS[rest[0]][1](*parts)).astype(dtype)
    operation = next(level[rest[0]] for level in _BINARY if rest[0] in level)
    return np.asarray(operation(*parts)).astype(dtype)
