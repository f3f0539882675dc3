<%!
EXTENDS = "parts/cpu_header.mako"
SUMMARY = "For CPUs: a few rows of A times B, whose rows are read straight on, several at a time."
SOURCES = (
    "Van Zee and van de Geijn, BLIS: a framework for rapidly instantiating BLAS, 2015",
)
# B's rows are read as vectors of accumulators, so they must be stored as such.
REQUIRES = (
    "profile.is_cpu",
    "kind.alpha != 'zero'",
    "kind.b.order == 'row'",
    "kind.b.dtype != 'bool' and kind.b.dtype in (kind.compute, kind.compute[1:])",
    "not kind.compute.startswith('complex')",
)
REPRODUCIBLE = ("splits == 1",)
PARAMETERS = {
    # Rows of A that share one reading of B.
    "micro_m": (1, 2, 3, 4, 6, 8),
    # Vectors of columns that a step of the sweep takes, and rows of B that it adds up.
    "vectors": (1, 2, 4),
    "vector_width": (2, 4, 8, 16),
    "terms": (2, 4, 8),
}
RUNTIME_PARAMETERS = {
    # Columns of the strip of one work-item: an upper limit, strips are balanced.
    "tile_n": (256, 512, 1024, 2048, 4096, 8192),
    # Into how many parts k is split, each summed by an item of its own.
    "splits": (1, 2, 4, 8, 16, 32),
}
DEFAULT = {
    "micro_m": 1, "vectors": 2, "vector_width": 4, "terms": 4, "tile_n": 4096, "splits": 1,
}
TEST_CONFIGS = (
    {"micro_m": 2, "vectors": 1, "vector_width": 4, "terms": 4, "tile_n": 256, "splits": 1},
    {"micro_m": 1, "vectors": 2, "vector_width": 2, "terms": 8, "tile_n": 256, "splits": 4},
    {"micro_m": 3, "vectors": 2, "vector_width": 4, "terms": 2, "tile_n": 512, "splits": 2},
    {"micro_m": 8, "vectors": 1, "vector_width": 4, "terms": 8, "tile_n": 256, "splits": 1},
)
CONSTRAINTS = (
    "vector_registers <= register_file",
    "problem.n >= micro_n",
)
WORKSPACE_TYPES = {"partial": "vec_t"}


def derive(config, kind, profile):
    return dict(
        derive_micro(config, kind, profile), b_storage=STORAGE[kind.b.dtype], local_bytes=0
    )


def blocking(config, derived, problem, profile):
    panels_m = ceil_div(problem.m, config.micro_m)
    panels_n = ceil_div(problem.n, derived.micro_n)
    splits = min(config.splits, ceil_div(problem.k, 64))
    per_split = ceil_div(ceil_div(problem.k, splits), 8) * 8
    splits = ceil_div(problem.k, per_split)
    tiles_n = min(ceil_div(problem.n, config.tile_n), panels_n)
    parallel = problem.batch_count * panels_m * splits
    units = profile.compute_units
    while parallel * tiles_n % units and parallel * tiles_n < 8 * units and tiles_n < panels_n:
        tiles_n += 1
    return dict(
        panels_m=panels_m, panels_n=panels_n, splits=splits, per_split=per_split, tiles_n=tiles_n
    )


def workspace(config, derived, problem, profile):
    b = blocking(config, derived, problem, profile)
    size = partial_bytes(config, derived, problem, b, True)
    return dict(partial=dict(bytes=size, alignment=64, first=0, last=1))


def launches(config, derived, problem, profile):
    b = blocking(config, derived, problem, profile)
    common = ("sizes", "batch", "panels_m", "panels_n", "splits")
    split = b["splits"] > 1
    items = problem.batch_count * b["panels_m"] * b["splits"] * b["tiles_n"]
    found = [
        dict(
            entry="sweep_splits" if split else "sweep",
            global_size=(items,),
            local_size=(1,),
            args=("a", "b", "partial", *(() if split else ("out", "scalars")), *common,
                  "per_split", "tiles_n"),
            values=b,
        )
    ]
    if split:
        found.append(
            dict(
                entry="sweep_reduce",
                global_size=(problem.batch_count * b["panels_m"] * b["panels_n"],),
                local_size=(1,),
                args=("partial", "out", *common, "scalars"),
                values=b,
            )
        )
    return found


