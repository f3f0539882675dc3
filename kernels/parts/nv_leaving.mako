<%doc>
A consumer's 64 rows of sums on their way out of nv_wgmma, 64 columns at a time, through local memory
that each warp has for itself: so that whole lines are written (store_inside, and store_staged where
the result ends or has odd lines), or so that a long activation stands in the text once and not for
every sum (store_waiting). The sums of a lane are sums[4 j + 2 half] and the next: columns
8 j + 2 (lane % 4), of row lane / 4 + 8 half.
</%doc>
<%namespace name="index" file="parts/index.mako"/>
<%namespace name="store" file="parts/store.mako"/>
<%namespace name="activation" file="parts/nv_activation.mako"/>
<%namespace name="ptx" file="parts/ptx.mako"/>

<%!
# bytes of a warp's place that 16 rows of 64 columns take; a tile's bias may lie behind them
BIAS_BEHIND = 16 * 128
%>
<%def name="place_of_warp()">tiles_at + ${staging_at} + (consumer * 4 + (warp & 3)) * ${16 * (256 if lengthy else 144)}</%def>

<%def name="store_staged()">\
<%
    # nothing is read or written at an element's own place before it is stored
    alone = kind.beta == "zero" and not (kind.bias or kind.residual or kind.row_scale or kind.col_scale or kind.aux)
%>\
            // 64 columns at a time: blocks of 8 x 8 to local memory, then lines of a row at once
            const uint staging = ${place_of_warp()};
            const uint put = staging + (lane & 15) * 144 + (lane >> 4) * 16;
