<%doc>
The micro-kernel of the CPU variants: micro_m x (vectors * vector_width) accumulators held in
vector registers as named variables (an array of them would live in memory). A term of the sum
takes micro_m elements of A, each for all lanes, and `vectors` vectors of B:

    c_i_j += a_i * b_j        i < micro_m, j < vectors

Complex numbers have two planes, real and imaginary parts, each with its own accumulators and its
own vectors of B. Only operators and pointer dereferences: vector builtins are slow or wrong on
PoCL 3.0.

A variant derives micro_m, vectors, vector_width, micro_n = vectors * vector_width, planes (1, or
2 for complex numbers) and unroll.
</%doc>
<%namespace name="index" file="parts/index.mako"/>
<%namespace name="store" file="parts/store.mako"/>

<%def name="types()">
// A vector of (parts of) accumulators; vec_u is the same in user memory, aligned to elements only.
typedef ${compute.scalar}${vector_width} vec_t;
typedef ${compute.scalar} vec_u __attribute__((ext_vector_type(${vector_width}), aligned(${compute.itemsize // planes})));
% if vector_epilogue and "out" in arguments:
${store.vector_functions(vector_width)}\
% endif
</%def>

<%def name="clear()">
% for i in range(micro_m):
% for p in range(planes):
            vec_t ${", ".join("c%d_%d_%d = (vec_t)(0)" % (p, i, j) for j in range(vectors))};
% endfor
% endfor
</%def>

<%def name="resume(partial)">
% for i in range(micro_m):
% for p in range(planes):
% for j in range(vectors):
                c${p}_${i}_${j} = *(${partial} + ${(i * planes + p) * vectors + j});
% endfor
% endfor
% endfor
</%def>

<%def name="suspend(partial)">
% for i in range(micro_m):
% for p in range(planes):
% for j in range(vectors):
                *(${partial} + ${(i * planes + p) * vectors + j}) = c${p}_${i}_${j};
% endfor
% endfor
% endfor
</%def>

<%def name="gather(partial)">
% for i in range(micro_m):
% for p in range(planes):
% for j in range(vectors):
            c${p}_${i}_${j} ${"|=" if compute.kind == "bool" else "+="} *(${partial} + ${(i * planes + p) * vectors + j});
% endfor
% endfor
% endfor
</%def>

<%def name="put(place)">
% if planes == 2:
                *(${place}) = x.x;
                *(${place} + ${micro_n}) = x.y;
% else:
                *(${place}) = x;
% endif
</%def>

<%def name="copy_panel(space, first_term, terms)">
            // columns past the end count as zero, and are clamped to the last
            if (cols == ${micro_n}) {
                for (int i = 0; i < ${terms}; i++) {
                    const index_t term = ${first_term} + i;
% if b_is_plain:
% for j in range(vectors):
                    *(${space} vec_t *)(target + i * ${b_step} + ${j * vector_width}) =
                        *(__global const vec_u *)(b + ${index.at("b", "term", "first_col + %d" % (j * vector_width))});
% endfor
% else:
% for c in range(micro_n):
                    {
                        const acc_t x = load_b(b, ${index.at("b", "term", "first_col + %d" % c)});
${put("target + i * %d + %d" % (b_step, c))}\
                    }
% endfor
% endif
                }
            } else {
                for (int i = 0; i < ${terms}; i++) {
                    const index_t term = ${first_term} + i;
                    for (int c = 0; c < ${micro_n}; c++) {
                        const index_t col = c < cols ? first_col + c : n - 1;
                        const acc_t element = load_b(b, ${index.at("b", "term", "col")});
                        const acc_t x = c < cols ? element : zero();
${put("target + i * %d + c" % b_step)}\
                    }
                }
            }
</%def>

<%def name="rows_in_place()"><%
    a = [x for x in loaded if x.name == "a"][0]
    scale = "2 * " if a.kind == "complex" else ""
    start = "" if kind.a.order == "column" else " * a_row_stride"
%>\
            // where the rows of this panel of A start; past the end, the last row again
% for r in range(micro_m):
            const index_t row_${r} = first_row + ${r} < m ? first_row + ${r} : m - 1;
            __global const ${a.storage} *pa_${r} = a + ${scale}(a_base + row_${r}${start});
% endfor
</%def>

<%def name="element_in_place(r, p, u)"><%
    # One pointer a row and one index for all: no address arithmetic of their own for each.
    term = f"i + {u}" if u else "i"
    place = term if kind.a.order == "row" else f"({term}) * a_col_stride"
    part = ("", ".x", ".y")[p + 1 if planes == 2 else 0]
    expression = f"load_a(pa_{r}, {place}){part}"
%>${expression}</%def>

<%def name="where_in_place()">
    // where am I: part of k, batch, macro-tile; its panels are a fair share of all
    const index_t item = get_global_id(0);
    const index_t tile_col = item % tiles_n, rest = item / tiles_n;
    const index_t tile_row = rest % tiles_m, rest_batch = rest / tiles_m;
    const index_t batch = rest_batch % batch_count, part = rest_batch / batch_count;
${index.bases("batch")}\
    const index_t begin_m = tile_row * panels_m / tiles_m, end_m = (tile_row + 1) * panels_m / tiles_m;
    const index_t begin_n = tile_col * panels_n / tiles_n, end_n = (tile_col + 1) * panels_n / tiles_n;
    const index_t begin_k = part * per_split;
    const index_t end_k = begin_k + per_split < k ? begin_k + per_split : k;
</%def>

<%def name="waiting_in_place()">
                __global vec_t *waiting = partial
                    + ((((size_t)part * batch_count + batch) * panels_m + pm) * panels_n + pn) * ${micro_m * planes * vectors};
${clear()}\
                if (kb > 0) {
${resume("waiting")}\
                }
</%def>

<%def name="reduce_splits()">
    // where am I: batch, micro-tile
    const index_t item = get_global_id(0);
    const index_t pn = item % panels_n, rest = item / panels_n;
    const index_t pm = rest % panels_m, batch = rest / panels_m;
${index.bases("batch")}\
    const size_t tiles = (size_t)batch_count * panels_m * panels_n;
    __global const vec_t *waiting = partial + (size_t)item * ${micro_m * planes * vectors};

    // clear
${clear()}\

    // for each part of k, in order: load, add
    for (index_t s = 0; s < splits; s++) {
${gather("waiting")}\
        waiting += tiles * ${micro_m * planes * vectors};
    }
</%def>

<%def name="product(x, b)"><%
    # Where both factors have at most 32 bits, the machine's 32 x 32 bit multiplication does: a
    # compiler sees it in these shifts (masks) and leaves them out. Three times as fast on AVX2.
    signed = ("int8", "int16", "int32", "uint8", "uint16")
    unsigned = ("uint8", "uint16", "uint32")
    text = f"{x} * {b}"
    if kind.compute == "uint64":
        if kind.a.dtype in unsigned and kind.b.dtype in unsigned:
            text = f"({x} & 0xffffffffu) * ({b} & 0xffffffffu)"
        elif kind.a.dtype in signed and kind.b.dtype in signed:
            long_t = f"long{vector_width}"
            factors = [f"((as_{long_t}({y}) << 32) >> 32)" for y in (f"(vec_t)({x})", b)]
            text = f"as_u{long_t}({factors[0]} * {factors[1]})"
%>${text}</%def>

<%def name="term(a, b)">
                {
% for p in range(planes):
% for j in range(vectors):
                    const vec_t b${p}_${j} = ${b(p, j)};
% endfor
% endfor
% for i in range(micro_m):
                    {
% if planes == 2:
                        const scalar_t re = ${a(i, 0)}, im = ${a(i, 1)};
% for j in range(vectors):
                        c0_${i}_${j} += re * b0_${j};
% if kind.reproducible:
                        c1_${i}_${j} += re * b1_${j} + im * b0_${j};
                        c0_${i}_${j} -= im * b1_${j};
% else:
                        c1_${i}_${j} += re * b1_${j};
                        c0_${i}_${j} -= im * b1_${j};
                        c1_${i}_${j} += im * b0_${j};
% endif
% endfor
% else:
                        const scalar_t x = ${a(i, 0)};
% for j in range(vectors):
% if compute.kind == "bool":
                        c0_${i}_${j} |= x & b0_${j};
% else:
                        c0_${i}_${j} += ${product("x", "b0_%d" % j)};
% endif
% endfor
% endif
                    }
% endfor
                }
</%def>

<%def name="finish(first_row, first_col, skip, rows, cols)">
<%
    whole = f"{rows} == {micro_m}"
    if cols != str(micro_n):
        whole += f" && {cols} == {micro_n}"
    if skip != "0":
        whole += f" && {skip} == 0"
%>\
% if vector_store:
            // a whole micro-tile: the formula on whole vectors
            if (${whole}${" && c_col_stride == 1" if kind.c else ""}) {
% for i in range(micro_m):
% for j in range(vectors):
                {
                    const index_t row = ${first_row} + ${i}, col = ${first_col} + ${j * vector_width};
                    const vec_t value = ${vector_value("c0_%d_%d" % (i, j))};
                    *(__global vec_u *)(out + ${index.at("out", "row", "col")}) = value;
                }
% endfor
% endfor
            } else
% elif vector_unrolled:
            // a whole micro-tile: the formula on whole vectors
            if (${whole}) {
% for i in range(micro_m):
% for j in range(vectors):
                {
                    const index_t row = ${first_row} + ${i}, col = ${first_col} + ${j * vector_width};
${store.value_of_vector("c0_%d_%d" % (i, j), "row", "col", vector_width)}\
                    *(__global vec_u *)(out + ${index.at("out", "row", "col")}) = value;
                }
% endfor
% endfor
            } else
% endif
            {
                // ${"an edge: element by element" if vector_epilogue or vector_store else "element by element"}
                vec_t tile[${micro_m * planes * vectors}];
${suspend("tile")}\
                const scalar_t *cells = (const scalar_t *)tile;
% if vector_epilogue and not vector_unrolled:
                if (${whole}) {
                    // a whole micro-tile: the formula on whole vectors
                    for (int i = 0; i < ${micro_m * vectors}; i++) {
                        const index_t row = ${first_row} + i / ${vectors};
                        const index_t col = ${first_col} + i % ${vectors} * ${vector_width};
${store.value_of_vector("tile[i]", "row", "col", vector_width)}\
% if vector_write:
                        *(__global vec_u *)(out + ${index.at("out", "row", "col")}) = value;
% else:
                        tile[i] = value;
                        for (int q = 0; q < ${vector_width}; q++) write_out(out, ${index.at("out", "row", "col + q")}, cells[i * ${vector_width} + q]);
% endif
                    }
                } else
% endif
                for (int i = 0; i < ${rows}; i++) {
                    for (int j = ${skip}; j < ${cols}; j++) {
                        const index_t row = ${first_row} + i, col = ${first_col} + j;
% if planes == 2:
                        const acc_t sum = (acc_t)(cells[(2 * i) * ${micro_n} + j],
                                                  cells[(2 * i + 1) * ${micro_n} + j]);
% else:
                        const acc_t sum = cells[i * ${micro_n} + j];
% endif
${store.store("sum", "row", "col")}\
                    }
                }
            }
</%def>

<%def name="vector_value(sum)"><%
    value = sum if kind.alpha == "one" else f"alpha * {sum}"
    if kind.c:
        place = capture(index.at, "c", "row", "col")
        c = f"*(__global const vec_u *)(c + {place})"
        value += f" + {c}" if kind.beta == "one" else f" + beta * {c}"
%>${value}</%def>
