/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64: exact int32 products of 3-bit unsigned activations and
 * 3-bit bipolar weights, by counting bits.
 *
 *   computes  c (m x n) = activations (m x k) times weights (k x n), for k up to 43,826,196
 *   tile      1 row of activations x 8 columns of weights; a step is 64 positions of k
 *   row       24 bytes a step: bit 0 at positions 0 to 7, 8 to 15, .., 56 to 63, byte by byte;
 *             bit 1 at positions 0 to 7, 8 to 15, .., 56 to 63, byte by byte; bit 2 at positions
 *             0 to 7, 8 to 15, .., 56 to 63, byte by byte
 *   column    32 bytes a step: codes 2, 5, 6, 7 at positions 0 to 7, 8 to 15, .., 56 to 63, byte
 *             by byte; codes 6, 7 at positions 0 to 7, 8 to 15, .., 56 to 63, byte by byte;
 *             codes 1, 2, 4, 5, 6 at positions 0 to 7, 8 to 15, .., 56 to 63, byte by byte;
 *             codes 2, 3, 4 at positions 0 to 7, 8 to 15, .., 56 to 63, byte by byte
 *   columns   lie next to each other, in order, 8 bytes each
 *
 * From a kernel whose proof was checked. */
#include "bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64.h"

#include <arm_neon.h>
#include <string.h>

#ifndef __ARM_FEATURE_DOTPROD
#error "needs __ARM_FEATURE_DOTPROD: compile with -march=armv8.2-a+dotprod"
#endif

enum { ROWS = 1, COLUMNS = 8, K_STEP = 64, SLOT_BYTES = 8 };
enum { ROW_BYTES = bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_row_bytes, COLUMN_BYTES = 32 };

/* Instructions that need casts or several intrinsics; PIN keeps a value in its register. */
#define SETTLE(x) __asm__ volatile("" : "+r"(x))
#define dup32_u32x4(p) vld1q_dup_u32((const uint32_t *)(p))
#define dup64_u8x16(p) vreinterpretq_u8_u64(vld1q_dup_u64((const uint64_t *)(p)))
#define load_u16x8(p) vld1q_u16((const uint16_t *)(p))
#define load_u32x4(p) vld1q_u32((const uint32_t *)(p))
#define load_u8x16(p) vld1q_u8((const uint8_t *)(p))
#define store_u32x4(to, a) vst1q_u32((uint32_t *)(to), a)
#define umlsl_u16x8(acc, a, b) vmlsl_u16(acc, vget_low_u16(a), vget_low_u16(b))
#define PIN(x) __asm__ volatile("" : "+w"(x))

