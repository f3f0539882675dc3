<%!
EXTENDS = "parts/gpu_header.mako"
SUMMARY = "Dot products along k by teams of work-items, for matrix times vector and few columns."
SOURCES = (
    "OpenCL specification, section 3.3, memory model: local memory and work-group barriers",
    "S. Williams, A. Waterman, D. Patterson: Roofline, an insightful visual performance model "
    "(CACM 2009)",
)
# With alpha = 0 there is nothing to sum, and Intel's CPU compiler loses the second team's stores.
REQUIRES = ("kind.alpha != 'zero'",)
PARAMETERS = {
    # Rows and columns of the result that a team of work-items computes.
    "micro_m": (1, 2, 4, 8),
    "micro_n": (1, 2, 4, 8),
    # Work-items of a team, which share the terms of each sum, and teams of a work-group.
    "lanes": (4, 8, 16, 32, 64, 128, 256),
    "teams": (1, 2, 4, 8, 16),
    # Neighbouring terms that a work-item reads at once, where alignment and layout allow it; and
    # how many such reads of a line are on their way together.
    "vector_width": (1, 2, 4, 8),
    "unroll": (1, 2, 4),
}
RUNTIME_PARAMETERS = {
    # Into how many parts k is split, each summed by teams of its own.
    "splits": (1, 2, 4, 8, 16, 32, 64, 128),
}
DEFAULT = dict(micro_m=1, micro_n=1, lanes=32, teams=1, vector_width=4, unroll=1, splits=1)
TEST_LAYOUT = "NT"
TEST_CONFIGS = (
    dict(micro_m=2, micro_n=1, lanes=4, teams=2, vector_width=2, unroll=2, splits=1),
    dict(micro_m=1, micro_n=4, lanes=8, teams=1, vector_width=4, unroll=1, splits=4),
)
# As measured on an H200: up to how many bytes of the smaller operand, and terms of all sums a
# compute unit, it does not matter how that lies; up to how many work-items a unit has room for more.
NEAR_BYTES, SMALL_TERMS, IDLE_ITEMS = 2**14, 2**13, 512
WORKSPACE_TYPES = {"partial": "acc_t"}
CONSTRAINTS = (
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
    sums = config.micro_m * config.micro_n
    width = config.vector_width
    work_items = config.lanes * config.teams
    # Only where lines run along k do several neighbours of a line lie together.
    a_unit = unit_of(kind.a, width) if kind.a.order == "row" else 1
    b_unit = unit_of(kind.b, width) if kind.b.order == "column" else 1
    # Of the halvings: how many lanes are left after each, and where its sums lie.
    halves, begin = [], 0
    lanes = config.lanes // 2
    while lanes:
        halves.append((lanes, begin))
        begin += sums * config.teams * lanes
        lanes //= 2
    words = max(kind.compute_itemsize // 4, 1)
    held = (config.micro_m + config.micro_n) * width * config.unroll
    return dict(
        work_items=work_items,
        step=config.lanes * width * config.unroll,
        a_unit=a_unit,
        b_unit=b_unit,
        out_unit=1,
        a_unit_alignment=unit_alignment(kind.a, a_unit),
        b_unit_alignment=unit_alignment(kind.b, b_unit),
        out_unit_alignment=1,
        halves=halves,
        local_elements=max(begin, 1),
        local_bytes=max(begin, 1) * kind.compute_itemsize,
        # an estimate in 32-bit registers: sums, what was read, addresses
        registers=(sums + held) * words + 24,
        reduce_items=REDUCE_ITEMS,
        reduce_teams=teams_that_reduce(profile),
    )


def split_of(config, problem):
    # Parts of k begin where a vector may begin.
    return parts_of_k(problem, config.splits, config.vector_width)


def workspace(config, derived, problem, profile):
    splits, _ = split_of(config, problem)
    return partial_workspace(problem, splits, problem.m, problem.n)


def launches(config, derived, problem, profile):
    splits, per_split = split_of(config, problem)
    blocks_m = ceil_div(problem.m, config.micro_m)
    blocks_n = ceil_div(problem.n, config.micro_n)
    groups = ceil_div(blocks_m * blocks_n, config.teams)
    values = dict(
        blocks_m=blocks_m, blocks_n=blocks_n, groups=groups, per_split=per_split,
        # teams that read the same lines of the larger operand run side by side
        n_first=int(problem.n <= problem.m),
        partial_rows=problem.m, partial_cols=problem.n,
    )
    geometry = dict(
        global_size=(splits * problem.batch_count * groups * derived.work_items,),
        local_size=(derived.work_items,),
        values=values,
    )
    common = ("sizes", "batch", "blocks_m", "blocks_n", "groups", "n_first")
    if splits == 1:
        return [dict(entry="line_dot", args=("a", "b", "out", "scalars", *common), **geometry)]
    return [
        dict(entry="line_dot_part",
             args=("a", "b", "partial", *common, "per_split", "partial_rows", "partial_cols"),
             **geometry),
        reduce_launch(problem, derived, splits, problem.m, problem.n),
    ]


def propose(problem, profile):
    # (expected speed in multiples of the naive kernel's, parameters, why)
    if profile.is_cpu or problem.k < 64:
        return
    m, n, kind = problem.m, problem.n, problem.kind
    lines, length = sorted((m, n))
    if lines > 16 or kind.a.order == "strided" or kind.b.order == "strided":
        return
    # The larger operand must lie along k: else its lines are read a term at a time.
    long_a = m >= n
    long_operand, short_operand = (kind.a, kind.b) if long_a else (kind.b, kind.a)
    if long_operand.order != ("row" if long_a else "column"):
        return
    # So must the other, else each of its lines costs a read for every term: which does not matter
    # if it is in the nearest cache, and the time is that of waiting for the first reads.
    across = lines > 1 and short_operand.order != ("column" if long_a else "row")
    if across:
        short_bytes = problem.k * lines * STORAGE_BYTES.get(short_operand.dtype, 2)
        terms = problem.batch_count * m * n * problem.k
        if short_bytes > NEAR_BYTES or terms > SMALL_TERMS * profile.compute_units or lines > 8:
            return
    few_registers = profile.local_mem_bytes > 65536  # see register_blocked
    many = lines > 8
    if many and (few_registers or kind.compute_itemsize > 4):
        return
    few = min(x for x in (1, 2, 4, 8, 16) if x >= lines)
    size = STORAGE_BYTES.get(long_operand.dtype, 2)
    # 32 bytes of each line are on their way to a work-item at a time; 16 where there are many.
    width = min(4 if size > 2 else 8, max(32 // size, 1)) if unit_of(long_operand, 2) == 2 else 1
    unroll = 2 if width * size <= 16 and (few <= 2 or across) else 1
    most = min(256 if few <= 4 else 128, profile.max_work_group_size)
    if few_registers:
        few, width = min(few, 4), max(min(width, 16 // size), 1)
    lanes = 32
    while not many and 2 * lanes * width <= problem.k // 4 and 2 * lanes <= most:
        lanes *= 2
    while lanes > 32 and problem.k % (lanes * width * unroll) > problem.k // 8:
        lanes //= 2  # what is no whole step is read term by term
    # Where units are idle anyway, a line is read at once, as far as that was tried.
    idle = IDLE_ITEMS * profile.compute_units // (problem.batch_count * length)
    while not many and 2 * lanes * width <= problem.k and 2 * lanes <= min(most, 128, idle):
        lanes *= 2
    # One of the many lines with all of the few; with some of them, tiles of four and four; and where
    # those are read term by term, four of the many lines use each.
    tile = (4, 4) if many else (4, 1) if across else (1, few)
    values = dict(
        micro_m=tile[0 if long_a else 1], micro_n=tile[1 if long_a else 0], lanes=lanes,
        teams=max(min(256, profile.max_work_group_size) // lanes, 1) if length > 8 else 1,
        vector_width=width, unroll=unroll,
    )
    items, speed = problem.batch_count * length * lanes, 8
    if many:
        values["teams"], speed = 2, 5.3
        items = problem.batch_count * ceil_div(m, 4) * ceil_div(n, 4) * lanes
    found, splits = [], 1
    while True:
        # a team that is alone on its unit does not fill the memory's queue
        busy = min(items * splits / (256 * profile.compute_units), 1)
        rank = rank_of(problem, profile, speed * busy, problem.minimum_bytes / busy, splits)
        found.append((rank, -splits))
        full = items * splits >= 512 * profile.compute_units or splits == 128
        if full or problem.k < 4 * splits * lanes * width:
            break
        splits *= 2
    rank, splits = max(found)
    yield rank, dict(values, splits=-splits), "dot products of whole lines"
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="wide" file="parts/wide.mako"/>\
<%namespace name="split" file="parts/split.mako"/>\
// line_dot: teams of work-items compute dot products along k.
//
//     out[row, col] = sum over lanes l of (sum over the terms i of lane l of A[row, i] * B[i, col])
//
// For matrix times vector, and where the other operand has few rows or columns: nothing can be
// used often enough to be worth staging, and the time is that of reading the larger operand once.
// So its lines, which lie along k, are read as they lie, by a team of `lanes` work-items side by
// side, each vector_width terms at a time:
//
//     a line   | lane 0 | lane 1 |  ...  | last lane | lane 0 | lane 1 |  ...
//              one read: vector_width              the next step
//
// A team computes micro_m x micro_n elements, so that each line that is read serves several times
// and several reads are on their way. Each lane has sums of its own; in the end the upper half of
// the lanes hands its sums to the lower half in local memory, until one lane has them all.
//
// Rows and columns past the end are clamped to the last; what they give is not stored. Terms past
// the last whole step are read one by one, and none beyond k.
//
// Index spaces, large to small: parts of k > batch > work-groups > teams, row or column first >
// steps > lanes > terms > the micro-tile.
<% in_part = entry == "line_dot_part" %>\
${types.prelude()}
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
    // [halving][element of the micro-tile][team][lane]
    __local acc_t handed[${local_elements}];

    // where am I
    const index_t group = get_group_id(0);
    const int item = get_local_id(0), lane = item % ${lanes}, team = item / ${lanes};
    const index_t batches = group / groups;
    const index_t block = (group - batches * groups) * ${teams} + team;
% if in_part:
    const index_t batch = batches % batch_count, part = batches / batch_count;
    const index_t begin_k = part * per_split;
    const index_t end_k = k - begin_k < per_split ? k : begin_k + per_split;
% else:
    const index_t batch = batches, begin_k = 0, end_k = k;
% endif
    const index_t inner = n_first ? blocks_n : blocks_m;
    const index_t one = block % inner, other = block / inner;
    const index_t first_row = (n_first ? other : one) * ${micro_m};
    const index_t first_col = (n_first ? one : other) * ${micro_n};
% for i in range(micro_m):
    const index_t row_${i} = first_row + ${i} < m ? first_row + ${i} : m - 1;
% endfor
% for j in range(micro_n):
    const index_t col_${j} = first_col + ${j} < n ? first_col + ${j} : n - 1;
% endfor
${index.bases("batch")}
    // clear
% for i in range(micro_m):
    acc_t ${", ".join(f"sum_{i}_{j} = zero()" for j in range(micro_n))};
% endfor

    // for each step of the team: load, compute
    index_t first = begin_k;
    for (; end_k - first >= ${step}; first += ${step}) {
        acc_t part_a[${micro_m * unroll * vector_width}], part_b[${micro_n * unroll * vector_width}];
% for u in range(unroll):
        {
            const index_t term = first + (${u * lanes} + lane) * ${vector_width};
% for i in range(micro_m):
${load_terms("a", i, u, a_unit)}\
% endfor
% for j in range(micro_n):
${load_terms("b", j, u, b_unit)}\
% endfor
        }
% endfor
% for t in range(unroll * vector_width):
% for i in range(micro_m):
% for j in range(micro_n):
        sum_${i}_${j} = multiply_add(part_a[${i * unroll * vector_width + t}], part_b[${j * unroll * vector_width + t}], sum_${i}_${j});
% endfor
% endfor
% endfor
    }
    // what is left of k: a term a lane at a time
    for (index_t term = first + lane; term < end_k; term += ${lanes}) {
% for j in range(micro_n):
        const acc_t b_${j} = load_b(b, ${index.at("b", "term", f"col_{j}")});
% endfor
% for i in range(micro_m):
        {
            const acc_t x = load_a(a, ${index.at("a", f"row_{i}", "term")});
% for j in range(micro_n):
            sum_${i}_${j} = multiply_add(x, b_${j}, sum_${i}_${j});
% endfor
        }
% endfor
    }

    // add the lanes' sums: the upper half hands its own on, until one lane has all
% for half, begin in halves:
    if (lane >= ${half} && lane < ${2 * half}) {
% for i in range(micro_m):
% for j in range(micro_n):
        handed[${begin} + (${(i * micro_n + j) * teams} + team) * ${half} + lane - ${half}] = sum_${i}_${j};
% endfor
% endfor
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < ${half}) {
% for i in range(micro_m):
% for j in range(micro_n):
        sum_${i}_${j} = add(sum_${i}_${j}, handed[${begin} + (${(i * micro_n + j) * teams} + team) * ${half} + lane]);
% endfor
% endfor
    }
% endfor

    // epilogue and store
    if (lane == 0) {
% for i in range(micro_m):
% for j in range(micro_n):
        if (first_row + ${i} < m && first_col + ${j} < n) {
            const index_t row = first_row + ${i}, col = first_col + ${j};
% if in_part:
            partial[${split.at("part", "row", "col")}] = sum_${i}_${j};
% else:
${store.store("sum_%d_%d" % (i, j), "row", "col")}\
% endif
        }
% endfor
% endfor
    }
}
% endif

<%def name="load_terms(x, i, u, unit)">\
<%
    line = f"row_{i}" if x == "a" else f"col_{i}"
    at = (i * unroll + u) * vector_width
%>\
% for q in range(0, vector_width, unit):
            {
                const index_t here = term + ${q};
${wide.load_unit(x, *((line, "here") if x == "a" else ("here", line)), f"part_{x}", at + q)}\
            }
% endfor
</%def>
