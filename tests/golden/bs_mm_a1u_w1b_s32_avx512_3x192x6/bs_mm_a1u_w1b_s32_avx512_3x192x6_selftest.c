/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* Self-test of bs_mm_a1u_w1b_s32_avx512_3x192x6: random, zero, greatest and alternating codes
 * against the plain sum, and rows packed one by one against rows packed together.
 *
 * Exit status 0 when every tile is right, else the number of the pattern that is not; 77 if the
 * processor lacks a feature, provided this file and bs_mm_a1u_w1b_s32_avx512_3x192x6_features.c
 * are compiled without the flags of bs_mm_a1u_w1b_s32_avx512_3x192x6.c. */
#include "bs_mm_a1u_w1b_s32_avx512_3x192x6.h"

#include <string.h>

enum {
    M = 4,
    N = 195,
    K = 133,
    BUFFER = 36271,
    VECTORS = N,
    APART = K + 64,
    STEPS = 23,
    PADDED = 195,
    ROW_BYTES = STEPS * bs_mm_a1u_w1b_s32_avx512_3x192x6_row_bytes,
    ROWS_BYTES = (PADDED * ROW_BYTES + 7) / 8 * 8
};

static uint8_t code(int pattern, uint32_t *state, uint32_t last, uint32_t i)
{
    *state = *state * 1664525u + 1013904223u;
    switch (pattern) {
    case 1:
        return 0;
    case 2:
        return (uint8_t)last;
    case 3:
        return (uint8_t)(i % 2 ? last : 0);
    default:
        return (uint8_t)((*state >> 16) % (last + 1));
    }
}

enum { TERMS = 0, AFFINES = 0 };

static int agrees(
    size_t row, const uint8_t *made, int32_t term, int32_t affine, const uint64_t *packed)
{
    const uint8_t *bytes = (const uint8_t *)packed;
    const int64_t *sums = (const int64_t *)(const void *)(bytes + ROWS_BYTES);
    if (TERMS && term != (int32_t)sums[row])
        return 0;
    if (AFFINES && affine != (int32_t)sums[PADDED + row])
        return 0;
    for (size_t i = 0; i < ROW_BYTES; ++i)
        if (made[i] != bytes[row * ROW_BYTES + i])
            return 0;
    return 1;
}

static int all_agree(
    const uint8_t *made, const int32_t *terms, const int32_t *affines, const uint64_t *packed)
{
    for (size_t row = 0; row < VECTORS; ++row)
        if (!agrees(row, made + row * ROW_BYTES, terms[row], affines[row], packed))
            return 0;
    return 1;
}

/* Packs codes to words as packed activations are: bit 8 b + q is code 8 q + b. */
static int words_agree(const uint8_t *codes, const uint64_t *packed)
{
    enum { WORDS = (K + 63) / 64 * 1 };
    uint64_t words[VECTORS * WORDS];
    uint8_t made[VECTORS * ROW_BYTES + 64];
    int32_t terms[VECTORS] = {0}, affines[VECTORS] = {0};
    memset(words, 0, sizeof words);
    for (size_t row = 0; row < VECTORS; ++row)
        for (size_t k = 0; k < (K + 63) / 64 * 64; ++k)
            for (size_t bit = 0; bit < 1; ++bit) {
                const uint64_t set = k < K ? codes[row * APART + k] >> bit & 1 : 1;
                words[row * WORDS + k / 64 * 1 + bit] |= set << (k % 8 * 8 + k % 64 / 8);
            }
    bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_words(
        VECTORS, K, words, WORDS, made, ROW_BYTES, terms, affines);
    return all_agree(made, terms, affines, packed);
}

/* Whether rows packed one by one and all at once, and the sums of their codes, are as they are
 * in `packed`. */
static int rows_agree(const uint8_t *w, const uint64_t *packed)
{
    uint8_t codes[VECTORS * APART], made[VECTORS * ROW_BYTES + 64];
    int32_t terms[VECTORS] = {0}, affines[VECTORS] = {0};
    memset(codes, 0xff, sizeof codes);
    for (size_t row = 0; row < VECTORS; ++row)
        for (size_t k = 0; k < K; ++k)
            codes[row * APART + k] = w[k * N + row];
    for (size_t readable = K; readable <= APART; readable += APART - K) {
        memset(made, 0xff, sizeof made);
        for (size_t row = 0; row < VECTORS; ++row)
            bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_rows(
                1,
                K,
                codes + row * APART,
                APART,
                readable,
                made + row * ROW_BYTES,
                ROW_BYTES,
                terms + row,
                affines + row);
        if (!all_agree(made, terms, affines, packed))
            return 0;
    }
    bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_rows(
        VECTORS, K, codes, APART, sizeof codes, made, ROW_BYTES, terms, affines);
    return all_agree(made, terms, affines, packed) && words_agree(codes, packed);
}

static int32_t act_value(int32_t code)
{
    return code;
}

static int32_t wgt_value(int32_t code)
{
    return 2 * code - 1;
}

static int check(int pattern)
{
    uint8_t a[M * K], w[K * N];
    uint64_t act[BUFFER], wgt[BUFFER];
    int32_t c[M * N];
    uint32_t state = 1;
    for (uint32_t i = 0; i < M * K; ++i)
        a[i] = code(pattern, &state, 1, i);
    for (uint32_t i = 0; i < K * N; ++i)
        w[i] = code(pattern, &state, 1, i / N + i % N);
    if (bs_mm_a1u_w1b_s32_avx512_3x192x6_act_bytes(M, K) > sizeof act
        || bs_mm_a1u_w1b_s32_avx512_3x192x6_wgt_bytes(K, N) > sizeof wgt)
        return 0;
    bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_act(M, K, a, (uint8_t *)act);
    bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_wgt(K, N, w, (uint8_t *)wgt);
    if (!rows_agree(w, wgt))
        return 0;
    const uint8_t *packed_act = (const uint8_t *)act, *packed_wgt = (const uint8_t *)wgt;
    if (bs_mm_a1u_w1b_s32_avx512_3x192x6_matmul(M, K, N, packed_act, packed_wgt, c) != 0)
        return 0;
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n) {
            int32_t want = 0;
            for (int k = 0; k < K; ++k)
                want += act_value(a[m * K + k]) * wgt_value(w[k * N + n]);
            if (c[m * N + n] != want)
                return 0;
        }
    return 1;
}

int bs_mm_a1u_w1b_s32_avx512_3x192x6_selftest(void);

int bs_mm_a1u_w1b_s32_avx512_3x192x6_selftest(void)
{
    for (int pattern = 0; pattern < 4; ++pattern)
        if (!check(pattern))
            return pattern + 1;
    return 0;
}

#ifndef BITSYNTH_NO_MAIN
#include <stdio.h>

int main(void)
{
    const char *missing = bs_mm_a1u_w1b_s32_avx512_3x192x6_missing_feature();
    if (missing) {
        fputs("bs_mm_a1u_w1b_s32_avx512_3x192x6", stderr);
        fprintf(stderr, " needs a processor with %s; this one lacks it: ", missing);
        fputs("run it elsewhere, or emit it for another instruction set\n", stderr);
        return 77;
    }
    return bs_mm_a1u_w1b_s32_avx512_3x192x6_selftest();
}
#endif
