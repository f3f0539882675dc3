// What OpenCL C compiled for this machine's processor needs to run: work-items as fibers, which
// change at barriers and where lanes of a warp meet, and the builtins that NVIDIA's kernels use.
// Every access to memory is checked: -fsanitize=address calls the functions below.
#include "native.h"

#include <immintrin.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

typedef struct { u64 begin, end; int writable; } Region;

void native_switch(void **save, void *to);
__asm__(".text\n.globl native_switch\nnative_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");

Group *group;
Item *self;
int mode;
static Group *groups[MOST_GROUPS];
static Region regions[MOST_REGIONS], locals[MOST_REGIONS];
static int region_count, local_count, items_of_group, row_items;
static u64 group_count, *arguments, local_bytes;
static void (*entry)(u64 *);
static void *scheduler;
static char fault[300];

static int scheduling;
static jmp_buf stop;

void leave(void) { native_switch(&self->sp, scheduler); }

static void note(const char *what, u64 at, u64 size) {
    if (!fault[0]) {
        u64 best = 0;
        long long past = 0;
        for (int i = 0; i < region_count; i++)  // the nearest buffer that begins before it
            if (regions[i].begin <= at && regions[i].begin > best) {
                best = regions[i].begin;
                past = (long long)(at - regions[i].end);
            }
        snprintf(fault, sizeof fault, "%s (%llu bytes, %lld behind a buffer's end; group %llu, item %d)", what,
                 (unsigned long long)size, past, (unsigned long long)group->id, self->item);
    }
}
void wrong(const char *what, u64 at, u64 size) {
    note(what, at, size);
    if (scheduling) longjmp(stop, 1);
    leave();  // for ever
}

void check(u64 at, u64 size, int writes) {
    u64 stacks = (u64)group->stacks;
    if (at >= stacks && at + size <= stacks + (u64)STACK * items_of_group) return;
    for (int i = 0; i < local_count; i++)
        if (at >= locals[i].begin && at + size <= locals[i].end) return;
    for (int i = 0; i < region_count; i++)
        if (at >= regions[i].begin && at + size <= regions[i].end && (regions[i].writable || !writes)) return;
    wrong(writes ? "wrote outside" : "read outside", at, size);
}
#define CHECKS(n) \
    void __asan_load##n(u64 at) { aligned(at, n); check(at, n, 0); } \
    void __asan_store##n(u64 at) { aligned(at, n); check(at, n, 1); }
CHECKS(1) CHECKS(2) CHECKS(4) CHECKS(8) CHECKS(16)
void __asan_loadN(u64 at, u64 size) { check(at, size, 0); }
void __asan_storeN(u64 at, u64 size) { check(at, size, 1); }
void __asan_init(void) {}
void __ubsan_handle_out_of_bounds(void *place, u64 index) { wrong("an index outside of an array", 0, 0); }
void __asan_version_mismatch_check_v8(void) {}
void __asan_handle_no_return(void) {}
void *__asan_memset(void *to, int x, u64 n) { check((u64)to, n, 1); return memset(to, x, n); }
void *__asan_memcpy(void *to, const void *from, u64 n) {
    check((u64)from, n, 0);
    check((u64)to, n, 1);
    return memcpy(to, from, n);
}

// ---- local memory, whose addresses have 32 bits in PTX -----------------------------------------

enum { LOCAL_BEGIN = 1024 };

void native_local(void *at, u64 size) {
    for (int i = 0; i < local_count; i++)
        if (locals[i].begin == (u64)at) return;
    locals[local_count++] = (Region){(u64)at, (u64)at + size, 1};
    local_bytes += size;
    memset(at, 0xff, size);
}
void *local_at(u32 address, u64 size, int writes) {
    if (!local_count) wrong("no local memory", address, size);
    u64 at = locals[0].begin + (long)address - LOCAL_BEGIN;
    for (int i = 0; i < local_count; i++)
        if (at >= locals[i].begin && at + size <= locals[i].end) return (void *)at;
    wrong(writes ? "wrote outside local memory" : "read outside local memory", at, size);
    return 0;
}
u32 native_address(const void *at) { return (u32)((u64)at - locals[0].begin + LOCAL_BEGIN); }
void aligned(u64 at, u64 size) {
    if (at % size) wrong("an address that is not aligned", at, size);
}

// ---- builtins ----------------------------------------------------------------------------------

