/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* bs_mm_a4u_w4b_s32_armv7_neon_2x32x2: exact int32 products of 4-bit unsigned activations and
 * 4-bit bipolar weights, by multiplying 8-bit lanes.
 *
 *   computes  c (m x n) = activations (m x k) times weights (k x n), for k up to 9,544,371
 *   tile      2 rows of activations x 32 columns of weights; a step is 2 positions of k
 *   row       2 bytes a step: bit 0, bit 1, bit 2, bit 3 at position 0; bit 0, bit 1, bit 2, bit
 *             3 at position 1
 *   column    1 byte a step: bit 0, bit 1, bit 2, bit 3 at positions 0 to 1
 *   columns   lie next to each other, in order, 1 byte each
 *
 * From a kernel whose proof was checked. */
#include "bs_mm_a4u_w4b_s32_armv7_neon_2x32x2.h"

#include <arm_neon.h>
#include <string.h>

#ifndef __ARM_NEON
#error "needs __ARM_NEON: compile with -march=armv7-a -mfpu=neon -mfloat-abi=hard"
#endif

enum { ROWS = 2, COLUMNS = 32, K_STEP = 2, SLOT_BYTES = 1 };
enum { ROW_BYTES = bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_row_bytes, COLUMN_BYTES = 1 };

/* Instructions that need casts or several intrinsics; PIN keeps a value in its register. */
#define dup32_u32x4(p) vld1q_dup_u32((const uint32_t *)(p))
#define dup8_u8x16(p) vld1q_dup_u8((const uint8_t *)(p))
#define load_u16x8(p) vld1q_u16((const uint16_t *)(p))
#define load_u32x4(p) vld1q_u32((const uint32_t *)(p))
#define load_u8x16(p) vld1q_u8((const uint8_t *)(p))
#define store_u32x4(to, a) vst1q_u32((uint32_t *)(to), a)
#define umlal2_u16x8(acc, a, b) vmlal_u16(acc, vget_high_u16(a), vget_high_u16(b))
#define umlal2_u8x16(acc, a, b) vmlal_u8(acc, vget_high_u8(a), vget_high_u8(b))
#define umlal_u16x8(acc, a, b) vmlal_u16(acc, vget_low_u16(a), vget_low_u16(b))
#define umlal_u8x16(acc, a, b) vmlal_u8(acc, vget_low_u8(a), vget_low_u8(b))
#define PIN(x) __asm__ volatile("" : "+w"(x))

/* clang-format off */
static const uint8_t constant_k0[16] = {
    15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
};
/* clang-format on */
static const uint16_t constant_k1[8] = {2, 2, 2, 2, 2, 2, 2, 2};
static const int32_t zero[4] = {0};

/* The tile if K is 0: its accumulators stay where they start, at the column's g and the terms of
 * the row, h. Not inline: the microkernel's registers are its own. */
static __attribute__((noinline)) void start_tile(
    const int32_t *g, const int32_t *h, int32_t *c, size_t ldc)
{
    for (size_t row = 0; row < ROWS; ++row)
        for (size_t column = 0; column < COLUMNS; column += 4) {
            uint32x4_t start = load_u32x4(g + column);
            uint32x4_t more = dup32_u32x4(h + row);
            uint32x4_t both = vaddq_u32(start, more);
            store_u32x4(c + row * ldc + column, both);
        }
}

