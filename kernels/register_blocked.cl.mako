<%!
EXTENDS = "parts/gpu_header.mako"
SUMMARY = "A micro-tile of the result in each work-item's registers, fed from double-buffered tiles."
SOURCES = (
    "V. Volkov, J. Demmel: Benchmarking GPUs to tune dense linear algebra (SC 2008)",
    "K. Goto, R. van de Geijn: Anatomy of high-performance matrix multiplication (TOMS 2008)",
    "C. Nugteren: CLBlast, a tuned OpenCL BLAS library (IWOCL 2018)",
    "OpenCL specification, section 3.3, memory model: local memory and work-group barriers",
)
REQUIRES = ()
REPRODUCIBLE = ("splits == 1", "slices == 1")
PARAMETERS = {
    # Rows and columns of the result that a work-group computes, and terms staged at a time.
    # Powers of two, so that work-items divide every tile between them.
    "tile_m": (8, 16, 32, 64, 128),
    "tile_n": (8, 16, 32, 64, 128),
    "tile_k": (4, 8, 16, 32, 64, 128),
    # Rows and columns of the result that a work-item holds in registers.
    "micro_m": (2, 4, 8, 16),
    "micro_n": (2, 4, 8),
    # Elements that are read or written at once, where alignment and layout allow it.
    "vector_width": (2, 4),
    # 1: the fragments of the next term are read while this one is multiplied, also over the
    # barrier. Costs micro_m + micro_n registers more.
    "prefetch": (0, 1),
    # Terms that stand in the text one after another; the rest is a loop. More is faster where
    # the compiler copes: text and build time grow with unroll * micro_m * micro_n.
    "unroll": (4, 8, 16),
    # Teams of work-items, each of which computes the whole tile from its own share of the terms
    # of a phase; at the end their sums are added. For results of so few elements that one team
    # would leave most of a compute unit idle.
    "slices": (1, 2, 4, 8),
}
RUNTIME_PARAMETERS = {
    # Rows of tiles that are walked together, column by column, so that work-groups which run at
    # the same time share tiles of B in the cache, and of A.
    "group_rows": (1, 8),
    # Into how many parts k is split, each summed by work-groups of its own.
    "splits": (1, 2, 4, 8, 16, 32, 64, 128, 192),
}
# Small, rectangular and all different, so that tests reach every border with small matrices.
TEST_CONFIGS = (
    dict(tile_m=8, tile_n=16, tile_k=4, micro_m=2, micro_n=4, vector_width=2, prefetch=1,
         unroll=4, slices=1, group_rows=1, splits=1),
    dict(tile_m=16, tile_n=8, tile_k=8, micro_m=4, micro_n=2, vector_width=4, prefetch=1,
         unroll=4, slices=2, group_rows=8, splits=1),
    dict(tile_m=32, tile_n=16, tile_k=4, micro_m=8, micro_n=2, vector_width=2, prefetch=0,
         unroll=4, slices=1, group_rows=8, splits=2),
    dict(tile_m=8, tile_n=32, tile_k=16, micro_m=2, micro_n=8, vector_width=4, prefetch=0,
         unroll=4, slices=4, group_rows=1, splits=4),
)
DEFAULT = dict(tile_m=16, tile_n=16, tile_k=8, micro_m=2, micro_n=2, vector_width=2, prefetch=0,
               unroll=8, slices=1, group_rows=8, splits=1)
WORKSPACE_TYPES = {"partial": "acc_t"}
CONSTRAINTS = (
    "micro_m <= tile_m",
    "micro_n <= tile_n",
    "unroll <= terms",
    "work_items <= profile.max_work_group_size",
    "work_items <= profile.max_work_item_sizes[0]",
    # every work-item loads at least one element of each tile
    "work_items <= tile_m * tile_k",
    "work_items <= tile_n * tile_k",
    "local_bytes <= profile.usable_local_bytes",
    "registers <= 256",
    # where there are elements enough for everyone, sharing out k only costs
    "slices == 1 or tile_m * tile_n <= 4096",
    "splits == 1 or problem.batch_count * problem.m * problem.n <= 2**22",
)
ALIGNMENT_CLASSES = (1, 16)
INSTRUMENT = ("none",)