// Groups lie along dimension 0 alone, their items along two at most.
u64 _Z12get_group_idj(u32 d) { return d ? 0 : group->id; }
u64 _Z14get_num_groupsj(u32 d) { return d ? 1 : group_count; }
u64 _Z12get_local_idj(u32 d) { return d == 0 ? self->item % row_items : d == 1 ? self->item / row_items : 0; }
u64 _Z14get_local_sizej(u32 d) { return d == 0 ? row_items : d == 1 ? items_of_group / row_items : 1; }
u64 _Z13get_global_idj(u32 d) {
    return _Z12get_group_idj(d) * _Z14get_local_sizej(d) + _Z12get_local_idj(d);
}
void _Z7barrierj(u32 flags) { self->state = AT_BARRIER; leave(); }
int _Z3minii(int x, int y) { return x < y ? x : y; }
u32 _Z3minjj(u32 x, u32 y) { return x < y ? x : y; }
long _Z3minll(long x, long y) { return x < y ? x : y; }
int _Z3maxii(int x, int y) { return x > y ? x : y; }
int _Z5clampiii(int x, int a, int b) { return x < a ? a : x > b ? b : x; }
long _Z5clamplll(long x, long a, long b) { return x < a ? a : x > b ? b : x; }
float _Z4fabsf(float x) { return x < 0 ? -x : x == 0 ? 0 : x; }
float _Z4fmaxff(float x, float y) { return x != x || x < y ? y : x; }
float _Z10vload_halfmPU8CLglobalKDh(u64 i, const u16 *p) {
    check((u64)(p + i), 2, 0);
    return _cvtsh_ss(p[i]);
}
static void put_half(float x, u64 i, u16 *p) {
    check((u64)(p + i), 2, 1);
    p[i] = _cvtss_sh(x, 0);
}
void _Z15vstore_half_rtedmPU8CLglobalDh(double x, u64 i, u16 *p) {
    _Float16 half = (_Float16)x;
    check((u64)(p + i), 2, 1);
    memcpy(p + i, &half, 2);
}
void _Z15vstore_half_rtefmPU8CLglobalDh(float x, u64 i, u16 *p) { put_half(x, i, p); }
void _Z15vstore_half_rtefmPU9CLprivateDh(float x, u64 i, u16 *p) { put_half(x, i, p); }
// What groups tell each other by: others may go on before it happens.
static void meanwhile(u32 *p) {
    check((u64)p, 4, 1);
    if (!(mode & TOGETHER)) return;
    group->yielded = 1;
    leave();
}
u32 _Z10atomic_addPU8CLglobalVjj(u32 *p, u32 x) {
    meanwhile(p);
    u32 old = *p;
    *p += x;
    return old;
}
u32 _Z11atomic_xchgPU8CLglobalVjj(u32 *p, u32 x) {
    meanwhile(p);
    u32 old = *p;
    *p = x;
    return old;
}
u32 _Z14atomic_cmpxchgPU8CLglobalVjjj(u32 *p, u32 x, u32 y) {
    meanwhile(p);
    u32 old = *p;
    if (old == x) *p = y;
    return old;
}

void meet(int kind, void *mine, void (*what)(void **)) {
    Warp *warp = &group->warps[self->item / 32];
    int first = self->item / 32 * 32;
    if (warp->count && warp->kind != kind) wrong("lanes of a warp are at different instructions", 0, 0);
    warp->kind = kind;
    warp->lane[self->item % 32] = mine;
    if (++warp->count < 32) {
        self->state = AT_WARP;
        leave();
        return;
    }
    warp->count = 0;
    if (what) what(warp->lane);
    for (int i = 0; i < 32; i++) group->items[first + i].state = READY;
}
void wait_until(int (*ready)(void *), void *what) {
    if (ready(what)) return;
    self->ready = ready;
    self->what = what;
    self->state = POLLING;
    leave();
}
// ---- groups and their items --------------------------------------------------------------------

