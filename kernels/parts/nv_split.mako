<%doc>
Where a work-group is, for variants whose sum over k may be cut into parts, and how the parts meet.
Each warp leaves its sums in `partial`, [batch, tile][warp][part][16 bytes of each lane …], and
counts itself; the one that comes last reads those of all parts and adds them up in their order, so
that the bits do not depend on who that is, and goes on to the epilogue. Nobody waits for anybody.
A counter is 0 again once all have come: so the next launch finds it.
</%doc>
<%namespace name="ptx" file="parts/ptx.mako"/>

<%def name="where_am_i(group='get_group_id(0)')">\
${which_terms(group)}\
${which_tile()}\
</%def>

<%def name="which_terms(group)">\
    const index_t group = ${group};
    const index_t tiles_of_batch = tiles_m * tiles_n;
% if "partial" in arguments:
    // The first `whole` tiles are a group's each, of the others every part is, from group
    // `parts_from` on.
    const index_t divided = tiles_of_batch * batch_count - whole, cut = divided * splits;
    const index_t later = group - parts_from, is_part = later >= 0 && later < cut;
    const index_t part = is_part ? later / divided : 0;
    const index_t whole_tile = later < 0 ? group : group - cut;
    const index_t group_of_part = is_part ? whole + later - part * divided : whole_tile;
    const index_t first_term = part * per_split;
    const index_t end_term = is_part && first_term + per_split < k ? first_term + per_split : k;
% else:
    const index_t group_of_part = group;
    const index_t first_term = 0, end_term = k;
% endif
</%def>

<%def name="which_tile()">\
    const index_t batch = group_of_part / tiles_of_batch;
    const index_t tile = group_of_part - batch * tiles_of_batch;
    const index_t above = tile / (group_rows * tiles_n) * group_rows;
    const index_t rows_here = tiles_m - above < group_rows ? tiles_m - above : group_rows;
    const index_t tile_here = tile - above * tiles_n;
    const index_t first_row = (above + tile_here % rows_here) * ${tile_m};
    const index_t first_col = (tile_here / rows_here) * ${tile_n};
</%def>

<%def name="exchange(sums, warps, warp, leave)">\
<%
    # The sums of a work-item; warps that have elements of a tile, and which this is; how to go on
    # to the next tile. Lanes of a warp lie side by side, 16 bytes each.
    width = 2 if compute.scalar == "double" else 4
    count = len(sums) // width
    vectors = [sums[width * i : width * i + width] for i in range(count)]
    # parts, and vectors of each, that are on their way at once
    together, chunks = max(min(16 // count, 8), 1), 16 if count <= 16 else 8
%>\
            if (is_part) {
                // a part's sums wait in `partial`, and whoever comes last adds up all, in their order
                const size_t warp_at = (size_t)(group_of_part - whole) * ${warps} + ${warp};
                __global acc_t *waiting = partial + warp_at * splits * ${count * 32 * width} + (get_local_id(0) & 31) * ${width};
                __global acc_t *own = waiting + (size_t)part * ${count * 32 * width};
% for i, vector in enumerate(vectors):
                ${ptx.leave_vector(f"own + {i * 32 * width}", vector)}
% endfor
                uint before;
                ${ptx.arrive_last("before", "counters + warp_at", "(uint)splits - 1")}
                if (before != (uint)splits - 1) ${leave};
% for sum in sums:
                ${sum} = zero();
% endfor
                for (index_t reading = 0; reading < splits; reading += ${together}) {
% for chunk in range(0, count, chunks):
                    {
% for p in range(together):
                    acc_t ${", ".join(f"left_{p}_{i}_{q}" for i in range(chunk, min(chunk + chunks, count)) for q in range(width))};
                    {
                        // of parts that are not there the last is read, and left out
                        __global const acc_t *from = waiting + (size_t)(reading + ${p} < splits ? reading + ${p} : splits - 1) * ${count * 32 * width};
% for i in range(chunk, min(chunk + chunks, count)):
                        ${ptx.read_vector([f"left_{p}_{i}_{q}" for q in range(width)], f"from + {i * 32 * width}")}
% endfor
                    }
% endfor
% for p in range(together):
                    if (reading + ${p} < splits) {
% for i in range(chunk, min(chunk + chunks, count)):
% for q in range(width):
                        ${vectors[i][q]} = add(${vectors[i][q]}, left_${p}_${i}_${q});
% endfor
% endfor
                    }
% endfor
                    }
% endfor
                }
            }
</%def>
