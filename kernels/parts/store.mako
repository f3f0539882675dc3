<%doc>
The epilogue, and the one place that knows it:

    D = activation(row_scale * col_scale * (alpha * A @ B) + beta * C + bias) + residual

then one rounding to the output's type. With beta = 0, C is not an argument and cannot be read;
with alpha = 0 the sum is left out, so C (times beta) passes through with all its bits.
</%doc>
<%namespace name="index" file="parts/index.mako"/>

<%def name="functions()">
% if kind.activation != "none":
static inline scalar_t activation(scalar_t x) {
% if kind.activation == "relu":
    return x < ${literal("0")} ? ${literal("0")} : x;  // NaN stays NaN
% elif kind.activation == "sigmoid":
    return ${literal("1")} / (${literal("1")} + exp(-x));
% elif kind.activation == "tanh":
    return tanh(x);
% elif kind.activation == "silu":
    return isinf(x) && x < ${literal("0")} ? -${literal("0")} : x / (${literal("1")} + exp(-x));
% elif kind.activation == "gelu":
    return isinf(x) && x < ${literal("0")} ? -${literal("0")}
        : ${literal("0.5")} * x * erfc(-x * ${literal("0.70710678118654752440")});
% elif kind.activation == "gelu_tanh":
    // 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), which keeps its digits for negative x
    const scalar_t u = ${literal("0.79788456080286535588")} * (x + ${literal("0.044715")} * x * x * x);
    return isinf(x) && x < ${literal("0")} ? -${literal("0")}
        : x / (${literal("1")} + exp(-${literal("2")} * u));
% endif
}

% endif
static inline void write_out(__global ${out.storage} *p, index_t i, acc_t value) {
% if out.kind == "complex":
    p[2 * i] = (${out.storage})${real_part("value")};
    p[2 * i + 1] = (${out.storage})${"value.y" if compute.kind == "complex" else "0"};
% elif out.kind == "half":
    vstore_half_rte(${real_part("value")}, i, p);
% elif out.kind == "bfloat":
    // Round to nearest even on the upper 16 bits; a NaN keeps a bit of its payload set.
    const uint bits = as_uint((float)${real_part("value")});
    const uint rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    p[i] = (ushort)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
% else:
    p[i] = (${out.storage})${real_part("value")};
% endif
}
</%def>

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

<%def name="value(sum, row, col)">\
        acc_t value = ${stages(sum, row, col)};
% if kind.activation != "none":
        value = activation(value);
% endif
% if kind.residual:
        value = add(value, load_residual(residual, ${index.at("residual", row, col)}));
% endif
</%def>

<%def name="stages(sum, row, col)"><%
    # The terms before the activation, as one expression; terms that are not there leave no trace.
    def loaded_at(name):
        place = capture(index.at, name, row, col)
        return f"load_{name}({name}, {place})"
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
