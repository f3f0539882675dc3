<%!
EXTENDS = "parts/gpu_header.mako"
SUMMARY = "Few terms: lines of the result written 16 bytes at a time, straight from registers."
SOURCES = (
    "OpenCL specification, section 6.1.5, alignment of types: vectors of neighbouring elements",
    "S. Williams, A. Waterman, D. Patterson: Roofline, an insightful visual performance model "
    "(CACM 2009)",
)
REQUIRES = ()
REPRODUCIBLE = ()
PARAMETERS = {
    # Neighbouring elements of a line of the result that a work-item owns, and lines of them.
    "vector_width": (1, 2, 4, 8, 16),
    "lines": (1, 2, 4, 8),
    # Work-items side by side along a line, and teams of them with lines of their own.
    "lanes": (4, 8, 16, 32, 64, 128, 256),
    "teams": (1, 2, 4, 8, 16, 32),
}
RUNTIME_PARAMETERS = {}
DEFAULT = dict(vector_width=4, lines=2, lanes=8, teams=4)
TEST_CONFIGS = (
    dict(vector_width=2, lines=2, lanes=4, teams=1),
    dict(vector_width=4, lines=1, lanes=4, teams=2),
    dict(vector_width=8, lines=4, lanes=8, teams=1),
    dict(vector_width=1, lines=1, lanes=16, teams=4),
)
CONSTRAINTS = (
    "work_items <= profile.max_work_group_size",
    "work_items <= profile.max_work_item_sizes[0]",
    "registers <= 200",
)
ALIGNMENT_CLASSES = (1, 4, 8, 16)
INSTRUMENT = ("none",)


