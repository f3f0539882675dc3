"""Rendered sources: free of sizes, strides and scalars, and in agreement with the host."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from clmatmul.config import TileConfig
from clmatmul.device_profile import DeviceProfile
from clmatmul.explanation import plain_problem
from clmatmul.plan import make_plan, render
from clmatmul.problem import Operand
from clmatmul.variants import load_variant, variant_names

FOLDER = Path(__file__).parent / "profiles"
PROFILES = [DeviceProfile.from_json(f.read_text()) for f in sorted(FOLDER.glob("*.json"))]
AMD = next(p for p in PROFILES if p.family == "amd")


def plans(name, *problems):
    """The plans of a variant's default for problems, on each device that has it for all of them."""
    variant = load_variant(name)
    for profile in PROFILES:
        if not any(variant.reject(variant.default, x, profile) for x in problems):
            yield from (make_plan(x, profile, variant.default) for x in problems)


@pytest.mark.parametrize("layout", ["NN", "TT"])
@pytest.mark.parametrize("name", variant_names())
def test_no_size_in_the_text(name, layout):
    problems = [
        plain_problem(*sizes, layout=layout, batch=(b,))
        for sizes, b in (((1024, 4096, 2048), 7), ((3008, 1088, 5056), 5))
    ]
    texts = [render(p) for p in plans(name, *problems)]
    assert texts[::2] == texts[1::2]


def test_no_scalar_in_the_text():
    problem = replace(plain_problem(64, 64, 64), alpha="general", beta="general",
                      c=Operand("float32", 64, 1))  # fmt: skip
    (source,) = render(make_plan(problem, AMD, TileConfig.of("naive", work_group_size=8)))
    assert "const acc_t alpha" in source and "const acc_t beta" in source


@pytest.mark.parametrize("name", variant_names())
def test_parameters_are_those_that_the_host_sets(name):
    for plan in plans(name, plain_problem(100, 90, 80, batch=(3,))):
        for launch, source in zip(plan.launches, render(plan), strict=True):
            inside = re.search(rf"\b{launch.entry}\(([^)]*)\)", source).group(1)
            declared = [" ".join(x.split()) for x in inside.split(",")]
            assert declared == [" ".join(str(x).split()) for x in launch.arguments]
            assert source.count("__kernel") == 1  # one entry point a program


@pytest.mark.parametrize("name", variant_names())
def test_comments_and_code_are_plain_text(name):
    for plan in plans(name, plain_problem(64, 64, 64)):
        for source in render(plan):
            assert source.isascii() and source.endswith("\n") and "\n\n\n" not in source
            assert "UNDEFINED" not in source and "<%" not in source and "${" not in source


@pytest.mark.parametrize("name", ["naive", "tiled"])
def test_only_tiled_has_barriers_and_local_memory(name):
    (source,) = render(next(plans(name, plain_problem(64, 64, 64))))
    code = "\n".join(line.split("//")[0] for line in source.splitlines())
    expected = 2 if name == "tiled" else 0
    assert code.count("barrier(CLK_LOCAL_MEM_FENCE)") == expected
    assert len(re.findall(r"__local acc_t \w+\[", code)) == expected


def test_reproducible_forbids_contraction():
    problem = plain_problem(64, 64, 64)
    config = TileConfig.of("naive", work_group_size=8)
    assert "FP_CONTRACT" not in render(make_plan(problem, AMD, config))[0]
    strict = render(make_plan(replace(problem, reproducible=True), AMD, config))[0]
    assert "#pragma OPENCL FP_CONTRACT OFF" in strict


def test_wide_indices():
    problem = replace(plain_problem(64, 64, 64), wide_index=True)
    config = TileConfig.of("naive", work_group_size=8)
    assert "typedef long index_t;" in render(make_plan(problem, AMD, config))[0]
    plain = replace(problem, wide_index=False)
    assert "typedef int index_t;" in render(make_plan(plain, AMD, config))[0]
