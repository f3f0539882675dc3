"""The contract of a product, for every variant: found in kernels/, so a new file is tested too.

Four layers (clmatmul/cases.py): exact, one-hot, bounds, special values; sizes come from each
variant's own parameters.
"""

from dataclasses import replace

import numpy as np
import pytest
from conftest import skip_without_fp64
from kinds import (
    DTYPES,
    MORE_CONFIGS,
    aligned,
    check,
    cut_lengths,
    mixed_kind,
    plain_kind,
    small_config,
    test_configs,
    whole_configs,
)

from clmatmul import probes
from clmatmul.cases import edge_sizes, like, make_case
from clmatmul.errors import ConfigError
from clmatmul.trial import check_sizes, run_case, tile_of
from clmatmul.variants import load_variant, variant_names

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("no_binaries")]
VARIANTS = variant_names()
LAYOUTS = ("NN", "NT", "TN", "TT")


def kind_for(variant, dtype="float32", layout=None, out="N", **changes):
    """The kind of a plain product, in the layout that the variant is made for by default.

    A variant that serves no float32, or only well-aligned operands, names what it does serve.
    """
    header = load_variant(variant).header
    if layout is None:
        layout = header.get("TEST_LAYOUT", "NN")
    if dtype == "float32":
        dtype = header.get("TEST_DTYPE", dtype)
    kind = plain_kind(dtype, layout, out, **changes)
    return aligned(kind, header.get("TEST_ALIGNMENT", 1))


def served(device, variant, kind):
    """Skip where the variant is not offered, with its own reason."""
    dtypes = [kind.a.dtype, kind.b.dtype, kind.out.dtype]
    skip_without_fp64(device, *dtypes)
    if kind.needs_fp64 and not device.profile.fp64:
        pytest.skip("the device has no float64")
    if not load_variant(variant).unmet(kind, assumed(variant, device.profile)):
        probes.ensure(device, kind)
    reasons = load_variant(variant).unmet(kind, device.profile)
    if reasons:
        pytest.skip(reasons[0])


def assumed(variant, profile):
    """The profile as if every probe that the variant asks for had gone well."""
    return profile.with_probes(**load_variant(variant).header.get("PROBES", {}))


def refused(device, config, kind, rng):
    """Why a configuration serves none of its own check sizes, the last apart; () if it does."""
    for size in check_sizes(config)[:-1]:
        case = make_case(kind, *size, "exact", rng, with_result=False)
        reasons = load_variant(config.variant).reject(config, case.problem, device.profile)
        if not reasons:
            return ()
    return reasons


@pytest.mark.tiny
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_dtype(device, about, rng, variant, dtype):
    """Every dtype: each element proves its address, and sums are exact."""
    about("dtype", variant)
    kind = kind_for(variant, dtype)
    served(device, variant, kind)
    config = small_config(variant)
    for size in check_sizes(config):
        for data in ("ids_a", "ids_b", "exact"):
            check(device, config, kind, size, data, rng)


@pytest.mark.parametrize("layout", [*LAYOUTS, "SS", "ST"])
@pytest.mark.parametrize("out", "NTS")
@pytest.mark.parametrize("variant", VARIANTS)
def test_layout(device, about, rng, variant, layout, out):
    """All transposes and strided operands, into row-major, column-major and strided outputs."""
    about("layout", variant)
    kind = kind_for(variant, "float32", layout, out)
    served(device, variant, kind)
    config = small_config(variant)
    for size in check_sizes(config):
        for data in ("ids_a", "ids_b", "exact"):
            check(device, config, kind, size, data, rng)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128", "int32"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_layout_of_other_dtypes(device, about, rng, variant, dtype, layout):
    about("layout", variant)
    kind = kind_for(variant, dtype, layout)
    served(device, variant, kind)
    config = small_config(variant)
    for data in ("ids_a", "exact"):
        check(device, config, kind, check_sizes(config)[0], data, rng)


def between(variant):
    """Alignments between none and the best, which a variant tells apart."""
    return load_variant(variant).header.get("ALIGNMENT_CLASSES", (1,))[1:-1]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", [x for x in VARIANTS if between(x)])
def test_alignments_in_between(device, about, rng, variant, layout):
    """Operands that are better aligned than they must be, and not as well as they could be."""
    about("layout", variant)
    for alignment in between(variant):
        kind = aligned(kind_for(variant, "float32", layout), alignment)
        served(device, variant, kind)
        configs = [x for x in test_configs(variant) if not refused(device, x, kind, rng)]
        assert configs
        for config in configs:
            for size in check_sizes(config):
                for data in ("ids_a", "ids_b", "exact"):
                    check(device, config, kind, size, data, rng)


