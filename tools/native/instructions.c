// PTX instructions that work-items and warps do (tools/native_text.py makes calls of them). Copies
// that run on their own are done at once, or as late as a wait lets them be.
#include "native.h"

#include <immintrin.h>
#include <math.h>

// ---- copies that run on their own --------------------------------------------------------------

static void copy_now(u32 to, u64 from, int size, int wanted) {
    u8 *at = local_at(to, size, 1);
    if (wanted) check(from, wanted, 0);
    memcpy(at, (void *)from, wanted);
    memset(at + wanted, 0, size - wanted);
}
void native_copy(u32 to, u64 from, int size, u32 wanted) {
    aligned(to, size);
    aligned(from, size);
    if (wanted > (u32)size) wrong("a copy of more bytes than it has", from, wanted);
    if (!(mode & LATE)) {
        copy_now(to, from, size, wanted);
        return;
    }
    if (self->pending == self->room) {
        self->room = self->room * 2 + 64;
        self->copies = realloc(self->copies, self->room * sizeof(Copy));
    }
    self->copies[self->pending++] = (Copy){to, from, size, wanted, self->committed};
}
void native_commit(void) { self->committed++; }
void native_wait(int most) {
    int left = 0, until = self->committed - most;
    for (int i = 0; i < self->pending; i++) {
        Copy c = self->copies[i];
        if (c.group < until) copy_now(c.to, c.from, c.size, c.wanted);
        else self->copies[left++] = c;
    }
    self->pending = left;
}

// ---- lanes of a warp that meet -----------------------------------------------------------------

void native_warp(void) { meet(1, 0, 0); }

typedef struct { u32 *x; int lane, mask; } Shuffle;
static void shuffle_idx(void **lanes) {
    u32 old[32];
    for (int i = 0; i < 32; i++) old[i] = *((Shuffle *)lanes[i])->x;
    for (int i = 0; i < 32; i++) *((Shuffle *)lanes[i])->x = old[((Shuffle *)lanes[i])->lane & 31];
}
void native_shuffle_idx(u32 *x, int from) {
    Shuffle mine = {x, from, 0};
    meet(2, &mine, shuffle_idx);
}
void native_shuffle_bfly(u32 *x, int distance) {
    Shuffle mine = {x, (self->item & 31) ^ distance, 0};
    meet(3, &mine, shuffle_idx);
}

typedef struct { u32 *r[4], at; } Matrices;
static void load_matrices(void **lanes) {
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < 32; l++) {
            const u8 *row = local_at(((Matrices *)lanes[8 * i + l / 4])->at, 16, 0);
            memcpy(((Matrices *)lanes[l])->r[i], row + l % 4 * 4, 4);
        }
}
static void load_transposed(void **lanes) {
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < 32; l++) {
            const u16 *low = local_at(((Matrices *)lanes[8 * i + l % 4 * 2])->at, 16, 0);
            const u16 *high = local_at(((Matrices *)lanes[8 * i + l % 4 * 2 + 1])->at, 16, 0);
            *((Matrices *)lanes[l])->r[i] = low[l / 4] | (u32)high[l / 4] << 16;
        }
}
void native_load_matrices(u32 *a, u32 *b, u32 *c, u32 *d, u32 at, int transposed) {
    Matrices mine = {{a, b, c, d}, at};
    aligned(at, 16);
    meet(4 + transposed, &mine, transposed ? load_transposed : load_matrices);
}
static void store_matrices(void **lanes) {
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < 32; l++) {
            u8 *row = local_at(((Matrices *)lanes[8 * i + l / 4])->at, 16, 1);
            memcpy(row + l % 4 * 4, ((Matrices *)lanes[l])->r[i], 4);
        }
}
void native_store_matrices(u32 at, u32 a, u32 b, u32 c, u32 d) {
    Matrices mine = {{&a, &b, &c, &d}, at};
    aligned(at, 16);
    meet(6, &mine, store_matrices);
}

