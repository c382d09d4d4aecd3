/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* bs_mm_a2u_w1b_s32_neon_6x64x4: exact int32 products of 2-bit unsigned activations and 1-bit
 * bipolar weights, by looking sums up in tables.
 *
 *   computes  c (m x n) = activations (m x k) times weights (k x n), for k up to 715,827,882
 *   tile      6 rows of activations x 64 columns of weights; a step is 4 positions of k
 *   row       16 bytes a step: table of 16 sums of 0 1 2 3 by code at positions 0 to 3
 *   column    1 byte a step: bit 0 at positions 0 to 3
 *   columns   lie next to each other, in order, 1 byte each
 *
 * From a kernel whose proof was checked. */
#include "bs_mm_a2u_w1b_s32_neon_6x64x4.h"

#include <arm_neon.h>
#include <string.h>

#ifndef __ARM_NEON
#error "needs __ARM_NEON: compile with -march=armv8-a"
#endif

enum { ROWS = 6, COLUMNS = 64, K_STEP = 4, SLOT_BYTES = 1 };
enum { ROW_BYTES = bs_mm_a2u_w1b_s32_neon_6x64x4_row_bytes, COLUMN_BYTES = 1 };

/* Instructions that need casts or several intrinsics; PIN keeps a value in its register. */
#define SETTLE(x) __asm__ volatile("" : "+r"(x))
#define dup32_u32x4(p) vld1q_dup_u32((const uint32_t *)(p))
#define dup64_u8x16(p) vreinterpretq_u8_u64(vld1q_dup_u64((const uint64_t *)(p)))
#define load_u16x8(p) vld1q_u16((const uint16_t *)(p))
#define load_u32x4(p) vld1q_u32((const uint32_t *)(p))
#define load_u8x16(p) vld1q_u8((const uint8_t *)(p))
#define store_u32x4(to, a) vst1q_u32((uint32_t *)(to), a)
#define store_u8x16(to, a) vst1q_u8((uint8_t *)(to), a)
#define uaddw_u8x16(acc, a) vaddw_u8(acc, vget_low_u8(a))
#define umlal_u16x8(acc, a, b) vmlal_u16(acc, vget_low_u16(a), vget_low_u16(b))
#define PIN(x) __asm__ volatile("" : "+w"(x))

