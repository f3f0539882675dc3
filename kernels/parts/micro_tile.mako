<%doc>
A work-item's micro-tile in registers: micro_m x micro_n sums, each a variable of its own (an
array of them ends up in memory with some compilers), and the fragments of one term that they are
made from: column_part (micro_m elements of A) and row_part (micro_n elements of B), each in
`prefetch + 1` sets.

A work-item's rows are not neighbours: they come in vectors of width_m, one such vector of every
work-item before the second of any, so that work-items side by side read local memory side by
side. Columns likewise.
</%doc>

<%def name="types()">
% for name, width in (("column_t", width_m), ("row_t", width_n)):
typedef ${"acc_t" if width == 1 else f"{compute.scalar}{width}"} ${name};
% endfor
</%def>

<%def name="clear()">\
% for i in range(micro_m):
    acc_t ${", ".join(f"sum_{i}_{j} = zero()" for j in range(micro_n))};
% endfor
</%def>

<%def name="declare()">\
    column_t column_part[${prefetch + 1}][${micro_m // width_m}];
    row_t row_part[${prefetch + 1}][${micro_n // width_n}];
% if prefetch:
% for i in range(micro_m // width_m):
    column_part[1][${i}] = zero();
% endfor
% for j in range(micro_n // width_n):
    row_part[1][${j}] = zero();
% endfor
% endif
</%def>

<%def name="read(set, buffer, term)">\
<% begin = "" if slices == 1 else f"slice * {terms} + " %>\
            {
                __local const acc_t *from_a = tile_a + ${buffer} * ${tile_k * a_local_stride}
                    + (${begin}${term}) * ${a_local_stride} + item_row * ${width_m};
                __local const acc_t *from_b = tile_b + ${buffer} * ${tile_k * b_local_stride}
                    + (${begin}${term}) * ${b_local_stride} + item_col * ${width_n};
% for i in range(micro_m // width_m):
                column_part[${set}][${i}] = *(__local const column_t *)(from_a + ${i * items_m * width_m});
% endfor
% for j in range(micro_n // width_n):
                row_part[${set}][${j}] = *(__local const row_t *)(from_b + ${j * items_n * width_n});
% endfor
            }
</%def>

<%def name="hand_on(to)">\
        __local acc_t *to = ${to} + place;
% for i in range(micro_m):
% for j in range(micro_n):
        to[${(i * micro_n + j) * slice_items}] = sum_${i}_${j};
% endfor
% endfor
</%def>

<%def name="take_over(from_)">\
        __local const acc_t *from = ${from_} + place;
% for i in range(micro_m):
% for j in range(micro_n):
        sum_${i}_${j} = add(sum_${i}_${j}, from[${(i * micro_n + j) * slice_items}]);
% endfor
% endfor
</%def>

<%def name="accumulate(set)">\
% for i in range(micro_m):
% for j in turning(range(micro_n), i):
            sum_${i}_${j} = multiply_add(${element("column_part", set, i, width_m)}, ${element("row_part", set, j, width_n)}, sum_${i}_${j});
% endfor
% endfor
</%def>

<%!
def element(part, set, i, width):
    return f"{part}[{set}][{i // width}]" + ("" if width == 1 else ".s%x" % (i % width))

def turning(columns, row):
    # Every other row from right to left: neighbours in the text share an element of row_part,
    # which register files with an operand cache reward.
    return columns if row % 2 == 0 else reversed(columns)
%>
