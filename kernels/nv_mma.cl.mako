<%!
EXTENDS = "parts/nv_header.mako"
SUMMARY = "NVIDIA: 16-bit floats, TF32 and 8-bit integers by the tensor cores, warp by warp."
SOURCES = (
    "NVIDIA: PTX ISA, sections 9.7.14.5.7 to .15, mma.sync.m16n8 and ldmatrix",
    "NVIDIA: PTX ISA, section 9.7.9.25.3, asynchronous copies (cp.async)",
    "NVIDIA: CUTLASS, efficient GEMM in CUDA: warp tiles, swizzled layouts, multistage pipelines",
)
REQUIRES = (
    "profile.family == 'nvidia'",
    "profile.probe('compute_capability', 0) >= 80",
    "kind.a.dtype == kind.b.dtype",
    "kind.a.dtype in ('float16', 'bfloat16', 'float32', 'int8', 'uint8')",
    "kind.compute in ('float32', 'uint32')",
    # float32 operands are rounded to TF32's 11 bits
    "kind.a.dtype != 'float32' or kind.precision in ('high', 'medium')",
    # 4, 8 or 16 bytes are copied at once
    "kind.a.alignment >= 4 and kind.a.order != 'strided'",
    "kind.b.alignment >= 4 and kind.b.order != 'strided'",
    # of elements that are not 16 bits wide, terms must be neighbours
    "kind.a.order == 'row' or kind.a.dtype in ('float16', 'bfloat16')",
    "kind.b.order == 'column' or kind.b.dtype in ('float16', 'bfloat16')",
    "kind.alpha != 'zero'",
    "not kind.reproducible",
)
PARAMETERS = {
    # Rows and columns of the result that a work-group computes.
    "tile_m": (16, 32, 64, 128, 256),
    "tile_n": (16, 32, 64, 128, 256),
    # Bytes of terms staged at a time.
    "bytes_k": (64, 128),
    # Rows and columns of the result that a warp (32 work-items) holds in registers.
    "warp_m": (16, 32, 64),
    "warp_n": (16, 32, 64),
    # Buffers of local memory, all but one of which are being filled while one is read. 1: all
    # terms are there at once, and the room is for more groups.
    "stages": (1, 2, 3, 4, 5, 6),
    # Who adds up a tile's parts of k: the last to come, warp by warp, or all of them, a slice each.
    "adders": ("last", "all"),
}
RUNTIME_PARAMETERS = {
    # Rows of tiles that are walked together, so that groups share tiles in the cache.
    "group_rows": (1, 4, 8, 16),
    # Parts into which the sum over k is cut, each a work-group's.
    "splits": (*range(1, 17), 20, 24, 28, 32, 40, 48, 64, 96, 128),
    # Work-groups a compute unit in a full wave, whose tiles are not cut; with 0 every tile is.
    "wave": (0, 1, 2, 3, 4, 5, 6, 8, 9),
}
DEFAULT = dict(tile_m=64, tile_n=64, bytes_k=64, warp_m=32, warp_n=32, stages=3,
               adders="last", group_rows=8, splits=1, wave=0)
TEST_CONFIGS = (
    dict(tile_m=64, tile_n=128, bytes_k=64, warp_m=32, warp_n=64, stages=3, group_rows=4,
         splits=1, wave=0, adders="last"),
    dict(tile_m=64, tile_n=64, bytes_k=128, warp_m=32, warp_n=32, stages=2, group_rows=8,
         splits=2, wave=0, adders="last"),
    dict(tile_m=128, tile_n=64, bytes_k=128, warp_m=64, warp_n=16, stages=2, group_rows=1,
         splits=3, wave=0, adders="last"),
    dict(tile_m=64, tile_n=128, bytes_k=64, warp_m=32, warp_n=64, stages=3, group_rows=4,
         splits=5, wave=0, adders="all"),
    dict(tile_m=32, tile_n=64, bytes_k=128, warp_m=16, warp_n=32, stages=1, group_rows=8,
         splits=1, wave=0, adders="last"),
)
CONSTRAINTS = (
    "warp_m <= tile_m",
    "warp_n <= tile_n",
    "work_items >= 64",
    "work_items <= profile.max_work_group_size",
    "a_stage['fits']",
    "b_stage['fits']",
    "local_bytes <= profile.usable_local_bytes",
    "registers <= 255",
    "splits == 1 or splits * tile_k <= problem.k",
    "wave == 0 or splits > 1",
    "adders == 'last' or splits > 1 and wave == 0",
    "stages > 1 or splits == 1",
    "stages > 1 or problem.k <= tile_k",
)
TEST_DTYPE, TEST_ALIGNMENT = "float16", 64
ALIGNMENT_CLASSES = (1, 4, 8, 16)
INSTRUMENT = ("none",)
POST_BUILD = "limit_registers"
# deep stages of large tiles need more local memory than the driver reports
PROBES = {"static_local_bytes": 231424}
WORKSPACE_TYPES = {"partial": "acc_t", "counters": "uint"}


