<%doc>
The kernel that copies an operand to packed_x: [copy][row of A, column of B][term], each line's
start aligned to 16 bytes, so that what no other kernel can copy in whole lines (odd strides,
transposed TF32 or 8-bit elements) lies as they want it. Elements are moved as bits.
</%doc>
<%namespace name="index" file="parts/index.mako"/>

<%def name="pack(x)">
<%
    extent = "m" if x == "a" else "n"
    along_k = orders[x] == ("row" if x == "a" else "column")
    word = {1: "uchar", 2: "ushort", 4: "uint"}[size]
    row, col = ("outer", "term") if x == "a" else ("term", "outer")
%>\
// One work-group moves 64 lines x 64 terms; it reads along the operand's lines and writes along the
// packed ones, and the block lies in local memory in between.
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void ${entry}(${parameters}) {
    __local ${word} block[64 * 65];
    const index_t group = get_group_id(0);
    const index_t copy = group / (blocks_outer * blocks_k);
    const index_t place = group - copy * blocks_outer * blocks_k;
    const index_t first_outer = place / blocks_k * 64, first_term = place % blocks_k * 64;
    const int item = get_local_id(0), line = item / 64, position = item % 64;
${index.bases("copy")}
    __global const ${word} *source = (__global const ${word} *)${x};
    const int inside = first_outer + 64 <= ${extent} && first_term + 64 <= k;
    // all reads of a work-item are under way before the first is needed
    ${word} kept[16];
% for condition in ("inside", None):
    ${"if (inside) {" if condition else "} else {"}
        #pragma unroll
        for (int step = 0; step < 16; step++) {
            const int i = line + 4 * step;
            const index_t outer = first_outer + ${"i" if along_k else "position"}, term = first_term + ${"position" if along_k else "i"};
            ${"" if condition else f"if (outer < {extent} && term < k) "}kept[step] = source[${index.at(x, row, col)}];
        }
% endfor
    }
    #pragma unroll
    for (int step = 0; step < 16; step++) block[${"(line + 4 * step) * 65 + position" if along_k else "position * 65 + line + 4 * step"}] = kept[step];
    barrier(CLK_LOCAL_MEM_FENCE);
    // 16 bytes at a time: what is behind the last term is within the line, and nobody reads it
    __global ${word} *to = (__global ${word} *)packed_${x} + ((size_t)copy * ${extent} + first_outer) * pitch + first_term;
    #pragma unroll
    for (int i = item / ${4 * size}; i < 64; i += ${64 // size}) {
        const int term = item % ${4 * size} * ${16 // size};
        __local const ${word} *from = block + i * 65 + term;
        uint4 chunk;
% for q, part in enumerate("xyzw"):
        chunk.${part} = ${" | ".join(f"(uint)from[{q * (4 // size) + e}]" + (f" << {8 * size * e}" if e else "") for e in range(4 // size))};
% endfor
        if (first_outer + i < ${extent} && first_term + term < k) *(__global uint4 *)(to + (size_t)i * pitch + term) = chunk;
    }
}
</%def>