def made_aligned(variant):
    return "TEST_ALIGNMENT" in load_variant(variant).header


@pytest.mark.parametrize("sides", ["out", "a b out"])
@pytest.mark.parametrize("variant", [x for x in VARIANTS if made_aligned(x)])
def test_no_alignment(device, about, rng, variant, sides):
    """Operands that begin anywhere, where all other tests have them well aligned."""
    about("layout", variant)
    kind = kind_for(variant, "float32")
    kind = replace(kind, **{x: replace(getattr(kind, x), alignment=1) for x in sides.split()})
    served(device, variant, kind)
    for config in [x for x in test_configs(variant) if not refused(device, x, kind, rng)]:
        for size in check_sizes(config):
            for data in ("ids_a", "ids_b", "exact"):
                check(device, config, kind, size, data, rng)


@pytest.mark.parametrize("variant", VARIANTS)
def test_edges(device, about, rng, variant):
    """Every residue round the tile borders of m, n and k, and two tiles without one."""
    about("edges", variant)
    kind = kind_for(variant, "float32")
    served(device, variant, kind)
    config = small_config(variant)
    values = config.values()
    borders = {x: [v for p, v in values.items() if p.endswith(f"_{x}")] for x in "mnk"}
    tile = dict(zip("mnk", tile_of(config), strict=True))
    for m in edge_sizes(*borders["m"], tile["m"], limit=70):
        for n in edge_sizes(*borders["n"], tile["n"], limit=70):
            for k in edge_sizes(*borders["k"], tile["k"], limit=70):
                check(device, config, kind, (m, n, k), "exact", rng)
    check(device, config, kind, tuple(2 * x for x in tile.values()), "exact", rng)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_test_configuration(device, about, rng, variant):
    """Each configuration that the variant lists for tests, and its default; parts in a batch."""
    about("configurations", variant)
    served(device, variant, kind_for(variant, "float32"))
    for config in [*test_configs(variant), load_variant(variant).default]:
        kind = kind_for(variant, "float32", batch_rank=config.values().get("splits", 1) > 1)
        if refused(device, config, kind, rng):
            continue
        m, n, k = check_sizes(config)[0]
        more = [(m, n + 1, x) for x in cut_lengths(config.values().get("splits", 1))]
        band = config.values().get("group_rows", 1)  # a whole one of tiles, and a part of one
        more += [(1, 1, k), ((band + 1) * (m - 1) + 1, 2 * n, 3)][: 1 + (band > 1)]
        for size in (*check_sizes(config), *more):
            for data in ("ids_a", "ids_b", "exact"):
                check(device, config, kind, size, data, rng)


@pytest.mark.parametrize("layout", ["TT", "SS"])
@pytest.mark.parametrize("variant", sorted(MORE_CONFIGS))
def test_more_configurations(device, about, rng, variant, layout):
    """Those with several warps, or lines of A instead of B, in other layouts."""
    about("configurations", variant)
    kind = kind_for(variant, "float32", layout)
    served(device, variant, kind)
    for config in whole_configs(variant):
        for size in check_sizes(config):
            for data in ("ids_a", "ids_b", "exact"):
                check(device, config, kind, size, data, rng)


@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize("variant", [x for x in VARIANTS if "along" in load_variant(x).parameters])
def test_lines_kept_as_they_lie(device, about, rng, variant, layout):
    """Every configuration for tests, with rows of A that are not transposed on their way."""
    about("configurations", variant)
    kind = kind_for(variant, "float32", layout, batch_rank=1)
    kind = aligned(kind, 16)
    served(device, variant, kind)
    along = [config.with_values(along=1) for config in test_configs(variant)]
    fitting = [config for config in along if not refused(device, config, kind, rng)]
    assert fitting
    for config in fitting:
        for size in check_sizes(config):
            for data in ("ids_a", "ids_b", "exact", "special"):
                check(device, config, kind, size, data, rng)