% for block in range(tile_n // 64):
% for j in range(0, 8, 2):
            {
                uint ${", ".join(f"word_{q}" for q in range(4))};
% for q in range(4):
                {
                    const index_t row = warp_row + (lane >> 2) + ${q % 2 * 8}, col = lane_col + ${64 * block + 8 * (j + q // 2)};
                    float low = 0, high = 0;
% for name, at in (("low", 0), ("high", 1)):
                    ${"" if alone else f"if (row < m && col + {at} < n) "}{
${store.value(f"sums[{4 * (8 * block + j + q // 2) + 2 * (q % 2) + at}]", "row", f"(col + {at})")}\
                        ${name} = ${store.real_part("value")};
                    }
% endfor
                    ${ptx.pack_pair(kind.out.dtype, f"word_{q}", "low", "high")}
                }
% endfor
                ${ptx.store_matrices(f"put + {16 * j}", [f"word_{q}" for q in range(4)])}
            }
% endfor
            ${ptx.warp_barrier()}
% if pairs == "packed":
% for r in range(4):
            {
                const index_t row = warp_row + (lane >> 3) + ${4 * r}, col = first_col + ${64 * block} + (lane & 7) * 8;
                uint4 chunk;
                ${ptx.load_four("chunk", f"staging + ((lane >> 3) + {4 * r}) * 144 + (lane & 7) * 16")}
                __global ushort *to = (__global ushort *)out + ${index.at("out", "row", "col")};
                if (row < m && col + 8 <= n) {
                    *(__global uint4 *)to = chunk;
                } else if (row < m) {
% for q in range(8):
                    if (col + ${q} < n) to[${q}] = chunk.${"xyzw"[q // 2]} >> ${16 * (q % 2)};
% endfor
                }
            }
% endfor
% else:
            // lines of any alignment: a lane has two neighbours that lie in one word of memory
            #pragma unroll 4
            for (int line = 0; line < 16 && warp_row + line < m; line++) {
                __global ushort *to = (__global ushort *)out + ${index.at("out", "(warp_row + line)", f"(first_col + {64 * block})")};
                const index_t left = n - first_col - ${64 * block};
                const int odd = (int)((ulong)to >> 1) & 1, at = 2 * lane + odd;
                ushort low, high, first;
                ${ptx.load_half("low", "staging + line * 144 + 2 * at")}
                ${ptx.load_half("high", "staging + line * 144 + 2 * at + 2")}
                ${ptx.load_half("first", "staging + line * 144")}
                if (at + 1 < 64 && at + 1 < left) *(__global uint *)(to + at) = low | (uint)high << 16;
                else if (at < left) to[at] = low;
                if (lane == 31 && odd && left > 0) to[0] = first;
            }
% endif
            ${ptx.warp_barrier()}
% endfor
</%def>

<%def name="load_bias()">\
            // four neighbours of a column's sums ask for it: a warp keeps a copy behind its lines
            if (inside && bias_row_stride == 0) {
                const uint bias_to = ${place_of_warp()} + lane * 4;
                acc_t ${", ".join(f"bias_{i}" for i in range(tile_n // 32))};
% for i in range(tile_n // 32):
                bias_${i} = load_bias(bias, ${index.at("bias", "0", f"(first_col + lane + {32 * i})")});
% endfor
% for i in range(tile_n // 32):
                ${ptx.store_words("bias_to", [f"bias_{i}"], BIAS_BEHIND + 128 * i)}
% endfor
            }
</%def>

<%def name="store_inside(held)">\
<%doc>
held: load_bias has brought the bias.
</%doc>\
<%
    quick = activation.attr.is_quick(kind)
    # of 32 columns
    elements = [(j, half, at) for j in range(4) for half in range(2) for at in range(2)]
    parts = range(tile_n // 32)
    def done(part, j, half, at):
        return f"done_{part}_{j}_{half}_{at}"
%>\
                // 64 columns at a time: blocks of 8 x 8 to local memory, chunk c of row r in place
                // c ^ r % 8, and whole lines of 4 rows from there to the result, which are under
                // way while the next 64 are computed
                const uint lines = ${place_of_warp()}, swap = (lane >> 4) ^ (lane & 7);
                const uint put = lines + (lane & 15) * 128, get = lines + (lane >> 3) * 128;
% for i in range(0, 8, 2):
                const uint put_${i} = put + ((swap ^ ${i}) << 4);
% endfor
% for r in range(2):
                const uint get_${r} = get + (((lane & 7) ^ (lane >> 3) ^ ${4 * r}) << 4);
% endfor
                __global ushort *to = (__global ushort *)out + ${index.at("out", "(warp_row + (lane >> 3))", "(first_col + (lane & 7) * 8)")};
                const index_t four_rows = 4 * out_row_stride;
                uint4 ${", ".join(f"chunk_{r}" for r in range(4))};
% if held:
                const uint bias_at = lines + (lane & 3) * 8;
                ${ptx.warp_barrier()}
% endif
% for part in parts:
% if held:
% for j in range(4):
                    acc_t bias_${part}_${j}_0, bias_${part}_${j}_1;
                    ${ptx.load_pair(f"bias_{part}_{j}_0", f"bias_{part}_{j}_1", "bias_at", BIAS_BEHIND + 4 * (32 * part + 8 * j))}
% endfor
% endif
% for j, half, at in elements:
                    float ${done(part, j, half, at)};
                    {
                        const index_t row = warp_row + (lane >> 2) + ${8 * half}, col = lane_col + ${32 * part + 8 * j + at};
${(store.before_activation if quick else store.value)(f"sums[{16 * part + 4 * j + 2 * half + at}]", "row", "col", {"bias": f"bias_{part}_{j}_{at}"} if held else None)}\
                        ${done(part, j, half, at)} = ${"value" if quick else capture(store.real_part, "value")};
                    }
% endfor
% if quick:
${activation.activate_each([done(part, *x) for x in elements])}\
% if kind.residual:
% for j, half, at in elements:
                    {
                        const index_t row = warp_row + (lane >> 2) + ${8 * half}, col = lane_col + ${32 * part + 8 * j + at};
                        acc_t value = ${done(part, j, half, at)};
${store.after_activation("row", "col")}\
                        ${done(part, j, half, at)} = value;
                    }
% endfor
% endif
% endif
                    uint ${", ".join(f"word_{part}_{q}" for q in range(8))};
% for q in range(8):
                    ${ptx.pack_pair(kind.out.dtype, f"word_{part}_{q}", done(part, q // 2, q % 2, 0), done(part, q // 2, q % 2, 1))}
% endfor
% if part % 2:
% if part > 1:
${lines_out(part // 2 - 1)}\
                    ${ptx.warp_barrier()}
% endif
% for i in range(4):
                    ${ptx.store_matrices(f"put_{2 * i}", [f"word_{part - 1 + i // 2}_{i % 2 * 4 + q}" for q in range(4)])}
% endfor
                    ${ptx.warp_barrier()}
% for r in range(4):
                    ${ptx.load_four(f"chunk_{r}", f"get_{r % 2}", 512 * r)}
% endfor
% endif
% endfor
${lines_out(tile_n // 64 - 1)}\
                ${ptx.warp_barrier()}
</%def>

<%def name="lines_out(block)">\
% for r in range(4):
                    *(__global uint4 *)(to + ${r} * four_rows + ${64 * block}) = chunk_${r};
% endfor
</%def>

<%def name="store_waiting()">\
            // 64 columns at a time: sums to local memory, chunk c of row r in place c ^ 2 (r % 8),
            // then four neighbours through the epilogue at once, in a loop
            const uint waiting = ${place_of_warp()};
            const uint swap = (lane >> 2) * 2, put = waiting + (lane >> 2) * 256 + (lane & 3) * 8;
% for block in range(tile_n // 64):
% for half in range(2):
% for j in range(8):
            ${ptx.store_words(f"put + {half * 8 * 256} + (({2 * j} ^ swap) << 4)", [f"sums[{4 * (8 * block + j) + 2 * half + at}]" for at in range(2)])}
% endfor
% endfor
            ${ptx.warp_barrier()}
            #pragma unroll 1
            for (int line = lane >> 4; line < 16; line += 2) {
                const index_t row = warp_row + line, col = first_col + ${64 * block} + (lane & 15) * 4;
                uint4 four;
                ${ptx.load_four("four", "waiting + line * 256 + (((lane & 15) ^ (line & 7) * 2) << 4)")}
                if (row < m && col + 3 < n) {
% if pairs:
${through_epilogue()}\
% else:
% for q in range(4):
                    {
${store.value(f"as_{compute.scalar}(four.{'xyzw'[q]})", "row", f"(col + {q})")}\
                        write_out(out, ${index.at("out", "row", f"(col + {q})")}, value);
                    }
% endfor
% endif
% if pairs == "packed":
                    *(__global uint2 *)((__global ushort *)out + ${index.at("out", "row", "col")}) = words;
% elif pairs == "plain":
                    *(__global out_unit_t *)(out + ${index.at("out", "row", "col")}) = (out_unit_t)(done_0, done_1, done_2, done_3);
% endif
                } else if (row < m) {
% for q in range(3):
                    if (col + ${q} < n) {
${store.store(f"as_{compute.scalar}(four.{'xyzw'[q]})", "row", f"(col + {q})")}\
                    }
% endfor
                }
            }
            ${ptx.warp_barrier()}
% endfor
</%def>

<%def name="through_epilogue()">\
                    ${out.storage if pairs == "plain" else "float"} ${", ".join(f"done_{q}" for q in range(4))};
% for q in range(4):
                    {
${store.value(f"as_{compute.scalar}(four.{'xyzw'[q]})", "row", f"(col + {q})")}\
                        done_${q} = ${store.real_part("value")};
                    }
% endfor
% if pairs == "packed":
                    uint2 words;
                    ${ptx.pack_pair(kind.out.dtype, "words.x", "done_0", "done_1")}
                    ${ptx.pack_pair(kind.out.dtype, "words.y", "done_2", "done_3")}
% endif
</%def>
