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
    # Where rows of A (columns of B) run along the terms: transposed on their way to local memory,
    # 4 bytes at a time (0), or kept as they lie, 16 bytes at a time, and read 4 terms at once (1).
    "along": (0, 1),
}
RUNTIME_PARAMETERS = {
    # Rows of tiles that are walked together, so that groups share tiles in the cache.
    "group_rows": (1, 4, 8, 16),
    # Parts into which the sum over k is cut, each a work-group's; who comes last adds them up.
    "splits": (*range(1, 17), 20, 24, 28, 32, 40, 48, 64, 96, 128),
    # Work-groups a compute unit in a full wave, whose tiles are not cut; with 0 every tile is.
    "wave": (0, 1, 2, 3, 4, 5, 6, 8, 9),
    # Work-groups a compute unit that walk from tile to tile and have the next one's first terms
    # brought while they are at this one's last; with 0 a group has one tile.
    "walkers": (0, 2, 4, 8),
}
DEFAULT = dict(tile_m=32, tile_n=32, tile_k=16, micro_m=4, micro_n=4, stages=2, registers=0,
               along=0, group_rows=8, splits=1, wave=0, walkers=0)
TEST_CONFIGS = (
    dict(tile_m=16, tile_n=32, tile_k=8, micro_m=4, micro_n=4, stages=3, registers=0,
         group_rows=4, splits=1, wave=0),
    dict(tile_m=32, tile_n=16, tile_k=8, micro_m=4, micro_n=4, stages=2, registers=128,
         group_rows=1, splits=3, wave=0),
    dict(tile_m=32, tile_n=16, tile_k=16, micro_m=4, micro_n=4, stages=4, registers=0,
         group_rows=8, splits=2, wave=1),
    dict(tile_m=32, tile_n=16, tile_k=8, micro_m=4, micro_n=4, stages=3, registers=0,
         group_rows=8, splits=1, wave=0, walkers=2),
)
CONSTRAINTS = (
    "work_items >= 32",
    "along == 0 or a_lines",
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
    "walkers == 0 or splits == 1",
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
    )
    local = 0
    for name, operand, along_k, tile in (
        ("a", kind.a, kind.a.order != "column", config.tile_m),
        ("b", kind.b, kind.b.order == "column", config.tile_n),
    ):
        # A line across the terms is copied 16 bytes at a time; one along them is transposed on
        # its way, so each of its elements goes to a line of its own.
        wide = operand.alignment >= 16 and operand.order != "strided" and not along_k
        lines = bool(config.along) and along_k and operand.alignment >= 16
        lines = lines and operand.order != "strided"
        unit = 4 if wide or lines else 1
        units = (config.tile_k if along_k else tile) // unit
        # Longer lines spread a column, which a transposed copy writes, over the banks; and so they
        # do with what work-items read of neighbouring lines that are kept as they lie.
        stride = config.tile_k + 4 if lines else tile + (4 if along_k else 0)
        stage = stride * (tile if lines else config.tile_k)
        local += stage * 4
        each = max(tile * config.tile_k // work_items // unit, 1)
        found.update({
            name + "_along_k": along_k,
            name + "_lines": lines,
            name + "_stage": stage,
            name + "_unit": unit,
            name + "_units": units,
            name + "_passes": passes(each, work_items, units, unit, along_k),
            name + "_local_stride": stride,
            name + "_unit_alignment": unit * 4,
            name + "_strides": strides(name, operand.order, name == "a"),
        })
    row_width, col_width = 1 if found["a_lines"] else 4, 1 if found["b_lines"] else 4
    found.update(out_tiling(config, kind, col_width))
    fragments = 2 * (config.micro_m + config.micro_n)
    if config.along:
        fragments = 16 + 4 * config.micro_n
    return dict(
        found,
        row_width=row_width,
        col_width=col_width,
        row_steps=steps(config.micro_m, row_width, items_m),
        col_steps=steps(config.micro_n, col_width, items_n),
        tile_b_offset=found["a_stage"] * config.stages,
        local_bytes=local * config.stages,
        # an estimate: sums, two sets of fragments, addresses
        needed_registers=config.micro_m * config.micro_n + fragments + 28,
    )


def workspace(config, derived, problem, profile):
    t = tiles_of(config, problem, profile, config.tile_k)
    return partial_workspace(config, t, derived.work_items // 32, problem)


def launches(config, derived, problem, profile):
    t = tiles_of(config, problem, profile, config.tile_k)
    if not config.walkers:
        return tile_launches("nv_async", t, derived)
    # no more groups than have two tiles each
    groups = min(config.walkers * profile.compute_units, ceil_div(t["work"], 2))
    (launch,) = tile_launches("nv_async_walking", dict(t, work=groups), derived)
    return [dict(launch, args=(*launch["args"], "walking"), values=dict(t, walking=groups))]


# By tiles: speed with every compute unit busy, in multiples of the naive kernel's (where tiled
# has 3); work-groups that share a unit; tile_m, tile_n, micro_m, micro_n, stages.
SPEEDS = (
    (14.7, 3, (64, 128, 8, 8, 2)),
    (13, 5, (64, 64, 8, 8, 3)),
    (12.5, 4, (64, 64, 8, 4, 3)),
    (11.5, 4, (128, 32, 8, 4, 3)),
    (11.5, 4, (32, 128, 4, 8, 3)),
    (10.5, 6, (32, 64, 4, 8, 3)),
    (10.5, 6, (64, 32, 8, 4, 3)),
    (10, 5, (64, 32, 4, 4, 3)),
    (8, 9, (32, 32, 4, 4, 3)),
    (8, 6, (128, 16, 8, 4, 3)),
    (8, 9, (64, 16, 4, 4, 3)),
)


def copied_alone(kind, values):
    # What part of a tile's elements are copies of single elements of A or B, for each term.
    count = 0
    for operand, along_k, tile in (
        (kind.a, kind.a.order != "column", values["tile_m"]),
        (kind.b, kind.b.order == "column", values["tile_n"]),
    ):
        wide = operand.alignment >= 16 and operand.order != "strided"
        if not wide or along_k and not values["along"]:
            count += tile
    return count / (values["tile_m"] * values["tile_n"])


def as_measured(problem, values, splits, wave):
    # What the estimate of best_splits lacks, found on an H200: the part of its speed that is there.
    kind, along, single = problem.kind, values["along"], copied_alone(problem.kind, values)
    one_row, few_rows = (problem.m <= x * values["tile_m"] for x in (1, 2))
    micro_tile, one_column = values["micro_m"] * values["micro_n"], problem.n <= values["tile_n"]
    if splits > 1 and not wave:
        if min(problem.m, problem.n) > 128 and not along:
            return 1
        if values["tile_n"] == 128:
            if along:
                return 0.93 if one_row else 0.85
            return 0.86 if single and few_rows else 0.97
        # few work-groups wait for copies of single elements
        share = 1.05
        if single > 1 / 64:
            share = max(1 - 4 * single, 0.8)
        elif single or along:
            wide = along and not few_rows and values["tile_n"] == 64 and kind.b.order == "row"
            share = 0.95 if wide else 0.98
        return share * 0.94 if micro_tile == 64 and problem.batch_count == 1 else share
    if problem.k <= 64 and one_row and one_column:
        return 1.5 if min(problem.m, problem.n) > 32 else 1.15  # batches of small matrices
    if problem.k <= 64 and along and kind.b.order == "column" and micro_tile == 32:
        return 1.15 if kind.out.alignment < 16 and not one_column else 1
    # registers' banks collide
    return 1 if not along else 0.82 if values["tile_n"] == 128 else 0.92


def propose(problem, profile):
    kind = problem.kind
    names = ("tile_m", "tile_n", "micro_m", "micro_n", "stages")
    ways = (0, 1) if kind.a.order == "row" and kind.a.alignment >= 16 else (0,)
    for speed, shared, numbers in SPEEDS:
        for along in ways:
            if numbers[:2] == (64, 32) and not along:
                continue  # others are as good
            values = dict(zip(names, numbers), tile_k=16, registers=0, along=along, group_rows=8)
            if values["stages"] == 2 and kind.b.order == "column":
                values["stages"] = 3  # copies of single elements take longer
            elif problem.k <= 64:
                values["stages"] = 2  # of few phases the first begins sooner
            items = values["tile_m"] * values["tile_n"] // (values["micro_m"] * values["micro_n"])
            division, rank = best_splits(problem, profile, values, items, shared, speed, 4)
            rank *= as_measured(problem, values, **division)
            one_column = problem.n <= values["tile_n"] and problem.k <= 64
            note = "%d×%d elements in registers, %d stages of asynchronous copies" % (
                values["micro_m"], values["micro_n"], values["stages"])
            yield rank, dict(values, **division, walkers=0), note
            # groups that each hold several such tiles in turn
            walkers = max(512 // items, 2)
            tiles = problem.batch_count * ceil_div(problem.m, values["tile_m"])
            if one_column and walkers <= 8 and tiles > 1.4 * walkers * profile.compute_units:
                note += ", groups that walk over tiles"
                yield rank * 1.12, dict(values, **division, walkers=walkers), note
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="wide" file="parts/wide.mako"/>\
<%namespace name="split" file="parts/nv_split.mako"/>\
<%namespace name="copies" file="parts/nv_copies.mako"/>\
<%namespace name="lines" file="parts/nv_lines.mako"/>\
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
% if along:
// With `along`, rows of A (and columns of B) that run along the terms lie so in local memory too, and
// are copied 16 bytes at a time: a work-item reads 4 terms of a row at once, and multiplies them by
// its columns of 4 terms, for one pair of rows while the next is read. Its rows (and then columns) are
// not four neighbours each but items_m (items_n) apart, so that lanes read different banks.
//
% endif
// With splits > 1 a work-group sums only its part of the terms (parts/nv_split.mako).
//
% if "walking" in arguments:
// With walkers > 0 there are only as many work-groups as compute units hold, and each goes from
// tile to tile. The row of phases above runs on over all its tiles, so that the first terms of the
// next one come while this one's last are multiplied, and its sums are written.
//
% endif
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
% if "walking" not in arguments:
${split.where_am_i()}
% endif
    const int lane = item % ${lane_items}, block = item / ${lane_items};
    const int item_row = block / ${lane_blocks_n} * ${lane_rows} + lane / ${lane_cols};
    const int item_col = block % ${lane_blocks_n} * ${lane_cols} + lane % ${lane_cols};
% if "walking" in arguments:
${walk()}\
% else:
${index.bases("batch")}
${clear()}\
${copies.places("a")}\
${copies.places("b")}\
% if along:
${kept_lines()}\
% else:
    // two sets of fragments: micro_m elements of A and micro_n of B, of one term
    vec_t column_part[2][${micro_m // 4}], row_part[2][${micro_n // 4}];

    // for each k tile: the first stages - 1 phases' tiles are on their way before the loop
    const int inside = a_inside && b_inside;
    #pragma unroll 1
    for (int filling = 0; filling < ${stages - 1}; filling++) {
        const index_t begin = first_term + filling * ${tile_k};
        if (begin + ${tile_k} <= end_term) {
${copies.copy_whole("a", "filling", True)}\
${copies.copy_whole("b", "filling", True)}\
        } else if (begin < end_term) {
${copies.copy_border("a", "filling", "begin")}\
${copies.copy_border("b", "filling", "begin")}\
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
${copies.copy_whole("a", "filled")}\
${copies.copy_whole("b", "filled")}\
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
${copies.copy_whole("a", "filled", True)}\
${copies.copy_whole("b", "filled", True)}\
        } else if (begin < end_term) {
${copies.copy_border("a", "filled", "begin")}\
${copies.copy_border("b", "filled", "begin")}\
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
% endif

% if "partial" in arguments:
${split.exchange([f"sum_{i}_{j}" for i in range(micro_m) for j in range(micro_n)], work_items // 32, "(item >> 5)", "return")}\
% endif
    // epilogue and store
    const index_t item_first_row = first_row + item_row * ${row_width};
    const index_t item_first_col = first_col + item_col * ${col_width};
% for unit in out_units:
${store_elements(unit)}\
% endfor
% endif
}

<%def name="walk()">\
    const index_t tiles_of_batch = tiles_m * tiles_n, tiles_of_all = tiles_of_batch * batch_count;
    const index_t first_term = 0, end_term = k;
${copies.policies()}\
${copies.places("a")}\
${copies.places("b")}\
% if along:
${lines.declare()}\
% else:
    vec_t column_part[2][${micro_m // 4}], row_part[2][${micro_n // 4}];
% endif

    // what comes next: tile number `coming`, its terms from `begin` on
    index_t coming = get_group_id(0), begin = 0, first_row = 0, first_col = 0, coming_a = 0, coming_b = 0;
    #pragma unroll 1
    for (int filling = 0; filling < ${stages - 1}; filling++) {
${bring_next("filling")}\
    }
    int buffer = 0;
    ${ptx.wait(stages - 2)}
    barrier(CLK_LOCAL_MEM_FENCE);
% if along:
${lines.read_first("buffer")}\
% else:
${read(0, "buffer", 0)}\
% endif
    // for each tile
    #pragma unroll 1
    for (index_t number = get_group_id(0); number < tiles_of_all; number += walking) {
${clear()}\
        // for each k tile
        #pragma unroll 1
        for (index_t first = 0; first < k; first += ${tile_k}) {
            const int filled = buffer == 0 ? ${stages - 1} : buffer - 1;
${bring_next("filled")}\

            // compute
% if along:
${multiply_lines()}\
% else:
% for term in range(tile_k - 1):
${read((term + 1) % 2, "buffer", term + 1)}\
${accumulate(term % 2)}\
% endfor
${last_term()}\
% endif
        }

        // epilogue and store
${which_tile("number")}\
        const index_t item_first_row = tile_row + item_row * ${row_width};
        const index_t item_first_col = tile_col + item_col * ${col_width};
% if out_unit > 1:
        if (tile_row + ${tile_m} <= m && tile_col + ${tile_n} <= n) {
% for unit in out_units:
${store_whole(unit)}\
% endfor
        } else
% endif
        {
% for unit in out_units:
% for element in unit:
${store_elements([element])}\
% endfor
% endfor
        }
    }
</%def>

<%def name="kept_lines()">\
${lines.declare()}\
    // for each k tile: the first stages - 1 phases' tiles are on their way before the loop
    index_t begin = first_term;
    #pragma unroll 1
    for (int filling = 0; filling < ${stages - 1}; filling++) {
${bring("filling")}\
    }
    int buffer = 0;
    ${ptx.wait(stages - 2)}
    barrier(CLK_LOCAL_MEM_FENCE);
${lines.read_first("buffer")}\
    #pragma unroll 1
    for (index_t first = first_term; first < end_term; first += ${tile_k}) {
        const int filled = buffer == 0 ? ${stages - 1} : buffer - 1;
${bring("filled")}\
        // compute
${multiply_lines()}\
    }
</%def>

<%def name="bring(stage)">\
        // load: a later phase's tiles
        if (begin < end_term) {
${bring_terms(stage, "end_term")}\
        }
        ${ptx.commit()}
</%def>

<%def name="bring_terms(stage, end, base_of_a=None, base_of_b=None)">\
            if (begin + ${tile_k} > ${end}) {
${copies.copy_border("a", stage, "begin", base_of_a)}\
${copies.copy_border("b", stage, "begin", base_of_b)}\
            } else if (a_inside && b_inside) {
${copies.copy_whole("a", stage)}\
${copies.copy_whole("b", stage)}\
            } else {
${copies.copy_whole("a", stage, True)}\
${copies.copy_whole("b", stage, True)}\
            }
            begin += ${tile_k};
</%def>

<%def name="multiply_lines()">\
<%
    pairs, chunks = micro_m // 2, tile_k // 4

    def b(set, term, j):
        if b_lines:
            return f"columns[{set}][{j}].s{term}"
        return f"columns[{set}][{term * (micro_n // 4) + j // 4}].s{j % 4}"
%>\
% for chunk in range(chunks):
% for pair in range(pairs):
<% last = pair == pairs - 1 %>\
% if not last:
${lines.read_pair((pair + 1) % 2, "buffer", pair + 1, chunk)}\
% elif chunk < chunks - 1:
${lines.read_columns((chunk + 1) % 2, "buffer", chunk + 1)}\
${lines.read_pair(0, "buffer", 0, chunk + 1)}\
% else:
        buffer = buffer == ${stages - 1} ? 0 : buffer + 1;

        // barrier: the next tiles are complete, and everyone has read this one
        ${ptx.wait(stages - 2)}
        barrier(CLK_LOCAL_MEM_FENCE);
${lines.read_first("buffer")}\
% endif
% for term in range(4):
% for i in range(2):
% for j in range(micro_n) if i == 0 else range(micro_n - 1, -1, -1):
        sum_${2 * pair + i}_${j} = multiply_add(row_pair[${pair % 2}][${i}].s${term}, ${b(chunk % 2, term, j)}, sum_${2 * pair + i}_${j});
% endfor
% endfor
% endfor
% endfor
% endfor
</%def>

<%def name="which_tile(number)">\
<%doc>
Where a tile begins, in which matrices. Batches of matrices that are a tile each need no division.
</%doc>\
        index_t batch_of_tile = ${number}, tile_row = 0, tile_col = 0;
        if (tiles_of_batch > 1) {
            const index_t group_of_part = ${number};
${split.which_tile()}\
            batch_of_tile = batch;
            tile_row = first_row;
            tile_col = first_col;
        }
${index.bases("batch_of_tile")}
</%def>

<%def name="bring_next(stage)">\
        // load: the terms that come next into a stage, then on to the next tile
        if (coming < tiles_of_all) {
            if (begin == 0) {
${which_tile("coming")}\
                first_row = tile_row;
                first_col = tile_col;
                coming_a = a_base;
                coming_b = b_base;
${copies.enter_tile("a")}\
${copies.enter_tile("b")}\
            }
${bring_terms(stage, "k", "coming_a", "coming_b")}\
            if (begin >= k) {
                begin = 0;
                coming += walking;
            }
        }
        ${ptx.commit()}
</%def>

<%def name="clear()">\
    // clear
% for i in range(micro_m):
    acc_t ${", ".join(f"sum_{i}_{j} = zero()" for j in range(micro_n))};
% endfor
</%def>

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

<%def name="last_term()">\
        buffer = buffer == ${stages - 1} ? 0 : buffer + 1;

        // barrier: the next tiles are complete, and everyone has read this one
        ${ptx.wait(stages - 2)}
        barrier(CLK_LOCAL_MEM_FENCE);
${read(tile_k % 2, "buffer", 0)}\
${accumulate((tile_k - 1) % 2)}\
</%def>

<%def name="store_whole(unit)">\
<%
    elements = [place(i, j, row_steps, col_steps) for i, j in unit]
%>\
            {
                out_unit_t unit;
% for q, element in enumerate(elements):
                {
${store.value(*element)}\
                    unit.s${q} = (${out.storage})${store.real_part("value")};
                }
% endfor
                *(__global out_unit_t *)(out + ${index.at("out", *elements[0][1:])}) = unit;
            }
</%def>

<%def name="store_elements(unit)">\
<%
    elements = [place(i, j, row_steps, col_steps) for i, j in unit]
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

<%!
def place(i, j, row_steps, col_steps):
    # A sum of a micro-tile, and the row and column that it is of.
    return f"sum_{i}_{j}", f"(item_first_row + {row_steps[i]})", f"(item_first_col + {col_steps[j]})"
%>
