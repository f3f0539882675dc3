<%!
EXTENDS = "parts/gpu_header.mako"
SUMMARY = "Tiles of A and B shared by a work-group in local memory, two barriers per tile."
SOURCES = (
    "C++ AMP walkthrough: matrix multiplication with tile_static memory",
    "OpenCL specification, section 3.3, memory model: local memory and work-group barriers",
)
REQUIRES = ()
REPRODUCIBLE = ()
PARAMETERS = {
    # Rows and columns of the tile of the result that one work-group computes, one work-item an
    # element; and how many terms of the sum are staged at a time.
    "tile_m": (1, 2, 4, 8, 16, 32),
    "tile_n": (1, 2, 4, 8, 16, 32, 64),
    "tile_k": (1, 2, 4, 8, 16, 32, 64),
}
RUNTIME_PARAMETERS = {}
# Small, rectangular and all different, so that tests reach every border with small matrices.
TEST_CONFIGS = (
    {"tile_m": 2, "tile_n": 4, "tile_k": 8},
    {"tile_m": 8, "tile_n": 2, "tile_k": 4},
    {"tile_m": 1, "tile_n": 1, "tile_k": 1},
    {"tile_m": 16, "tile_n": 16, "tile_k": 16},
)
DEFAULT = {"tile_m": 8, "tile_n": 8, "tile_k": 8}
CONSTRAINTS = (
    "work_items <= profile.max_work_group_size",
    "tile_n <= profile.max_work_item_sizes[0]",
    "tile_m <= profile.max_work_item_sizes[1]",
    "local_bytes <= profile.usable_local_bytes",
)
INSTRUMENT = ("none", "count", "trace")


def derive(config, kind, profile):
    tile_a = config.tile_m * config.tile_k
    tile_b = config.tile_k * config.tile_n
    return dict(
        work_items=config.tile_m * config.tile_n,
        tile_a_elements=tile_a,
        tile_b_elements=tile_b,
        local_bytes=(tile_a + tile_b) * kind.compute_itemsize,
    )


def propose(problem, profile):
    # (expected speed in multiples of the naive kernel's, parameters, why)
    large = 16 if profile.max_work_group_size >= 256 else 8
    sizes = [t for t in (large, 8, 4) if t <= max(problem.m, problem.n, 4)]
    for speed, t in zip((3, 2.5, 2), sizes):
        rank = speed
        if not profile.is_cpu:
            tiles = problem.batch_count * ceil_div(problem.m, t) * ceil_div(problem.n, t)
            useful = problem.batch_count * problem.m * problem.n / (tiles * t * t)
            useful *= min(tiles / (2 * profile.compute_units), 1)
            rank = rank_of(problem, profile, speed * useful, 2 * problem.minimum_bytes,
                           phases=1.2 * ceil_div(problem.k, t))
        yield rank, dict(tile_m=t, tile_n=t, tile_k=t), "%d×%d tiles in local memory" % (t, t)


def workspace(config, derived, problem, profile):
    return {}


def instruments(mode, config, derived, problem):
    if mode == "count":
        # uint counters: reads of each element of A and B from global memory, and of its staged
        # copies from local memory; reads outside A and B, apart for each memory
        of_a, of_b = problem.m * problem.k, problem.k * problem.n
        return dict(
            a_loads=of_a, b_loads=of_b, padded_loads=2,
            a_local_loads=of_a, b_local_loads=of_b, padded_local_loads=2,
        )
    # accumulators: for each group and phase the two tiles, and the partial sums after it
    groups = ceil_div(problem.m, config.tile_m) * ceil_div(problem.n, config.tile_n)
    phases = ceil_div(problem.k, config.tile_k)
    return dict(
        trace_a=groups * phases * derived.tile_a_elements,
        trace_b=groups * phases * derived.tile_b_elements,
        trace_sum=groups * phases * derived.work_items,
    )


def launches(config, derived, problem, profile):
    tiles_m = ceil_div(problem.m, config.tile_m)
    tiles_n = ceil_div(problem.n, config.tile_n)
    groups = problem.batch_count * tiles_m * tiles_n
    return [
        dict(
            entry="tiled",
            global_size=(groups * config.tile_n, config.tile_m),
            local_size=(config.tile_n, config.tile_m),
            args=("a", "b", "out", "sizes", "batch", "scalars", "tiles_m", "tiles_n"),
            values=dict(tiles_m=tiles_m, tiles_n=tiles_n),
        )
    ]
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="trace" file="parts/instrument.mako"/>\
// tiled: a work-group stages tiles of A and B in local memory and shares them.
//
//     out[row, col] = sum over phases p of
//                     sum over i < tile_k of tile_a[row in tile, i] * tile_b[i, col in tile]
//
// A work-group owns tile_m x tile_n elements of the result, one work-item each. In phase p it
// needs this tile of A and that of B:
//
//                                +--tile_n--+
//                                |          |
//                            B   |  tile_b  | tile_k, at row p * tile_k
//                                |          |
//           at column            +----------+
//           p * tile_k           :          :
//          +---tile_k---+        +----------+
//     A    |   tile_a   | tile_m | the group|
//          +------------+        +----------+
//
// Each element of A is read from global memory once per column of tiles, ceil(n / tile_n) times,
// instead of n times; each element of B ceil(m / tile_m) times instead of m. The first barrier
// makes the tiles complete before anyone reads them; the second keeps a fast work-item from
// overwriting a tile that a slow one still reads.
//
// Elements outside the matrices count as zero in both tiles (so they add 0 * 0, never 0 * Inf),
// and their addresses are clamped into the matrix: some devices run both sides of a guarded load.
//
// Index spaces, large to small: batch > tiles (row by row) > work-items > phases > terms.
${types.prelude()}
${load.functions()}
${store.functions()}