/* The microkernel: `tiles` neighbouring tiles, over `segments` segments of `steps` steps each. */
void bs_mm_a4u_w4b_s32_armv7_neon_2x32x2(
    size_t tiles,
    size_t segments,
    size_t steps,
    const uint8_t *const *a,
    const uint8_t *w,
    const int32_t *g,
    const int32_t *h,
    int32_t *c,
    size_t ldc)
{
    const size_t all_steps = segments * steps;
    if (all_steps == 0) {
        for (size_t tile = 0; tile < tiles; ++tile)
            start_tile(g + tile * COLUMNS, h, c + tile * COLUMNS, ldc);
        return;
    }
    uint8x16_t k0 = load_u8x16(constant_k0);
    uint16x8_t k1 = load_u16x8(constant_k1);
    for (; tiles > 0; --tiles) {
        /* What a flush adds sums to: the start, then the tile. */
        const int32_t *start = g;
        size_t start_ld = 0;
        const int32_t *row_start = h;
        size_t row_start_ld = 1;
        /* Rows of the next segment; then of this one, how many steps are left and where they
         * are. */
        const uint8_t *const *segment = a + ROWS;
        const uint8_t *row0 = a[0], *row1 = a[1];
        const uint8_t *column = w;
        size_t steps_here = steps, offset = 0;
        for (size_t steps_left = all_steps; steps_left > 0;) {
            const size_t block = steps_left < 145 ? steps_left : 145;
            uint16x8_t acc0_0 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc1_0 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc2_0 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc3_0 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc0_1 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc1_1 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc2_1 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc3_1 = vreinterpretq_u16_u8(load_u8x16(zero));
            size_t count = block;
            while (count > 0) {
                if (steps_here == 0) {
                    row0 = *segment++;
                    row1 = *segment++;
                    steps_here = steps;
                    offset = 0;
                }
                size_t run = count < steps_here ? count : steps_here;
                count -= run;
                steps_here -= run;
                /* Step: 2 positions of K. */
                for (; run > 0; --run) {
                    uint8x16_t w0_0 = load_u8x16(column);
                    PIN(w0_0);
                    uint8x16_t w1_0 = load_u8x16(column + 16);
                    PIN(w1_0);
                    uint8x16_t t0 = vandq_u8(w0_0, k0);
                    uint8x16_t t3 = vandq_u8(w1_0, k0);
                    uint8x16_t t6 = vshrq_n_u8(w0_0, 4);
                    uint8x16_t t9 = vshrq_n_u8(w1_0, 4);
                    { /* row 0 */
                        uint8x16_t a0 = dup8_u8x16(row0 + offset);
                        PIN(a0);
                        uint8x16_t a1 = dup8_u8x16(row0 + offset + 1);
                        PIN(a1);
                        uint16x8_t t1 = umlal_u8x16(acc0_0, a0, t0);
                        uint16x8_t t2 = umlal2_u8x16(acc1_0, a0, t0);
                        uint16x8_t t4 = umlal_u8x16(acc2_0, a0, t3);
                        uint16x8_t t5 = umlal2_u8x16(acc3_0, a0, t3);
                        acc0_0 = umlal_u8x16(t1, a1, t6);
                        PIN(acc0_0);
                        acc1_0 = umlal2_u8x16(t2, a1, t6);
                        PIN(acc1_0);
                        acc2_0 = umlal_u8x16(t4, a1, t9);
                        PIN(acc2_0);
                        acc3_0 = umlal2_u8x16(t5, a1, t9);
                        PIN(acc3_0);
                    }
                    { /* row 1 */
                        uint8x16_t a0 = dup8_u8x16(row1 + offset);
                        PIN(a0);
                        uint8x16_t a1 = dup8_u8x16(row1 + offset + 1);
                        PIN(a1);
                        uint16x8_t t1 = umlal_u8x16(acc0_1, a0, t0);
                        uint16x8_t t2 = umlal2_u8x16(acc1_1, a0, t0);
                        uint16x8_t t4 = umlal_u8x16(acc2_1, a0, t3);
                        uint16x8_t t5 = umlal2_u8x16(acc3_1, a0, t3);
                        acc0_1 = umlal_u8x16(t1, a1, t6);
                        PIN(acc0_1);
                        acc1_1 = umlal2_u8x16(t2, a1, t6);
                        PIN(acc1_1);
                        acc2_1 = umlal_u8x16(t4, a1, t9);
                        PIN(acc2_1);
                        acc3_1 = umlal2_u8x16(t5, a1, t9);
                        PIN(acc3_1);
                    }
                    offset += ROW_BYTES;
                    column += COLUMNS;
                }
            }
            /* Flush: every 145 steps. */
            { /* row 0 */
                uint32x4_t more = dup32_u32x4(row_start);
                uint32x4_t c0 = load_u32x4(start);
                c0 = vaddq_u32(c0, more);
                uint32x4_t c1 = load_u32x4(start + 4);
                c1 = vaddq_u32(c1, more);
                uint32x4_t c2 = load_u32x4(start + 8);
                c2 = vaddq_u32(c2, more);
                uint32x4_t c3 = load_u32x4(start + 12);
                c3 = vaddq_u32(c3, more);
                uint32x4_t c4 = load_u32x4(start + 16);
                c4 = vaddq_u32(c4, more);
                uint32x4_t c5 = load_u32x4(start + 20);
                c5 = vaddq_u32(c5, more);
                uint32x4_t c6 = load_u32x4(start + 24);
                c6 = vaddq_u32(c6, more);
                uint32x4_t c7 = load_u32x4(start + 28);
                c7 = vaddq_u32(c7, more);
                uint32x4_t t0 = umlal_u16x8(c0, acc0_0, k1);
                uint32x4_t t1 = umlal2_u16x8(c1, acc0_0, k1);
                uint32x4_t t2 = umlal_u16x8(c2, acc1_0, k1);
                uint32x4_t t3 = umlal2_u16x8(c3, acc1_0, k1);
                uint32x4_t t4 = umlal_u16x8(c4, acc2_0, k1);
                uint32x4_t t5 = umlal2_u16x8(c5, acc2_0, k1);
                uint32x4_t t6 = umlal_u16x8(c6, acc3_0, k1);
                uint32x4_t t7 = umlal2_u16x8(c7, acc3_0, k1);
                /* Write back. */
                store_u32x4(c, t0);
                store_u32x4(c + 4, t1);
                store_u32x4(c + 8, t2);
                store_u32x4(c + 12, t3);
                store_u32x4(c + 16, t4);
                store_u32x4(c + 20, t5);
                store_u32x4(c + 24, t6);
                store_u32x4(c + 28, t7);
            }
            { /* row 1 */
                uint32x4_t more = dup32_u32x4(row_start + row_start_ld);
                uint32x4_t c0 = load_u32x4(start + start_ld);
                c0 = vaddq_u32(c0, more);
                uint32x4_t c1 = load_u32x4(start + start_ld + 4);
                c1 = vaddq_u32(c1, more);
                uint32x4_t c2 = load_u32x4(start + start_ld + 8);
                c2 = vaddq_u32(c2, more);
                uint32x4_t c3 = load_u32x4(start + start_ld + 12);
                c3 = vaddq_u32(c3, more);
                uint32x4_t c4 = load_u32x4(start + start_ld + 16);
                c4 = vaddq_u32(c4, more);
                uint32x4_t c5 = load_u32x4(start + start_ld + 20);
                c5 = vaddq_u32(c5, more);
                uint32x4_t c6 = load_u32x4(start + start_ld + 24);
                c6 = vaddq_u32(c6, more);
                uint32x4_t c7 = load_u32x4(start + start_ld + 28);
                c7 = vaddq_u32(c7, more);
                uint32x4_t t0 = umlal_u16x8(c0, acc0_1, k1);
                uint32x4_t t1 = umlal2_u16x8(c1, acc0_1, k1);
                uint32x4_t t2 = umlal_u16x8(c2, acc1_1, k1);
                uint32x4_t t3 = umlal2_u16x8(c3, acc1_1, k1);
                uint32x4_t t4 = umlal_u16x8(c4, acc2_1, k1);
                uint32x4_t t5 = umlal2_u16x8(c5, acc2_1, k1);
                uint32x4_t t6 = umlal_u16x8(c6, acc3_1, k1);
                uint32x4_t t7 = umlal2_u16x8(c7, acc3_1, k1);
                /* Write back. */
                store_u32x4(c + ldc, t0);
                store_u32x4(c + ldc + 4, t1);
                store_u32x4(c + ldc + 8, t2);
                store_u32x4(c + ldc + 12, t3);
                store_u32x4(c + ldc + 16, t4);
                store_u32x4(c + ldc + 20, t5);
                store_u32x4(c + ldc + 24, t6);
                store_u32x4(c + ldc + 28, t7);
            }
            steps_left -= block;
            start = c;
            start_ld = ldc;
            row_start = zero;
            row_start_ld = 0;
        }
        w += all_steps * (COLUMNS * COLUMN_BYTES);
        g += COLUMNS;
        c += COLUMNS;
    }
}

