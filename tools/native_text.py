"""OpenCL C with NVIDIA's PTX for this machine's processor: an instruction becomes a call.

The calls are of native/*.c. What is no instruction of parts/ptx.mako, or has another form, does not
build.
"""

import re

OPERAND = re.compile(r'\s*"([=+]?)([rlfdh])"\s*\((.*)\)\s*\Z', re.S)
TYPES = {"r": "uint", "l": "ulong", "f": "float", "d": "double", "h": "ushort"}
TERMS = {"f16": 0, "bf16": 1, "tf32": 2, "s8": 3, "u8": 4}
PRELUDE = """\
void native_local(__local void *, ulong); uint native_address(__local const void *);
void native_copy(uint, ulong, int, uint); void native_commit(void); void native_wait(int);
void native_warp(void); void native_shuffle_idx(uint *, int);
void native_shuffle_bfly(uint *, int);
void native_load_matrices(uint *, uint *, uint *, uint *, uint, int);
void native_store_matrices(uint, uint, uint, uint, uint);
void native_mma(int, void *, void *, void *, void *, uint, uint, uint, uint, uint, uint);
void native_mma_f64(double *, double *, double *, double *, double, double, double, double,
double, double); void native_load_shared(void *, uint, int);
void native_store_shared(uint, const void *, int); void native_load_global(void *, ulong, int);
void native_store_global(ulong, const void *, int); uint native_load_relaxed(ulong);
uint native_atomic_inc(ulong, uint); uint native_round_tf32(uint);
uint native_pack_half(float, float); uint native_pack_bf16(float, float);
float native_least(float, float); float native_most(float, float); float native_exp2(float);
float native_reciprocal(float); void native_counter_init(uint, uint);
void native_counter_arrive(uint, uint); void native_counter_wait(uint, uint);
void native_map(uint, __constant const char *, int, ulong); void native_publish(ulong, uint);
void native_box(uint, ulong, uint, int, int, int, int, int, int);
void native_wgmma(int, int, void **, ulong, ulong, int, int, int); void native_wgmma_commit(void);
void native_wgmma_wait(int);
"""


class UnknownInstruction(Exception):
    """PTX that is none, or none that is known here."""


def native_text(text, entry):
    """The text as C for a processor, with `native_call`, whose arguments are 64-bit words."""
    text = re.sub(r"\(uint\)\(size_t\)\(", "native_address(", text)
    lines = [_line(x) for x in text.split("\n")]
    head = " ".join(PRELUDE.split("\n"))
    return f"{head}\n#line 1\n" + "\n".join(lines) + "\n" + _caller(text, entry)


def _line(line):
    local = re.match(r"\s*__local \w+ ((\w+)\[[^\]]*\][^;=]*);", line)
    if local:
        end = local.end()
        return f"{line[:end]} native_local({local[2]}, sizeof({local[2]}));{line[end:]}"
    out, at = "", 0
    for found in re.finditer(r"\basm( volatile)?\(", line):
        if found.start() < at:
            continue
        end = _closing(line, found.end())
        out += line[at : found.start()] + _instruction(line[found.end() : end])
        at = end + 1
        at += line[at : at + 1] == ";"
    return out + line[at:]


def _closing(text, at):
    """Where the bracket that is open at `at` closes; texts in quotes do not count."""
    depth, quoted = 1, False
    while depth:
        c = text[at]
        if c == "\\":
            at += 1
        elif c == '"':
            quoted = not quoted
        elif not quoted:
            depth += (c in "([{") - (c in ")]}")
        at += 1
    return at - 1


