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
    word = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}[size]
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
    for (int i = line; i < 64; i += 4) {
        const index_t outer = first_outer + ${"i" if along_k else "position"}, term = first_term + ${"position" if along_k else "i"};
        if (outer < ${extent} && term < k)
            block[${"i * 65 + position" if along_k else "position * 65 + i"}] = source[${index.at(x, row, col)}];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __global ${word} *to = (__global ${word} *)packed_${x} + ((size_t)copy * ${extent} + first_outer) * pitch + first_term;
    for (int i = line; i < 64; i += 4)
        if (first_outer + i < ${extent} && first_term + position < k) to[(size_t)i * pitch + position] = block[i * 65 + position];
}
</%def>
