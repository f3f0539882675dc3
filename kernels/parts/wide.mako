<%doc>
Reading and writing several neighbouring elements of user memory at once. `X_unit` (derived by
the variant, for a, b and out) says how many; 1 means one by one, through load.mako and
store.mako. A vector type is aligned to what the operand's alignment class promises, never to
what OpenCL would assume from its size. Complex numbers are pairs of reals here too.
</%doc>
<%namespace name="index" file="parts/index.mako"/>
<%namespace name="store" file="parts/store.mako"/>

<%def name="types()">
% for x in arrays:
<%
    unit = {"a": a_unit, "b": b_unit, "out": out_unit}.get(x.name, 1)
    reals = 2 * unit if x.kind == "complex" else unit
    place = {"a": a_unit_alignment, "b": b_unit_alignment, "out": out_unit_alignment}.get(x.name)
%>\
% if unit > 1:
typedef ${x.storage} ${x.name}_unit_t __attribute__((ext_vector_type(${reals}), aligned(${place})));
% endif
% endfor
</%def>

<%def name="load_unit(x, row, col, target, at)"><%
    # Elements (row, col) and the following ones along the operand's lines, into target[at…].
    unit = a_unit if x == "a" else b_unit
    array = next(y for y in arrays if y.name == x)
    scale = "2 * " if array.kind == "complex" else ""
%>\
% if unit == 1:
                ${target}[${at}] = load_${x}(${x}, ${index.at(x, row, col)});
% else:
                const ${x}_unit_t unit = *(__global const ${x}_unit_t *)(
                    ${x} + ${scale}(${index.at(x, row, col)}));
% for q in range(unit):
                ${target}[${at + q}] = ${element(array, q)};
% endfor
% endif
</%def>

<%def name="element(x, q)"><%
    # Element q of the vector `unit` as an accumulator, as load.mako does for one in memory.
    part = "unit.s%x"
    if x.kind == "complex":
        sign = "-" if x.conjugate else ""
        form = f"(acc_t)((scalar_t){part % (2 * q)}, {sign}(scalar_t){part % (2 * q + 1)})"
    else:
        form = {
            "bfloat": "(scalar_t)as_float((uint)%s << 16)",
            "bool": "(scalar_t)(%s != 0)",
        }.get(x.kind, "(scalar_t)%s") % (part % q)
        if compute.kind == "complex":
            form = f"(acc_t)({form}, {literal('0')})"
%>${form}</%def>

<%def name="store_unit(elements)">\
<%
    # Neighbouring elements (sum, row, col) of the output's lines, as many as out_unit.
    _, last_row, last_col = elements[-1]
%>\
    {
        acc_t done[${len(elements)}];
% for q, (sum, row, col) in enumerate(elements):
        if (${row} < m && ${col} < n) {
    ${store.value(sum, row, col)}\
            done[${q}] = value;
        }
% endfor
        if (${last_row} < m && ${last_col} < n) {
            out_unit_t unit;
% for q in range(len(elements)):
            unit.s${"%x" % q} = (${out.storage})${store.real_part(f"done[{q}]")};
% endfor
            *(__global out_unit_t *)(out + ${index.at("out", *elements[0][1:])}) = unit;
        } else {
% for q, (_sum, row, col) in enumerate(elements[:-1]):
            if (${row} < m && ${col} < n) write_out(out, ${index.at("out", row, col)}, done[${q}]);
% endfor
        }
    }
</%def>
