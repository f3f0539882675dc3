<%doc>
NVIDIA's instructions, one a def: inline PTX, which this vendor's OpenCL C takes as it is. The
section numbers are those of the PTX ISA manual, version 8. Local memory is addressed by 32-bit
numbers here, as the instructions want it: `local_address` makes one from a pointer.
tests/emulated_ptx.mako has the same defs in plain OpenCL C, so that any device can run the
kernels that use them, slowly.
</%doc>

<%def name="declarations()">\
</%def>

<%def name="local_address(pointer)">(uint)(size_t)(${pointer})</%def>

<%doc>
cp.async (9.7.9.25.3.1): `size` bytes (4, 8 or 16) from global to local memory while the thread
goes on. `bytes` of them are read, and zeros stand for the rest; both addresses are aligned to
`size`. Copies of 16 bytes pass the first cache by. policy: what becomes of the second cache's lines.
</%doc>
<%def name="copy_async(size, to, source, bytes=None, policy=None)">\
asm volatile("cp.async.${"cg" if size == 16 else "ca"}.shared.global${".L2::cache_hint" if policy else ""}${".L2::128B" if size == 16 else ""} [%0], [%1], ${size}${", %2" if bytes else ""}${", %%%d" % (3 if bytes else 2) if policy else ""};" :: "r"(${to}), "l"(${source})${', "r"(%s)' % bytes if bytes else ""}${', "l"(%s)' % policy if policy else ""} : "memory");\
</%def>

<%doc>
createpolicy.fractional (9.7.9.18): lines that are brought so leave the second cache first, or as
lines usually do.
</%doc>
<%def name="cache_policy(policy, first)">\
asm("createpolicy.fractional.L2::evict_${"first" if first else "normal"}.b64 %0, 1.0;" : "=l"(${policy}));\
</%def>

<%doc>
cp.async.commit_group and wait_group (9.7.9.25.3.2, .3): the copies that a thread has begun since
the last commit become a group; wait until at most `pending` of the last groups are on their way.
</%doc>
<%def name="commit()">\
asm volatile("cp.async.commit_group;" ::: "memory");\
</%def>
<%def name="wait(pending)">\
asm volatile("cp.async.wait_group ${pending};" ::: "memory");\
</%def>

<%doc>
add.s64 (9.7.1.1), on an address: written out, so that the compiler keeps one address and not one
for each copy.
</%doc>
<%def name="advance(address, bytes)">\
asm volatile("add.s64 %0, %0, %1;" : "+l"(${address}) : "l"(${bytes}));\
</%def>

<%doc>
ld.shared.v2 (9.7.9.8): 16 bytes of local memory as two doubles.
</%doc>
<%def name="load_two(x, y, address)">\
asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(${x}), "=d"(${y}) : "r"(${address}) : "memory");\
</%def>

<%doc>
mma.sync.m16n8k8 for float64 (9.7.14.5.9): sum[16][8] += A[16][8] * B[8][8] by the 32 work-items of
a warp. Of lane l, with g = l / 4 and t = l % 4:

    a[0] A[g][t]    a[1] A[g+8][t]    a[2] A[g][t+4]    a[3] A[g+8][t+4]
    b[0] B[t][g]    b[1] B[t+4][g]
    s[0] sum[g][2t]    s[1] sum[g][2t+1]    s[2] sum[g+8][2t]    s[3] sum[g+8][2t+1]
</%doc>
<%def name="multiply_f64(s, a, b)">\
asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : ${", ".join('"+d"(%s)' % x for x in s)} : ${", ".join('"d"(%s)' % x for x in (*a, *b))});\
</%def>

<%doc>
ldmatrix.x4 (9.7.14.5.15): lane l gives the address of 16 bytes, row l % 8 of matrix l / 8; of
each of the four matrices of 8 rows x 16 bytes every lane gets 4 bytes: of row l / 4, number l % 4.
With `transposed`, for 16-bit elements, (l % 4) * 2 and the next are the rows and l / 4 the column.
</%doc>
<%def name="load_matrices(r, address, transposed=False)">\
asm volatile("ldmatrix.sync.aligned.m8n8.x4${".trans" if transposed else ""}.shared.b16 {%0, %1, %2, %3}, [%4];" : ${", ".join('"=r"(%s)' % x for x in r)} : "r"(${address}) : "memory");\
</%def>

