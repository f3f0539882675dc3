<%doc>
Counting and tracing builds of the same text, for the walkthrough. In an ordinary build each def
leaves nothing behind. Counters are per element of A and B and per kind of memory; reads where
the matrix has no element (the address is clamped, or a padded zero is read) are counted apart.
</%doc>

<%def name="count_load(name, inside, row, col, row_length, memory='')">\
% if instrument == "count":
            if (${inside}) atomic_inc(&${name}_${memory}loads[(${row}) * ${row_length} + (${col})]);
            else atomic_inc(&padded_${memory}loads[${0 if name == "a" else 1}]);
% endif
</%def>