def propose(problem, profile):
    size = problem.k * problem.n * problem.kind.compute_itemsize
    lanes = lanes_of(problem.compute)
    if not profile.is_cpu or problem.m > 32 or problem.n < lanes or size < 2**20:
        return
    # How many rows share a reading, and lanes: 8 sums of the narrower vectors leave registers
    # for the elements of A.
    for micro_m, width in ((1, lanes), (2, lanes), (4, lanes), (8, lanes // 2)):
        if problem.m <= micro_m:
            break
    # From main memory: parts of k that keep the rows whole, several to a unit, so that a unit
    # that starts late is no loss. From the caches, a second launch would cost more.
    splits = 1
    if size >= 3 * 2**23 and not problem.reproducible:
        splits = min(8 * profile.compute_units, 32)
        splits = 2 ** (splits.bit_length() - 1)
    values = dict(
        micro_m=micro_m, vectors=1, vector_width=width, terms=8, tile_n=4096, splits=splits
    )
    yield 88, values, "few rows: B is read once, straight on"
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="micro" file="parts/micro.mako"/>\
// cpu_sweep: one work-item sums a strip of a few rows of the result.
//
//     sums[row, :] += sum over u < terms of A[row, i + u] * B[i + u, strip]      for i in steps
//
// With so few rows every element of B is needed once, and memory decides. So the sums of a whole
// strip wait in memory, in the first-level cache, and the rows of B are read from one end of the
// strip to the other, several at a time: as many straight streams, which the hardware sees
// coming. Other orders of the same work took a third longer.
//
// The last panel of columns is moved left until it ends with the matrix; of what it computes
// again, nothing is stored. Rows past the end of A are clamped to the last one.
//
// Where the strips are too few for the compute units, k is split between items, whose sums a
// second launch adds in a fixed order.
//
// Index spaces, large to small: parts of k > batch > panels of A > strips > steps of terms >
// panels of B > terms.
${types.prelude()}
${load.functions()}
% if entry != "sweep_splits":
${store.functions()}
% endif
${micro.types()}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${entry}(${parameters}) {
% if entry == "sweep_reduce":
${micro.reduce_splits()}\

    // epilogue and store
    const index_t first_row = pm * ${micro_m};
    const int rows = m - first_row < ${micro_m} ? m - first_row : ${micro_m};
    const index_t begin_col = pn * ${micro_n};
    const index_t first_col = begin_col + ${micro_n} <= n ? begin_col : n - ${micro_n};
    const int skip = begin_col - first_col;
${micro.finish("first_row", "first_col", "skip", "rows", str(micro_n))}\
% else:
    // where am I: part of k, batch, panel of A, strip of columns
    const index_t item = get_global_id(0);
    const index_t strip = item % tiles_n, rest = item / tiles_n;
    const index_t pm = rest % panels_m, rest_batch = rest / panels_m;
    const index_t batch = rest_batch % batch_count, part = rest_batch / batch_count;
${index.bases("batch")}\
    const index_t begin_n = strip * panels_n / tiles_n, end_n = (strip + 1) * panels_n / tiles_n;
    const index_t begin_k = part * per_split;
    const index_t end_k = begin_k + per_split < k ? begin_k + per_split : k;
    const index_t first_row = pm * ${micro_m};
${micro.rows_in_place()}\
    const index_t strip_col = begin_n * ${micro_n};

    // clear
    __global vec_t *sums = partial
        + ((((size_t)part * batch_count + batch) * panels_m + pm) * panels_n + begin_n) * ${micro_m * vectors};
    for (index_t q = 0; q < (end_n - begin_n) * ${micro_m * vectors}; q++) sums[q] = (vec_t)(0);

    // for each few terms: their elements of A, their rows of B from left to right
    index_t i = begin_k;
% for step in (terms, 1):
    for (; i + ${step} <= end_k; i += ${step}) {
% for u in range(step):
        __global const ${b_storage} *pb_${u} = b + ${index.at("b", "i + %d" % u, "strip_col")};
% for r in range(micro_m):
        const scalar_t x${u}_${r} = ${capture(micro.element_in_place, r, 0, u)};
% endfor
% endfor
        __global vec_t *waiting = sums;
        for (index_t pn = begin_n; pn < end_n; pn++) {
            const index_t begin_col = pn * ${micro_n};
            const index_t j = (begin_col + ${micro_n} <= n ? begin_col : n - ${micro_n}) - strip_col;
${micro.clear()}\
${micro.resume("waiting")}\
% for u in range(step):
${micro.term(lambda r, p: "x%d_%d" % (u, r), lambda p, v: "*(__global const vec_u *)(pb_%d + j + %d)" % (u, v * vector_width))}\
% endfor
${micro.suspend("waiting")}\
            waiting += ${micro_m * vectors};
        }
    }
% endfor
% if entry == "sweep":

    // epilogue and store
    const int rows = m - first_row < ${micro_m} ? m - first_row : ${micro_m};
    __global const vec_t *waiting = sums;
    for (index_t pn = begin_n; pn < end_n; pn++) {
        const index_t begin_col = pn * ${micro_n};
        const index_t first_col = begin_col + ${micro_n} <= n ? begin_col : n - ${micro_n};
        const int skip = begin_col - first_col;
${micro.clear()}\
${micro.resume("waiting")}\
${micro.finish("first_row", "first_col", "skip", "rows", str(micro_n))}\
        waiting += ${micro_m * vectors};
    }
% endif
% endif
}
