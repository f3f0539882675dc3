<%!
# What the headers of the variants for NVIDIA's devices share: EXTENDS puts these names into theirs.
#
# A work-group owns a tile of tile_m x tile_n elements of the result, or, where k is cut into
# parts, its sum over one part of the terms.


def ceil_div(x, y):
    return -(-x // y)


# Outputs that are written as they are, with no conversion beyond C's own, and their bytes.
PLAIN_OUTPUTS = dict(int32=4, uint32=4, float32=4, float64=8)


def steps(micro, width, items):
    # Offset of each of a work-item's rows (columns) in the tile, from its first.
    return [i // width * items * width + i % width for i in range(micro)]


def passes(count, work_items, units, unit, along_k):
    # The offset (outer, term) of each unit that a work-item copies, from its first.
    lines = [(i * work_items // units, i * work_items % units * unit) for i in range(count)]
    return lines if along_k else [(position, line) for line, position in lines]


def strides(name, order, outer_first):
    # In the text: elements from one outer index to the next, and from one term to the next.
    row = "1" if order == "column" else name + "_row_stride"
    col = "1" if order == "row" else name + "_col_stride"
    return (row, col) if outer_first else (col, row)


def out_tiling(config, kind, width):
    """In what units a micro-tile is stored: `width` neighbours at once where that is allowed."""
    plain = kind.out.dtype in PLAIN_OUTPUTS and kind.out.alignment >= 16
    unit = width if plain and kind.out.order == "row" else 1
    elements = [(i, j) for i in range(config.micro_m) for j in range(config.micro_n)]
    return dict(
        out_unit=unit,
        out_unit_alignment=min(unit * PLAIN_OUTPUTS.get(kind.out.dtype, 1), 16),
        out_units=[elements[i : i + unit] for i in range(0, len(elements), unit)],
    )


def terms_of_parts(k, splits, tiles, units, wave, tile_k):
    """(terms of each part but the last, most terms that a compute unit gets).

    For tiles that are left to cut, each into `splits` parts; `wave` groups fill a unit, and fewer
    reach less of its speed. Where parts of one size would leave some units with one more than
    others, longer ones and a short last one share out better.
    """
    best = None
    for terms in range(ceil_div(ceil_div(k, splits), tile_k) * tile_k, k, tile_k):
        last, more = k - (splits - 1) * terms, tiles * (splits - 1) % units
        if last <= 0:
            break
        # units with as many long parts as all have, and those with one more: [terms, parts, units]
        each = tiles * (splits - 1) // units
        loads = [[each * terms, each, units - more], [(each + 1) * terms, each + 1, more]]
        loads, short = [x for x in loads if x[2]], tiles
        while short > 0:
            lightest = min(loads)
            lightest[0] += last
            lightest[1] += 1
            short -= lightest[2]
        heaviest = max(load * 4 * wave / (3 * wave + min(count, wave)) for load, count, _ in loads)
        if best is None or heaviest < best[1]:
            best = terms, heaviest
    return best


# What a kernel is told of the parts into which the sum over k is cut.
SPLIT_ARGUMENTS = ("partial", "counters", "splits", "per_split", "whole", "parts_from")


def tiles_of(config, problem, profile, tile_k):
    """How a problem is divided, in names that kernels know.

    tiles_m, tiles_n; splits: parts of k that are not empty; per_split: terms of each but the last,
    whole tiles; whole: tiles that are not divided, full waves of `wave` work-groups a compute
    unit; work: all work-groups' shares, of which parts begin with number parts_from.

    Parts come last, where they even out what units are ahead of each other; behind a single wave,
    in which that is little, they come first, so that whole tiles hide what parts wait for when
    they meet.
    """
    tiles_m, tiles_n = ceil_div(problem.m, config.tile_m), ceil_div(problem.n, config.tile_n)
    tiles = problem.batch_count * tiles_m * tiles_n
    terms = ceil_div(ceil_div(problem.k, config.splits), tile_k) * tile_k
    splits = ceil_div(problem.k, terms)
    at_once = config.wave * profile.compute_units
    whole = tiles // at_once * at_once if at_once else 0
    if splits > 1 and 0 < whole < tiles:
        terms, _ = terms_of_parts(
            problem.k, splits, tiles - whole, profile.compute_units, config.wave, tile_k)
    if splits == 1 or whole == tiles:
        splits, whole, terms = 1, tiles, problem.k
    return dict(tiles_m=tiles_m, tiles_n=tiles_n, splits=splits, per_split=terms, whole=whole,
                work=whole + (tiles - whole) * splits,
                parts_from=whole if whole > at_once and config.wave > 1 else 0)


def partial_workspace(config, t, counters, problem, launch=0):
    """What parts of k leave for each other: their sums, and so many counters for each tile."""
    if t["splits"] == 1:
        return {}
    tiles = problem.batch_count * t["tiles_m"] * t["tiles_n"] - t["whole"]
    size = t["splits"] * tiles * config.tile_m * config.tile_n * problem.kind.compute_itemsize
    return dict(
        partial=dict(bytes=size, alignment=64, first=launch, last=launch),
        counters=dict(bytes=tiles * counters * 4),
    )


def tile_launches(entry, t, derived):
    """The launch, with k in one piece or in parts."""
    common = ("sizes", "batch", "tiles_m", "tiles_n", "group_rows")
    size = dict(global_size=(t["work"] * derived.work_items,), local_size=(derived.work_items,))
    args = ("a", "b", "out", *common, "scalars")
    if t["splits"] > 1:
        entry, args = entry + "_splits", (*args, *SPLIT_ARGUMENTS)
    return [dict(entry=entry, args=args, values=t, **size)]


# The device's bytes a ns, the ns of a launch, and the multiply-adds that a busy unit does in a ns
# for each multiple of the naive kernel's speed. As gpu_header.mako has them, in seconds. A second
# launch reaches a device that is done with the first long before. Parts of k leave their sums to
# each other in the cache, from which a warp reads so much alone.
BYTES_A_NS, LAUNCH_NS, NAIVE_RATE = 3500, 4000, 13.5
SECOND_LAUNCH_NS = 14000
EXCHANGE_NS, TOGETHER_NS, CACHE_BYTES_A_NS, WARP_BYTES_A_NS = 2500, 4500, 10000, 30
LATENCY_NS = 1600
SPLITS = (*range(1, 17), 20, 24, 28, 32, 40, 48, 64, 96, 128)


def naive_ns(problem, profile):
    """How long the naive kernel takes: it is idle where there are few elements, and waits."""
    items = problem.batch_count * problem.m * problem.n
    computing = items * problem.k / (NAIVE_RATE * profile.compute_units)
    computing *= max(256 * profile.compute_units / items, 1)
    reading = 2 * problem.minimum_bytes / BYTES_A_NS
    return LAUNCH_NS + max(computing, reading, problem.k * 100)


def busy_share(groups, items, shared):
    """What part of its speed a unit reaches with so many work-groups, each of `items`.

    Four warps keep four fifths of it busy, and `shared` groups all of it.
    """
    warps, full = groups * items / 32, shared * items / 32
    if warps < 4:
        return min(0.2 * warps, 1)
    return 1 if warps >= full else 0.8 + 0.2 * (warps - 4) / max(full - 4, 1)


def turns_of(groups, items, shared, units):
    """How many groups' times a unit needs for its groups, of which `shared` run side by side."""
    full, left = divmod(groups, shared * units)
    last = ceil_div(left, units)
    rest = last / busy_share(last, items, shared) if left else 0
    # behind others they go where there is room first, and some units get several
    return full * shared + (max(rest, 0.6 * shared) if full and left else rest)


def best_splits(problem, profile, values, items, shared, speed, size, before=0, most=BYTES_A_NS,
                cache=None, together=False):
    """(splits and wave, rank) for tiles that run `shared` to a compute unit.

    items: work-items of a group. speed: of a busy unit, in multiples of a busy naive kernel's.
    size: bytes of an element of A and B. before: ns that other launches take. most: bytes a ns that
    are read where memory is the limit; cache: what all units copy from the cache. together: all
    parts of a tile add them up, or (None, 0) where they would not be there at once. Work-groups are
    started shared * units at a time; those left at the end run alone. Parts of k make more of
    them, at the price of writing and reading their sums, and may do so for these last ones only.
    """
    units, rate = profile.compute_units, NAIVE_RATE * speed
    rows, cols = min(values["tile_m"], problem.m), min(values["tile_n"], problem.n)
    tiles = problem.batch_count * ceil_div(problem.m, values["tile_m"])
    tiles *= ceil_div(problem.n, values["tile_n"])
    area = values["tile_m"] * values["tile_n"]
    bytes_read = (problem.m + problem.n) * problem.k * problem.batch_count * size
    copied = tiles * (rows + cols) * problem.k * size / cache if cache else 0
    if cache:  # what is large, and read by several tiles, comes from memory in part
        for lines, others, tile in ((problem.m, problem.n, cols), (problem.n, problem.m, rows)):
            operand = lines * problem.k * problem.batch_count * size
            if 16e6 < operand < 64e6:
                bytes_read += 0.2 * (ceil_div(others, tile) - 1) * operand
    coming = (values["stages"] - 1) * (rows + cols) * values["tile_k"] * size
    start = max(3 * values["tile_k"], 384 // size if "bytes_k" in values else 0)  # terms
    slots, best = shared * units, None
    for splits in SPLITS:
        terms = ceil_div(ceil_div(problem.k, splits), values["tile_k"]) * values["tile_k"]
        if splits > 1 and splits * 4 * values["tile_k"] > problem.k:
            break
        for wave in (0, shared) if splits > 1 and tiles > slots else (0,):
            whole = tiles // slots * slots if wave else 0
            groups = (tiles - whole) * splits
            if splits > 1 and (groups > 4 * slots or whole == tiles):
                continue
            if together and (splits == 1 or wave or groups > slots):
                continue
            turns = turns_of(groups, items, shared, units) * (terms + start)
            if whole:
                parts = ceil_div(problem.k, terms)
                longer, heaviest = terms_of_parts(
                    problem.k, parts, tiles - whole, units, wave, values["tile_k"])
                if longer != terms:
                    turns = heaviest + ceil_div(groups, units) * start
                if whole > slots:  # units are ahead of each other by then
                    turns += 0.035 * shared * longer
            turns += turns_of(whole, items, shared, units) * (problem.k + start)
            # a group that waits for memory has so many bytes on their way
            count = whole + groups
            bandwidth = min(most, min(count, slots) * coming / LATENCY_NS)
            if cache:  # rows and columns beyond the matrix take their time as well
                bandwidth *= (rows + cols) / (values["tile_m"] + values["tile_n"])
            if splits > 1 and count > units:  # some have one group more than others, and end later
                once = units if count <= slots else slots
                bandwidth *= count / once / ceil_div(count, once)
            time = LAUNCH_NS + max(turns * area / rate, bytes_read / bandwidth, copied)
            if together:
                time += TOGETHER_NS + splits * tiles * rows * cols * 8 / CACHE_BYTES_A_NS
            elif splits > 1:
                # every warp waits for its sums to be written; the last one reads all, and has few
                # reads on their way where it holds many sums
                moved = (tiles - whole) * rows * cols * 8 / CACHE_BYTES_A_NS
                warps = values.get("adding", items // 32)
                alone = area * 4 / WARP_BYTES_A_NS / warps * (1 + area / (8192 if wave else 4096))
                time += EXCHANGE_NS + splits * max(moved, alone)
            if best is None or time < best[0]:
                best = time, dict(splits=splits, wave=wave)
    if best is None:
        return None, 0
    return best[1], naive_ns(problem, profile) / (best[0] + before)


def stage(name, operand, along_k, tile, tile_k, size, work_items, offset, swizzle=None):
    """How a tile of an operand is copied and lies in a stage: see parts/nv_stage.mako.

    size: bytes of an element. offset: where it begins. swizzle: of a row number, as text; if not
    given, eight rows that are read at once lie in different banks.
    """
    row_bytes = tile_k * size if along_k else min(128, tile * size)
    swizzle = swizzle or {128: "(%s & 7)", 64: "(%s >> 1 & 3)", 32: "(%s >> 2 & 1)"}[row_bytes]
    unit = 1 if operand.order == "strided" else max(min(operand.alignment, 16) // size, 1)
    per_row = row_bytes // (unit * size)
    rows = max(work_items // per_row, 1)  # that one pass of the work-items copies
    block = row_bytes // size
    passes, block_step, term_step = [], block, rows
    if along_k:
        passes = [(i, 0) for i in range(max(tile // rows, 1))]
        fits = tile % rows == 0
    else:
        # a pass is a part of a block, or several blocks
        lines, blocks = max(tile_k // rows, 1), max(rows // tile_k, 1)
        passes = [(i, b) for i in range(lines) for b in range(0, tile // block, blocks)]
        block_step, term_step = block * blocks, rows if lines > 1 else 0
        fits = tile % block_step == 0 and max(rows, tile_k) % min(rows, tile_k) == 0
    return dict(
        along_k=along_k, tile=tile, size=size, unit=unit, per_row=per_row, row_bytes=row_bytes,
        block=block, block_step=block_step, outer_step=rows, term_step=term_step, passes=passes,
        swizzle=swizzle, offset=offset, bytes=tile * tile_k * size,
        strides=strides(name, operand.order, name == "a"),
        fits=fits and (rows % 8 == 0 or not along_k) and work_items % per_row == 0
        and (rows % 8 == 0 or rows >= tile_k),
    )


def warp_tiles(config):
    """(work-items, warps along n): a warp of 32 work-items owns warp_m x warp_n elements."""
    warps_n = max(config.tile_n // config.warp_n, 1)
    return 32 * max(config.tile_m // config.warp_m, 1) * warps_n, warps_n


def pairs_of(kind, alignment=16):
    """How two neighbouring sums of a row are stored: plain, packed, or '' (one by one).

    alignment: bytes, of what is written at once.
    """
    if kind.out.order != "row" or kind.out.alignment < alignment or kind.out.conjugate:
        return ""
    if kind.out.dtype in PLAIN_OUTPUTS:
        return "plain"
    packed = kind.out.dtype in ("float16", "bfloat16") and kind.compute == "float32"
    return "packed" if packed else ""


# ---- operands that a kernel cannot copy as they lie ------------------------------------------


def packed_pitch(problem, size):
    # bytes of a line; of long ones each begins with a line of the cache
    unit = 128 if problem.k * size > 512 else 16
    return ceil_div(problem.k * size, unit) * unit


def packed_workspace(name, packed, operand, outer, problem, size):
    """The workspace of an operand's rows (columns of B), terms side by side, lines aligned."""
    if not packed:
        return {}
    copies = problem.batch_count if any(operand.batch_strides) else 1
    pitch = packed_pitch(problem, size)
    return {"packed_" + name: dict(bytes=max(copies * outer * pitch, 16), alignment=128)}


def pack_launch(name, operand, outer, problem, size):
    """A launch that copies an operand there, 64 lines x 64 terms a work-group."""
    copies = problem.batch_count if any(operand.batch_strides) else 1
    blocks_outer, blocks_k = ceil_div(outer, 64), ceil_div(problem.k, 64)
    pitch = packed_pitch(problem, size)
    return dict(
        entry="pack_" + name,
        global_size=(copies * blocks_outer * blocks_k * 256,),
        local_size=(256,),
        args=(name, "packed_" + name, "sizes", "batch", "blocks_outer", "blocks_k", "pitch"),
        values=dict(blocks_outer=blocks_outer, blocks_k=blocks_k, pitch=pitch // size),
    )


# ---- PTX for another target ------------------------------------------------------------------


def limit_registers(binary):
    """The driver's PTX with the limit that stands in it as a comment, `//@maxnreg N`, as a line."""
    before, mark, after = binary.decode("utf-8", "replace").partition("//@maxnreg ")
    if not mark:
        return binary
    if ".reqntid" not in before:
        raise ValueError("the driver's PTX has no line .reqntid before the kernel's first")
    limit = after.split(";")[0]
    before = before.replace(".reqntid", ".maxnreg " + limit + "\n.reqntid", 1)
    return (before + mark + after).encode("utf-8")


def retarget(binary, profile):
    """The driver's PTX with the instructions that are comments in it, for sm_90a."""
    text = binary.decode("utf-8", "replace")
    if "//@" not in text:
        if "nv_wgmma" in text:
            raise ValueError("the driver's PTX has lost the instructions written as comments")
        return binary
    if ".target sm_90," not in text and ".target sm_90\n" not in text:
        raise ValueError("the driver's PTX names no target sm_90")
    text = text.replace("//@", "").replace(".target sm_90,", ".target sm_90a,")
    return text.replace(".target sm_90\n", ".target sm_90a\n").encode("utf-8")
%>
