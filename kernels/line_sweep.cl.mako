<%!
EXTENDS = "parts/gpu_header.mako"
SUMMARY = "Few rows times lines of B that are read once, each work-item sweeping along k."
SOURCES = (
    "OpenCL specification, section 3.3, memory model: local memory and work-group barriers",
    "S. Williams, A. Waterman, D. Patterson: Roofline, an insightful visual performance model "
    "(CACM 2009)",
)
REQUIRES = ()
PARAMETERS = {
    # The larger operand, each of whose elements is read once (for every `few` lines of the
    # other): "b", where the result has few rows, or "a", where it has few columns.
    "large": ("a", "b"),
    # Rows (columns) of the result that a work-item computes.
    "few": (1, 2, 4, 8, 16, 32),
    # Neighbouring elements of a line of the larger operand that a work-item owns.
    "vector_width": (1, 2, 4, 8),
    # Work-items side by side along a line, and teams of them that share out the terms.
    "lanes": (4, 8, 16, 32, 64, 128, 256),
    "slices": (1, 2, 4, 8, 16, 32),
    # Terms that a team takes of each phase, and how many of them are read ahead.
    "tile_k": (4, 8, 16, 32, 64),
    "unroll": (1, 2, 4, 8, 16),
}
RUNTIME_PARAMETERS = {
    # Into how many parts k is split, each summed by work-groups of its own.
    "splits": (1, 2, 4, 8, 16, 32, 64, 128),
}
DEFAULT = dict(large="b", few=4, vector_width=2, lanes=8, slices=4, tile_k=8, unroll=4, splits=1)
TEST_CONFIGS = (
    dict(large="b", few=4, vector_width=2, lanes=4, slices=2, tile_k=4, unroll=2, splits=1),
    dict(large="a", few=2, vector_width=4, lanes=4, slices=4, tile_k=4, unroll=4, splits=2),
    dict(large="b", few=1, vector_width=1, lanes=8, slices=1, tile_k=8, unroll=1, splits=4),
)
WORKSPACE_TYPES = {"partial": "acc_t"}
CONSTRAINTS = (
    "unroll <= tile_k",
    "work_items <= profile.max_work_group_size",
    "work_items <= profile.max_work_item_sizes[0]",
    "local_bytes <= profile.usable_local_bytes",
    "registers <= 200",
    # where there are elements enough for everyone, sharing out k only costs
    "splits == 1 or problem.batch_count * problem.m * problem.n <= 2**22",
)
ALIGNMENT_CLASSES = (1, 16)
INSTRUMENT = ("none",)


