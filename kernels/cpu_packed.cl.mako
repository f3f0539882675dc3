<%!
EXTENDS = "parts/cpu_header.mako"
SUMMARY = "For CPUs: A and B packed into panels, then one work-item per macro-tile, registers full."
SOURCES = (
    "Goto and van de Geijn, Anatomy of high-performance matrix multiplication, 2008",
    "Van Zee and van de Geijn, BLIS: a framework for rapidly instantiating BLAS, 2015",
)
REQUIRES = ("profile.is_cpu", "kind.alpha != 'zero'")
REPRODUCIBLE = ()
PARAMETERS = {
    # Rows, and vectors of columns, of the micro-tile that is held in registers.
    "micro_m": (2, 3, 4, 5, 6, 8, 12),
    "vectors": (1, 2, 3),
    "vector_width": (2, 4, 8, 16),
    # Terms that the loop takes at a time.
    "unroll": (1, 2, 4, 8),
}
RUNTIME_PARAMETERS = {
    # Rows and columns of the macro-tile of one work-item (its A stays in the second cache), and
    # terms of a block (a panel of B stays in the first cache). Upper limits: tiles are balanced.
    "tile_m": (24, 48, 96, 144, 192, 288, 384),
    "tile_n": (32, 64, 128, 256, 512, 1024),
    "block_k": (64, 128, 192, 256, 384, 512),
}
DEFAULT = {
    "micro_m": 4, "vectors": 1, "vector_width": 4, "unroll": 2,
    "tile_m": 96, "tile_n": 128, "block_k": 256,
}
TEST_CONFIGS = (
    {"micro_m": 3, "vectors": 2, "vector_width": 4, "unroll": 2,
     "tile_m": 24, "tile_n": 32, "block_k": 64},
    {"micro_m": 6, "vectors": 1, "vector_width": 16, "unroll": 4,
     "tile_m": 24, "tile_n": 32, "block_k": 64},
)
CONSTRAINTS = (
    "vector_registers <= register_file",
    "micro_m * micro_n * planes >= 8",
)
# Panels of B that an item packs together: it reads whole runs of a row of B.
PANELS_AT_ONCE = 4
WORKSPACE_TYPES = {"packed_a": "scalar_t", "packed_b": "scalar_t", "partial": "vec_t"}


def derive(config, kind, profile):
    return dict(
        derive_micro(config, kind, profile),
        panels_at_once=PANELS_AT_ONCE,
        b_storage=STORAGE.get(kind.b.dtype),
        local_bytes=0,
    )


def blocking(config, derived, problem, profile):
    """Panels of A and B, blocks of k and their length, tiles: as equal as they can be."""
    panels_m = ceil_div(problem.m, config.micro_m)
    panels_n = ceil_div(problem.n, derived.micro_n)
    k_blocks = max(ceil_div(problem.k, config.block_k), 1)
    block = ceil_div(ceil_div(problem.k, k_blocks), 4) * 4
    tiles_m, tiles_n = grid(config, panels_m, panels_n, problem.batch_count, problem, profile)
    return dict(
        panels_m=panels_m, panels_n=panels_n, k_blocks=k_blocks, block=block,
        tiles_m=tiles_m, tiles_n=tiles_n,
    )


def copies(operand, problem):
    # One packed copy serves a whole batch that repeats a matrix.
    return problem.batch_count if any(operand.batch_strides) else 1


def workspace(config, derived, problem, profile):
    b = blocking(config, derived, problem, profile)
    size = problem.kind.compute_itemsize // derived.planes
    depth = b["k_blocks"] * b["block"]
    found = dict(
        packed_a=dict(
            bytes=copies(problem.a, problem) * b["panels_m"] * depth * derived.a_step * size,
            alignment=64, first=0, last=1,
        ),
        packed_b=dict(
            bytes=copies(problem.b, problem) * b["panels_n"] * depth * derived.b_step * size,
            alignment=64, first=0, last=1,
        ),
    )
    found["partial"] = dict(
        bytes=partial_bytes(config, derived, problem, b, b["k_blocks"] > 1),
        alignment=64, first=1, last=1,
    )
    return found


