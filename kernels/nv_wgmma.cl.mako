<%!
EXTENDS = "parts/nv_header.mako"
SUMMARY = "NVIDIA Hopper: the copy engine fills local memory, four warps together multiply from it."
SOURCES = (
    "NVIDIA: PTX ISA, sections 9.7.15, wgmma, and 9.7.9.25.5, cp.async.bulk.tensor",
    "NVIDIA: CUTLASS 3, warp-specialised persistent kernels for Hopper",
    "C. Shah and others: FlashAttention-3 (NeurIPS 2024), on warp specialisation",
)
REQUIRES = (
    "profile.family == 'nvidia'",
    # wgmma is Hopper's alone
    "profile.probe('compute_capability', 0) == 90",
    # the driver's PTX may be changed, tensor maps made from zeros, local memory be large
    "profile.probe('wgmma', 0) == 1",
    "kind.a.dtype == kind.b.dtype",
    "kind.a.dtype in ('float16', 'bfloat16', 'float32', 'int8', 'uint8')",
    "kind.compute in ('float32', 'uint32')",
    # float32 operands are rounded to TF32's 11 bits
    "kind.a.dtype != 'float32' or kind.precision in ('high', 'medium')",
    "kind.alpha != 'zero'",
    "not kind.reproducible",
)
PARAMETERS = {
    # Rows and columns of the result of a tile; each 64 rows have four warps of their own.
    "tile_m": (64, 128),
    "tile_n": (64, 128, 192, 256),
    # Bytes of terms staged at a time: what the copy engine's widest swizzle takes.
    "bytes_k": (128,),
    # Buffers of local memory, each with both tiles of a phase.
    "stages": (2, 3, 4, 5, 6, 7, 8),
}
RUNTIME_PARAMETERS = {
    # Rows of tiles that are walked together, so that groups share tiles in the cache.
    "group_rows": (1, 4, 8, 16),
    # Parts into which the sum over k is cut, each a work-group's; who comes last adds them up.
    "splits": (*range(1, 17), 20, 24, 28, 32, 40, 48, 64, 96, 128),
    # Work-groups a compute unit in a full wave, whose tiles are not cut; with 0 every tile is.
    "wave": (0, 1, 2, 3, 4, 5, 6, 8, 9),
}
DEFAULT = dict(tile_m=128, tile_n=256, bytes_k=128, stages=4, group_rows=8, splits=1, wave=0)
TEST_CONFIGS = (
    dict(tile_m=128, tile_n=64, bytes_k=128, stages=3, group_rows=4, splits=1, wave=0),
    dict(tile_m=64, tile_n=128, bytes_k=128, stages=4, group_rows=8, splits=3, wave=0),
    dict(tile_m=128, tile_n=192, bytes_k=128, stages=2, group_rows=1, splits=1, wave=0),
    dict(tile_m=128, tile_n=256, bytes_k=128, stages=4, group_rows=8, splits=1, wave=0),
)
CONSTRAINTS = (
    "work_items <= profile.max_work_group_size",
    "local_bytes <= profile.usable_local_bytes",
    "splits == 1 or splits * tile_k <= problem.k",
    "wave == 0 or splits > 1",
    # what a tensor map can tell
    "a_packed or min(problem.a.row_stride, problem.a.col_stride) > 0",
    "b_packed or min(problem.b.row_stride, problem.b.col_stride) > 0",
    "a_packed or min((0, *problem.a.batch_strides)) == 0",
    "b_packed or min((0, *problem.b.batch_strides)) == 0",
)
TEST_DTYPE, TEST_ALIGNMENT = "float16", 64
ALIGNMENT_CLASSES = (1, 16)
INSTRUMENT = ("none",)
POST_BUILD = "retarget"
PROBES = {"static_local_bytes": 231424, "wgmma": 1}
WORKSPACE_TYPES = {"partial": "acc_t", "counters": "uint", "maps": "uchar", "packed_a": "uchar",
                   "packed_b": "uchar"}
