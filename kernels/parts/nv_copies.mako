<%doc>
A k tile of A or B on its way to a stage in local memory, by asynchronous copies of 4 or 16 bytes, as
each work-item's share of it. A stage holds lines of one term, or (x_lines) lines of rows of A and of
columns of B, as they lie in user memory.
</%doc>
<%namespace name="ptx" file="parts/ptx.mako"/>

<%def name="places(x)">
<%
    along_k, unit = (a_along_k, a_unit) if x == "a" else (b_along_k, b_unit)
    units = a_units if x == "a" else b_units
    first, extent, tile = ("first_row", "m", tile_m) if x == "a" else ("first_col", "n", tile_n)
    outer_stride, term_stride = a_strides if x == "a" else b_strides
    line, position = f"item / {units}", f"item % {units} * {unit}"
    lines = a_lines if x == "a" else b_lines
    word = "float" if compute.kind == "real" else "uint"
%>\
    const int ${x}_outer = ${line if along_k else position};
    const int ${x}_term = ${position if along_k else line};
% if "walking" not in arguments:
    const int ${x}_inside = ${first} + ${tile} <= ${extent};
% endif
% if lines:
    const uint ${x}_to = ${ptx.local_address("tile_" + x)} + (${x}_outer * ${a_local_stride if x == "a" else b_local_stride} + ${x}_term) * 4;
% else:
    const uint ${x}_to = ${ptx.local_address("tile_" + x)} + (${x}_term * ${a_local_stride if x == "a" else b_local_stride} + ${x}_outer) * 4;
% endif
% if "walking" in arguments:
    int ${x}_inside = 0;
    __global const ${word} *${x}_from = 0;
% else:
    __global const ${word} *${x}_from = (__global const ${word} *)${x} + ${x}_base
        + (${first} + ${x}_outer) * ${outer_stride} + (first_term + ${x}_term) * ${term_stride};
% endif
</%def>

<%def name="enter_tile(x)">\
<%
    first, extent, tile = ("first_row", "m", tile_m) if x == "a" else ("first_col", "n", tile_n)
    outer_stride, term_stride = a_strides if x == "a" else b_strides
%>\
                ${x}_inside = ${first} + ${tile} <= ${extent};
                ${x}_from = (__global const ${"float" if compute.kind == "real" else "uint"} *)${x} + ${x}_base
                    + (${first} + ${x}_outer) * ${outer_stride} + ${x}_term * ${term_stride};
</%def>

<%def name="policies()">\
% if policy_of(arguments, kind):
    // what is read once makes room in the cache for what is not
    ulong policy;
    if (tiles_of_batch == 1${"".join(f" && {x}_batch_stride_{d}" for x in "ab" for d in range(kind.batch_rank))}) ${ptx.cache_policy("policy", True)}
    else ${ptx.cache_policy("policy", False)}
% endif
</%def>

<%!
def policy_of(arguments, kind):
    return "policy" if "walking" in arguments and kind.batch_rank else None
%>
<%def name="copy_whole(x, stage, guarded=False)">\
<%
    # One k tile of A or B into a stage. X_from is the work-item's first element of it. guarded: of
    # a tile that may lie over the matrix's border; what is not there is not read.
    steps, unit = (a_passes, a_unit) if x == "a" else (b_passes, b_unit)
    local_stride, stage_size = (a_local_stride, a_stage) if x == "a" else (b_local_stride, b_stage)
    lines = a_lines if x == "a" else b_lines
    outer_first, extent = ("first_row", "m") if x == "a" else ("first_col", "n")
    outer_stride, term_stride = a_strides if x == "a" else b_strides
    outer_step, term_step = steps[1] if len(steps) > 1 else (0, 0)

    def bytes_of(i):
        if not guarded:
            return None
        if unit == 1 or lines:
            return f"(left > {i * outer_step} ? {4 * unit} : 0)"
        return f"clamp((left - {i * outer_step}) * 4, 0, {4 * unit})"
%>\
        {
% if guarded:
            const int left = (int)min(${extent} - ${outer_first} - ${x}_outer, (index_t)${tile_m if x == "a" else tile_n});
% endif
            const uint to = ${x}_to + ${stage} * ${stage_size * 4};
            ulong source = (ulong)${x}_from, step;
            ${ptx.scale("step", outer_stride if outer_step else term_stride, 4 * (outer_step or term_step))}
% for i in range(len(steps)):
            ${ptx.copy_async(4 * unit, f"to + {i * (outer_step * local_stride + term_step if lines else term_step * local_stride + outer_step) * 4}", "source", bytes_of(i), policy_of(arguments, kind))}
% if i + 1 < len(steps):
            ${ptx.advance("source", "step")}
% endif
% endfor
            ${x}_from += (size_t)${term_stride} * ${tile_k};
        }
</%def>

<%def name="copy_border(x, stage, first, base=None)">\
<%
    steps, unit = (a_passes, a_unit) if x == "a" else (b_passes, b_unit)
    local_stride, stage_size = (a_local_stride, a_stage) if x == "a" else (b_local_stride, b_stage)
    lines = a_lines if x == "a" else b_lines
    outer_first, extent = ("first_row", "m") if x == "a" else ("first_col", "n")
    outer_stride, term_stride = a_strides if x == "a" else b_strides
    outer_step, term_step = steps[1] if len(steps) > 1 else (0, 0)
%>\
        {
            uint to = ${x}_to + ${stage} * ${stage_size * 4};
            index_t outer = ${outer_first} + ${x}_outer, term = ${first} + ${x}_term;
            #pragma unroll 1
            for (int i = 0; i < ${len(steps)}; i++) {
                const index_t left = outer < ${extent} ? ${extent} - outer : 0;
% if lines:
                const index_t terms = end_term - term;
                const int bytes = terms < ${unit} ? terms > 0 ? (int)terms * 4 : 0 : ${unit * 4};
% else:
                const int bytes = term < end_term ? ${"4" if unit == 1 else f"left < {unit} ? (int)left * 4 : {unit * 4}"} : 0;
% endif
                const index_t safe_outer = left ? outer : ${f"{extent} - 1" if unit == 1 or lines else "0"};
                const index_t safe_term = term < end_term ? term : first_term;
                const ulong source = (ulong)(${x} + ${base or x + "_base"} + safe_outer * ${outer_stride} + safe_term * ${term_stride});
                ${ptx.copy_async(4 * unit, "to", "source", "bytes", policy_of(arguments, kind))}
                to += ${(outer_step * local_stride + term_step if lines else term_step * local_stride + outer_step) * 4};
                outer += ${outer_step};
                term += ${term_step};
            }
            ${x}_from += (size_t)${term_stride} * ${tile_k};
        }
</%def>
