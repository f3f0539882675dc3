<%doc>
Where a work-group is, for variants whose sum over k may be cut into parts; where the sums of the
parts wait, and the kernel that adds them up. The layout of `partial` is [part][batch][row][col].
</%doc>
<%namespace name="index" file="parts/index.mako"/>
<%namespace name="store" file="parts/store.mako"/>

<%def name="where_am_i(group='get_group_id(0)')">\
    const index_t group = ${group};
    const index_t tiles_of_batch = tiles_m * tiles_n;
% if "partial" in arguments:
    const index_t part = group / (tiles_of_batch * batch_count);
    const index_t group_of_part = group - part * tiles_of_batch * batch_count;
    const index_t first_term = part * per_split;
    const index_t end_term = first_term + per_split < k ? first_term + per_split : k;
% else:
    const index_t group_of_part = group;
    const index_t first_term = 0, end_term = k;
% endif
    const index_t batch = group_of_part / tiles_of_batch;
    const index_t tile = group_of_part - batch * tiles_of_batch;
    const index_t above = tile / (group_rows * tiles_n) * group_rows;
    const index_t rows_here = tiles_m - above < group_rows ? tiles_m - above : group_rows;
    const index_t tile_here = tile - above * tiles_n;
    const index_t first_row = (above + tile_here % rows_here) * ${tile_m};
    const index_t first_col = (tile_here / rows_here) * ${tile_n};
</%def>

<%def name="store_partial(elements)">\
% for sum, row, col in elements:
    if (${row} < m && ${col} < n)
        partial[((size_t)(part * batch_count + batch) * m + ${row}) * n + ${col}] = ${sum};
% endfor
</%def>

<%def name="reduce()">\
// One work-item adds the parts of one element, in their order.
__kernel __attribute__((reqd_work_group_size(128, 1, 1)))
void ${entry}(${parameters}) {
    const size_t elements = (size_t)batch_count * m * n;
    const size_t element = get_global_id(0);
    if (element >= elements) return;
    const index_t batch = element / ((size_t)m * n);
    const size_t place = element - (size_t)batch * m * n;
    const index_t row = place / n, col = place - (size_t)row * n;
${index.bases("batch")}
    acc_t sum = zero();
    for (index_t part = 0; part < splits; part++) sum = add(sum, partial[part * elements + element]);
${store.store("sum", "row", "col")}\
}
</%def>