def launches(config, derived, problem, profile):
    b = blocking(config, derived, problem, profile)
    copies_a, copies_b = copies(problem.a, problem), copies(problem.b, problem)
    common = ("sizes", "batch", "panels_m", "panels_n", "k_blocks", "block")
    values = dict(b, copies_a=copies_a, copies_b=copies_b)
    items_a = copies_a * b["panels_m"] * b["k_blocks"]
    items_b = copies_b * ceil_div(b["panels_n"], PANELS_AT_ONCE) * b["k_blocks"]
    return [
        dict(
            entry="pack", global_size=(items_a + items_b,), local_size=(1,),
            args=("a", "b", "packed_a", "packed_b", *common, "copies_a"), values=values,
            prepares=(
                dict(operand="a", workspace="packed_a", items=(0, items_a),
                     apart_from=("n", "panels_n")),
                dict(operand="b", workspace="packed_b", items=(items_a, items_b),
                     apart_from=("m", "panels_m", "copies_a")),
            ),
        ),
        dict(
            entry="multiply_panels",
            global_size=(problem.batch_count * b["tiles_m"] * b["tiles_n"],), local_size=(1,),
            args=("packed_a", "packed_b", "partial", "out", *common, "tiles_m", "tiles_n",
                  "copies_a", "copies_b", "scalars"),
            values=values,
        ),
    ]


