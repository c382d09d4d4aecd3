/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* bs_mm_a1u_w1b_s32_avx512_3x192x6: exact int32 products of 1-bit unsigned activations and 1-bit
 * bipolar weights, by looking sums up in tables.
 *
 *   computes  c (m x n) = activations (m x k) times weights (k x n), for k up to 2,147,483,647
 *   tile      3 rows of weights x 192 columns of activations; a step is 6 positions of k
 *   row       64 bytes a step: table of 64 sums of 0 1 by code at positions 0 to 5
 *   column    1 byte a step: bit 0 at positions 0 to 5
 *   columns   lie next to each other, in the order of `slots` in the source, 1 byte each
 *
 * From a kernel whose proof was checked. */
#include "bs_mm_a1u_w1b_s32_avx512_3x192x6.h"

#include <immintrin.h>
#include <string.h>

#ifndef __AVX512BW__
#error "needs __AVX512BW__: compile with -mavx512f -mavx512bw -mavx512vbmi -mavx512vnni"
#endif
#ifndef __AVX512VBMI__
#error "needs __AVX512VBMI__: compile with -mavx512f -mavx512bw -mavx512vbmi -mavx512vnni"
#endif
#ifndef __AVX512VNNI__
#error "needs __AVX512VNNI__: compile with -mavx512f -mavx512bw -mavx512vbmi -mavx512vnni"
#endif

enum { ROWS = 3, COLUMNS = 192, K_STEP = 6, SLOT_BYTES = 1 };
enum { ROW_BYTES = bs_mm_a1u_w1b_s32_avx512_3x192x6_row_bytes, COLUMN_BYTES = 1 };

/* Instructions that need casts or several intrinsics; PIN keeps a value in its register. */
#define broadcast64_u8x64(p) _mm512_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(p)))
#define PIN(x) __asm__ volatile("" : "+v"(x))

/* clang-format off */
static const int16_t constant_k0[32] = {
    2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0,
};
static const int16_t constant_k1[32] = {
    0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2,
};
/* clang-format on */
static const int32_t zero[16] = {0};

/* The tile if K is 0: its accumulators stay where they start, at the column's g. Not inline: the
 * microkernel's registers are its own. */
static __attribute__((noinline)) void start_tile(const int32_t *g, int32_t *c, size_t ldc)
{
    for (size_t row = 0; row < ROWS; ++row)
        for (size_t column = 0; column < COLUMNS; column += 16) {
            __m512i start = _mm512_loadu_si512(g + column);
            _mm512_storeu_si512(c + row * ldc + column, start);
        }
}

