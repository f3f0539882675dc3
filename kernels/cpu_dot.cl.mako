<%!
EXTENDS = "parts/cpu_header.mako"
SUMMARY = "For CPUs: rows of A times contiguous columns of B, as dot products along k."
SOURCES = (
    "Van Zee and van de Geijn, BLIS: a framework for rapidly instantiating BLAS, 2015",
)
# Both operands are read as vectors along k, so both must be stored as accumulators are.
REQUIRES = (
    "profile.is_cpu",
    "kind.alpha != 'zero'",
    "kind.a.order == 'row' and kind.b.order == 'column'",
    "kind.a.dtype == kind.b.dtype",
    "kind.b.dtype != 'bool' and kind.b.dtype in (kind.compute, kind.compute[1:])",
    "not kind.compute.startswith('complex')",
)
PARAMETERS = {
    # Rows of A and columns of B whose products are summed at once, each in a vector of its own.
    "micro_m": (1, 2, 3, 4, 6, 8),
    "micro_n": (1, 2, 3, 4, 6, 8),
    "vector_width": (2, 4, 8, 16),
    # Vectors of terms that the loop takes at a time, each with its own sums.
    "unroll": (1, 2, 4),
}
RUNTIME_PARAMETERS = {
    # Into how many parts k is split, each summed by an item of its own.
    "splits": (1, 2, 4, 8, 16, 32),
}
DEFAULT = {"micro_m": 2, "micro_n": 2, "vector_width": 4, "unroll": 1, "splits": 1}
TEST_LAYOUT = "NT"
TEST_CONFIGS = (
    {"micro_m": 3, "micro_n": 2, "vector_width": 2, "unroll": 1, "splits": 1},
    {"micro_m": 2, "micro_n": 3, "vector_width": 4, "unroll": 2, "splits": 2},
    {"micro_m": 4, "micro_n": 1, "vector_width": 4, "unroll": 2, "splits": 4},
)
CONSTRAINTS = ("vector_registers <= register_file",)
WORKSPACE_TYPES = {"partial": "acc_t"}


