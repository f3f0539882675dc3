<%doc>
Tiles of A and B in local memory, for the tensor cores: copied by cp.async, laid out in rows of 64
or 128 bytes that are cut into chunks of 16. Two layouts, as user memory has it:

    along k    one row per row of A (column of B): tile_k terms of it
    across k   blocks of 128 bytes of neighbouring rows of A (columns of B), one row per term:
               [block][term][128 bytes]; of a tile that has no more, 64 or 32 bytes

Chunk c of row r lies in place c ^ s(r) of its row: the swizzle s, the variant's own, spreads the
chunks that are read at once over the banks. It depends on the last three bits of r alone, and
the copies of a work-item are a multiple of 8 rows apart, so that it is the same for all of them.
</%doc>
<%namespace name="ptx" file="parts/ptx.mako"/>

<%def name="places(x)">
<%
    s = a_stage if x == "a" else b_stage
    first = "first_row" if x == "a" else "first_col"
    outer_stride, term_stride = s["strides"]
    per_row, unit = s["per_row"], s["unit"]
%>\
% if s["along_k"]:
    const int ${x}_outer = item / ${per_row}, ${x}_term = item % ${per_row} * ${unit};
    const int ${x}_row = ${x}_outer, ${x}_byte = ${x}_term * ${s["size"]};
    const uint ${x}_to = tiles_at + ${s["offset"]} + ${x}_row * ${s["row_bytes"]}
% else:
    const int ${x}_term = item / ${per_row} % ${tile_k};
    const int ${x}_outer = item / ${per_row * tile_k} * ${s["block"]} + item % ${per_row} * ${unit};
    const int ${x}_row = ${x}_term, ${x}_byte = item % ${per_row} * ${unit * s["size"]};
    const uint ${x}_to = tiles_at + ${s["offset"]} + item / ${per_row * tile_k} * ${tile_k * s["row_bytes"]} + ${x}_row * ${s["row_bytes"]}
% endif
        + ((${x}_byte >> 4 ^ ${s["swizzle"] % (x + "_row")}) << 4)${"" if unit * s["size"] == 16 else f" + ({x}_byte & 15)"};
    // ${"rows" if x == "a" else "columns"} from this work-item's first to the matrix's last${"" if s["along_k"] else ", in bytes"}
    const int ${x}_left = (int)min(${"m" if x == "a" else "n"} - ${first} - ${x}_outer, (index_t)${s["tile"]})${"" if s["along_k"] else f" * {s['size']}"};
    ulong ${x}_from = (ulong)(${x}_start + ((size_t)(${first} + ${x}_outer) * ${outer_stride}
        + (size_t)(first_term + ${x}_term) * ${term_stride}) * ${s["size"]});
    const ulong ${x}_step = (ulong)(size_t)${outer_stride if s["along_k"] else term_stride} * ${s["size"] * (s["outer_step"] if s["along_k"] else s["term_step"])};
</%def>

<%def name="copy_whole(x, stage)">\
<%
    s = a_stage if x == "a" else b_stage
    unit, size, row_bytes = s["unit"], s["size"], s["row_bytes"]
    lines = sorted({line for line, _ in s["passes"]})
    step = s["outer_step"] if s["along_k"] else s["term_step"]
%>\
        {
            const uint to = ${x}_to + ${stage} * ${stage_bytes};
            ulong source = ${x}_from;
% for line in lines:
% for block in [block for l, block in s["passes"] if l == line]:
            ${ptx.copy_async(unit * size, f"to + {line * step * row_bytes + block * tile_k * row_bytes}", f"source + {block * row_bytes}", f"({x}_left > {line * step} ? {unit * size} : 0)" if s["along_k"] else f"clamp({x}_left - {block * row_bytes}, 0, {unit * size})")}
% endfor
% if line != lines[-1]:
            ${ptx.advance("source", f"{x}_step")}
% endif
% endfor
            ${x}_from += (size_t)${s["strides"][1]} * ${tile_k * size};
        }