def post_build(binary, profile):
    return limit_registers(binary)


SIZES = dict(float16=2, bfloat16=2, float32=4, int8=1, uint8=1)


def derive(config, kind, profile):
    work_items, warps_n = warp_tiles(config)
    size = SIZES[kind.a.dtype]
    tile_k = config.bytes_k // size
    a_along_k, b_along_k = kind.a.order == "row", kind.b.order == "column"
    a_stage = stage("a", kind.a, a_along_k, config.tile_m, tile_k, size, work_items, 0)
    b_stage = stage("b", kind.b, b_along_k, config.tile_n, tile_k, size, work_items,
                    a_stage["bytes"])
    rows, cols = config.warp_m // 16, config.warp_n // 8
    pairs = pairs_of(kind, 8 if kind.out.dtype in PLAIN_OUTPUTS else 4)
    brief = kind.activation == "none" and kind.expression is None
    return dict(
        work_items=work_items,
        warps_n=warps_n,
        size=size,
        tile_k=tile_k,
        a_stage=a_stage,
        b_stage=b_stage,
        pairs=pairs,
        # the pairs of four blocks side by side, exchanged between lanes: 16 bytes each
        lines=pairs == "packed" and cols % 4 == 0 and kind.out.alignment >= 16,
        a_unit=1,
        b_unit=1,
        a_unit_alignment=1,
        b_unit_alignment=1,
        out_unit=2 if pairs == "plain" else 1,
        out_unit_alignment=2 * PLAIN_OUTPUTS.get(kind.out.dtype, 1),
        # 32 bytes of terms: what an instruction takes
        groups=config.bytes_k // 32,
        blocks_m=rows,
        blocks_n=cols,
        stage_bytes=a_stage["bytes"] + b_stage["bytes"],
        local_bytes=config.stages * (a_stage["bytes"] + b_stage["bytes"]),
        # a short epilogue stands in the text once more, for tiles without a border
        brief=brief,
        # With all terms there at once nothing but other groups fills the time of a copy: eight of
        # them share a unit if the compiler is told so. A longer epilogue would spill.
        register_limit=64 if config.stages == 1 and 4 * rows * cols <= 32 and brief else 0,
        # an estimate: sums, fragments, addresses
        registers=4 * rows * cols + 2 * (4 * rows + 2 * cols) + 50,
    )


def workspace(config, derived, problem, profile):
    t = tiles_of(config, problem, profile, derived.tile_k)
    counters = t["splits"] + 1 if config.adders == "all" else derived.work_items // 32
    return partial_workspace(config, t, counters, problem)


def launches(config, derived, problem, profile):
    return tile_launches("nv_mma", tiles_of(config, problem, profile, derived.tile_k), derived)


# By tiles: speed with every compute unit busy, in multiples of the naive kernel's, for 16-bit
# floats; work-groups that share a unit; tile_m, tile_n, warp_m, warp_n, bytes of terms, stages.
SPEEDS = (
    (120, 1, (128, 256, 64, 64, 128, 3)),
    (100, 2, (128, 128, 64, 64, 64, 3)),
    (90, 2, (128, 64, 32, 32, 128, 4)),
    (90, 2, (64, 128, 32, 32, 128, 4)),
    (75, 3, (64, 64, 32, 32, 128, 4)),
    (58, 2, (64, 64, 32, 16, 128, 4)),
    (46, 3, (64, 32, 32, 16, 128, 6)),
    (27, 5, (32, 32, 16, 16, 128, 4)),
    (45, 5, (64, 16, 32, 16, 128, 4)),
    (40, 5, (16, 64, 16, 32, 128, 4)),
)


