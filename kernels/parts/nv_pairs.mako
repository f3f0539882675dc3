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