def propose(problem, profile):
    if not profile.is_cpu:
        return
    values = dict(
        micro_m=6, vectors=1, vector_width=lanes_of(problem.compute), unroll=4,
        tile_m=192, tile_n=256, block_k=256,
    )
    yield rank_in_place(problem, profile)[2], values, "panels of A and B packed for the caches"
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="micro" file="parts/micro.mako"/>\
// cpu_packed: the blocked algorithm of BLIS, one work-item per macro-tile, no barrier.
//
//     out[row, col] = sum over blocks kb of sum over i in block of A[row, i] * B[i, col]
//
// On a CPU a work-group of one item is a thread's turn, and its registers and caches are the
// tile's stores. A and B are first copied into panels, in the order in which they will be read:
//
//     packed_a  [block of k][panel of micro_m rows   ][term][row]
//     packed_b  [block of k][panel of micro_n columns][term][column]
//
// (complex: real and imaginary part of each row; all real parts of the columns, then all
// imaginary ones). Elements outside the matrices are packed as zero; conversion to the
// accumulator's type and conjugation happen here too, so the inner loop knows one type.
//
// A work-item then owns tile_m x tile_n elements of the result, and goes through
//
//     blocks of k > panels of B (first cache) > panels of A (second cache) > terms
//
// holding micro_m x micro_n accumulators in registers. Between blocks they wait in `partial`.
${types.prelude()}
% if entry != "multiply_panels":
${load.functions()}
% else:
${load.functions()}
${store.functions()}
% endif
${micro.types()}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${entry}(${parameters}) {
% if entry == "pack":
    // where am I: the first items pack A, the others B
    const index_t global_item = get_global_id(0);
    const index_t items_a = copies_a * panels_m * k_blocks;
    if (global_item < items_a) {
    // copy of the batch, block of k, panel of A
    const index_t item = global_item;
    const index_t panel = item % panels_m, rest = item / panels_m;
    const index_t block_index = rest % k_blocks, batch = rest / k_blocks;
${index.bases("batch")}
    const index_t first_row = panel * ${micro_m}, first = block_index * block;
    const index_t terms = first + block <= k ? block : k - first;
    const index_t rows = m - first_row < ${micro_m} ? m - first_row : ${micro_m};
    __global scalar_t *target = packed_a
        + ((size_t)(batch * k_blocks + block_index) * panels_m + panel) * block * ${a_step};

    // load, convert, store
    if (rows == ${micro_m}) {
        for (index_t i = 0; i < terms; i++) {
            const index_t term = first + i;
% for r in range(micro_m):
            {
                const acc_t x = load_a(a, ${index.at("a", "first_row + %d" % r, "term")});
${put_a("target + i * %d + %d" % (a_step, r * planes))}\
            }
% endfor
        }
    } else {
        for (index_t i = 0; i < terms; i++) {
            const index_t term = first + i;
            for (int r = 0; r < ${micro_m}; r++) {
                const index_t row = r < rows ? first_row + r : m - 1;
                const acc_t element = load_a(a, ${index.at("a", "row", "term")});
                const acc_t x = r < rows ? element : zero();
${put_a("target + i * %d + r * %d" % (a_step, planes))}\
            }
        }
    }
    } else {
    // copy of the batch, block of k, neighbouring panels of B
    const index_t groups_n = (panels_n + ${panels_at_once - 1}) / ${panels_at_once};
    const index_t item = global_item - items_a;
    const index_t group = item % groups_n, rest = item / groups_n;
    const index_t block_index = rest % k_blocks, batch = rest / k_blocks;
${index.bases("batch")}
    const index_t first = block_index * block;
    const index_t terms = first + block <= k ? block : k - first;
    const index_t begin_n = group * ${panels_at_once};
    const index_t end_n = begin_n + ${panels_at_once} < panels_n ? begin_n + ${panels_at_once} : panels_n;
    __global scalar_t *packed = packed_b + (size_t)(batch * k_blocks + block_index) * panels_n * block * ${b_step};

    // load, convert, store
% if b_is_plain:
    if ((begin_n + ${panels_at_once}) * ${micro_n} <= n) {
        // whole runs of B's rows, each to several panels
        __global scalar_t *target = packed + (size_t)begin_n * block * ${b_step};
        const size_t panel = block * ${b_step};
        const index_t first_col = begin_n * ${micro_n};
        for (index_t i = 0; i < terms; i++) {
            const index_t term = first + i;
            __global const ${b_storage} *row = b + ${index.at("b", "term", "first_col")};
% for q in range(panels_at_once):
% for j in range(vectors):
            *(__global vec_t *)(target + ${q} * panel + i * ${b_step} + ${j * vector_width}) =
                *(__global const vec_u *)(row + ${q * micro_n + j * vector_width});
% endfor
% endfor
        }
        return;
    }
% endif
    for (index_t pn = begin_n; pn < end_n; pn++) {
        const index_t first_col = pn * ${micro_n};
        const index_t cols = n - first_col < ${micro_n} ? n - first_col : ${micro_n};
        __global scalar_t *target = packed + (size_t)pn * block * ${b_step};
${micro.copy_panel("__global", "first", "terms")}\
    }
    }
% else:
    // where am I: batch, macro-tile; its panels are a fair share of all
    const index_t item = get_global_id(0);
    const index_t tile_col = item % tiles_n, rest = item / tiles_n;
    const index_t tile_row = rest % tiles_m, batch = rest / tiles_m;
${index.bases("batch")}
    const index_t begin_m = tile_row * panels_m / tiles_m, end_m = (tile_row + 1) * panels_m / tiles_m;
    const index_t begin_n = tile_col * panels_n / tiles_n, end_n = (tile_col + 1) * panels_n / tiles_n;
    const size_t batch_a = copies_a == 1 ? 0 : batch, batch_b = copies_b == 1 ? 0 : batch;

    // for each block of k, panel of B, panel of A
    for (index_t kb = 0; kb < k_blocks; kb++) {
        const index_t first = kb * block;
        const int terms = first + block <= k ? block : k - first;
        for (index_t pn = begin_n; pn < end_n; pn++) {
        for (index_t pm = begin_m; pm < end_m; pm++) {
            __global const scalar_t *pa = packed_a
                + ((batch_a * k_blocks + kb) * panels_m + pm) * block * ${a_step};
            __global const scalar_t *pb = packed_b
                + ((batch_b * k_blocks + kb) * panels_n + pn) * block * ${b_step};
            __global vec_t *waiting = partial
                + (((size_t)batch * panels_m + pm) * panels_n + pn) * ${micro_m * planes * vectors};

            // clear
${micro.clear()}\
            if (kb > 0) {
${micro.resume("waiting")}\
            }

            // compute
            int i = 0;
% for step in ((unroll, 1) if unroll > 1 else (1,)):
            for (; i + ${step} <= terms; i += ${step}) {
% for u in range(step):
${micro.term(lambda r, p: "pa[%d]" % (u * a_step + r * planes + p), lambda p, j: "*(__global const vec_t *)(pb + %d)" % (u * b_step + (p * vectors + j) * vector_width))}\
% endfor
                pa += ${step * a_step};
                pb += ${step * b_step};
            }
% endfor

            if (kb + 1 < k_blocks) {
${micro.suspend("waiting")}\
                continue;
            }
            // epilogue and store
            const index_t first_row = pm * ${micro_m}, first_col = pn * ${micro_n};
            const int rows = m - first_row < ${micro_m} ? m - first_row : ${micro_m};
            const int cols = n - first_col < ${micro_n} ? n - first_col : ${micro_n};
${micro.finish("first_row", "first_col", "0", "rows", "cols")}\
        }
        }
    }
% endif
}
<%def name="put_a(place)">\
% if planes == 2:
                *(${place}) = x.x;
                *(${place} + 1) = x.y;
% else:
                *(${place}) = x;
% endif
</%def>
