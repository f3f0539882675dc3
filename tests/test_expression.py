"""A user's expression: what it may say, what it means, and that nothing else gets through."""

import numpy as np
import pytest

from clmatmul.errors import ArgumentError
from clmatmul.expression import MAX_LENGTH, read_expression

LITERAL = "{}f".format


def value(text, extras=(), **values):
    dtype = np.dtype("f8")
    arrays = {name: np.asarray(x, dtype) for name, x in {"row": 0, "col": 0, **values}.items()}
    return float(read_expression(text, extras).evaluate(arrays))


@pytest.mark.parametrize("text, want", [
    ("acc", 3), ("acc + 2 * 5", 13), ("(acc + 2) * 5", 25), ("10 - acc - 2", 5), ("-acc", -3),
    ("2 / 4 / 2", 0.25), ("acc > 2 ? 1 : acc > 1 ? 2 : 3", 1), ("1 ? 2 ? 3 : 4 : 5", 3),
    ("!acc", 0), ("!!acc", 1), ("acc == 3 && row < 1", 1), ("acc != 3 || row", 0),
    ("1 < 2 == 1", 1), ("acc <= 3.0f", 1), ("acc >= 1e2", 0), (".5 + 1. + 2.5e-1", 1.75),
    ("fmax(acc, 7)", 7), ("fabs(-acc)", 3), ("sqrt(4) + exp(0)", 3), ("+acc", 3),
    ("acc > 0 ? INFINITY : 0", np.inf), ("isnan(NAN)", 1), ("pow(acc, 2)", 9), ("- -acc", 3),
    ("copysign(acc, -1)", -3), ("\tacc\n* 2 ", 6),
])  # fmt: skip
def test_meaning(text, want):
    assert value(text, acc=3) == want
    again = read_expression(text).as_text()
    assert value(again, acc=3) == want and read_expression(again).as_text() == again


def test_extras_and_places():
    text = "col >= row ? acc * mask + row : -1"
    assert value(text, ("mask",), acc=2, mask=5, row=3, col=4) == 13
    swapped = read_expression(text, ("mask",)).as_text(swapped=True)
    assert value(swapped, ("mask",), acc=2, mask=5, row=4, col=3) == 13
    assert read_expression(text, ("mask",)).uses_place and not read_expression("acc").uses_place


def test_as_opencl_c():
    """Every number is floating, so nothing can divide whole numbers."""
    c = read_expression("acc * 2 + x / 3 > 1e3 ? .5 : row", ("x",)).as_c(LITERAL)
    assert c == ("(((scalar_t)(((in_acc * 2.0f) + (in_x / 3.0f)) > 1.0e3f)) != 0f ? 0.5f : in_row)")


@pytest.mark.parametrize("text, exact", [
    ("acc * 2 + 1", True), ("floor(acc)", True), ("acc / 2", False), ("exp(acc)", False),
])  # fmt: skip
def test_what_is_the_same_on_every_device(text, exact):
    assert read_expression(text).is_exact == exact


@pytest.mark.parametrize("text, message", [
    ("", "a value is expected, not 'the end'"),
    ("acc;", r"';' is not allowed \(at character 4\)"),
    ("acc } void", "'}' is not allowed"),
    ("#define", "'#' is not allowed"), ("acc[0]", r"'\[' is not allowed"),
    ('"a"', "is not allowed"), ("acc\\", "is not allowed"), ("acc % 2", "'%' is not allowed"),
    ("acc & 1", "'&' is not allowed"), ("acc = 2", "'=' is not allowed"),
    ("a.x", "'.' is not allowed"), ("1.x", "'x' is not expected"),
    ("get_global_id(0)", "'get_global_id' is unknown; there are acc, col, row, the functions"),
    ("printf(acc)", "'printf' is unknown"), ("(int)acc", "'int' is unknown"),
    ("acc acc", r"'acc' is not expected here \(at character 5\)"), ("(acc", "'\\)' is expected"),
    ("acc)", "'\\)' is not expected"), ("acc ? 1", "':' is expected"), ("fmax(1)", "takes 2"),
    ("fabs", "'\\(' is expected"), ("fabs()", "a value is expected"), ("acc(1)", "not expected"),
    ("é", "is not allowed"), ("1 +", "a value is expected"), ("* 2", "a value is expected"),
    ("acc\0", "is not allowed"), ("0x10", "'x10' is not expected"),
    ("(" * 200 + "acc" + ")" * 200, "operations within each other"),
    ("-" * 300 + "acc", "operations within each other"),
    ("+".join(["acc"] * 200), "operations within each other"),
    ("!" * 990 + "acc", "operations within each other"),
    ("a" * (MAX_LENGTH + 1), "1001 characters"), (3, "is no text"),
])  # fmt: skip
def test_what_is_refused(text, message):
    with pytest.raises(ArgumentError, match=message):
        read_expression(text)


@pytest.mark.parametrize("extras, message", [
    (("acc",), "has a meaning of its own"), (("exp",), "has a meaning of its own"),
    (("a b",), "is no name"), (("x;",), "is no name"), (("x",), "does not use"),
    ((1,), "is no name"),
])  # fmt: skip
def test_names_of_extras_that_are_refused(extras, message):
    with pytest.raises(ArgumentError, match=message):
        read_expression("acc", extras)


def test_random_text_never_gets_through_unread(rng):
    """Whatever is accepted consists of known names, numbers and operators alone."""
    import re

    pieces = ["acc", "row", "1", "2.5", "+", "-", "*", "/", "(", ")", "?", ":", "fabs(", "<", "&&",
              ";", "{", "#", "\\", "'", "__global", "x", ",", "\n", "//", "/*", "e5"]  # fmt: skip
    accepted = 0
    for _ in range(3000):
        text = "".join(rng.choice(pieces) for _ in range(int(rng.integers(1, 9))))
        try:
            c = read_expression(text).as_c(LITERAL)
        except ArgumentError:
            continue
        accepted += 1
        words = set(re.findall(r"[A-Za-z_]\w*", c))
        assert words <= {"in_acc", "in_row", "in_col", "fabs", "scalar_t", "f", "e5f"}
        assert not set(c) & set(";{}#\\'\"[]%&|=") or "&&" in c or "!=" in c or "==" in c
    assert accepted > 50
