<%doc>
Where k is split between work-groups: each part leaves its sums in `partial`, and a second launch,
`reduce`, adds them in the order of the parts, so that the bits are the same every time. `partial`
holds partial_rows x partial_cols sums of each matrix and part, in lines as the output's.
</%doc>
<%namespace name="index" file="parts/index.mako"/>
<%namespace name="store" file="parts/store.mako"/>

<%def name="at(part, row, col)"><%
    line, width, position = (col, "partial_rows", row) if kind.out.order == "column" else (row, "partial_cols", col)
    lines = "partial_cols" if kind.out.order == "column" else "partial_rows"
%>(((size_t)(${part}) * batch_count + batch) * ${lines} + (${line})) * ${width} + (${position})</%def>

<%def name="reduce()">\
    // where am I: elements of all matrices of the batch, counted along the output's lines
    const index_t item = get_global_id(0);
    const index_t elements = m * n;
    const index_t batch = item / elements;
    const index_t element = item - batch * elements;
    if (batch >= batch_count) return;
% if kind.out.order == "column":
    const index_t row = element % m, col = element / m;
% else:
    const index_t row = element / n, col = element % n;
% endif
${index.bases("batch")}
    // for each part of k, in order: load, add
    acc_t sum = zero();
    for (index_t part = 0; part < splits; part++) sum = add(sum, partial[${at("part", "row", "col")}]);

    // epilogue and store
${store.store("sum", "row", "col")}
</%def>
