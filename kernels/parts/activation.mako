<%doc>
Activations, for one number or for a vector of them, from operators alone: builtins are slow on
some CPU runtimes, wrong on others' widest vectors, and differ in their last bits from device to
device. Here every step is a sum, a product or a choice, so with contraction off the bits are the
same everywhere. Each is within 2 units in the last place of its type; NaN stays NaN.

    silu = x logistic(x);  gelu_tanh = x logistic(2u);  logistic(w) = 1 / (1 + exp(-w))
    gelu = x Q(-x),  Q(y) = exp(-y*y/2) F(t) / (y + 4),  t = (y - 4) / (y + 4) = 1 - 8 / (y + 4)

Where that needs it, `low` numbers carry what rounding took away from what they belong to, and
relative corrections are added at the end. The upper half of a significand is taken apart by a
mask, so that products of two such halves are exact. exact_division: the device's `/` rounds
correctly, as CPUs' does; others may be off by 2.5 units.
</%doc>
<%!
LIMITS = {
    # of float and double: where exp(-x) is 0, and from where x exp(-x) is; from where 1 + exp(-x)
    # is 1; from where gelu(-x) and gelu_tanh(-x) are 0; 1.5 * 2^p with p bits behind the point; an
    # exponent's place and its bias; the upper half's bits; a start for 1/d, and steps from it;
    # two parts of log(2); 2 sqrt(2/pi) rounded, what that lacks, and 0.044715 times it: rounded, its
    # upper half's bits, and the rest.
    "float": dict(
        exp="110", zero="108", one="30", gelu="15", gelu_tanh="12", round="12582912", shift=23, bias=127,
        mask="-4096", start="0x7ef311c3", steps=3,
        log2=("0.693145751953125", "0.0000014286068203094172"),
        linear=("1.5957691669464111", "-0.0000000453406804211"),
        cubic=("0.07135481387376785", "0.07135009765625", "0.00000471861635025"),
    ),
    "double": dict(
        exp="760", zero="755", one="60", gelu="39", gelu_tanh="22", round="6755399441055744", shift=52, bias=1023,
        mask="-134217728l", start="0x7fde623822fc16e6l", steps=5,
        log2=("0.69314718036912381649", "0.0000000001908214929270587816"),
        linear=("1.5957691216057308", "-0.00000000000000009969308809110920314577"),
        cubic=(
            "0.07135481627260025", "0.07135481573641300201416015625",
            "0.0000000005361872467821785960299",
        ),
    ),
}
COEFFICIENTS = {
    # (exp(r) - 1 - r) / r^2 where |r| <= log(2) / 2
    ("exp", "float"): (
        "0.5000000014286", "0.1666666668253", "0.04166645680968", "0.008333310024225",
        "0.001393454192827", "0.0001989198131398",
    ),
    ("exp", "double"): (
        "0.5", "0.1666666666666667143842", "0.04166666666666667007438",
        "0.008333333333325544699563", "0.001388888888888332667437",
        "0.0001984126987686435492947", "0.00002480158732700718673102",
        "0.000002755725283351690974813", "0.0000002755727181021979956947",
        "0.0000000251062747335732946873", "0.000000002091544229778011521616",
    ),
    # (tanh(x)/x - 1) / x^2 where |x| <= 0.55, of x^2
    ("tanh", "float"): (
        "-0.3333333200798", "0.1333311372902", "-0.05390942882746", "0.02130938866444",
        "-0.006610227831115",
    ),
    ("tanh", "double"): (
        "-0.3333333333333333256059", "0.1333333333333271482583", "-0.05396825396743401450417",
        "0.02186948849366694190276", "-0.008863234397814354837784",
        "0.003592110378689023877332", "-0.001455661830100716033614",
        "0.0005889360520074057769748", "-0.0002346347410887237144459",
        "0.00008511313685577671515502", "-0.00002060276537636634160482",
    ),
    # (gelu(x) - x/2) / x^2 where |x| <= 0.75, of x^2
    ("gelu_small", "float"): (
        "0.3989422794601", "-0.06649029632146", "0.009972360943304", "-0.001181318903736",
        "0.0001029705148701",
    ),
    ("gelu_small", "double"): (
        "0.398942280401432673603", "-0.0664903800669041970804", "0.009973557009976545921748",
        "-0.001187328214396983147754", "0.0001154346776854094724514",
        "-0.000009444605057900199678862", "0.0000006658139159575593624434",
        "-0.00000004095039952241717301732", "0.000000002005713145365612211958",
    ),
    # F(t) = (y + 4) exp(y*y/2) erfc(y / sqrt(2)) / 2
    ("gelu", "float"): (
        "0.755285130623", "-0.6078966590909", "0.3871373679986", "-0.1865212814025",
        "0.06039753308783", "-0.007545268265715", "-0.003489317276115", "0.00164521929736",
        "0.0001710546115869", "-0.0002317986783423", "-0.00005155659329856",
    ),
    ("gelu", "double"): (
        "0.7552851304157514932704", "-0.6078966419718921075862", "0.3871374007422145409913",
        "-0.1865218579596572468011", "0.06039657489093656068866", "-0.007540188966726791574737",
        "-0.003479692367393595150448", "0.001630818457588701191112",
        "0.0001333443124096457365712", "-0.0002310949351694590144192",
        "-0.000001908258479773433108426", "0.00003514468605300346296013",
        "0.0000007166663245221031186195", "-0.000005920173323016102916896",
        "-0.0000006296965605815823329725", "0.000001021554037196101533462",
        "0.0000002718045296259283576715", "-0.0000001549649174224745046822",
        "-0.00000008540841815685124977908", "0.00000001328079778731032784331",
        "0.00000001961961086135555974024", "0.000000001918277020373340262557",
        "-0.000000002522099457878073536419", "-0.0000000007262419810409579296381",
    ),
}
%>

