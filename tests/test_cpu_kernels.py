"""What is particular to the CPU kernels: how shapes choose among them, how work is cut."""

import numpy as np
import pytest
from conftest import skip_without_fp64

import clmatmul
from clmatmul.choose import choose
from clmatmul.config import TileConfig
from clmatmul.explanation import plain_problem
from clmatmul.plan import make_plan
from clmatmul.variants import load_variant


@pytest.fixture
def profile(device):
    if not device.profile.is_cpu:
        pytest.skip("CPU kernels are offered on CPUs only")
    return device.profile


def best(m, n, k, profile, dtype="float32", layout="NN", batch=()):
    return choose(plain_problem(m, n, k, dtype, layout, batch), profile)[0].config


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int8"])
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_a_hundred_shapes_need_few_programs(profile, device, rng, dtype, layout):
    skip_without_fp64(device, dtype)
    keys = set()
    for _ in range(100):
        m, n, k = (int(x) for x in rng.integers(2, 1500, 3))
        problem = plain_problem(m, n, k, dtype, layout)
        plan = make_plan(problem, profile, choose(problem, profile)[0].config)
        keys |= {launch.source_key for launch in plan.launches}
    assert len(keys) <= 9  # four, and one for each micro_m of few rows and width of few columns


def test_shapes_choose_their_kernel(profile):
    assert best(100, 100, 100, profile).variant == "cpu_direct"
    assert best(256, 256, 256, profile).variant == "cpu_staged"
    assert best(600, 600, 600, profile).variant == "cpu_staged"
    assert best(2000, 2000, 2000, profile).variant == "cpu_packed"
    assert best(16, 4096, 4096, profile).variant == "cpu_sweep"
    assert best(4096, 1, 4096, profile).variant == "cpu_dot"
    row = best(1, 4096, 4096, profile)
    assert row.variant == "cpu_sweep" and row.values()["micro_m"] == 1
    assert best(32, 32, 32, profile, batch=(1000,)).values()["micro_m"] == 4


def test_few_rows_and_few_columns_choose_theirs(profile):
    assert best(40, 1000, 1000, profile).variant == "cpu_direct"
    assert best(40, 500, 500, profile).variant == "cpu_staged"  # the second-level cache holds B
    assert best(2048, 128, 2048, profile).variant == "cpu_staged"  # a packed A would serve few
    assert best(2048, 128, 2048, profile, layout="TN").variant == "cpu_packed"
    assert best(16, 1000, 1000, profile, layout="NT").variant == "cpu_dot"
    assert best(16, 8192, 8192, profile, layout="NT").variant == "cpu_staged"
    assert best(512, 512, 64, profile, layout="NT").variant == "cpu_packed"
    assert best(300, 300, 64, profile, layout="NT").variant == "cpu_staged"
    for n, variant, width in ((2, "cpu_direct", 2), (3, "cpu_staged", 4), (8, "cpu_direct", 8)):
        config = best(1000, n, 1000, profile)
        assert config.variant == variant and config.values()["vector_width"] == width
    assert best(3, 3, 3, profile, batch=(1000,)).values()["micro_m"] == 4


def test_a_column_major_matrix_times_a_vector_reads_memory_in_order(profile):
    """out = A x with A by columns is the row x.T @ A.T, which reads A's memory line by line."""
    a = np.asfortranarray(np.ones((40, 30), "f4"))
    plan = clmatmul.MatMul(a, np.ones((30, 1), "f4"))
    assert plan.problem.swapped and plan.problem.m == 1
    assert plan.problem.b.order == "row"


@pytest.mark.parametrize("name", ["cpu_packed", "cpu_staged", "cpu_direct"])
@pytest.mark.parametrize("size", [(1, 17, 5), (777, 1001, 300), (33, 2000, 70), (2000, 33, 70)])
def test_tiles_are_balanced(profile, name, size):
    """Panels are shared out so that no tile has two more than another, and all are covered."""
    problem = plain_problem(*size)
    config = next(c.config for c in choose(problem, profile) if c.config.variant == name)
    values = dict(make_plan(problem, profile, config).launches[-1].values)
    for panels, tiles in (("panels_m", "tiles_m"), ("panels_n", "tiles_n")):
        p, t = values[panels], values[tiles]
        shares = [(i + 1) * p // t - i * p // t for i in range(t)]
        assert sum(shares) == p and max(shares) - min(shares) <= 1 and min(shares) >= 1


@pytest.mark.parametrize("k", [64, 65, 100, 1217, 16384])
@pytest.mark.parametrize("splits", [1, 2, 8, 32])
def test_parts_and_blocks_of_k_cover_it_once(profile, k, splits):
    problem = plain_problem(12, 32, k)
    config = TileConfig.of("cpu_staged", micro_m=6, vectors=1, vector_width=4, unroll=2,
                           tile_n=32, block_k=64, tile_m=24, splits=splits)  # fmt: skip
    v = dict(make_plan(problem, profile, config).launches[0].values)
    terms = []
    for part in range(v["splits"]):
        begin, end = part * v["per_split"], min((part + 1) * v["per_split"], k)
        assert begin < end
        for block in range(v["k_blocks"]):
            first = begin + block * v["block"]
            terms += range(first, min(first + v["block"], end))
    assert terms == list(range(k))


def test_a_long_thin_product_is_split_over_k(profile):
    config = best(64, 64, 16384, profile)
    tiles = 1
    assert config.variant == "cpu_staged"
    assert config.values()["splits"] * tiles >= min(profile.compute_units, 8)


@pytest.mark.parametrize("variant", ["cpu_packed", "cpu_staged"])
def test_every_float16_is_read_and_rounded_as_numpy_does(profile, device, variant):
    """All 65,536 of them, and the floats between two neighbours: halfway, and just beside."""
    every = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    one = np.eye(1, dtype=np.float16)
    column = every.reshape(-1, 1)
    keywords = {"config": load_variant(variant).default, "device": device}
    plan = clmatmul.MatMul(column, one, epilogue=clmatmul.Epilogue(dtype="float32"), **keywords)
    assert np.array_equal(plan(column, one), column.astype(np.float32), equal_nan=True)
    finite = np.sort(every[np.isfinite(every)].astype(np.float32))
    middle = (finite[1:] + finite[:-1]) / 2
    beside = [np.nextafter(middle, np.float32(x)) for x in (-np.inf, np.inf)]
    past = np.array([65519.996, 65520, 1e6, np.inf, np.nan, -65520, 1e-30, -1e-45], "f4")
    values = np.concatenate([middle, *beside, past]).reshape(-1, 1)
    factor = np.ones((1, 1), "f4")
    half = clmatmul.Epilogue(dtype="float16")
    rounding = clmatmul.MatMul(values, factor, epilogue=half, **keywords)
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16)
    assert np.array_equal(rounding(values, factor), expected, equal_nan=True)
