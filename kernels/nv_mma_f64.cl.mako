<%!
EXTENDS = "parts/nv_header.mako"
SUMMARY = "NVIDIA: float64 products by the tensor cores, fed by copies that run on their own."
SOURCES = (
    "NVIDIA: PTX ISA, section 9.7.14.5.9, mma.m16n8k8 with .f64",
    "NVIDIA: PTX ISA, section 9.7.9.25.3, asynchronous copies (cp.async)",
    "NVIDIA: CUTLASS, efficient GEMM in CUDA: warp tiles and multistage pipelines",
)
REQUIRES = (
    "profile.family == 'nvidia'",
    # m16n8k8 came with Hopper
    "profile.probe('compute_capability', 0) >= 90",
    "kind.a.dtype == 'float64' and kind.b.dtype == 'float64'",
    "kind.compute == 'float64'",
    "kind.alpha != 'zero'",
    "not kind.reproducible",
)
PARAMETERS = {
    # Rows and columns of the result that a work-group computes, and terms staged at a time.
    "tile_m": (16, 32, 64, 128),
    "tile_n": (16, 32, 64, 128),
    "tile_k": (16,),
    # Rows and columns of the result that a warp (32 work-items) holds in registers.
    "warp_m": (16, 32, 64),
    "warp_n": (16, 32, 64),
    # Buffers of local memory, all but one of which are being filled while one is read.
    "stages": (2, 3, 4, 5, 6),
    # 1: while 8 terms are multiplied, the fragments of A and B for the next 8 are read; 2: those
    # of A, and of B only the next 16 columns, which saves registers and needs a third stage.
    "ahead": (1, 2),
}
RUNTIME_PARAMETERS = {
    # Rows of tiles that are walked together, so that groups share tiles in the cache.
    "group_rows": (1, 4, 8, 16),
    # Parts into which the sum over k is cut, each a work-group's; who comes last adds them up.
    "splits": (*range(1, 17), 20, 24, 28, 32, 40, 48, 64, 96, 128),
    # Work-groups a compute unit in a full wave, whose tiles are not cut; with 0 every tile is.
    "wave": (0, 1, 2, 3, 4, 5, 6, 8, 9),
}
DEFAULT = dict(tile_m=64, tile_n=64, tile_k=16, warp_m=32, warp_n=32, stages=3, ahead=1,
               group_rows=8, splits=1, wave=0)
TEST_CONFIGS = (
    dict(tile_m=32, tile_n=64, tile_k=16, warp_m=16, warp_n=32, stages=3, ahead=2, group_rows=4,
         splits=1, wave=0),
    dict(tile_m=64, tile_n=32, tile_k=16, warp_m=32, warp_n=16, stages=2, ahead=1, group_rows=8,
         splits=2, wave=0),
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
    "ahead == 1 or stages >= 3",
    "splits == 1 or splits * tile_k <= problem.k",
    "wave == 0 or splits > 1",
)
TEST_DTYPE = "float64"
ALIGNMENT_CLASSES = (1, 16)
INSTRUMENT = ("none",)
# deep stages of large tiles need more local memory than the driver reports
PROBES = {"static_local_bytes": 231424}
WORKSPACE_TYPES = {"partial": "acc_t", "counters": "uint"}