<%doc>
mma.sync.m16n8 with 32 bytes of terms (9.7.14.5.7, .8, .10): sum[16][8] += A[16][K] * B[K][8] by a
warp, K = 16 for 16-bit floats, 8 for TF32, 32 for 8-bit integers. Each of a and b is 4 bytes of
neighbouring terms; of lane l, with g = l / 4, t = l % 4 and T the 4-byte number along the terms:

    a[0] A[g][T = t]    a[1] A[g+8][T = t]    a[2] A[g][T = t+4]    a[3] A[g+8][T = t+4]
    b[0] B[T = t][g]    b[1] B[T = t+4][g]
    s[0] sum[g][2t]    s[1] sum[g][2t+1]    s[2] sum[g+8][2t]    s[3] sum[g+8][2t+1]
</%doc>
<%def name="multiply(dtype, s, a, b)"><%
    shape, result, term = {
        "float16": ("m16n8k16", "f32", "f16"), "bfloat16": ("m16n8k16", "f32", "bf16"),
        "float32": ("m16n8k8", "f32", "tf32"), "int8": ("m16n8k32", "s32", "s8"),
        "uint8": ("m16n8k32", "s32", "u8"),
    }[dtype]
    register = "f" if result == "f32" else "r"
%>asm volatile("mma.sync.aligned.${shape}.row.col.${result}.${term}.${term}.${result} {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : ${", ".join('"+%s"(%s)' % (register, x) for x in s)} : ${", ".join('"r"(%s)' % x for x in (*a, *b))});\
</%def>

<%doc>
cvt.rna.tf32.f32 (9.7.9.21): the bits of a float32 rounded to the 11 bits that TF32 keeps.
</%doc>
<%def name="round_to_tf32(x)">\
asm volatile("cvt.rna.tf32.f32 %0, %0;" : "+r"(${x}));\
</%def>

<%doc>
cvt.rn.f16x2.f32 and bf16x2 (9.7.9.21): two float32 numbers rounded to 16 bits each, in one word.
</%doc>
<%def name="pack_pair(dtype, word, low, high)">\
asm("cvt.rn.${"f16x2" if dtype == "float16" else "bf16x2"}.f32 %0, %1, %2;" : "=r"(${word}) : "f"(${high}), "f"(${low}));\
</%def>

<%doc>
min and max with NaN (9.7.3.11, .12), ex2.approx and rcp.approx (9.7.3.21, .13) of float32: numbers that
are no number stay so; errors of 2 and 1 units of the last place, and 0 for subnormal numbers.
</%doc>
<%def name="least(result, x, y)">\
asm("min.NaN.f32 %0, %1, %2;" : "=f"(${result}) : "f"(${x}), "f"(${y}));\
</%def>
<%def name="most(result, x, y)">\
asm("max.NaN.f32 %0, %1, %2;" : "=f"(${result}) : "f"(${x}), "f"(${y}));\
</%def>
<%def name="power_of_2(result, x)">\
asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(${result}) : "f"(${x}));\
</%def>
<%def name="one_by(result, x)">\
asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(${result}) : "f"(${x}));\
</%def>

<%doc>
mul.wide.s32 and mul.lo.s64 (9.7.1.3): a stride of `index_t` elements in bytes. Written out, so that
it is computed where it is used and takes no register in between.
</%doc>
<%def name="scale(result, stride, factor)">\
% if kind.index == "int":
asm volatile("mul.wide.s32 %0, %1, ${factor};" : "=l"(${result}) : "r"(${stride}));\
% else:
asm volatile("mul.lo.s64 %0, %1, ${factor};" : "=l"(${result}) : "l"(${stride}));\
% endif
</%def>

<%doc>
---- Hopper's own instructions --------------------------------------------------------------------

The driver compiles OpenCL C for sm_90, which has no wgmma and no tensormap.replace; sm_90a has
them. Such an instruction is written as a PTX comment here, `//@…`, whose operands the compiler
fills in all the same; after the build `retarget` (parts/nv_header.mako) takes the marks away and
names sm_90a.
</%doc>