/* The microkernel: `tiles` neighbouring tiles, over `segments` segments of `steps` steps each. */
void bs_mm_a1u_w1b_s32_avx512_3x192x6(
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
            start_tile(g + tile * COLUMNS, c + tile * COLUMNS, ldc);
        return;
    }
    (void)h;
    __m512i k0 = _mm512_loadu_si512(constant_k0);
    __m512i k1 = _mm512_loadu_si512(constant_k1);
    for (; tiles > 0; --tiles) {
        /* What a flush adds sums to: the start, then the tile. */
        const int32_t *start = g;
        size_t start_ld = 0;
        /* Rows of the next segment; then of this one, how many steps are left and where they
         * are. */
        const uint8_t *const *segment = a + ROWS;
        const uint8_t *row0 = a[0], *row1 = a[1], *row2 = a[2];
        const uint8_t *column = w;
        size_t steps_here = steps, offset = 0;
        for (size_t steps_left = all_steps; steps_left > 0;) {
            const size_t block = steps_left < 5460 ? steps_left : 5460;
            __m512i acc3_0 = _mm512_loadu_si512(zero);
            __m512i acc4_0 = _mm512_loadu_si512(zero);
            __m512i acc5_0 = _mm512_loadu_si512(zero);
            __m512i acc6_0 = _mm512_loadu_si512(zero);
            __m512i acc7_0 = _mm512_loadu_si512(zero);
            __m512i acc8_0 = _mm512_loadu_si512(zero);
            __m512i acc3_1 = _mm512_loadu_si512(zero);
            __m512i acc4_1 = _mm512_loadu_si512(zero);
            __m512i acc5_1 = _mm512_loadu_si512(zero);
            __m512i acc6_1 = _mm512_loadu_si512(zero);
            __m512i acc7_1 = _mm512_loadu_si512(zero);
            __m512i acc8_1 = _mm512_loadu_si512(zero);
            __m512i acc3_2 = _mm512_loadu_si512(zero);
            __m512i acc4_2 = _mm512_loadu_si512(zero);
            __m512i acc5_2 = _mm512_loadu_si512(zero);
            __m512i acc6_2 = _mm512_loadu_si512(zero);
            __m512i acc7_2 = _mm512_loadu_si512(zero);
            __m512i acc8_2 = _mm512_loadu_si512(zero);
            size_t left = block;
            for (size_t runs1 = 130; runs1 > 0 && left > 0; --runs1) {
                __m512i acc0_0, acc1_0, acc2_0, acc0_1, acc1_1, acc2_1, acc0_2, acc1_2;
                __m512i acc2_2;
                size_t count = left < 42 ? left : 42;
                left -= count;
                /* First run of the step: it sets the accumulators. */
                if (steps_here == 0) {
                    row0 = *segment++;
                    row1 = *segment++;
                    row2 = *segment++;
                    steps_here = steps;
                    offset = 0;
                }
                {
                    __m512i w0_0 = _mm512_loadu_si512(column);
                    PIN(w0_0);
                    __m512i w1_0 = _mm512_loadu_si512(column + 64);
                    PIN(w1_0);
                    __m512i w2_0 = _mm512_loadu_si512(column + 128);
                    PIN(w2_0);
                    { /* row 0 */
                        __m512i a0 = _mm512_loadu_si512(row0 + offset);
                        PIN(a0);
                        acc0_0 = _mm512_permutexvar_epi8(w0_0, a0);
                        PIN(acc0_0);
                        acc1_0 = _mm512_permutexvar_epi8(w1_0, a0);
                        PIN(acc1_0);
                        acc2_0 = _mm512_permutexvar_epi8(w2_0, a0);
                        PIN(acc2_0);
                    }
                    { /* row 1 */
                        __m512i a0 = _mm512_loadu_si512(row1 + offset);
                        PIN(a0);
                        acc0_1 = _mm512_permutexvar_epi8(w0_0, a0);
                        PIN(acc0_1);
                        acc1_1 = _mm512_permutexvar_epi8(w1_0, a0);
                        PIN(acc1_1);
                        acc2_1 = _mm512_permutexvar_epi8(w2_0, a0);
                        PIN(acc2_1);
                    }
                    { /* row 2 */
                        __m512i a0 = _mm512_loadu_si512(row2 + offset);
                        PIN(a0);
                        acc0_2 = _mm512_permutexvar_epi8(w0_0, a0);
                        PIN(acc0_2);
                        acc1_2 = _mm512_permutexvar_epi8(w1_0, a0);
                        PIN(acc1_2);
                        acc2_2 = _mm512_permutexvar_epi8(w2_0, a0);
                        PIN(acc2_2);
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
                        steps_here = steps;
                        offset = 0;
                    }
                    size_t run = count < steps_here ? count : steps_here;
                    count -= run;
                    steps_here -= run;
                    /* Step: 6 positions of K. */
                    for (; run > 0; --run) {
                        __m512i w0_0 = _mm512_loadu_si512(column);
                        PIN(w0_0);
                        __m512i w1_0 = _mm512_loadu_si512(column + 64);
                        PIN(w1_0);
                        __m512i w2_0 = _mm512_loadu_si512(column + 128);
                        PIN(w2_0);
                        { /* row 0 */
                            __m512i a0 = _mm512_loadu_si512(row0 + offset);
                            PIN(a0);
                            __m512i t0 = _mm512_permutexvar_epi8(w0_0, a0);
                            acc0_0 = _mm512_adds_epu8(acc0_0, t0);
                            __m512i t2 = _mm512_permutexvar_epi8(w1_0, a0);
                            acc1_0 = _mm512_adds_epu8(acc1_0, t2);
                            __m512i t4 = _mm512_permutexvar_epi8(w2_0, a0);
                            acc2_0 = _mm512_adds_epu8(acc2_0, t4);
                        }
                        { /* row 1 */
                            __m512i a0 = _mm512_loadu_si512(row1 + offset);
                            PIN(a0);
                            __m512i t0 = _mm512_permutexvar_epi8(w0_0, a0);
                            acc0_1 = _mm512_adds_epu8(acc0_1, t0);
                            __m512i t2 = _mm512_permutexvar_epi8(w1_0, a0);
                            acc1_1 = _mm512_adds_epu8(acc1_1, t2);
                            __m512i t4 = _mm512_permutexvar_epi8(w2_0, a0);
                            acc2_1 = _mm512_adds_epu8(acc2_1, t4);
                        }
                        { /* row 2 */
                            __m512i a0 = _mm512_loadu_si512(row2 + offset);
                            PIN(a0);
                            __m512i t0 = _mm512_permutexvar_epi8(w0_0, a0);
                            acc0_2 = _mm512_adds_epu8(acc0_2, t0);
                            __m512i t2 = _mm512_permutexvar_epi8(w1_0, a0);
                            acc1_2 = _mm512_adds_epu8(acc1_2, t2);
                            __m512i t4 = _mm512_permutexvar_epi8(w2_0, a0);
                            acc2_2 = _mm512_adds_epu8(acc2_2, t4);
                        }
                        offset += ROW_BYTES;
                        column += COLUMNS;
                    }
                }
                /* Widening, loop 1: after at most 42 runs of the step. */
                { /* row 0 */
                    __m512i t0 = _mm512_srli_epi16(acc0_0, 8);
                    acc3_0 = _mm512_add_epi16(acc3_0, acc0_0);
                    PIN(acc3_0);
                    acc4_0 = _mm512_add_epi16(acc4_0, t0);
                    PIN(acc4_0);
                    __m512i t3 = _mm512_srli_epi16(acc1_0, 8);
                    acc5_0 = _mm512_add_epi16(acc5_0, acc1_0);
                    PIN(acc5_0);
                    acc6_0 = _mm512_add_epi16(acc6_0, t3);
                    PIN(acc6_0);
                    __m512i t6 = _mm512_srli_epi16(acc2_0, 8);
                    acc7_0 = _mm512_add_epi16(acc7_0, acc2_0);
                    PIN(acc7_0);
                    acc8_0 = _mm512_add_epi16(acc8_0, t6);
                    PIN(acc8_0);
                }
                { /* row 1 */
                    __m512i t0 = _mm512_srli_epi16(acc0_1, 8);
                    acc3_1 = _mm512_add_epi16(acc3_1, acc0_1);
                    PIN(acc3_1);
                    acc4_1 = _mm512_add_epi16(acc4_1, t0);
                    PIN(acc4_1);
                    __m512i t3 = _mm512_srli_epi16(acc1_1, 8);
                    acc5_1 = _mm512_add_epi16(acc5_1, acc1_1);
                    PIN(acc5_1);
                    acc6_1 = _mm512_add_epi16(acc6_1, t3);
                    PIN(acc6_1);
                    __m512i t6 = _mm512_srli_epi16(acc2_1, 8);
                    acc7_1 = _mm512_add_epi16(acc7_1, acc2_1);
                    PIN(acc7_1);
                    acc8_1 = _mm512_add_epi16(acc8_1, t6);
                    PIN(acc8_1);
                }
                { /* row 2 */
                    __m512i t0 = _mm512_srli_epi16(acc0_2, 8);
                    acc3_2 = _mm512_add_epi16(acc3_2, acc0_2);
                    PIN(acc3_2);
                    acc4_2 = _mm512_add_epi16(acc4_2, t0);
                    PIN(acc4_2);
                    __m512i t3 = _mm512_srli_epi16(acc1_2, 8);
                    acc5_2 = _mm512_add_epi16(acc5_2, acc1_2);
                    PIN(acc5_2);
                    acc6_2 = _mm512_add_epi16(acc6_2, t3);
                    PIN(acc6_2);
                    __m512i t6 = _mm512_srli_epi16(acc2_2, 8);
                    acc7_2 = _mm512_add_epi16(acc7_2, acc2_2);
                    PIN(acc7_2);
                    acc8_2 = _mm512_add_epi16(acc8_2, t6);
                    PIN(acc8_2);
                }
            }
            /* Flush: every 5,460 steps. */
            { /* row 0 */
                __m512i c0 = _mm512_loadu_si512(start);
                __m512i c1 = _mm512_loadu_si512(start + 16);
                __m512i c2 = _mm512_loadu_si512(start + 32);
                __m512i c3 = _mm512_loadu_si512(start + 48);
                __m512i c4 = _mm512_loadu_si512(start + 64);
                __m512i c5 = _mm512_loadu_si512(start + 80);
                __m512i c6 = _mm512_loadu_si512(start + 96);
                __m512i c7 = _mm512_loadu_si512(start + 112);
                __m512i c8 = _mm512_loadu_si512(start + 128);
                __m512i c9 = _mm512_loadu_si512(start + 144);
                __m512i c10 = _mm512_loadu_si512(start + 160);
                __m512i c11 = _mm512_loadu_si512(start + 176);
                __m512i t0 = _mm512_slli_epi16(acc4_0, 8);
                __m512i t1 = _mm512_sub_epi16(acc3_0, t0);
                __m512i t2 = _mm512_slli_epi16(acc6_0, 8);
                __m512i t3 = _mm512_sub_epi16(acc5_0, t2);
                __m512i t4 = _mm512_slli_epi16(acc8_0, 8);
                __m512i t5 = _mm512_sub_epi16(acc7_0, t4);
                __m512i t6 = _mm512_dpwssd_epi32(c0, t1, k0);
                __m512i t7 = _mm512_dpwssd_epi32(c1, t1, k1);
                __m512i t8 = _mm512_dpwssd_epi32(c2, acc4_0, k0);
                __m512i t9 = _mm512_dpwssd_epi32(c3, acc4_0, k1);
                __m512i t10 = _mm512_dpwssd_epi32(c4, t3, k0);
                __m512i t11 = _mm512_dpwssd_epi32(c5, t3, k1);
                __m512i t12 = _mm512_dpwssd_epi32(c6, acc6_0, k0);
                __m512i t13 = _mm512_dpwssd_epi32(c7, acc6_0, k1);
                __m512i t14 = _mm512_dpwssd_epi32(c8, t5, k0);
                __m512i t15 = _mm512_dpwssd_epi32(c9, t5, k1);
                __m512i t16 = _mm512_dpwssd_epi32(c10, acc8_0, k0);
                __m512i t17 = _mm512_dpwssd_epi32(c11, acc8_0, k1);
                /* Write back. */
                _mm512_storeu_si512(c, t6);
                _mm512_storeu_si512(c + 16, t7);
                _mm512_storeu_si512(c + 32, t8);
                _mm512_storeu_si512(c + 48, t9);
                _mm512_storeu_si512(c + 64, t10);
                _mm512_storeu_si512(c + 80, t11);
                _mm512_storeu_si512(c + 96, t12);
                _mm512_storeu_si512(c + 112, t13);
                _mm512_storeu_si512(c + 128, t14);
                _mm512_storeu_si512(c + 144, t15);
                _mm512_storeu_si512(c + 160, t16);
                _mm512_storeu_si512(c + 176, t17);
            }
            { /* row 1 */
                __m512i c0 = _mm512_loadu_si512(start + start_ld);
                __m512i c1 = _mm512_loadu_si512(start + start_ld + 16);
                __m512i c2 = _mm512_loadu_si512(start + start_ld + 32);
                __m512i c3 = _mm512_loadu_si512(start + start_ld + 48);
                __m512i c4 = _mm512_loadu_si512(start + start_ld + 64);
                __m512i c5 = _mm512_loadu_si512(start + start_ld + 80);
                __m512i c6 = _mm512_loadu_si512(start + start_ld + 96);
                __m512i c7 = _mm512_loadu_si512(start + start_ld + 112);
                __m512i c8 = _mm512_loadu_si512(start + start_ld + 128);
                __m512i c9 = _mm512_loadu_si512(start + start_ld + 144);
                __m512i c10 = _mm512_loadu_si512(start + start_ld + 160);
                __m512i c11 = _mm512_loadu_si512(start + start_ld + 176);
                __m512i t0 = _mm512_slli_epi16(acc4_1, 8);
                __m512i t1 = _mm512_sub_epi16(acc3_1, t0);
                __m512i t2 = _mm512_slli_epi16(acc6_1, 8);
                __m512i t3 = _mm512_sub_epi16(acc5_1, t2);
                __m512i t4 = _mm512_slli_epi16(acc8_1, 8);
                __m512i t5 = _mm512_sub_epi16(acc7_1, t4);
                __m512i t6 = _mm512_dpwssd_epi32(c0, t1, k0);
                __m512i t7 = _mm512_dpwssd_epi32(c1, t1, k1);
                __m512i t8 = _mm512_dpwssd_epi32(c2, acc4_1, k0);
                __m512i t9 = _mm512_dpwssd_epi32(c3, acc4_1, k1);
                __m512i t10 = _mm512_dpwssd_epi32(c4, t3, k0);
                __m512i t11 = _mm512_dpwssd_epi32(c5, t3, k1);
                __m512i t12 = _mm512_dpwssd_epi32(c6, acc6_1, k0);
                __m512i t13 = _mm512_dpwssd_epi32(c7, acc6_1, k1);
                __m512i t14 = _mm512_dpwssd_epi32(c8, t5, k0);
                __m512i t15 = _mm512_dpwssd_epi32(c9, t5, k1);
                __m512i t16 = _mm512_dpwssd_epi32(c10, acc8_1, k0);
                __m512i t17 = _mm512_dpwssd_epi32(c11, acc8_1, k1);
                /* Write back. */
                _mm512_storeu_si512(c + ldc, t6);
                _mm512_storeu_si512(c + ldc + 16, t7);
                _mm512_storeu_si512(c + ldc + 32, t8);
                _mm512_storeu_si512(c + ldc + 48, t9);
                _mm512_storeu_si512(c + ldc + 64, t10);
                _mm512_storeu_si512(c + ldc + 80, t11);
                _mm512_storeu_si512(c + ldc + 96, t12);
                _mm512_storeu_si512(c + ldc + 112, t13);
                _mm512_storeu_si512(c + ldc + 128, t14);
                _mm512_storeu_si512(c + ldc + 144, t15);
                _mm512_storeu_si512(c + ldc + 160, t16);
                _mm512_storeu_si512(c + ldc + 176, t17);
            }
            { /* row 2 */
                __m512i c0 = _mm512_loadu_si512(start + 2 * start_ld);
                __m512i c1 = _mm512_loadu_si512(start + 2 * start_ld + 16);
                __m512i c2 = _mm512_loadu_si512(start + 2 * start_ld + 32);
                __m512i c3 = _mm512_loadu_si512(start + 2 * start_ld + 48);
                __m512i c4 = _mm512_loadu_si512(start + 2 * start_ld + 64);
                __m512i c5 = _mm512_loadu_si512(start + 2 * start_ld + 80);
                __m512i c6 = _mm512_loadu_si512(start + 2 * start_ld + 96);
                __m512i c7 = _mm512_loadu_si512(start + 2 * start_ld + 112);
                __m512i c8 = _mm512_loadu_si512(start + 2 * start_ld + 128);
                __m512i c9 = _mm512_loadu_si512(start + 2 * start_ld + 144);
                __m512i c10 = _mm512_loadu_si512(start + 2 * start_ld + 160);
                __m512i c11 = _mm512_loadu_si512(start + 2 * start_ld + 176);
                __m512i t0 = _mm512_slli_epi16(acc4_2, 8);
                __m512i t1 = _mm512_sub_epi16(acc3_2, t0);
                __m512i t2 = _mm512_slli_epi16(acc6_2, 8);
                __m512i t3 = _mm512_sub_epi16(acc5_2, t2);
                __m512i t4 = _mm512_slli_epi16(acc8_2, 8);
                __m512i t5 = _mm512_sub_epi16(acc7_2, t4);
                __m512i t6 = _mm512_dpwssd_epi32(c0, t1, k0);
                __m512i t7 = _mm512_dpwssd_epi32(c1, t1, k1);
                __m512i t8 = _mm512_dpwssd_epi32(c2, acc4_2, k0);
                __m512i t9 = _mm512_dpwssd_epi32(c3, acc4_2, k1);
                __m512i t10 = _mm512_dpwssd_epi32(c4, t3, k0);
                __m512i t11 = _mm512_dpwssd_epi32(c5, t3, k1);
                __m512i t12 = _mm512_dpwssd_epi32(c6, acc6_2, k0);
                __m512i t13 = _mm512_dpwssd_epi32(c7, acc6_2, k1);
                __m512i t14 = _mm512_dpwssd_epi32(c8, t5, k0);
                __m512i t15 = _mm512_dpwssd_epi32(c9, t5, k1);
                __m512i t16 = _mm512_dpwssd_epi32(c10, acc8_2, k0);
                __m512i t17 = _mm512_dpwssd_epi32(c11, acc8_2, k1);
                /* Write back. */
                _mm512_storeu_si512(c + 2 * ldc, t6);
                _mm512_storeu_si512(c + 2 * ldc + 16, t7);
                _mm512_storeu_si512(c + 2 * ldc + 32, t8);
                _mm512_storeu_si512(c + 2 * ldc + 48, t9);
                _mm512_storeu_si512(c + 2 * ldc + 64, t10);
                _mm512_storeu_si512(c + 2 * ldc + 80, t11);
                _mm512_storeu_si512(c + 2 * ldc + 96, t12);
                _mm512_storeu_si512(c + 2 * ldc + 112, t13);
                _mm512_storeu_si512(c + 2 * ldc + 128, t14);
                _mm512_storeu_si512(c + 2 * ldc + 144, t15);
                _mm512_storeu_si512(c + 2 * ldc + 160, t16);
                _mm512_storeu_si512(c + 2 * ldc + 176, t17);
            }
            steps_left -= block;
            start = c;
            start_ld = ldc;
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

enum { ENTRIES = 64, TABLES = 1 };

/* The next table of partial sums of the values in `stage`; a whole register is written. */
static void build_tables(const uint8_t *stage, uint8_t *to)
{
    /* clang-format off */
    static const uint8_t lanes_k0[64] = {
        6, 0, 1, 0, 2, 0, 1, 0, 3, 0, 1, 0, 2, 3, 1, 0,
        4, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 0, 2, 3, 3, 2,
        5, 5, 1, 1, 5, 2, 1, 1, 3, 0, 5, 1, 2, 5, 3, 1,
        4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 3, 3, 2, 0,
    };
    static const uint8_t lanes_k1[64] = {
        0, 0, 0, 2, 0, 4, 4, 0, 0, 8, 8, 8, 8, 0, 4, 8,
        0, 16, 16, 1, 16, 16, 0, 2, 16, 16, 2, 16, 0, 16, 4, 16,
        0, 1, 32, 0, 4, 1, 4, 1, 32, 32, 0, 1, 8, 8, 2, 4,
        32, 1, 32, 2, 4, 32, 2, 32, 8, 8, 8, 16, 32, 16, 32, 8,
    };
    static const uint8_t lanes_k2[64] = {
        0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 2, 0, 5, 8, 6,
        0, 0, 0, 16, 0, 1, 18, 17, 0, 1, 16, 10, 24, 5, 18, 9,
        0, 0, 0, 33, 0, 32, 32, 36, 0, 8, 10, 40, 32, 5, 36, 1,
        0, 32, 2, 33, 32, 5, 36, 5, 32, 33, 34, 10, 20, 0, 16, 36,
    };
    static const uint8_t lanes_k3[64] = {
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 40,
        0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 37, 10, 18,
    };
    /* clang-format on */
    __m512i k0 = _mm512_loadu_si512(lanes_k0);
    __m512i k1 = _mm512_loadu_si512(lanes_k1);
    __m512i k2 = _mm512_loadu_si512(lanes_k2);
    __m512i k3 = _mm512_loadu_si512(lanes_k3);
    __m512i x0 = broadcast64_u8x64(stage);
    __m512i t0 = _mm512_permutexvar_epi8(k0, x0);
    __m512i t1 = _mm512_permutexvar_epi8(k1, t0);
    __m512i t2 = _mm512_adds_epu8(t0, t1);
    __m512i t3 = _mm512_permutexvar_epi8(k2, t2);
    __m512i t4 = _mm512_adds_epu8(t2, t3);
    __m512i t5 = _mm512_permutexvar_epi8(k3, t4);
    __m512i t6 = _mm512_adds_epu8(t4, t5);
    _mm512_storeu_si512(to, t6);
}

/* The table of partial sums of the values of the next codes, of which there are `left`. */
static void pack_table(
    const uint8_t *values, size_t left, const uint8_t *codes, size_t stride, uint8_t *to)
{
    static const size_t staged[] = {0, 1, 2, 3, 4, 5, SIZE_MAX, SIZE_MAX};
    uint8_t stage[sizeof staged / sizeof *staged], entries[64];
    for (size_t p = 0; p < sizeof stage; ++p)
        stage[p] = staged[p] < left ? values[codes[staged[p] * stride]] : 0;
    build_tables(stage, entries);
    memcpy(to, entries, ENTRIES);
}

/* Packs the inputs of one row from the `left` codes of a step. */
static void pack_step(size_t left, const uint8_t *codes, size_t stride, uint8_t *to)
{
    static const uint8_t values_0[] = {0, 1};
    pack_table(values_0, left, codes, stride, to);
    to += ENTRIES;
}

/* Tables of all codes of a row, 6 codes at a time. */
static void pack_all_tables(size_t k, const uint8_t *codes, size_t readable, uint8_t *to)
{
    for (; k >= 6 && readable >= 8; k -= 6) {
        uint64_t stage;
        memcpy(&stage, codes, 8);
        stage &= UINT64_MAX >> 16;
        build_tables((const uint8_t *)&stage, to);
        readable -= 6;
        codes += 6;
        to += TABLES * ENTRIES;
    }
    while (k > 0) {
        const size_t left = k < 6 ? k : 6;
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
    const size_t made = ceiling(k, TABLES * 6) * TABLES;
    pack_all_tables(k, codes, readable, packed);
    if (made < tables)
        memset(packed + made * ENTRIES, 0, (tables - made) * ENTRIES);
}

void bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_rows(
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
    (void)terms;
    (void)affines;
    for (size_t row = 0; row < count; ++row) {
        const uint8_t *from = codes + row * apart;
        pack_row(k, from, readable - row * apart, packed + row * packed_apart);
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

/* A register of words at any alignment. */
typedef uint64_t whole __attribute__((vector_size(64), aligned(1), may_alias));

/* Unpacks 64 codes from words, and adds to their sums. */
static inline void expand(const uint64_t *words, uint64_t mask, uint8_t *to, int32_t *sums)
{
    const uint64_t low = UINT64_C(0x0101010101010101);
    const whole none = {0};
    whole codes;
    const uint64_t b0 = words[0] & mask;
    const whole plane0 = none + b0;
    const whole shifts0 = {0, 1, 2, 3, 4, 5, 6, 7};
    codes = plane0 >> shifts0 & low;
    *(whole *)(void *)(to) = codes;
    (void)sums;
}

/* Unpacks `left` codes of words, and sums them. */
static inline void expand_row(size_t left, const uint64_t *words, uint8_t *to, int32_t *sums)
{
    for (size_t i = 0; i < left; i += 64, words += 1)
        expand(words, first_bits(left - i), to + i, sums);
}

void bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_words(
    size_t count,
    size_t k,
    const uint64_t *words,
    size_t apart,
    uint8_t *packed,
    size_t packed_apart,
    int32_t *terms,
    int32_t *affines)
{
    /* Codes of several rows are unpacked before they are read, as vector stores have a latency. */
    enum { CODES = 1152 };
    const size_t size = ceiling(k, 64) * 64, most = size > 0 && size < CODES ? CODES / size : 1;
    uint8_t codes[CODES + 8];
    (void)terms;
    (void)affines;
    for (size_t row = 0; row < count; row += most) {
        const size_t rows = count - row < most ? count - row : most;
        int32_t sums[CODES / 64][2];
        memset(sums, 0, sizeof sums);
        for (size_t at = 0; at < k; at += CODES) {
            const size_t left = k - at < CODES ? k - at : CODES;
            const uint64_t *from = words + row * apart + at / 64 * 1;
            uint8_t *to = packed + row * packed_apart + at / K_STEP * ROW_BYTES;
            for (size_t i = 0; i < rows; ++i)
                expand_row(left, from + i * apart, codes + i * size, sums[i]);
            for (size_t i = 0; i < rows; ++i)
                pack_row(left, codes + i * size, sizeof codes - i * size, to + i * packed_apart);
        }
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
        sums[v] = 0 * sum;
    }
}

/* The terms of each column, sums of a number for each code: accumulators start from them. */
static void column_sums(
    size_t count, size_t k, const uint8_t *codes, size_t apart, size_t stride, int64_t *sums)
{
    static const int64_t code_terms[] = {0, -1};
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
    for (; stride == 1 && row < count && (rows - row - 1) * size >= 64; ++row) {
        const size_t readable = (count - row - 1) * apart + k;
        int32_t term, affine;
        bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_rows(
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
        0, 32, 16, 48, 1, 33, 17, 49, 2, 34, 18, 50, 3, 35, 19, 51,
        4, 36, 20, 52, 5, 37, 21, 53, 6, 38, 22, 54, 7, 39, 23, 55,
        8, 40, 24, 56, 9, 41, 25, 57, 10, 42, 26, 58, 11, 43, 27, 59,
        12, 44, 28, 60, 13, 45, 29, 61, 14, 46, 30, 62, 15, 47, 31, 63,
        64, 96, 80, 112, 65, 97, 81, 113, 66, 98, 82, 114, 67, 99, 83, 115,
        68, 100, 84, 116, 69, 101, 85, 117, 70, 102, 86, 118, 71, 103, 87, 119,
        72, 104, 88, 120, 73, 105, 89, 121, 74, 106, 90, 122, 75, 107, 91, 123,
        76, 108, 92, 124, 77, 109, 93, 125, 78, 110, 94, 126, 79, 111, 95, 127,
        128, 160, 144, 176, 129, 161, 145, 177, 130, 162, 146, 178, 131, 163, 147, 179,
        132, 164, 148, 180, 133, 165, 149, 181, 134, 166, 150, 182, 135, 167, 151, 183,
        136, 168, 152, 184, 137, 169, 153, 185, 138, 170, 154, 186, 139, 171, 155, 187,
        140, 172, 156, 188, 141, 173, 157, 189, 142, 174, 158, 190, 143, 175, 159, 191,
    };
    /* clang-format on */
    const size_t steps = ceiling(k, K_STEP), columns = ceiling(count, COLUMNS) * COLUMNS;
    uint8_t *to = packed;
    for (size_t tile = 0; tile < columns; tile += COLUMNS) {
        for (size_t step = 0; step < steps; ++step) {
            static const struct input inputs[] = {{0, 1, 0, 0, 6}};
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

size_t bs_mm_a1u_w1b_s32_avx512_3x192x6_act_bytes(size_t m, size_t k)
{
    return column_bytes(m, k);
}

size_t bs_mm_a1u_w1b_s32_avx512_3x192x6_wgt_bytes(size_t k, size_t n)
{
    return row_bytes(n, k);
}

int bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_act(
    size_t m, size_t k, const uint8_t *codes, uint8_t *packed)
{
    if (product(m, k) > PTRDIFF_MAX || column_bytes(m, k) == SIZE_MAX)
        return -1;
    pack_columns(m, k, codes, k, 1, packed);
    return 0;
}

int bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_wgt(
    size_t k, size_t n, const uint8_t *codes, uint8_t *packed)
{
    if (product(k, n) > PTRDIFF_MAX || row_bytes(n, k) == SIZE_MAX)
        return -1;
    pack_rows(n, k, codes, 1, n, packed);
    return 0;
}

static void narrow(size_t count, const int64_t *from, int32_t *to)
{
    for (size_t i = 0; i < count; ++i)
        to[i] = (int32_t)from[i];
}

int bs_mm_a1u_w1b_s32_avx512_3x192x6_matmul(
    size_t m, size_t k, size_t n, const uint8_t *act, const uint8_t *wgt, int32_t *c)
{
    const uint8_t *a = wgt, *w = act;
    const size_t rows = n, columns = m;
    int32_t tile[ROWS * COLUMNS], g[COLUMNS], h[ROWS];
    if (k > bs_mm_a1u_w1b_s32_avx512_3x192x6_k_max
        || product(product(m, n), sizeof *c) > PTRDIFF_MAX)
        return -1;
    if (column_bytes(m, k) == SIZE_MAX || row_bytes(n, k) == SIZE_MAX)
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
            bs_mm_a1u_w1b_s32_avx512_3x192x6(1, 1, steps, inputs, tile_w, g, h, tile, COLUMNS);
            for (size_t i = 0; i < height; ++i)
                for (size_t j = 0; j < width; ++j) {
                    const int32_t sum = tile[i * COLUMNS + j];
                    c[(column + j) * n + row + i] = sum;
                }
        }
    }
    return 0;
}
