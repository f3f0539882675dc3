<%!
# What the headers of the CPU variants share: EXTENDS puts these names into theirs.
#
# A work-item of its own work-group owns a macro-tile of the result and goes through panels of A
# (micro_m rows) and of B (micro_n columns), block by block of k.


def ceil_div(x, y):
    return -(-x // y)


# Element types that the kernels may read as vectors of accumulators, and their names in C.
STORAGE = {"float32": "float", "float64": "double", "int32": "int", "uint32": "uint",
           "int64": "long", "uint64": "ulong"}


def registers_of(profile):
    """How many registers of 32 bytes there are (AVX2: 16; AVX-512: 32 of 64 bytes)."""
    wide = "avx512" in profile.device_version or profile.family == "intel-cpu"
    return 64 if wide else 16


def derive_micro(config, kind, profile):
    planes = 2 if kind.compute.startswith("complex") else 1
    scalar_bytes = kind.compute_itemsize // planes
    per_vector = max(config.vector_width * scalar_bytes // 32, 1)
    micro_n = config.vectors * config.vector_width
    return dict(
        on_cpu=True,
        planes=planes,
        micro_n=micro_n,
        a_step=config.micro_m * planes,
        b_step=micro_n * planes,
        # all accumulators, and one term's vectors of B
        vector_registers=(config.micro_m + 1) * config.vectors * planes * per_vector,
        register_file=registers_of(profile),
        # A line of B may be copied as it lies where it is stored as accumulators are.
        b_is_plain=(
            kind.b.order == "row" and planes == 1
            and kind.b.dtype in STORAGE and kind.b.dtype in (kind.compute, kind.compute[1:])
        ),
        **vector_forms(kind, config.micro_m * config.vectors),
    )


def vector_forms(kind, count):
    """Where the epilogue may work on whole vectors of a micro-tile's sums, of which it has
    `count`."""
    fused = (
        kind.activation != "none" or kind.bias or kind.residual or kind.row_scale
        or kind.col_scale or kind.aux
    )
    plain = (  # the output holds accumulators as they are
        kind.out.dtype in STORAGE
        and kind.result == kind.out.dtype
        and kind.out.dtype in (kind.compute, kind.compute[1:])
        and kind.out.order == "row"
    )
    simple = plain and kind.c in (None, kind.out.dtype) and not (
        fused or kind.expression or kind.reproducible
    )
    real = kind.compute in ("float32", "float64") and kind.alpha != "zero"
    return dict(
        # without functions; with functions; vectors stored as they are; few enough to unroll
        vector_store=simple,
        vector_epilogue=real and not simple and not kind.expression,
        vector_write=plain,
        vector_unrolled=(
            real and plain and not simple and not kind.expression and not kind.aux and count <= 8
        ),
    )


def lanes_of(compute):
    # A 512-bit vector: two AVX2 registers, or one of AVX-512.
    return {"float32": 16, "uint32": 16, "bool": 16, "float64": 8, "uint64": 8,
            "complex64": 8, "complex128": 4}[compute]


def width_for(problem):
    """vector_width: 512 bits, or as many columns as there are where they are fewer and A is so
    large that a program of its own, half a second's work for the compiler, is worth it."""
    lanes, width = lanes_of(problem.compute), 2
    if problem.batch_count * problem.m * problem.k < 2**18:
        return lanes
    while width < min(lanes, problem.n):
        width *= 2
    return lanes if problem.m == 1 else width


def rows_for(problem):
    """micro_m: 6 rows use the registers best, and 8 of narrow vectors. Only one row, or many small
    matrices of which 6 rows would waste much, are worth programs of their own."""
    m = problem.m
    if m == 1:
        return 1
    if width_for(problem) < lanes_of(problem.compute):
        most = 6 if problem.compute.startswith("complex") else 8  # AVX2 has 16 registers
        return min((most, 6, 4), key=lambda x: ceil_div(m, x) * x)
    if problem.batch_count >= 16 and m <= 48:
        return rows_of_few(m)
    return 6


def rows_of_few(m):
    """6 or 4, by how many rows are computed in vain; 6 are a tenth faster."""
    return min((6, 4), key=lambda x: ceil_div(m, x) * x * (1.1 if x == 4 else 1))


def splits_for(problem, profile, tiles):
    """Into how many parts to cut k where there are fewer tiles than compute units."""
    splits = 1
    if problem.reproducible:  # one sum over all of k, in order
        return 1
    while tiles * splits < profile.compute_units and problem.k >= 2048 * splits:
        splits *= 2
    return min(splits, 32)


FEW_TERMS = 8


def is_plain(problem):
    """Whether A's elements are read as they are stored, each a real number."""
    kind = problem.kind
    return kind.a.dtype in STORAGE and not kind.compute.startswith("complex")


def turns_for_few(problem):
    """Whether to turn eight columns of B at a time instead of sixteen: for few rows, where that
    takes as long as what they do with them, and a B so large that a program of its own is worth it.

    Sixteen lines gone through at once are as many as AVX2 has registers, and, where they lie a page
    apart, twice as many as a set of the first-level cache holds. More than some thirty rows gain
    more from a wide micro-tile, which loads less for each multiplication.
    """
    kind = problem.kind
    return (
        is_plain(problem) and kind.b.order == "column" and kind.b.dtype in STORAGE
        and 1 < problem.m <= 32 and problem.n >= lanes_of(problem.compute)
        and problem.k * problem.n >= 2**18
    )


def shared_by_enough(problem):
    """Whether A and B are worth packing, by how many products share an element of theirs.

    (m + n) k elements are packed for m n k products: on average, each serves half the harmonic
    mean of m and n. In place, rows of A are long straight reads. Of columns, a line of the cache
    serves six rows, and must be there again for the next six: the wider the elements, the fewer
    rows it has left. Columns a page apart fall into so few sets of the caches that it is not.

    What is packed goes through the last-level cache, whose speed here varied with what else the
    host did: by 15 %, while work in place kept its own. The limits lie between the best of both.
    """
    kind, m, n = problem.kind, problem.m, problem.n
    by_rows = kind.a.order == "row"
    a_page_apart = problem.a.col_stride * kind.compute_itemsize % 4096 == 0
    if kind.compute in ("uint64", "complex128"):
        most = 420 if kind.compute == "uint64" and by_rows else 280
    elif not is_plain(problem):  # elements that are converted are so again for every panel of B
        most = 560 if kind.compute.startswith("complex") else 180
    elif by_rows:
        most = 700
    elif a_page_apart or kind.compute == "uint32":
        most = 224
    else:
        most = 480 if kind.compute_itemsize > 4 else 640
    return 2 * m * n > most * (m + n)


def rank_in_place(problem, profile):
    """(rank of reading in place, of staging B, of packing both), by what fits the caches.

    Measured on two cores with 1 MiB of second-level cache each, in the order of float32.
    """
    kind, m, n, k = problem.kind, problem.m, problem.n, problem.k
    wide = kind.compute_itemsize > 4
    if min(m, n) <= 16:
        return 50, 60, 5
    if kind.a.dtype == "float16":  # in place, each is converted again for every panel of B
        return 30, 40, 75
    plain = is_plain(problem)
    b_bytes = k * n * kind.compute_itemsize
    if plain and m <= 64 and min(n, k) >= 256 and b_bytes >= 3 * 2**20:
        return 70, 60, 30  # few rows share what is staged of a B that no second-level cache holds
    if plain and k <= FEW_TERMS and m * n > 110 * 110:
        return 35, 65, 45
    small = (64 * 64 if plain else 100 * 100) if wide else 110 * 110
    if m * n <= small and k <= 1024:
        ragged = problem.batch_count > 1 and m * n > 64 * 64 and n % lanes_of(problem.compute)
        tall = m > 110 and k > 64
        return (60, 70, 30) if plain and (ragged or tall) else (70, 60, 30)
    most_terms = 64 if wide else 128
    if plain and kind.b.order == "column" and k <= most_terms and min(m, n) >= 128 and (
        problem.batch_count * m * n * k >= 15e6
    ):
        return 35, 45, 60  # columns of B are turned once, not once for each macro-tile of rows
    if plain and not wide and k <= 64 and k * n <= 64 * 64 and n % lanes_of(problem.compute) == 0:
        return 70, 65, 45  # B stays in the first-level cache as it lies
    return (35, 45, 60) if shared_by_enough(problem) else (50, 65, 45)


def grid(config, panels_m, panels_n, parallel, problem, profile):
    """(tiles_m, tiles_n): macro-tiles within the limits of config, as many as units need.

    parallel: work-items that there are for each tile (batch, parts of k).
    """
    tiles_m = min(ceil_div(problem.m, config.tile_m), panels_m)
    tiles_n = min(ceil_div(problem.n, config.tile_n), panels_n)
    units = profile.compute_units
    while parallel * tiles_m * tiles_n % units and parallel * tiles_m * tiles_n < 8 * units:
        # the same work for every unit: cut the longer side of the tiles
        if tiles_m < panels_m and problem.m * tiles_n >= problem.n * tiles_m:
            tiles_m += 1
        elif tiles_n < panels_n:
            tiles_n += 1
        elif tiles_m < panels_m:
            tiles_m += 1
        else:
            break
    return tiles_m, tiles_n


def blocking_in_place(config, derived, problem, profile):
    """Panels, parts and blocks of k, tiles, for the variants that read A in place."""
    panels_m = ceil_div(problem.m, config.micro_m)
    panels_n = ceil_div(problem.n, derived.micro_n)
    splits = min(config.splits, ceil_div(problem.k, 64))
    per_split = ceil_div(ceil_div(problem.k, splits), 4) * 4
    splits = ceil_div(problem.k, per_split)
    k_blocks = ceil_div(per_split, config.block_k)
    block = ceil_div(ceil_div(per_split, k_blocks), 4) * 4
    tiles_m, tiles_n = grid(
        config, panels_m, panels_n, splits * problem.batch_count, problem, profile
    )
    return dict(
        panels_m=panels_m, panels_n=panels_n, splits=splits, per_split=per_split,
        k_blocks=k_blocks, block=block, tiles_m=tiles_m, tiles_n=tiles_n,
    )


def partial_bytes(config, derived, problem, b, waits):
    """Bytes of `partial`, where accumulators wait between blocks and parts of k.

    It is an argument even where nothing waits, so that sizes need no program of their own.
    """
    tiles = problem.batch_count * b["panels_m"] * b["panels_n"] * b.get("splits", 1)
    size = config.micro_m * derived.micro_n * problem.kind.compute_itemsize
    return tiles * size if waits else 64


def workspace_in_place(config, derived, problem, profile):
    b = blocking_in_place(config, derived, problem, profile)
    size = partial_bytes(config, derived, problem, b, b["k_blocks"] > 1 or b["splits"] > 1)
    return dict(partial=dict(bytes=size, alignment=64, first=0, last=1))


def launches_in_place(entry, config, derived, problem, profile):
    """One launch; with k split, one that leaves partial sums and one that adds them up."""
    b = blocking_in_place(config, derived, problem, profile)
    common = ("sizes", "batch", "panels_m", "panels_n", "splits")
    split = b["splits"] > 1
    tiles = problem.batch_count * b["tiles_m"] * b["tiles_n"]
    found = [
        dict(
            entry=entry + "_splits" if split else entry,
            global_size=(tiles * b["splits"],),
            local_size=(1,),
            args=("a", "b", "partial", *(() if split else ("out", "scalars")), *common,
                  "per_split", "k_blocks", "block", "tiles_m", "tiles_n"),
            values=b,
        )
    ]
    if split:
        found.append(
            dict(
                entry=entry + "_reduce",
                global_size=(problem.batch_count * b["panels_m"] * b["panels_n"],),
                local_size=(1,),
                args=("partial", "out", *common, "scalars"),
                values=b,
            )
        )
    return found
%>