<%doc>
mbarrier (9.7.13.15): a counter in local memory. init: how many arrivals complete a phase; expect:
arrive, and let the phase wait for so many bytes of bulk copies too; arrive; wait: until the phase
of this parity (0, 1, 0, …) is complete.
</%doc>
<%def name="barrier_init(at, count)">\
asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(${at}), "r"(${count}) : "memory");\
</%def>
<%def name="barrier_init_done()">\
asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async;" ::: "memory");\
</%def>
<%def name="barrier_expect(at, bytes)">\
asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(${at}), "r"(${bytes}) : "memory");\
</%def>
<%def name="barrier_arrive(at)">\
asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(${at}) : "memory");\
</%def>
<%def name="barrier_wait(at, parity)">\
asm volatile("{\n\t.reg .pred done;\n\tagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t@done bra over;\n\tbra again;\n\tover:\n\t}" :: "r"(${at}), "r"(${parity}) : "memory");\
</%def>

<%doc>
cp.async.bulk.tensor (9.7.9.25.5): one thread has a box of a tensor copied to local memory; the
box's bytes count for the barrier's phase. Places outside the tensor are filled with zeros.
</%doc>
<%def name="copy_box(to, map, coordinates, at)"><%
    places = ", ".join("%%%d" % (2 + i) for i in range(len(coordinates)))
%>asm volatile("cp.async.bulk.tensor.${len(coordinates)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {${places}}], [%${2 + len(coordinates)}];" :: "r"(${to}), "l"(${map}), ${", ".join('"r"((int)(%s))' % x for x in coordinates)}, "r"(${at}) : "memory");\
</%def>

<%doc>
tensormap.replace (9.7.9.26.1): the fields of a tensor map, the 128 bytes that describe a tensor to
the copy engine: here at `map` in local memory, which was all zeros. extents and box in elements
from the innermost dimension on; strides in bytes, of all dimensions but the innermost.
</%doc>
<%def name="tensor_map(map, address, dtype, extents, strides, box)"><%
    number = {"float16": 6, "bfloat16": 10, "float32": 11, "int8": 0, "uint8": 0}[dtype]  # 11: TF32
    rank = len(extents)
%>\
        {
            const ulong map_address = ${address};
            asm volatile("//@tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" :: "r"(${map}), "l"(map_address) : "memory");
            asm volatile("//@tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], ${rank - 1};" :: "r"(${map}) : "memory");
% for i in range(rank):
            asm volatile("//@tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], ${i}, %1;" :: "r"(${map}), "r"((uint)(${box[i]})) : "memory");
            asm volatile("//@tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], ${i}, %1;" :: "r"(${map}), "r"((uint)(${extents[i]})) : "memory");
            asm volatile("//@tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], ${i}, %1;" :: "r"(${map}), "r"(1u) : "memory");
% endfor
% for i in range(rank - 1):
            asm volatile("//@tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], ${i}, %1;" :: "r"(${map}), "l"((ulong)(${strides[i]})) : "memory");
% endfor
            asm volatile("//@tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], ${number};" :: "r"(${map}) : "memory");
            asm volatile("//@tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" :: "r"(${map}) : "memory");
            asm volatile("//@tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;" :: "r"(${map}) : "memory");
            asm volatile("//@tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 0;" :: "r"(${map}) : "memory");
        }
</%def>

<%doc>
tensormap.cp_fenceproxy (9.7.9.26.2) and fence.proxy.tensormap (9.7.13.4): a warp copies a map from
local to global memory, where the copy engine reads it; whoever uses it fences first.
</%doc>
<%def name="publish_map(to, map)">\
asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
        asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" :: "l"(${to}), "r"(${map}) : "memory");\
</%def>
<%def name="acquire_map(map)">\
asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(${map}) : "memory");\
</%def>

