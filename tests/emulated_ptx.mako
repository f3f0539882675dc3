<%doc>
The defs of parts/ptx.mako in plain OpenCL C, for devices that are not NVIDIA's: slow, and with
every copy done at once. Local addresses are bytes from the start of the kernel's array `tiles`.
</%doc>

<%def name="declarations()">\
    // what lanes of a warp tell each other
    __local double exchange[6 * ${work_items}];
    const int warp_first = get_local_id(0) & ~31, lane_row = (get_local_id(0) & 31) >> 2, lane_pair = get_local_id(0) & 3;
</%def>

<%def name="local_address(pointer)">(uint)((__local uchar *)(${pointer}) - (__local uchar *)tiles)</%def>

<%def name="cache_policy(policy, first)">${policy} = 0;</%def>

<%def name="copy_async(size, to, source, bytes=None, policy=None)">\
{
    const uint to_byte = ${to};
    __global const uchar *from_byte = (__global const uchar *)(${source});
    const int wanted = ${bytes or size};
    // only bytes that are to be read may exist; both addresses must be aligned
    const int aligned = to_byte % ${size} == 0 && (ulong)from_byte % ${size} == 0;
    for (int byte = 0; byte < ${size}; byte++)
        ((__local uchar *)tiles)[to_byte + byte] = byte >= wanted ? 0 : aligned ? from_byte[byte] : 0xff;
}\
</%def>

<%def name="commit()"></%def>
<%def name="wait(pending)"></%def>

<%def name="advance(address, bytes)">${address} += ${bytes};</%def>

<%def name="load_two(x, y, address)">\
{
    __local const double *from_two = (__local const double *)((__local const uchar *)tiles + (${address}));
    ${x} = from_two[0];
    ${y} = from_two[1];
}\
</%def>

<%def name="multiply_f64(s, a, b)">\
{
    barrier(CLK_LOCAL_MEM_FENCE);
% for i, x in enumerate((*a, *b)):
    exchange[get_local_id(0) * 6 + ${i}] = ${x};
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);
% for i in range(4):
    for (int k8 = 0; k8 < 8; k8++)
        ${s[i]} += exchange[(warp_first + lane_row * 4 + k8 % 4) * 6 + ${i // 2} + k8 / 4 * 2]
            * exchange[(warp_first + (2 * lane_pair + ${i % 2}) * 4 + k8 % 4) * 6 + 4 + k8 / 4];
% endfor
}\
</%def>

<%def name="load_matrices(r, address, transposed=False)">\
{
    __local uint *rows = (__local uint *)exchange;
    barrier(CLK_LOCAL_MEM_FENCE);
    rows[get_local_id(0)] = ${address};
    barrier(CLK_LOCAL_MEM_FENCE);
% for i, x in enumerate(r):
    {
% if transposed:
        __local const ushort *low = (__local const ushort *)((__local const uchar *)tiles + rows[warp_first + ${8 * i} + 2 * lane_pair]) + lane_row;
        __local const ushort *high = (__local const ushort *)((__local const uchar *)tiles + rows[warp_first + ${8 * i} + 2 * lane_pair + 1]) + lane_row;
        ${x} = *low | (uint)*high << 16;
% else:
        ${x} = ((__local const uint *)((__local const uchar *)tiles + rows[warp_first + ${8 * i} + lane_row]))[lane_pair];
% endif
    }
% endfor
}\
</%def>

<%def name="multiply(dtype, s, a, b)">\
<%
    count = {"float16": 2, "bfloat16": 2, "float32": 1}.get(dtype, 4)
    form = {
        "float16": "vload_half(%s, (__local const half *)words)",
        "bfloat16": "as_float((uint)((__local const ushort *)words)[%s] << 16)",
        "float32": "((__local const float *)words)[%s]",
        "int8": "((__local const char *)words)[%s]", "uint8": "((__local const uchar *)words)[%s]",
    }[dtype]
%>\
{
    __local uint *words = (__local uint *)exchange;
    barrier(CLK_LOCAL_MEM_FENCE);
% for i, x in enumerate((*a, *b)):
    words[get_local_id(0) * 6 + ${i}] = ${x};
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);
% for i in range(4):
    for (int word = 0; word < 8; word++)
        for (int part = 0; part < ${count}; part++) {
            const int of_a = ((warp_first + lane_row * 4 + word % 4) * 6 + ${i // 2} + word / 4 * 2) * ${count} + part;
            const int of_b = ((warp_first + (2 * lane_pair + ${i % 2}) * 4 + word % 4) * 6 + 4 + word / 4) * ${count} + part;
            ${s[i]} += ${form % "of_a"} * ${form % "of_b"};
        }
% endfor
}\
</%def>

<%def name="round_to_tf32(x)">${x} = (${x} + 0x1000u) & 0xffffe000u;</%def>

<%def name="pack_pair(dtype, word, low, high)">\
{
% for name, x in (("low", low), ("high", high)):
% if dtype == "float16":
    ushort bits_${name};
    vstore_half_rte(${x}, 0, (half *)&bits_${name});
% else:
    const uint wide_${name} = as_uint(${x});
    const uint bits_${name} = isnan(${x}) ? 0x7fc0u : (wide_${name} + 0x7fffu + (wide_${name} >> 16 & 1u)) >> 16;
% endif
% endfor
    ${word} = bits_low | (uint)bits_high << 16;
}\
</%def>

<%def name="scale(result, stride, factor)">${result} = (ulong)(${stride}) * ${factor};</%def>

<%def name="least(result, x, y)">${result} = (${x}) > (${y}) ? (${y}) : (${x});</%def>
<%def name="most(result, x, y)">${result} = (${x}) < (${y}) ? (${y}) : (${x});</%def>
<%def name="power_of_2(result, x)">${result} = (${x}) < -126.0f ? 0.0f : exp2(${x});</%def>
<%def name="one_by(result, x)">${result} = 1.0f / (${x});</%def>

<%def name="leave_vector(to, values)">\
{
    __global acc_t *leaving = ${to};
% for i, x in enumerate(values):
    leaving[${i}] = ${x};
% endfor
}\
</%def>

<%def name="read_vector(values, source)">\
{
    __global const volatile acc_t *reading_from = ${source};
% for i, x in enumerate(values):
    ${x} = reading_from[${i}];
% endfor
}\
</%def>

<%def name="arrive_last(before, counter, most)">\
{
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == warp_first) {
        volatile __global uint *at_counter = ${counter};
        const uint count = atomic_inc(at_counter);
        if (count == ${most}) atomic_xchg(at_counter, 0);
        ((__local uint *)exchange)[warp_first] = count;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    ${before} = ((__local uint *)exchange)[warp_first];
}\
</%def>

<%def name="fence()">mem_fence(CLK_GLOBAL_MEM_FENCE);</%def>
<%def name="read_word(word, at)">${word} = atomic_or((volatile __global uint *)(${at}), 0u);</%def>

<%def name="limit_registers(count)"></%def>

<%def name="swap_words(x, distance)">\
{
    __local uint *words = (__local uint *)exchange;
    barrier(CLK_LOCAL_MEM_FENCE);
    words[get_local_id(0)] = ${x};
    barrier(CLK_LOCAL_MEM_FENCE);
    ${x} = words[get_local_id(0) ^ ${distance}];
}\
</%def>