def derive(config, kind, profile):
    work_items, warps_n = warp_tiles(config)
    a_along_k, b_along_k = kind.a.order != "column", kind.b.order != "row"
    along, across = "(%s >> 1 & 1) << 2", "(%s >> 1 & 3) << 1"
    a_stage = stage("a", kind.a, a_along_k, config.tile_m, config.tile_k, 8, work_items, 0,
                    along if a_along_k else across)
    b_stage = stage("b", kind.b, b_along_k, config.tile_n, config.tile_k, 8, work_items,
                    a_stage["bytes"], along if b_along_k else across)
    rows, cols = config.warp_m // 16, config.warp_n // 16
    fragments = 8 * rows + (8 * cols if config.ahead == 1 else 8)
    plain = kind.out.dtype in PLAIN_OUTPUTS and kind.out.alignment >= 16
    out_unit = 2 if plain and kind.out.order == "row" else 1
    return dict(
        work_items=work_items,
        warps_n=warps_n,
        a_stage=a_stage,
        b_stage=b_stage,
        a_unit=1,
        b_unit=1,
        a_unit_alignment=8,
        b_unit_alignment=8,
        out_unit=out_unit,
        out_unit_alignment=min(out_unit * PLAIN_OUTPUTS.get(kind.out.dtype, 1), 16),
        groups=config.tile_k // 8,
        blocks_m=rows,
        blocks_n=cols,
        stage_bytes=a_stage["bytes"] + b_stage["bytes"],
        local_bytes=config.stages * (a_stage["bytes"] + b_stage["bytes"]),
        # an estimate: sums, fragments, addresses
        registers=2 * (8 * rows * cols + fragments) + 50,
    )