<%def name="function(title, number, width='', exact_division=False)">\
<%
    # The activation of the kind as a function, for values of type `number` of `width` lanes.
    name, scalar = kind.activation, compute.scalar
    # Some compilers fuse a product with a sum in another statement, and what it lacked is lost.
    unfused = name in ("gelu", "gelu_tanh", "tanh") and not context.get("on_cpu", False)
    limits = LIMITS[scalar]
    whole = ("int" if scalar == "float" else "long") + width
    as_number, as_whole = f"as_{scalar}{width}", f"as_{whole}"
%>\
% if name == "clamp":
static inline ${number} ${title}(${number} x, const scalar_t low, const scalar_t high) {
    const ${number} least = x < low ? (${number})(low) : x;
    return least > high ? (${number})(high) : least;
}
% elif name == "relu":
static inline ${number} ${title}(${number} x) {
    return x < ${literal("0")} ? (${number})(${literal("0")}) : x;
}
% elif name == "tanh":
static inline ${number} ${title}(${number} x) {
${unfused_pragma(unfused)}\
    const ${number} wide = x < ${literal("0")} ? x + x : -(x + x), wide_low = (${number})(${literal("0")});
${exponential("wide", "wide_low", number, whole, as_number, as_whole, limits, scalar)}\
    const ${number} scaled = e * small_1 * small_2;
    const ${number} top = ${literal("1")} - scaled, d = ${literal("1")} + scaled;
    const ${number} top_low = ((${literal("1")} - top) - scaled) - scaled * e_low;
    const ${number} d_low = ((${literal("1")} - d) + scaled) + scaled * e_low;
${reciprocal(number, whole, as_number, as_whole, limits)}\
    const ${number} outer = top * q + (top_low * q + top * q * q_low);
    const ${number} s = x * x;
    const ${number} inner = x + x * (s * ${polynomial("tanh", scalar, "s")});
    const ${number} result = x < ${literal("0")} ? -outer : outer;
    return wide > ${literal("-1.1")} ? inner : result;
}
% else:
static inline ${number} ${title}(${number} x) {
${unfused_pragma(unfused)}\
% if name == "sigmoid":
    const ${number} factor = (${number})(${literal("1")}), w = x, w_low = (${number})(${literal("0")});
${logistic(number, whole, as_number, as_whole, limits, scalar, exact_division)}\
% elif name == "silu":
    const ${number} factor = x < ${literal("-" + limits["exp"])} ? (${number})(${literal("-" + limits["exp"])}) : x;
    const ${number} w = x, w_low = (${number})(${literal("0")});
${logistic(number, whole, as_number, as_whole, limits, scalar, exact_division)}\
% elif name == "gelu_tanh":
    const ${number} factor = x < ${literal("-" + limits[name])} ? (${number})(${literal("-" + limits[name])}) : x;
    // w + w_low = near (linear + cubic near^2); what w lacks would be many units of exp(-w)
    const ${number} near = factor > ${literal(limits[name])} ? (${number})(${literal(limits[name])}) : factor;
<%
    c1, c1_low = map(literal, limits["linear"])
    c3, c3_high, c3_rest = map(literal, limits["cubic"])
%>\
    const ${number} high = ${as_number}(${as_whole}(near) & ${limits["mask"]}), low = near - high;
    const ${number} s = near * near;
    const ${number} s_low = ((high * high - s) + (high + high) * low) + low * low;
    const ${number} s_high = ${as_number}(${as_whole}(s) & ${limits["mask"]}), s_part = s - s_high;
    const ${number} cube = s * ${c3};
    const ${number} cube_low = ((s_high * ${c3_high} - cube) + (s_high * ${c3_rest} + s_part * ${c3_high}))
        + (s_part * ${c3_rest} + s_low * ${c3});
    const ${number} slope = cube + ${c1}, other = slope - cube;
    const ${number} slope_low = ((cube - (slope - other)) + (${c1} - other)) + (cube_low + ${c1_low});
    const ${number} slope_high = ${as_number}(${as_whole}(slope) & ${limits["mask"]}), slope_part = slope - slope_high;
    const ${number} w = near * slope;
    const ${number} w_low = ((high * slope_high - w) + (high * slope_part + low * slope_high))
        + (low * slope_part + near * slope_low);
${logistic(number, whole, as_number, as_whole, limits, scalar, exact_division)}\
% else:
    // beyond, the value is 0 (of the sign of x) or x
    const ${number} far = x < ${literal("-" + limits[name])} ? (${number})(${literal("-" + limits[name])}) : x;
    const ${number} near = far > ${literal(limits[name])} ? (${number})(${literal(limits[name])}) : far;
    const ${number} high = ${as_number}(${as_whole}(near) & ${limits["mask"]}), low = near - high;
    const ${number} s = near * near;
    const ${number} s_low = ((high * high - s) + (high + high) * low) + low * low;
    const ${number} wide = s * ${literal("-0.5")}, wide_low = s_low * ${literal("-0.5")};
${exponential("wide", "wide_low", number, whole, as_number, as_whole, limits, scalar)}\
    const ${number} y = near < ${literal("0")} ? -near : near;
    const ${number} d = y + ${literal("4")}, other = d - y;
    const ${number} d_low = (y - (d - other)) + (${literal("4")} - other);
${reciprocal(number, whole, as_number, as_whole, limits)}\
    const ${number} t = ${literal("1")} - q * ${literal("8")};
    const ${number} t_low = ((${literal("1")} - t) - q * ${literal("8")}) - q * q_low * ${literal("8")};
<%
    c = COEFFICIENTS["gelu", scalar]
%>\
    const ${number} rest = t * ${polynomial("gelu", scalar, "t", 1)};
    const ${number} f = rest + ${literal(c[0])};
    const ${number} slope = ((t * ${literal("-0.56")} + ${literal("0.774")}) * t + ${literal(c[1])}) * t_low;
    const ${number} f_low = ((${literal(c[0])} - f) + rest) + slope;
    const ${number} xe = near * e, product = xe * q, tail = product * f;
    const ${number} e_high = ${as_number}(${as_whole}(e) & ${limits["mask"]}), e_part = e - e_high;
    const ${number} xe_low = ((high * e_high - xe) + high * e_part + low * e_high) + low * e_part;
    const ${number} p_high = ${as_number}(${as_whole}(product) & ${limits["mask"]}), p_part = product - p_high;
    const ${number} f_high = ${as_number}(${as_whole}(f) & ${limits["mask"]}), f_part = f - f_high;
    const ${number} tail_low = ((p_high * f_high - tail) + p_high * f_part + p_part * f_high) + p_part * f_part;
    const ${number} missing = tail * (e_low + q_low) + (product * f_low + xe_low * q * f);
    const ${number} outer = (tail + (tail_low + missing)) * small_1 * small_2;
    const ${number} result = x < ${literal("0")} ? outer : far - outer;
    const ${number} inner = x * ${literal("0.5")} + s * ${polynomial("gelu_small", scalar, "s")};
    return y < ${literal("0.7")} ? inner : result;
% endif
}
% endif
</%def>

