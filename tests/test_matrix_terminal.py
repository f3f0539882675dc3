"""Matrices for people: printed, and asked for."""

import io
import sys

import numpy as np
import pytest
from matrix_checks import LESSON, same

from clmatmul.errors import MatrixFileError
from clmatmul.matrix_files import format_matrix, prompt_matrix

# --- for people ---------------------------------------------------------------------------------


def test_format_matrix():
    assert format_matrix(LESSON) == "1  4\n2  5\n3  6"
    assert format_matrix(np.array([[1, -20], [300, 4]])) == "  1  -20\n300    4"
    assert format_matrix(np.array([[1.5, 100], [22.25, 1 / 3]])) == (
        " 1.5   100\n22.25    0.333333"
    )
    assert format_matrix(np.array([[1 / 3]]), precision=3) == "0.333"
    assert format_matrix(np.array([1 + 2j, -1.5j])) == "1+2j  -0-1.5j"
    assert format_matrix(np.array([[True], [False]])) == " True\nFalse"
    assert format_matrix(np.array(3)) == "3"
    assert format_matrix(np.zeros((0, 3))) == "(no elements: 0 x 3)"
    assert format_matrix(np.array([[np.nan, np.inf], [1.5, -1e300]])) == (
        "nan        inf\n  1.5  -1e+300"
    )


def test_format_matrix_leaves_out_the_middle():
    matrix = np.arange(100).reshape(10, 10)
    assert format_matrix(matrix, max_rows=3, max_columns=4).splitlines() == [
        "  0    1  ...    8    9",
        " 10   11  ...   18   19",
        "...  ...  ...  ...  ...",
        " 90   91  ...   98   99",
    ]
    large = format_matrix(np.random.default_rng(1).random((500, 500)))
    lines = large.splitlines()
    assert len(lines) == 21 and large.isascii()
    assert all(line == line.rstrip() and len(line) < 120 for line in lines)
    assert format_matrix(np.arange(5), max_rows=1, max_columns=1) == "0  ...  4"


def test_format_matrix_of_more_dimensions():
    text = format_matrix(np.arange(12).reshape(6, 1, 2))
    assert text.startswith("[0]\n0  1\n\n[1]\n2  3\n\n")
    assert text.endswith("[3]\n6  7\n\n... (2 more)")
    assert format_matrix(np.zeros((1, 2, 1, 1), int)) == "[0, 0]\n0\n\n[0, 1]\n0"


# --- asking -------------------------------------------------------------------------------------


def ask(*answers):
    """The matrix and all that was printed, for these answers; then the input ends."""
    left = list(answers)
    prompts = []

    def answer(prompt):
        prompts.append(prompt)
        if not left:
            raise EOFError
        return left.pop(0)

    output = io.StringIO()
    try:
        matrix = prompt_matrix("A", input=answer, output=output)
    except MatrixFileError as error:
        matrix = error
    assert not left and set(prompts) <= {""}  # a prompt of input() would be on standard output
    return matrix, output.getvalue()


def test_prompt_matrix():
    matrix, text = ask("3", "2", "1 4", "2, 5", "3,6")
    assert same(matrix, LESSON)
    assert text == (
        "A: number of rows: A: number of columns: A, row 1 (2 elements): A, row 2 (2 elements): "
        "A, row 3 (2 elements): "
    )
    assert same(ask("1", "1", " 2.5 ")[0], [[2.5]])
    assert same(ask("2", "1", "1", "2j")[0], [[1], [2j]])


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (("x", "1", "1", "5"), "'x' is not a whole number, such as 3"),
        (("", "1", "1", "5"), "'' is not a whole number, such as 3"),
        (("2.5", "1", "1", "5"), "'2.5' is not a whole number, such as 3"),
        (("-1", "1", "1", "5"), "'-1' is not a whole number, such as 3"),
        (("0", "1", "1", "5"), "0: must be from 1 to 10000"),
        (("1", "10001", "1", "5"), "10001: must be from 1 to 10000"),
        (("9" * 30, "1", "1", "5"), "is not a whole number, such as 3"),
        (("1", "1", "5 6", "5"), "2 elements, not 1: type the row again"),
        (("1", "1", "abc", "5"), "element 1: 'abc' is not a number: type the row again"),
        (("1", "1", "", "5"), "one row is asked for: 1 element, parted by spaces or commas"),
        (("1", "1", "5;", "5"), "one row is asked for: 1 element, parted by spaces or commas"),
    ],
)
def test_prompt_matrix_asks_again(answers, reason):
    matrix, text = ask(*answers)
    assert same(matrix, [[5]])
    assert f"  {reason}\n" in text or reason in text


def test_prompt_matrix_keeps_one_kind():
    matrix, text = ask("2", "1", "1", "True", "2")
    assert same(matrix, [[1], [2]])
    assert "  element 1: numbers and True or False do not mix: type the row again\n" in text


@pytest.mark.parametrize("answers", [(), ("2",), ("2", "1"), ("2", "1", "5")])
def test_prompt_matrix_at_the_end_of_input(answers):
    error, text = ask(*answers)
    assert str(error) == "A: the input ended before the matrix did"
    assert text.endswith("\n")


def test_prompt_matrix_tells_a_size_that_is_known():
    output = io.StringIO()
    answers = iter(["2", "1 2", "3 4"])
    found = prompt_matrix("B", rows=2, input=lambda question: next(answers), output=output)
    assert same(found, np.array([[1, 2], [3, 4]]))
    assert output.getvalue().startswith("B: number of rows: 2, as the other matrix needs it\n")
    answers = iter(["1", "1 2 3"])
    assert prompt_matrix(
        "B", columns=3, input=lambda question: next(answers), output=output
    ).shape == (1, 3)


def test_prompt_matrix_by_default_asks_on_standard_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n2\n3 4\n"))
    assert same(prompt_matrix("B"), [[3, 4]])
    captured = capsys.readouterr()
    assert captured.out == "" and "B, row 1 (2 elements): " in captured.err
