<%doc>
Activations for results that are rounded to 16 bits, of which 11 at most are significant: from the
device's own exponential and reciprocal, whose errors of a few units of float32's last place do not
reach them. A fifth of the work of parts/activation.mako, which is exact to the last place or two;
the formulas are the same. NaN stays NaN, and what is too small for float32 becomes 0.
</%doc>
<%!
QUICK = ("gelu", "gelu_tanh", "silu", "sigmoid", "tanh")
# F(t) = (y + 4) exp(y*y/2) erfc(y / sqrt(2)) / 2,  t = (y - 4) / (y + 4), from the last on
GELU = (
    "-0.00005155659329856f", "-0.0002317986783423f", "0.0001710546115869f", "0.00164521929736f",
    "-0.003489317276115f", "-0.007545268265715f", "0.06039753308783f", "-0.1865212814025f",
    "0.3871373679986f", "-0.6078966590909f", "0.755285130623f",
)
%>

<%def name="functions()">\
% if kind.activation in QUICK and kind.out.dtype in ("float16", "bfloat16") and compute.scalar == "float":

static inline float quick_activated(float x) {
% if kind.activation == "gelu":
    const float near = x < -15.0f ? -15.0f : x > 15.0f ? 15.0f : x;
    const float y = fabs(near), q = native_recip(y + 4.0f), t = 1.0f - 8.0f * q;
    float f = ${GELU[0]};
% for c in GELU[1:]:
    f = f * t + ${c};
% endfor
    const float tail = near * native_exp(-0.5f * y * y) * q * f;
    return x < 0.0f ? tail : x - tail;
% elif kind.activation == "tanh":
    const float e = native_exp(-2.0f * fabs(x)), s = x * x;
    const float outer = (1.0f - e) * native_recip(1.0f + e);
    return s < 0.01f ? x - x * s * (0.33333333f - s * 0.13333333f) : x < 0.0f ? -outer : outer;
% else:
<% w = "x * (x * x * 0.07135481627f + 1.5957691216f)" if kind.activation == "gelu_tanh" else "x" %>\
    const float w = ${w}, e = native_exp(-fabs(w));
    const float logistic = (w < 0.0f ? e : 1.0f) * native_recip(1.0f + e);
% if kind.activation == "sigmoid":
    return logistic;
% else:
    // infinitely far below, x times 0 would be no number
    return (x < -1e30f ? -1e30f : x) * logistic;
% endif
% endif
}
#define activated quick_activated
% endif
</%def>