def _split(text, mark):
    """At each mark outside of brackets and quotes."""
    parts, depth, quoted = [""], 0, False
    for c in text:
        quoted ^= c == '"'
        depth += 0 if quoted else (c in "([{") - (c in ")]}")
        if c == mark and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def _instruction(text):
    literal = re.match(r'\s*"((?:[^"\\]|\\.)*)"', text)
    template = re.sub(r"//@|\\[nt]", " ", literal[1]).strip()
    rest = _split(text[literal.end() :], ":")
    operands = []
    for part in rest[1:3]:
        for x in _split(part, ","):
            if x.strip():
                kind = OPERAND.match(x)
                if not kind:
                    raise UnknownInstruction(x)
                operands.append(kind.groups())
    if not template or template.startswith(("maxnreg", "setmaxnreg")):
        return ";"
    _check_addresses(template, [letter for _, letter, _ in operands])
    count = sum(bool(mode) for mode, _, _ in operands)
    if "wgmma.mma_async" in template:
        return _wgmma(template, operands, count)
    before, after, names = "", "", []
    for i, (mode, letter, expression) in enumerate(operands):
        start = f" = ({TYPES[letter]})({expression})" if mode != "=" else ""
        before += f"{TYPES[letter]} native_{i}{start}; "
        names.append(f"native_{i}")
        if mode:
            after += f" {expression} = native_{i};"
    return "{ " + before + _call(template, names, count) + after + " }"


def _check_addresses(template, letters):
    """Those of memory are whole numbers of 32 bits or more."""
    for i in map(int, re.findall(r"\[%(\d+)", template)):
        if i >= len(letters) or letters[i] not in "rl":
            raise UnknownInstruction(template)


def _wgmma(template, operands, count):
    condition = re.fullmatch(
        r"\{ +\.reg \.pred (\w+); +setp\.ne\.b32 \1, %(\d+), 0; +(wgmma.*) +\}", template
    )
    if condition and int(condition[2]) != count + 2:
        raise UnknownInstruction(template)
    adding = condition[1] if condition else "1"
    shape = re.fullmatch(
        r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.\w+\.(\w+)\.\w+ "
        rf"\{{(.*)\}}, %(\d+), %(\d+), {adding}(, .*)?;",
        condition[3].strip() if condition else template,
    )
    if not shape or 2 * count != int(shape[1]):
        raise UnknownInstruction(template)
    if (int(shape[5]), int(shape[6])) != (count, count + 1):
        raise UnknownInstruction(template)
    if [int(x) for x in re.findall(r"%(\d+)", shape[4])] != list(range(count)):
        raise UnknownInstruction(template)
    dtype = TERMS.get(shape[3])
    wanted = {0: 16, 1: 16, 2: 8, 3: 32, 4: 32}.get(dtype)
    tail = [int(x) for x in re.findall(r"-?\d+", shape[7] or "")]
    across = tail[2:] if dtype in (0, 1) else [0, 0]
    good = {0: 4, 1: 4, 2: 2}.get(dtype, 0) == len(tail) and tail[:2] in ([], [1, 1])
    if dtype is None or int(shape[2]) != wanted or not good or not set(across) <= {0, 1}:
        raise UnknownInstruction(template)
    sums = ", ".join(f"&({x})" for _, _, x in operands[:count])
    a, b, *rest = (f"(ulong)({x})" for _, _, x in operands[count:])
    numbers = ", ".join(str(x) for x in (*across, *(rest or [1])))
    call = f"native_wgmma({dtype}, {shape[1]}, native_sums, {a}, {b}, {numbers});"
    return f"{{ void *native_sums[] = {{ {sums} }}; {call} }}"


def _call(template, x, count):
    """The call for an instruction, of operands x, of which the first `count` are results."""
    for pattern, make in INSTRUCTIONS:
        found = re.fullmatch(pattern, template)
        if found:
            made = make(found, x, count)
            if made is None:
                break
            return made
    raise UnknownInstruction(template)


def _copy(m, x, count):
    size, given = int(m[3]), _numbers(m[4])
    wanted = len(given) - bool(m[2])
    if size not in (4, 8, 16) or m[1] == "cg" and size != 16:
        return None
    if wanted not in (0, 1) or given != [*range(2, len(x))]:
        return None
    return f"native_copy({x[0]}, {x[1]}, {size}, {x[2] if wanted else size});"


def _numbers(text):
    return [int(i) for i in re.findall(r"%(\d+)", text)]


def _mma(m, x, count):
    shape, form, dtype = m[1], m[2], m[3]
    if _numbers(m[4]) != [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3]:
        return None
    s, rest = ", ".join("&" + y for y in x[:4]), ", ".join(x[4:])
    if dtype == "f64":
        return f"native_mma_f64({s}, {rest});" if (shape, form) == ("m16n8k8", "f64") else None
    wanted = {
        "f16": "m16n8k16",
        "bf16": "m16n8k16",
        "tf32": "m16n8k8",
        "s8": "m16n8k32",
        "u8": "m16n8k32",
    }
    if wanted.get(dtype) != shape:
        return None
    return f"native_mma({TERMS[dtype]}, {s}, {rest});"


