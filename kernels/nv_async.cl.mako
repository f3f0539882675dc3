<%!
EXTENDS = "parts/nv_header.mako"
SUMMARY = "NVIDIA: a micro-tile in each work-item's registers, fed by copies that run on their own."
SOURCES = (
    "NVIDIA: PTX ISA, section 9.7.9.25.3, asynchronous copies (cp.async)",
    "V. Volkov, J. Demmel: Benchmarking GPUs to tune dense linear algebra (SC 2008)",
    "NVIDIA: CUTLASS, efficient GEMM in CUDA: multistage pipelines for SIMT kernels",
)
REQUIRES = (
    "profile.family == 'nvidia'",
    "profile.probe('compute_capability', 0) >= 80",
    "kind.a.dtype == kind.b.dtype",
    "kind.a.dtype in ('float32', 'int32', 'uint32')",
    "kind.compute in ('float32', 'uint32')",
    "kind.alpha != 'zero'",
    "not kind.reproducible",
)
PARAMETERS = {
    # Rows and columns of the result that a work-group computes, and terms staged at a time.
    "tile_m": (16, 32, 64, 128, 256),
    "tile_n": (16, 32, 64, 128, 256),
    "tile_k": (8, 16, 32),
    # Rows and columns of the result that a work-item holds in registers.
    "micro_m": (4, 8, 16),
    "micro_n": (4, 8),
    # Buffers of local memory, all but one of which are being filled while one is read.
    "stages": (2, 3, 4),
    # Registers that a work-item may have: as many as the compiler likes (0), or fewer, so that more
    # groups share a compute unit. This compiler has no option for it where a group's size is given;
    # the driver's PTX has a line for it (post_build).
    "registers": (0, 128),
}
RUNTIME_PARAMETERS = {
    # Rows of tiles that are walked together, so that groups share tiles in the cache.
    "group_rows": (1, 4, 8, 16),
    # Parts into which the sum over k is cut, each a work-group's; who comes last adds them up.
    "splits": (*range(1, 17), 20, 24, 28, 32, 40, 48, 64, 96, 128),
    # Work-groups a compute unit in a full wave, whose tiles are not cut; with 0 every tile is.
    "wave": (0, 1, 2, 3, 4, 5, 6, 8, 9),
}
DEFAULT = dict(tile_m=32, tile_n=32, tile_k=16, micro_m=4, micro_n=4, stages=2, registers=0,
               group_rows=8, splits=1, wave=0)
TEST_CONFIGS = (
    dict(tile_m=16, tile_n=32, tile_k=8, micro_m=4, micro_n=4, stages=3, registers=0,
         group_rows=4, splits=1, wave=0),
    dict(tile_m=32, tile_n=16, tile_k=8, micro_m=4, micro_n=4, stages=2, registers=128,
         group_rows=1, splits=3, wave=0),
    dict(tile_m=32, tile_n=16, tile_k=16, micro_m=4, micro_n=4, stages=4, registers=0,
         group_rows=8, splits=2, wave=1),
)
CONSTRAINTS = (
    "work_items >= 32",
    "work_items <= profile.max_work_group_size",
    # every work-item copies at least one unit of each tile
    "work_items * a_unit <= tile_m * tile_k",
    "work_items * b_unit <= tile_n * tile_k",
    # and every unit it copies is as far from the one before
    "work_items % a_units == 0",
    "work_items % b_units == 0",
    "local_bytes <= profile.usable_local_bytes",
    "needed_registers <= 255",
    "splits == 1 or splits * tile_k <= problem.k",
    "wave == 0 or splits > 1",
)
ALIGNMENT_CLASSES = (1, 16)
INSTRUMENT = ("none",)
POST_BUILD = "limit_registers"
WORKSPACE_TYPES = {"partial": "acc_t", "counters": "uint"}


def post_build(binary, profile):
    return limit_registers(binary)