static size_t ceiling(size_t x, size_t unit)
{
    return x / unit + (x % unit != 0);
}

/* Sizes are exact, or SIZE_MAX if they are greater than that. */
static size_t product(size_t x, size_t y)
{
    size_t z;
    return __builtin_mul_overflow(x, y, &z) ? SIZE_MAX : z;
}

static size_t left_of(size_t k, size_t step)
{
    return k - step * K_STEP < K_STEP ? k - step * K_STEP : K_STEP;
}

static size_t row_input_bytes(size_t count, size_t k)
{
    const size_t vectors = product(ceiling(count, ROWS), ROWS);
    const size_t steps = product(vectors, ceiling(k, K_STEP));
    return product(ceiling(product(steps, ROW_BYTES), 8), 8);
}

static size_t row_bytes(size_t count, size_t k)
{
    const size_t inputs = row_input_bytes(count, k);
    const size_t sums = product(product(ceiling(count, ROWS), ROWS), 8);
    return inputs > PTRDIFF_MAX || sums > PTRDIFF_MAX - inputs ? SIZE_MAX : inputs + sums;
}

static size_t column_input_bytes(size_t count, size_t k)
{
    const size_t vectors = product(ceiling(count, COLUMNS), COLUMNS);
    const size_t steps = product(vectors, ceiling(k, K_STEP));
    return product(ceiling(product(steps, COLUMN_BYTES), 8), 8);
}