def derive(config, kind, profile):
    per_vector = max(config.vector_width * kind.compute_itemsize // 32, 1)
    sums = config.micro_m * config.micro_n * config.unroll
    return dict(
        storage=STORAGE[kind.b.dtype],
        step=config.vector_width * config.unroll,
        vector_registers=(sums + config.micro_n) * per_vector,
        register_file=registers_of(profile),
        planes=1,
        local_bytes=0,
    )


def blocking(config, problem):
    panels_m = ceil_div(problem.m, config.micro_m)
    panels_n = ceil_div(problem.n, config.micro_n)
    splits = min(config.splits, ceil_div(problem.k, 64))
    per_split = ceil_div(ceil_div(problem.k, splits), 16) * 16
    # Panels of an item: enough work to outweigh a work-group's start, but some for everyone.
    work = max(ceil_div(1 << 15, config.micro_m * config.micro_n * per_split), 1)
    groups_m = ceil_div(panels_m, min(work, ceil_div(panels_m, 32)))
    return dict(
        panels_m=panels_m, panels_n=panels_n, groups_m=groups_m,
        splits=ceil_div(problem.k, per_split), per_split=per_split,
    )


def workspace(config, derived, problem, profile):
    b = blocking(config, problem)
    if b["splits"] == 1:
        return {}
    sums = b["splits"] * problem.batch_count * problem.m * problem.n
    return dict(
        partial=dict(bytes=sums * problem.kind.compute_itemsize, alignment=64, first=0, last=1)
    )


def launches(config, derived, problem, profile):
    b = blocking(config, problem)
    items = problem.batch_count * b["groups_m"] * b["panels_n"] * b["splits"]
    common = ("sizes", "batch", "panels_m", "panels_n", "groups_m", "splits", "per_split")
    if b["splits"] == 1:
        return [
            dict(entry="dots", global_size=(items,), local_size=(1,),
                 args=("a", "b", "out", "scalars", *common), values=b)
        ]
    return [
        dict(entry="dots_splits", global_size=(items,), local_size=(1,),
             args=("a", "b", "partial", *common), values=b),
        dict(entry="dots_reduce", global_size=(problem.batch_count * problem.m,), local_size=(1,),
             args=("partial", "out", "scalars", *common), values=b),
    ]


def propose(problem, profile):
    if not profile.is_cpu:
        return
    lanes = {"float32": 8, "uint32": 8, "float64": 4, "uint64": 4}.get(problem.compute, 2)
    units = profile.compute_units
    few = problem.batch_count * problem.m * problem.n < 8 * units
    if min(problem.m, problem.n) == 1:
        # Bound by memory: long straight reads, of as many lines as the hardware follows.
        lines = max(x for x in (1, 2, 4, 8) if x == 1 or x <= max(problem.m, problem.n))
        values = dict(micro_m=1, micro_n=lines) if problem.m == 1 else dict(
            micro_m=lines, micro_n=1
        )
        yield 90, dict(values, vector_width=lanes, unroll=1, splits=4 * units if few else 1), (
            "dot products of whole lines"
        )
        return
    measured = problem.compute in ("float32", "float64")
    few_rows, few_columns = problem.m <= 4, problem.n <= 4
    line = problem.k * problem.kind.compute_itemsize
    # Lines of A that meet one column of B: as many as leave room in the first-level cache.
    rows = 8 if few_columns or 8 * line <= 12 * 2**10 else 4 if 4 * line <= 2**14 else 0
    unroll = 2 if rows == 4 and line >= 3 * 2**10 else 1
    alone = dict(micro_m=rows, micro_n=1, vector_width=lanes, unroll=unroll)
    if few_rows or few_columns:
        splits = 4 * units if few else 1
        if measured and rows and line >= 768:
            yield 75, dict(alone, splits=splits), "dot products along k"
        elif not (measured and few_rows and not few_columns and line <= 64):
            yield 75, dict(micro_m=3, micro_n=4, vector_width=lanes, unroll=1, splits=splits), (
                "dot products along k"
            )
    elif (
        # Lines so long that adding up their lanes is no matter, and at hand for the next column.
        # Half as many lanes make the turning of B cheap beside them.
        measured and rows and problem.m <= 2 * lanes and line >= 384
        and (problem.m * line <= 3 * 2**14 if lanes == 8 else line <= 3 * 2**10)
    ):
        yield 75, dict(alone, splits=1), "few rows: columns of B need no turning"
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
// cpu_dot: dot products along k.
//
//     out[row, col] = sum over lanes l of (sum over i of A[row, i*W + l] * B[i*W + l, col])
//
// Where a row of A and a column of B each lie in one piece, both are read as vectors of W terms;
// every lane sums its own terms, and the lanes are added at the end. micro_m rows meet micro_n
// columns, so that each vector that is read is used several times. For matrix times vector and
// for few rows or columns, where the other variants would compute on padding.
//
// Rows and columns past the end are clamped to the last; what they give is not stored. Where
// there are few results, k is split between items, whose sums a second launch adds in a fixed
// order.
//
// Index spaces, large to small: parts of k > batch > groups of panels of A > panels of B >
// panels of A > terms > lanes.
${types.prelude()}
${load.functions()}
% if entry != "dots_splits":
${store.functions()}
% endif
typedef ${compute.scalar}${vector_width} vec_t;
typedef ${compute.scalar} vec_u __attribute__((ext_vector_type(${vector_width}), aligned(${compute.itemsize})));

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${entry}(${parameters}) {
% if entry == "dots_reduce":
    // where am I: a row of the result
    const index_t item = get_global_id(0);
    const index_t row = item % m, batch = item / m;
${index.bases("batch")}\
    const size_t sums = (size_t)batch_count * m * n;
    for (index_t col = 0; col < n; col++) {
        // for each part of k, in order: load, add
        acc_t sum = zero();
        for (index_t s = 0; s < splits; s++) sum = add(sum, partial[s * sums + (size_t)item * n + col]);
        // epilogue and store
${store.store("sum", "row", "col")}\
    }
% else:
    // where am I: part of k, batch, group of panels of A, panel of B
    const index_t item = get_global_id(0);
    const index_t pn = item % panels_n, rest = item / panels_n;
    const index_t group = rest % groups_m, rest_batch = rest / groups_m;
    const index_t batch = rest_batch % batch_count, part = rest_batch / batch_count;
${index.bases("batch")}\
    const index_t begin_m = group * panels_m / groups_m, end_m = (group + 1) * panels_m / groups_m;
    const index_t begin_k = part * per_split;
    const index_t end_k = begin_k + per_split < k ? begin_k + per_split : k;
    const index_t first_col = pn * ${micro_n};
% for j in range(micro_n):
    const index_t col_${j} = first_col + ${j} < n ? first_col + ${j} : n - 1;
    __global const ${storage} *pb_${j} = b + b_base + col_${j} * b_col_stride;
% endfor

    for (index_t pm = begin_m; pm < end_m; pm++) {
        const index_t first_row = pm * ${micro_m};
% for i in range(micro_m):
        const index_t row_${i} = first_row + ${i} < m ? first_row + ${i} : m - 1;
        __global const ${storage} *pa_${i} = a + a_base + row_${i} * a_row_stride;
% endfor

        // clear
% for i in range(micro_m):
        vec_t ${", ".join("c%d_%d_%d = (vec_t)(0)" % (i, j, u) for j in range(micro_n) for u in range(unroll))};
% endfor

        // compute: whole vectors, then what is left of k
        index_t i = begin_k;
        for (; i + ${step} <= end_k; i += ${step}) {
% for u in range(unroll):
% for j in range(micro_n):
            const vec_t b${j}_${u} = *(__global const vec_u *)(pb_${j} + i + ${u * vector_width});
% endfor
% for r in range(micro_m):
            {
                const vec_t x = *(__global const vec_u *)(pa_${r} + i + ${u * vector_width});
% for j in range(micro_n):
                c${r}_${j}_${u} += x * b${j}_${u};
% endfor
            }
% endfor
% endfor
        }
% for r in range(micro_m):
% for j in range(micro_n):
        acc_t sum_${r}_${j};
        {
            const vec_t c = ${" + ".join("c%d_%d_%d" % (r, j, u) for u in range(unroll))};
            sum_${r}_${j} = ${tree("c", 0, vector_width)};
        }
% endfor
% endfor
        for (; i < end_k; i++) {
% for r in range(micro_m):
% for j in range(micro_n):
            sum_${r}_${j} += (scalar_t)pa_${r}[i] * (scalar_t)pb_${j}[i];
% endfor
% endfor
        }

        // epilogue and store
% for r in range(micro_m):
% for j in range(micro_n):
        if (first_row + ${r} < m && first_col + ${j} < n) {
            const index_t row = first_row + ${r}, col = first_col + ${j};
% if entry == "dots_splits":
            partial[(((size_t)part * batch_count + batch) * m + row) * n + col] = sum_${r}_${j};
% else:
${store.store("sum_%d_%d" % (r, j), "row", "col")}\
% endif
        }
% endfor
% endfor
    }
% endif
}
<%def name="tree(name, first, count)"><%
    # The lanes added in pairs: half the rounding of one after the other.
    def lanes(first, count):
        if count == 1:
            return "%s.s%x" % (name, first)
        half = count // 2
        return "(%s + %s)" % (lanes(first, half), lanes(first + half, half))
    expression = lanes(first, count)
%>${expression}</%def>