<%doc>
wgmma.mma_async (9.7.15.5.2): sum[64][N] += A[64][K] * B[K][N] by the 128 work-items of four warps,
with 32 bytes of terms, from tiles in local memory that two descriptors tell (9.7.15.5.1). Of lane l
of warp w, with g = l / 4 and t = l % 4:

    s[4j] sum[16w+g][8j+2t]    s[4j+1] …[8j+2t+1]    s[4j+2] sum[16w+g+8][8j+2t]    s[4j+3] …[8j+2t+1]

If `adding`, a condition, does not hold, the product is not added to the sums but takes their place.
Instructions between fence and commit are a group; wait: until `pending` groups are under way.
</%doc>
<%def name="warpgroup_multiply(dtype, columns, s, a, b, a_across, b_across, adding=None)"><%
    shape = {
        "float16": "k16.f32.f16.f16", "bfloat16": "k16.f32.bf16.bf16", "float32": "k8.f32.tf32.tf32",
        "int8": "k32.s32.s8.s8", "uint8": "k32.s32.u8.u8",
    }[dtype]
    tail = {"float32": ", 1, 1", "int8": "", "uint8": ""}.get(dtype, ", 1, 1, %d, %d" % (a_across, b_across))
    register = "r" if "int" in dtype else "f"
    count = len(s)
    places = ", ".join("%%%d" % i for i in range(count))
    sums = ", ".join('"+%s"(%s)' % (register, x) for x in s)
    before, after, condition = "", "", ""
    if adding:
        before = "{\\n\\t.reg .pred adding;\\n\\tsetp.ne.b32 adding, %%%d, 0;\\n\\t" % (count + 2)
        after, condition = "\\n\\t}", ', "r"((int)(%s))' % adding
%>asm volatile("${before}//@wgmma.mma_async.sync.aligned.m64n${columns}${shape} {${places}}, %${count}, %${count + 1}, ${"adding" if adding else "1"}${tail};${after}" : ${sums} : "l"(${a}), "l"(${b})${condition} : "memory");\
</%def>
<%def name="warpgroup_fence()">\
asm volatile("//@wgmma.fence.sync.aligned;" ::: "memory");\
</%def>
<%def name="warpgroup_commit()">\
asm volatile("//@wgmma.commit_group.sync.aligned;" ::: "memory");\
</%def>
<%def name="warpgroup_wait(pending)">\
asm volatile("//@wgmma.wait_group.sync.aligned ${pending};" ::: "memory");\
</%def>

<%doc>
setmaxnreg (9.7.19.5): the work-items of a group of four warps give back registers down to `count`,
or wait until there are enough to have `count`. A kernel's are shared out evenly when it starts.
</%doc>
<%def name="fewer_registers(count)">\
asm volatile("//@setmaxnreg.dec.sync.aligned.u32 ${count};" ::: "memory");\
</%def>
<%def name="more_registers(count)">\
asm volatile("//@setmaxnreg.inc.sync.aligned.u32 ${count};" ::: "memory");\
</%def>

<%doc>
An empty statement that a compiler must suppose to change the sums: they are complete before it.
</%doc>
<%def name="hold(s, dtype)"><%
    register = "r" if "int" in dtype else "f"
%>asm volatile("" : ${", ".join('"+%s"(%s)' % (register, x) for x in s)} :: "memory");\
</%def>

<%doc>
bar.warp.sync (9.7.13.2), st.shared and ld.shared of one, two or four words (9.7.9.12, .8): lanes of a
warp exchange words. beyond: bytes behind the address, which then needs no register of its own.
</%doc>
<%def name="warp_barrier()">\
asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");\
</%def>
<%!
def address(operand, beyond):
    return f"[%{operand} + {beyond}]" if beyond else f"[%{operand}]"
%>
<%def name="store_words(at, words, beyond=0)"><%
    register = "f" if compute.kind == "real" else "r"
    several, listed = "", "%1"
    if len(words) > 1:
        several, listed = f".v{len(words)}", "{%s}" % ", ".join(f"%{1 + i}" for i in range(len(words)))
%>asm volatile("st.shared${several}.b32 ${address(0, beyond)}, ${listed};" :: "r"(${at}), ${", ".join(f'"{register}"({x})' for x in words)} : "memory");\
</%def>
<%def name="load_pair(x, y, at, beyond=0)"><%
    register = "f" if compute.kind == "real" else "r"
