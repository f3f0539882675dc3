<%doc>
What a work-item reads of tiles whose rows of A are kept as they lie in user memory: 4 terms at once,
of two rows of A while the two before them are multiplied, and of its columns of B.
</%doc>

<%def name="declare()">\
    // 4 terms of two pairs of rows of A, and of micro_n columns of B
    vec_t row_pair[2][2], columns[2][${micro_n}];
</%def>

<%def name="read_pair(set, buffer, pair, chunk)">\
% for i in range(2):
        row_pair[${set}][${i}] = *(__local const vec_t *)(tile_a + ${buffer} * ${a_stage} + item_row * ${a_local_stride} + ${(2 * pair + i) * items_m * a_local_stride + 4 * chunk});
% endfor
</%def>

<%def name="read_columns(set, buffer, chunk)">\
% for j in range(micro_n):
% if b_lines:
        columns[${set}][${j}] = *(__local const vec_t *)(tile_b + ${buffer} * ${b_stage} + item_col * ${b_local_stride} + ${j * items_n * b_local_stride + 4 * chunk});
% else:
        columns[${set}][${j}] = *(__local const vec_t *)(tile_b + ${buffer} * ${b_stage} + item_col * 4 + ${(4 * chunk + j // (micro_n // 4)) * b_local_stride + j % (micro_n // 4) * items_n * 4});
% endif
% endfor
</%def>

<%def name="read_first(buffer)">\
${read_columns(0, buffer, 0)}\
${read_pair(0, buffer, 0, 0)}\
</%def>