__kernel __attribute__((reqd_work_group_size(${tile_n}, ${tile_m}, 1)))
void ${entry}(${parameters}) {
    __local acc_t tile_a[${tile_a_elements}];  // [tile_m][tile_k]
    __local acc_t tile_b[${tile_b_elements}];  // [tile_k][tile_n]

    // where am I
    const index_t group = get_group_id(0);
    const index_t tiles_of_batch = tiles_m * tiles_n;
    const index_t batch = group / tiles_of_batch;
    const index_t tile = group - batch * tiles_of_batch;
    const index_t first_row = (tile / tiles_n) * ${tile_m};
    const index_t first_col = (tile % tiles_n) * ${tile_n};
    const int local_row = get_local_id(1), local_col = get_local_id(0);
    const int item = local_row * ${tile_n} + local_col;
${index.bases("batch")}
    // clear
    acc_t sum = zero();

% if kind.alpha != "zero":
    // for each k tile
    for (index_t first = 0; first < k; first += ${tile_k}) {
        // load: the work-items of the group share the work, along the lines of each matrix
        for (int e = item; e < ${tile_a_elements}; e += ${work_items}) {
% if kind.a.order == "column":
            const int r = e % ${tile_m}, i = e / ${tile_m};
% else:
            const int r = e / ${tile_k}, i = e % ${tile_k};
% endif
            const index_t row = first_row + r, term = first + i;
            const int inside = row < m && term < k;
            const index_t safe_row = row < m ? row : m - 1, safe_term = term < k ? term : k - 1;
${trace.count_load("a", "inside", "row", "term", "k")}\
            const acc_t element = load_a(a, ${index.at("a", "safe_row", "safe_term")});
            tile_a[r * ${tile_k} + i] = inside ? element : zero();
        }
        for (int e = item; e < ${tile_b_elements}; e += ${work_items}) {
% if kind.b.order == "column":
            const int i = e % ${tile_k}, c_ = e / ${tile_k};
% else:
            const int i = e / ${tile_n}, c_ = e % ${tile_n};
% endif
            const index_t term = first + i, col = first_col + c_;
            const int inside = term < k && col < n;
            const index_t safe_term = term < k ? term : k - 1, safe_col = col < n ? col : n - 1;
${trace.count_load("b", "inside", "term", "col", "n")}\
            const acc_t element = load_b(b, ${index.at("b", "safe_term", "safe_col")});
            tile_b[i * ${tile_n} + c_] = inside ? element : zero();
        }

        // barrier: both tiles are complete
        barrier(CLK_LOCAL_MEM_FENCE);

        // compute
        for (int i = 0; i < ${tile_k}; i++) {
${trace.count_load("a", "first_row + local_row < m && first + i < k", "first_row + local_row",
                   "first + i", "k", "local_")}\
${trace.count_load("b", "first + i < k && first_col + local_col < n", "first + i",
                   "first_col + local_col", "n", "local_")}\
            sum = multiply_add(tile_a[local_row * ${tile_k} + i],
                               tile_b[i * ${tile_n} + local_col], sum);
        }
% if instrument == "trace":
        {
            const index_t phases = (k + ${tile_k} - 1) / ${tile_k};
            const index_t step = group * phases + first / ${tile_k};
            for (int e = item; e < ${tile_a_elements}; e += ${work_items})
                trace_a[step * ${tile_a_elements} + e] = tile_a[e];
            for (int e = item; e < ${tile_b_elements}; e += ${work_items})
                trace_b[step * ${tile_b_elements} + e] = tile_b[e];
            trace_sum[step * ${work_items} + item] = sum;
        }
% endif

        // barrier: everyone has read the tiles
        barrier(CLK_LOCAL_MEM_FENCE);
    }

% endif
    // epilogue and store
    const index_t row = first_row + local_row, col = first_col + local_col;
    if (row < m && col < n) {
${store.store("sum", "row", "col")}
    }
}
