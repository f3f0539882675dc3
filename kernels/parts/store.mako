<%doc>
The epilogue, and the one place that knows it:

    D = expression(activation(row_scale * col_scale * (alpha * A @ B) + beta * C + bias) + residual)

then one rounding to the output's type; `aux` gets what the activation is given. With beta = 0, C
is not an argument and cannot be read; with alpha = 0 the sum is left out, so C (times beta)
passes through with all its bits. `value` is for one element, `value_of_vector` for neighbours in
a row.
</%doc>
<%namespace name="index" file="parts/index.mako"/>
<%namespace name="activation" file="parts/activation.mako"/>

<%def name="functions(own_activation=False)">
<%doc>
own_activation: the kernel has an `activated` of its own.
</%doc>\
% if kind.activation != "none" and not own_activation:
${activation.function("activated", "scalar_t")}

% endif
% if kind.aux:
${writer("aux", aux)}
% endif
${writer("out", out)}
% if kind.reproducible and compute.kind in ("real", "complex"):

// Devices make different NaNs; the same bits everywhere means one of them.
static inline scalar_t canonical(scalar_t x) {
    return x == x ? x : ${quiet_nan("")};
}
% endif
</%def>

<%def name="writer(name, element)">\
static inline void write_${name}(__global ${element.storage} *p, index_t i, acc_t value) {
% if element.kind == "complex":
    p[2 * i] = (${element.storage})${real_part("value")};
    p[2 * i + 1] = (${element.storage})${"value.y" if compute.kind == "complex" else "0"};
% elif element.kind == "half" and compute.scalar == "float" and context.get("on_cpu", False):
    // Round to nearest even, by integers only: on CPUs vstore_half_rte is a function call.
    const uint bits = as_uint(${real_part("value")}), size = bits & 0x7fffffffu;
    const uint normal = (size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13;
    const uint small = as_uint(as_float(size) + 0.5f) - 0x3f000000u;  // 0.5: the unit is 2^-24
    const uint special = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const uint half_size = size >= 0x47800000u ? special : size < 0x38800000u ? small : normal;
    ((__global ushort *)p)[i] = (ushort)(half_size | (bits >> 16 & 0x8000u));
% elif element.kind == "half":
% if kind.reproducible and compute.kind == "real":
    if (value != value) {
        ((__global ushort *)p)[i] = 0x7e00;  // conversions make different NaNs too
        return;
    }
% endif
    vstore_half_rte(${real_part("value")}, i, p);
% elif element.kind == "bfloat":
    // Round to nearest even on the upper 16 bits; a NaN keeps a bit of its payload set.
    const uint bits = as_uint((float)${real_part("value")});
    const uint rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    p[i] = (ushort)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
% else:
    p[i] = (${element.storage})${real_part("value")};
% endif
}
</%def>

<%def name="quiet_nan(width)"><%
    forms = {"float": f"as_float{width}((int{width})(0x7fc00000))",
             "double": f"as_double{width}((long{width})(0x7ff8000000000000l))"}
%>${forms[compute.scalar]}</%def>

<%def name="real_part(value)"><%
    # The product as a number of its own type: integers wrap to it before any conversion.
    forms = {
        "bool": f"({value} != 0)",
        "integer": f"({result.storage}){value}",
        "complex": f"{value}.x",
    }
    form = forms.get(compute.kind, value)
%>${form}</%def>

<%def name="store(sum, row, col)">
    {
${value(sum, row, col)}\
        write_out(out, ${index.at("out", row, col)}, value);
    }
</%def>

<%def name="value(sum, row, col, held=None)">\
${before_activation(sum, row, col, held)}\
% if kind.activation != "none":
        value = activated(value${", clamp_low, clamp_high" if kind.activation == "clamp" else ""});
% endif
${after_activation(row, col)}\
</%def>

<%def name="before_activation(sum, row, col, held=None)">\
        acc_t value = ${stages(sum, row, col, held)};
% if kind.aux:
        write_aux(aux, ${index.at("aux", row, col)}, ${same_nan("value")});
% endif
</%def>

<%def name="after_activation(row, col)">\
% if kind.residual:
        value = add(value, load_residual(residual, ${index.at("residual", row, col)}));
% endif
% if kind.expression:
        {
            const scalar_t in_acc = value, in_row = (scalar_t)(${row}), in_col = (scalar_t)(${col});
% for name, _ in kind.extras:
            const scalar_t in_${name} = load_extra_${name}(extra_${name}, ${index.at("extra_" + name, row, col)});
% endfor
            value = ${expression};
        }
% endif
% if kind.reproducible:
        value = ${same_nan("value")};
% endif
</%def>

<%def name="same_nan(value)"><%
    text = value
    if kind.reproducible and compute.kind == "complex":
        text = f"(acc_t)(canonical({value}.x), canonical({value}.y))"
    elif kind.reproducible and compute.kind == "real":
        text = f"canonical({value})"
%>${text}</%def>

<%def name="stages(sum, row, col, held=None)"><%
    # The terms before the activation, as one expression; terms that are not there leave no trace.
    # held: name → text, of what was loaded before.
    def loaded_at(name):
        place = capture(index.at, name, row, col)
        return (held or {}).get(name) or f"load_{name}({name}, {place})"
    terms = []
    if kind.alpha != "zero":
        term = sum if kind.alpha == "one" else f"multiply(alpha, {sum})"
        for scale in ("row_scale", "col_scale"):
            if getattr(kind, scale):
                term = f"multiply({loaded_at(scale)}, {term})"
        terms.append(term)
    if kind.beta != "zero":
        term = loaded_at("c")
        terms.append(term if kind.beta == "one" else f"multiply(beta, {term})")
    if kind.bias:
        terms.append(loaded_at("bias"))
    value = terms[0] if terms else "zero()"
    for term in terms[1:]:
        value = f"add({value}, {term})"
%>${value}</%def>

<%def name="vector_functions(width)">
// The same for vec_t: neighbours in a row of the output.
% if kind.activation != "none":
${activation.function("activated_each", "vec_t", str(width), True)}

% endif
% for x in arrays:
% if x.name in FUSED:
static inline vec_t load_${x.name}_each(__global const ${x.storage} *p, index_t i, index_t step) {
    if (step == 0) return (vec_t)(load_${x.name}(p, i));
% if x.storage == compute.scalar:
    if (step == 1) return *(__global const vec_u *)(p + i);
% endif
    return (vec_t)(${", ".join("load_%s(p, i + %d * step)" % (x.name, q) for q in range(width))});
}
% endif
% endfor
</%def>

<%def name="value_of_vector(sum, row, col, width)">\
<%
    def loaded_at(name):
        place = capture(index.at, name, row, col)
        return f"load_{name}_each({name}, {place}, {name}_col_stride)"
    term = sum if kind.alpha == "one" else f"alpha * {sum}"
    for scale in ("row_scale", "col_scale"):
        if getattr(kind, scale):
            term = f"{loaded_at(scale)} * ({term})"
    for name in ("c", "bias"):
        if getattr(kind, name):
            other = loaded_at(name)
            if name == "c" and kind.beta == "general":
                other = f"beta * {other}"
            term = f"{term} + {other}"
%>\
                vec_t value = ${term};
% if kind.aux:
                {
                    const vec_t before = ${same_nan_each("value", width)};
                    const scalar_t *cells = (const scalar_t *)&before;
                    for (int q = 0; q < ${width}; q++) write_aux(aux, ${index.at("aux", row, col + " + q")}, cells[q]);
                }
% endif
% if kind.activation != "none":
                value = activated_each(value${", clamp_low, clamp_high" if kind.activation == "clamp" else ""});
% endif
% if kind.residual:
                value += ${loaded_at("residual")};
% endif
% if kind.reproducible:
                value = ${same_nan_each("value", width)};
% endif
</%def>

<%def name="same_nan_each(value, width)"><%
    text = value
    if kind.reproducible:
        text = f"{value} == {value} ? {value} : {capture(quiet_nan, width)}"
%>${text}</%def>

<%!
FUSED = ("c", "bias", "residual", "row_scale", "col_scale")
%>