static const uint16_t constant_k0[8] = {2, 2, 2, 2, 2, 2, 2, 2};
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
void bs_mm_a2u_w1b_s32_neon_6x64x4(
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
    uint16x8_t k0 = load_u16x8(constant_k0);
    for (; tiles > 0; --tiles) {
        /* What a flush adds sums to: the start, then the tile. */
        const int32_t *start = g;
        size_t start_ld = 0;
        const int32_t *row_start = h;
        size_t row_start_ld = 1;
        /* Rows of the next segment; then of this one, how many steps are left and where they
         * are. */
        const uint8_t *const *segment = a + ROWS;
        const uint8_t *row0 = a[0], *row1 = a[1], *row2 = a[2], *row3 = a[3];
        const uint8_t *row4 = a[4], *row5 = a[5];
        const uint8_t *column = w;
        size_t steps_here = steps, offset = 0;
        for (size_t steps_left = all_steps; steps_left > 0;) {
            const size_t block = steps_left < 5460 ? steps_left : 5460;
            uint16x8_t acc4_0 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc5_0 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc6_0 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc7_0 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc8_0 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc9_0 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc10_0 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc11_0 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc4_1 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc5_1 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc6_1 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc7_1 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc8_1 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc9_1 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc10_1 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc11_1 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc4_2 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc5_2 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc6_2 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc7_2 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc8_2 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc9_2 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc10_2 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc11_2 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc4_3 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc5_3 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc6_3 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc7_3 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc8_3 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc9_3 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc10_3 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc11_3 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc4_4 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc5_4 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc6_4 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc7_4 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc8_4 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc9_4 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc10_4 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc11_4 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc4_5 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc5_5 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc6_5 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc7_5 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc8_5 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc9_5 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc10_5 = vreinterpretq_u16_u8(load_u8x16(zero));
            uint16x8_t acc11_5 = vreinterpretq_u16_u8(load_u8x16(zero));
            size_t left = block;
            for (size_t runs1 = 260; runs1 > 0 && left > 0; --runs1) {
                uint8x16_t acc0_0, acc1_0, acc2_0, acc3_0, acc0_1, acc1_1, acc2_1, acc3_1;
                uint8x16_t acc0_2, acc1_2, acc2_2, acc3_2, acc0_3, acc1_3, acc2_3, acc3_3;
                uint8x16_t acc0_4, acc1_4, acc2_4, acc3_4, acc0_5, acc1_5, acc2_5, acc3_5;
                size_t count = left < 21 ? left : 21;
                left -= count;
                /* First run of the step: it sets the accumulators. */
                if (steps_here == 0) {
                    row0 = *segment++;
                    row1 = *segment++;
                    row2 = *segment++;
                    row3 = *segment++;
                    row4 = *segment++;
                    row5 = *segment++;
                    steps_here = steps;
                    offset = 0;
                }
                {
                    uint8x16_t w0_0 = load_u8x16(column);
                    PIN(w0_0);
                    uint8x16_t w1_0 = load_u8x16(column + 16);
                    PIN(w1_0);
                    uint8x16_t w2_0 = load_u8x16(column + 32);
                    PIN(w2_0);
                    uint8x16_t w3_0 = load_u8x16(column + 48);
                    PIN(w3_0);
                    { /* row 0 */
                        uint8x16_t a0 = load_u8x16(row0 + offset);
                        PIN(a0);
                        acc0_0 = vqtbl1q_u8(a0, w0_0);
                        PIN(acc0_0);
                        acc1_0 = vqtbl1q_u8(a0, w1_0);
                        PIN(acc1_0);
                        acc2_0 = vqtbl1q_u8(a0, w2_0);
                        PIN(acc2_0);
                        acc3_0 = vqtbl1q_u8(a0, w3_0);
                        PIN(acc3_0);
                    }
                    { /* row 1 */
                        uint8x16_t a0 = load_u8x16(row1 + offset);
                        PIN(a0);
                        acc0_1 = vqtbl1q_u8(a0, w0_0);
                        PIN(acc0_1);
                        acc1_1 = vqtbl1q_u8(a0, w1_0);
                        PIN(acc1_1);
                        acc2_1 = vqtbl1q_u8(a0, w2_0);
                        PIN(acc2_1);
                        acc3_1 = vqtbl1q_u8(a0, w3_0);
                        PIN(acc3_1);
                    }
                    { /* row 2 */
                        uint8x16_t a0 = load_u8x16(row2 + offset);
                        PIN(a0);
                        acc0_2 = vqtbl1q_u8(a0, w0_0);
                        PIN(acc0_2);
                        acc1_2 = vqtbl1q_u8(a0, w1_0);
                        PIN(acc1_2);
                        acc2_2 = vqtbl1q_u8(a0, w2_0);
                        PIN(acc2_2);
                        acc3_2 = vqtbl1q_u8(a0, w3_0);
                        PIN(acc3_2);
                    }
                    { /* row 3 */
                        uint8x16_t a0 = load_u8x16(row3 + offset);
                        PIN(a0);
                        acc0_3 = vqtbl1q_u8(a0, w0_0);
                        PIN(acc0_3);
                        acc1_3 = vqtbl1q_u8(a0, w1_0);
                        PIN(acc1_3);
                        acc2_3 = vqtbl1q_u8(a0, w2_0);
                        PIN(acc2_3);
                        acc3_3 = vqtbl1q_u8(a0, w3_0);
                        PIN(acc3_3);
                    }
                    { /* row 4 */
                        uint8x16_t a0 = load_u8x16(row4 + offset);
                        PIN(a0);
                        acc0_4 = vqtbl1q_u8(a0, w0_0);
                        PIN(acc0_4);
                        acc1_4 = vqtbl1q_u8(a0, w1_0);
                        PIN(acc1_4);
                        acc2_4 = vqtbl1q_u8(a0, w2_0);
                        PIN(acc2_4);
                        acc3_4 = vqtbl1q_u8(a0, w3_0);
                        PIN(acc3_4);
                    }
                    { /* row 5 */
                        uint8x16_t a0 = load_u8x16(row5 + offset);
                        PIN(a0);
                        acc0_5 = vqtbl1q_u8(a0, w0_0);
                        PIN(acc0_5);
                        acc1_5 = vqtbl1q_u8(a0, w1_0);
                        PIN(acc1_5);
                        acc2_5 = vqtbl1q_u8(a0, w2_0);
                        PIN(acc2_5);
                        acc3_5 = vqtbl1q_u8(a0, w3_0);
                        PIN(acc3_5);
                    }
                    offset += ROW_BYTES;
                    column += COLUMNS;
                }
                --steps_here;
                --count;
                while (count > 0) {
                    if (steps_here == 0) {
                        row0 = *segment++;
                        row1 = *segment++;
                        row2 = *segment++;
                        row3 = *segment++;
                        row4 = *segment++;
                        row5 = *segment++;
                        steps_here = steps;
                        offset = 0;
                    }
                    size_t run = count < steps_here ? count : steps_here;
                    count -= run;
                    steps_here -= run;
                    /* Step: 4 positions of K. */
                    for (; run > 0; --run) {
                        uint8x16_t w0_0 = load_u8x16(column);
                        PIN(w0_0);
                        uint8x16_t w1_0 = load_u8x16(column + 16);
                        PIN(w1_0);
                        uint8x16_t w2_0 = load_u8x16(column + 32);
                        PIN(w2_0);
                        uint8x16_t w3_0 = load_u8x16(column + 48);
                        PIN(w3_0);
                        { /* row 0 */
                            uint8x16_t a0 = load_u8x16(row0 + offset);
                            PIN(a0);
                            uint8x16_t t0 = vqtbl1q_u8(a0, w0_0);
                            acc0_0 = vaddq_u8(acc0_0, t0);
                            PIN(acc0_0);
                            uint8x16_t t2 = vqtbl1q_u8(a0, w1_0);
                            acc1_0 = vaddq_u8(acc1_0, t2);
                            PIN(acc1_0);
                            uint8x16_t t4 = vqtbl1q_u8(a0, w2_0);
                            acc2_0 = vaddq_u8(acc2_0, t4);
                            PIN(acc2_0);
                            uint8x16_t t6 = vqtbl1q_u8(a0, w3_0);
                            acc3_0 = vaddq_u8(acc3_0, t6);
                            PIN(acc3_0);
                        }
                        { /* row 1 */
                            uint8x16_t a0 = load_u8x16(row1 + offset);
                            PIN(a0);
                            uint8x16_t t0 = vqtbl1q_u8(a0, w0_0);
                            acc0_1 = vaddq_u8(acc0_1, t0);
                            PIN(acc0_1);
                            uint8x16_t t2 = vqtbl1q_u8(a0, w1_0);
                            acc1_1 = vaddq_u8(acc1_1, t2);
                            PIN(acc1_1);
                            uint8x16_t t4 = vqtbl1q_u8(a0, w2_0);
                            acc2_1 = vaddq_u8(acc2_1, t4);
                            PIN(acc2_1);
                            uint8x16_t t6 = vqtbl1q_u8(a0, w3_0);
                            acc3_1 = vaddq_u8(acc3_1, t6);
                            PIN(acc3_1);
                        }
                        { /* row 2 */
                            uint8x16_t a0 = load_u8x16(row2 + offset);
                            PIN(a0);
                            uint8x16_t t0 = vqtbl1q_u8(a0, w0_0);
                            acc0_2 = vaddq_u8(acc0_2, t0);
                            PIN(acc0_2);
                            uint8x16_t t2 = vqtbl1q_u8(a0, w1_0);
                            acc1_2 = vaddq_u8(acc1_2, t2);
                            PIN(acc1_2);
                            uint8x16_t t4 = vqtbl1q_u8(a0, w2_0);
                            acc2_2 = vaddq_u8(acc2_2, t4);
                            PIN(acc2_2);
                            uint8x16_t t6 = vqtbl1q_u8(a0, w3_0);
                            acc3_2 = vaddq_u8(acc3_2, t6);
                            PIN(acc3_2);
                        }
                        { /* row 3 */
                            uint8x16_t a0 = load_u8x16(row3 + offset);
                            PIN(a0);
                            uint8x16_t t0 = vqtbl1q_u8(a0, w0_0);
                            acc0_3 = vaddq_u8(acc0_3, t0);
                            PIN(acc0_3);
                            uint8x16_t t2 = vqtbl1q_u8(a0, w1_0);
                            acc1_3 = vaddq_u8(acc1_3, t2);
                            PIN(acc1_3);
                            uint8x16_t t4 = vqtbl1q_u8(a0, w2_0);
                            acc2_3 = vaddq_u8(acc2_3, t4);
                            PIN(acc2_3);
                            uint8x16_t t6 = vqtbl1q_u8(a0, w3_0);
                            acc3_3 = vaddq_u8(acc3_3, t6);
                            PIN(acc3_3);
                        }
                        { /* row 4 */
                            uint8x16_t a0 = load_u8x16(row4 + offset);
                            PIN(a0);
                            uint8x16_t t0 = vqtbl1q_u8(a0, w0_0);
                            acc0_4 = vaddq_u8(acc0_4, t0);
                            PIN(acc0_4);
                            uint8x16_t t2 = vqtbl1q_u8(a0, w1_0);
                            acc1_4 = vaddq_u8(acc1_4, t2);
                            PIN(acc1_4);
                            uint8x16_t t4 = vqtbl1q_u8(a0, w2_0);
                            acc2_4 = vaddq_u8(acc2_4, t4);
                            PIN(acc2_4);
                            uint8x16_t t6 = vqtbl1q_u8(a0, w3_0);
                            acc3_4 = vaddq_u8(acc3_4, t6);
                            PIN(acc3_4);
                        }
                        { /* row 5 */
                            uint8x16_t a0 = load_u8x16(row5 + offset);
                            PIN(a0);
                            uint8x16_t t0 = vqtbl1q_u8(a0, w0_0);
                            acc0_5 = vaddq_u8(acc0_5, t0);
                            PIN(acc0_5);
                            uint8x16_t t2 = vqtbl1q_u8(a0, w1_0);
                            acc1_5 = vaddq_u8(acc1_5, t2);
                            PIN(acc1_5);
                            uint8x16_t t4 = vqtbl1q_u8(a0, w2_0);
                            acc2_5 = vaddq_u8(acc2_5, t4);
                            PIN(acc2_5);
                            uint8x16_t t6 = vqtbl1q_u8(a0, w3_0);
                            acc3_5 = vaddq_u8(acc3_5, t6);
                            PIN(acc3_5);
                        }
                        offset += ROW_BYTES;
                        column += COLUMNS;
                    }
                }
                /* Widening, loop 1: after at most 21 runs of the step. */
                { /* row 0 */
                    acc4_0 = uaddw_u8x16(acc4_0, acc0_0);
                    PIN(acc4_0);
                    acc5_0 = vaddw_high_u8(acc5_0, acc0_0);
                    PIN(acc5_0);
                    acc6_0 = uaddw_u8x16(acc6_0, acc1_0);
                    PIN(acc6_0);
                    acc7_0 = vaddw_high_u8(acc7_0, acc1_0);
                    PIN(acc7_0);
                    acc8_0 = uaddw_u8x16(acc8_0, acc2_0);
                    PIN(acc8_0);
                    acc9_0 = vaddw_high_u8(acc9_0, acc2_0);
                    PIN(acc9_0);
                    acc10_0 = uaddw_u8x16(acc10_0, acc3_0);
                    PIN(acc10_0);
                    acc11_0 = vaddw_high_u8(acc11_0, acc3_0);
                    PIN(acc11_0);
                }
                { /* row 1 */
                    acc4_1 = uaddw_u8x16(acc4_1, acc0_1);
                    PIN(acc4_1);
                    acc5_1 = vaddw_high_u8(acc5_1, acc0_1);
                    PIN(acc5_1);
                    acc6_1 = uaddw_u8x16(acc6_1, acc1_1);
                    PIN(acc6_1);
                    acc7_1 = vaddw_high_u8(acc7_1, acc1_1);
                    PIN(acc7_1);
                    acc8_1 = uaddw_u8x16(acc8_1, acc2_1);
                    PIN(acc8_1);
                    acc9_1 = vaddw_high_u8(acc9_1, acc2_1);
                    PIN(acc9_1);
                    acc10_1 = uaddw_u8x16(acc10_1, acc3_1);
                    PIN(acc10_1);
                    acc11_1 = vaddw_high_u8(acc11_1, acc3_1);
                    PIN(acc11_1);
                }
                { /* row 2 */
                    acc4_2 = uaddw_u8x16(acc4_2, acc0_2);
                    PIN(acc4_2);
                    acc5_2 = vaddw_high_u8(acc5_2, acc0_2);
                    PIN(acc5_2);
                    acc6_2 = uaddw_u8x16(acc6_2, acc1_2);
                    PIN(acc6_2);
                    acc7_2 = vaddw_high_u8(acc7_2, acc1_2);
                    PIN(acc7_2);
                    acc8_2 = uaddw_u8x16(acc8_2, acc2_2);
                    PIN(acc8_2);
                    acc9_2 = vaddw_high_u8(acc9_2, acc2_2);
                    PIN(acc9_2);
                    acc10_2 = uaddw_u8x16(acc10_2, acc3_2);
                    PIN(acc10_2);
                    acc11_2 = vaddw_high_u8(acc11_2, acc3_2);
                    PIN(acc11_2);
                }
                { /* row 3 */
                    acc4_3 = uaddw_u8x16(acc4_3, acc0_3);
                    PIN(acc4_3);
                    acc5_3 = vaddw_high_u8(acc5_3, acc0_3);
                    PIN(acc5_3);
                    acc6_3 = uaddw_u8x16(acc6_3, acc1_3);
                    PIN(acc6_3);
                    acc7_3 = vaddw_high_u8(acc7_3, acc1_3);
                    PIN(acc7_3);
                    acc8_3 = uaddw_u8x16(acc8_3, acc2_3);
                    PIN(acc8_3);
                    acc9_3 = vaddw_high_u8(acc9_3, acc2_3);
                    PIN(acc9_3);
                    acc10_3 = uaddw_u8x16(acc10_3, acc3_3);
                    PIN(acc10_3);
                    acc11_3 = vaddw_high_u8(acc11_3, acc3_3);
                    PIN(acc11_3);
                }
                { /* row 4 */
                    acc4_4 = uaddw_u8x16(acc4_4, acc0_4);
                    PIN(acc4_4);
                    acc5_4 = vaddw_high_u8(acc5_4, acc0_4);
                    PIN(acc5_4);
                    acc6_4 = uaddw_u8x16(acc6_4, acc1_4);
                    PIN(acc6_4);
                    acc7_4 = vaddw_high_u8(acc7_4, acc1_4);
                    PIN(acc7_4);
                    acc8_4 = uaddw_u8x16(acc8_4, acc2_4);
                    PIN(acc8_4);
                    acc9_4 = vaddw_high_u8(acc9_4, acc2_4);
                    PIN(acc9_4);
                    acc10_4 = uaddw_u8x16(acc10_4, acc3_4);
                    PIN(acc10_4);
                    acc11_4 = vaddw_high_u8(acc11_4, acc3_4);
                    PIN(acc11_4);
                }
                { /* row 5 */
                    acc4_5 = uaddw_u8x16(acc4_5, acc0_5);
                    PIN(acc4_5);
                    acc5_5 = vaddw_high_u8(acc5_5, acc0_5);
                    PIN(acc5_5);
                    acc6_5 = uaddw_u8x16(acc6_5, acc1_5);
                    PIN(acc6_5);
                    acc7_5 = vaddw_high_u8(acc7_5, acc1_5);
                    PIN(acc7_5);
                    acc8_5 = uaddw_u8x16(acc8_5, acc2_5);
                    PIN(acc8_5);
                    acc9_5 = vaddw_high_u8(acc9_5, acc2_5);
                    PIN(acc9_5);
                    acc10_5 = uaddw_u8x16(acc10_5, acc3_5);
                    PIN(acc10_5);
                    acc11_5 = vaddw_high_u8(acc11_5, acc3_5);
                    PIN(acc11_5);
                }
            }
            /* Flush: every 5,460 steps. */
            {
                const int32_t *from_0 = start;
                SETTLE(from_0);
                int32_t *to_0 = c;
                SETTLE(to_0);
                const int32_t *terms_0 = row_start;
                SETTLE(terms_0);
                { /* row 0 */
                    uint32x4_t more = dup32_u32x4(terms_0);
                    uint32x4_t c0 = load_u32x4(from_0);
                    c0 = vaddq_u32(c0, more);
                    uint32x4_t c1 = load_u32x4(from_0 + 4);
                    c1 = vaddq_u32(c1, more);
                    uint32x4_t c2 = load_u32x4(from_0 + 8);
                    c2 = vaddq_u32(c2, more);
                    uint32x4_t c3 = load_u32x4(from_0 + 12);
                    c3 = vaddq_u32(c3, more);
                    uint32x4_t c4 = load_u32x4(from_0 + 16);
                    c4 = vaddq_u32(c4, more);
                    uint32x4_t c5 = load_u32x4(from_0 + 20);
                    c5 = vaddq_u32(c5, more);
                    uint32x4_t c6 = load_u32x4(from_0 + 24);
                    c6 = vaddq_u32(c6, more);
                    uint32x4_t c7 = load_u32x4(from_0 + 28);
                    c7 = vaddq_u32(c7, more);
                    uint32x4_t c8 = load_u32x4(from_0 + 32);
                    c8 = vaddq_u32(c8, more);
                    uint32x4_t c9 = load_u32x4(from_0 + 36);
                    c9 = vaddq_u32(c9, more);
                    uint32x4_t c10 = load_u32x4(from_0 + 40);
                    c10 = vaddq_u32(c10, more);
                    uint32x4_t c11 = load_u32x4(from_0 + 44);
                    c11 = vaddq_u32(c11, more);
                    uint32x4_t c12 = load_u32x4(from_0 + 48);
                    c12 = vaddq_u32(c12, more);
                    uint32x4_t c13 = load_u32x4(from_0 + 52);
                    c13 = vaddq_u32(c13, more);
                    uint32x4_t c14 = load_u32x4(from_0 + 56);
                    c14 = vaddq_u32(c14, more);
                    uint32x4_t c15 = load_u32x4(from_0 + 60);
                    c15 = vaddq_u32(c15, more);
                    uint32x4_t t0 = umlal_u16x8(c0, acc4_0, k0);
                    uint32x4_t t1 = vmlal_high_u16(c1, acc4_0, k0);
                    uint32x4_t t2 = umlal_u16x8(c2, acc5_0, k0);
                    uint32x4_t t3 = vmlal_high_u16(c3, acc5_0, k0);
                    uint32x4_t t4 = umlal_u16x8(c4, acc6_0, k0);
                    uint32x4_t t5 = vmlal_high_u16(c5, acc6_0, k0);
                    uint32x4_t t6 = umlal_u16x8(c6, acc7_0, k0);
                    uint32x4_t t7 = vmlal_high_u16(c7, acc7_0, k0);
                    uint32x4_t t8 = umlal_u16x8(c8, acc8_0, k0);
                    uint32x4_t t9 = vmlal_high_u16(c9, acc8_0, k0);
                    uint32x4_t t10 = umlal_u16x8(c10, acc9_0, k0);
                    uint32x4_t t11 = vmlal_high_u16(c11, acc9_0, k0);
                    uint32x4_t t12 = umlal_u16x8(c12, acc10_0, k0);
                    uint32x4_t t13 = vmlal_high_u16(c13, acc10_0, k0);
                    uint32x4_t t14 = umlal_u16x8(c14, acc11_0, k0);
                    uint32x4_t t15 = vmlal_high_u16(c15, acc11_0, k0);
                    /* Write back. */
                    store_u32x4(to_0, t0);
                    store_u32x4(to_0 + 4, t1);
                    store_u32x4(to_0 + 8, t2);
                    store_u32x4(to_0 + 12, t3);
                    store_u32x4(to_0 + 16, t4);
                    store_u32x4(to_0 + 20, t5);
                    store_u32x4(to_0 + 24, t6);
                    store_u32x4(to_0 + 28, t7);
                    store_u32x4(to_0 + 32, t8);
                    store_u32x4(to_0 + 36, t9);
                    store_u32x4(to_0 + 40, t10);
                    store_u32x4(to_0 + 44, t11);
                    store_u32x4(to_0 + 48, t12);
                    store_u32x4(to_0 + 52, t13);
                    store_u32x4(to_0 + 56, t14);
                    store_u32x4(to_0 + 60, t15);
                }
                const int32_t *from_1 = from_0 + start_ld;
                SETTLE(from_1);
                int32_t *to_1 = to_0 + ldc;
                SETTLE(to_1);
                const int32_t *terms_1 = terms_0 + row_start_ld;
                SETTLE(terms_1);
                { /* row 1 */
                    uint32x4_t more = dup32_u32x4(terms_1);
                    uint32x4_t c0 = load_u32x4(from_1);
                    c0 = vaddq_u32(c0, more);
                    uint32x4_t c1 = load_u32x4(from_1 + 4);
                    c1 = vaddq_u32(c1, more);
                    uint32x4_t c2 = load_u32x4(from_1 + 8);
                    c2 = vaddq_u32(c2, more);
                    uint32x4_t c3 = load_u32x4(from_1 + 12);
                    c3 = vaddq_u32(c3, more);
                    uint32x4_t c4 = load_u32x4(from_1 + 16);
                    c4 = vaddq_u32(c4, more);
                    uint32x4_t c5 = load_u32x4(from_1 + 20);
                    c5 = vaddq_u32(c5, more);
                    uint32x4_t c6 = load_u32x4(from_1 + 24);
                    c6 = vaddq_u32(c6, more);
                    uint32x4_t c7 = load_u32x4(from_1 + 28);
                    c7 = vaddq_u32(c7, more);
                    uint32x4_t c8 = load_u32x4(from_1 + 32);
                    c8 = vaddq_u32(c8, more);
                    uint32x4_t c9 = load_u32x4(from_1 + 36);
                    c9 = vaddq_u32(c9, more);
                    uint32x4_t c10 = load_u32x4(from_1 + 40);
                    c10 = vaddq_u32(c10, more);
                    uint32x4_t c11 = load_u32x4(from_1 + 44);
                    c11 = vaddq_u32(c11, more);
                    uint32x4_t c12 = load_u32x4(from_1 + 48);
                    c12 = vaddq_u32(c12, more);
                    uint32x4_t c13 = load_u32x4(from_1 + 52);
                    c13 = vaddq_u32(c13, more);
                    uint32x4_t c14 = load_u32x4(from_1 + 56);
                    c14 = vaddq_u32(c14, more);
                    uint32x4_t c15 = load_u32x4(from_1 + 60);
                    c15 = vaddq_u32(c15, more);
                    uint32x4_t t0 = umlal_u16x8(c0, acc4_1, k0);
                    uint32x4_t t1 = vmlal_high_u16(c1, acc4_1, k0);
                    uint32x4_t t2 = umlal_u16x8(c2, acc5_1, k0);
                    uint32x4_t t3 = vmlal_high_u16(c3, acc5_1, k0);
                    uint32x4_t t4 = umlal_u16x8(c4, acc6_1, k0);
                    uint32x4_t t5 = vmlal_high_u16(c5, acc6_1, k0);
                    uint32x4_t t6 = umlal_u16x8(c6, acc7_1, k0);
                    uint32x4_t t7 = vmlal_high_u16(c7, acc7_1, k0);
                    uint32x4_t t8 = umlal_u16x8(c8, acc8_1, k0);
                    uint32x4_t t9 = vmlal_high_u16(c9, acc8_1, k0);
                    uint32x4_t t10 = umlal_u16x8(c10, acc9_1, k0);
                    uint32x4_t t11 = vmlal_high_u16(c11, acc9_1, k0);
                    uint32x4_t t12 = umlal_u16x8(c12, acc10_1, k0);
                    uint32x4_t t13 = vmlal_high_u16(c13, acc10_1, k0);
                    uint32x4_t t14 = umlal_u16x8(c14, acc11_1, k0);
                    uint32x4_t t15 = vmlal_high_u16(c15, acc11_1, k0);
                    /* Write back. */
                    store_u32x4(to_1, t0);
                    store_u32x4(to_1 + 4, t1);
                    store_u32x4(to_1 + 8, t2);
                    store_u32x4(to_1 + 12, t3);
                    store_u32x4(to_1 + 16, t4);
                    store_u32x4(to_1 + 20, t5);
                    store_u32x4(to_1 + 24, t6);
                    store_u32x4(to_1 + 28, t7);
                    store_u32x4(to_1 + 32, t8);
                    store_u32x4(to_1 + 36, t9);
                    store_u32x4(to_1 + 40, t10);
                    store_u32x4(to_1 + 44, t11);
                    store_u32x4(to_1 + 48, t12);
                    store_u32x4(to_1 + 52, t13);
                    store_u32x4(to_1 + 56, t14);
                    store_u32x4(to_1 + 60, t15);
                }
                const int32_t *from_2 = from_1 + start_ld;
                SETTLE(from_2);
                int32_t *to_2 = to_1 + ldc;
                SETTLE(to_2);
                const int32_t *terms_2 = terms_1 + row_start_ld;
                SETTLE(terms_2);
                { /* row 2 */
                    uint32x4_t more = dup32_u32x4(terms_2);
                    uint32x4_t c0 = load_u32x4(from_2);
                    c0 = vaddq_u32(c0, more);
                    uint32x4_t c1 = load_u32x4(from_2 + 4);
                    c1 = vaddq_u32(c1, more);
                    uint32x4_t c2 = load_u32x4(from_2 + 8);
                    c2 = vaddq_u32(c2, more);
                    uint32x4_t c3 = load_u32x4(from_2 + 12);
                    c3 = vaddq_u32(c3, more);
                    uint32x4_t c4 = load_u32x4(from_2 + 16);
                    c4 = vaddq_u32(c4, more);
                    uint32x4_t c5 = load_u32x4(from_2 + 20);
                    c5 = vaddq_u32(c5, more);
                    uint32x4_t c6 = load_u32x4(from_2 + 24);
                    c6 = vaddq_u32(c6, more);
                    uint32x4_t c7 = load_u32x4(from_2 + 28);
                    c7 = vaddq_u32(c7, more);
                    uint32x4_t c8 = load_u32x4(from_2 + 32);
                    c8 = vaddq_u32(c8, more);
                    uint32x4_t c9 = load_u32x4(from_2 + 36);
                    c9 = vaddq_u32(c9, more);
                    uint32x4_t c10 = load_u32x4(from_2 + 40);
                    c10 = vaddq_u32(c10, more);
                    uint32x4_t c11 = load_u32x4(from_2 + 44);
                    c11 = vaddq_u32(c11, more);
                    uint32x4_t c12 = load_u32x4(from_2 + 48);
                    c12 = vaddq_u32(c12, more);
                    uint32x4_t c13 = load_u32x4(from_2 + 52);
                    c13 = vaddq_u32(c13, more);
                    uint32x4_t c14 = load_u32x4(from_2 + 56);
                    c14 = vaddq_u32(c14, more);
                    uint32x4_t c15 = load_u32x4(from_2 + 60);
                    c15 = vaddq_u32(c15, more);
                    uint32x4_t t0 = umlal_u16x8(c0, acc4_2, k0);
                    uint32x4_t t1 = vmlal_high_u16(c1, acc4_2, k0);
                    uint32x4_t t2 = umlal_u16x8(c2, acc5_2, k0);
                    uint32x4_t t3 = vmlal_high_u16(c3, acc5_2, k0);
                    uint32x4_t t4 = umlal_u16x8(c4, acc6_2, k0);
                    uint32x4_t t5 = vmlal_high_u16(c5, acc6_2, k0);
                    uint32x4_t t6 = umlal_u16x8(c6, acc7_2, k0);
                    uint32x4_t t7 = vmlal_high_u16(c7, acc7_2, k0);
                    uint32x4_t t8 = umlal_u16x8(c8, acc8_2, k0);
                    uint32x4_t t9 = vmlal_high_u16(c9, acc8_2, k0);
                    uint32x4_t t10 = umlal_u16x8(c10, acc9_2, k0);
                    uint32x4_t t11 = vmlal_high_u16(c11, acc9_2, k0);
                    uint32x4_t t12 = umlal_u16x8(c12, acc10_2, k0);
                    uint32x4_t t13 = vmlal_high_u16(c13, acc10_2, k0);
                    uint32x4_t t14 = umlal_u16x8(c14, acc11_2, k0);
                    uint32x4_t t15 = vmlal_high_u16(c15, acc11_2, k0);
                    /* Write back. */
                    store_u32x4(to_2, t0);
                    store_u32x4(to_2 + 4, t1);
                    store_u32x4(to_2 + 8, t2);
                    store_u32x4(to_2 + 12, t3);
                    store_u32x4(to_2 + 16, t4);
                    store_u32x4(to_2 + 20, t5);
                    store_u32x4(to_2 + 24, t6);
                    store_u32x4(to_2 + 28, t7);
                    store_u32x4(to_2 + 32, t8);
                    store_u32x4(to_2 + 36, t9);
                    store_u32x4(to_2 + 40, t10);
                    store_u32x4(to_2 + 44, t11);
                    store_u32x4(to_2 + 48, t12);
                    store_u32x4(to_2 + 52, t13);
                    store_u32x4(to_2 + 56, t14);
                    store_u32x4(to_2 + 60, t15);
                }
                const int32_t *from_3 = from_2 + start_ld;
                SETTLE(from_3);
                int32_t *to_3 = to_2 + ldc;
                SETTLE(to_3);
                const int32_t *terms_3 = terms_2 + row_start_ld;
                SETTLE(terms_3);
                { /* row 3 */
                    uint32x4_t more = dup32_u32x4(terms_3);
                    uint32x4_t c0 = load_u32x4(from_3);
                    c0 = vaddq_u32(c0, more);
                    uint32x4_t c1 = load_u32x4(from_3 + 4);
                    c1 = vaddq_u32(c1, more);
                    uint32x4_t c2 = load_u32x4(from_3 + 8);
                    c2 = vaddq_u32(c2, more);
                    uint32x4_t c3 = load_u32x4(from_3 + 12);
                    c3 = vaddq_u32(c3, more);
                    uint32x4_t c4 = load_u32x4(from_3 + 16);
                    c4 = vaddq_u32(c4, more);
                    uint32x4_t c5 = load_u32x4(from_3 + 20);
                    c5 = vaddq_u32(c5, more);
                    uint32x4_t c6 = load_u32x4(from_3 + 24);
                    c6 = vaddq_u32(c6, more);
                    uint32x4_t c7 = load_u32x4(from_3 + 28);
                    c7 = vaddq_u32(c7, more);
                    uint32x4_t c8 = load_u32x4(from_3 + 32);
                    c8 = vaddq_u32(c8, more);
                    uint32x4_t c9 = load_u32x4(from_3 + 36);
                    c9 = vaddq_u32(c9, more);
                    uint32x4_t c10 = load_u32x4(from_3 + 40);
                    c10 = vaddq_u32(c10, more);
                    uint32x4_t c11 = load_u32x4(from_3 + 44);
                    c11 = vaddq_u32(c11, more);
                    uint32x4_t c12 = load_u32x4(from_3 + 48);
                    c12 = vaddq_u32(c12, more);
                    uint32x4_t c13 = load_u32x4(from_3 + 52);
                    c13 = vaddq_u32(c13, more);
                    uint32x4_t c14 = load_u32x4(from_3 + 56);
                    c14 = vaddq_u32(c14, more);
                    uint32x4_t c15 = load_u32x4(from_3 + 60);
                    c15 = vaddq_u32(c15, more);
                    uint32x4_t t0 = umlal_u16x8(c0, acc4_3, k0);
                    uint32x4_t t1 = vmlal_high_u16(c1, acc4_3, k0);
                    uint32x4_t t2 = umlal_u16x8(c2, acc5_3, k0);
                    uint32x4_t t3 = vmlal_high_u16(c3, acc5_3, k0);
                    uint32x4_t t4 = umlal_u16x8(c4, acc6_3, k0);
                    uint32x4_t t5 = vmlal_high_u16(c5, acc6_3, k0);
                    uint32x4_t t6 = umlal_u16x8(c6, acc7_3, k0);
                    uint32x4_t t7 = vmlal_high_u16(c7, acc7_3, k0);
                    uint32x4_t t8 = umlal_u16x8(c8, acc8_3, k0);
                    uint32x4_t t9 = vmlal_high_u16(c9, acc8_3, k0);
                    uint32x4_t t10 = umlal_u16x8(c10, acc9_3, k0);
                    uint32x4_t t11 = vmlal_high_u16(c11, acc9_3, k0);
                    uint32x4_t t12 = umlal_u16x8(c12, acc10_3, k0);
                    uint32x4_t t13 = vmlal_high_u16(c13, acc10_3, k0);
                    uint32x4_t t14 = umlal_u16x8(c14, acc11_3, k0);
                    uint32x4_t t15 = vmlal_high_u16(c15, acc11_3, k0);
                    /* Write back. */
                    store_u32x4(to_3, t0);
                    store_u32x4(to_3 + 4, t1);
                    store_u32x4(to_3 + 8, t2);
                    store_u32x4(to_3 + 12, t3);
                    store_u32x4(to_3 + 16, t4);
                    store_u32x4(to_3 + 20, t5);
                    store_u32x4(to_3 + 24, t6);
                    store_u32x4(to_3 + 28, t7);
                    store_u32x4(to_3 + 32, t8);
                    store_u32x4(to_3 + 36, t9);
                    store_u32x4(to_3 + 40, t10);
                    store_u32x4(to_3 + 44, t11);
                    store_u32x4(to_3 + 48, t12);
                    store_u32x4(to_3 + 52, t13);
                    store_u32x4(to_3 + 56, t14);
                    store_u32x4(to_3 + 60, t15);
                }
                const int32_t *from_4 = from_3 + start_ld;
                SETTLE(from_4);
                int32_t *to_4 = to_3 + ldc;
                SETTLE(to_4);
                const int32_t *terms_4 = terms_3 + row_start_ld;
                SETTLE(terms_4);
                { /* row 4 */
                    uint32x4_t more = dup32_u32x4(terms_4);
                    uint32x4_t c0 = load_u32x4(from_4);
                    c0 = vaddq_u32(c0, more);
                    uint32x4_t c1 = load_u32x4(from_4 + 4);
                    c1 = vaddq_u32(c1, more);
                    uint32x4_t c2 = load_u32x4(from_4 + 8);
                    c2 = vaddq_u32(c2, more);
                    uint32x4_t c3 = load_u32x4(from_4 + 12);
                    c3 = vaddq_u32(c3, more);
                    uint32x4_t c4 = load_u32x4(from_4 + 16);
                    c4 = vaddq_u32(c4, more);
                    uint32x4_t c5 = load_u32x4(from_4 + 20);
                    c5 = vaddq_u32(c5, more);
                    uint32x4_t c6 = load_u32x4(from_4 + 24);
                    c6 = vaddq_u32(c6, more);
                    uint32x4_t c7 = load_u32x4(from_4 + 28);
                    c7 = vaddq_u32(c7, more);
                    uint32x4_t c8 = load_u32x4(from_4 + 32);
                    c8 = vaddq_u32(c8, more);
                    uint32x4_t c9 = load_u32x4(from_4 + 36);
                    c9 = vaddq_u32(c9, more);
                    uint32x4_t c10 = load_u32x4(from_4 + 40);
                    c10 = vaddq_u32(c10, more);
                    uint32x4_t c11 = load_u32x4(from_4 + 44);
                    c11 = vaddq_u32(c11, more);
                    uint32x4_t c12 = load_u32x4(from_4 + 48);
                    c12 = vaddq_u32(c12, more);
                    uint32x4_t c13 = load_u32x4(from_4 + 52);
                    c13 = vaddq_u32(c13, more);
                    uint32x4_t c14 = load_u32x4(from_4 + 56);
                    c14 = vaddq_u32(c14, more);
                    uint32x4_t c15 = load_u32x4(from_4 + 60);
                    c15 = vaddq_u32(c15, more);
                    uint32x4_t t0 = umlal_u16x8(c0, acc4_4, k0);
                    uint32x4_t t1 = vmlal_high_u16(c1, acc4_4, k0);
                    uint32x4_t t2 = umlal_u16x8(c2, acc5_4, k0);
                    uint32x4_t t3 = vmlal_high_u16(c3, acc5_4, k0);
                    uint32x4_t t4 = umlal_u16x8(c4, acc6_4, k0);
                    uint32x4_t t5 = vmlal_high_u16(c5, acc6_4, k0);
                    uint32x4_t t6 = umlal_u16x8(c6, acc7_4, k0);
                    uint32x4_t t7 = vmlal_high_u16(c7, acc7_4, k0);
                    uint32x4_t t8 = umlal_u16x8(c8, acc8_4, k0);
                    uint32x4_t t9 = vmlal_high_u16(c9, acc8_4, k0);
                    uint32x4_t t10 = umlal_u16x8(c10, acc9_4, k0);
                    uint32x4_t t11 = vmlal_high_u16(c11, acc9_4, k0);
                    uint32x4_t t12 = umlal_u16x8(c12, acc10_4, k0);
                    uint32x4_t t13 = vmlal_high_u16(c13, acc10_4, k0);
                    uint32x4_t t14 = umlal_u16x8(c14, acc11_4, k0);
                    uint32x4_t t15 = vmlal_high_u16(c15, acc11_4, k0);
                    /* Write back. */
                    store_u32x4(to_4, t0);
                    store_u32x4(to_4 + 4, t1);
                    store_u32x4(to_4 + 8, t2);
                    store_u32x4(to_4 + 12, t3);
                    store_u32x4(to_4 + 16, t4);
                    store_u32x4(to_4 + 20, t5);
                    store_u32x4(to_4 + 24, t6);
                    store_u32x4(to_4 + 28, t7);
                    store_u32x4(to_4 + 32, t8);
                    store_u32x4(to_4 + 36, t9);
                    store_u32x4(to_4 + 40, t10);
                    store_u32x4(to_4 + 44, t11);
                    store_u32x4(to_4 + 48, t12);
                    store_u32x4(to_4 + 52, t13);
                    store_u32x4(to_4 + 56, t14);
                    store_u32x4(to_4 + 60, t15);
                }
                const int32_t *from_5 = from_4 + start_ld;
                SETTLE(from_5);
                int32_t *to_5 = to_4 + ldc;
                SETTLE(to_5);
                const int32_t *terms_5 = terms_4 + row_start_ld;
                SETTLE(terms_5);
                { /* row 5 */
                    uint32x4_t more = dup32_u32x4(terms_5);
                    uint32x4_t c0 = load_u32x4(from_5);
                    c0 = vaddq_u32(c0, more);
                    uint32x4_t c1 = load_u32x4(from_5 + 4);
                    c1 = vaddq_u32(c1, more);
                    uint32x4_t c2 = load_u32x4(from_5 + 8);
                    c2 = vaddq_u32(c2, more);
                    uint32x4_t c3 = load_u32x4(from_5 + 12);
                    c3 = vaddq_u32(c3, more);
                    uint32x4_t c4 = load_u32x4(from_5 + 16);
                    c4 = vaddq_u32(c4, more);
                    uint32x4_t c5 = load_u32x4(from_5 + 20);
                    c5 = vaddq_u32(c5, more);
                    uint32x4_t c6 = load_u32x4(from_5 + 24);
                    c6 = vaddq_u32(c6, more);
                    uint32x4_t c7 = load_u32x4(from_5 + 28);
                    c7 = vaddq_u32(c7, more);
                    uint32x4_t c8 = load_u32x4(from_5 + 32);
                    c8 = vaddq_u32(c8, more);
                    uint32x4_t c9 = load_u32x4(from_5 + 36);
                    c9 = vaddq_u32(c9, more);
                    uint32x4_t c10 = load_u32x4(from_5 + 40);
                    c10 = vaddq_u32(c10, more);
                    uint32x4_t c11 = load_u32x4(from_5 + 44);
                    c11 = vaddq_u32(c11, more);
                    uint32x4_t c12 = load_u32x4(from_5 + 48);
                    c12 = vaddq_u32(c12, more);
                    uint32x4_t c13 = load_u32x4(from_5 + 52);
                    c13 = vaddq_u32(c13, more);
                    uint32x4_t c14 = load_u32x4(from_5 + 56);
                    c14 = vaddq_u32(c14, more);
                    uint32x4_t c15 = load_u32x4(from_5 + 60);
                    c15 = vaddq_u32(c15, more);
                    uint32x4_t t0 = umlal_u16x8(c0, acc4_5, k0);
                    uint32x4_t t1 = vmlal_high_u16(c1, acc4_5, k0);
                    uint32x4_t t2 = umlal_u16x8(c2, acc5_5, k0);
                    uint32x4_t t3 = vmlal_high_u16(c3, acc5_5, k0);
                    uint32x4_t t4 = umlal_u16x8(c4, acc6_5, k0);
                    uint32x4_t t5 = vmlal_high_u16(c5, acc6_5, k0);
                    uint32x4_t t6 = umlal_u16x8(c6, acc7_5, k0);
                    uint32x4_t t7 = vmlal_high_u16(c7, acc7_5, k0);
                    uint32x4_t t8 = umlal_u16x8(c8, acc8_5, k0);
                    uint32x4_t t9 = vmlal_high_u16(c9, acc8_5, k0);
                    uint32x4_t t10 = umlal_u16x8(c10, acc9_5, k0);
                    uint32x4_t t11 = vmlal_high_u16(c11, acc9_5, k0);
                    uint32x4_t t12 = umlal_u16x8(c12, acc10_5, k0);
                    uint32x4_t t13 = vmlal_high_u16(c13, acc10_5, k0);
                    uint32x4_t t14 = umlal_u16x8(c14, acc11_5, k0);
                    uint32x4_t t15 = vmlal_high_u16(c15, acc11_5, k0);
                    /* Write back. */
                    store_u32x4(to_5, t0);
                    store_u32x4(to_5 + 4, t1);
                    store_u32x4(to_5 + 8, t2);
                    store_u32x4(to_5 + 12, t3);
                    store_u32x4(to_5 + 16, t4);
                    store_u32x4(to_5 + 20, t5);
                    store_u32x4(to_5 + 24, t6);
                    store_u32x4(to_5 + 28, t7);
                    store_u32x4(to_5 + 32, t8);
                    store_u32x4(to_5 + 36, t9);
                    store_u32x4(to_5 + 40, t10);
                    store_u32x4(to_5 + 44, t11);
                    store_u32x4(to_5 + 48, t12);
                    store_u32x4(to_5 + 52, t13);
                    store_u32x4(to_5 + 56, t14);
                    store_u32x4(to_5 + 60, t15);
                }
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

enum { ENTRIES = 16, TABLES = 1 };

/* The next table of partial sums of the values in `stage`; a whole register is written. */
static void build_tables(const uint8_t *stage, uint8_t *to)
{
    static const uint8_t lanes_k0[16] = {255, 0, 1, 0, 2, 2, 1, 255, 3, 3, 3, 3, 3, 2, 2, 0};
    static const uint8_t lanes_k1[16] = {0, 0, 0, 2, 0, 1, 4, 2, 0, 1, 2, 1, 4, 1, 8, 2};
    static const uint8_t lanes_k2[16] = {0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2, 0, 8, 2, 12};
    uint8x16_t k0 = load_u8x16(lanes_k0);
    uint8x16_t k1 = load_u8x16(lanes_k1);
    uint8x16_t k2 = load_u8x16(lanes_k2);
    uint8x16_t x0 = dup64_u8x16(stage);
    uint8x16_t t0 = vqtbl1q_u8(x0, k0);
    uint8x16_t t1 = vqtbl1q_u8(t0, k1);
    uint8x16_t t2 = vaddq_u8(t0, t1);
    uint8x16_t t3 = vqtbl1q_u8(t2, k2);
    uint8x16_t t4 = vaddq_u8(t2, t3);
    store_u8x16(to, t4);
}

/* The table of partial sums of the values of the next codes, of which there are `left`. */
static void pack_table(
    const uint8_t *values, size_t left, const uint8_t *codes, size_t stride, uint8_t *to)
{
    static const size_t staged[] = {0, 1, 2, 3, SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
    uint8_t stage[sizeof staged / sizeof *staged], entries[16];
    for (size_t p = 0; p < sizeof stage; ++p)
        stage[p] = staged[p] < left ? values[codes[staged[p] * stride]] : 0;
    build_tables(stage, entries);
    memcpy(to, entries, ENTRIES);
}

/* Packs the inputs of one row from the `left` codes of a step. */
static void pack_step(size_t left, const uint8_t *codes, size_t stride, uint8_t *to)
{
    static const uint8_t values_0[] = {0, 1, 2, 3};
    pack_table(values_0, left, codes, stride, to);
    to += ENTRIES;
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

/* Tables of all codes of a row, 4 codes at a time. */
static void pack_all_tables(size_t k, const uint8_t *codes, size_t readable, uint8_t *to)
{
    for (; k >= 4 && readable >= 8; k -= 4) {
        build_tables(codes, to);
        readable -= 4;
        codes += 4;
        to += TABLES * ENTRIES;
    }
    while (k > 0) {
        const size_t left = k < 4 ? k : 4;
        uint64_t stage = 0;
        if (readable >= 8) {
            memcpy(&stage, codes, 8);
            stage &= UINT64_MAX >> (64 - 8 * left);
        } else {
            memcpy(&stage, codes, left);
        }
        build_tables((const uint8_t *)&stage, to);
        k -= left;
        readable -= left;
        codes += left;
        to += TABLES * ENTRIES;
    }
}

static void pack_row(size_t k, const uint8_t *codes, size_t readable, uint8_t *packed)
{
    const size_t tables = ceiling(k, K_STEP) * (ROW_BYTES / ENTRIES);
    const size_t made = ceiling(k, TABLES * 4) * TABLES;
    pack_all_tables(k, codes, readable, packed);
    if (made < tables)
        memset(packed + made * ENTRIES, 0, (tables - made) * ENTRIES);
}

void bs_mm_a2u_w1b_s32_neon_6x64x4_pack_rows(
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
        terms[row] = -1 * sum;
    }
}

/* Returns the number of set bits; compilers use an instruction for it where there is one. */
static inline int32_t ones(uint64_t x)
{
    x -= x >> 1 & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
    x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (int32_t)((x * UINT64_C(0x0101010101010101)) >> 56);
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

/* clang-format off */
/* Sums of every set of four codes; and for codes that may have one bit more: of `a` first. */
#define SUMS(a, b, c, d) \
    {0, a, b, a + b, c, a + c, b + c, a + b + c, \
     d, a + d, b + d, a + b + d, c + d, a + c + d, b + c + d, a + b + c + d}
#define BITS1(a, b, c, d) SUMS(a, b, c, d), SUMS(a + 1, b, c, d)
#define BITS2(a, b, c, d) BITS1(a, b, c, d), BITS1(a, b + 1, c, d)
#define BITS3(a, b, c, d) BITS2(a, b, c, d), BITS2(a, b, c + 1, d)
#define BITS4(a, b, c, d) BITS3(a, b, c, d), BITS3(a, b, c, d + 1)
#define BITS5(a, b, c, d) BITS4(a, b, c, d), BITS4(a + 2, b, c, d)
#define BITS6(a, b, c, d) BITS5(a, b, c, d), BITS5(a, b + 2, c, d)
#define BITS7(a, b, c, d) BITS6(a, b, c, d), BITS6(a, b, c + 2, d)
#define BITS8(a, b, c, d) BITS7(a, b, c, d), BITS7(a, b, c, d + 2)
/* clang-format on */

/* The table of four codes by their bits, first those that the codes' low bits make up. */
static const uint8_t table_of[256][ENTRIES] = {BITS8(0, 0, 0, 0)};

/* A table at any alignment. */
typedef uint8_t whole __attribute__((vector_size(ENTRIES), aligned(1), may_alias));

/* The bits of codes 8 q + 4 h to 8 q + 4 h + 3 side by side: half q / 4 of byte 4 h + q % 4. */
static inline uint64_t fours(uint64_t x)
{
    uint64_t t = (x ^ x >> 7) & UINT64_C(0x00aa00aa00aa00aa);
    x ^= t ^ t << 7;
    t = (x ^ x >> 14) & UINT64_C(0x0000cccc0000cccc);
    return x ^ t ^ t << 14;
}

/* A table of codes by their bits, the first eight here. */
static inline whole table_with(uint64_t bits0)
{
    const whole *tables = (const whole *)(const void *)table_of;
    return tables[bits0 & 255];
}

/* Copies the tables of 64 codes from words, and adds to sums of codes; bits outside of `mask` are
 * ignored. */
static inline void put_tables(const uint64_t *words, uint64_t mask, uint8_t *to, int32_t *sums)
{
    whole *made = (whole *)(void *)to;
    const uint64_t half = UINT64_C(0x0f0f0f0f0f0f0f0f);
    const uint64_t b0 = words[0] & mask, t0 = fours(b0);
    const uint64_t b1 = words[1] & mask, t1 = fours(b1);
    const uint64_t low0 = (t0 & half) | (t1 & half) << 4, high0 = (t0 >> 4 & half) | (t1 & ~half);
    const whole made0 = table_with(low0);
    const whole made1 = table_with(low0 >> 32);
    made[0] = made0;
    made[1] = made1;
    const whole made2 = table_with(low0 >> 8);
    const whole made3 = table_with(low0 >> 40);
    made[2] = made2;
    made[3] = made3;
    const whole made4 = table_with(low0 >> 16);
    const whole made5 = table_with(low0 >> 48);
    made[4] = made4;
    made[5] = made5;
    const whole made6 = table_with(low0 >> 24);
    const whole made7 = table_with(low0 >> 56);
    made[6] = made6;
    made[7] = made7;
    const whole made8 = table_with(high0);
    const whole made9 = table_with(high0 >> 32);
    made[8] = made8;
    made[9] = made9;
    const whole made10 = table_with(high0 >> 8);
    const whole made11 = table_with(high0 >> 40);
    made[10] = made10;
    made[11] = made11;
    const whole made12 = table_with(high0 >> 16);
    const whole made13 = table_with(high0 >> 48);
    made[12] = made12;
    made[13] = made13;
    const whole made14 = table_with(high0 >> 24);
    const whole made15 = table_with(high0 >> 56);
    made[14] = made14;
    made[15] = made15;
    sums[0] += -1 * ones(b0) + -2 * ones(b1);
}

void bs_mm_a2u_w1b_s32_neon_6x64x4_pack_words(
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
        uint8_t *to = packed;
        size_t left = k;
        for (; left >= 64; left -= 64, from += 2, to += 16 * ENTRIES)
            put_tables(from, UINT64_MAX, to, sum);
        if (left > 0) {
            uint8_t rest[16 * ENTRIES];
            const size_t some = ceiling(left, 4) * ENTRIES;
            put_tables(from, first_bits(left), rest, sum);
            memcpy(to, rest, some);
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
        sums[v] = -1 * sum;
    }
}

/* The terms of each column, sums of a number for each code: accumulators start from them. */
static void column_sums(
    size_t count, size_t k, const uint8_t *codes, size_t apart, size_t stride, int64_t *sums)
{
    static const int64_t code_terms[] = {0, 0};
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
        bs_mm_a2u_w1b_s32_neon_6x64x4_pack_rows(
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
        32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
        48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
    };
    /* clang-format on */
    const size_t steps = ceiling(k, K_STEP), columns = ceiling(count, COLUMNS) * COLUMNS;
    uint8_t *to = packed;
    for (size_t tile = 0; tile < columns; tile += COLUMNS) {
        for (size_t step = 0; step < steps; ++step) {
            static const struct input inputs[] = {{0, 1, 0, 0, 4}};
            static const uint64_t table[] = {UINT64_C(0), UINT64_C(1)};
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

size_t bs_mm_a2u_w1b_s32_neon_6x64x4_act_bytes(size_t m, size_t k)
{
    return row_bytes(m, k);
}

size_t bs_mm_a2u_w1b_s32_neon_6x64x4_wgt_bytes(size_t k, size_t n)
{
    return column_bytes(n, k);
}

int bs_mm_a2u_w1b_s32_neon_6x64x4_pack_act(
    size_t m, size_t k, const uint8_t *codes, uint8_t *packed)
{
    if (product(m, k) > PTRDIFF_MAX || row_bytes(m, k) == SIZE_MAX)
        return -1;
    pack_rows(m, k, codes, k, 1, packed);
    return 0;
}

int bs_mm_a2u_w1b_s32_neon_6x64x4_pack_wgt(
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

int bs_mm_a2u_w1b_s32_neon_6x64x4_matmul(
    size_t m, size_t k, size_t n, const uint8_t *act, const uint8_t *wgt, int32_t *c)
{
    const uint8_t *a = act, *w = wgt;
    const size_t rows = m, columns = n;
    int32_t tile[ROWS * COLUMNS], g[COLUMNS], h[ROWS];
    if (k > bs_mm_a2u_w1b_s32_neon_6x64x4_k_max || product(product(m, n), sizeof *c) > PTRDIFF_MAX)
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
            bs_mm_a2u_w1b_s32_neon_6x64x4(1, 1, steps, inputs, tile_w, g, h, tile, COLUMNS);
            for (size_t i = 0; i < height; ++i)
                for (size_t j = 0; j < width; ++j) {
                    const int32_t sum = tile[i * COLUMNS + j];
                    c[(row + i) * n + column + j] = sum;
                }
        }
    }
    return 0;
}