def derive(config, kind, profile):
    width, few = config.vector_width, config.few
    work_items = config.lanes * config.slices
    block = config.lanes * width
    large, small = (kind.a, kind.b) if config.large == "a" else (kind.b, kind.a)
    across = "column" if config.large == "a" else "row"
    unit = unit_of(large, width) if large.order == across else 1
    # A tile of the smaller operand; at the end, the sums of some of its lines and every team.
    tile_elements = few * config.slices * config.tile_k
    at_once = 1
    while at_once < few and 2 * at_once * block * config.slices <= max(4096, tile_elements):
        at_once *= 2
    local_elements = max(tile_elements, at_once * block * config.slices)
    words = max(kind.compute_itemsize // 4, 1)
    return dict(
        x=config.large,
        y="b" if config.large == "a" else "a",
        few_width=1 if kind.compute.startswith("complex") else min(few, 4),
        work_items=work_items,
        block=block,
        terms_of_phase=config.slices * config.tile_k,
        # Whose neighbours in memory are neighbouring terms?
        y_along_k=small.order == ("column" if config.large == "a" else "row"),
        # Elements of a work-item lie together, or `lanes` apart.
        places=[q if unit > 1 else q * config.lanes for q in range(width)],
        a_unit=unit if config.large == "a" else 1,
        b_unit=unit if config.large == "b" else 1,
        out_unit=1,
        unit=unit,
        a_unit_alignment=unit_alignment(large, unit),
        b_unit_alignment=unit_alignment(large, unit),
        out_unit_alignment=1,
        at_once=at_once,
        local_elements=local_elements,
        local_bytes=local_elements * kind.compute_itemsize,
        # an estimate in 32-bit registers: sums, what was read, addresses
        registers=(few * width + width * config.unroll + few) * words + 24,
        reduce_items=REDUCE_ITEMS,
        reduce_teams=teams_that_reduce(profile),
    )


def split_of(config, problem):
    return parts_of_k(problem, config.splits, config.tile_k)


def workspace(config, derived, problem, profile):
    splits, _ = split_of(config, problem)
    return partial_workspace(problem, splits, problem.m, problem.n)


def launches(config, derived, problem, profile):
    splits, per_split = split_of(config, problem)
    lines, length = (problem.n, problem.m) if config.large == "a" else (problem.m, problem.n)
    blocks = ceil_div(length, derived.block)
    bands = ceil_div(lines, config.few)
    values = dict(
        blocks=blocks, bands=bands, per_split=per_split,
        partial_rows=problem.m, partial_cols=problem.n,
    )
    groups = splits * problem.batch_count * blocks * bands
    geometry = dict(
        global_size=(groups * derived.work_items,), local_size=(derived.work_items,),
        values=values,
    )
    common = ("sizes", "batch", "blocks", "bands")
    if splits == 1:
        return [dict(entry="line_sweep", args=("a", "b", "out", "scalars", *common), **geometry)]
    return [
        dict(entry="line_sweep_part",
             args=("a", "b", "partial", *common, "per_split", "partial_rows", "partial_cols"),
             **geometry),
        reduce_launch(problem, derived, splits, problem.m, problem.n),
    ]


def propose(problem, profile):
    # (expected speed in multiples of the naive kernel's, parameters, why)
    if profile.is_cpu or problem.k < 16:
        return
    large = "b" if problem.m <= problem.n else "a"
    lines, length = sorted((problem.m, problem.n))
    operand = problem.kind.b if large == "b" else problem.kind.a
    if lines > 32 or operand.order != ("row" if large == "b" else "column"):
        return
    few = min(x for x in (1, 2, 4, 8, 16) if x >= min(lines, 16))
    words = max(problem.kind.compute_itemsize // 4, 1)
    units = profile.compute_units
    few = min(few, 16 // words) if words > 1 else few
    width = 2 if words == 2 or few >= 8 else 1 if words > 2 else 4
    unroll = 8
    if profile.local_mem_bytes > 65536:  # see register_blocked: registers are few there
        few = min(few, 16 // words)
        width = max(min(width, 16 // (few * words)), 1)
        unroll = max(8 // (width * words), 1)
    # One row: many neighbours, whose loads fill the memory's queue. Several: more terms at once.
    items = min(profile.max_work_group_size, 256)
    lanes = min(128, items) if few == 1 and words == 1 else 32
    while lanes * width > length and (lanes > 32 or width > 1):
        lanes, width = (lanes // 2, width) if lanes > 32 else (lanes, width // 2)
    slices = max(items // lanes, 1)
    tile_k = 64 if lanes > 32 else 32
    values = dict(large=large, few=few, vector_width=width, lanes=lanes, slices=slices,
                  tile_k=tile_k, unroll=unroll)
    groups = ceil_div(length, lanes * width) * ceil_div(lines, few) * problem.batch_count
    shared = 3.5 if few == 1 else 1.9  # work-groups that share a compute unit
    bytes_moved = problem.minimum_bytes * ceil_div(lines, few)
    speed = 10 if few <= 4 else 6 if few <= 8 else 4.5
    speed *= lines / (ceil_div(lines, few) * few)
    found, splits = [], 1
    while True:
        busy = min(groups * splits / (shared * units), 1)
        found.append((rank_of(problem, profile, speed * busy, bytes_moved / busy, splits), -splits))
        if busy == 1 or splits == 128 or problem.k < splits * slices * tile_k:
            break
        splits *= 2
    rank, splits = max(found)
    yield rank, dict(values, splits=-splits), "lines of the larger operand, read once"
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="wide" file="parts/wide.mako"/>\
<%namespace name="split" file="parts/split.mako"/>\
// line_sweep: work-items side by side along the lines of the larger operand sweep along k.
//
//     out[row, col] = sum over slices s of (sum over the terms i of slice s of A[row, i] * B[i, col])
//
// For results of few rows, whose B has its lines across k (or of few columns, with A and B in
// each other's place). The time is that of reading B once, so it goes straight from global memory
// into registers: a work-item owns vector_width elements of each line of B and all of the few
// rows of the result there, few x vector_width sums.
//
//                  lane 0 | lane 1 | lane 2 | ...
//       term 0     b b      b b      b b            slice 0
//       term 1     b b      b b      b b
//       ...
//       term t     b b      b b      b b            slice 1: another team, same lanes
//
// The few rows of A are staged in local memory, transposed, so that the elements of one term are
// neighbours; all lanes of a team read the same ones. The terms of a phase are shared out between
// `slices` teams of the work-group. In the end the teams put their sums into local memory and
// every work-item adds up some elements of the result, team by team, and stores them.
//
// Index spaces, large to small: parts of k > batch > bands of few rows > blocks of columns >
// phases > slices > lanes > terms > the micro-tile.
<%
    in_part = entry == "line_sweep_part"
    lines, length = ("m", "n") if x == "b" else ("n", "m")
%>\
${types.prelude()}
typedef ${"acc_t" if few_width == 1 else f"{compute.scalar}{few_width}"} few_t;  // neighbours in local memory
${wide.types()}
${load.functions()}
% if not in_part:
${store.functions()}
% endif

% if entry == "reduce":
__kernel __attribute__((reqd_work_group_size(${reduce_items * reduce_teams}, 1, 1)))
void ${entry}(${parameters}) {
${split.reduce()}\
}
% else:
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void ${entry}(${parameters}) {
    // [term][line of the smaller operand]; then [slice][line][position in the block]
    __local acc_t shared[${local_elements}] __attribute__((aligned(32)));

    // where am I
    const index_t group = get_group_id(0);
    const int item = get_local_id(0), lane = item % ${lanes}, slice = item / ${lanes};
    const index_t rest = group / blocks, batches = rest / bands;
    const index_t first_position = (group - rest * blocks) * ${block};
    const index_t first_line = (rest - batches * bands) * ${few};
% if in_part:
    const index_t batch = batches % batch_count, part = batches / batch_count;
    const index_t begin_k = part * per_split;
    const index_t end_k = k - begin_k < per_split ? k : begin_k + per_split;
% else:
    const index_t batch = batches, begin_k = 0, end_k = k;
% endif
    const index_t position = first_position + lane${f" * {vector_width}" if unit > 1 else ""};
% if unit > 1:
    const int whole = position + ${vector_width} <= ${length};  // a read of all my elements is allowed
% endif
% for q, apart in enumerate(places):
    const index_t position_${q} = position + ${apart} < ${length} ? position + ${apart} : ${length} - 1;
% endfor
${index.bases("batch")}
    // clear
% for i in range(few):
    acc_t ${", ".join(f"sum_{i}_{q} = zero()" for q in range(vector_width))};
% endfor

% if kind.alpha != "zero":
    // for each phase
    for (index_t first = begin_k; first < end_k; first += ${terms_of_phase}) {
        // load: the smaller operand's tile, along its lines; clamped past its ends
        for (int e = item; e < ${few * terms_of_phase}; e += ${work_items}) {
% if y_along_k:
            const int line = e / ${terms_of_phase}, i = e % ${terms_of_phase};
% else:
            const int line = e % ${few}, i = e / ${few};
% endif
            const index_t safe_line = first_line + line < ${lines} ? first_line + line : ${lines} - 1;
            const index_t safe_term = first + i < end_k ? first + i : end_k - 1;
            shared[i * ${few} + line] = load_${y}(${y}, ${index.at(y, *(("safe_line", "safe_term") if y == "a" else ("safe_term", "safe_line")))});
        }

        // barrier: the tile is complete
        barrier(CLK_LOCAL_MEM_FENCE);

        // compute: this team's terms
        const index_t begin = first + slice * ${tile_k};
        const int terms = end_k - begin < ${tile_k} ? (int)(end_k - begin) : ${tile_k};
        __local const acc_t *smaller = shared + slice * ${few * tile_k};
        int i = 0;
% if unit > 1:
        if (whole) {
            for (; i + ${unroll} <= terms; i += ${unroll}) {
${terms_read(unroll, True)}\
            }
        }
% else:
        for (; i + ${unroll} <= terms; i += ${unroll}) {
${terms_read(unroll, False)}\
        }
% endif
        for (; i < terms; i++) {
${terms_read(1, False)}\
        }

        // barrier: everyone has read the tile
        barrier(CLK_LOCAL_MEM_FENCE);
    }

% endif
    // add the teams' sums, ${at_once} lines at a time; epilogue and store
% for begin in range(0, few, at_once):
% for i in range(at_once):
% for q, apart in enumerate(places):
    shared[(slice * ${at_once} + ${i}) * ${block} + (position - first_position) + ${apart}] = sum_${begin + i}_${q};
% endfor
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = item; e < ${at_once * block}; e += ${work_items}) {
        const index_t line = first_line + ${begin} + e / ${block}, at = first_position + e % ${block};
        acc_t sum = shared[e];
% for s in range(1, slices):
        sum = add(sum, shared[${s * at_once * block} + e]);
% endfor
        if (line < ${lines} && at < ${length}) {
            const index_t ${"row = line, col = at" if x == "b" else "row = at, col = line"};
% if in_part:
            partial[${split.at("part", "row", "col")}] = sum;
% else:
${store.store("sum", "row", "col")}\
% endif
        }
    }
% if begin + at_once < few:
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
% endfor
}
% endif

<%def name="terms_read(count, as_vectors)">\
<%
    def where(position):
        return ("term", position) if x == "b" else (position, "term")
%>\
            acc_t larger[${count * vector_width}];
% for u in range(count):
            {
                const index_t term = begin + i + ${u};
% if as_vectors:
${wide.load_unit(x, *where("position"), "larger", u * vector_width)}\
% else:
% for q in range(vector_width):
                larger[${u * vector_width + q}] = load_${x}(${x}, ${index.at(x, *where(f"position_{q}"))});
% endfor
% endif
            }
% endfor
% for u in range(count):
% for line in range(0, few, few_width):
            {
                const few_t y = *(__local const few_t *)(smaller + (i + ${u}) * ${few} + ${line});
% for r in range(few_width):
% for q in range(vector_width):
                sum_${line + r}_${q} = multiply_add(${factors("y" if few_width == 1 else f"y.s{r}", f"larger[{u * vector_width + q}]")}, sum_${line + r}_${q});
% endfor
% endfor
            }
% endfor
% endfor
</%def>

<%def name="factors(of_y, of_x)"><%
    # A's element first, as the other variants have it: a complex product rounds in that order.
    first, second = (of_y, of_x) if x == "b" else (of_x, of_y)
%>${first}, ${second}</%def>
