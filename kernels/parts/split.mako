<%doc>
Where k is split between work-groups: each part leaves its sums in `partial`, and a second launch,
`reduce`, adds them in a fixed order, so that the bits are the same every time. `partial`
holds partial_rows x partial_cols sums of each matrix and part, in lines as the output's.
</%doc>
<%namespace name="index" file="parts/index.mako"/>
<%namespace name="store" file="parts/store.mako"/>

<%def name="at(part, row, col)"><%
    line, width, position = (col, "partial_rows", row) if kind.out.order == "column" else (row, "partial_cols", col)
    lines = "partial_cols" if kind.out.order == "column" else "partial_rows"
%>(((size_t)(${part}) * batch_count + batch) * ${lines} + (${line})) * ${width} + (${position})</%def>

<%def name="reduce()">\
    // where am I: elements of all matrices of the batch, counted along the output's lines, and
    // one of the teams that share out the parts
    const index_t group = get_group_id(0);
    const int item = get_local_id(0), lane = item % ${reduce_items}, team = item / ${reduce_items};
    const index_t elements = m * n;
    const index_t at = group * ${reduce_items} + lane;
    const index_t batch = at / elements < batch_count ? at / elements : batch_count - 1;
    const index_t element = at - batch * elements < elements ? at - batch * elements : elements - 1;
% if kind.out.order == "column":
    const index_t row = element % m, col = element / m;
% else:
    const index_t row = element / n, col = element % n;
% endif
${index.bases("batch")}
    // for each of the team's parts, in order: load, add
    const index_t each = (splits + ${reduce_teams - 1}) / ${reduce_teams};
    const index_t end = (team + 1) * each < splits ? (team + 1) * each : splits;
    index_t part = team * each;
    acc_t sum = zero();
    for (; part + 8 <= end; part += 8) {
% for u in range(8):
        const acc_t sum_${u} = partial[${at(f"part + {u}", "row", "col")}];
% endfor
% for u in range(8):
        sum = add(sum, sum_${u});
% endfor
    }
    for (; part < end; part++) sum = add(sum, partial[${at("part", "row", "col")}]);

    // add the teams' sums, in order
    __local acc_t sums[${reduce_items * reduce_teams}];
    sums[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
% for team in range(1, reduce_teams):
    sum = add(sum, sums[${team * reduce_items} + lane]);
% endfor

    // epilogue and store
    if (team == 0 && at < batch_count * elements) {
${store.store("sum", "row", "col")}
    }
</%def>
