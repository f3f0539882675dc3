<%!
EXTENDS = "parts/cpu_header.mako"
SUMMARY = "For CPUs: B staged in local memory, A read in place; one launch, registers full."
SOURCES = (
    "Van Zee and van de Geijn, BLIS: a framework for rapidly instantiating BLAS, 2015",
)
REQUIRES = ("profile.is_cpu", "kind.alpha != 'zero'")
REPRODUCIBLE = ("splits == 1",)
PARAMETERS = {
    # Rows, and vectors of columns, of the micro-tile that is held in registers.
    "micro_m": (1, 2, 3, 4, 5, 6, 8, 12),
    "vectors": (1, 2, 3, 4),
    "vector_width": (2, 4, 8, 16),
    # Terms that the loop takes at a time.
    "unroll": (1, 2, 4, 8),
    # Columns of the macro-tile and terms of a block: what is staged at a time.
    "tile_n": (16, 32, 64, 128, 256, 512),
    "block_k": (64, 128, 192, 256, 384, 512),
}
RUNTIME_PARAMETERS = {
    # Rows of the macro-tile of one work-item: an upper limit, tiles are balanced.
    "tile_m": (6, 12, 24, 48, 96, 192, 384),
    # Into how many parts k is split, each summed by an item of its own.
    "splits": (1, 2, 4, 8, 16, 32),
}
DEFAULT = {
    "micro_m": 4, "vectors": 1, "vector_width": 4, "unroll": 2,
    "tile_m": 96, "tile_n": 32, "block_k": 64, "splits": 1,
}
TEST_CONFIGS = (
    {"micro_m": 3, "vectors": 2, "vector_width": 4, "unroll": 2,
     "tile_m": 6, "tile_n": 16, "block_k": 64, "splits": 1},
    {"micro_m": 6, "vectors": 1, "vector_width": 16, "unroll": 4,
     "tile_m": 24, "tile_n": 32, "block_k": 64, "splits": 2},
    {"micro_m": 6, "vectors": 1, "vector_width": 4, "unroll": 4,
     "tile_m": 24, "tile_n": 32, "block_k": 64, "splits": 4},
)
CONSTRAINTS = (
    "vector_registers <= register_file",
    "tile_n >= micro_n",
    "local_bytes <= profile.usable_local_bytes",
)
WORKSPACE_TYPES = {"partial": "vec_t"}


def derive(config, kind, profile):
    micro = derive_micro(config, kind, profile)
    # A fair share of panels may be one more than the tile's own.
    panels = config.tile_n // micro["micro_n"] + 1
    elements = panels * config.block_k * micro["b_step"]
    return dict(
        micro,
        staged_elements=elements,
        local_bytes=elements * kind.compute_itemsize // micro["planes"],
    )


def workspace(config, derived, problem, profile):
    return workspace_in_place(config, derived, problem, profile)


def launches(config, derived, problem, profile):
    return launches_in_place("staged", config, derived, problem, profile)


