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
%>

<%def name="functions()">\
% if is_quick(kind):

static inline float quick_activated(float x) {
% if kind.activation == "gelu":
    float y, power;
    ${ptx.least("y", "fabs(x)", GELU_END[kind.out.dtype])}
    float f = ${GELU[kind.out.dtype][0]};
% for c in GELU[kind.out.dtype][1:]:
    f = f * y + ${c};
% endfor
    ${ptx.power_of_2("power", "f")}
    return fmax(x, 0.0f) - y * power;
% elif kind.activation == "tanh":
    const float s = x * x;
    float e, q;
    ${ptx.power_of_2("e", "fabs(x) * -2.8853900818f")}
    ${ptx.one_by("q", "1.0f + e")}
    const float outer = (1.0f - e) * q;
    return s < 0.01f ? x - x * s * (0.33333333f - s * 0.13333333f) : x < 0.0f ? -outer : outer;
% else:
    float e, q;
% if kind.activation != "sigmoid":
    // infinitely far below, x times 0 would be no number
    ${ptx.most("x", "x", "-1e30f")}
% endif
    ${ptx.power_of_2("e", "x * (x * x * -0.10294324f - 2.3022082f)" if kind.activation == "gelu_tanh" else "x * -1.4426950409f")}
    ${ptx.one_by("q", "1.0f + e")}
    return ${"q" if kind.activation == "sigmoid" else "x * q"};
% endif
}
#define activated quick_activated
% endif
</%def>
