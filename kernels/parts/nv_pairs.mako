<%doc>
Two neighbouring sums of a row, as tensor cores leave them with each lane, through the epilogue
and to the output: at once where the output is stored by rows, one after the other elsewhere.
`pairs` (derived) says how: "plain", two of the output's elements as they are; "packed", two
16-bit floats in one word; or "" for one by one.
</%doc>
<%namespace name="index" file="parts/index.mako"/>
<%namespace name="store" file="parts/store.mako"/>
<%namespace name="ptx" file="parts/ptx.mako"/>

<%def name="store_pair(first, second)">\
<% elements = [(first, "(row)", "(col)"), (second, "(row)", "(col + 1)")] %>\
% if pairs:
            if (row < m && col + 1 < n) {
                ${"float" if pairs == "packed" else out.storage} low, high;
% for name, element in zip(("low", "high"), elements):
                {
${store.value(*element)}\
                    ${name} = ${store.real_part("value")};
                }
% endfor
                __global ${out.storage if pairs == "plain" else "ushort"} *to = (__global ${out.storage if pairs == "plain" else "ushort"} *)out + ${index.at("out", "row", "col")};
% if pairs == "plain":
                *(__global ${out.storage}2 *)to = (${out.storage}2)(low, high);
% else:
                uint word;
                ${ptx.pack_pair(kind.out.dtype, "word", "low", "high")}
                *(__global uint *)to = word;
% endif
            } else if (row < m && col < n) {
${store.store(*elements[0])}\
            }
% else:
% for sum, at_row, at_col in elements:
            if (${at_row} < m && ${at_col} < n) {
${store.store(sum, at_row, at_col)}\
            }
% endfor
% endif
</%def>

<%doc>
The pairs of four blocks of 8 columns, of which the four lanes of a row hold two neighbours each:
packed to a word each, and exchanged, so that lane t of the four has block t's 8 columns, 16 bytes.
</%doc>
<%def name="store_line(pairs, inside=False)">\
            uint word_0, word_1, word_2, word_3;
% for q, pair in enumerate(pairs):
            {
                float low = 0, high = 0;
% for name, sum, at in zip(("low", "high"), pair, (8 * q, 8 * q + 1)):
                ${"" if inside else f"if (row < m && col + {at} < n) "}{
${store.value(sum, "row", f"(col + {at})")}\
                    ${name} = ${store.real_part("value")};
                }
% endfor
                ${ptx.pack_pair(kind.out.dtype, f"word_{q}", "low", "high")}
            }
% endfor
% for distance, swaps in ((1, ((0, 1), (2, 3))), (2, ((0, 2), (1, 3)))):
            {
                const int upper = lane & ${distance};
% for low, high in swaps:
                uint other_${low} = upper ? word_${low} : word_${high};
                ${ptx.swap_words(f"other_{low}", distance)}
                if (upper) word_${low} = other_${low};
                else word_${high} = other_${low};
% endfor
            }
% endfor
            {
                const index_t line_col = col + (lane & 3) * 6;
                __global ushort *to = (__global ushort *)out + ${index.at("out", "row", "line_col")};
                ${"" if inside else "if (row < m && line_col + 8 <= n) "}*(__global uint4 *)to = (uint4)(word_0, word_1, word_2, word_3);
% if not inside:
                else if (row < m) {
% for q in range(8):
                    if (line_col + ${q} < n) to[${q}] = word_${q // 2} >> ${16 * (q % 2)};
% endfor
                }
% endif
            }
</%def>
