<%doc>
A consumer's 64 rows of sums on their way out of nv_wgmma, 64 columns at a time, through local memory
that each warp has for itself: so that whole lines are written, or so that an activation stands in
the text once and not for every sum. The sums of a lane are sums[4 j + 2 half] and the next: columns
8 j + 2 (lane % 4), of row lane / 4 + 8 half.
</%doc>
<%namespace name="index" file="parts/index.mako"/>
<%namespace name="store" file="parts/store.mako"/>
<%namespace name="activation" file="parts/nv_activation.mako"/>
<%namespace name="ptx" file="parts/ptx.mako"/>

<%def name="store_staged()">\
            // 64 columns at a time: pairs to local memory, then 16 bytes of a row at once
            const uint staging = tiles_at + ${staging_at} + (consumer * 4 + (warp & 3)) * ${16 * 144};
            const index_t chunk_row = warp_row + (lane >> 3);
% for block in range(tile_n // 64):
% for half in range(2):
            {
                const index_t row = warp_row + (lane >> 2) + ${8 * half};
% for j in range(8):
                {
                    const index_t col = lane_col + ${64 * block + 8 * j};
                    float low = 0, high = 0;
                    uint word;
% for name, at in (("low", 0), ("high", 1)):
                    if (row < m && col + ${at} < n) {
${store.value(f"sums[{4 * (8 * block + j) + 2 * half + at}]", "row", f"(col + {at})")}\
                        ${name} = ${store.real_part("value")};
                    }
% endfor
                    ${ptx.pack_pair(kind.out.dtype, "word", "low", "high")}
                    ${ptx.store_word(f"staging + ((lane >> 2) + {8 * half}) * 144 + (lane & 3) * 4 + {16 * j}", "word")}
                }
% endfor
            }
% endfor
            ${ptx.warp_barrier()}
% for r in range(4):
            {
                const index_t row = chunk_row + ${4 * r}, col = first_col + ${64 * block} + (lane & 7) * 8;
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
            ${ptx.warp_barrier()}
% endfor
</%def>

<%def name="store_waiting()">\
<%
    # a short activation stands there for each line of a whole tile too
    brief = pairs == "packed" and activation.attr.is_quick(kind) and kind.expression is None
%>\
            // 64 columns at a time: sums to local memory, chunk c of row r in place c ^ 2 (r % 8),
            // then four neighbours through the epilogue at once, in a loop
            const uint waiting = tiles_at + ${staging_at} + (consumer * 4 + (warp & 3)) * ${16 * 256};
            const uint swap = (lane >> 2) * 2, put = waiting + (lane >> 2) * 256 + (lane & 3) * 8;
% if brief:
            const uint get = waiting + (lane >> 4) * 256, chunk = (lane & 15) ^ (lane >> 4) * 2;
            const int whole = first_row + ${tile_m} <= m && first_col + ${tile_n} <= n${" && bias_row_stride == 0" if kind.bias else ""};
% endif
% for block in range(tile_n // 64):
% for half in range(2):
% for j in range(8):
            ${ptx.store_two(f"put + {half * 8 * 256} + (({2 * j} ^ swap) << 4)", f"sums[{4 * (8 * block + j) + 2 * half}]", f"sums[{4 * (8 * block + j) + 2 * half + 1}]")}
% endfor
% endfor
            ${ptx.warp_barrier()}
% if brief:
            if (whole) {
                const index_t col = first_col + ${64 * block} + (lane & 15) * 4;
                __global ushort *to = (__global ushort *)out + ${index.at("out", "(warp_row + (lane >> 4))", "col")};
% if kind.bias:
                const acc_t ${", ".join("bias_%d = load_bias(bias, %s)" % (q, capture(index.at, "bias", "0", f"(col + {q})")) for q in range(4))};
% endif
% for turn in range(8):
                {
                    const index_t row = warp_row + (lane >> 4) + ${2 * turn};
                    uint4 four;
                    ${ptx.load_four("four", f"get + {512 * turn} + ((chunk ^ {4 * turn & 15}) << 4)")}
${through_epilogue(True)}\
                    *(__global uint2 *)to = words;
                    to += 2 * out_row_stride;
                }
% endfor
            } else
% endif
            #pragma unroll 1
            for (int line = lane >> 4; line < 16; line += 2) {
                const index_t row = warp_row + line, col = first_col + ${64 * block} + (lane & 15) * 4;
                uint4 four;
                ${ptx.load_four("four", "waiting + line * 256 + (((lane & 15) ^ (line & 7) * 2) << 4)")}
                if (row < m && col + 3 < n) {
% if pairs:
${through_epilogue(False)}\
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

<%def name="through_epilogue(held_bias)">\
                    ${out.storage if pairs == "plain" else "float"} ${", ".join(f"done_{q}" for q in range(4))};
% for q in range(4):
                    {
${store.value(f"as_{compute.scalar}(four.{'xyzw'[q]})", "row", f"(col + {q})", {"bias": f"bias_{q}"} if held_bias and kind.bias else None)}\
                        done_${q} = ${store.real_part("value")};
                    }
% endfor
% if pairs == "packed":
                    uint2 words;
                    ${ptx.pack_pair(kind.out.dtype, "words.x", "done_0", "done_1")}
                    ${ptx.pack_pair(kind.out.dtype, "words.y", "done_2", "done_3")}
% endif
</%def>
