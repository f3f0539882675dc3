<%!
SUMMARY = "One work-item per element of the result, reading A and B straight from global memory."
SOURCES = ("The definition of the matrix product",)
REQUIRES = ()
REPRODUCIBLE = ()
PARAMETERS = {
    # Work-items in a group. 1 works on every device, whatever its limits; more fill a GPU.
    "work_group_size": (1, 8, 16, 32, 64, 128, 256),
}
RUNTIME_PARAMETERS = {}
TEST_CONFIGS = ({"work_group_size": 8}, {"work_group_size": 1}, {"work_group_size": 64})
DEFAULT = {"work_group_size": 1}
CONSTRAINTS = ("work_group_size <= profile.max_work_group_size",)
INSTRUMENT = ("none", "count")


def derive(config, kind, profile):
    return dict(work_items=config.work_group_size, local_bytes=0)


def propose(problem, profile):
    # (expected speed in multiples of this kernel's, parameters, why)
    size = 64 if problem.batch_count * problem.m * problem.n >= 64 else 8
    yield 1, dict(work_group_size=size), "one work-item per element"


def workspace(config, derived, problem, profile):
    return {}


def loop_iterations(problem):
    return problem.k


def instruments(mode, config, derived, problem):
    # uint counters: how often each element of A and B is read, and how often nothing is there
    return dict(
        a_loads=problem.m * problem.k, b_loads=problem.k * problem.n, padded_loads=2
    )


def launches(config, derived, problem, profile):
    elements = problem.batch_count * problem.m * problem.n
    groups = -(-elements // config.work_group_size)
    return [
        dict(
            entry="naive",
            global_size=(groups * config.work_group_size,),
            local_size=(config.work_group_size,),
            args=("a", "b", "out", "sizes", "batch", "scalars"),
        )
    ]
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="trace" file="parts/instrument.mako"/>\
// naive: the definition, one work-item per element.
//
//     out[row, col] = sum over i < k of A[row, i] * B[i, col]
//
// Every work-item walks one row of A and one column of B:
//
//              B   . . | . .
//                  . . | . .
//                  . . v . .
//     A  . . . .
//        ------>       x        x = out[row, col]
//        . . . .
//
// so each element of A is read n times from global memory, and each of B m times. It needs no
// local memory and no barrier, works with one work-item a group, and is the choice when nothing
// else may be trusted.
${types.prelude()}
${load.functions()}
${store.functions()}

__kernel __attribute__((reqd_work_group_size(${work_group_size}, 1, 1)))
void ${entry}(${parameters}) {
    // where am I: elements of all matrices of the batch, counted along the output's lines
    const index_t item = get_global_id(0);
    const index_t elements = m * n;
    const index_t batch = item / elements;
    const index_t element = item - batch * elements;
    if (batch >= batch_count) return;
% if kind.out.order == "column":
    const index_t row = element % m, col = element / m;
% else:
    const index_t row = element / n, col = element % n;
% endif
${index.bases("batch")}
    // clear
    acc_t sum = zero();

% if kind.alpha != "zero":
    // for each term: load, compute
% if kind.reproducible:
    // Intel's compiler adds up in another order where it makes vectors of a loop's rounds.
    #pragma clang loop vectorize(disable)
% endif
    for (index_t i = 0; i < k; i++) {
${trace.count_load("a", "1", "row", "i", "k")}\
${trace.count_load("b", "1", "i", "col", "n")}\
        sum = multiply_add(load_a(a, ${index.at("a", "row", "i")}),
                           load_b(b, ${index.at("b", "i", "col")}), sum);
    }

% endif
    // epilogue and store
${store.store("sum", "row", "col")}
}
