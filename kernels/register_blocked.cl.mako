<%!
SUMMARY = "A micro-tile of the result in each work-item's registers, fed from double-buffered tiles."
SOURCES = (
    "V. Volkov, J. Demmel: Benchmarking GPUs to tune dense linear algebra (SC 2008)",
    "K. Goto, R. van de Geijn: Anatomy of high-performance matrix multiplication (TOMS 2008)",
    "C. Nugteren: CLBlast, a tuned OpenCL BLAS library (IWOCL 2018)",
    "OpenCL specification, section 3.3, memory model: local memory and work-group barriers",
)
REQUIRES = ()
REPRODUCIBLE = ()
PARAMETERS = {
    # Rows and columns of the result that a work-group computes, and terms staged at a time.
    # Powers of two, so that work-items divide every tile between them.
    "tile_m": (8, 16, 32, 64, 128),
    "tile_n": (8, 16, 32, 64, 128),
    "tile_k": (4, 8, 16, 32),
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
}
RUNTIME_PARAMETERS = {
    # Rows of tiles that are walked together, column by column, so that work-groups which run at
    # the same time share tiles of B in the cache, and of A.
    "group_rows": (1, 8),
}
# Small, rectangular and all different, so that tests reach every border with small matrices.
TEST_CONFIGS = (
    dict(tile_m=8, tile_n=16, tile_k=4, micro_m=2, micro_n=4, vector_width=2, prefetch=1,
         unroll=4, group_rows=1),
    dict(tile_m=16, tile_n=8, tile_k=8, micro_m=4, micro_n=2, vector_width=4, prefetch=1,
         unroll=4, group_rows=8),
    dict(tile_m=32, tile_n=16, tile_k=4, micro_m=8, micro_n=2, vector_width=2, prefetch=0,
         unroll=4, group_rows=8),
    dict(tile_m=8, tile_n=32, tile_k=16, micro_m=2, micro_n=8, vector_width=4, prefetch=0,
         unroll=8, group_rows=1),
)
DEFAULT = dict(tile_m=16, tile_n=16, tile_k=8, micro_m=2, micro_n=2, vector_width=2, prefetch=0,
               unroll=8, group_rows=8)
CONSTRAINTS = (
    "micro_m <= tile_m",
    "micro_n <= tile_n",
    "unroll <= tile_k",
    "work_items <= profile.max_work_group_size",
    "work_items <= profile.max_work_item_sizes[0]",
    # every work-item loads at least one element of each tile
    "work_items <= tile_m * tile_k",
    "work_items <= tile_n * tile_k",
    "local_bytes <= profile.usable_local_bytes",
    "registers <= 256",
)
ALIGNMENT_CLASSES = (1, 16)
INSTRUMENT = ("none",)


