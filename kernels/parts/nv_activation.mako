<%doc>
Activations for results that are rounded to 16 bits, of which 8 (bfloat16) or 11 are significant:
from the device's own powers of 2 and reciprocals, and polynomials that are off by half a unit of
the last place at most. A tenth of the work of parts/activation.mako, which is exact to the last
place or two. NaN stays NaN, and what is too small for float32 becomes 0.

    gelu      x Q(-x) = max(x, 0) - |x| Q(|x|),  Q(y) = erfc(y / sqrt(2)) / 2 = 2^-M(y)
    others    x / (1 + 2^-w) with w = x log2(e), or (a x^2 + b) x for gelu_tanh
</%doc>
<%namespace name="ptx" file="parts/ptx.mako"/>
<%!
QUICK = ("gelu", "gelu_tanh", "silu", "sigmoid", "tanh")


def is_quick(kind):
    narrow = kind.out.dtype in ("float16", "bfloat16") and kind.compute == "float32"
    return kind.activation in QUICK and narrow


def is_brief(kind, pairs):
    """So short that it may stand in the text for each line of a tile."""
    return pairs == "packed" and is_quick(kind) and kind.expression is None


# -M(y), from the highest power of y on, as far as results are not 0, with relative errors of 2^-M
# of 0.0018 and of 0.00007, or 0.15 of half a unit where float16 has fewer digits
GELU = {
    "bfloat16": (
        "3.53243288e-06f", "-0.000168592536f", "0.00330060723f", "-0.0349357925f",
        "-0.492554905f", "-1.12793656f", "-1.00261788f",
    ),
    "float16": (
        "-0.000333258522f", "0.00595090761f", "-0.0486512176f", "-0.463564618f", "-1.14943184f",
        "-1.00010253f",
    ),
}
GELU_END = {"bfloat16": "13.0f", "float16": "5.8f"}


def steps_of(kind):
    """How many steps `step` has before the result."""
    return len(GELU[kind.out.dtype]) + 3 if kind.activation == "gelu" else 5
%>

<%def name="functions()">\
% if is_quick(kind):

static inline float activated(float x) {
% for number in range(steps_of(kind)):
${step(number, "x")}\
% endfor
    return ${result("x")};
}
% endif
</%def>

<%def name="activate_each(names)">\
<%doc>
The same of several numbers in place, a step of each after another: a warp that is alone with its
scheduler has something to do while a step's result is on its way.
</%doc>\
% for number in range(steps_of(kind)):
% for x in names:
${step(number, x, x + "_")}\
% endfor
% endfor
% for x in names:
    ${x} = ${result(x, x + "_")};
% endfor
</%def>

<%def name="step(number, x, p='')">\
<%doc>
p: what the names of what is in between begin with.
</%doc>\
% if kind.activation == "gelu":
<% terms = GELU[kind.out.dtype] %>\
% if number == 0:
    float ${p}y, ${p}power;
% elif number == 1:
    ${ptx.least(p + "y", f"fabs({x})", GELU_END[kind.out.dtype])}
% elif number == 2:
    float ${p}f = ${terms[0]};
% elif number < len(terms) + 2:
    ${p}f = ${p}f * ${p}y + ${terms[number - 2]};
% else:
    ${ptx.power_of_2(p + "power", p + "f")}
% endif
% elif kind.activation == "tanh":
% if number == 0:
    const float ${p}s = ${x} * ${x};
% elif number == 1:
    float ${p}e, ${p}q;
% elif number == 2:
    ${ptx.power_of_2(p + "e", f"fabs({x}) * -2.8853900818f")}
% elif number == 3:
    ${ptx.one_by(p + "q", f"1.0f + {p}e")}
% else:
    const float ${p}outer = (1.0f - ${p}e) * ${p}q;
% endif
% else:
% if number == 0:
    float ${p}e, ${p}q;
% elif number == 1 and kind.activation != "sigmoid":
    // infinitely far below, x times 0 would be no number
    ${ptx.most(x, x, "-1e30f")}
% elif number == 2:
    ${ptx.power_of_2(p + "e", f"{x} * ({x} * {x} * -0.10294324f - 2.3022082f)" if kind.activation == "gelu_tanh" else f"{x} * -1.4426950409f")}
% elif number == 3:
    ${ptx.one_by(p + "q", f"1.0f + {p}e")}
% endif
% endif
</%def>

<%def name="result(x, p='')"><%
    outer = f"{x} < 0.0f ? -{p}outer : {p}outer"
    text = {
        "gelu": f"fmax({x}, 0.0f) - {p}y * {p}power",
        "tanh": f"{p}s < 0.01f ? {x} - {x} * {p}s * (0.33333333f - {p}s * 0.13333333f) : {outer}",
        "sigmoid": f"{p}q",
    }.get(kind.activation, f"{x} * {p}q")
%>${text}</%def>