SIZES = dict(float16=2, bfloat16=2, float32=4, int8=1, uint8=1)


def post_build(binary, profile):
    return retarget(binary, profile)


def derive(config, kind, profile):
    size = SIZES[kind.a.dtype]
    a_packed, b_packed = packed_sides(kind, size)
    pairs = pairs_of(kind)
    warps = config.tile_m // 16
    stage_bytes = (config.tile_m + config.tile_n) * 128
    # An activation is long: it stands in the text once for many elements, which wait in local
    # memory, 16 rows x 64 columns of each warp. Results of 16 bits go through there to be written
    # 128 bytes of a row at a time, padded against bank conflicts.
    lengthy = kind.activation not in ("none", "relu") or kind.expression is not None
    staged = not lengthy and pairs_of(kind, 1) == "packed"
    staging = 16 * (256 if lengthy else 144 if staged else 0) * warps
    maps_at = config.stages * stage_bytes + staging
    return dict(
        size=size,
        tile_k=tile_k_of(config, size),
        a_packed=a_packed,
        b_packed=b_packed,
        # lines along the rows of A, the columns of B: "MN-major"
        a_across=1 if not a_packed and kind.a.order == "column" else 0,
        b_across=1 if not b_packed and kind.b.order == "row" else 0,
        pairs=pairs,
        lengthy=lengthy,
        staged=staged,
        out_unit=4 if lengthy and pairs == "plain" else 2 if pairs == "plain" else 1,
        out_unit_alignment=min(4 * PLAIN_OUTPUTS.get(kind.out.dtype, 1), 16) if lengthy else 2 * PLAIN_OUTPUTS.get(kind.out.dtype, 1),
        a_unit=1,
        b_unit=1,
        a_unit_alignment=1,
        b_unit_alignment=1,
        work_items=128 * (config.tile_m // 64 + 1),
        consumers=config.tile_m // 64,
        numbers=config.tile_n // 2,
        stage_bytes=stage_bytes,
        staging_at=config.stages * stage_bytes,
        maps_at=maps_at,
        barriers_at=maps_at + 256,
        local_bytes=maps_at + 256 + 16 * config.stages + 16,
        # so many phases before a tile's end the second consumer lets the first go ahead
        late=min(config.stages, 4) if config.tile_m == 128 else 0,
        # registers of a producer's and a consumer's work-items: the sums alone are 128, and a
        # third of what a unit has is 168
        uneven=(40, 216) if config.tile_m == 128 and config.tile_n == 256 else None,
    )


def packed_sides(kind, size):
    """Whether A and B must be copied first: the copy engine takes aligned lines, and wgmma takes
    terms side by side unless elements have 16 bits."""
    a_orders, b_orders = ("row", "column"), ("column", "row")
    count = 2 if size == 2 else 1
    return (
        kind.a.alignment < 16 or kind.a.order not in a_orders[:count],
        kind.b.alignment < 16 or kind.b.order not in b_orders[:count],
    )


def tile_k_of(config, size):
    return config.bytes_k // size


def tiling(config, derived, problem, profile):
    t = tiles_of(config, problem, profile, derived.tile_k)
    return dict(t, groups=min(t["work"], profile.compute_units * derived_shared(derived)))


def derived_shared(derived):
    # Work-groups that fit a compute unit by their local memory.
    return max(1, min(231424 // (derived.local_bytes + 1024), 2048 // derived.work_items, 4))


def workspace(config, derived, problem, profile):
    t = tiling(config, derived, problem, profile)
    found = {}
    for x, packed, operand, outer in sides(derived, problem):
        found.update(packed_workspace(x, packed, operand, outer, problem, derived.size))
    packs = len(found)
    for place, entry in enumerate(found.values()):
        entry.update(first=place, last=packs)
    found["maps"] = dict(bytes=256 * t["groups"], alignment=128, first=packs, last=packs)
    found.update(partial_workspace(config, t, 4 * derived.consumers, problem, packs))
    return found


def sides(derived, problem):
    return (
        ("a", derived.a_packed, problem.a, problem.m),
        ("b", derived.b_packed, problem.b, problem.n),
    )


def launches(config, derived, problem, profile):
    t = tiling(config, derived, problem, profile)
    found, operands = [], []
    copies = {}
    for x, packed, operand, outer in sides(derived, problem):
        operands.append("packed_" + x if packed else x)
        if packed:
            found.append(pack_launch(x, operand, outer, problem, derived.size))
            operands += [x + "_pitch", x + "_copies"]
            copies[x + "_pitch"] = found[-1]["values"]["pitch"]
            copies[x + "_copies"] = problem.batch_count if any(operand.batch_strides) else 1
    values = dict(t, **copies)
    split = t["splits"] > 1
    common = ("sizes", "batch", "tiles_m", "tiles_n", "group_rows", "work")
    found.append(dict(
        entry="nv_wgmma_splits" if split else "nv_wgmma",
        global_size=(t["groups"] * derived.work_items,),
        local_size=(derived.work_items,),
        args=(*operands, "maps", "out", *common, "scalars", *(SPLIT_ARGUMENTS if split else ())),
        values=values,
    ))
    return found


MAPS_NS = 1500  # in which a work-group makes its tensor maps

# By tiles: speed with every compute unit busy, in multiples of the naive kernel's, for 16-bit
# floats; work-groups that share a unit; tile_m, tile_n, stages.
SPEEDS = (
    (220, 1, (128, 256, 4)),
    (195, 1, (128, 192, 5)),
    (187, 1, (128, 128, 6)),
    (143, 1, (64, 128, 8)),
    (120, 1, (128, 64, 8)),
    (83, 2, (64, 64, 6)),
)


def propose(problem, profile):
    size = SIZES[problem.kind.a.dtype]
    before = sum(
        SECOND_LAUNCH_NS + 3 * problem.batch_count * outer * problem.k * size / BYTES_A_NS
        for packed, outer in zip(packed_sides(problem.kind, size), (problem.m, problem.n))
        if packed
    )
    for speed, shared, (tile_m, tile_n, stages) in SPEEDS:
        values = dict(tile_m=tile_m, tile_n=tile_n, bytes_k=128, stages=stages, group_rows=8)
        items = 128 * (tile_m // 64 + 1)
        tiles = dict(values, tile_k=128 // size, adding=tile_m // 16)
        division, rank = best_splits(
            problem, profile, tiles, items, shared, speed * 2 / size, size,
            before + MAPS_NS, most=3200, cache=11000)
        note = "tensor cores fed by the copy engine, %d×%d tiles, %d stages" % (
            tile_m, tile_n, stages)
        yield rank, dict(values, **division), note
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="wide" file="parts/wide.mako"/>\
<%namespace name="split" file="parts/nv_split.mako"/>\
<%namespace name="activation" file="parts/nv_activation.mako"/>\
<%namespace name="packing" file="parts/nv_pack.mako"/>\
<%namespace name="pairs_of_sums" file="parts/nv_pairs.mako"/>\
<%namespace name="leaving" file="parts/nv_leaving.mako"/>\
<%namespace name="ptx" file="parts/ptx.mako"/>\
// nv_wgmma: one thread tells the copy engine what to bring, and four warps together multiply it.
//
//     out[row, col] = sum over phases p of tile_a[row, phase] @ tile_b[phase, col]
//
// A work-group lives as long as the launch and does one tile after another. Its first four warps
// are the producer, of which one thread works; each further four are a consumer, with 64 rows of
// the tile_m x tile_n elements in their registers. They meet at two barriers a stage:
//
//     producer     wait empty[s] · ask for both tiles of a phase, 128 bytes of terms, into stage s
//     copy engine  … writes them, and counts the bytes at full[s]
//     consumer     wait full[s] · multiply stage s · once that is done: arrive at empty[s]
//
// so that copies run stages - 1 phases ahead, across tiles too.
% if late:
// Of a long tile the first consumer does the last ${late} phases alone, and then the second: so one
// multiplies, as fast as both, while the other is in its epilogue.
% endif
//
// The copy engine knows an operand by a tensor map: address, extents, strides, the box to bring.
// Each work-group makes its own two in local memory and puts them into `maps`. Boxes are 128 bytes
// wide, and the engine swaps their 16-byte chunks (c ^ row % 8) as wgmma reads them:
//
//     lines along k     [row of A, column of B][128 bytes of terms]
//     lines across k    [block of 64 rows (columns)][term][128 bytes]      16-bit elements only
//
// What fits neither (TF32 and 8-bit elements across k, odd strides) is first copied to `packed_x`.
// Places outside the matrices come as zeros, in A and B alike.
//
// Index spaces, large to small: splits > batch > groups of group_rows rows of tiles > tiles,
// column by column > phases > consumers > warps > lanes.
% if entry == "pack_a" or entry == "pack_b":
typedef ${kind.index} index_t;
${packing.pack(entry[-1])}
% else:
${types.prelude()}
${wide.types()}
${load.functions()}
${store.functions(activation.attr.is_quick(kind))}
${activation.functions()}
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void ${entry}(${parameters}) {
    // [stage][A, then B], results on their way out, two tensor maps, barriers full and empty
    __local uchar tiles[${local_bytes}] __attribute__((aligned(1024)));
    const uint tiles_at = ${ptx.local_address("tiles")};
    const uint full = tiles_at + ${barriers_at}, empty = full + ${8 * stages}${f", first_is_done = full + {16 * stages}" if late else ""};
    const int item = get_local_id(0), warp = item >> 5, lane = item & 31;
    const index_t groups = get_num_groups(0);

    // clear: barriers and maps
    if (item == 0) {
% for s in range(stages):
        ${ptx.barrier_init(f"full + {8 * s}", "1")}
        ${ptx.barrier_init(f"empty + {8 * s}", str(consumers))}
% endfor
% if late:
        ${ptx.barrier_init("first_is_done", "1")}
% endif
        ${ptx.barrier_init_done()}
    }
    if (item < 64) ((__local uint *)(tiles + ${maps_at}))[item] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong a_map = (ulong)maps + (ulong)get_group_id(0) * 256, b_map = a_map + 128;
% for x, number in (("a", 0), ("b", 1)):
    if (warp == ${number}) {
        if (lane == 0) {
${make_map(x, f"(tiles_at + {maps_at + 128 * number})")}\
        }
        ${ptx.publish_map(x + "_map", f"tiles_at + {maps_at + 128 * number}")}
    }
% endfor
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);

    int stage = 0;
    uint parity = 0;
    if (warp < 4) {
        // load: the producer
% if uneven:
        ${ptx.fewer_registers(uneven[0])}
% endif
        if (item == 0) {
            ${ptx.acquire_map("a_map")}
            ${ptx.acquire_map("b_map")}
            for (index_t turn = get_group_id(0); turn < work; turn += groups) {
${split.where_am_i("turn")}\
${batch_indices()}\
                for (index_t first = first_term; first < end_term; first += ${tile_k}) {
                    ${ptx.barrier_wait(f"empty + stage * 8", "parity ^ 1")}
                    const uint at = full + stage * 8, to = tiles_at + stage * ${stage_bytes};
                    ${ptx.barrier_expect("at", stage_bytes)}
${copy("a", "to")}\
${copy("b", f"to + {tile_m * 128}")}\
                    if (++stage == ${stages}) {
                        stage = 0;
                        parity ^= 1;
                    }
                }
            }
        }
    } else {
<%
    # tiles that lie inside the result have a text of their own
    apart = pairs == "packed" and (staged or activation.attr.is_brief(kind, pairs))
    early_bias = apart and lengthy and kind.bias
%>\
        // compute: a consumer
% if uneven:
        ${ptx.more_registers(uneven[1])}
% endif
        const int consumer = (warp >> 2) - 1;
        const ulong a_tile = ${descriptor(f"tiles_at + consumer * {64 * 128}", a_across)};
        const ulong b_tile = ${descriptor(f"tiles_at + {tile_m * 128}", b_across)};
% if late:
        uint later_parity = 0;
% endif
        for (index_t turn = get_group_id(0); turn < work; turn += groups) {
${split.which_terms("turn")}\
            acc_t sums[${numbers}];
            int last = -1;
% if late:
            // with all stages in between, the first cannot be done with two tiles unnoticed
            const int one_by_one = end_term - first_term > ${stages * tile_k};
            const index_t late_term = one_by_one && consumer == 1 ? first_term + ((end_term - first_term - 1) / ${tile_k} - ${late - 1}) * ${tile_k} : -1;
% endif
            for (index_t first = first_term; first < end_term; first += ${tile_k}) {
% if late:
                if (first == late_term) {
                    ${ptx.warpgroup_wait(0)}
                    if ((item & 127) == 0) {
                        ${ptx.barrier_arrive("empty + last * 8")}
                    }
                    last = -1;
                    ${ptx.barrier_wait("first_is_done", "later_parity")}
                    later_parity ^= 1;
                }
% endif
                ${ptx.barrier_wait("full + stage * 8", "parity")}
                const ulong a_at = a_tile + (uint)(stage * ${stage_bytes // 16}), b_at = b_tile + (uint)(stage * ${stage_bytes // 16});
                ${ptx.warpgroup_fence()}
% for group in range(4):
                ${ptx.warpgroup_multiply(kind.a.dtype, tile_n, [f"sums[{i}]" for i in range(numbers)], f"a_at + {group * (128 if a_across else 2)}", f"b_at + {group * (128 if b_across else 2)}", a_across, b_across, None if group else "first != first_term")}
% endfor
                ${ptx.warpgroup_commit()}
% if late:
                if (one_by_one && item == 128 && first + ${tile_k} >= end_term) {
                    ${ptx.barrier_arrive("first_is_done")}
                }
% endif
                // the last phase is done once only this one is under way
                ${ptx.warpgroup_wait(1)}
                if (last >= 0 && (item & 127) == 0) {
                    ${ptx.barrier_arrive("empty + last * 8")}
                }
                last = stage;
                if (++stage == ${stages}) {
                    stage = 0;
                    parity ^= 1;
                }
            }
            // where the tile is, which takes some divisions, while the last phase is multiplied
${split.which_tile()}\
% if apart:
            const int inside = first_row + ${tile_m} <= m && first_col + ${tile_n} <= n;
% endif
% if early_bias:
            // loads take as long as half a phase
${index.bases("batch")}\
${leaving.load_bias()}\
% endif
            ${ptx.warpgroup_wait(0)}
            ${ptx.hold([f"sums[{i}]" for i in range(numbers)], kind.a.dtype)}
            if ((item & 127) == 0) {
                ${ptx.barrier_arrive("empty + last * 8")}
            }

% if "partial" in arguments:
${split.exchange([f"sums[{i}]" for i in range(numbers)], 4 * consumers, "(consumer * 4 + (warp & 3))", "continue")}\
% endif
            // epilogue and store
% if not early_bias:
${index.bases("batch")}\
% endif
            const index_t warp_row = first_row + consumer * 64 + (warp & 3) * 16;
            const index_t lane_col = first_col + (lane & 3) * 2;
% if apart:
            if (inside${" && bias_row_stride == 0" if early_bias else ""}) {
${leaving.store_inside(early_bias)}\
            } else {
% endif
% if lengthy:
${leaving.store_waiting()}\
% elif staged:
${leaving.store_staged()}\
% else:
% for half in range(2):
            {
                const index_t row = warp_row + (lane >> 2) + ${8 * half};
% for j in range(tile_n // 8):
                {
                    const index_t col = lane_col + ${8 * j};
${pairs_of_sums.store_pair(f"sums[{4 * j + 2 * half}]", f"sums[{4 * j + 2 * half + 1}]")}\
                }
% endfor
            }
% endfor
% endif
% if apart:
            }
% endif
        }
    }
}
% endif

<%def name="batch_indices()">\
% for d in range(kind.batch_rank - 1, 0, -1):
                const index_t batch_at_${d} = ${"batch" if d == kind.batch_rank - 1 else f"batch_left_{d + 1}"} % batch_size_${d};
                const index_t batch_left_${d} = ${"batch" if d == kind.batch_rank - 1 else f"batch_left_{d + 1}"} / batch_size_${d};
% endfor
% if kind.batch_rank:
                const index_t batch_at_0 = ${"batch" if kind.batch_rank == 1 else "batch_left_1"};
% endif
</%def>

<%def name="make_map(x, at)">\
<%
    packed, across, tile = (a_packed, a_across, tile_m) if x == "a" else (b_packed, b_across, tile_n)
    outer = "m" if x == "a" else "n"
    line = f"{x}_row_stride" if (x == "a") != bool(across) else f"{x}_col_stride"
    rank = kind.batch_rank
    if packed:
        address = f"(ulong)packed_{x}"
        extents, strides, box = ["k", "m" if x == "a" else "n"], [f"{x}_pitch * {size}ul"], [tile_k, tile]
        if rank:
            extents.append(f"{x}_copies")
            strides.append(f"{x}_pitch * {size}ul * {outer}")
            box.append(1)
    else:
        address = f"(ulong)({x} + {x}_offset)"
        extents = [outer, "k"] if across else ["k", outer]
        box = [64, tile_k] if across else [tile_k, tile]
        strides = [f"{line} * {size}ul"]
        for d in range(rank - 1, -1, -1):
            name = f"{x}_batch_stride_{d}"
            count = f"batch_size_{d}" if d else ("batch_count" if rank == 1 else "batch_count / (" + " * ".join(f"batch_size_{e}" for e in range(1, rank)) + ")")
            # a matrix that is repeated is one; the stride is of no use then, but must be one
            extents.append(f"({name} ? {count} : 1)")
            strides.append(f"({name} ? {name} * {size}ul : 16ul)")
            box.append(1)
%>\
${ptx.tensor_map(at, address, kind.a.dtype, extents, strides, box)}\
</%def>

<%def name="copy(x, to)">\
<%
    packed, across, tile = (a_packed, a_across, tile_m) if x == "a" else (b_packed, b_across, tile_n)
    outer = "first_row" if x == "a" else "first_col"
    if packed:
        batch = [f"{x}_copies > 1 ? batch : 0"] if kind.batch_rank else []
    else:
        batch = [f"{x}_batch_stride_{d} ? batch_at_{d} : 0" for d in range(kind.batch_rank - 1, -1, -1)]
%>\
% if across:
% for block in range(tile // 64):
                    ${ptx.copy_box(f"{to} + {block * tile_k * 128}", x + "_map", [f"{outer} + {block * 64}", "first", *batch], "at")}
% endfor
% else:
                    ${ptx.copy_box(to, x + "_map", ["first", outer, *batch], "at")}
% endif
</%def>

<%def name="descriptor(at, across)"><%
    # start / 16, distance of blocks / 16, of 8 rows / 16, swizzle of 128 bytes
    leading = tile_k * 128 // 16 if across else 1
%>((ulong)((${at}) >> 4) | (ulong)${leading} << 16 | 64ul << 32 | 1ul << 62)</%def>
