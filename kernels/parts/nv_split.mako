<%doc>
Where a work-group is, for variants whose sum over k may be cut into parts, and how the parts meet.
Each warp leaves its sums in `partial`, [batch, tile][warp][part][16 bytes of each lane …], and
counts itself; the one that comes last reads those of all parts and adds them up in their order, so
that the bits do not depend on who that is, and goes on to the epilogue. Nobody waits for anybody.
A counter is 0 again once all have come: so the next launch finds it.
</%doc>
<%namespace name="ptx" file="parts/ptx.mako"/>
<%!
# how often a part looks whether all are there, some 0.7 microseconds each, before it gives up
PATIENCE = 40
%>

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

<%def name="share(sums, warps, where, store)">\
<%
    # A tile's sums are blocks of 128, [warp][4 of each lane]: of the parts of k, number p adds up
    # blocks p, p + splits, … of all parts. `where` tells the row and column of a lane's sums of
    # block `number` of warp `of_warp`, `store` takes two neighbours and the rows between them.
    each = len(sums) // 4
    blocks = each * warps
    together = 8
%>\
    // A part's sums wait in `partial`. Once all parts of the tile are there, each adds up a slice of
    // it. Who has waited for long gives up, and the last to come does that slice too: so nothing
    // hangs where groups are not all there at once. Counts so far, and given up in the upper half:
    {
        __global acc_t *waiting = partial + (size_t)group_of_part * splits * ${blocks * 128};
        {
            __global acc_t *own = waiting + (size_t)part * ${blocks * 128} + warp * ${each * 128} + lane * 4;
% for i in range(each):
            ${ptx.leave_vector(f"own + {i * 128}", sums[4 * i : 4 * i + 4])}
% endfor
        }
        __global uint *counter = counters + (size_t)group_of_part * (splits + 1), *given_up = counter + 1;
        __local uint *told = (__local uint *)tiles;
        const uint all = (uint)splits;
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        if (item == 0) {
            ${ptx.fence()}
            uint seen = atomic_add(counter, 1u) + 1u;
            uint mine = part < ${blocks}, others = 0;
            if ((seen & 0xffffu) == all) {
                // nobody can give up any more; 0 tells those who wait, and the next launch
                others = seen >> 16;
                atomic_xchg(counter, 0u);
            } else if (mine) {
                int patience = ${PATIENCE};
                while (seen != 0 && (seen & 0xffffu) != all) {
                    if (patience-- > 0) {
                        ${ptx.read_word("seen", "counter")}
                        continue;
                    }
                    if (patience == -1) {
                        atomic_xchg(given_up + part, 1u);
                        ${ptx.fence()}
                    }
                    const uint found = atomic_cmpxchg(counter, seen, seen + 0x10000u);
                    if (found == seen) {
                        mine = 0;
                        break;
                    }
                    seen = found;
                }
                // all came after all: whoever takes the mark away does it
                if (mine && patience < 0) mine = atomic_xchg(given_up + part, 0u);
            }
            ${ptx.fence()}
            told[0] = mine;
            told[1] = others;
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        int slice = told[0] ? part : -1;
        const int slices = told[1] ? min((int)splits, ${blocks}) : 0;
        for (int other = 0; ; other++) {
            if (slice >= 0) {
                // more warps than blocks: teams of them share the parts
                const int count = (${blocks} - slice + (int)splits - 1) / (int)splits;
                const int teams = count < ${warps} ? ${warps} / count : 1, team = warp / count;
                for (int turn = 0; turn < (teams > 1 ? 1 : count); turn += ${warps}) {
                    const int which = teams > 1 ? warp - team * count : turn + warp;
                    const int from = teams > 1 ? team * (int)splits / teams : 0;
                    const int end = teams > 1 ? (team + 1) * (int)splits / teams : (int)splits;
                    const int working = teams > 1 ? team < teams : which < count;
                    const int block = slice + which * (int)splits;
                    acc_t sum_0 = zero(), sum_1 = zero(), sum_2 = zero(), sum_3 = zero();
                    if (working) {
                        __global const acc_t *reading = waiting + block * 128 + lane * 4;
                        for (int first = from; first < end; first += ${together}) {
                            acc_t ${", ".join(f"left_{p}_{q}" for p in range(together) for q in range(4))};
% for p in range(together):
                            // of parts that are not there the last is read, and left out
                            ${ptx.read_vector([f"left_{p}_{q}" for q in range(4)], f"reading + (size_t)min(first + {p}, end - 1) * {blocks * 128}")}
% endfor
% for p in range(together):
                            if (first + ${p} < end) {
% for q in range(4):
                                sum_${q} = add(sum_${q}, left_${p}_${q});
% endfor
                            }
% endfor
                        }
                    }
                    if (teams > 1) {
                        __local acc_t *gathered = (__local acc_t *)(tiles + 16) + (which * 32 + lane) * 4;
                        if (working) {
                            __local acc_t *to = gathered + team * count * 128;
% for q in range(4):
                            to[${q}] = sum_${q};
% endfor
                        }
                        barrier(CLK_LOCAL_MEM_FENCE);
                        if (team == 0) {
                            for (int i = 1; i < teams; i++) {
% for q in range(4):
                                sum_${q} = add(sum_${q}, gathered[i * count * 128 + ${q}]);
% endfor
                            }
                        }
                    }
                    if (working && (teams == 1 || team == 0)) {
                        const int of_warp = block / ${each}, number = block % ${each};
${where()}\
${store()}\
                    }
                }
            }
            // those that others have given up
            if (other >= slices) break;
            barrier(CLK_LOCAL_MEM_FENCE);
            if (item == 0) told[0] = other != part && atomic_xchg(given_up + other, 0u);
            barrier(CLK_LOCAL_MEM_FENCE);
            slice = told[0] ? other : -1;
        }
    }
</%def>