def workspace(config, derived, problem, profile):
    t = tiles_of(config, problem, profile, config.tile_k)
    return partial_workspace(config, t, derived.work_items // 32, problem)


def launches(config, derived, problem, profile):
    return tile_launches("nv_mma_f64", tiles_of(config, problem, profile, config.tile_k), derived)


# By tiles: speed with every compute unit busy, in multiples of the naive kernel's; work-groups
# that share a unit; tile_m, tile_n, warp_m, warp_n, stages, ahead, group_rows.
SPEEDS = (
    (14.5, 1, (128, 128, 32, 64, 4, 2, 16)),
    (15.7, 2, (64, 64, 32, 32, 4, 1, 8)),
    (15, 2, (64, 64, 32, 32, 3, 1, 8)),
    (10, 4, (32, 32, 16, 16, 4, 1, 8)),
)


def propose(problem, profile):
    names = ("tile_m", "tile_n", "warp_m", "warp_n", "stages", "ahead", "group_rows")
    for speed, shared, numbers in SPEEDS:
        values = dict(zip(names, numbers), tile_k=16)
        if min(problem.m, problem.n) >= 6144:
            values["group_rows"] = 16
        items = 32 * (values["tile_m"] // values["warp_m"]) * (values["tile_n"] // values["warp_n"])
        division, rank = best_splits(problem, profile, values, items, shared, speed, 8)
        note = "float64 tensor cores, %d×%d tiles, %d stages of asynchronous copies" % (
            values["tile_m"], values["tile_n"], values["stages"])
        yield rank, dict(values, **division), note
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="wide" file="parts/wide.mako"/>\
<%namespace name="split" file="parts/nv_split.mako"/>\
<%namespace name="staging" file="parts/nv_stage.mako"/>\
<%namespace name="ptx" file="parts/ptx.mako"/>\
// nv_mma_f64: the tensor cores multiply 16 x 8 by 8 x 8 elements at a time.
//
//     out[row, col] = sum over phases p of
//                     sum over groups of 8 terms of tile_a[row, group] @ tile_b[group, col]
//
// A work-group owns tile_m x tile_n elements, each of its warps (32 work-items) warp_m x warp_n
// of them: blocks_m x blocks_n blocks of 16 x 16, whose sums stay in registers. Tiles come to
// local memory by asynchronous copies, in stages, as nv_async has it; parts/nv_stage.mako draws
// how they lie there.
//
// An instruction wants rows g and g + 8 of A and columns g of B of lane l = 4 g + t, and terms t
// and t + 4. Which row, column or term of the matrices stands for which of the instruction's is
// free, as long as A, B and the sums agree. Here neighbours belong to one lane, so that each
// read of local memory is 16 bytes:
//
//     instruction's row g, g + 8   block's row     2 g, 2 g + 1
//     instruction's term t, t + 4  group's term    2 t, 2 t + 1
//     columns g of two halves h    block's column  2 g + h          (16 columns: two instructions)
//
//     lane's sums      columns 4 t    4 t + 1    4 t + 2    4 t + 3
//     row 2 g                  s0     s4         s1         s5          s0…3: half 0, s4…7: half 1
//     row 2 g + 1              s2     s6         s3         s7
//
// Index spaces, large to small: splits > batch > groups of group_rows rows of tiles > tiles,
// column by column > warps > phases > groups of 8 terms > blocks > lanes.
${types.prelude()}
${wide.types()}
${load.functions()}
${store.functions()}
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void ${entry}(${parameters}) {
    __local uchar tiles[${local_bytes}] __attribute__((aligned(1024)));
    const uint tiles_at = ${ptx.local_address("tiles")};
${ptx.declarations()}
    // where am I
    const int item = get_local_id(0);
${split.where_am_i()}
    const int lane = item & 31, warp = item >> 5, g = lane >> 2, t = lane & 3;
    const int warp_row = warp / ${warps_n} * ${warp_m}, warp_col = warp % ${warps_n} * ${warp_n};
${index.bases("batch")}
    __global const uchar *a_start = (__global const uchar *)(a + a_base);
    __global const uchar *b_start = (__global const uchar *)(b + b_base);

    // clear
    double sums[${blocks_m}][${blocks_n}][8];
    #pragma unroll
    for (int i = 0; i < ${blocks_m}; i++)
        #pragma unroll
        for (int j = 0; j < ${blocks_n}; j++)
            #pragma unroll
            for (int q = 0; q < 8; q++) sums[i][j][q] = 0;
${staging.places("a")}\
${staging.places("b")}\
    // Fragments: where this lane's part of the warp's first block begins.
% if a_stage["along_k"]:
    const uint a_read = tiles_at + (warp_row + 2 * g) * 128 + ((t ^ (g & 1) << 2) << 4);
% else:
    const uint a_read = tiles_at + warp_row * ${tile_k * 8} + 2 * t * 128 + ((g ^ t << 1) << 4);
% endif
% if b_stage["along_k"]:
    const uint b_read = tiles_at + ${b_stage["offset"]} + (warp_col + 2 * g) * 128 + ((t ^ (g & 1) << 2) << 4);
% else:
    const uint b_read = tiles_at + ${b_stage["offset"]} + warp_col * ${tile_k * 8} + 2 * t * 128 + ((g ^ t << 1) << 4);
% endif
    double a_part[2][${blocks_m}][4], b_part[2][${blocks_n if ahead == 1 else 1}][4];

    // for each k tile
${staging.fill_first()}\
    uint at = 0;
    ${ptx.wait(stages - 2)}
    barrier(CLK_LOCAL_MEM_FENCE);
${read_a(0, 0, "at")}\
% if ahead == 1:
${read_b(0, 0, "at")}\
% else:
${read_b_block(0, 0, 0, "at")}\
% endif
    for (; first <= last_whole; first += ${tile_k}) {
${phase(True)}\
    }
    for (; first < end_term; first += ${tile_k}) {
${phase(False)}\
    }

% if "partial" in arguments:
${split.exchange([f"sums[{i}][{j}][{q}]" for i in range(blocks_m) for j in range(blocks_n) for q in range(8)], work_items // 32, "(item >> 5)", "return")}\
% endif
    // epilogue and store
% for i in range(blocks_m):
    {
        const index_t row = first_row + warp_row + ${16 * i} + 2 * g;
% for j in range(blocks_n):
        {
            const index_t col = first_col + warp_col + ${16 * j} + 4 * t;
% for half in range(2):
${store_elements([(f"sums[{i}][{j}][{2 * half + q // 2 + 4 * (q % 2)}]", f"(row + {half})", f"(col + {q})") for q in range(4)])}\
% endfor
        }
% endfor
    }
% endfor
}

<%def name="phase(whole)">\
        const uint next = at == ${(stages - 1) * stage_bytes}u ? 0 : at + ${stage_bytes}u;
% for group in range(groups):
% if ahead == 1:
% if group == groups - 1:
        // barrier: the next tiles are complete, and everyone has read this one
        ${ptx.wait(stages - 2)}
        barrier(CLK_LOCAL_MEM_FENCE);
% endif
        // compute: the next fragments are read while these are multiplied
${read_a((group + 1) % 2, (group + 1) % groups, "next" if group == groups - 1 else "at")}\
${read_b((group + 1) % 2, (group + 1) % groups, "next" if group == groups - 1 else "at")}\
% if group == 0:
${staging.fill_next(whole)}\
% endif
        #pragma unroll
        for (int j = 0; j < ${blocks_n}; j++) {
${multiply(group % 2, group % 2, "j", "j")}\
        }
% else:
% for j in range(blocks_n):
% if j == 0 and group == groups - 1:
        // barrier: the next tiles are complete, and everyone has read the last one
        ${ptx.wait(stages - 3)}
        barrier(CLK_LOCAL_MEM_FENCE);
% endif
% if j == 0:
${read_a((group + 1) % 2, (group + 1) % groups, "next" if group == groups - 1 else "at")}\
% endif
% if j == 0 and group == groups - 1:
${staging.fill_next(whole)}\
% endif
<%
    number = group * blocks_n + j
    following = (number + 1) % (groups * blocks_n)
    where = "at" if following else "next"
%>\
${read_b_block((number + 1) % 2, following // blocks_n, following % blocks_n, where)}\
        {
${multiply(group % 2, number % 2, j, 0)}\
        }
% endfor
% endif
% endfor
        at = next;
</%def>

<%def name="read_a(set, group, at)">\
        #pragma unroll
        for (int i = 0; i < ${blocks_m}; i++) {
${read_part(a_stage, f"a_part[{set}][i]", "a_read", "i", group, at, True)}\
        }
</%def>

<%def name="read_b(set, group, at)">\
        #pragma unroll
        for (int j = 0; j < ${blocks_n}; j++) {
${read_part(b_stage, f"b_part[{set}][j]", "b_read", "j", group, at, False)}\
        }
</%def>

<%def name="read_b_block(set, group, j, at)">\
        {
${read_part(b_stage, f"b_part[{set}][0]", "b_read", j, group, at, False)}\
        }
</%def>

<%def name="read_part(s, part, read, block, group, at, is_a)">\
<%
    # 16 rows (columns) x 8 terms: elements (2g, 2t), (2g + 1, 2t), (2g, 2t + 1), (2g + 1, 2t + 1)
    # of a lane. Of B, pairs of terms belong together: (h, t), (h, t + 4) of each half h.
    place = {(0, 0): 0, (1, 0): 1, (0, 1): 2, (1, 1): 3} if is_a else {(0, 0): 0, (0, 1): 1, (1, 0): 2, (1, 1): 3}
%>\
% if s["along_k"]:
            const uint from = (${read} ^ ${group * 64}u) + ${at} + ${block} * 2048;
            ${ptx.load_two(f"{part}[{place[0, 0]}]", f"{part}[{place[0, 1]}]", "from")}
            ${ptx.load_two(f"{part}[{place[1, 0]}]", f"{part}[{place[1, 1]}]", "from + 128")}
% else:
            const uint from = ${read} + ${at} + ${group * 1024} + ${block} * ${tile_k * 128};
            ${ptx.load_two(f"{part}[{place[0, 0]}]", f"{part}[{place[1, 0]}]", "from")}
            ${ptx.load_two(f"{part}[{place[0, 1]}]", f"{part}[{place[1, 1]}]", "from + 128")}
% endif
</%def>

<%def name="multiply(a_set, b_set, j, b_index)">\
            #pragma unroll
            for (int i = 0; i < ${blocks_m}; i++) {
% for h in range(2):
                ${ptx.multiply_f64([f"sums[i][{j}][{4 * h + q}]" for q in range(4)], [f"a_part[{a_set}][i][{q}]" for q in range(4)], [f"b_part[{b_set}][{b_index}][{2 * h + q}]" for q in range(2)])}
% endfor
            }
</%def>

<%def name="store_elements(elements)">\
% for begin in range(0, 4, out_unit):
% if out_unit > 1:
${wide.store_unit(elements[begin:begin + out_unit])}\
% else:
            if (${elements[begin][1]} < m && ${elements[begin][2]} < n) {
${store.store(*elements[begin])}\
            }
% endif
% endfor
</%def>