<%def name="unfused_pragma(unfused)">\
% if unfused:
#pragma OPENCL FP_CONTRACT OFF
% endif
</%def>

<%def name="logistic(number, whole, as_number, as_whole, limits, scalar, exact_division)">\
    // factor / (1 + exp(-w - w_low)) = factor / d s, d = s + 1 + e, where the exponential is
    // (1 + e) / s and s is a power of 2, as two factors, for results below the least normal number
    const ${number} least = w < ${literal("-" + limits["exp"])} ? (${number})(${literal("-" + limits["exp"])}) : w;
    const ${number} clamped = least > ${literal(limits["one"])} ? (${number})(${literal(limits["one"])}) : least;
    const ${number} rounded = clamped * ${literal("1.4426950408889634")} + ${literal(limits["round"])};
    const ${number} power = rounded - ${literal(limits["round"])};
    const ${whole} power_bits = ${as_whole}(rounded) - ${as_whole}((${number})(${literal(limits["round"])}));
    const ${whole} half_bits = power_bits >> 1;
    const ${number} small_1 = ${as_number}((half_bits + ${limits["bias"]}) << ${limits["shift"]});
    // 0 where the result is, at once: work on subnormal numbers is slow
    const ${number} small_2 = clamped < ${literal("-" + limits["zero"])} ? (${number})(${literal("0")})
        : ${as_number}((power_bits - half_bits + ${limits["bias"]}) << ${limits["shift"]});
    const ${number} r = (power * ${literal(limits["log2"][1])} - w_low)
        - (clamped - power * ${literal(limits["log2"][0])});
    const ${number} small = small_1 * small_2, sum = small + ${literal("1")}, sum_1 = sum - small;
    const ${number} sum_low = (small - (sum - sum_1)) + (${literal("1")} - sum_1);
    const ${number} e = r + (r * r * ${polynomial("exp", scalar, "r")} + sum_low);
    const ${number} d = sum + e;