</%def>

<%def name="copy_border(x, stage, first)">\
<%
    s = a_stage if x == "a" else b_stage
    outer_first, extent = ("first_row", "m") if x == "a" else ("first_col", "n")
    outer_stride, term_stride = s["strides"]
    unit, size, row_bytes = s["unit"], s["size"], s["row_bytes"]
    lines = sorted({line for line, _ in s["passes"]})
    blocks = len(s["passes"]) // len(lines)
    step = s["outer_step"] if s["along_k"] else s["term_step"]
%>\
        #pragma unroll 1
        for (int line = 0; line < ${len(lines)}; line++)
            #pragma unroll 1
            for (int block = 0; block < ${blocks}; block++) {
                const index_t outer = ${outer_first} + ${x}_outer + ${f"line * {step}" if s["along_k"] else f"block * {s['block_step']}"};
                const index_t term = ${first} + ${x}_term${"" if s["along_k"] else f" + line * {step}"};
                const index_t outer_left = outer < ${extent} ? ${extent} - outer : 0;
                const index_t term_left = term < end_term ? end_term - term : 0;
% if s["along_k"]:
                // rows that do not exist are read as the last: nobody stores their sums
                const index_t safe_outer = outer_left ? outer : ${extent} - 1;
                const index_t left = term_left;
% else:
                const index_t safe_outer = outer_left ? outer : 0;
                const index_t left = term_left ? outer_left : 0;
% endif
                const index_t safe_term = term_left ? term : first_term;
                const int bytes = left < ${unit} ? (int)left * ${size} : ${unit * size};
                const ulong source = (ulong)(${x}_start + ((size_t)safe_outer * ${outer_stride}
                    + (size_t)safe_term * ${term_stride}) * ${size});
                const uint place = ${x}_to + ${stage} * ${stage_bytes} + line * ${step * row_bytes}${"" if s["along_k"] else f" + block * {s['block_step'] // s['block'] * tile_k * row_bytes}"};
                ${ptx.copy_async(unit * size, "place", "source", "bytes")}
            }
        ${x}_from += (size_t)${term_stride} * ${tile_k * size};
</%def>

<%def name="fill_first()">\
    // The first stages - 1 phases' tiles are on their way before the loop.
    #pragma unroll 1
    for (int filling = 0; filling < ${stages - 1}; filling++) {
        const index_t begin = first_term + filling * ${tile_k};
        if (begin + ${tile_k} <= end_term) {
${copy_whole("a", "filling")}\
${copy_whole("b", "filling")}\
        } else if (begin < end_term) {
${copy_border("a", "filling", "begin")}\
${copy_border("b", "filling", "begin")}\
        }
        ${ptx.commit()}
    }
    int filled = ${stages - 1};
    // the last phase that is followed, stages - 1 later, by one whose tiles are whole
    const index_t last_whole = end_term - ${stages * tile_k};
    index_t first = first_term;
</%def>

<%def name="fill_next(whole)">\
        // load: a later phase's tiles into the stage that the last phase read
% if whole:
${copy_whole("a", "filled")}\
${copy_whole("b", "filled")}\
% else:
        if (first + ${(stages - 1) * tile_k} < end_term) {
            const index_t begin = first + ${(stages - 1) * tile_k};
${copy_border("a", "filled", "begin")}\
${copy_border("b", "filled", "begin")}\
        }
% endif
        ${ptx.commit()}
        filled = filled == ${stages - 1} ? 0 : filled + 1;
</%def>

<%def name="fill_once()">\
    // load: all terms, of which there are no more than a stage holds
    if (end_term == ${tile_k}) {
${copy_whole("a", "0")}\
${copy_whole("b", "0")}\
    } else {
${copy_border("a", "0", "first_term")}\
${copy_border("b", "0", "first_term")}\
    }
    ${ptx.commit()}
</%def>