def derive(config, kind, profile):
    width = config.vector_width
    # Lines of the result are columns where it is stored so: then A runs along them, and B across.
    along = "a" if kind.out.order == "column" else "b"
    operand = kind.a if along == "a" else kind.b
    runs_along = operand.order == ("column" if along == "a" else "row")
    # vectors of bytes end in private memory with AMD's compiler for gfx942
    bytes_apart = profile.family == "amd" and STORAGE_BYTES.get(operand.dtype) == 1
    unit = unit_of(operand, width) if runs_along and not bytes_apart else 1
    line_bytes = bytes_of(kind.out.dtype) * width
    wide = min(line_bytes, 16) <= kind.out.alignment and kind.out.order != "strided"
    wide = wide and line_bytes > 0 and width > 1
    words = max(kind.compute_itemsize // 4, 1)
    return dict(
        work_items=config.lanes * config.teams,
        block=config.lanes * width,
        along=along,
        across="b" if along == "a" else "a",
        together=bool(wide),
        line_bytes=line_bytes,
        # Elements of a work-item lie together, or `lanes` apart.
        places=[q if wide else q * config.lanes for q in range(width)],
        a_unit=unit if wide and along == "a" else 1,
        b_unit=unit if wide and along == "b" else 1,
        out_unit=1,
        a_unit_alignment=unit_alignment(kind.a, unit),
        b_unit_alignment=unit_alignment(kind.b, unit),
        out_unit_alignment=1,
        local_bytes=0,
        # an estimate in 32-bit registers: sums, what was read, addresses
        registers=(config.lines * width + width + config.lines) * words + 24,
    )


def bytes_of(dtype):
    # Of an output's element, if neighbours may be written at once; else 0.
    return dict(PLAIN_OUTPUTS, bfloat16=2, float16=2).get(dtype, 0)


def launches(config, derived, problem, profile):
    lines, length = problem.m, problem.n
    if derived.along == "a":
        lines, length = length, lines
    blocks, bands = ceil_div(length, derived.block), ceil_div(lines, config.lines * config.teams)
    return [
        dict(
            entry="line_fill",
            global_size=(problem.batch_count * blocks * bands * derived.work_items,),
            local_size=(derived.work_items,),
            args=("a", "b", "out", "sizes", "batch", "blocks", "bands", "scalars"),
            values=dict(blocks=blocks, bands=bands),
        )
    ]


def workspace(config, derived, problem, profile):
    return {}


def where(outer, term, operand):
    # (row, column) of an operand's element, by its index outside the sum and its term.
    return (outer, term) if operand == "a" else (term, outer)


# Terms up to which it is proposed: with more, tiles that are read once pay.
FEW_TERMS = 8


def propose(problem, profile):
    # (expected speed in multiples of the naive kernel's, parameters, why)
    if profile.is_cpu or problem.k > FEW_TERMS:
        return
    out = problem.kind.out
    lines, length = problem.m, problem.n
    if out.order == "column":
        lines, length = length, lines
    items = min(profile.max_work_group_size, 256)
    if length < 32 or items < 8:
        return
    # neighbours in 16 bytes where so much may be written at once; otherwise a few
    size = bytes_of(out.dtype) or problem.kind.compute_itemsize
    width = min(max(min(out.alignment, 16) // size, min(16 // size, 4), 1), 8)
    # see register_blocked: where local memory is large, registers are few
    most = max((16 if profile.local_mem_bytes > 65536 else 32) // width, 1)
    # the widest row of work-items that leaves few of them without an element
    vectors = ceil_div(length, width)

    def useful(lanes):
        return vectors / (ceil_div(vectors, lanes) * lanes)

    fitting = [x for x in (128, 64, 32, 16, 8) if x <= items]
    best = max(useful(x) for x in fitting)
    lanes = max(x for x in fitting if useful(x) >= 0.9 * best)
    teams = items // lanes
    enough = teams * ceil_div(profile.compute_units, ceil_div(vectors, lanes))
    each = min(4, most) if lines >= 4 * enough else 1
    while teams > 1 and teams * each >= 2 * lines:
        teams //= 2
    waste = ceil_div(lines, teams * each) * teams * each / lines / useful(lanes)
    groups = problem.batch_count * ceil_div(vectors, lanes) * ceil_div(lines, teams * each)
    busy = min(groups * lanes * teams / (512 * profile.compute_units), 1)
    rank = rank_of(problem, profile, 4 * busy / waste, problem.minimum_bytes / busy)
    yield rank, dict(vector_width=width, lines=each, lanes=lanes, teams=teams), (
        "few terms, %d×%d elements in a work-item's registers" % (each, width))
%>\
<%namespace name="types" file="parts/types.mako"/>\
<%namespace name="load" file="parts/load.mako"/>\
<%namespace name="index" file="parts/index.mako"/>\
<%namespace name="store" file="parts/store.mako"/>\
<%namespace name="wide" file="parts/wide.mako"/>\
// line_fill: what is written takes longer than what is computed.
//
//     out[row, col] = sum over i < k of A[row, i] * B[i, col]
//
// For products of few terms, such as the outer product of two vectors: the time is that of writing
// the result, so each work-item owns vector_width neighbours of each of `lines` lines of it, 16
// bytes where its lines are aligned, and writes them at once. Operands come straight from global
// memory: those of a line's neighbours are read once for all `lines` of a work-item.
//
//                    B[i, .]    b b b b | b b b b | ...      lanes side by side
//                               v v v v   v v v v
//     A[row, i]      a  -->     x x x x | x x x x | ...      team 0: `lines` lines
//                    a  -->     x x x x | x x x x | ...
//                    a  -->     x x x x | x x x x | ...      team 1
//
// Where lines are not aligned a work-item's elements lie `lanes` apart, so that neighbours in the
// group still write neighbours. For results stored by columns A and B change their parts.
//
// Index spaces, large to small: batch > bands of lines > blocks along a line > teams > lanes >
// terms > the micro-tile.
<%
    count, length = ("m", "n") if along == "b" else ("n", "m")
    rounds = together and kind.out.dtype in ("float16", "bfloat16")
    word = "ushort" if rounds else out.storage

    def place(line, position):
        return (line, position) if along == "b" else (position, line)
%>\
${types.prelude()}
${wide.types()}
${load.functions()}
${store.functions()}
% if together:
typedef ${word} line_t __attribute__((ext_vector_type(${vector_width}), aligned(${min(line_bytes, 16)})));
% endif
% if rounds:
static inline ushort rounded(acc_t value) {
% if kind.out.dtype == "float16":
% if kind.reproducible:
    if (value != value) return 0x7e00;  // conversions make different NaNs
% endif
    ushort bits;
    vstore_half_rte(${store.real_part("value")}, 0, (half *)&bits);
    return bits;
% else:
    // Round to nearest even on the upper 16 bits; a NaN keeps a bit of its payload set.
    const uint bits = as_uint((float)${store.real_part("value")});
    const uint up = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (ushort)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : up);
% endif
}
% endif

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void ${entry}(${parameters}) {
    // where am I
    const index_t group = get_group_id(0);
    const int item = get_local_id(0), lane = item % ${lanes}, team = item / ${lanes};
    const index_t rest = group / blocks, batch = rest / bands;
    const index_t position = (group - rest * blocks) * ${block} + lane${f" * {vector_width}" if together else ""};
    const index_t first_line = ((rest - batch * bands) * ${teams} + team) * ${lines};
    // what lies beyond the result is computed as its last elements, and not stored
% for q, apart in enumerate(places):
    const index_t position_${q} = position + ${apart} < ${length} ? position + ${apart} : ${length} - 1;
% endfor
% for r in range(lines):
    const index_t line_${r} = first_line + ${r} < ${count} ? first_line + ${r} : ${count} - 1;
% endfor
    const int whole = position + ${places[-1]} < ${length};
${index.bases("batch")}
    // clear
% for r in range(lines):
    acc_t ${", ".join(f"sum_{r}_{q} = zero()" for q in range(vector_width))};
% endfor
% if kind.alpha != "zero":

    // for each term: load, compute
% if kind.reproducible:
    // Intel's compiler adds up in another order where it makes vectors of a loop's rounds.
    #pragma clang loop vectorize(disable)
% endif
    for (index_t i = 0; i < k; i++) {
% for r in range(lines):
        const acc_t own_${r} = load_${across}(${across}, ${index.at(across, *where(f"line_{r}", "i", across))});
% endfor
        acc_t neighbours[${vector_width}];
% if (a_unit if along == "a" else b_unit) > 1:
        if (whole) {
${wide.load_unit(along, *where("position", "i", along), "neighbours", 0)}\
        } else
% endif
        {
% for q in range(vector_width):
            neighbours[${q}] = load_${along}(${along}, ${index.at(along, *where(f"position_{q}", "i", along))});
% endfor
        }
% for r in range(lines):
% for q in range(vector_width):
        sum_${r}_${q} = multiply_add(${f"own_{r}, neighbours[{q}]" if along == "b" else f"neighbours[{q}], own_{r}"}, sum_${r}_${q});
% endfor
% endfor
    }
% endif

    // epilogue and store
% for r in range(lines):
    if (first_line + ${r} < ${count}) {
% if together:
        acc_t done[${vector_width}];
% for q in range(vector_width):
        if (position + ${q} < ${length}) {
${store.value(f"sum_{r}_{q}", *place(f"line_{r}", f"position_{q}"))}\
            done[${q}] = value;
        }
% endfor
        if (whole) {
            line_t line;
% for q in range(vector_width):
% if rounds:
            line.s${"%x" % q} = rounded(done[${q}]);
% else:
            line.s${"%x" % q} = (${word})${store.real_part(f"done[{q}]")};
% endif
% endfor
            *(__global line_t *)((__global ${word} *)out + ${index.at("out", *place(f"line_{r}", "position"))}) = line;
        } else {
% for q in range(vector_width - 1):
            if (position + ${q} < ${length}) write_out(out, ${index.at("out", *place(f"line_{r}", f"position_{q}"))}, done[${q}]);
% endfor
        }
% else:
% for q, apart in enumerate(places):
        if (position + ${apart} < ${length}) {
${store.store(f"sum_{r}_{q}", *place(f"line_{r}", f"position_{q}"))}\
        }
% endfor
% endif
    }
% endfor
}
