"""Names of precisions: what they ask for, which holds, and which kernels then serve."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from kinds import plain_kind

import clmatmul
from clmatmul.errors import ArgumentError, UnsupportedError
from clmatmul.precision import default_precision, read_precision
from clmatmul.problem import ArrayView, Problem
from clmatmul.variants import Constraint, _requirements, all_variants


@pytest.mark.parametrize("name, level, accumulate", [
    ("highest", "highest", None), ("high", "high", None), ("medium", "medium", None),
    ("F32_F32_F32", "highest", None), ("TF32_TF32_F32", "high", None),
    ("BF16_BF16_F32", "medium", None), ("F16_F16_F32", "high", None),
    ("BF16_BF16_F32_X3", "highest", None), ("TF32_TF32_F32_X3", "highest", None),
    ("BF16_F32_F32", "highest", None), ("F32_F32_F64", "highest", "float64"),
    ("BF16_BF16_BF16", "medium", None), ("F64_F64_F64", "highest", "float64"),
])  # fmt: skip
def test_a_name_asks_for_no_more_than_it_says_and_gets_no_less(name, level, accumulate):
    found = read_precision(name)
    assert (found.level, found.accumulate) == (level, accumulate)


@pytest.mark.parametrize("name", ["", "low", "F32", "F32_F32_F16_X2", "f32_f32_f32", None, 3])
def test_unknown_names_are_listed_against(name):
    with pytest.raises(ArgumentError, match="highest, high, medium.*BF16_BF16_F32"):
        read_precision(name)


def test_a_block_holds_for_its_thread_and_nests():
    seen = []
    with clmatmul.use_precision("medium"):
        with clmatmul.use_precision("TF32_TF32_F32"):
            assert default_precision() == "TF32_TF32_F32"
            thread = threading.Thread(target=lambda: seen.append(default_precision()))
            thread.start()
            thread.join()
        assert default_precision() == "medium"
    assert default_precision() == "highest" and seen == ["highest"]
    with pytest.raises(ArgumentError, match="low"), clmatmul.use_precision("low"):
        pass


@pytest.mark.parametrize("value, want", [("high", "high"), ("", "highest"), ("wrong", "error")])
def test_the_environment_sets_the_default(value, want):
    code = (
        "from clmatmul.precision import default_precision\n"
        "from clmatmul.errors import ArgumentError\n"
        "try: print(default_precision())\n"
        "except ArgumentError as e: print('error' if 'CLMATMUL_PRECISION=wrong' in str(e) else e)"
    )
    environment = {**os.environ, "CLMATMUL_PRECISION": value}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == want


@pytest.mark.parametrize("dtype, want", [
    ("float32", "medium"), ("complex64", "medium"), ("float64", "highest"), ("int32", "highest"),
    ("float16", "highest"), ("bool", "highest"),
])  # fmt: skip
def test_only_float32_products_differ_by_it(dtype, want):
    view = ArrayView.of(np.empty((8, 8), dtype))
    problem = Problem.from_arrays(view, view, view, precision="medium")
    assert problem.precision == problem.kind.precision == want


def test_a_product_of_default_precision_keeps_its_key():
    """Tuning records of the default say nothing of precision."""
    assert "precision" not in plain_kind("float32").key
    assert "precision=high" in plain_kind("float32", precision="high").key


def test_a_kernel_that_rounds_operands_serves_only_who_allows_it():
    rounding = [Constraint(x, "file") for x in _requirements({"PRECISIONS": ("high", "medium")})]
    exact = [Constraint(x, "file") for x in _requirements({})]

    def served(constraints, level):
        names = {"kind": plain_kind("float32", precision=level), "profile": None}
        return not any(c.violation(names, "here") for c in constraints)

    assert [served(rounding, x) for x in ("highest", "high", "medium")] == [False, True, True]
    assert [served(exact, x) for x in ("highest", "high", "medium")] == [True, True, True]
    assert {"naive", "tiled"} <= {v.name for v in all_variants()}


@pytest.mark.parametrize("precision", ["high", "medium", "TF32_TF32_F32", "F32_F32_F64"])
def test_what_the_device_cannot_do_becomes_better(device, rng, precision):
    if precision == "F32_F32_F64" and not device.profile.fp64:
        pytest.skip("accumulates in float64")
    a, b = (rng.standard_normal((40, 50)).astype("f4") for _ in "ab")
    exact = a.astype("f8") @ b.T.astype("f8")
    bound = 2e-3 if not device.profile.is_cpu else 1e-5
    got = clmatmul.matmul(a, b.T, precision=precision)
    assert np.abs(got - exact).max() <= bound * np.abs(exact).max()
    with clmatmul.use_precision(precision):
        assert np.array_equal(clmatmul.matmul(a, b.T), got)
        plan = clmatmul.MatMul(a, b.T)
    assert np.array_equal(plan(a, b.T), got)
    assert plan.problem.precision == read_precision(precision).level or (
        plan.problem.compute == "float64"
    )


def test_an_accumulator_that_a_precision_names(device, rng):
    a, b = (rng.standard_normal((30, 30)).astype("f4") for _ in "ab")
    if not device.profile.fp64:
        with pytest.raises(UnsupportedError):
            clmatmul.matmul(a, b, precision="F32_F32_F64")
        return
    exact = a.astype("f8") @ b.astype("f8")
    assert np.array_equal(clmatmul.matmul(a, b, precision="F32_F32_F64"), exact.astype("f4"))