def propose(problem, profile):
    names = ("tile_m", "tile_n", "warp_m", "warp_n", "bytes_k", "stages")
    size = SIZES[problem.kind.a.dtype]
    # operands that the cache holds from one product to the next are read faster
    held = (problem.m + problem.n) * problem.k * problem.batch_count * size < 50e6
    # bytes a ns that all units copy, by so many at a time
    copied = {4: 3000, 8: 5000}.get(min(problem.kind.a.alignment, problem.kind.b.alignment), 6000)
    for speed, shared, numbers in SPEEDS:
        values = dict(zip(names, numbers), group_rows=8)
        tile_m, tile_n, bytes_k = values["tile_m"], values["tile_n"], values["bytes_k"]
        # as many as there is room for
        room = profile.usable_local_bytes // ((tile_m + tile_n) * bytes_k)
        values["stages"] = min(values["stages"], max(room, 3))
        items = 32 * (tile_m // values["warp_m"]) * (tile_n // values["warp_n"])
        tiles = dict(values, tile_k=bytes_k // size)
        if size == 2 and problem.k * size <= bytes_k:
            values["stages"] = 1
        note = "tensor cores, %d×%d tiles, %d stages of asynchronous copies" % (
            tile_m, tile_n, values["stages"])
        for adders in ("last", "all") if 4096 <= tile_m * tile_n <= 8192 else ("last",):
            division, rank = best_splits(
                problem, profile, tiles, items, shared, speed * 2 / size, size,
                most=5500 if min(tile_m, tile_n) == 16 and held else 4000, cache=copied,
                together=adders == "all")
            if division:
                yield rank, dict(values, adders=adders, **division), note


def sums_in_order(blocks_m, blocks_n):
    """A lane's sums, as text: of a block of 16 x 8, [row 0 or 8][two columns]."""
    return [f"sums[{i}][{j}][{q}]" for i in range(blocks_m) for j in range(blocks_n)
            for q in range(4)]
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="wide" file="parts/wide.mako"/>\
<%namespace name="split" file="parts/nv_split.mako"/>\
<%namespace name="activation" file="parts/nv_activation.mako"/>\
<%namespace name="staging" file="parts/nv_stage.mako"/>\
<%namespace name="pairs_of_sums" file="parts/nv_pairs.mako"/>\
<%namespace name="ptx" file="parts/ptx.mako"/>\
// nv_mma: the tensor cores multiply 16 rows by 8 columns, 32 bytes of terms at a time.
//
//     out[row, col] = sum over phases p of
//                     sum over groups of terms of tile_a[row, group] @ tile_b[group, col]
//
// A work-group owns tile_m x tile_n elements, each of its warps (32 work-items) warp_m x warp_n
// of them: blocks_m x blocks_n blocks of 16 x 8, whose sums stay in registers. Tiles come to
// local memory by asynchronous copies, in stages, as nv_async has it; parts/nv_stage.mako draws
// how they lie there, and parts/ptx.mako what a lane holds of a block.
//
// ldmatrix reads four matrices of 8 rows x 16 bytes; which rows these are, each lane says for one:
//
//     lanes         0-7      8-15      16-23     24-31
//     A along k     rows 0   rows 8    rows 0    rows 8       of the block of 16 rows
//                   bytes 0  bytes 0   bytes 16  bytes 16     of the group
//     B along k     cols 0   cols 0    cols 8    cols 8       two blocks of 8 columns
//                   bytes 0  bytes 16  bytes 0   bytes 16
//
// Across k the roles of rows and bytes change, and the matrices are transposed as they are read,
// which the instruction does for 16-bit elements alone.
//
// Index spaces, large to small: splits > batch > groups of group_rows rows of tiles > tiles,
// column by column > warps > phases > groups of terms > blocks > lanes.
${types.prelude()}
${wide.types()}
${load.functions()}
${store.functions(activation.attr.is_quick(kind))}
${activation.functions()}
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void ${entry}(${parameters}) {
    __local uchar tiles[${local_bytes}] __attribute__((aligned(1024)));
    const uint tiles_at = ${ptx.local_address("tiles")};
${ptx.declarations()}
% if register_limit:
    ${ptx.limit_registers(register_limit)}
% endif
    // where am I
    const int item = get_local_id(0);
${split.where_am_i()}
    const int lane = item & 31, warp = item >> 5;
    const int warp_row = warp / ${warps_n} * ${warp_m}, warp_col = warp % ${warps_n} * ${warp_n};
${index.bases("batch")}
    __global const uchar *a_start = (__global const uchar *)a + (size_t)a_base * ${size};
    __global const uchar *b_start = (__global const uchar *)b + (size_t)b_base * ${size};

    // clear
    acc_t sums[${blocks_m}][${blocks_n}][4];
    #pragma unroll
    for (int i = 0; i < ${blocks_m}; i++)
        #pragma unroll
        for (int j = 0; j < ${blocks_n}; j++)
            #pragma unroll
            for (int q = 0; q < 4; q++) sums[i][j][q] = 0;
${staging.places("a")}\
${staging.places("b")}\
    // Fragments: the row whose address this lane gives, and the chunk of 16 bytes.
% if a_stage["along_k"]:
    const int a_line = warp_row + (lane & 15), a_chunk = lane >> 4;
    const uint a_read = tiles_at + a_line * ${a_stage["row_bytes"]}, a_swap = ${a_stage["swizzle"] % "a_line"};
% else:
    const int a_line = (lane & 7) + (lane >> 4) * 8, a_chunk = warp_row / 8 + (lane >> 3 & 1);
    const uint a_read = tiles_at + a_line * ${a_stage["row_bytes"]}, a_swap = ${a_stage["swizzle"] % "a_line"};
% endif
% if b_stage["along_k"]:
    const int b_line = warp_col + (lane & 7) + (lane >> 4) * 8, b_chunk = lane >> 3 & 1;
    const uint b_read = tiles_at + ${b_stage["offset"]} + b_line * ${b_stage["row_bytes"]}, b_swap = ${b_stage["swizzle"] % "b_line"};
% else:
    const int b_line = lane & 15, b_chunk = warp_col / 8 + (lane >> 4);
    const uint b_read = tiles_at + ${b_stage["offset"]} + b_line * ${b_stage["row_bytes"]}, b_swap = ${b_stage["swizzle"] % "b_line"};
% endif
    uint a_part[${min(stages, 2)}][${blocks_m}][4], b_part[${min(stages, 2)}][${blocks_n}][2];

    // for each k tile
% if stages == 1:
    const uint at = 0;
${staging.fill_once()}\
    // barrier: the tiles are complete
    ${ptx.wait(0)}
    barrier(CLK_LOCAL_MEM_FENCE);
% for group in range(groups):
${read(0, group, "at")}\
${multiply(0)}\
% endfor
% else:
${staging.fill_first()}\
    uint at = 0;
    ${ptx.wait(stages - 2)}
    barrier(CLK_LOCAL_MEM_FENCE);
${read(0, 0, "at")}\
    for (; first <= last_whole; first += ${tile_k}) {
${phase(True)}\
    }
    for (; first < end_term; first += ${tile_k}) {
${phase(False)}\
    }
% endif

% if "partial" in arguments and adders == "all":
${split.share(sums_in_order(blocks_m, blocks_n), work_items // 32, where_block, store_block)}\
}
% else:
% if "partial" in arguments:
${split.exchange(sums_in_order(blocks_m, blocks_n), work_items // 32, "(item >> 5)", "return")}\
% endif
    // epilogue and store
    const index_t lane_first_row = first_row + warp_row + (lane >> 2);
    const index_t lane_first_col = first_col + warp_col + (lane & 3) * 2;
% if lines and brief:
    if (first_row + ${tile_m} <= m && first_col + ${tile_n} <= n) {
${store_all(True)}\
    } else
% endif
    {
${store_all(False)}\
    }
}
% endif

<%def name="where_block()">\
                        const index_t block_row = first_row + of_warp / ${warps_n} * ${warp_m} + number / ${blocks_n} * 16 + (lane >> 2);
                        const index_t col = first_col + of_warp % ${warps_n} * ${warp_n} + number % ${blocks_n} * 8 + (lane & 3) * 2;
</%def>

<%def name="store_block()">\
% for half in range(2):
                        {
                            const index_t row = block_row + ${8 * half};
${pairs_of_sums.store_pair(f"sum_{2 * half}", f"sum_{2 * half + 1}")}\
                        }
% endfor
</%def>

<%def name="store_all(inside)">\
% for i in range(blocks_m):
% for half in range(2):
    {
        const index_t row = lane_first_row + ${16 * i + 8 * half};
% if lines:
% for j in range(0, blocks_n, 4):
        {
            const index_t col = lane_first_col + ${8 * j};
${pairs_of_sums.store_line([[f"sums[{i}][{j + q}][{2 * half + r}]" for r in range(2)] for q in range(4)], inside)}\
        }
% endfor
% else:
% for j in range(blocks_n):
        {
            const index_t col = lane_first_col + ${8 * j};
${pairs_of_sums.store_pair(f"sums[{i}][{j}][{2 * half}]", f"sums[{i}][{j}][{2 * half + 1}]")}\
        }
% endfor
% endif
    }
% endfor
% endfor
</%def>

<%def name="phase(whole)">\
        const uint next = at == ${(stages - 1) * stage_bytes}u ? 0 : at + ${stage_bytes}u;
% for group in range(groups):
% if group == groups - 1:
        // barrier: the next tiles are complete, and everyone has read this one
        ${ptx.wait(stages - 2)}
        barrier(CLK_LOCAL_MEM_FENCE);
% endif
        // compute: the next fragments are read while these are multiplied
${read((group + 1) % 2, (group + 1) % groups, "next" if group == groups - 1 else "at")}\
% if group == 0:
${staging.fill_next(whole)}\
% endif
${multiply(group % 2)}\
% endfor
        at = next;
</%def>

<%def name="multiply(set)">\
        #pragma unroll
        for (int i = 0; i < ${blocks_m}; i++)
            #pragma unroll
            for (int j = 0; j < ${blocks_n}; j++)
                ${ptx.multiply(kind.a.dtype, [f"sums[i][j][{q}]" for q in range(4)], [f"a_part[{set}][i][{q}]" for q in range(4)], [f"b_part[{set}][j][{q}]" for q in range(2)])}
</%def>

<%def name="read(set, group, at)">\
        #pragma unroll
        for (int i = 0; i < ${blocks_m}; i++) {
% if a_stage["along_k"]:
            const uint from = a_read + ${at} + i * ${16 * a_stage["row_bytes"]} + ((${2 * group} + a_chunk ^ a_swap) << 4);
% else:
            const uint chunk = a_chunk + 2 * i;
            const uint from = a_read + ${at} + chunk / ${a_stage["row_bytes"] // 16} * ${tile_k * a_stage["row_bytes"]} + ${group * 16 * a_stage["row_bytes"]} + ((chunk % ${a_stage["row_bytes"] // 16} ^ a_swap) << 4);
% endif
            ${ptx.load_matrices([f"a_part[{set}][i][{q}]" for q in range(4)], "from", not a_stage["along_k"])}
        }
        #pragma unroll
        for (int j = 0; j < ${blocks_n // 2}; j++) {
% if b_stage["along_k"]:
            const uint from = b_read + ${at} + j * ${16 * b_stage["row_bytes"]} + ((${2 * group} + b_chunk ^ b_swap) << 4);
% else:
            const uint chunk = b_chunk + 2 * j;
            const uint from = b_read + ${at} + chunk / ${b_stage["row_bytes"] // 16} * ${tile_k * b_stage["row_bytes"]} + ${group * 16 * b_stage["row_bytes"]} + ((chunk % ${b_stage["row_bytes"] // 16} ^ b_swap) << 4);
% endif
            ${ptx.load_matrices([f"b_part[{set}][2 * j + {q // 2}][{q % 2}]" for q in range(4)], "from", not b_stage["along_k"])}
        }
% if kind.a.dtype == "float32":
        #pragma unroll
        for (int i = 0; i < ${blocks_m}; i++)
            #pragma unroll
            for (int q = 0; q < 4; q++) ${ptx.round_to_tf32(f"a_part[{set}][i][q]")}
        #pragma unroll
        for (int j = 0; j < ${blocks_n}; j++)
            #pragma unroll
            for (int q = 0; q < 2; q++) ${ptx.round_to_tf32(f"b_part[{set}][j][q]")}
% endif
</%def>