def derive(config, kind, profile):
    vector = config.vector_width
    is_complex = kind.compute.startswith("complex")
    items_m = max(config.tile_m // config.micro_m, 1)
    items_n = max(config.tile_n // config.micro_n, 1)
    slice_items = items_m * items_n
    work_items = slice_items * config.slices
    width_m = 1 if is_complex else min(vector, config.micro_m)
    width_n = 1 if is_complex else min(vector, config.micro_n)
    lane_cols = min(items_n, 8)
    lane_rows = min(items_m, max(32 // lane_cols, 1))

    # Lines of A and B in user memory run along the terms, or across them.
    a_along_k = kind.a.order != "column"
    b_along_k = kind.b.order == "column"
    a_each = max(config.tile_m * config.tile_k // work_items, 1)
    b_each = max(config.tile_n * config.tile_k // work_items, 1)
    a_unit = unit_of(kind.a, min(vector, a_each))
    b_unit = unit_of(kind.b, min(vector, b_each))
    a_units = (config.tile_k if a_along_k else config.tile_m) // a_unit
    b_units = (config.tile_k if b_along_k else config.tile_n) // b_unit
    a_piece = piece_of(kind.a, a_unit, a_units)
    b_piece = piece_of(kind.b, b_unit, b_units)
    # Where a tile is transposed on its way, longer lines spread a column over the banks.
    a_local_stride = config.tile_m + (vector if a_along_k else 0)
    b_local_stride = config.tile_n + (vector if b_along_k else 0)

    # The sums of a work-item, and the units in which they are stored.
    out_unit = 1
    if not is_complex and kind.out.dtype in PLAIN_OUTPUTS:
        out_unit = unit_of(kind.out, width_m if kind.out.order == "column" else width_n)
    rows, cols = range(config.micro_m), range(config.micro_n)
    if kind.out.order == "column":
        elements = [(i, j) for j in cols for i in rows]
    else:
        elements = [(i, j) for i in rows for j in cols]

    words = max(kind.compute_itemsize // 4, 1)
    fragments = (config.micro_m + config.micro_n) * (1 + config.prefetch)
    numbers = config.micro_m * config.micro_n + fragments + a_each + b_each
    # Both tiles twice; or, at the end, the sums that half of the teams hand to the other half.
    tile_elements = 2 * config.tile_k * (a_local_stride + b_local_stride)
    handed_on = config.slices // 2 * config.tile_m * config.tile_n
    local_elements = max(tile_elements, handed_on)
    return dict(
        items_m=items_m,
        items_n=items_n,
        slice_items=slice_items,
        work_items=work_items,
        terms=max(config.tile_k // config.slices, 1),
        halves=[h for h in (4, 2, 1) if 2 * h <= config.slices],
        local_elements=local_elements,
        lane_cols=lane_cols,
        lane_items=lane_cols * lane_rows,
        lane_blocks_n=items_n // lane_cols,
        lane_rows=lane_rows,
        width_m=width_m,
        width_n=width_n,
        row_steps=steps(config.micro_m, width_m, items_m),
        col_steps=steps(config.micro_n, width_n, items_n),
        a_along_k=a_along_k,
        b_along_k=b_along_k,
        a_unit=a_unit,
        b_unit=b_unit,
        out_unit=out_unit,
        a_unit_alignment=unit_alignment(kind.a, a_unit),
        b_unit_alignment=unit_alignment(kind.b, b_unit),
        out_unit_alignment=unit_alignment(kind.out, out_unit),
        a_units=a_units,
        b_units=b_units,
        a_piece=a_piece,
        b_piece=b_piece,
        a_passes=(
            passes_along_k(a_each // a_unit, work_items, a_piece, a_unit, config.tile_m)
            if a_along_k else passes_across_k(a_each // a_unit, work_items, a_units, a_unit)
        ),
        b_passes=(
            passes_along_k(b_each // b_unit, work_items, b_piece, b_unit, config.tile_n)
            if b_along_k else passes_across_k(b_each // b_unit, work_items, b_units, b_unit)
        ),
        a_each=a_each,
        b_each=b_each,
        out_units=[elements[i : i + out_unit] for i in range(0, len(elements), out_unit)],
        a_local_stride=a_local_stride,
        b_local_stride=b_local_stride,
        vector_bytes=max(vector * kind.compute_itemsize, 16),
        local_bytes=local_elements * kind.compute_itemsize,
        reduce_items=REDUCE_ITEMS,
        reduce_teams=teams_that_reduce(profile),
        # an estimate in 32-bit registers: sums, fragments, staged elements, addresses
        registers=numbers * words + 24,
    )


def piece_of(operand, unit, units):
    # Units of a line that are read before those of the next: 64 bytes.
    return min(max(64 // (unit * STORAGE_BYTES.get(operand.dtype, 2)), 1), units)


def passes_along_k(count, work_items, piece, unit, tile):
    # The offset (outer, term) of each unit that a work-item loads, from its first.
    units = [i * work_items for i in range(count)]
    return [(x // piece % tile, (x // (piece * tile) * piece + x % piece) * unit) for x in units]


def passes_across_k(count, work_items, units, unit):
    return [(i * work_items % units * unit, i * work_items // units) for i in range(count)]


def steps(micro, width, items):
    # Offset of each of a work-item's rows (columns) in the tile, from its first.
    return [i // width * items * width + i % width for i in range(micro)]


# By 32-bit words in an accumulator: speed with every compute unit busy, in multiples of the naive
# kernel's (where `tiled` has 3); work-groups that share a unit; and (tile_m, tile_n, tile_k,
# micro_m, micro_n, vector_width, prefetch, unroll, slices).
# For devices with 48 KiB of local memory, of which those known give a work-item 255 registers.
MANY_REGISTERS = {
    1: (
        (13.3, 3, (64, 128, 16, 8, 8, 4, 1, 16, 1)),
        (12.3, 2, (128, 128, 16, 16, 8, 4, 1, 4, 1)),
        (12, 6, (64, 64, 16, 8, 8, 4, 1, 16, 1)),
        (11.5, 5, (64, 64, 16, 8, 4, 4, 1, 16, 1)),
        (9.5, 4, (32, 32, 32, 8, 4, 4, 1, 8, 4)),
        (8, 6, (32, 64, 16, 4, 4, 4, 1, 16, 1)),
        (7, 4, (64, 16, 32, 8, 4, 4, 1, 8, 4)),
        (7, 4, (16, 64, 32, 4, 8, 4, 1, 8, 4)),
        (6, 3, (16, 32, 64, 4, 4, 4, 1, 8, 8)),
        (4, 3, (64, 8, 64, 4, 2, 4, 1, 8, 8)),
        (2, 4, (8, 16, 64, 2, 2, 2, 1, 8, 8)),
    ),
    2: (
        (6.3, 2, (64, 128, 8, 8, 8, 2, 0, 8, 1)),
        (6, 4, (64, 64, 8, 8, 8, 2, 0, 8, 1)),
        (5.5, 3, (64, 64, 16, 8, 4, 2, 1, 16, 1)),
        (4.5, 4, (32, 64, 16, 4, 4, 2, 1, 16, 1)),
        (4, 4, (32, 16, 32, 4, 4, 2, 1, 8, 4)),
        (4, 4, (16, 32, 32, 4, 4, 2, 1, 8, 4)),
        (3.5, 16, (16, 16, 16, 2, 2, 2, 1, 16, 1)),
    ),
    4: ((5, 4, (32, 32, 16, 4, 4, 2, 1, 16, 1)), (3.5, 8, (16, 16, 16, 2, 2, 2, 1, 16, 1))),
}
# For others: at 8 x 8 every compiler tried spilled registers to memory, and at these none did.
FEW_REGISTERS = {
    1: (
        (9, 4, (64, 64, 8, 8, 4, 4, 0, 8, 1)),
        (8, 2, (64, 64, 16, 4, 4, 4, 1, 16, 1)),
        (7, 4, (32, 32, 16, 4, 4, 4, 1, 16, 1)),
        (6.5, 2, (32, 32, 32, 4, 4, 4, 1, 8, 4)),
        (5, 2, (32, 16, 64, 4, 4, 4, 1, 8, 8)),
        (5, 2, (16, 32, 64, 4, 4, 4, 1, 8, 8)),
        (2.5, 4, (8, 16, 64, 2, 2, 2, 1, 16, 4)),
    ),
    2: (
        (6, 2, (64, 64, 8, 4, 4, 2, 0, 8, 1)),
        (5, 4, (32, 32, 8, 4, 4, 2, 0, 8, 1)),
        (3.5, 4, (32, 16, 32, 4, 2, 2, 0, 4, 4)),
        (3.5, 4, (16, 32, 32, 2, 4, 2, 0, 4, 4)),
        (3.5, 8, (16, 16, 8, 2, 2, 2, 1, 8, 1)),
    ),
    4: ((5, 2, (32, 32, 8, 4, 4, 2, 1, 8, 1)), (3.5, 4, (16, 16, 8, 2, 2, 2, 1, 8, 1))),
}
# For devices with more than 64 KiB of local memory, of which the one known runs 32 work-items side
# by side with 64 registers each.
FEWEST_REGISTERS = {
    1: (
        (7, 2, (64, 64, 8, 4, 4, 4, 0, 4, 1)),
        (5, 4, (32, 32, 8, 4, 2, 4, 0, 4, 1)),
        (5.5, 2, (32, 32, 32, 4, 4, 4, 0, 4, 4)),
        (4, 2, (32, 16, 64, 4, 2, 4, 0, 8, 4)),
        (4, 2, (16, 32, 64, 2, 4, 4, 0, 8, 4)),
    ),
    2: ((4, 4, (32, 32, 8, 2, 2, 2, 0, 4, 1)), (3, 4, (16, 16, 8, 2, 2, 2, 0, 4, 1))),
    4: ((3, 4, (16, 16, 8, 2, 2, 2, 0, 4, 1)),),
}
# A CPU runs the work-items of a group one after another between barriers: few, large ones.
ON_CPU = ((7, 1, (32, 32, 32, 4, 8, 4, 0, 4, 1)), (5, 1, (16, 16, 16, 4, 4, 4, 0, 4, 1)))


def propose(problem, profile):
    # (expected speed in multiples of the naive kernel's, parameters, why)
    words = max(problem.kind.compute_itemsize // 4, 1)
    if profile.is_cpu:
        entries = ON_CPU
    elif profile.local_mem_bytes > 65536:
        entries = FEWEST_REGISTERS[words]
    elif 49152 <= profile.local_mem_bytes < 65536:
        entries = MANY_REGISTERS[words]
    else:
        entries = FEW_REGISTERS[words]
    names = ("tile_m", "tile_n", "tile_k", "micro_m", "micro_n", "vector_width", "prefetch",
             "unroll", "slices")
    across_k = problem.kind.a.order == "column" or problem.kind.b.order == "column"
    for speed, shared, numbers in entries:
        values = dict(zip(names, numbers), group_rows=8)
        if values["micro_m"] * values["micro_n"] > 64 and across_k:
            continue  # no register is left for the addresses of the other orders
        if problem.reproducible and values["slices"] > 1:
            continue  # one sum over all of k, in order
        rank, splits = best_splits(problem, profile, speed, shared, values)
        note = "%d×%d elements in a work-item's registers" % (values["micro_m"], values["micro_n"])
        if splits > 1:
            note += ", k in %d parts" % splits
        yield rank, dict(values, splits=splits), note


def best_splits(problem, profile, speed, shared, values):
    # (rank, splits): k is split where that fills the device.
    if profile.is_cpu:
        return speed * useful_share(problem, profile.compute_units, shared, values, 1), 1
    groups = ceil_div(problem.m, values["tile_m"]) * ceil_div(problem.n, values["tile_n"])
    groups *= problem.batch_count
    most = 192 if values["micro_m"] * values["micro_n"] <= 64 else 1
    found = []
    for splits in RUNTIME_PARAMETERS["splits"]:
        worth = problem.k >= 4 * splits * values["tile_k"]
        fills = groups * splits < 8 * shared * profile.compute_units
        if splits > 1 and (problem.reproducible or not (worth and fills and splits <= most)):
            break
        useful = useful_share(problem, profile.compute_units, shared, values, splits)
        moved = traffic(problem, values)
        phases = ceil_div(ceil_div(problem.k, splits), values["tile_k"]) + 1
        rank = rank_of(problem, profile, speed * useful, moved, splits, phases)
        found.append((rank, -splits))
    rank, splits = max(found)
    return rank, -splits


def traffic(problem, values):
    # Bytes of global memory, where what comes again from the cache counts a third.
    a = problem.m * problem.k * STORAGE_BYTES.get(problem.a.dtype, 2)
    b = problem.n * problem.k * STORAGE_BYTES.get(problem.b.dtype, 2)
    again = a * (ceil_div(problem.n, values["tile_n"]) - 1)
    again += b * (ceil_div(problem.m, values["tile_m"]) - 1)
    return problem.minimum_bytes + problem.batch_count * again / 3


def useful_share(problem, units, shared, values, splits):
    # What part of the device's time goes into elements of the result. Work-groups are started
    # shared * units at a time; those left at the end run alone and slowly.
    area = values["tile_m"] * values["tile_n"]
    groups = ceil_div(problem.m, values["tile_m"]) * ceil_div(problem.n, values["tile_n"])
    groups *= problem.batch_count * splits
    large = values["micro_m"] * values["micro_n"] >= 64
    full, left = divmod(groups, shared * units)
    rounds = ceil_div(left, units)
    if full and left:
        rounds = min(rounds + 1, shared)
    elif rounds < min(shared, 3):
        # Alone or in pairs, work-groups cannot hide each other's waiting; large micro-tiles hide
        # some of it themselves.
        rounds *= 1.2 if large else (1.7, 1.7, 1.25)[rounds]
    elements = problem.batch_count * problem.m * problem.n * splits
    each = ceil_div(max(problem.k, 1), splits)  # a sum of no terms is written all the same
    # One round only loads, and work-items with many elements take long to begin and to end.
    terms = ceil_div(each, values["tile_k"]) + (2 if large else 1)
    return elements / ((full * shared + rounds) * units * area) * (
        each / (terms * values["tile_k"])
    )


def workspace(config, derived, problem, profile):
    splits, _ = parts_of_k(problem, config.splits, config.tile_k)
    rows = ceil_div(problem.m, config.tile_m) * config.tile_m
    cols = ceil_div(problem.n, config.tile_n) * config.tile_n
    return partial_workspace(problem, splits, rows, cols)


def launches(config, derived, problem, profile):
    splits, per_split = parts_of_k(problem, config.splits, config.tile_k)
    tiles_m = ceil_div(problem.m, config.tile_m)
    tiles_n = ceil_div(problem.n, config.tile_n)
    groups = splits * problem.batch_count * tiles_m * tiles_n
    values = dict(
        tiles_m=tiles_m, tiles_n=tiles_n, per_split=per_split, k_whole=problem.k, m=problem.m,
        n=problem.n, partial_rows=tiles_m * config.tile_m, partial_cols=tiles_n * config.tile_n,
    )
    geometry = dict(
        global_size=(groups * derived.work_items,), local_size=(derived.work_items,),
        values=values,
    )
    order = ("tiles_m", "tiles_n", "group_rows")
    if splits == 1:
        return [
            dict(entry="register_blocked",
                 args=("a", "b", "out", "sizes", "batch", "scalars", *order), **geometry)
        ]
    return [
        dict(entry="register_blocked_part",
             args=("a", "b", "partial", "m", "n", "k_whole", "batch", *order, "per_split",
                   "partial_rows", "partial_cols"), **geometry),
        reduce_launch(problem, derived, splits, values["partial_rows"], values["partial_cols"]),
    ]
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="wide" file="parts/wide.mako"/>\
<%namespace name="stage" file="parts/stage.mako"/>\
<%namespace name="micro" file="parts/micro_tile.mako"/>\
<%namespace name="split" file="parts/split.mako"/>\
// register_blocked: each work-item computes a micro-tile of the result in its registers.
//
//     out[row, col] = sum over phases p of
//                     sum over i < tile_k of tile_a[i, row in tile] * tile_b[i, col in tile]
//
// A work-group owns tile_m x tile_n elements of the result and stages tiles of A and B in local
// memory, as `tiled` does. But a work-item computes micro_m x micro_n of them, not one. For each
// term i it reads micro_m elements of A and micro_n elements of B and multiplies each with each:
//
//                              one line of tile_b
//                            . . b0 b1 . . b2 b3 . .     row_part: micro_n = 4 elements
//
//      one line     .
//      of tile_a    a0          s00 s01     s02 s03
//      (stored as   a1          s10 s11     s12 s13      sums: micro_m x micro_n, which stay
//      a line:      .                                    in registers from first term to last
//      transposed)  .
//                   a2          s20 s21     s22 s23
//                   a3          s30 s31     s32 s33
//                   .
//                   column_part: micro_m = 4 elements
//
// micro_m + micro_n reads of local memory serve micro_m * micro_n multiplications, where `tiled`
// needs two reads for each: that is what makes it fast. Rows and columns of a work-item come in
// vectors of vector_width, read at once; the vectors lie apart, because neighbouring work-items
// have their own between them:
//
//      column in the tile = j * items_n * width + item_col * width + q,   j: vector, q: element
//
// There are two buffers for each tile. While phase p multiplies one, the loads of phase p + 1 are
// on their way from global memory into registers; at its end they are put into the other, and
// the one barrier of a phase makes that complete. A buffer is overwritten only after the barrier
// that followed its last read, so no second barrier is needed.
//
// Elements outside the matrices count as zero in both tiles (so they add 0 * 0, never 0 * Inf).
//
// Where the result is small and k is long, k is shared out: between work-groups (`splits`), whose
// sums a second launch adds, and between teams of a work-group (`slices`), each of which takes
// its share of the terms of every phase; their sums meet in local memory, the upper half of the
// teams handing theirs to the lower half until one is left. Both orders are fixed.
//
// Index spaces, large to small: parts of k > batch > groups of group_rows rows of tiles > tiles,
// column by column > teams > work-items, in blocks of up to 8 columns x 4 rows > phases > terms >
// the micro-tile.
<%
    in_part = entry == "register_blocked_part"
    begin = "begin_k" if in_part else "0"
%>\
${types.prelude()}
${wide.types()}
${load.functions()}
% if not in_part:
${store.functions()}
% endif
${micro.types()}

% if entry == "reduce":
__kernel __attribute__((reqd_work_group_size(${reduce_items * reduce_teams}, 1, 1)))
void ${entry}(${parameters}) {
${split.reduce()}\
}
% else:
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void ${entry}(${parameters}) {
% if kind.alpha != "zero":
    // [buffer][term][row of A, column of B]
% if slices == 1:
    __local acc_t tile_a[${2 * tile_k * a_local_stride}] __attribute__((aligned(${vector_bytes})));
    __local acc_t tile_b[${2 * tile_k * b_local_stride}] __attribute__((aligned(${vector_bytes})));
% else:
    __local acc_t shared[${local_elements}] __attribute__((aligned(${vector_bytes})));
    __local acc_t *tile_a = shared, *tile_b = shared + ${2 * tile_k * a_local_stride};
% endif

% endif
    // where am I
    const index_t group = get_group_id(0);
    const index_t tiles_of_batch = tiles_m * tiles_n;
% if in_part:
    const index_t batches = group / tiles_of_batch;
    const index_t batch = batches % batch_count, part = batches / batch_count;
    const index_t tile = group - batches * tiles_of_batch;
    const index_t begin_k = part * per_split;
    const index_t k = k_whole - begin_k < per_split ? k_whole : begin_k + per_split;  // its end
% else:
    const index_t batch = group / tiles_of_batch;
    const index_t tile = group - batch * tiles_of_batch;
% endif
    const index_t above = tile / (group_rows * tiles_n) * group_rows;
    const index_t rows_here = tiles_m - above < group_rows ? tiles_m - above : group_rows;
    const index_t tile_here = tile - above * tiles_n;
    const index_t first_row = (above + tile_here % rows_here) * ${tile_m};
    const index_t first_col = (tile_here / rows_here) * ${tile_n};
    const int item = get_local_id(0);
% if slices == 1:
    const int lane = item % ${lane_items}, block = item / ${lane_items};
% else:
    const int slice = item / ${slice_items}, place = item % ${slice_items};
    const int lane = place % ${lane_items}, block = place / ${lane_items};
% endif
    const int item_row = block / ${lane_blocks_n} * ${lane_rows} + lane / ${lane_cols};
    const int item_col = block % ${lane_blocks_n} * ${lane_cols} + lane % ${lane_cols};
${index.bases("batch")}
    // clear
${micro.clear()}
% if kind.alpha != "zero":
${stage.places("a")}${stage.places("b")}\
${micro.declare()}\
    int buffer = 0;

    // for each k tile; before the first, a round that only loads it
    for (index_t first = ${begin} - ${tile_k}; first < k; first += ${tile_k}) {
        const index_t following = first + ${tile_k};
        const int other = 1 - buffer;
        if (first >= ${begin} && ${stage.regular("a", "following")} && ${stage.regular("b", "following")}) {
            // load: the next tiles, into registers
${stage.fetch("a", "following")}${stage.fetch("b", "following")}
            // compute, without a branch: so a compiler can move loads and stores in between
${compute_tile(unroll)}
            // store the next tiles in the other buffer: its last readers met the last barrier
${stage.deposit("a", "other")}${stage.deposit("b", "other")}\
        } else {
            // the first and the last tiles, and those at a border
            if (first >= ${begin}) {
${compute_tile(2 if unroll == terms else unroll)}\
            }
% for x in ("a", "b"):
            if (${stage.regular(x, "following")}) {
${stage.fetch(x, "following")}${stage.deposit(x, "other")}\
            } else if (following < k) {
${stage.border(x, "other", "following")}\
            }
% endfor
        }
        buffer = other;

        // barrier: the next tiles are complete, and everyone has read this one
        barrier(CLK_LOCAL_MEM_FENCE);
% if prefetch:
        // compute: the last term (zeros in the first round), and read the next tiles' first
${micro.read(0, "buffer", "0")}${micro.accumulate(1)}\
% endif
    }

% endif
% if slices > 1 and kind.alpha != "zero":
    // add the teams' sums: the upper half hands its own on, until one team has all
% for half in halves:
    barrier(CLK_LOCAL_MEM_FENCE);
    if (slice >= ${half} && slice < ${2 * half}) {
${micro.hand_on("shared + (slice - %d) * %d" % (half, tile_m * tile_n))}\
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (slice < ${half}) {
${micro.take_over("shared + slice * %d" % (tile_m * tile_n))}\
    }
% endfor

% endif
    // epilogue and store
    const index_t item_first_row = first_row + item_row * ${width_m};
    const index_t item_first_col = first_col + item_col * ${width_n};
% if slices > 1:
    if (slice == 0) {
% endif
% if in_part:
${store_part()}\
% else:
% for unit in out_units:
${store_elements(unit)}\
% endfor
% endif
% if slices > 1:
    }
% endif
}
% endif

<%def name="compute_tile(unroll)">\
% if unroll < terms:
            for (int i = 0; i < ${terms - unroll * prefetch}; i += ${unroll}) {
% for term in range(unroll):
${compute_term("i", term)}\
% endfor
            }
% endif
% if prefetch:
% for term in range(terms - unroll, terms - 1):
${compute_term("0", term)}\
% endfor
% elif unroll == terms:
% for term in range(terms):
${compute_term("0", term)}\
% endfor
% endif
</%def>

<%def name="compute_term(start, term)">\
% if prefetch:
${micro.read((term + 1) % 2, "buffer", f"{start} + {term + 1}")}\
${micro.accumulate(term % 2)}\
% else:
${micro.read(0, "buffer", f"{start} + {term}")}\
${micro.accumulate(0)}\
% endif
</%def>

<%def name="store_elements(unit)">\
<%
    def place(i, j):
        return f"sum_{i}_{j}", f"(item_first_row + {row_steps[i]})", f"(item_first_col + {col_steps[j]})"
    elements = [place(*x) for x in unit]
    value, row, col = elements[0]
%>\
% if len(unit) > 1:
${wide.store_unit(elements)}\
% else:
    if (${row} < m && ${col} < n) {
${store.store(value, row, col)}\
    }
% endif
</%def>

<%def name="store_part()">\
% if kind.out.order == "column":
% for j in range(micro_n):
% for i in range(0, micro_m, width_m):
    *(__global column_t *)(partial + ${split.at("part", "(item_first_row + %d)" % row_steps[i], "item_first_col + %d" % col_steps[j])}) =
        ${"sum_%d_%d" % (i, j) if width_m == 1 else "(column_t)(" + ", ".join("sum_%d_%d" % (i + q, j) for q in range(width_m)) + ")"};
% endfor
% endfor
% else:
% for i in range(micro_m):
% for j in range(0, micro_n, width_n):
    *(__global row_t *)(partial + ${split.at("part", "item_first_row + %d" % row_steps[i], "(item_first_col + %d)" % col_steps[j])}) =
        ${"sum_%d_%d" % (i, j) if width_n == 1 else "(row_t)(" + ", ".join("sum_%d_%d" % (i, j + q) for q in range(width_n)) + ")"};
% endfor
% endfor
% endif
</%def>