@pytest.mark.tiny
@pytest.mark.parametrize("alpha", ["zero", "one", "general"])
@pytest.mark.parametrize("beta", ["zero", "one", "general"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_alpha_beta(device, about, rng, variant, alpha, beta):
    """C is poisoned with NaN where beta is 0, A and B where alpha is 0."""
    about("alpha, beta", variant)
    c = None if beta == "zero" else "float32"
    kind = kind_for(variant, "float32", alpha=alpha, beta=beta, c=c)
    served(device, variant, kind)
    config = small_config(variant)
    for size in check_sizes(config):
        check(device, config, kind, size, "exact", rng)


@pytest.mark.parametrize("beta", ["one", "general"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_c_in_the_outputs_memory(device, about, rng, variant, beta):
    """gemm(a, b, c, beta=2, out=c): what is computed twice at an edge must not be added twice."""
    about("alpha, beta", variant)
    dtype = kind_for(variant).out.dtype
    kind = kind_for(variant, alpha="general", beta=beta, c=dtype, batch_rank=1)
    served(device, variant, kind)
    tried = [(small_config(variant), kind)]
    if beta == "general":  # and lines of the result that are columns, of several teams
        columns = replace(kind, out=replace(kind.out, order="column"))
        if not load_variant(variant).unmet(columns, device.profile):
            tried += [(config, columns) for config in test_configs(variant)[:2]]
    for config, kind in tried:
        m, n, k = check_sizes(config)[0]
        for size in (*check_sizes(config), (2 * m + 3, 2 * n + 5, k)):
            check(device, config, kind, size, "exact", rng, in_place=True)


@pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128", "int8", "uint16", "int64",
                                   "bool", "float16"])  # fmt: skip
@pytest.mark.parametrize("variant", VARIANTS)
def test_alpha_beta_of_other_dtypes(device, about, rng, variant, dtype):
    about("alpha, beta", variant)
    kind = kind_for(variant, dtype, alpha="general", beta="general", c=dtype)
    served(device, variant, kind)
    config = small_config(variant)
    check(device, config, kind, check_sizes(config)[0], "exact", rng)


@pytest.mark.parametrize("alpha", [0.5, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("beta", [0.5, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("variant", VARIANTS)
def test_scalar_values(device, about, rng, variant, alpha, beta):
    about("alpha, beta", variant)
    kind = kind_for(variant, "float32", alpha="general", beta="general", c="float32")
    served(device, variant, kind)
    config = small_config(variant)
    size = check_sizes(config)[0]
    check(device, config, kind, size, "exact", rng, scalars={"alpha": alpha, "beta": beta})


@pytest.mark.parametrize("beta", ["zero", "general"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_no_terms(device, about, rng, variant, beta):
    """k = 0 is a sum of nothing: beta * C."""
    about("k = 0", variant)
    c = None if beta == "zero" else "float32"
    kind = kind_for(variant, "float32", alpha="zero", beta=beta, c=c)
    served(device, variant, kind)
    config = small_config(variant)
    m, n, _ = check_sizes(config)[0]
    check(device, config, kind, (m, n, 0), "exact", rng)


@pytest.mark.parametrize("dtypes", [
    ("float32", "float64"), ("int32", "float32"), ("int8", "float32"), ("uint8", "int8"),
    ("int64", "int32"), ("bool", "float32"), ("float16", "float32"), ("float32", "complex64"),
    ("complex128", "float32"), ("uint32", "int32"), ("float16", "int8"), ("bool", "int16"),
])  # fmt: skip
@pytest.mark.parametrize("variant", VARIANTS)
def test_mixed_dtypes(device, about, rng, variant, dtypes):
    """Operands are widened in the kernel's loads."""
    about("mixed dtypes", variant)
    kind = mixed_kind(*dtypes, load_variant(variant).header.get("TEST_LAYOUT", "NN"))
    served(device, variant, kind)
    config = small_config(variant)
    for data in ("ids_a", "exact"):
        check(device, config, kind, check_sizes(config)[0], data, rng)


@pytest.mark.parametrize("out", ["float64", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_output_type(device, about, rng, variant, out):
    """One rounding, to the output's type."""
    about("output type", variant)
    kind = kind_for(variant, "float32")
    kind = replace(kind, out=replace(kind.out, dtype=out))
    served(device, variant, kind)
    config = small_config(variant)
    for data in ("exact", "random"):
        check(device, config, kind, check_sizes(config)[0], data, rng)


@pytest.mark.parametrize("out", ["int64", "float32", "float64", "complex64"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_integer_products_wrap_before_conversion(device, about, rng, variant, out):
    about("output type", variant)
    kind = kind_for(variant, "int8")
    kind = replace(kind, out=replace(kind.out, dtype=out))
    served(device, variant, kind)
    check(device, small_config(variant), kind, (5, 7, 9), "exact", rng)


@pytest.mark.parametrize("dtypes", [("int32", "int32"), ("uint32", "uint32"), ("int8", "uint16")])
@pytest.mark.parametrize("variant", VARIANTS)
def test_narrow_integers_accumulated_in_wide_ones(device, about, rng, variant, dtypes):
    """Factors of 32 bits, their whole range; sums of 64."""
    about("accumulate", variant)
    kind = mixed_kind(*dtypes, load_variant(variant).header.get("TEST_LAYOUT", "NN"))
    kind = replace(kind, compute="uint64", result="int64", out=replace(kind.out, dtype="int64"))
    served(device, variant, kind)
    config = small_config(variant)
    check(device, config, kind, check_sizes(config)[0], "exact", rng)


@pytest.mark.parametrize("sides", ["a", "b", "ab"])
@pytest.mark.parametrize("layout", ["NN", "TT"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_conjugates(device, about, rng, variant, layout, sides):
    about("conjugates", variant)
    kind = kind_for(variant, "complex64", layout)
    for side in sides:
        kind = replace(kind, **{side: replace(getattr(kind, side), conjugate=True)})
    served(device, variant, kind)
    config = small_config(variant)
    check(device, config, kind, check_sizes(config)[0], "exact", rng)


@pytest.mark.tiny
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_batches(device, about, rng, variant, rank):
    about("batches", variant)
    kind = kind_for(variant, "float32", batch_rank=rank)
    served(device, variant, kind)
    config = small_config(variant)
    for data in ("ids_a", "ids_b", "exact"):
        check(device, config, kind, check_sizes(config)[0], data, rng)


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_one_matrix_for_a_whole_batch(device, about, rng, variant, side):
    """Stride 0 between matrices, for operands that are packed as well."""
    about("batches", variant)
    kind = kind_for(variant, batch_rank=2)
    served(device, variant, kind)
    config = small_config(variant)
    for data in ("ids_a", "ids_b", "exact"):
        check(device, config, kind, check_sizes(config)[0], data, rng, repeated=(side,))


@pytest.mark.tiny
@pytest.mark.parametrize("part", ["bias", "residual", "row_scale", "col_scale"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_epilogue_parts(device, about, rng, variant, part):
    about("epilogue", variant)
    kind = kind_for(variant, "float32", batch_rank=1, **{part: "float32"})
    served(device, variant, kind)
    config = small_config(variant)
    for size in check_sizes(config):
        check(device, config, kind, size, "exact", rng)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh",
                                        "clamp"])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_whole_epilogue(device, about, rng, variant, activation, dtype):
    """All parts at once, in the formula's order, rounded once to another output type."""
    about("epilogue", variant)
    kind = kind_for(
        variant, dtype, alpha="general", beta="general", c=dtype, bias="float32", residual=dtype,
        row_scale="float32", col_scale=dtype, activation=activation,
    )  # fmt: skip
    served(device, variant, kind)
    config = small_config(variant)
    check(device, config, kind, check_sizes(config)[0], "random", rng,
          scalars={"alpha": 0.125, "beta": 0.5})  # fmt: skip


@pytest.mark.tiny
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float32", "float16"),
                                    ("int16", "int16"), ("complex64", "complex64")])  # fmt: skip
@pytest.mark.parametrize("variant", VARIANTS)
def test_auxiliary_output(device, about, rng, variant, dtypes):
    """What the activation is given, rounded once to a type of its own; nothing beside it."""
    about("epilogue", variant)
    dtype, aux = dtypes
    activation = "relu" if dtype == "float32" else "none"
    kind = kind_for(variant, dtype, batch_rank=1, bias=dtype, residual=dtype, aux=aux,
                    activation=activation)  # fmt: skip
    served(device, variant, kind)
    config = small_config(variant)
    for data in ("exact", "random") if dtype == "float32" else ("exact",):
        check(device, config, kind, check_sizes(config)[0], data, rng)


@pytest.mark.tiny
@pytest.mark.parametrize("out", "NT")
@pytest.mark.parametrize("variant", VARIANTS)
def test_expression(device, about, rng, variant, out):
    """One user expression, last, that knows where it is and reads arrays of its own."""
    about("epilogue", variant)
    text = "(col > row + 2 ? -fabs(acc) : acc * 2) + shift * (1.5 - .5) - (row - col) * 1e0"
    kind = kind_for(variant, out=out, batch_rank=1, activation="relu", expression=text,
                    extras=(("shift", "float16"),), bias="float32")  # fmt: skip
    served(device, variant, kind)
    config = small_config(variant)
    for size in check_sizes(config):
        check(device, config, kind, size, "exact", rng)


@pytest.mark.parametrize("dtype, layout", [
    *(("float32", x) for x in LAYOUTS), ("float64", "NN"), ("complex64", "TT"), ("float16", "NT"),
])  # fmt: skip
@pytest.mark.parametrize("variant", VARIANTS)
def test_reproducible_products_have_one_order_of_summation(
    device, about, rng, variant, layout, dtype
):
    """The bits of a loop over k: multiply, round, add, round."""
    about("reproducible", variant)
    kind = kind_for(variant, dtype, layout, reproducible=True)
    served(device, variant, kind)
    config = small_config(variant)
    for size in (*check_sizes(config), (13, 21, 67)):
        case = make_case(kind, *size, "random", rng)
        try:
            after = run_case(device, config, case)
        except ConfigError as error:
            assert any("kind.reproducible" in x or "problem." in x for x in error.reasons)
            return
        result = like(after, case.memory["out"])
        assert np.array_equal(result, in_one_order(case)), f"{config} {size}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_configuration_offered_for_reproducible_products_has_that_order(
    device, about, rng, variant
):
    """Parts and slices of k, blocks of it, every tile: the same bits, or not offered."""
    about("reproducible", variant)
    kind = kind_for(variant, reproducible=True)
    served(device, variant, kind)
    case = make_case(kind, 19, 37, 290, "random", rng)
    for config in [*test_configs(variant), load_variant(variant).default]:
        if not load_variant(variant).reject(config, case.problem, device.profile):
            result = like(run_case(device, config, case), case.memory["out"])
            assert np.array_equal(result, in_one_order(case)), config


def in_one_order(case):
    """The product by NumPy, term by term, each operation rounded."""
    dtype = case.problem.compute
    a, b = (case.memory[x].view.astype(dtype) for x in "ab")
    if not dtype.startswith("complex"):
        total = np.zeros((a.shape[0], b.shape[1]), dtype)
        for i in range(a.shape[1]):
            total = total + a[:, i, None] * b[None, i]
        return total.astype(case.problem.out.dtype)
    real = imag = np.zeros((a.shape[0], b.shape[1]), a.real.dtype)
    for i in range(a.shape[1]):
        x, y = a[:, i, None], b[None, i]
        real = real + x.real * y.real - x.imag * y.imag
        imag = imag + (x.real * y.imag + x.imag * y.real)
    return real + 1j * imag


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "float16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_bound(device, about, rng, variant, dtype, record_property):
    """Random data within the componentwise bound; the ratio is recorded as a drift alarm."""
    about("bound", variant)
    kind = kind_for(variant, dtype)
    served(device, variant, kind)
    config = small_config(variant)
    worst = 0.0
    for size in ((17, 19, 23), (33, 65, 300), (3, 5, 1500)):
        verdict = check(device, config, kind, size, "random", rng)
        worst = max(worst, verdict.error_ratio if verdict else 0.0)
    record_property("error_ratio", worst)
    assert 0 <= worst <= 1


@pytest.mark.tiny
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_special_values(device, about, rng, variant, dtype):
    """NaN and infinity reach their own row or column, and no neighbour through padding."""
    about("special values", variant)
    kind = kind_for(variant, dtype)
    served(device, variant, kind)
    config = small_config(variant)
    for size in check_sizes(config)[:2]:
        for _ in range(3):
            check(device, config, kind, size, "special", rng)


@pytest.mark.parametrize("variant", VARIANTS)
def test_wide_indices(device, about, rng, variant):
    """The 64-bit form of every index."""
    about("wide indices", variant)
    kind = kind_for(variant, "float32", index="long", batch_rank=1)
    served(device, variant, kind)
    config = small_config(variant)
    for data in ("ids_a", "exact"):
        check(device, config, kind, check_sizes(config)[0], data, rng)


@pytest.mark.parametrize("variant", VARIANTS)
def test_same_bits_every_time(device, about, rng, variant):
    about("same bits", variant)
    kind = kind_for(variant, "float32")
    served(device, variant, kind)
    config = small_config(variant)
    case = make_case(kind, 37, 41, 129, "random", rng)
    first = run_case(device, config, case).tobytes()
    assert all(run_case(device, config, case).tobytes() == first for _ in range(3))


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_double_in_float32_kernels(variant, device):
    """A device without float64 must be able to build them."""
    from clmatmul.plan import make_plan, render

    kind = kind_for(
        variant, alpha="general", beta="general", c="float32", bias="float32", activation="gelu"
    )
    rng = np.random.default_rng(0)
    case = make_case(kind, 9, 9, 9, "exact", rng)
    if kind.needs_fp64:
        pytest.skip("made for float64")
    if load_variant(variant).unmet(kind, device.profile):
        pytest.skip("not offered on this device")
    for source in render(make_plan(case.problem, device.profile, small_config(variant))):
        code = [line.split("//")[0] for line in source.splitlines()]
        assert "double" not in "\n".join(code)
        assert "fp64" not in "\n".join(code)