%>asm volatile("ld.shared.v2.b32 {%0, %1}, ${address(2, beyond)};" : "=${register}"(${x}), "=${register}"(${y}) : "r"(${at}) : "memory");\
</%def>
<%def name="load_four(v, at, beyond=0)">\
asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, ${address(4, beyond)};" : ${", ".join('"=r"(%s.%s)' % (v, q) for q in "xyzw")} : "r"(${at}) : "memory");\
</%def>

<%doc>
stmatrix.x4 (9.7.14.5.16): the reverse of ldmatrix: lane l gives the address of 16 bytes, row l % 8
of matrix l / 8, and 4 bytes of each matrix: of row l / 4, number l % 4. ld.shared.u16: 2 bytes.
</%doc>
<%def name="store_matrices(at, words, beyond=0)">\
asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 ${address(0, beyond)}, {%1, %2, %3, %4};" :: "r"(${at}), ${", ".join('"r"(%s)' % x for x in words)} : "memory");\
</%def>
<%def name="load_half(x, at)">\
asm volatile("ld.shared.u16 %0, [%1];" : "=h"(${x}) : "r"(${at}) : "memory");\
</%def>

<%doc>
st.global and ld.global.cg (9.7.9.12, .8): 16 bytes, read from the second cache, which all units share.
</%doc>
<%def name="leave_vector(to, values)"><%
    form, register = {"float": ("f32", "f"), "double": ("f64", "d")}.get(compute.scalar, ("b32", "r"))
%>asm volatile("st.global.v${len(values)}.${form} [%0], {${", ".join("%%%d" % (i + 1) for i in range(len(values)))}};" :: "l"(${to}), ${", ".join('"%s"(%s)' % (register, x) for x in values)} : "memory");\
</%def>
<%def name="read_vector(values, source)"><%
    form, register = {"float": ("f32", "f"), "double": ("f64", "d")}.get(compute.scalar, ("b32", "r"))
%>asm volatile("ld.global.cg.v${len(values)}.${form} {${", ".join("%%%d" % i for i in range(len(values)))}}, [%${len(values)}];" : ${", ".join('"=%s"(%s)' % (register, x) for x in values)} : "l"(${source}) : "memory");\
</%def>

<%doc>
atom.inc, fence.acq_rel and shfl.sync (9.7.13.5, .4; 9.7.9.6): a warp counts itself, once what it wrote
can be seen by all; every lane gets the count before, 0 to most. After `most` comes 0.
</%doc>
<%def name="arrive_last(before, counter, most)">\
asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
                ${before} = 0;
                if ((get_local_id(0) & 31) == 0) {
                    asm volatile("fence.acq_rel.gpu;" ::: "memory");
                    asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(${before}) : "l"(${counter}), "r"(${most}) : "memory");
                    asm volatile("fence.acq_rel.gpu;" ::: "memory");
                }
                asm volatile("shfl.sync.idx.b32 %0, %0, 0, 31, 0xffffffff;" : "+r"(${before}) :: "memory");
                asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");\
</%def>

<%doc>
fence.acq_rel (9.7.13.4): what this thread has read or written comes before what it does from now on,
for all of the device. ld.relaxed (9.7.9.8): a number as others have left it by now.
</%doc>
<%def name="fence()">\
asm volatile("fence.acq_rel.gpu;" ::: "memory");\
</%def>
<%def name="read_word(word, at)">\
asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(${word}) : "l"(${at}) : "memory");\
</%def>

<%doc>
shfl.sync.bfly (9.7.9.6): a word of the lane whose number differs by `distance`, a power of 2.
</%doc>
<%def name="swap_words(x, distance)">\
asm volatile("shfl.sync.bfly.b32 %0, %0, ${distance}, 31, 0xffffffff;" : "+r"(${x}) :: "memory");\
</%def>

<%doc>
.maxnreg (11.4.1): the most registers that the assembler may give a work-item. A comment here, which
`limit_registers` (parts/nv_header.mako) turns into a line before the kernel.
</%doc>
<%def name="limit_registers(count)">\
asm volatile("//@maxnreg ${count};");\
</%def>
