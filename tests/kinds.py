"""Problem kinds for the numeric suite, the configurations of a variant, and the check of both."""

from dataclasses import replace

from clmatmul.cases import make_case
from clmatmul.config import TileConfig
from clmatmul.element_types import ELEMENT_TYPES, product_type
from clmatmul.errors import ConfigError
from clmatmul.problem import OperandKind, ProblemKind
from clmatmul.trial import check_case
from clmatmul.variants import load_variant

DTYPES = ("float32", "float64", "complex64", "complex128", "int8", "uint8", "int16", "uint16",
          "int32", "uint32", "int64", "uint64", "bool", "float16", "bfloat16")  # fmt: skip
# Beside those in the headers: so many parts of k that eight are added up at a time, or an uneven
# number of them; tiles of full waves in one piece and the others cut; more work-items than a tile
# has chunks in a line, and fewer chunks in a line than most.
MORE_CONFIGS = {
    "cpu_direct": [dict(micro_m=3, vectors=1, vector_width=4, unroll=2, tile_m=6, tile_n=16,
                        block_k=64, splits=32)],
    "cpu_sweep": [dict(micro_m=1, vectors=1, vector_width=4, terms=4, tile_n=256, splits=8)],
    "line_fill": [dict(vector_width=4, lines=1, lanes=4, teams=2)],
    "line_dot": [
        dict(micro_m=2, micro_n=2, lanes=4, teams=2, vector_width=2, unroll=1, splits=64),
        dict(micro_m=2, micro_n=2, lanes=4, teams=2, vector_width=2, unroll=1, splits=1),
    ],
    "line_sweep": [
        dict(large="a", few=2, vector_width=2, lanes=4, slices=2, tile_k=4, unroll=2, splits=1),
        dict(large="b", few=2, vector_width=2, lanes=4, slices=2, tile_k=4, unroll=2, splits=64),
    ],
    "register_blocked": [
        dict(tile_m=8, tile_n=16, tile_k=4, micro_m=2, micro_n=2, vector_width=2, prefetch=0,
             unroll=4, slices=1, group_rows=1, splits=64),
        dict(tile_m=16, tile_n=32, tile_k=8, micro_m=2, micro_n=2, vector_width=2, prefetch=0,
             unroll=4, slices=1, group_rows=8, splits=1),
        dict(tile_m=16, tile_n=32, tile_k=16, micro_m=2, micro_n=2, vector_width=2, prefetch=1,
             unroll=4, slices=2, group_rows=1, splits=1),
        # work-items enough for two pieces of each line of A at once
        dict(tile_m=8, tile_n=16, tile_k=32, micro_m=2, micro_n=2, vector_width=2, prefetch=0,
             unroll=4, slices=8, group_rows=1, splits=1),
    ],
    "nv_async": [
        dict(tile_m=32, tile_n=32, tile_k=8, micro_m=4, micro_n=4, stages=3, registers=0,
             group_rows=4, splits=6, wave=0),
        dict(tile_m=32, tile_n=32, tile_k=8, micro_m=4, micro_n=4, stages=3, registers=0,
             group_rows=4, splits=1, wave=0),
        # parts of k behind several waves of whole tiles
        dict(tile_m=32, tile_n=16, tile_k=8, micro_m=4, micro_n=4, stages=2, registers=0,
             group_rows=8, splits=2, wave=2),
        # two blocks of 32 work-items along a row of the tile
        dict(tile_m=32, tile_n=64, tile_k=8, micro_m=4, micro_n=4, stages=2, registers=0,
             group_rows=1, splits=1, wave=0),
    ],
    "nv_mma": [
        dict(tile_m=64, tile_n=128, bytes_k=128, warp_m=32, warp_n=64, stages=2, group_rows=8,
             splits=4, wave=1, adders="last"),
        dict(tile_m=128, tile_n=128, bytes_k=64, warp_m=32, warp_n=32, stages=2, group_rows=1,
             splits=1, wave=0, adders="last"),
        dict(tile_m=16, tile_n=32, bytes_k=128, warp_m=16, warp_n=16, stages=3, group_rows=8,
             splits=1, wave=0, adders="last"),
        # more warps than blocks of a tile for each part: teams of them add up, of seven warps and
        # of six, so that some warps are in none
        dict(tile_m=64, tile_n=64, bytes_k=128, warp_m=16, warp_n=16, stages=3, group_rows=1,
             splits=5, wave=0, adders="all"),
        # more parts than blocks of a tile, seven and eight of them for each of two teams
        dict(tile_m=16, tile_n=32, bytes_k=64, warp_m=16, warp_n=16, stages=2, group_rows=1,
             splits=15, wave=0, adders="all"),
        # of two parts one waits for the other, and each adds up as much as local memory holds
        dict(tile_m=128, tile_n=128, bytes_k=64, warp_m=32, warp_n=32, stages=2, group_rows=1,
             splits=2, wave=0, adders="all"),
    ],
    "nv_mma_f64": [
        dict(tile_m=64, tile_n=32, tile_k=16, warp_m=32, warp_n=16, stages=2, ahead=1,
             group_rows=8, splits=5, wave=1),
        dict(tile_m=64, tile_n=64, tile_k=16, warp_m=16, warp_n=16, stages=2, ahead=1,
             group_rows=1, splits=1, wave=0),
    ],
    "nv_wgmma": [
        dict(tile_m=64, tile_n=128, bytes_k=128, stages=4, group_rows=8, splits=5, wave=1),
        # parts of k behind several waves of whole tiles
        dict(tile_m=128, tile_n=64, bytes_k=128, stages=3, group_rows=8, splits=2, wave=2),
        # more stages than phases that one consumer does alone: the other can be far ahead
        dict(tile_m=128, tile_n=64, bytes_k=128, stages=6, group_rows=4, splits=1, wave=0),
        # parts of k before the whole tiles of a single wave
        dict(tile_m=128, tile_n=64, bytes_k=128, stages=6, group_rows=4, splits=2, wave=1),
    ],
}  # fmt: skip
ORDERS = {"N": "row", "T": "column", "S": "strided"}


