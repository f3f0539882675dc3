<%!
# What the headers of the variants for many parallel units share: EXTENDS puts these names into
# theirs.


def ceil_div(x, y):
    return -(-x // y)


# Outputs that are written as they are, with no conversion beyond C's own; and their sizes.
PLAIN_OUTPUTS = dict(
    int8=1, uint8=1, int16=2, uint16=2, int32=4, uint32=4, int64=8, uint64=8, float32=4, float64=8
)
STORAGE_BYTES = dict(PLAIN_OUTPUTS, bool=1, bfloat16=2, complex64=8, complex128=16)


def unit_of(operand, most):
    # Elements of an operand that may be read at once; float16 has its own load function.
    wide = operand.alignment >= 16 and operand.order != "strided"
    return most if wide and operand.dtype in STORAGE_BYTES else 1


def unit_alignment(operand, unit):
    return min(unit * STORAGE_BYTES.get(operand.dtype, 1), 16)


# ---- k split between work-groups, whose sums a second launch adds in a fixed order -----------

REDUCE_ITEMS = 32  # elements that a work-group of that second launch serves


def teams_that_reduce(profile):
    # Teams that share out the parts of each element.
    return 4 if profile.max_work_group_size >= 4 * REDUCE_ITEMS else 1


def parts_of_k(problem, splits, step):
    # (parts, terms of each): no more than `splits` parts, each but the last of whole steps.
    if problem.alpha == "zero":
        return 1, 0
    per_split = ceil_div(ceil_div(problem.k, splits), step) * step
    return ceil_div(problem.k, per_split), per_split


def partial_workspace(problem, splits, rows, cols):
    # Sums of each part, for rows x cols elements of each matrix of the batch.
    if splits == 1:
        return {}
    elements = splits * problem.batch_count * rows * cols
    size = elements * problem.kind.compute_itemsize
    return dict(partial=dict(bytes=size, alignment=64, first=0, last=1))


def reduce_launch(problem, derived, splits, rows, cols):
    elements = problem.batch_count * problem.m * problem.n
    return dict(
        entry="reduce",
        global_size=(ceil_div(elements, REDUCE_ITEMS) * REDUCE_ITEMS * derived.reduce_teams,),
        local_size=(REDUCE_ITEMS * derived.reduce_teams,),
        args=("partial", "out", "sizes", "batch", "scalars", "splits", "partial_rows",
              "partial_cols"),
        values=dict(splits=splits, partial_rows=rows, partial_cols=cols),
    )


# ---- how long something takes, in multiples of the naive kernel's time -----------------------

# Of each compute unit, in a second: operations of the naive kernel, bytes of global memory; the
# naive kernel's work-items that fill it. Seconds that a launch takes, that a round trip to global
# memory takes with a barrier behind it, and a term of the naive kernel. Only ratios of these
# matter, and they are much alike on the devices known.
NAIVE_RATE = 27e9
BYTE_RATE = 3e10
NAIVE_ITEMS = 256
LAUNCH_SECONDS = 4e-6
PHASE_SECONDS = 0.6e-6
NAIVE_TERM_SECONDS = 0.1e-6
# A second launch begins no sooner than this after the first one has, however short that is: so
# long the host needs to enqueue it. And it takes this much, and this for each work-group that is
# started, beside reading what it adds up. As measured on an H200.
FOLLOWING_SECONDS = 14e-6
SECOND_LAUNCH_SECONDS = 6e-6
GROUP_SECONDS = 1.2e-9


def rank_of(problem, profile, speed, bytes_moved, splits=1, phases=1):
    # The rank of something `speed` times as fast as a busy naive kernel where it computes, which
    # moves so many bytes, goes through so many phases one after another, and has a second launch
    # if k is split.
    units = profile.compute_units
    computing = problem.flops / (NAIVE_RATE * units)
    reading = bytes_moved / (BYTE_RATE * units)
    seconds = LAUNCH_SECONDS + max(computing / speed, reading, phases * PHASE_SECONDS)
    if splits > 1:
        elements = problem.batch_count * problem.m * problem.n
        bytes_reduced = 2 * splits * elements * problem.kind.compute_itemsize
        seconds = max(seconds, FOLLOWING_SECONDS) + SECOND_LAUNCH_SECONDS
        seconds += bytes_reduced / (BYTE_RATE * units) + elements / REDUCE_ITEMS * GROUP_SECONDS
    # The naive kernel is idle where there are few elements, and no good reader.
    items = problem.batch_count * problem.m * problem.n
    computing *= max(NAIVE_ITEMS * units / items, 1)
    reading = 2 * problem.minimum_bytes / (BYTE_RATE * units)
    waiting = problem.k * NAIVE_TERM_SECONDS
    return (LAUNCH_SECONDS + max(computing, reading, waiting)) / seconds
%>