static size_t column_bytes(size_t count, size_t k)
{
    const size_t inputs = column_input_bytes(count, k);
    const size_t sums = product(product(ceiling(count, COLUMNS), COLUMNS), 8);
    return inputs > PTRDIFF_MAX || sums > PTRDIFF_MAX - inputs ? SIZE_MAX : inputs + sums;
}

static size_t code_at(size_t position)
{
    return position;
}

/* Bit q * width + j of byte b is plane `plane + j` of code first + b * apart + q. */
struct input {
    size_t plane, width, first, apart, per_byte;
};

/* Packs the bytes of one input from the `left` codes of a step; bits of table[code] are planes. */
static void pack_bytes(
    const struct input *in,
    const uint64_t *table,
    size_t left,
    const uint8_t *codes,
    size_t stride,
    uint8_t *to)
{
    const uint64_t planes = (UINT64_C(1) << in->width) - 1;
    for (size_t b = 0; b < SLOT_BYTES; ++b) {
        uint64_t byte = 0;
        for (size_t q = 0; q < in->per_byte; ++q) {
            const size_t k = code_at(in->first + b * in->apart + q);
            if (k < left)
                byte |= (table[codes[k * stride]] >> in->plane & planes) << (q * in->width);
        }
        to[b] = (uint8_t)byte;
    }
}

/* Packs the inputs of one row from the `left` codes of a step. */
static void pack_step(size_t left, const uint8_t *codes, size_t stride, uint8_t *to)
{
    static const struct input inputs[] = {{0, 4, 0, 2, 1}, {4, 4, 1, 2, 1}};
    /* clang-format off */
    static const uint64_t table[] = {
        UINT64_C(0), UINT64_C(17), UINT64_C(34), UINT64_C(51),
        UINT64_C(68), UINT64_C(85), UINT64_C(102), UINT64_C(119),
        UINT64_C(136), UINT64_C(153), UINT64_C(170), UINT64_C(187),
        UINT64_C(204), UINT64_C(221), UINT64_C(238), UINT64_C(255),
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; ++i, to += SLOT_BYTES)
        pack_bytes(inputs + i, table, left, codes, stride, to);
}

/* 32 codes at any alignment. */
typedef uint64_t four __attribute__((vector_size(32), aligned(1), may_alias));

/* Returns the sum of 64 codes, eight at a time. */
static inline uint32_t sum_of_64(const uint8_t *codes)
{
    const uint64_t even = UINT64_C(0x00ff00ff00ff00ff);
    const four low = ((const four *)(const void *)codes)[0];
    const four high = ((const four *)(const void *)codes)[1];
    const four sums = low + high;
    const uint64_t bytes = sums[0] + sums[1] + sums[2] + sums[3];
    const uint64_t pairs = (bytes & even) + (bytes >> 8 & even);
    return (uint32_t)((pairs * UINT64_C(0x0001000100010001)) >> 48);
}