% if exact_division and not kind.reproducible:
    return factor / d * small_1 * small_2;
% else:
    const ${number} d_low = (sum - d) + e;
${reciprocal(number, whole, as_number, as_whole, limits)}\
    const ${number} quotient = factor * q;
    const ${number} right = w > ${literal(limits["one"])} ? factor : (quotient + quotient * q_low) * small_1 * small_2;
    return right;
% endif
</%def>

<%def name="exponential(x, x_low, number, whole, as_number, as_whole, limits, scalar)">\
    // exp(x) = e (1 + e_low) small_1 small_2 for x <= 0; two powers of 2, for results that are
    // smaller than the least normal number
    const ${number} clamped = ${x} < ${literal("-" + limits["exp"])} ? (${number})(${literal("-" + limits["exp"])}) : ${x};
    const ${number} rounded = clamped * ${literal("1.4426950408889634")} + ${literal(limits["round"])};
    const ${number} power = rounded - ${literal(limits["round"])};
    const ${whole} power_bits = ${as_whole}(rounded) - ${as_whole}((${number})(${literal(limits["round"])}));
    const ${whole} half_bits = power_bits >> 1;
    const ${number} small_1 = ${as_number}((half_bits + ${limits["bias"]}) << ${limits["shift"]});
    // 0 where exp(x) is, at once: work on subnormal numbers is slow
    const ${number} small_2 = ${x} < ${literal("-" + limits["zero"])} ? (${number})(${literal("0")})
        : ${as_number}((power_bits - half_bits + ${limits["bias"]}) << ${limits["shift"]});
    const ${number} r_high = clamped - power * ${literal(limits["log2"][0])};
    const ${number} r_part = power * ${literal(limits["log2"][1])};
    const ${number} r_sum = r_high - r_part;
    const ${number} r_rest = ((r_high - r_sum) - r_part) + ${x_low};
    const ${number} r = r_sum + r_rest, r_low = (r_sum - r) + r_rest;
    const ${number} first = ${literal("1")} + r;
    const ${number} e_rest = ((${literal("1")} - first) + r) + (r * r * ${polynomial("exp", scalar, "r")} + r_low * first);
    const ${number} e = first + e_rest;
    // what is missing, in parts of e; 1/e to a few percent is enough
    const ${number} e_low = ((first - e) + e_rest) * (${literal("2.08")} - e * ${literal("1.04")});
</%def>

<%def name="reciprocal(number, whole, as_number, as_whole, limits)">\
    // 1 / (d + d_low) = q (1 + q_low)
% if kind.reproducible:
    const ${number} q_0 = ${as_number}(${limits["start"]} - ${as_whole}(d));
% for step in range(limits["steps"]):
    const ${number} q_${step + 1} = q_${step} * (${literal("2")} - d * q_${step});
% endfor
    const ${number} q = q_${limits["steps"]};
% else:
    const ${number} q = ${literal("1")} / d;
% endif
    const ${number} d_high = ${as_number}(${as_whole}(d) & ${limits["mask"]}), d_rest = d - d_high;
    const ${number} q_high = ${as_number}(${as_whole}(q) & ${limits["mask"]}), q_rest = q - q_high;
    const ${number} q_low = (((${literal("1")} - d_high * q_high) - d_high * q_rest) - d_rest * q_high)
        - (d_rest * q_rest + d_low * q);
</%def>

<%def name="polynomial(name, scalar, x, first=0)"><%
    text, *others = [literal(c) for c in reversed(COEFFICIENTS[name, scalar][first:])]
    for c in others:
        text = f"({text} * {x} + {c})"
%>${text}</%def>
