// Hopper's own instructions: barriers that count arrivals and bytes, boxes of tensors that are
// copied, and four warps that multiply.
#include "native.h"

// ---- barriers that count arrivals and bytes, boxes of tensors, four warps that multiply ----------

typedef struct { int16_t left, count; int parity_and_bytes; } Counter;  // bytes * 2 + parity
static Counter *counter_at(u32 at) {
    aligned(at, 8);
    return local_at(at, 8, 1);
}
static void maybe_over(Counter *c) {
    if (c->left == 0 && c->parity_and_bytes >> 1 == 0) {
        c->left = c->count;
        c->parity_and_bytes ^= 1;
    }
}
void native_counter_init(u32 at, u32 count) { *counter_at(at) = (Counter){count, count, 0}; }
void native_counter_arrive(u32 at, u32 bytes) {
    Counter *c = counter_at(at);
    if (c->left <= 0) wrong("one arrival too many at a barrier", at, 8);
    c->parity_and_bytes += bytes * 2;
    c->left--;
    maybe_over(c);
}
typedef struct { u32 at, parity; } Awaited;
static int counter_over(void *what) {
    Awaited *a = what;
    return (u32)(counter_at(a->at)->parity_and_bytes & 1) != (a->parity & 1);
}
void native_counter_wait(u32 at, u32 parity) {
    Awaited mine = {at, parity};
    wait_until(counter_over, &mine);
}

typedef struct {
    u64 address, stride[4];
    u32 rank, dtype, dim[5], box[5], step[5], swizzle, interleave, fill;
} Map;
_Static_assert(sizeof(Map) <= 128, "a tensor map has 128 bytes");
void native_map(u32 at, const char *field, int i, u64 value) {
    Map *map = local_at(at, 128, 1);
    aligned(at, 128);
    if (!strcmp(field, "global_address")) map->address = value;
    else if (!strcmp(field, "rank")) map->rank = i + 1;
    else if (!strcmp(field, "elemtype")) map->dtype = i;
    else if (!strcmp(field, "interleave_layout")) map->interleave = i;
    else if (!strcmp(field, "swizzle_mode")) map->swizzle = i;
    else if (!strcmp(field, "fill_mode")) map->fill = i;
    else if (i < 0 || i > 4) wrong("a dimension that a tensor map has not", at, 128);
    else if (!strcmp(field, "box_dim")) map->box[i] = value;
    else if (!strcmp(field, "global_dim")) map->dim[i] = value;
    else if (!strcmp(field, "element_stride")) map->step[i] = value;
    else if (i < 4) map->stride[i] = value;
}
typedef struct { u64 to; u32 from; } Published;
static void publish(void **lanes) {
    Published *p = lanes[0];
    check(p->to, 128, 1);
    u8 *map = local_at(p->from, 128, 0);
    for (int i = sizeof(Map); i < 128; i++)
        if (map[i]) wrong("a tensor map that was not made from zeros", p->from + i, 1);
    memcpy((void *)p->to, map, 128);
}
void native_publish(u64 to, u32 from) {
    Published mine = {to, from};
    aligned(to, 128);
    meet(30, &mine, publish);
}

static int size_of_type(u32 dtype) { return dtype == 0 ? 1 : dtype == 6 || dtype == 10 ? 2 : dtype == 11 ? 4 : 0; }
static u8 *swizzled(u32 at) { return local_at(at ^ (at >> 7 & 7) << 4, 1, 1); }
typedef struct { Group *group; Map map; u32 to, at; int rank, place[5]; } Box;
static Box waiting[256];
static int waiting_count;
static void copy_box(Box *b) {
    Map *m = &b->map;
    int size = size_of_type(m->dtype), index[5] = {0};
    u32 at = b->to, bytes = 0;
    for (;;) {
        int inside = 1;
        u64 from = m->address;
        for (int d = 0; d < b->rank; d++) {
            long place = (long)b->place[d] + index[d];
            inside = inside && place >= 0 && place < (long)m->dim[d];
            from += place * (d ? m->stride[d - 1] : (u64)size);
        }
        if (inside) check(from, size, 0);
        for (int i = 0; i < size; i++) *swizzled(at + i) = inside ? ((u8 *)from)[i] : 0;
        at += size;
        bytes += size;
        int d = 0;
        while (d < b->rank && ++index[d] == (int)m->box[d]) index[d++] = 0;
        if (d == b->rank) break;
    }
    Counter *c = counter_at(b->at);
    c->parity_and_bytes -= bytes * 2;
    maybe_over(c);
}
void native_box(u32 to, u64 map, u32 at, int rank, int p0, int p1, int p2, int p3, int p4) {
    check(map, 128, 0);
    Box b = {group, *(Map *)map, to, at, rank, {p0, p1, p2, p3, p4}};
    Map *m = &b.map;
    int size = size_of_type(m->dtype), good = size && (int)m->rank == rank && m->swizzle == 3 && !m->interleave;
    good = good && !m->fill && m->address % 16 == 0 && to % 128 == 0 && m->box[0] * size == 128;
    for (int d = 0; d < rank; d++) {
        good = good && m->box[d] > 0 && m->box[d] <= 256 && m->dim[d] > 0 && m->step[d] == 1;
        if (d) good = good && m->stride[d - 1] % 16 == 0;
    }
    if (!good) wrong("a tensor map that describes nothing", map, 128);
    if (!(mode & LATE) || waiting_count == 256) copy_box(&b);
    else waiting[waiting_count++] = b;
}
int bring_one(void) {  // the oldest box that this group still waits for
    for (int i = 0; i < waiting_count; i++)
        if (waiting[i].group == group) {
            Box b = waiting[i];
            memmove(waiting + i, waiting + i + 1, (--waiting_count - i) * sizeof(Box));
            copy_box(&b);
            return 1;
        }
    return 0;
}