def propose(problem, profile):
    if not profile.is_cpu:
        return
    # Narrow tiles, whose many rows share what an item has staged; a long block of k, so that sums
    # seldom wait, as long as it leaves room in a second-level cache.
    lanes = width_for(problem)
    line_bytes = (64 + lanes) * problem.kind.compute_itemsize
    most = min(profile.local_mem_bytes, 320 * 1024)
    block_k = max(x for x in (64, 128, 256, 512) if x == 64 or x * line_bytes <= most)
    tile_n = 64
    b_bytes = problem.k * problem.n * problem.kind.compute_itemsize
    by_columns = problem.kind.b.order == "column"
    if problem.m <= 16 and b_bytes >= 2**25 and most >= 2**18 and not by_columns:
        # B comes from memory, and is used a few times only: what counts is to read it straight on.
        tile_n, block_k = 256, 128
    tile_m, micro_m = 384, rows_for(problem)
    if lanes < lanes_of(problem.compute):
        tile_n = 16
    elif problem.k <= FEW_TERMS and problem.n >= 128:
        tile_m, tile_n, block_k = 24, 32 * lanes, 64  # what counts is to write long runs of rows
    elif turns_for_few(problem):
        micro_m = rows_of_few(problem.m)
        if lanes > 8:
            micro_m, lanes, tile_n = 8, 8, 16 if problem.m <= 16 else 64
    tiles = problem.batch_count * ceil_div(problem.m, tile_m) * ceil_div(problem.n, tile_n)
    values = dict(
        micro_m=micro_m, vectors=1, vector_width=lanes, unroll=4,
        tile_m=tile_m, tile_n=tile_n, block_k=block_k, splits=splits_for(problem, profile, tiles),
    )
    yield rank_in_place(problem, profile)[1], values, "B staged in local memory"
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="micro" file="parts/micro.mako"/>\
// cpu_staged: one work-item a macro-tile; its block of B is copied to local memory, A stays.
//
//     out[row, col] = sum over blocks kb of sum over i in block of A[row, i] * B[i, col]
//
// A work-group of one item needs no barrier, and its local memory is the cache of the core that
// runs it. For each block of k the item copies B's columns of its tile into panels of micro_n
// columns, zero outside the matrix and converted to the accumulator's type:
//
//     staged  [panel of micro_n columns][term][column]
//
// and multiplies each panel with micro_m rows of A at a time, read where they lie (rows past the
// end are clamped to the last one; what they give is not stored). It saves the copies and
// launches of the packed variant, which pays while A's rows stay in the caches by themselves.
//
// Where m and n are small and k is large, k is split between items, whose sums a second launch
// adds in a fixed order.
//
// Index spaces, large to small: parts of k > batch > macro-tiles > blocks of k > panels of A >
// panels of B > terms.
${types.prelude()}
${load.functions()}
% if entry != "staged_splits":
${store.functions()}
% endif
${micro.types()}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${entry}(${parameters}) {
% if entry == "staged_reduce":
${micro.reduce_splits()}\

    // epilogue and store
    const index_t first_row = pm * ${micro_m}, first_col = pn * ${micro_n};
    const int rows = m - first_row < ${micro_m} ? m - first_row : ${micro_m};
    const int cols = n - first_col < ${micro_n} ? n - first_col : ${micro_n};
${micro.finish("first_row", "first_col", "0", "rows", "cols")}\
% else:
    __local scalar_t staged[${staged_elements}] __attribute__((aligned(64)));

${micro.where_in_place()}\

    // for each block of k
    for (index_t kb = 0; kb < k_blocks; kb++) {
        const index_t first = begin_k + kb * block;
        const int terms = first + block <= end_k ? block : end_k - first;

        // load: panels of B
        for (index_t pn = begin_n; pn < end_n; pn++) {
            const index_t first_col = pn * ${micro_n};
            const int cols = n - first_col < ${micro_n} ? n - first_col : ${micro_n};
            __local scalar_t *target = staged + (pn - begin_n) * block * ${b_step};
${micro.copy_panel("__local", "first", "terms")}\
        }

        // compute: each panel of A with each panel of B
        for (index_t pm = begin_m; pm < end_m; pm++) {
            const index_t first_row = pm * ${micro_m};
            const int rows = m - first_row < ${micro_m} ? m - first_row : ${micro_m};
${micro.rows_in_place()}\
            for (index_t pn = begin_n; pn < end_n; pn++) {
                __local const scalar_t *pb = staged + (pn - begin_n) * block * ${b_step};
${micro.waiting_in_place()}\
                index_t i = first;
                const index_t end = first + terms;
% for step in ((unroll, 1) if unroll > 1 else (1,)):
                for (; i + ${step} <= end; i += ${step}) {
% for u in range(step):
${micro.term(lambda r, p: capture(micro.element_in_place, r, p, u), lambda p, j: "*(__local const vec_t *)(pb + %d)" % (u * b_step + (p * vectors + j) * vector_width))}\
% endfor
                    pb += ${step * b_step};
                }
% endfor
% if entry == "staged_splits":
${micro.suspend("waiting")}\
% else:
                if (kb + 1 < k_blocks) {
${micro.suspend("waiting")}\
                    continue;
                }
                // epilogue and store
                const index_t first_col = pn * ${micro_n};
                const int cols = n - first_col < ${micro_n} ? n - first_col : ${micro_n};
${micro.finish("first_row", "first_col", "0", "rows", "cols")}\
% endif
            }
        }
    }
% endif
}