def plain_kind(dtype="float32", layout="NN", out="N", **changes):
    """The kind of a plain product of one dtype; layout letters N, T and S."""
    result = product_type(_np(dtype), _np(dtype)).name
    kind = ProblemKind(
        a=OperandKind(dtype, ORDERS[layout[0]], 1),
        b=OperandKind(dtype, ORDERS[layout[1]], 1),
        out=OperandKind(result, ORDERS[out], 1),
        c=None, alpha="one", beta="zero", bias=None, residual=None, row_scale=None,
        col_scale=None, activation="none", compute=ELEMENT_TYPES[result].compute, result=result,
        reproducible=False, batch_rank=0, index="int",
    )  # fmt: skip
    return replace(kind, **changes)


def aligned(kind, alignment):
    """The kind with operands and an output that are aligned to so many bytes."""
    sides = {x: replace(getattr(kind, x), alignment=alignment) for x in ("a", "b", "out")}
    return replace(kind, **sides)


def mixed_kind(a, b, layout="NN", **changes):
    """The kind of a product of two dtypes."""
    result = product_type(_np(a), _np(b)).name
    kind = plain_kind(result, layout)
    return replace(
        kind,
        a=replace(kind.a, dtype=a),
        b=replace(kind.b, dtype=b),
        out=replace(kind.out, dtype=result),
        result=result,
        compute=ELEMENT_TYPES[result].compute,
        **changes,
    )


def small_config(name):
    """A configuration whose tiles are small, rectangular and all different, if it has tiles.

    A variant may name its own in the header's TEST_CONFIGS; else the default is used.
    """
    return test_configs(name)[0]


def test_configs(name):
    variant = load_variant(name)
    listed = variant.header.get("TEST_CONFIGS") or [variant.header["DEFAULT"]]
    return _complete(name, (*listed, *MORE_CONFIGS.get(name, ())))


def whole_configs(name):
    """Of `MORE_CONFIGS`, those that do not cut k: they are tried in every layout."""
    return _complete(name, [x for x in MORE_CONFIGS.get(name, ()) if x.get("splits", 1) == 1])


def _complete(name, listed):
    """What does not name a parameter has its default."""
    complete = load_variant(name).complete
    return [complete(TileConfig.of(name, **values)) for values in listed]


test_configs.__test__ = False


def cut_lengths(splits):
    """Values of k whose last part is a single term, and whose parts are fifteen for each of four.

    As kernels cut k: into multiples of 16 terms and of 8, of 2 and of 4. Of 3101 terms each of 32
    parts has 100, which are two blocks of 52 but for the last.
    """
    more = {8: (449,), 16: (961,), 32: (3101,)}.get(splits, ())
    return (193,) * (splits > 1) + more + (119, 239) * (splits > 8)


def check(device, config, kind, size, data, rng, **keywords):
    """The Verdict on a case, whose fault fails the test; None for a size that is not served."""
    case = make_case(kind, *size, data, rng, **keywords)
    try:
        verdict = check_case(device, config, case)
    except ConfigError as error:
        if all("problem." in x or x.startswith("loop iterations") for x in error.reasons):
            return None  # by the variant's own word, or for a device that ends long loops
        raise
    assert verdict.fault is None, f"{config} {kind.key} {size} {data}: {verdict.fault}"
    return verdict


def _np(name):
    from clmatmul.element_types import numpy_dtype

    return numpy_dtype(name)
