<%doc>
Where elements are. Every operand has a base (its offset plus what the batch index adds) and two
strides, counted in elements; a stride that the layout class fixes to 1 is not an argument.
</%doc>

<%def name="bases(batch)">
% if kind.batch_rank:
    // The batch index, taken apart into one index per batch dimension, innermost last.
% for d in range(kind.batch_rank - 1, 0, -1):
    const index_t batch_index_${d} = ${batch if d == kind.batch_rank - 1 else "batch_rest_%d" % (d + 1)} % batch_size_${d};
    const index_t batch_rest_${d} = ${batch if d == kind.batch_rank - 1 else "batch_rest_%d" % (d + 1)} / batch_size_${d};
% endfor
    const index_t batch_index_0 = ${batch if kind.batch_rank == 1 else "batch_rest_1"};
% endif
% for x in arrays:
    const index_t ${x.name}_base = ${x.name}_offset\
% for d in range(kind.batch_rank):
 + batch_index_${d} * ${x.name}_batch_stride_${d}\
% endfor
;
% endfor
</%def>

<%def name="at(name, row, col)"><%
    order = orders[name]
    row_term = f"({row})" if order == "column" else f"({row}) * {name}_row_stride"
    col_term = f"({col})" if order == "row" else f"({col}) * {name}_col_stride"
%>${name}_base + ${row_term} + ${col_term}</%def>
