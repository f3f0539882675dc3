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
    assert best(16, 1000, 700, profile, layout="NT").variant == "cpu_dot"
    assert best(16, 8192, 8192, profile, layout="NT").variant == "cpu_staged"
    assert best(512, 512, 64, profile, layout="NT").variant == "cpu_packed"
    assert best(300, 300, 64, profile, layout="NT").variant == "cpu_staged"
    for n, variant, width in ((2, "cpu_direct", 2), (3, "cpu_staged", 4), (8, "cpu_direct", 8)):
        config = best(1000, n, 1000, profile)
        assert config.variant == variant and config.values()["vector_width"] == width
    assert best(3, 3, 3, profile, batch=(1000,)).values()["micro_m"] == 4


@pytest.mark.parametrize("layout", ["TN", "TT"])
def test_columns_of_a_are_packed_where_enough_sums_share_them(profile, device, layout):
    def variant(m, n, k, dtype):
        return best(m, n, k, profile, dtype, layout).variant

    assert variant(600, 600, 600, "float32") == "cpu_staged"
    assert variant(700, 700, 700, "float32") == "cpu_packed"
    assert variant(1000, 192, 1000, "float32") == "cpu_staged"
    assert variant(1024, 192, 1000, "float32") == "cpu_packed"  # columns a page apart
    skip_without_fp64(device, "float64")
    assert variant(448, 448, 448, "float64") == "cpu_staged"
    for n in (500, 512, 520, 560):
        assert variant(n, n, n, "float64") == "cpu_packed"
    assert variant(2000, 96, 512, "float64") == "cpu_staged"
    assert variant(1024, 128, 1024, "float64") == "cpu_packed"
    for rows in ("NN", "NT"):  # rows of A are read straight on
        assert best(512, 512, 512, profile, "float64", rows).variant == "cpu_staged"


@pytest.mark.parametrize("layout", ["NT", "TT"])
def test_columns_of_a_large_b_are_turned_eight_at_a_time_for_few_rows(profile, device, layout):
    def tile(m, n, k, dtype="float32"):
        config = best(m, n, k, profile, dtype, layout)
        assert config.variant == "cpu_staged"
        return tuple(config.values()[x] for x in ("micro_m", "vector_width", "tile_n", "block_k"))

    assert tile(8, 2048, 2048) == tile(16, 4096, 4096) == (8, 8, 16, 512)
    assert tile(32, 2048, 2048) == (8, 8, 64, 512)
    assert tile(64, 2048, 2048) == (6, 16, 64, 512)  # enough rows for fuller registers
    assert tile(32, 300, 300) == (6, 16, 64, 512)  # too little work for a program of its own
    skip_without_fp64(device, "float64")
    assert tile(8, 4096, 4096, "float64") == (4, 8, 64, 512)
    assert tile(12, 4096, 4096, "float64") == (6, 8, 64, 512)


def test_few_rows_meet_columns_of_b_line_by_line_while_they_stay_at_hand(profile, device):
    def lines(m, n, k, dtype="float32", batch=()):
        values = best(m, n, k, profile, dtype, "NT", batch).values()
        return values["micro_m"], values.get("micro_n")

    assert lines(2, 1000, 300) == lines(8, 300, 128) == lines(16, 64, 384) == (8, 1)
    assert lines(8, 100, 100, batch=(20,)) == (8, 1)
    assert lines(4, 1024, 1024) == lines(12, 1000, 1000) == (4, 1)  # eight lines are too many
    assert lines(16, 1000, 1000) == (8, None)  # all of A would not stay either
    assert lines(3, 4096, 4096) == (3, 4)
    assert lines(1000, 3, 4096) == (8, 1)  # few columns: they stay
    assert lines(3, 300, 32) == lines(300, 3, 32) == (3, 4)
    assert lines(3, 300, 8) == (6, None)  # adding up the lanes would take longer
    skip_without_fp64(device, "float64")
    assert lines(8, 1000, 128, "float64") == (8, 1)
    assert lines(8, 1000, 300, "float64") == (4, 1)
    assert lines(12, 1000, 128, "float64") == (6, None)  # half as many lanes


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