static uint32_t sum_of_codes(size_t k, const uint8_t *codes)
{
    uint32_t sum = 0;
    for (; k >= 64; k -= 64, codes += 64)
        sum += sum_of_64(codes);
    for (; k > 0; --k)
        sum += *codes++;
    return sum;
}

static void pack_row(size_t k, const uint8_t *codes, size_t readable, uint8_t *packed)
{
    /* Bytes written behind a row are overwritten by the next row. */
    enum { CHUNK = 16, FEW = 64 };
    if (k > FEW || ceiling(k, CHUNK) * CHUNK > readable)
        memcpy(packed, codes, k);
    else
        for (size_t i = 0; i < k; i += CHUNK)
            memcpy(packed + i, codes + i, CHUNK);
    memset(packed + k, 0, K_STEP);
}

void bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_pack_rows(
    size_t count,
    size_t k,
    const uint8_t *codes,
    size_t apart,
    size_t readable,
    uint8_t *packed,
    size_t packed_apart,
    int32_t *terms,
    int32_t *affines)
{
    (void)affines;
    for (size_t row = 0; row < count; ++row) {
        const uint8_t *from = codes + row * apart;
        pack_row(k, from, readable - row * apart, packed + row * packed_apart);
        const int32_t sum = (int32_t)sum_of_codes(k, from);
        terms[row] = -15 * sum;
    }
}

/* Returns the bits of a word of the first `left` of 64 codes. */
static inline uint64_t first_bits(size_t left)
{
    const uint64_t low = UINT64_C(0x0101010101010101);
    if (left >= 64)
        return UINT64_MAX;
    const uint64_t eights = low * ((UINT64_C(1) << left / 8) - 1);
    return eights | (low << left / 8 & ((UINT64_C(1) << left % 8 * 8) - 1));
}

/* A register of bytes, and of words, at any alignment. */
typedef uint8_t bytes __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t whole __attribute__((vector_size(16), aligned(1), may_alias));

/* Returns the sum of the bytes. The argument is a pointer: GCC 14 for AArch64 crashes at arguments
 * of any alignment. */
static inline int32_t sum_of_bytes(const bytes *codes)
{
    const uint64_t even = UINT64_C(0x00ff00ff00ff00ff);
    const whole pairs = ((whole)*codes & even) + ((whole)*codes >> 8 & even);
    return (int32_t)(((pairs[0] + pairs[1]) * UINT64_C(0x0001000100010001)) >> 48);
}