def derive(config, kind, profile):
    items_m = max(config.tile_m // config.micro_m, 1)
    items_n = max(config.tile_n // config.micro_n, 1)
    work_items = items_m * items_n
    lane_cols = min(items_n, 8)
    lane_rows = min(items_m, max(32 // lane_cols, 1))
    found = dict(
        items_m=items_m,
        items_n=items_n,
        work_items=work_items,
        lane_cols=lane_cols,
        lane_rows=lane_rows,
        lane_items=lane_cols * lane_rows,
        lane_blocks_n=items_n // lane_cols,
        row_steps=steps(config.micro_m, 4, items_m),
        col_steps=steps(config.micro_n, 4, items_n),
    )
    local = 0
    for name, operand, along_k, tile in (
        ("a", kind.a, kind.a.order != "column", config.tile_m),
        ("b", kind.b, kind.b.order == "column", config.tile_n),
    ):
        # A line across the terms is copied 16 bytes at a time; one along them is transposed on
        # its way, so each of its elements goes to a line of its own.
        wide = operand.alignment >= 16 and operand.order != "strided" and not along_k
        unit = 4 if wide else 1
        units = (config.tile_k if along_k else tile) // unit
        # Longer lines spread a column, which a transposed copy writes, over the banks.
        stride = tile + (4 if along_k else 0)
        local += stride * config.tile_k * 4
        each = max(tile * config.tile_k // work_items // unit, 1)
        found.update({
            name + "_along_k": along_k,
            name + "_unit": unit,
            name + "_units": units,
            name + "_passes": passes(each, work_items, units, unit, along_k),
            name + "_local_stride": stride,
            name + "_unit_alignment": unit * 4,
            name + "_strides": strides(name, operand.order, name == "a"),
        })
    found.update(out_tiling(config, kind, 4))
    fragments = 2 * (config.micro_m + config.micro_n)
    return dict(
        found,
        tile_b_offset=config.tile_k * found["a_local_stride"] * config.stages,
        local_bytes=local * config.stages,
        # an estimate: sums, two sets of fragments, addresses
        needed_registers=config.micro_m * config.micro_n + fragments + 28,
    )


def workspace(config, derived, problem, profile):
    t = tiles_of(config, problem, profile, config.tile_k)
    return partial_workspace(config, t, derived.work_items // 32, problem)


def launches(config, derived, problem, profile):
    return tile_launches("nv_async", tiles_of(config, problem, profile, config.tile_k), derived)


# By tiles: speed with every compute unit busy, in multiples of the naive kernel's (where tiled
# has 3); work-groups that share a unit; tile_m, tile_n, micro_m, micro_n, stages,
# registers.
SPEEDS = (
    (14.7, 3, (64, 128, 8, 8, 2, 0)),
    (13, 5, (64, 64, 8, 8, 3, 0)),
    (12.5, 4, (64, 64, 8, 4, 3, 0)),
    (11.5, 4, (128, 32, 8, 4, 3, 0)),
    (11.5, 4, (32, 128, 4, 8, 3, 0)),
    (10.5, 6, (32, 64, 4, 8, 3, 0)),
    (8, 9, (32, 32, 4, 4, 3, 0)),
)


def propose(problem, profile):
    names = ("tile_m", "tile_n", "micro_m", "micro_n", "stages", "registers")
    for speed, shared, numbers in SPEEDS:
        values = dict(zip(names, numbers), tile_k=16, group_rows=8)
        if values["stages"] == 2 and problem.kind.b.order == "column":
            values["stages"] = 3  # copies of single elements take longer
        elif problem.k <= 64:
            values["stages"] = 2  # of few phases the first begins sooner
        items = values["tile_m"] * values["tile_n"] // (values["micro_m"] * values["micro_n"])
        division, rank = best_splits(problem, profile, values, items, shared, speed, 4)
        if problem.k <= 64 and problem.m <= values["tile_m"] and problem.n <= values["tile_n"]:
            rank *= 1.15  # batches of small matrices: as measured
        note = "%d×%d elements in registers, %d stages of asynchronous copies" % (
            values["micro_m"], values["micro_n"], values["stages"])
        yield rank, dict(values, **division), note
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="wide" file="parts/wide.mako"/>\
<%namespace name="split" file="parts/nv_split.mako"/>\
<%namespace name="ptx" file="parts/ptx.mako"/>\
// nv_async: register_blocked's micro-tiles, fed by NVIDIA's asynchronous copies.
//
//     out[row, col] = sum over phases p of
//                     sum over i < tile_k of tile_a[i, row in tile] * tile_b[i, col in tile]
//
// A work-group owns tile_m x tile_n elements of the result, a work-item micro_m x micro_n of
// them in its registers, as in register_blocked (the drawing is there). There the next tiles
// wait in registers until this one is multiplied. Here they go straight to local memory:
//
//     stage      0        1        2        0        1     …      stages = 3
//     copied     p0       p1       p2       p3       p4
//     multiplied          |  p0        p1       p2              phase p reads stage p % stages
//
// Copies of a phase are one group; before a phase, the thread waits until only the groups of
// later phases are on their way, and a barrier makes every thread's copies visible to all. The
// registers that are saved let four groups of 128 work-items share a compute unit, not two.
//
// Both tiles lie as lines of one term: tile_x[stage][term][outer]. Where user memory runs along
// the terms, each element is copied on its own (4 bytes) to its line, which transposes the tile
// in flight; where it runs across them, 16 bytes at a time. A copy reads `bytes` bytes and fills
// up with zeros: none for a term that does not exist, so that 0 * 0 is added, never 0 * Inf.
// Rows of A below the matrix (columns of B beside it) are read as its last: what they are
// multiplied to is never stored.
//
// With splits > 1 a work-group sums only its part of the terms (parts/nv_split.mako).
//
// Index spaces, large to small: parts > batch > groups of group_rows rows of tiles > tiles,
// column by column > work-items, in blocks of up to 8 columns x 4 rows > phases > terms > the
// micro-tile.
${types.prelude()}
${wide.types()}
${load.functions()}
${store.functions()}
typedef ${compute.scalar}4 vec_t;

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void ${entry}(${parameters}) {
    // [stage][term][row of A], then [stage][term][column of B]
    __local acc_t tiles[${local_bytes // 4}] __attribute__((aligned(16)));
    __local acc_t *tile_a = tiles, *tile_b = tiles + ${tile_b_offset};
${ptx.declarations()}
% if registers:
    ${ptx.limit_registers(registers)}
% endif

    // where am I
    const int item = get_local_id(0);
${split.where_am_i()}
    const int lane = item % ${lane_items}, block = item / ${lane_items};
    const int item_row = block / ${lane_blocks_n} * ${lane_rows} + lane / ${lane_cols};
    const int item_col = block % ${lane_blocks_n} * ${lane_cols} + lane % ${lane_cols};
${index.bases("batch")}
    // clear
% for i in range(micro_m):
    acc_t ${", ".join(f"sum_{i}_{j} = zero()" for j in range(micro_n))};
% endfor
${places("a")}\
${places("b")}\
    // two sets of fragments: micro_m elements of A and micro_n of B, of one term
    vec_t column_part[2][${micro_m // 4}], row_part[2][${micro_n // 4}];

    // for each k tile: the first stages - 1 phases' tiles are on their way before the loop
    const int inside = a_inside && b_inside;
    #pragma unroll 1
    for (int filling = 0; filling < ${stages - 1}; filling++) {
        const index_t begin = first_term + filling * ${tile_k};
        if (begin + ${tile_k} <= end_term) {
${copy_whole("a", "filling", True)}\
${copy_whole("b", "filling", True)}\
        } else if (begin < end_term) {
${copy_border("a", "filling", "begin")}\
${copy_border("b", "filling", "begin")}\
        }
        ${ptx.commit()}
    }
    int buffer = 0;
    ${ptx.wait(stages - 2)}
    barrier(CLK_LOCAL_MEM_FENCE);
${read(0, "buffer", 0)}\
    // the phases that are followed, stages - 1 later, by one whose tiles are whole
    const index_t ready = (end_term - first_term) / ${tile_k} - ${stages - 1};
    const index_t phases = inside && ready > 0 ? ready : 0;
    for (index_t left = phases; left > 0; left--) {
        const int filled = buffer == 0 ? ${stages - 1} : buffer - 1;
        // load: a later phase's tiles into the stage that the last phase read
${copy_whole("a", "filled")}\
${copy_whole("b", "filled")}\
        ${ptx.commit()}

        // compute: the fragments of the next term are read while this one is multiplied
% for term in range(tile_k - 1):
${read((term + 1) % 2, "buffer", term + 1)}\
${accumulate(term % 2)}\
% endfor
${last_term()}\
    }
    // the same for the last phases, and for tiles at a border
    for (index_t first = first_term + phases * ${tile_k}; first < end_term; first += ${tile_k}) {
        const int filled = buffer == 0 ? ${stages - 1} : buffer - 1;
        const index_t begin = first + ${(stages - 1) * tile_k};
        if (begin + ${tile_k} <= end_term) {
${copy_whole("a", "filled", True)}\
${copy_whole("b", "filled", True)}\
        } else if (begin < end_term) {
${copy_border("a", "filled", "begin")}\
${copy_border("b", "filled", "begin")}\
        }
        ${ptx.commit()}
        #pragma unroll 1
        for (int term = 0; term < ${tile_k - 2}; term += 2) {
${read(1, "buffer", "(term + 1)")}\
${accumulate(0)}\
${read(0, "buffer", "(term + 2)")}\
${accumulate(1)}\
        }
${read(1, "buffer", tile_k - 1)}\
${accumulate(0)}\
${last_term()}\
    }

% if "partial" in arguments:
${split.exchange([f"sum_{i}_{j}" for i in range(micro_m) for j in range(micro_n)], work_items // 32, "(item >> 5)", "return")}\
% endif
    // epilogue and store
    const index_t item_first_row = first_row + item_row * 4;
    const index_t item_first_col = first_col + item_col * 4;
% for unit in out_units:
${store_elements(unit)}\
% endfor
}

<%def name="read(set, buffer, term)">\
        {
            __local const acc_t *from_a = tile_a + ${buffer} * ${tile_k * a_local_stride} + ${term} * ${a_local_stride} + item_row * 4;
            __local const acc_t *from_b = tile_b + ${buffer} * ${tile_k * b_local_stride} + ${term} * ${b_local_stride} + item_col * 4;
% for i in range(micro_m // 4):
            column_part[${set}][${i}] = *(__local const vec_t *)(from_a + ${i * items_m * 4});
% endfor
% for j in range(micro_n // 4):
            row_part[${set}][${j}] = *(__local const vec_t *)(from_b + ${j * items_n * 4});
% endfor
        }
</%def>

<%def name="accumulate(set)">\
<%doc>
Every other row from right to left: neighbours in the text share an operand, which the register file
keeps at hand. Without it the kernel is 4 % slower on an H200.
</%doc>\
% for i in range(micro_m):
% for j in range(micro_n) if i % 2 == 0 else range(micro_n - 1, -1, -1):
        sum_${i}_${j} = multiply_add(column_part[${set}][${i // 4}].s${i % 4}, row_part[${set}][${j // 4}].s${j % 4}, sum_${i}_${j});
% endfor
% endfor
</%def>

<%def name="places(x)">
<%
    along_k, unit = (a_along_k, a_unit) if x == "a" else (b_along_k, b_unit)
    units = a_units if x == "a" else b_units
    first, extent, tile = ("first_row", "m", tile_m) if x == "a" else ("first_col", "n", tile_n)
    outer_stride, term_stride = a_strides if x == "a" else b_strides
    line, position = f"item / {units}", f"item % {units} * {unit}"
    steps = a_passes if x == "a" else b_passes
    outer_step, term_step = steps[1] if len(steps) > 1 else (0, 0)
%>\
    const int ${x}_outer = ${line if along_k else position};
    const int ${x}_term = ${position if along_k else line};
    const int ${x}_inside = ${first} + ${tile} <= ${extent};
    const uint ${x}_to = ${ptx.local_address("tile_" + x)} + (${x}_term * ${a_local_stride if x == "a" else b_local_stride} + ${x}_outer) * 4;
    __global const ${"float" if compute.kind == "real" else "uint"} *${x}_from = (__global const ${"float" if compute.kind == "real" else "uint"} *)${x} + ${x}_base
        + (${first} + ${x}_outer) * ${outer_stride} + (first_term + ${x}_term) * ${term_stride};
</%def>

<%def name="copy_whole(x, stage, guarded=False)">\
<%
    # One k tile of A or B into a stage. X_from is the work-item's first element of it. guarded: of
    # a tile that may lie over the matrix's border; what is not there is not read.
    steps, unit = (a_passes, a_unit) if x == "a" else (b_passes, b_unit)
    local_stride = a_local_stride if x == "a" else b_local_stride
    outer_first, extent = ("first_row", "m") if x == "a" else ("first_col", "n")
    outer_stride, term_stride = a_strides if x == "a" else b_strides
    outer_step, term_step = steps[1] if len(steps) > 1 else (0, 0)

    def bytes_of(i):
        if not guarded:
            return None
        if unit == 1:
            return f"(left > {i * outer_step} ? 4 : 0)"
        return f"clamp((left - {i * outer_step}) * 4, 0, {4 * unit})"
%>\
        {
% if guarded:
            const int left = (int)min(${extent} - ${outer_first} - ${x}_outer, (index_t)${tile_m if x == "a" else tile_n});
% endif
            const uint to = ${x}_to + ${stage} * ${tile_k * local_stride * 4};
            ulong source = (ulong)${x}_from, step;
            ${ptx.scale("step", outer_stride if outer_step else term_stride, 4 * (outer_step or term_step))}
% for i in range(len(steps)):
            ${ptx.copy_async(4 * unit, f"to + {i * (term_step * local_stride + outer_step) * 4}", "source", bytes_of(i))}
% if i + 1 < len(steps):
            ${ptx.advance("source", "step")}
% endif
% endfor
            ${x}_from += (size_t)${term_stride} * ${tile_k};
        }
</%def>

<%def name="copy_border(x, stage, first)">\
<%
    steps, unit = (a_passes, a_unit) if x == "a" else (b_passes, b_unit)
    local_stride = a_local_stride if x == "a" else b_local_stride
    outer_first, extent = ("first_row", "m") if x == "a" else ("first_col", "n")
    outer_stride, term_stride = a_strides if x == "a" else b_strides
    outer_step, term_step = steps[1] if len(steps) > 1 else (0, 0)
%>\
        {
            uint to = ${x}_to + ${stage} * ${tile_k * local_stride * 4};
            index_t outer = ${outer_first} + ${x}_outer, term = ${first} + ${x}_term;
            #pragma unroll 1
            for (int i = 0; i < ${len(steps)}; i++) {
                const index_t left = outer < ${extent} ? ${extent} - outer : 0;
                const int bytes = term < end_term ? ${"4" if unit == 1 else f"left < {unit} ? (int)left * 4 : {unit * 4}"} : 0;
                const index_t safe_outer = left ? outer : ${f"{extent} - 1" if unit == 1 else "0"};
                const index_t safe_term = term < end_term ? term : first_term;
                const ulong source = (ulong)(${x} + ${x}_base + safe_outer * ${outer_stride} + safe_term * ${term_stride});
                ${ptx.copy_async(4 * unit, "to", "source", "bytes")}
                to += ${(term_step * local_stride + outer_step) * 4};
                outer += ${outer_step};
                term += ${term_step};
            }
            ${x}_from += (size_t)${term_stride} * ${tile_k};
        }
</%def>

<%def name="last_term()">\
        buffer = buffer == ${stages - 1} ? 0 : buffer + 1;

        // barrier: the next tiles are complete, and everyone has read this one
        ${ptx.wait(stages - 2)}
        barrier(CLK_LOCAL_MEM_FENCE);
${read(tile_k % 2, "buffer", 0)}\
${accumulate((tile_k - 1) % 2)}\
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