enum { MOST_SUMS = 128, MOST_WAITING = 64 };
typedef struct { int dtype, n, a_across, b_across, adding, number; u64 a, b; void *s[128][MOST_SUMS]; } Wide;
typedef struct { int arrived, issued, done, count; Wide *queue; int group_of[MOST_WAITING]; void *mine[128]; } Four;
static Four fours[8];
static u32 place_of(u64 d, int outer, int byte, int across) {  // of 2-byte elements where across
    u32 start = (d & 0x3fff) << 4, leading = (d >> 16 & 0x3fff) << 4, stride = (d >> 32 & 0x3fff) << 4;
    if (d >> 62 != 1) wrong("a descriptor of another swizzle", 0, 0);
    if (!across) return start + outer / 8 * stride + outer % 8 * 128 + byte;
    int term = byte / 2;
    return start + outer / 64 * leading + term / 8 * stride + term % 8 * 128 + outer % 64 * 2 + byte % 2;
}
static u32 word_of(u64 d, int outer, int byte, int across, int size) {
    u32 word = 0;
    for (int i = 0; i < size; i++)
        word |= (u32)*swizzled(place_of(d, outer, byte + i, across)) << 8 * i;
    return word;
}
static void multiply_wide(Wide *w) {
    static float a[64][32], b[256][32];
    static int ia[64][32], ib[256][32];
    int size = w->dtype == TF32 ? 4 : w->dtype < TF32 ? 2 : 1, k = 32 / size;
    for (int side = 0; side < 2; side++)
        for (int o = 0; o < (side ? w->n : 64); o++)
            for (int i = 0; i < k; i++) {
                u32 x = word_of(side ? w->b : w->a, o, i * size, side ? w->b_across : w->a_across, size);
                if (w->dtype < S8) (side ? b : a)[o][i] = real_term(w->dtype, x, 0);
                else (side ? ib : ia)[o][i] = whole_term(w->dtype, x, 0);
            }
    for (int t = 0; t < 128; t++)
        for (int i = 0; i < w->n / 2; i++) {
            int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + t % 4 * 2 + i % 2;
            if (w->dtype < S8) {
                float sum = w->adding ? *(float *)w->s[t][i] : 0;
                for (int j = 0; j < k; j++) sum += a[row][j] * b[col][j];
                *(float *)w->s[t][i] = sum;
            } else {
                u32 sum = w->adding ? *(u32 *)w->s[t][i] : 0;
                for (int j = 0; j < k; j++) sum += (u32)(ia[row][j] * ib[col][j]);
                *(u32 *)w->s[t][i] = sum;
            }
        }
}
static int four_ready(void *what) { return *(int *)what; }
static int meet_four(void *mine, void (*together)(Four *)) {  // 128 work-items; 1 for the last
    Four *f = &fours[self->item / 128];
    f->mine[self->item % 128] = mine;
    if (++f->arrived < 128) {
        int *flag = malloc(sizeof *flag);
        *flag = 0;
        ((void **)mine)[0] = flag;
        wait_until(four_ready, flag);
        free(flag);
        return 0;
    }
    f->arrived = 0;
    if (together) together(f);
    for (int i = 0; i < 128; i++)
        if (f->mine[i] != mine) **(int **)f->mine[i] = 1;
    return 1;
}
typedef struct { int *flag; int dtype, n, a_across, b_across, adding; u64 a, b; void **s; } Ask;
static void ask_four(Four *f) {
    Ask *first = f->mine[0];
    if (!f->queue) f->queue = malloc(MOST_WAITING * sizeof(Wide));
    if (f->count == MOST_WAITING) wrong("too many multiplications under way", 0, 0);
    Wide *w = &f->queue[f->count];
    *w = (Wide){first->dtype, first->n, first->a_across, first->b_across, first->adding, f->issued, first->a, first->b, {{0}}};
    for (int t = 0; t < 128; t++) memcpy(w->s[t], ((Ask *)f->mine[t])->s, first->n / 2 * sizeof(void *));
    if (mode & (LATE | TOGETHER)) f->count++;
    else multiply_wide(w);
}
void native_wgmma(int dtype, int n, void **s, u64 a, u64 b, int a_across, int b_across, int adding) {
    Ask mine = {0, dtype, n, a_across, b_across, adding, a, b, s};
    meet_four(&mine, ask_four);
}
typedef struct { int *flag; int most; } Wait;
static void commit_four(Four *f) { f->issued++; }
void native_wgmma_commit(void) {
    Wait mine = {0, 0};
    meet_four(&mine, commit_four);
}
static void wait_four(Four *f) {
    int left = 0, until = f->issued - ((Wait *)f->mine[0])->most;
    for (int i = 0; i < f->count; i++) {
        if (f->queue[i].number < until) multiply_wide(&f->queue[i]);
        else if (left++ != i) f->queue[left - 1] = f->queue[i];
    }
    f->count = left;
}
void native_wgmma_wait(int most) {
    Wait mine = {0, most};
    meet_four(&mine, wait_four);
}

void clear_hopper(void) {
    for (int i = 0; i < 8; i++) fours[i].arrived = fours[i].count = fours[i].issued = 0;
}
void clear_boxes(void) { waiting_count = 0; }