def _vector(m, x, count):
    """ld or st of several registers; m: load or store, space, count, bits."""
    n, size = int(m["n"] or 1), int(m["bits"]) // 8
    listed = _numbers(m["list"])
    values = x[:-1] if count else x[1:]
    at = x[int(m["at"])] if count else x[0]
    if len(values) != n or n not in (1, 2, 4) or n * size > 16:
        return None
    if listed != ([*range(n)] if count else [*range(1, n + 1)]):
        return None
    at = f"{at} + {m['beyond'] or 0}"
    space = "global" if m["space"].startswith("global") else "shared"
    kind = {8: "ulong", 4: "uint", 2: "ushort"}[size]
    if count:
        out = "".join(f" *({kind} *)&{v} = native_v[{i}];" for i, v in enumerate(values))
        return f"{kind} native_v[{n}]; native_load_{space}(native_v, {at}, {n * size});{out}"
    filled = "".join(f"native_v[{i}] = *({kind} *)&{v}; " for i, v in enumerate(values))
    return f"{kind} native_v[{n}]; {filled}native_store_{space}({at}, native_v, {n * size});"


def _map(m, x, count):
    field, numbers = m[1], m[2]
    value = f", {x[1]}" if len(x) > 1 else ", 0"
    index = re.sub(r"%\d+", "", numbers or "").strip(", ") or "0"
    return f'native_map({x[0]}, "{field}", {index}{value});'


def _box(m, x, count):
    rank = int(m[1])
    places = [*x[2:-1], *["0"] * 5][:5]
    if len(x) != rank + 3 or _numbers(m[2]) != list(range(2, rank + 2)):
        return None
    numbers = ", ".join(f"(int){p}" for p in places)
    return f"native_box({x[0]}, {x[1]}, {x[int(m[3])]}, {rank}, {numbers});"


def _is(text):
    return lambda m, x, count: text.format(*x, m=m)


def _matrices(m, x, count):
    across = int(bool(m[1]))
    return f"native_load_matrices(&{x[0]}, &{x[1]}, &{x[2]}, &{x[3]}, {x[4]}, {across});"


def _store_matrices(m, x, count):
    return f"native_store_matrices({x[0]} + {m['beyond'] or 0}, {', '.join(x[1:])});"


