<%doc>
Reading one stored element as an accumulator. One function per array that takes part, because
each may be stored in another type. Complex numbers are read as two reals: user memory is aligned
to the real part only.
</%doc>

<%def name="functions()">
% for x in loaded:
static inline acc_t load_${x.name}(__global const ${x.storage} *p, index_t i) {
% if x.kind == "complex":
    return (acc_t)((scalar_t)p[2 * i], ${"-" if x.conjugate else ""}(scalar_t)p[2 * i + 1]);
% elif compute.kind == "complex":
    return (acc_t)(${real_part(x)}, ${literal("0")});
% else:
    return ${real_part(x)};
% endif
}
% endfor
</%def>

<%def name="real_part(x)"><%
    # An expression for element i of x, converted to scalar_t.
    forms = {
        "half": "(scalar_t)vload_half(i, p)",
        "bfloat": "(scalar_t)as_float((uint)p[i] << 16)",
        "bool": "(scalar_t)(p[i] != 0)",
    }
    form = forms.get(x.kind, "(scalar_t)p[i]")
%>${form}</%def>
