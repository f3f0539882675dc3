<%doc>
Reading one stored element as an accumulator. One function per array that takes part, because
each may be stored in another type. Complex numbers are read as two reals: user memory is aligned
to the real part only.
</%doc>

<%def name="functions()">
% if half_in_parts(x.kind for x in loaded):
// A 16-bit number as float, by integers only, so that a loop of them is done on vectors.
static inline float half_to_float(ushort h) {
    const uint bits = ((uint)(h & 0x7fffu) << 13) + 0x38000000u;  // exponent 15 becomes 127
    const uint special = bits + 0x38000000u;  // infinities and NaNs: exponent 31 becomes 255
    const float small = as_float(bits + 0x00800000u) - 0x1p-14f;  // 0 and subnormal numbers
    const uint size = (h & 0x7c00u) == 0x7c00u ? special : (h & 0x7c00u) == 0 ? as_uint(small) : bits;
    return as_float(size | (uint)(h & 0x8000u) << 16);
}
% endif
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

<%def name="half_in_parts(kinds)"><%
    # On CPUs vload_half is a function called for each element.
    return "half" in kinds and context.get("on_cpu", False)
%></%def>

<%def name="real_part(x)"><%
    # An expression for element i of x, converted to scalar_t.
    forms = {
        "half": "(scalar_t)half_to_float(((__global const ushort *)p)[i])"
        if half_in_parts(["half"])
        else "(scalar_t)vload_half(i, p)",
        "bfloat": "(scalar_t)as_float((uint)p[i] << 16)",
        "bool": "(scalar_t)(p[i] != 0)",
    }
    form = forms.get(x.kind, "(scalar_t)p[i]")
%>${form}</%def>