def derive(config, kind, profile):
    vector = config.vector_width
    is_complex = kind.compute.startswith("complex")
    items_m = max(config.tile_m // config.micro_m, 1)
    items_n = max(config.tile_n // config.micro_n, 1)
    work_items = items_m * items_n
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
    return dict(
        items_m=items_m,
        items_n=items_n,
        work_items=work_items,
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
        a_passes=passes(a_each // a_unit, work_items, a_units, a_unit, a_along_k),
        b_passes=passes(b_each // b_unit, work_items, b_units, b_unit, b_along_k),
        a_each=a_each,
        b_each=b_each,
        out_units=[elements[i : i + out_unit] for i in range(0, len(elements), out_unit)],
        a_local_stride=a_local_stride,
        b_local_stride=b_local_stride,
        vector_bytes=max(vector * kind.compute_itemsize, 16),
        local_bytes=2 * config.tile_k * (a_local_stride + b_local_stride) * kind.compute_itemsize,
        # an estimate in 32-bit registers: sums, fragments, staged elements, addresses
        registers=numbers * words + 24,
    )


# Outputs that are written as they are, with no conversion beyond C's own; and their sizes.
PLAIN_OUTPUTS = dict(
    int8=1, uint8=1, int16=2, uint16=2, int32=4, uint32=4, int64=8, uint64=8, float32=4, float64=8
)
STORAGE_BYTES = dict(PLAIN_OUTPUTS, bool=1, bfloat16=2, complex64=8, complex128=16)


def unit_of(operand, most):
    # Elements of an operand that may be read at once; float16 has its own load function.
    wide = operand.alignment >= 16 and operand.order != "strided"
    return most if wide and operand.dtype in STORAGE_BYTES else 1


def unit_alignment(operand, unit):
    return min(unit * STORAGE_BYTES.get(operand.dtype, 1), 16)


def passes(count, work_items, units, unit, along_k):
    # The offset (outer, term) of each unit that a work-item loads, from its first.
    lines = [(i * work_items // units, i * work_items % units * unit) for i in range(count)]
    return lines if along_k else [(position, line) for line, position in lines]


def steps(micro, width, items):
    # Offset of each of a work-item's rows (columns) in the tile, from its first.
    return [i // width * items * width + i % width for i in range(micro)]


def tiles(extent, tile):
    return -(-extent // tile)


# By 32-bit words in an accumulator: speed with every compute unit busy, in multiples of the naive
# kernel's (where `tiled` has 3); work-groups that share a unit; and (tile_m, tile_n, tile_k,
# micro_m, micro_n, vector_width, prefetch, unroll).
# For devices with 48 KiB of local memory, of which those known give a work-item 255 registers.
MANY_REGISTERS = {
    1: (
        (13, 3, (64, 128, 16, 8, 8, 4, 1, 16)),
        (12, 2, (128, 128, 16, 16, 8, 4, 1, 4)),
        (11.9, 6, (64, 64, 16, 8, 8, 4, 1, 16)),
        (8, 6, (32, 64, 16, 4, 4, 4, 1, 16)),
        (7, 12, (32, 32, 16, 4, 4, 4, 1, 16)),
        (3.5, 16, (16, 16, 16, 2, 2, 2, 1, 16)),
    ),
    2: (
        (6, 4, (64, 64, 8, 8, 8, 2, 0, 8)),
        (5.5, 3, (64, 64, 16, 8, 4, 2, 1, 16)),
        (4.5, 4, (32, 64, 16, 4, 4, 2, 1, 16)),
        (3.5, 16, (16, 16, 16, 2, 2, 2, 1, 16)),
    ),
    4: ((5, 4, (32, 32, 16, 4, 4, 2, 1, 16)), (3.5, 8, (16, 16, 16, 2, 2, 2, 1, 16))),
}
# For others: at 8 x 8 every compiler tried spilled registers to memory, and at these none did.
FEW_REGISTERS = {
    1: (
        (9, 4, (64, 64, 8, 8, 4, 4, 1, 8)),
        (8, 2, (64, 64, 16, 4, 4, 4, 1, 16)),
        (7, 4, (32, 32, 16, 4, 4, 4, 1, 16)),
        (3.5, 8, (16, 16, 16, 2, 2, 2, 1, 16)),
    ),
    2: (
        (6, 2, (64, 64, 8, 4, 4, 2, 1, 8)),
        (5, 4, (32, 32, 8, 4, 4, 2, 1, 8)),
        (3.5, 8, (16, 16, 8, 2, 2, 2, 1, 8)),
    ),
    4: ((5, 2, (32, 32, 8, 4, 4, 2, 1, 8)), (3.5, 4, (16, 16, 8, 2, 2, 2, 1, 8))),
}
# A CPU runs the work-items of a group one after another between barriers: few, large ones.
ON_CPU = ((7, 1, (32, 32, 32, 4, 8, 4, 0, 4)), (5, 1, (16, 16, 16, 4, 4, 4, 0, 4)))


def propose(problem, profile):
    # (expected speed in multiples of the naive kernel's, parameters, why)
    words = max(problem.kind.compute_itemsize // 4, 1)
    if profile.is_cpu:
        entries = ON_CPU
    elif 49152 <= profile.local_mem_bytes < 65536:
        entries = MANY_REGISTERS[words]
    else:
        entries = FEW_REGISTERS[words]
    names = ("tile_m", "tile_n", "tile_k", "micro_m", "micro_n", "vector_width", "prefetch",
             "unroll")
    for speed, shared, numbers in entries:
        values = dict(zip(names, numbers), group_rows=8)
        useful = useful_share(problem, profile.compute_units, shared, values)
        note = "%d×%d elements in a work-item's registers" % (values["micro_m"], values["micro_n"])
        yield speed * useful, values, note


def useful_share(problem, units, shared, values):
    # What part of the device's time goes into elements of the result. Work-groups are started
    # shared * units at a time; those left at the end run alone and slowly.
    area = values["tile_m"] * values["tile_n"]
    groups = tiles(problem.m, values["tile_m"]) * tiles(problem.n, values["tile_n"])
    groups *= problem.batch_count
    full, left = divmod(groups, shared * units)
    rounds = tiles(left, units)
    if full and left:
        rounds = min(rounds + 1, shared)
    elements = problem.batch_count * problem.m * problem.n
    terms = tiles(problem.k, values["tile_k"]) + 1  # one round loads only
    return elements / ((full * shared + rounds) * units * area) * (
        problem.k / (terms * values["tile_k"])
    )


def workspace(config, derived, problem, profile):
    return {}


def launches(config, derived, problem, profile):
    tiles_m = tiles(problem.m, config.tile_m)
    tiles_n = tiles(problem.n, config.tile_n)
    groups = problem.batch_count * tiles_m * tiles_n
    return [
        dict(
            entry="register_blocked",
            global_size=(groups * derived.work_items,),
            local_size=(derived.work_items,),
            args=("a", "b", "out", "sizes", "batch", "scalars", "tiles_m", "tiles_n",
                  "group_rows"),
            values=dict(tiles_m=tiles_m, tiles_n=tiles_n),
        )
    ]
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="wide" file="parts/wide.mako"/>\
<%namespace name="stage" file="parts/stage.mako"/>\
<%namespace name="micro" file="parts/micro_tile.mako"/>\
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
// Index spaces, large to small: batch > groups of group_rows rows of tiles > tiles, column by
// column > work-items, in blocks of up to 8 columns x 4 rows > phases > terms > the micro-tile.
${types.prelude()}
${wide.types()}
${load.functions()}
${store.functions()}
${micro.types()}

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void ${entry}(${parameters}) {
% if kind.alpha != "zero":
    // [buffer][term][row of A, column of B]
    __local acc_t tile_a[${2 * tile_k * a_local_stride}] __attribute__((aligned(${vector_bytes})));
    __local acc_t tile_b[${2 * tile_k * b_local_stride}] __attribute__((aligned(${vector_bytes})));

% endif
    // where am I
    const index_t group = get_group_id(0);
    const index_t tiles_of_batch = tiles_m * tiles_n;
    const index_t batch = group / tiles_of_batch;
    const index_t tile = group - batch * tiles_of_batch;
    const index_t above = tile / (group_rows * tiles_n) * group_rows;
    const index_t rows_here = tiles_m - above < group_rows ? tiles_m - above : group_rows;
    const index_t tile_here = tile - above * tiles_n;
    const index_t first_row = (above + tile_here % rows_here) * ${tile_m};
    const index_t first_col = (tile_here / rows_here) * ${tile_n};
    const int item = get_local_id(0);
    const int lane = item % ${lane_items}, block = item / ${lane_items};
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
    for (index_t first = -${tile_k}; first < k; first += ${tile_k}) {
        const index_t following = first + ${tile_k};
        const int other = 1 - buffer;
        if (first >= 0 && ${stage.regular("a", "following")} && ${stage.regular("b", "following")}) {
            // load: the next tiles, into registers
${stage.fetch("a", "following")}${stage.fetch("b", "following")}
            // compute, without a branch: so a compiler can move loads and stores in between
${compute_tile(unroll)}
            // store the next tiles in the other buffer: its last readers met the last barrier
${stage.deposit("a", "other")}${stage.deposit("b", "other")}\
        } else {
            // the first and the last tiles, and those at a border
            if (first >= 0) {
${compute_tile(2 if unroll == tile_k else unroll)}\
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
    // epilogue and store
    const index_t item_first_row = first_row + item_row * ${width_m};
    const index_t item_first_col = first_col + item_col * ${width_n};
% for unit in out_units:
${store_elements(unit)}\
% endfor
}

<%def name="compute_tile(unroll)">\
% if unroll < tile_k:
            for (int i = 0; i < ${tile_k - unroll * prefetch}; i += ${unroll}) {
% for term in range(unroll):
${compute_term("i", term)}\
% endfor
            }
% endif
% if prefetch:
% for term in range(tile_k - unroll, tile_k - 1):
${compute_term("0", term)}\
% endfor
% elif unroll == tile_k:
% for term in range(tile_k):
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
