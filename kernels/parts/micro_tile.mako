<%doc>
A work-item's micro-tile in registers: micro_m x micro_n sums, held as row vectors of width_n
elements, and the fragments of one term that they are made from: column_part (micro_m elements of
A) and row_part (micro_n elements of B), each in `prefetch + 1` sets.

A work-item's rows are not neighbours: they come in vectors of width_m, one such vector of every
work-item before the second of any, so that work-items side by side read local memory side by
side. Columns likewise. Every index of a private array is a constant: that keeps it in registers.
</%doc>

<%def name="functions()">
% for name, width in (("column_t", width_m), ("row_t", width_n)):
typedef ${"acc_t" if width == 1 else f"{compute.scalar}{width}"} ${name};
% endfor

// sum + x*y for a row of sums
static inline row_t multiply_add_row(acc_t x, row_t y, row_t sum) {
% if width_n == 1:
    return multiply_add(x, y, sum);
% elif compute.kind == "bool":
    return sum | (x & y);
% else:
    return sum + x * y;
% endif
}
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
            {
                __local const acc_t *from_a = tile_a + ${buffer} * ${tile_k * a_local_stride}
                    + (${term}) * ${a_local_stride} + item_row * ${width_m};
                __local const acc_t *from_b = tile_b + ${buffer} * ${tile_k * b_local_stride}
                    + (${term}) * ${b_local_stride} + item_col * ${width_n};
% for i in range(micro_m // width_m):
                column_part[${set}][${i}] = *(__local const column_t *)(from_a + ${i * items_m * width_m});
% endfor
% for j in range(micro_n // width_n):
                row_part[${set}][${j}] = *(__local const row_t *)(from_b + ${j * items_n * width_n});
% endfor
            }
</%def>

<%def name="accumulate(set)">\
% for i in range(micro_m):
% for j in range(micro_n // width_n):
            sum[${i}][${j}] = multiply_add_row(column_part[${set}][${i // width_m}]${component(i, width_m)}, row_part[${set}][${j}], sum[${i}][${j}]);
% endfor
% endfor
</%def>

<%def name="component(i, width)">${"" if width == 1 else ".s%x" % (i % width)}</%def>
