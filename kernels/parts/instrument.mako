<%doc>
Counting and tracing builds of the same text, for the walkthrough. In an ordinary build each def
leaves nothing behind. Counters are per element of A and B; loads that a guard turned into zeros
(the element is outside the matrix) are counted apart.
</%doc>

<%def name="count_load(name, inside, row, col, row_length)">\
% if instrument == "count":
            if (${inside}) atomic_inc(&${name}_loads[(${row}) * ${row_length} + (${col})]);
            else atomic_inc(&padded_loads[${0 if name == "a" else 1}]);
% endif
</%def>