static const uint16_t constant_k0[8] = {2, 2, 2, 2, 2, 2, 2, 2};
static const uint16_t constant_k1[8] = {4, 4, 4, 4, 4, 4, 4, 4};
static const uint16_t constant_k2[8] = {6, 6, 6, 6, 6, 6, 6, 6};
static const uint16_t constant_k3[8] = {8, 8, 8, 8, 8, 8, 8, 8};
static const uint16_t constant_k4[8] = {12, 12, 12, 12, 12, 12, 12, 12};
static const uint16_t constant_k5[8] = {24, 24, 24, 24, 24, 24, 24, 24};
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
void bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64(
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
    uint16x8_t k1 = load_u16x8(constant_k1);
    uint16x8_t k2 = load_u16x8(constant_k2);
    uint16x8_t k3 = load_u16x8(constant_k3);
    uint16x8_t k4 = load_u16x8(constant_k4);
    uint16x8_t k5 = load_u16x8(constant_k5);
    for (; tiles > 0; --tiles) {
        /* What a flush adds sums to: the start, then the tile. */
        const int32_t *start = g;
        const int32_t *row_start = h;
        /* Rows of the next segment; then of this one, how many steps are left and where they
         * are. */
        const uint8_t *const *segment = a + ROWS;
        const uint8_t *row0 = a[0];
        const uint8_t *column = w;
        size_t steps_here = steps, offset = 0;
        for (size_t steps_left = all_steps; steps_left > 0;) {
            const size_t block = steps_left < 1023 ? steps_left : 1023;
            uint16x8_t acc0_0, acc1_0, acc2_0, acc3_0, acc4_0, acc5_0;
            size_t count = block;
            /* First run of the step: it sets the accumulators. */
            if (steps_here == 0) {
                row0 = *segment++;
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
                uint8x16_t w0_1 = load_u8x16(column + 64);
                PIN(w0_1);
                uint8x16_t w1_1 = load_u8x16(column + 80);
                PIN(w1_1);
                uint8x16_t w2_1 = load_u8x16(column + 96);
                PIN(w2_1);
                uint8x16_t w3_1 = load_u8x16(column + 112);
                PIN(w3_1);
                uint8x16_t w0_2 = load_u8x16(column + 128);
                PIN(w0_2);
                uint8x16_t w1_2 = load_u8x16(column + 144);
                PIN(w1_2);
                uint8x16_t w2_2 = load_u8x16(column + 160);
                PIN(w2_2);
                uint8x16_t w3_2 = load_u8x16(column + 176);
                PIN(w3_2);
                uint8x16_t w0_3 = load_u8x16(column + 192);
                PIN(w0_3);
                uint8x16_t w1_3 = load_u8x16(column + 208);
                PIN(w1_3);
                uint8x16_t w2_3 = load_u8x16(column + 224);
                PIN(w2_3);
                uint8x16_t w3_3 = load_u8x16(column + 240);
                PIN(w3_3);
                {
                    uint8x16_t a0 = dup64_u8x16(row0 + offset);
                    PIN(a0);
                    uint8x16_t a1 = dup64_u8x16(row0 + offset + 8);
                    PIN(a1);
                    uint8x16_t a2 = dup64_u8x16(row0 + offset + 16);
                    PIN(a2);
                    uint8x16_t t0 = veorq_u8(a0, w0_0);
                    uint8x16_t t1 = vorrq_u8(w0_3, t0);
                    uint8x16_t t2 = vcntq_u8(t1);
                    uint8x16_t t3 = veorq_u8(a0, w1_0);
                    uint8x16_t t4 = vorrq_u8(w1_3, t3);
                    uint8x16_t t5 = vcntq_u8(t4);
                    uint8x16_t t6 = vpaddq_u8(t2, t5);
                    uint8x16_t t7 = veorq_u8(a0, w2_0);
                    uint8x16_t t8 = vorrq_u8(w2_3, t7);
                    uint8x16_t t9 = vcntq_u8(t8);
                    uint8x16_t t10 = veorq_u8(a0, w3_0);
                    uint8x16_t t11 = vorrq_u8(w3_3, t10);
                    uint8x16_t t12 = vcntq_u8(t11);
                    uint8x16_t t13 = vpaddq_u8(t9, t12);
                    uint8x16_t t14 = vpaddq_u8(t6, t13);
                    acc2_0 = vpaddlq_u8(t14);
                    PIN(acc2_0);
                    uint8x16_t t16 = vbslq_u8(t0, w0_1, w0_2);
                    uint8x16_t t17 = vcntq_u8(t16);
                    uint8x16_t t18 = vbslq_u8(t3, w1_1, w1_2);
                    uint8x16_t t19 = vcntq_u8(t18);
                    uint8x16_t t20 = vpaddq_u8(t17, t19);
                    uint8x16_t t21 = vbslq_u8(t7, w2_1, w2_2);
                    uint8x16_t t22 = vcntq_u8(t21);
                    uint8x16_t t23 = vbslq_u8(t10, w3_1, w3_2);
                    uint8x16_t t24 = vcntq_u8(t23);
                    uint8x16_t t25 = vpaddq_u8(t22, t24);
                    uint8x16_t t26 = vpaddq_u8(t20, t25);
                    acc0_0 = vpaddlq_u8(t26);
                    PIN(acc0_0);
                    uint8x16_t t28 = veorq_u8(a1, w0_0);
                    uint8x16_t t29 = vorrq_u8(w0_3, t28);
                    uint8x16_t t30 = vcntq_u8(t29);
                    uint8x16_t t31 = veorq_u8(a1, w1_0);
                    uint8x16_t t32 = vorrq_u8(w1_3, t31);
                    uint8x16_t t33 = vcntq_u8(t32);
                    uint8x16_t t34 = vpaddq_u8(t30, t33);
                    uint8x16_t t35 = veorq_u8(a1, w2_0);
                    uint8x16_t t36 = vorrq_u8(w2_3, t35);
                    uint8x16_t t37 = vcntq_u8(t36);
                    uint8x16_t t38 = veorq_u8(a1, w3_0);
                    uint8x16_t t39 = vorrq_u8(w3_3, t38);
                    uint8x16_t t40 = vcntq_u8(t39);
                    uint8x16_t t41 = vpaddq_u8(t37, t40);
                    uint8x16_t t42 = vpaddq_u8(t34, t41);
                    acc4_0 = vpaddlq_u8(t42);
                    PIN(acc4_0);
                    uint8x16_t t44 = vbslq_u8(t28, w0_1, w0_2);
                    uint8x16_t t45 = vcntq_u8(t44);
                    uint8x16_t t46 = vbslq_u8(t31, w1_1, w1_2);
                    uint8x16_t t47 = vcntq_u8(t46);
                    uint8x16_t t48 = vpaddq_u8(t45, t47);
                    uint8x16_t t49 = vbslq_u8(t35, w2_1, w2_2);
                    uint8x16_t t50 = vcntq_u8(t49);
                    uint8x16_t t51 = vbslq_u8(t38, w3_1, w3_2);
                    uint8x16_t t52 = vcntq_u8(t51);
                    uint8x16_t t53 = vpaddq_u8(t50, t52);
                    uint8x16_t t54 = vpaddq_u8(t48, t53);
                    acc1_0 = vpaddlq_u8(t54);
                    PIN(acc1_0);
                    uint8x16_t t56 = veorq_u8(a2, w0_0);
                    uint8x16_t t57 = vorrq_u8(w0_3, t56);
                    uint8x16_t t58 = vcntq_u8(t57);
                    uint8x16_t t59 = veorq_u8(a2, w1_0);
                    uint8x16_t t60 = vorrq_u8(w1_3, t59);
                    uint8x16_t t61 = vcntq_u8(t60);
                    uint8x16_t t62 = vpaddq_u8(t58, t61);
                    uint8x16_t t63 = veorq_u8(a2, w2_0);
                    uint8x16_t t64 = vorrq_u8(w2_3, t63);
                    uint8x16_t t65 = vcntq_u8(t64);
                    uint8x16_t t66 = veorq_u8(a2, w3_0);
                    uint8x16_t t67 = vorrq_u8(w3_3, t66);
                    uint8x16_t t68 = vcntq_u8(t67);
                    uint8x16_t t69 = vpaddq_u8(t65, t68);
                    uint8x16_t t70 = vpaddq_u8(t62, t69);
                    acc5_0 = vpaddlq_u8(t70);
                    PIN(acc5_0);
                    uint8x16_t t72 = vbslq_u8(t56, w0_1, w0_2);
                    uint8x16_t t73 = vcntq_u8(t72);
                    uint8x16_t t74 = vbslq_u8(t59, w1_1, w1_2);
                    uint8x16_t t75 = vcntq_u8(t74);
                    uint8x16_t t76 = vpaddq_u8(t73, t75);
                    uint8x16_t t77 = vbslq_u8(t63, w2_1, w2_2);
                    uint8x16_t t78 = vcntq_u8(t77);
                    uint8x16_t t79 = vbslq_u8(t66, w3_1, w3_2);
                    uint8x16_t t80 = vcntq_u8(t79);
                    uint8x16_t t81 = vpaddq_u8(t78, t80);
                    uint8x16_t t82 = vpaddq_u8(t76, t81);
                    acc3_0 = vpaddlq_u8(t82);
                    PIN(acc3_0);
                }
                offset += ROW_BYTES;
                column += COLUMNS * 32;
            }
            --steps_here;
            --count;
            while (count > 0) {
                if (steps_here == 0) {
                    row0 = *segment++;
                    steps_here = steps;
                    offset = 0;
                }
                size_t run = count < steps_here ? count : steps_here;
                count -= run;
                steps_here -= run;
                /* Step: 64 positions of K. */
                for (; run > 0; --run) {
                    uint8x16_t w0_0 = load_u8x16(column);
                    PIN(w0_0);
                    uint8x16_t w1_0 = load_u8x16(column + 16);
                    PIN(w1_0);
                    uint8x16_t w2_0 = load_u8x16(column + 32);
                    PIN(w2_0);
                    uint8x16_t w3_0 = load_u8x16(column + 48);
                    PIN(w3_0);
                    uint8x16_t w0_1 = load_u8x16(column + 64);
                    PIN(w0_1);
                    uint8x16_t w1_1 = load_u8x16(column + 80);
                    PIN(w1_1);
                    uint8x16_t w2_1 = load_u8x16(column + 96);
                    PIN(w2_1);
                    uint8x16_t w3_1 = load_u8x16(column + 112);
                    PIN(w3_1);
                    uint8x16_t w0_2 = load_u8x16(column + 128);
                    PIN(w0_2);
                    uint8x16_t w1_2 = load_u8x16(column + 144);
                    PIN(w1_2);
                    uint8x16_t w2_2 = load_u8x16(column + 160);
                    PIN(w2_2);
                    uint8x16_t w3_2 = load_u8x16(column + 176);
                    PIN(w3_2);
                    uint8x16_t w0_3 = load_u8x16(column + 192);
                    PIN(w0_3);
                    uint8x16_t w1_3 = load_u8x16(column + 208);
                    PIN(w1_3);
                    uint8x16_t w2_3 = load_u8x16(column + 224);
                    PIN(w2_3);
                    uint8x16_t w3_3 = load_u8x16(column + 240);
                    PIN(w3_3);
                    {
                        uint8x16_t a0 = dup64_u8x16(row0 + offset);
                        PIN(a0);
                        uint8x16_t a1 = dup64_u8x16(row0 + offset + 8);
                        PIN(a1);
                        uint8x16_t a2 = dup64_u8x16(row0 + offset + 16);
                        PIN(a2);
                        uint8x16_t t0 = veorq_u8(a0, w0_0);
                        uint8x16_t t1 = vorrq_u8(w0_3, t0);
                        uint8x16_t t2 = vcntq_u8(t1);
                        uint8x16_t t3 = veorq_u8(a0, w1_0);
                        uint8x16_t t4 = vorrq_u8(w1_3, t3);
                        uint8x16_t t5 = vcntq_u8(t4);
                        uint8x16_t t6 = vpaddq_u8(t2, t5);
                        uint8x16_t t7 = veorq_u8(a0, w2_0);
                        uint8x16_t t8 = vorrq_u8(w2_3, t7);
                        uint8x16_t t9 = vcntq_u8(t8);
                        uint8x16_t t10 = veorq_u8(a0, w3_0);
                        uint8x16_t t11 = vorrq_u8(w3_3, t10);
                        uint8x16_t t12 = vcntq_u8(t11);
                        uint8x16_t t13 = vpaddq_u8(t9, t12);
                        uint8x16_t t14 = vpaddq_u8(t6, t13);
                        acc2_0 = vpadalq_u8(acc2_0, t14);
                        PIN(acc2_0);
                        uint8x16_t t16 = vbslq_u8(t0, w0_1, w0_2);
                        uint8x16_t t17 = vcntq_u8(t16);
                        uint8x16_t t18 = vbslq_u8(t3, w1_1, w1_2);
                        uint8x16_t t19 = vcntq_u8(t18);
                        uint8x16_t t20 = vpaddq_u8(t17, t19);
                        uint8x16_t t21 = vbslq_u8(t7, w2_1, w2_2);
                        uint8x16_t t22 = vcntq_u8(t21);
                        uint8x16_t t23 = vbslq_u8(t10, w3_1, w3_2);
                        uint8x16_t t24 = vcntq_u8(t23);
                        uint8x16_t t25 = vpaddq_u8(t22, t24);
                        uint8x16_t t26 = vpaddq_u8(t20, t25);
                        acc0_0 = vpadalq_u8(acc0_0, t26);
                        PIN(acc0_0);
                        uint8x16_t t28 = veorq_u8(a1, w0_0);
                        uint8x16_t t29 = vorrq_u8(w0_3, t28);
                        uint8x16_t t30 = vcntq_u8(t29);
                        uint8x16_t t31 = veorq_u8(a1, w1_0);
                        uint8x16_t t32 = vorrq_u8(w1_3, t31);
                        uint8x16_t t33 = vcntq_u8(t32);
                        uint8x16_t t34 = vpaddq_u8(t30, t33);
                        uint8x16_t t35 = veorq_u8(a1, w2_0);
                        uint8x16_t t36 = vorrq_u8(w2_3, t35);
                        uint8x16_t t37 = vcntq_u8(t36);
                        uint8x16_t t38 = veorq_u8(a1, w3_0);
                        uint8x16_t t39 = vorrq_u8(w3_3, t38);
                        uint8x16_t t40 = vcntq_u8(t39);
                        uint8x16_t t41 = vpaddq_u8(t37, t40);
                        uint8x16_t t42 = vpaddq_u8(t34, t41);
                        acc4_0 = vpadalq_u8(acc4_0, t42);
                        PIN(acc4_0);
                        uint8x16_t t44 = vbslq_u8(t28, w0_1, w0_2);
                        uint8x16_t t45 = vcntq_u8(t44);
                        uint8x16_t t46 = vbslq_u8(t31, w1_1, w1_2);
                        uint8x16_t t47 = vcntq_u8(t46);
                        uint8x16_t t48 = vpaddq_u8(t45, t47);
                        uint8x16_t t49 = vbslq_u8(t35, w2_1, w2_2);
                        uint8x16_t t50 = vcntq_u8(t49);
                        uint8x16_t t51 = vbslq_u8(t38, w3_1, w3_2);
                        uint8x16_t t52 = vcntq_u8(t51);
                        uint8x16_t t53 = vpaddq_u8(t50, t52);
                        uint8x16_t t54 = vpaddq_u8(t48, t53);
                        acc1_0 = vpadalq_u8(acc1_0, t54);
                        PIN(acc1_0);
                        uint8x16_t t56 = veorq_u8(a2, w0_0);
                        uint8x16_t t57 = vorrq_u8(w0_3, t56);
                        uint8x16_t t58 = vcntq_u8(t57);
                        uint8x16_t t59 = veorq_u8(a2, w1_0);
                        uint8x16_t t60 = vorrq_u8(w1_3, t59);
                        uint8x16_t t61 = vcntq_u8(t60);
                        uint8x16_t t62 = vpaddq_u8(t58, t61);
                        uint8x16_t t63 = veorq_u8(a2, w2_0);
                        uint8x16_t t64 = vorrq_u8(w2_3, t63);
                        uint8x16_t t65 = vcntq_u8(t64);
                        uint8x16_t t66 = veorq_u8(a2, w3_0);
                        uint8x16_t t67 = vorrq_u8(w3_3, t66);
                        uint8x16_t t68 = vcntq_u8(t67);
                        uint8x16_t t69 = vpaddq_u8(t65, t68);
                        uint8x16_t t70 = vpaddq_u8(t62, t69);
                        acc5_0 = vpadalq_u8(acc5_0, t70);
                        PIN(acc5_0);
                        uint8x16_t t72 = vbslq_u8(t56, w0_1, w0_2);
                        uint8x16_t t73 = vcntq_u8(t72);
                        uint8x16_t t74 = vbslq_u8(t59, w1_1, w1_2);
                        uint8x16_t t75 = vcntq_u8(t74);
                        uint8x16_t t76 = vpaddq_u8(t73, t75);
                        uint8x16_t t77 = vbslq_u8(t63, w2_1, w2_2);
                        uint8x16_t t78 = vcntq_u8(t77);
                        uint8x16_t t79 = vbslq_u8(t66, w3_1, w3_2);
                        uint8x16_t t80 = vcntq_u8(t79);
                        uint8x16_t t81 = vpaddq_u8(t78, t80);
                        uint8x16_t t82 = vpaddq_u8(t76, t81);
                        acc3_0 = vpadalq_u8(acc3_0, t82);
                        PIN(acc3_0);
                    }
                    offset += ROW_BYTES;
                    column += COLUMNS * 32;
                }
            }
            /* Flush: every 1,023 steps. */
            {
                const int32_t *from_0 = start;
                SETTLE(from_0);
                int32_t *to_0 = c;
                SETTLE(to_0);
                const int32_t *terms_0 = row_start;
                SETTLE(terms_0);
                {
                    uint32x4_t more = dup32_u32x4(terms_0);
                    uint32x4_t c0 = load_u32x4(from_0);
                    c0 = vaddq_u32(c0, more);
                    uint32x4_t c1 = load_u32x4(from_0 + 4);
                    c1 = vaddq_u32(c1, more);
                    uint32x4_t t0 = umlsl_u16x8(c0, acc0_0, k0);
                    uint32x4_t t1 = vmlsl_high_u16(c1, acc0_0, k0);
                    uint32x4_t t2 = umlsl_u16x8(t0, acc1_0, k1);
                    uint32x4_t t3 = vmlsl_high_u16(t1, acc1_0, k1);
                    uint32x4_t t4 = umlsl_u16x8(t2, acc2_0, k2);
                    uint32x4_t t5 = vmlsl_high_u16(t3, acc2_0, k2);
                    uint32x4_t t6 = umlsl_u16x8(t4, acc3_0, k3);
                    uint32x4_t t7 = vmlsl_high_u16(t5, acc3_0, k3);
                    uint32x4_t t8 = umlsl_u16x8(t6, acc4_0, k4);
                    uint32x4_t t9 = vmlsl_high_u16(t7, acc4_0, k4);
                    uint32x4_t t10 = umlsl_u16x8(t8, acc5_0, k5);
                    uint32x4_t t11 = vmlsl_high_u16(t9, acc5_0, k5);
                    /* Write back. */
                    store_u32x4(to_0, t10);
                    store_u32x4(to_0 + 4, t11);
                }
            }
            steps_left -= block;
            start = c;
            row_start = zero;
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

/* The code at each position of a step. */
/* clang-format off */
static const uint16_t order[K_STEP] = {
    0, 8, 16, 24, 32, 40, 48, 56, 1, 9, 17, 25, 33, 41, 49, 57,
    2, 10, 18, 26, 34, 42, 50, 58, 3, 11, 19, 27, 35, 43, 51, 59,
    4, 12, 20, 28, 36, 44, 52, 60, 5, 13, 21, 29, 37, 45, 53, 61,
    6, 14, 22, 30, 38, 46, 54, 62, 7, 15, 23, 31, 39, 47, 55, 63,
};
/* clang-format on */

static size_t code_at(size_t position)
{
    return order[position];
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
    static const struct input inputs[] = {{0, 1, 0, 8, 8}, {1, 1, 0, 8, 8}, {2, 1, 0, 8, 8}};
    /* clang-format off */
    static const uint64_t table[] = {
        UINT64_C(0), UINT64_C(1), UINT64_C(2), UINT64_C(3),
        UINT64_C(4), UINT64_C(5), UINT64_C(6), UINT64_C(7),
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; ++i, to += SLOT_BYTES)
        pack_bytes(inputs + i, table, left, codes, stride, to);
}

/* 32 codes at any alignment. */
typedef uint64_t four __attribute__((vector_size(32), aligned(1), may_alias));

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

/* Bit `plane` of every code: word q goes to bit q of the bytes. */
static inline uint64_t gathered(const uint8_t *codes, unsigned plane)
{
    const uint64_t low = UINT64_C(0x0101010101010101);
    const four *words = (const four *)(const void *)codes;
    const four bits = (words[0] >> plane & low) | (words[1] >> plane & low) << 4;
    return (bits[0] | bits[1] << 1) | (bits[2] | bits[3] << 1) << 2;
}

/* A step of a row, from the words of its codes' bits; adds to their sums. */
static inline void pack_bits(uint64_t b0, uint64_t b1, uint64_t b2, uint8_t *to, int32_t *sums)
{
    uint64_t word;
    word = b0;
    memcpy(to, &word, 8);
    word = b1;
    memcpy(to + 8, &word, 8);
    word = b2;
    memcpy(to + 16, &word, 8);
    sums[0] += -1 * ones(b0) + -2 * ones(b1) + -4 * ones(b2);
}

/* The same from codes; bits outside of `mask` are ignored. */
static inline void pack_codes(const uint8_t *codes, uint64_t mask, uint8_t *to, int32_t *sums)
{
    pack_bits(
        gathered(codes, 0) & mask, gathered(codes, 1) & mask, gathered(codes, 2) & mask, to, sums);
}

void bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_pack_rows(
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
    const size_t whole = ceiling(k, K_STEP) * K_STEP;
    const uint64_t mask = first_bits(k + K_STEP - whole);
    for (size_t row = 0; row < count; ++row, codes += apart, packed += packed_apart) {
        int32_t sum[2] = {0, 0};
        uint8_t *to = packed;
        size_t at = 0;
        for (; k - at >= K_STEP; at += K_STEP, to += ROW_BYTES)
            pack_codes(codes + at, UINT64_MAX, to, sum);
        if (at < k && row * apart + whole <= readable)
            pack_codes(codes + at, mask, to, sum);
        else if (at < k) {
            uint8_t rest[K_STEP] = {0};
            memcpy(rest, codes + at, k - at);
            pack_codes(rest, UINT64_MAX, to, sum);
        }
        terms[row] = sum[0];
    }
}

/* Packs 64 codes of a row from words, `left` of them in the row; bits outside of `mask` are
 * ignored. */
static inline void pack_64(
    const uint64_t *words, size_t left, uint64_t mask, uint8_t *to, int32_t *sums)
{
    const uint64_t b0 = words[0] & mask;
    const uint64_t b1 = words[1] & mask;
    const uint64_t b2 = words[2] & mask;
    (void)left;
    pack_bits(b0, b1, b2, to, sums);
}

void bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_pack_words(
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
        for (size_t i = 0; i < k / 64; ++i)
            pack_64(words + i * 3, 64, UINT64_MAX, packed + i * 64 / K_STEP * ROW_BYTES, sum);
        if (k % 64)
            pack_64(
                words + k / 64 * 3,
                k % 64,
                first_bits(k % 64),
                packed + k / 64 * 64 / K_STEP * ROW_BYTES,
                sum);
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
    static const int64_t code_terms[] = {0, 14, 42, 42, 56, 42, 56, 56};
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
        bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_pack_rows(
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
    static const size_t slots[COLUMNS] = {0, 1, 2, 3, 4, 5, 6, 7};
    const size_t steps = ceiling(k, K_STEP), columns = ceiling(count, COLUMNS) * COLUMNS;
    uint8_t *to = packed;
    for (size_t tile = 0; tile < columns; tile += COLUMNS) {
        for (size_t step = 0; step < steps; ++step) {
            /* clang-format off */
            static const struct input inputs[] = {
                {0, 1, 0, 8, 8}, {1, 1, 0, 8, 8}, {2, 1, 0, 8, 8}, {3, 1, 0, 8, 8},
            };
            static const uint64_t table[] = {
                UINT64_C(0), UINT64_C(4), UINT64_C(13), UINT64_C(8),
                UINT64_C(12), UINT64_C(5), UINT64_C(7), UINT64_C(3),
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
            to += COLUMNS * 32;
        }
    }
    int64_t *sums = (int64_t *)(void *)(packed + column_input_bytes(count, k));
    column_sums(count, k, codes, apart, stride, sums);
}

size_t bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_act_bytes(size_t m, size_t k)
{
    return row_bytes(m, k);
}

size_t bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_wgt_bytes(size_t k, size_t n)
{
    return column_bytes(n, k);
}

int bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_pack_act(
    size_t m, size_t k, const uint8_t *codes, uint8_t *packed)
{
    if (product(m, k) > PTRDIFF_MAX || row_bytes(m, k) == SIZE_MAX)
        return -1;
    pack_rows(m, k, codes, k, 1, packed);
    return 0;
}

int bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_pack_wgt(
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

int bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_matmul(
    size_t m, size_t k, size_t n, const uint8_t *act, const uint8_t *wgt, int32_t *c)
{
    const uint8_t *a = act, *w = wgt;
    const size_t rows = m, columns = n;
    int32_t tile[ROWS * COLUMNS], g[COLUMNS], h[ROWS];
    if (k > bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_k_max
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
            bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64(1, 1, steps, inputs, tile_w, g, h, tile, COLUMNS);
            for (size_t i = 0; i < height; ++i)
                for (size_t j = 0; j < width; ++j) {
                    const int32_t sum = tile[i * COLUMNS + j];
                    c[(row + i) * n + column + j] = sum;
                }
        }
    }
    return 0;
}
