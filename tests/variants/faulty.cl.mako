<%!
SUMMARY = "The naive kernel with a fault on order, to test what the tuner makes of it."
SOURCES = ("Accidents that tuners have had with compilers, drivers and kernels",)
PARAMETERS = {
    # crash: the compiler ends the process. build_hang: it never ends. hang: the kernel never
    # ends. wrong: one element is wrong. wrong_when_large: only beyond the sizes of the quick
    # checks. outside: the element behind the output is written. unwritten: the last element is
    # not. refused: the compiler reports an error. slow: right, and slow.
    "fault": ("none", "refused", "crash", "build_hang", "hang", "wrong", "wrong_when_large",
              "outside", "unwritten", "slow"),
}
DEFAULT = {"fault": "none"}
CONSTRAINTS = ("local_bytes <= profile.usable_local_bytes",)


def derive(config, kind, profile):
    return dict(local_bytes=0)


def launches(config, derived, problem, profile):
    elements = problem.batch_count * problem.m * problem.n
    return [
        dict(
            entry="faulty",
            global_size=(elements,),
            local_size=(1,),
            args=("a", "b", "out", "sizes", "batch", "scalars"),
        )
    ]
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
${types.prelude()}
${load.functions()}
${store.functions()}
% if fault == "crash":
#pragma clang __debug crash
% elif fault == "refused":
#error this kernel is not for you
% elif fault == "build_hang":
// 2^48 terms, expanded as they are read: no memory, but years.
#define T0 +0
% for i in range(48):
#define T${i + 1} T${i} T${i}
% endfor
#if T48
#endif
% endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${entry}(${parameters}) {
    const index_t item = get_global_id(0);
    const index_t elements = m * n;
    const index_t batch = item / elements;
    const index_t element = item - batch * elements;
    const index_t row = element / n, col = element % n;
${index.bases("batch")}
% if fault == "hang":
    // Nobody writes this value, but the compiler cannot know.
    while (*(volatile __global ${out.storage} *)(out + out_offset) != 12345) {}
% endif
    acc_t sum = zero();
    for (index_t i = 0; i < k; i++)
        sum = multiply_add(load_a(a, ${index.at("a", "row", "i")}),
                           load_b(b, ${index.at("b", "i", "col")}), sum);
% if fault == "wrong":
    if (item == elements - 1) sum = zero();
% elif fault == "wrong_when_large":
    if (item == elements - 1 && m > 16) sum = zero();
% elif fault == "slow":
    for (volatile int i = 0; i < 5000; i++) {}
% elif fault == "outside":
    if (item == elements - 1) out[${index.at("out", "row", "col")} + 1] = 0;
% elif fault == "unwritten":
    if (item == elements - 1) return;
% endif
${store.store("sum", "row", "col")}
}
