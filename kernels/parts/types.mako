<%doc>
Types and arithmetic. `index_t` counts elements; `acc_t` is an accumulator: one number, or a pair
(real, imaginary). A, B, C and the output keep their own storage types and are converted on the
way in and out, so a kernel's arithmetic knows one type only.
</%doc>

<%def name="prelude()">
% if kind.needs_fp64:
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
% if kind.reproducible:
// Multiply, then add, each rounded: the same bits whether or not the device has an fma.
#pragma OPENCL FP_CONTRACT OFF
% endif
typedef ${kind.index} index_t;
typedef ${compute.scalar} scalar_t;
typedef ${compute.vector} acc_t;

static inline acc_t zero(void) {
% if compute.kind == "complex":
    return (acc_t)(${literal("0")}, ${literal("0")});
% else:
    return ${literal("0")};
% endif
}

static inline acc_t multiply(acc_t x, acc_t y) {
% if compute.kind == "complex":
    return (acc_t)(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
% elif compute.kind == "bool":
    return x & y;
% else:
    return x * y;
% endif
}

static inline acc_t add(acc_t x, acc_t y) {
% if compute.kind == "bool":
    return x | y;
% else:
    return x + y;
% endif
}

// sum + x*y; the form that compilers contract to fused multiply-adds where that is allowed.
static inline acc_t multiply_add(acc_t x, acc_t y, acc_t sum) {
% if compute.kind == "complex":
    sum.x += x.x * y.x;
    sum.x -= x.y * y.y;
% if kind.reproducible:
    sum.y += x.x * y.y + x.y * y.x;  // the same if x and y change places
% else:
    sum.y += x.x * y.y;
    sum.y += x.y * y.x;
% endif
    return sum;
% elif compute.kind == "bool":
    return sum | (x & y);
% else:
    return sum + x * y;
% endif
}
</%def>