/* Unpacks 64 codes from words, and adds to their sums. A byte holds bits of two codes at a time. */
static inline void expand(const uint64_t *words, uint64_t mask, uint8_t *to, int32_t *sums)
{
    const bytes shifts[] = {
        {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
        {2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3},
    };
    const whole none = {0};
    bytes *codes = (bytes *)(void *)to;
    const uint64_t b0 = words[0] & mask;
    const bytes plane0 = (bytes)(none + b0);
    const uint64_t b1 = words[1] & mask;
    const bytes plane1 = (bytes)(none + b1);
    const uint64_t b2 = words[2] & mask;
    const bytes plane2 = (bytes)(none + b2);
    const uint64_t b3 = words[3] & mask;
    const bytes plane3 = (bytes)(none + b3);
    bytes low0 = plane0 >> shifts[0] & 17;
    low0 |= (plane1 >> shifts[0] & 17) << 1;
    low0 |= (plane2 >> shifts[0] & 17) << 2;
    low0 |= (plane3 >> shifts[0] & 17) << 3;
    const bytes codes0 = low0 & 15;
    const bytes codes2 = low0 >> 4;
    bytes low1 = plane0 >> shifts[1] & 17;
    low1 |= (plane1 >> shifts[1] & 17) << 1;
    low1 |= (plane2 >> shifts[1] & 17) << 2;
    low1 |= (plane3 >> shifts[1] & 17) << 3;
    const bytes codes1 = low1 & 15;
    const bytes codes3 = low1 >> 4;
    codes[0] = codes0;
    codes[1] = codes1;
    codes[2] = codes2;
    codes[3] = codes3;
    const bytes all = codes0 + codes1 + codes2 + codes3;
    const int32_t sum = sum_of_bytes(&all);
    sums[0] += -15 * sum;
}

void bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_pack_words(
    size_t count,
    size_t k,
    const uint64_t *words,
    size_t apart,
    uint8_t *packed,
    size_t packed_apart,
    int32_t *terms,
    int32_t *affines)
{
    (void)affines;
    for (size_t row = 0; row < count; ++row, words += apart, packed += packed_apart) {
        int32_t sum[2] = {0, 0};
        const uint64_t *from = words;
        size_t at = 0;
        for (; k - at >= 64; at += 64, from += 4)
            expand(from, UINT64_MAX, packed + at, sum);
        if (at < k) {
            uint8_t codes[64];
            expand(from, first_bits(k - at), codes, sum);
            memcpy(packed + at, codes, ceiling(k - at, K_STEP) * K_STEP);
        }
        terms[row] = sum[0];
    }
}

/* The terms of each row, sums of a number for each code: accumulators start from them. */
static void row_sums(
    size_t count, size_t k, const uint8_t *codes, size_t apart, size_t stride, int64_t *sums)
{
    const size_t padded = ceiling(count, ROWS) * ROWS;
    for (size_t v = 0; v < padded; ++v) {
        int64_t sum = 0;
        for (size_t i = 0; v < count && i < k; ++i)
            sum += codes[v * apart + i * stride];
        sums[v] = -15 * sum;
    }
}

/* The terms of each column, sums of a number for each code: accumulators start from them. */
static void column_sums(
    size_t count, size_t k, const uint8_t *codes, size_t apart, size_t stride, int64_t *sums)
{
    static const int64_t code_terms[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    const size_t padded = ceiling(count, COLUMNS) * COLUMNS;
    for (size_t v = 0; v < padded; ++v) {
        int64_t sum = 0;
        for (size_t i = 0; v < count && i < k; ++i)
            sum += code_terms[codes[v * apart + i * stride]];
        sums[v] = sum;
    }
}

/* Packs `count` vectors of codes that lie `apart` bytes from each other, `stride` bytes from one
 * position to the next. Contiguous rows with room behind them are packed as those of layers are. */
static void pack_rows(
    size_t count, size_t k, const uint8_t *codes, size_t apart, size_t stride, uint8_t *packed)
{
    const size_t steps = ceiling(k, K_STEP), rows = ceiling(count, ROWS) * ROWS;
    const size_t size = steps * ROW_BYTES;
    int64_t *sums = (int64_t *)(void *)(packed + row_input_bytes(count, k));
    size_t row = 0;
    for (; stride == 1 && row < count && (rows - row - 1) * size >= 16; ++row) {
        const size_t readable = (count - row - 1) * apart + k;
        int32_t term, affine;
        bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_pack_rows(
            1, k, codes + row * apart, 0, readable, packed + row * size, 0, &term, &affine);
    }
    for (; row < rows; ++row) {
        uint8_t *to = packed + row * size;
        for (size_t step = 0; step < steps; ++step, to += ROW_BYTES) {
            const size_t left = row < count ? left_of(k, step) : 0;
            const uint8_t *from = left > 0 ? codes + row * apart + step * K_STEP * stride : codes;
            pack_step(left, from, stride, to);
        }
    }
    row_sums(count, k, codes, apart, stride, sums);
}

static void pack_columns(
    size_t count, size_t k, const uint8_t *codes, size_t apart, size_t stride, uint8_t *packed)
{
    /* clang-format off */
    static const size_t slots[COLUMNS] = {
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
        16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
    };
    /* clang-format on */
    const size_t steps = ceiling(k, K_STEP), columns = ceiling(count, COLUMNS) * COLUMNS;
    uint8_t *to = packed;
    for (size_t tile = 0; tile < columns; tile += COLUMNS) {
        for (size_t step = 0; step < steps; ++step) {
            static const struct input inputs[] = {{0, 4, 0, 2, 2}};
            /* clang-format off */
            static const uint64_t table[] = {
                UINT64_C(0), UINT64_C(1), UINT64_C(2), UINT64_C(3),
                UINT64_C(4), UINT64_C(5), UINT64_C(6), UINT64_C(7),
                UINT64_C(8), UINT64_C(9), UINT64_C(10), UINT64_C(11),
                UINT64_C(12), UINT64_C(13), UINT64_C(14), UINT64_C(15),
            };
            /* clang-format on */
            for (size_t slot = 0; slot < COLUMNS; ++slot) {
                const size_t column = tile + slots[slot];
                const size_t at = column * apart + step * K_STEP * stride;
                const size_t left = column < count ? left_of(k, step) : 0;
                for (size_t i = 0; i < sizeof inputs / sizeof *inputs; ++i) {
                    uint8_t *slot_to = to + (i * COLUMNS + slot) * SLOT_BYTES;
                    pack_bytes(
                        inputs + i, table, left, left > 0 ? codes + at : codes, stride, slot_to);
                }
            }
            to += COLUMNS * 1;
        }
    }
    int64_t *sums = (int64_t *)(void *)(packed + column_input_bytes(count, k));
    column_sums(count, k, codes, apart, stride, sums);
}

size_t bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_act_bytes(size_t m, size_t k)
{
    return row_bytes(m, k);
}

size_t bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_wgt_bytes(size_t k, size_t n)
{
    return column_bytes(n, k);
}

int bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_pack_act(
    size_t m, size_t k, const uint8_t *codes, uint8_t *packed)
{
    if (product(m, k) > PTRDIFF_MAX || row_bytes(m, k) == SIZE_MAX)
        return -1;
    pack_rows(m, k, codes, k, 1, packed);
    return 0;
}

int bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_pack_wgt(
    size_t k, size_t n, const uint8_t *codes, uint8_t *packed)
{
    if (product(k, n) > PTRDIFF_MAX || column_bytes(n, k) == SIZE_MAX)
        return -1;
    pack_columns(n, k, codes, 1, n, packed);
    return 0;
}

static void narrow(size_t count, const int64_t *from, int32_t *to)
{
    for (size_t i = 0; i < count; ++i)
        to[i] = (int32_t)from[i];
}

int bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_matmul(
    size_t m, size_t k, size_t n, const uint8_t *act, const uint8_t *wgt, int32_t *c)
{
    const uint8_t *a = act, *w = wgt;
    const size_t rows = m, columns = n;
    int32_t tile[ROWS * COLUMNS], g[COLUMNS], h[ROWS];
    if (k > bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_k_max
        || product(product(m, n), sizeof *c) > PTRDIFF_MAX)
        return -1;
    if (row_bytes(m, k) == SIZE_MAX || column_bytes(n, k) == SIZE_MAX)
        return -1;
    const size_t steps = ceiling(k, K_STEP);
    const uint8_t *row_end = a + row_input_bytes(rows, k);
    const uint8_t *column_end = w + column_input_bytes(columns, k);
    const int64_t *row_sums_at = (const int64_t *)(const void *)row_end;
    const int64_t *column_sums_at = (const int64_t *)(const void *)column_end;
    for (size_t column = 0; column < columns; column += COLUMNS) {
        const size_t width = columns - column < COLUMNS ? columns - column : COLUMNS;
        const uint8_t *tile_w = w + column * steps * COLUMN_BYTES;
        narrow(COLUMNS, column_sums_at + column, g);
        for (size_t row = 0; row < rows; row += ROWS) {
            const size_t height = rows - row < ROWS ? rows - row : ROWS;
            narrow(ROWS, row_sums_at + row, h);
            const uint8_t *inputs[ROWS];
            for (size_t i = 0; i < ROWS; ++i)
                inputs[i] = a + (row + i) * steps * ROW_BYTES;
            bs_mm_a4u_w4b_s32_armv7_neon_2x32x2(1, 1, steps, inputs, tile_w, g, h, tile, COLUMNS);
            for (size_t i = 0; i < height; ++i)
                for (size_t j = 0; j < width; ++j) {
                    const int32_t sum = tile[i * COLUMNS + j];
                    c[(row + i) * n + column + j] = sum;
                }
        }
    }
    return 0;
}