static void body(void) {
    entry(arguments);
    self->state = DONE;
    leave();
}
static void begin(Group *g) {
    g->begun = 1;
    memset(g->warps, 0, sizeof g->warps);
    for (int i = 0; i < items_of_group; i++) {
        Item *x = &g->items[i];
        free(x->copies);
        *x = (Item){.item = i};
        void **top = (void **)(g->stacks + (size_t)(i + 1) * STACK - 72);
        *--top = (void *)body;
        for (int r = 0; r < 6; r++) *--top = 0;
        x->sp = top;
    }
    for (int i = 0; i < local_count; i++) memset((void *)locals[i].begin, 0xff, locals[i].end - locals[i].begin);
    clear_hopper();
}
static void keep_local(Group *g, int back) {
    if (!g->local) g->local = malloc(1 << 20);
    u64 at = 0;
    for (int i = 0; i < local_count; i++) {
        u64 size = locals[i].end - locals[i].begin;
        if (back) memcpy((void *)locals[i].begin, g->local + at, size);
        else memcpy(g->local + at, (void *)locals[i].begin, size);
        at += size;
    }
}
// One round of a group's items; 0 if nothing went on.
static int go_round(void) {
    volatile int ran = 0, here = 0;  // items that went on; of those side by side
    int open = 0, waits = 0, ahead = mode & LATE ? 128 : 32;
    scheduling = 1;
    if (setjmp(stop)) return 0;
    for (int j = 0; j < items_of_group && !fault[0]; j++) {
        self = &group->items[mode & BACKWARDS ? items_of_group - 1 - j : j];
        if (self->state == POLLING && self->ready(self->what)) self->state = READY;
        if (self->state == READY) {
            scheduling = 0;
            native_switch(&scheduler, self->sp);
            scheduling = 1;
            ran = here = 1;
        }
        if (j % ahead != ahead - 1) continue;
        if (here && mode & TOGETHER && !group->yielded) j = -1;  // the first go as far as they can, ahead of the others
        here = 0;
    }
    for (int j = 0; j < items_of_group; j++) {
        open += group->items[j].state != DONE;
        waits += group->items[j].state == AT_BARRIER;
    }
    if (fault[0]) return 0;
    group->over = open == 0;
    if (open && waits == open) {
        for (int j = 0; j < items_of_group; j++)
            if (group->items[j].state == AT_BARRIER) group->items[j].state = READY;
        ran = 1;
    }
    if (!ran && open) ran = bring_one();
    return ran;
}

void too_long(int number) {
    note("work-items go on without an end", 0, 0);
    if (!scheduling) leave();  // else the loops end by themselves
}
static void limit(int seconds) {
    struct sigaction action = {.sa_handler = too_long, .sa_flags = SA_NODEFER};
    sigaction(SIGVTALRM, &action, 0);
    setitimer(ITIMER_VIRTUAL, &(struct itimerval){{0, 0}, {seconds, 0}}, 0);
}

// How many turns of the others a group lets go by before it begins. In three launches of four some
// do, about as many as parts of k look for each other, which then have just given up, or nearly so.
static int late_by(u32 run, u32 slot) {
    u32 launch = run / 8 % 4, x = (run * 131u + slot + 1u) * 2654435761u;
    x = (x ^ x >> 15) * 2246822519u;
    x ^= x >> 13;
    return launch && x % (2u << launch) == 0 ? 36 + (x >> 8 & 15) : 0;
}

// 0, or 1 and a text of what was wrong. how: in its last three bits a way; all of it: who comes late.
int native_launch(void (*call)(u64 *), u64 *values, u64 count, u64 number, u64 local, u64 row, u64 *buffers, u64 buffer_count, int how, char *text) {
    entry = call;
    arguments = values;
    items_of_group = local;
    row_items = row;
    group_count = number;
    mode = how & 7;
    fault[0] = 0;
    local_count = 0;
    clear_boxes();
    region_count = 0;
    regions[region_count++] = (Region){(u64)values, (u64)(values + count), 0};
    for (u64 i = 0; i < buffer_count; i++)
        regions[region_count++] = (Region){buffers[3 * i], buffers[3 * i] + buffers[3 * i + 1], buffers[3 * i + 2]};
    u64 slots = mode & TOGETHER && group_count < MOST_GROUPS ? group_count : 1;
    for (u64 s = 0; s < slots; s++) {
        if (!groups[s]) {
            groups[s] = calloc(1, sizeof(Group));
            groups[s]->stacks = mmap(0, (size_t)STACK * MOST_ITEMS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        }
        groups[s]->begun = groups[s]->over = 0;
        groups[s]->late = slots > 1 ? late_by(how, s) : 0;
    }
    u64 done = 0, next = 0;
    Group *last = 0;
    limit(MOST_SECONDS);
    while (done < group_count && !fault[0]) {
        for (u64 s = 0; s < slots && !fault[0]; s++) {
            group = groups[s];
            if (group->over || group->late-- > 0) continue;
            if (slots > 1 && last && last != group && !last->over) keep_local(last, 0);
            if (!group->begun) {
                if (next == group_count) continue;
                u64 first = slots > 1 ? s : next;
                group->id = mode & BACKWARDS ? group_count - 1 - first : first;
                next++;
                begin(group);
            } else if (last != group) keep_local(group, 1);
            last = group;
            group->yielded = 0;
            while (!group->over && !fault[0] && !(slots > 1 && group->yielded))
                if (!go_round() && !fault[0]) {
                    self = &group->items[0];
                    snprintf(fault, sizeof fault, "work-items wait for what never comes (group %llu)", (unsigned long long)group->id);
                }
            if (group->over) {
                done++;
                if (slots == 1) group->over = group->begun = 0;
            }
        }
    }
    limit(0);
    strcpy(text, fault);
    return fault[0] != 0;
}
