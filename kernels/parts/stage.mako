<%doc>
Bringing a tile of A or B from user memory to local memory. `fetch` reads it into the work-item's
array next_a (next_b), `deposit` writes that to local memory, transposed if need be: both tiles
lie as lines of one term each, tile_x[term][outer], where outer counts rows of A or columns of B.
Between the two a work-item can compute, while the loads are on their way. It moves `x_passes`
units of x_unit neighbouring elements; pass i is the offset (outer, term) of unit i from the
work-item's first. Lines that run along the terms are read in pieces of x_piece units, one of each
line before the second of any: work-items side by side then write to different banks of local
memory, while each still reads a piece of a line that is worth reading.

Rows of A below the matrix (columns of B beside it) are read as its last ones: what they are
multiplied to is never stored. Terms beyond k must be zero: such a tile, and one whose border
would cut a unit, is no tile for `fetch`; `border` brings it, element by element.
</%doc>
<%namespace name="index" file="parts/index.mako"/>
<%namespace name="wide" file="parts/wide.mako"/>

<%def name="places(x)">
<%
    units, unit, piece = (a_units, a_unit, a_piece) if x == "a" else (b_units, b_unit, b_piece)
    along_k = a_along_k if x == "a" else b_along_k
    first, extent, tile = ("first_row", "m", tile_m) if x == "a" else ("first_col", "n", tile_n)
    if along_k:
        outer, term = f"item / {piece} % {tile}", f"item % {piece} * {unit}"
        if work_items > piece * tile:
            term += f" + item / {piece * tile} * {piece * unit}"
    else:
        outer, term = f"item % {units} * {unit}", f"item / {units}"
%>\
    const int ${x}_outer = ${outer};
    const int ${x}_term = ${term};
    const index_t ${x}_last = ${extent} - ${1 if along_k else unit};
% if not along_k and unit > 1:
    const int ${x}_units_whole = ${first} + ${tile} <= ${extent} || ${extent} % ${unit} == 0;
% endif
</%def>

<%def name="regular(x, first)"><%
    along_k, unit = (a_along_k, a_unit) if x == "a" else (b_along_k, b_unit)
    also = "" if along_k or unit == 1 else f" && {x}_units_whole"
%>${first} + ${tile_k} <= k${also}</%def>

<%def name="fetch(x, first)">\
<%
    passes, unit, each = (a_passes, a_unit, a_each) if x == "a" else (b_passes, b_unit, b_each)
    outer_first = "first_row" if x == "a" else "first_col"
    place = ("safe_outer", "term") if x == "a" else ("term", "safe_outer")
%>\
            acc_t next_${x}[${each}];
% for i, (outer, term) in enumerate(passes):
            {
                const index_t outer = ${outer_first} + ${x}_outer + ${outer};
                const index_t safe_outer = outer < ${x}_last ? outer : ${x}_last;
                const index_t term = ${first} + ${x}_term + ${term};
${wide.load_unit(x, *place, f"next_{x}", i * unit)}\
            }
% endfor
</%def>

<%def name="deposit(x, buffer)">\
<%
    passes, unit = (a_passes, a_unit) if x == "a" else (b_passes, b_unit)
    along_k = a_along_k if x == "a" else b_along_k
    stride = a_local_stride if x == "a" else b_local_stride
    vector = f"{compute.scalar}{unit}"
    as_vector = unit > 1 and not along_k and compute.kind != "complex"
%>\
            {
                __local acc_t *to = tile_${x} + ${buffer} * ${tile_k * stride} + ${x}_term * ${stride} + ${x}_outer;
% for i, (outer, term) in enumerate(passes):
% if as_vector:
                *(__local ${vector} *)(to + ${term * stride + outer}) = (${vector})(
                    ${", ".join(f"next_{x}[{i * unit + q}]" for q in range(unit))});
% else:
% for q in range(unit):
                to[${(term + q if along_k else term) * stride + (outer if along_k else outer + q)}] = next_${x}[${i * unit + q}];
% endfor
% endif
% endfor
            }
</%def>

<%def name="border(x, buffer, first)">\
<%
    along_k = a_along_k if x == "a" else b_along_k
    stride = a_local_stride if x == "a" else b_local_stride
    outer_first, extent, tile = ("first_row", "m", tile_m) if x == "a" else ("first_col", "n", tile_n)
    safe = ("safe_outer", "safe_term") if x == "a" else ("safe_term", "safe_outer")
    line, position = ("outer", "term") if along_k else ("term", "outer")
    length = tile_k if along_k else tile
%>\
            for (int e = item; e < ${tile * tile_k}; e += ${work_items}) {
                const int ${line} = e / ${length}, ${position} = e % ${length};
                const index_t far_outer = ${outer_first} + outer, far_term = ${first} + term;
                const int inside = far_outer < ${extent} && far_term < k;
                const index_t safe_outer = far_outer < ${extent} ? far_outer : ${extent} - 1;
                const index_t safe_term = far_term < k ? far_term : k - 1;
                const acc_t element = load_${x}(${x}, ${index.at(x, *safe)});
                tile_${x}[${buffer} * ${tile_k * stride} + term * ${stride} + outer] = inside ? element : zero();
            }
</%def>