static float half_of(u16 x) { return _cvtsh_ss(x); }
static float bits(u32 x) {
    float f;
    memcpy(&f, &x, 4);
    return f;
}
static int terms_of(int dtype) { return dtype == TF32 ? 1 : dtype < TF32 ? 2 : 4; }
float real_term(int dtype, u32 word, int i) {
    if (dtype == F16) return half_of(word >> 16 * i);
    if (dtype == BF16) return bits(word >> 16 * i << 16);
    return bits(word & 0xffffe000u);
}
int whole_term(int dtype, u32 word, int i) {
    u8 x = word >> 8 * i;
    return dtype == S8 ? (int8_t)x : x;
}
typedef struct { int dtype; void *s[4]; u32 a[4], b[2]; } Mma;
static void multiply(void **lanes) {
    Mma **p = (Mma **)lanes;
    int dtype = p[0]->dtype, each = terms_of(dtype), k = 8 * each;
    float a[16][32], b[32][8];
    int ia[16][32], ib[32][8];
    for (int l = 0; l < 32; l++) {
        int g = l / 4, t = l % 4;
        for (int r = 0; r < 4; r++)
            for (int e = 0; e < each; e++) {
                int row = g + r % 2 * 8, term = (t + r / 2 * 4) * each + e;
                if (dtype < S8) a[row][term] = real_term(dtype, p[l]->a[r], e);
                else ia[row][term] = whole_term(dtype, p[l]->a[r], e);
            }
        for (int r = 0; r < 2; r++)
            for (int e = 0; e < each; e++) {
                int term = (t + r * 4) * each + e;
                if (dtype < S8) b[term][g] = real_term(dtype, p[l]->b[r], e);
                else ib[term][g] = whole_term(dtype, p[l]->b[r], e);
            }
    }
    for (int l = 0; l < 32; l++)
        for (int q = 0; q < 4; q++) {
            int row = l / 4 + q / 2 * 8, col = l % 4 * 2 + q % 2;
            if (dtype < S8) {
                float sum = *(float *)p[l]->s[q];
                for (int i = 0; i < k; i++) sum += a[row][i] * b[i][col];
                *(float *)p[l]->s[q] = sum;
            } else {
                u32 sum = *(u32 *)p[l]->s[q];
                for (int i = 0; i < k; i++) sum += (u32)(ia[row][i] * ib[i][col]);
                *(u32 *)p[l]->s[q] = sum;
            }
        }
}
void native_mma(int dtype, void *s0, void *s1, void *s2, void *s3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    Mma mine = {dtype, {s0, s1, s2, s3}, {a0, a1, a2, a3}, {b0, b1}};
    meet(10 + dtype, &mine, multiply);
}
typedef struct { double *s[4], a[4], b[2]; } Mma64;
static void multiply_f64(void **lanes) {
    Mma64 **p = (Mma64 **)lanes;
    for (int l = 0; l < 32; l++)
        for (int q = 0; q < 4; q++) {
            int row = l / 4, col = l % 4 * 2 + q % 2;
            double sum = *p[l]->s[q];
            for (int i = 0; i < 8; i++)
                sum += p[row * 4 + i % 4]->a[i / 4 * 2 + q / 2] * p[col * 4 + i % 4]->b[i / 4];
            *p[l]->s[q] = sum;
        }
}
void native_mma_f64(double *s0, double *s1, double *s2, double *s3, double a0, double a1, double a2, double a3, double b0, double b1) {
    Mma64 mine = {{s0, s1, s2, s3}, {a0, a1, a2, a3}, {b0, b1}};
    meet(20, &mine, multiply_f64);
}

// ---- single instructions -----------------------------------------------------------------------

void native_load_shared(void *to, u32 at, int size) {
    aligned(at, size);
    memcpy(to, local_at(at, size, 0), size);
}
void native_store_shared(u32 at, const void *from, int size) {
    aligned(at, size);
    memcpy(local_at(at, size, 1), from, size);
}
void native_load_global(void *to, u64 at, int size) {
    aligned(at, size);
    check(at, size, 0);
    memcpy(to, (void *)at, size);
}
void native_store_global(u64 at, const void *from, int size) {
    aligned(at, size);
    check(at, size, 1);
    memcpy((void *)at, from, size);
}
u32 native_load_relaxed(u64 at) {
    check(at, 4, 0);
    u32 found = *(volatile u32 *)at;
    group->yielded = 1;
    leave();
    return found;
}
u32 native_atomic_inc(u64 at, u32 most) {
    check(at, 4, 1);
    u32 old = *(u32 *)at;
    *(u32 *)at = old >= most ? 0 : old + 1;
    return old;
}
u32 native_round_tf32(u32 x) {
    return (x & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : (x + 0x1000u) & 0xffffe000u;
}
static u32 half_bits(float x) { return isnan(x) ? 0x7fffu : _cvtss_sh(x, 0); }
static u32 bf16_bits(float x) {
    u32 w;
    memcpy(&w, &x, 4);
    return isnan(x) ? 0x7fffu : (w + 0x7fffu + (w >> 16 & 1u)) >> 16;
}
u32 native_pack_half(float high, float low) { return half_bits(high) << 16 | half_bits(low); }
u32 native_pack_bf16(float high, float low) { return bf16_bits(high) << 16 | bf16_bits(low); }
float native_least(float x, float y) { return isnan(x) ? x : isnan(y) ? y : x < y ? x : y; }
float native_most(float x, float y) { return isnan(x) ? x : isnan(y) ? y : x > y ? x : y; }
float native_exp2(float x) { return x < -126.0f ? 0.0f : exp2f(x); }
float native_reciprocal(float x) { return 1.0f / x; }