_WIDTH = r"(?:\.v(?P<n>\d))?\.[a-z](?P<bits>\d+)"
_BEYOND = r"(?: \+ (?P<beyond>\d+))?"
_TRIES = r"mbarrier\.try_wait\.parity\.shared::cta\.b64 done, \[%0\], %1;"
INSTRUCTIONS = (
    (r"cp\.async\.(ca|cg)\.shared\.global(\.L2::cache_hint)?(?:\.L2::128B)? \[%0\], \[%1\], "
     r"(\d+)((?:, %\d)*);", _copy),
    (r"createpolicy\.fractional\.L2::evict_(first|normal)\.b64 %0, 1\.0;", _is("{0} = 0;")),
    (r"cp\.async\.commit_group;", _is("native_commit();")),
    (r"cp\.async\.wait_group (\d+);", _is("native_wait({m[1]});")),
    (r"add\.s64 %0, %0, %1;", _is("{0} += {1};")),
    (r"mma\.sync\.aligned\.(\w+)\.row\.col\.(\w+)\.(\w+)\.\w+\.\w+ (.*);", _mma),
    (r"ldmatrix\.sync\.aligned\.m8n8\.x4(\.trans)?\.shared\.b16 \{%0, %1, %2, %3\}, \[%4\];",
     _matrices),
    (rf"stmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16 \[%0{_BEYOND}\], \{{%1, %2, %3, %4\}};",
     _store_matrices),
    (r"cvt\.rna\.tf32\.f32 %0, %0;", _is("{0} = native_round_tf32({0});")),
    (r"cvt\.rn\.f16x2\.f32 %0, %1, %2;", _is("{0} = native_pack_half({1}, {2});")),
    (r"cvt\.rn\.bf16x2\.f32 %0, %1, %2;", _is("{0} = native_pack_bf16({1}, {2});")),
    (r"min\.NaN\.f32 %0, %1, %2;", _is("{0} = native_least({1}, {2});")),
    (r"max\.NaN\.f32 %0, %1, %2;", _is("{0} = native_most({1}, {2});")),
    (r"ex2\.approx\.ftz\.f32 %0, %1;", _is("{0} = native_exp2({1});")),
    (r"rcp\.approx\.ftz\.f32 %0, %1;", _is("{0} = native_reciprocal({1});")),
    (r"mul\.wide\.s32 %0, %1, (-?\d+);", _is("{0} = (ulong)((long)(int){1} * {m[1]});")),
    (r"mul\.lo\.s64 %0, %1, (-?\d+);", _is("{0} = {1} * {m[1]};")),
    (r"bar\.warp\.sync 0xffffffff;", _is("native_warp();")),
    (r"shfl\.sync\.idx\.b32 %0, %0, (\d+), 31, 0xffffffff;",
     _is("native_shuffle_idx(&{0}, {m[1]});")),
    (r"shfl\.sync\.bfly\.b32 %0, %0, (\d+), 31, 0xffffffff;",
     _is("native_shuffle_bfly(&{0}, {m[1]});")),
    (r"fence\.(mbarrier_init\.release\.cluster|proxy\.async|acq_rel\.gpu);", _is(";")),
    (r"fence\.proxy\.tensormap::generic\.acquire\.gpu \[%0\], 128;", _is(";")),
    (r"atom\.relaxed\.gpu\.global\.inc\.u32 %0, \[%1\], %2;",
     _is("{0} = native_atomic_inc({1}, {2});")),
    (r"ld\.relaxed\.gpu\.global\.u32 %0, \[%1\];", _is("{0} = native_load_relaxed({1});")),
    (rf"ld\.(?P<space>shared|global\.cg){_WIDTH} \{{?(?P<list>[^}}\[]*)\}}?, "
     rf"\[%(?P<at>\d+){_BEYOND}\];", _vector),
    (rf"st\.(?P<space>shared|global){_WIDTH} \[%0{_BEYOND}\], \{{?(?P<list>[^}}]*)\}}?;", _vector),
    (r"mbarrier\.init\.shared\.b64 \[%0\], %1;", _is("native_counter_init({0}, {1});")),
    (r"mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _, \[%0\], %1;",
     _is("native_counter_arrive({0}, {1});")),
    (r"mbarrier\.arrive\.shared::cta\.b64 _, \[%0\];", _is("native_counter_arrive({0}, 0);")),
    (rf"\{{ +\.reg \.pred done; +again: {_TRIES} +@done bra over; +bra again; +over: +\}}",
     _is("native_counter_wait({0}, {1});")),
    (r"tensormap\.replace\.tile\.(\w+)\.shared::cta\.b1024\.b\d+ \[%0\], ([^;]*);", _map),
    (r"tensormap\.cp_fenceproxy\..* \[%0\], \[%1\], 128;", _is("native_publish({0}, {1});")),
    (r"cp\.async\.bulk\.tensor\.(\d)d\..*::bytes \[%0\], \[%1, \{(.*)\}\], \[%(\d+)\];", _box),
    (r"wgmma\.fence\.sync\.aligned;", _is(";")),
    (r"wgmma\.commit_group\.sync\.aligned;", _is("native_wgmma_commit();")),
    (r"wgmma\.wait_group\.sync\.aligned (\d+);", _is("native_wgmma_wait({m[1]});")),
)  # fmt: skip


def _caller(text, entry):
    """The kernel's parameters out of 64-bit words."""
    code = re.sub(r"//[^\n]*", "", text)
    found = re.search(rf"void {entry}\(([^)]*)\)", code)
    arguments = []
    for i, x in enumerate(found[1].split(",")):
        kind = x.strip().rpartition("*")[0] + "*" if "*" in x else x.split()[-2]
        if "*" in x:
            arguments.append(f"({kind.replace('restrict', '')})v[{i}]")
        else:
            arguments.append(f"*({kind} *)(v + {i})")
    return f"void native_call(ulong *v) {{ {entry}({', '.join(arguments)}); }}\n"
