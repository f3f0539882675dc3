<%!
EXTENDS = "parts/cpu_header.mako"
SUMMARY = "For CPUs: A and B read where they lie, no copy; for small and for short products."
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
    # Rows, and vectors of columns, of the micro-tile that is held in registers.
    "micro_m": (1, 2, 3, 4, 5, 6, 8, 12),
    "vectors": (1, 2, 3, 4),
    "vector_width": (2, 4, 8, 16),
    # Terms that the loop takes at a time.
    "unroll": (1, 2, 4, 8),
}
RUNTIME_PARAMETERS = {
    # Rows and columns of the macro-tile of one work-item, and terms of a block: upper limits,
    # tiles are balanced.
    "tile_m": (6, 12, 24, 48, 96, 192, 384),
    "tile_n": (16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
    "block_k": (8, 16, 32, 64, 128, 192, 256, 384, 512, 1024),
    # Into how many parts k is split, each summed by an item of its own.
    "splits": (1, 2, 4, 8, 16, 32),
}
DEFAULT = {
    "micro_m": 4, "vectors": 1, "vector_width": 4, "unroll": 2,
    "tile_m": 96, "tile_n": 128, "block_k": 256, "splits": 1,
}
TEST_CONFIGS = (
    {"micro_m": 3, "vectors": 1, "vector_width": 4, "unroll": 2,
     "tile_m": 6, "tile_n": 16, "block_k": 64, "splits": 1},
    {"micro_m": 6, "vectors": 2, "vector_width": 2, "unroll": 4,
     "tile_m": 24, "tile_n": 32, "block_k": 64, "splits": 2},
    {"micro_m": 6, "vectors": 1, "vector_width": 2, "unroll": 4,
     "tile_m": 24, "tile_n": 32, "block_k": 64, "splits": 4},
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


def workspace(config, derived, problem, profile):
    return workspace_in_place(config, derived, problem, profile)


def launches(config, derived, problem, profile):
    return launches_in_place("direct", config, derived, problem, profile)


def propose(problem, profile):
    if not profile.is_cpu:
        return
    lanes = width_for(problem)
    rank, vectors, unroll = rank_in_place(problem, profile)[0], 1, 4
    micro_m, tile_m, tile_n = rows_for(problem), 384 if problem.k <= 64 else 48, 128
    # Where A's rows lie as they are read and B is narrow, long sums: B stays in the first cache.
    by_rows = problem.kind.a.order == "row"
    block_k = 1024 if by_rows and problem.n <= lanes_of(problem.compute) else 512
    if lanes < lanes_of(problem.compute):
        rank, unroll, tile_m = 62, 8, 384
        micro_m = 12 if by_rows and problem.m >= 96 else micro_m
    elif by_rows and problem.n == lanes and problem.m > 16:
        rank = 62
    if problem.m == 1:
        rank, vectors = 85, max(x for x in (1, 2, 4) if x == 1 or x * lanes <= problem.n)
        unroll = 8
        if problem.k * problem.n * problem.kind.compute_itemsize >= 2**25:
            # Bound by memory: a few rows of B at a time, each read straight on, which the
            # hardware sees coming. (Whole columns of narrow pieces took twice as long.)
            tile_n, block_k = 1024, 16
    tiles = problem.batch_count * ceil_div(problem.m, tile_m) * ceil_div(problem.n, tile_n)
    values = dict(
        micro_m=micro_m, vectors=vectors, vector_width=lanes, unroll=unroll,
        tile_m=tile_m, tile_n=tile_n, block_k=block_k, splits=splits_for(problem, profile, tiles),
    )
    yield rank, values, "operands read in place"
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="micro" file="parts/micro.mako"/>\
// cpu_direct: one work-item a macro-tile; A and B are read where they lie.
//
//     out[row, col] = sum over blocks kb of sum over i in block of A[row, i] * B[i, col]
//
// A term of the micro-kernel takes micro_n neighbours of a row of B as vectors and micro_m
// elements of A. Nothing is copied, so it is the quickest while both operands stay in the caches
// by themselves, and for few rows.
//
// Edges need no second kernel: rows past the end of A are clamped to the last one, and the last
// panel of B is moved left until it ends with the matrix; of what it computes again, nothing is
// stored.
//
// Where m and n are small and k is large, k is split between items, whose sums a second launch
// adds in a fixed order.
//
// Index spaces, large to small: parts of k > batch > macro-tiles > blocks of k > panels of B >
// panels of A > terms.
${types.prelude()}
${load.functions()}
% if entry != "direct_splits":
${store.functions()}
% endif
${micro.types()}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${entry}(${parameters}) {
% if entry == "direct_reduce":
${micro.reduce_splits()}\

    // epilogue and store
    const index_t first_row = pm * ${micro_m};
    const int rows = m - first_row < ${micro_m} ? m - first_row : ${micro_m};
    const index_t begin_col = pn * ${micro_n};
    const index_t first_col = begin_col + ${micro_n} <= n ? begin_col : n - ${micro_n};
    const int skip = begin_col - first_col;
${micro.finish("first_row", "first_col", "skip", "rows", str(micro_n))}\
% else:
${micro.where_in_place()}\

    // for each block of k, panel of B, panel of A
    for (index_t kb = 0; kb < k_blocks; kb++) {
        const index_t first = begin_k + kb * block;
        const index_t end = first + block <= end_k ? first + block : end_k;
        for (index_t pn = begin_n; pn < end_n; pn++) {
            const index_t begin_col = pn * ${micro_n};
            const index_t first_col = begin_col + ${micro_n} <= n ? begin_col : n - ${micro_n};
            for (index_t pm = begin_m; pm < end_m; pm++) {
                const index_t first_row = pm * ${micro_m};
                const int rows = m - first_row < ${micro_m} ? m - first_row : ${micro_m};
${micro.rows_in_place()}\
                __global const ${b_storage} *pb = b + ${index.at("b", "first", "first_col")};
${micro.waiting_in_place()}\
                index_t i = first;
% for step in ((unroll, 1) if unroll > 1 else (1,)):
                for (; i + ${step} <= end; i += ${step}) {
% for u in range(step):
${micro.term(lambda r, p: capture(micro.element_in_place, r, p, u), lambda p, j: "*(__global const vec_u *)(pb + %d)" % (j * vector_width))}\
                    pb += b_row_stride;
% endfor
                }
% endfor
% if entry == "direct_splits":
${micro.suspend("waiting")}\
% else:
                if (kb + 1 < k_blocks) {
${micro.suspend("waiting")}\
                    continue;
                }
                // epilogue and store
                const int skip = begin_col - first_col;
${micro.finish("first_row", "first_col", "skip", "rows", str(micro_n))}\
% endif
            }
        }
    }
% endif
}
