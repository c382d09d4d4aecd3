/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* Self-test of bs_mm_a4u_w4b_s32_armv7_neon_2x32x2: random, zero, greatest, alternating and
 * opposite codes against the plain sum, for several K; rows packed one by one against rows
 * packed together; and the microkernel on repeated steps, segments and tiles, which reach behind
 * the second flush, from starts beyond 16 bits.
 *
 * Exit status 0 when all is right, else the number of the pattern that is not, 6 for another K,
 * 7 for a size; 77 if the processor lacks a feature, provided this file and
 * bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_features.c are compiled without the flags of
 * bs_mm_a4u_w4b_s32_armv7_neon_2x32x2.c. */
#include "bs_mm_a4u_w4b_s32_armv7_neon_2x32x2.h"

#include <string.h>

enum {
    ROWS = bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_rows,
    COLUMNS = bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_columns,
    K_STEP = bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_k_step,
    VECTORS = 5,
    OTHERS = 35,
    K = 133,
    STEPS = 67,
    LONGEST = 1285,
    APART = LONGEST + 64,
    ROW_BYTES = 643 * bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_row_bytes,
    BUFFER = 5273,
    SEGMENTS = 16,
    LDC = 2 * COLUMNS,
    PATTERNS = 5
};

/* Codes of a pattern; the last has the greatest rows and the least columns. */
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

enum { TERMS = 1, AFFINES = 0 };

static size_t row_bytes(size_t k)
{
    return (k + K_STEP - 1) / K_STEP * bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_row_bytes;
}

/* Whether rows, their terms and their affine terms are as they are in `packed`. */
static int all_agree(
    size_t vectors,
    size_t k,
    const uint8_t *made,
    const int32_t *terms,
    const int32_t *affines,
    const uint64_t *packed)
{
    const size_t size = row_bytes(k), padded = (vectors + ROWS - 1) / ROWS * ROWS;
    const uint8_t *bytes = (const uint8_t *)packed;
    const int64_t *sums = (const int64_t *)(const void *)(bytes + (padded * size + 7) / 8 * 8);
    for (size_t row = 0; row < vectors; ++row) {
        if (TERMS && terms[row] != (int32_t)sums[row])
            return 0;
        if (AFFINES && affines[row] != (int32_t)sums[padded + row])
            return 0;
    }
    for (size_t i = 0; i < vectors * size; ++i)
        if (made[i] != bytes[i])
            return 0;
    return 1;
}

/* Packs codes to words as packed activations are: bit 8 b + q is code 8 q + b. */
static int words_agree(size_t vectors, size_t length, const uint8_t *codes, const uint64_t *packed)
{
    enum { WORDS = (LONGEST + 63) / 64 * 4 };
    static uint64_t words[VECTORS * WORDS];
    static uint8_t made[VECTORS * ROW_BYTES + 16];
    int32_t terms[VECTORS] = {0}, affines[VECTORS] = {0};
    memset(words, 0, sizeof words);
    for (size_t row = 0; row < vectors; ++row)
        for (size_t k = 0; k < (length + 63) / 64 * 64; ++k)
            for (size_t bit = 0; bit < 4; ++bit) {
                const uint64_t set = k < length ? codes[row * APART + k] >> bit & 1 : 1;
                words[row * WORDS + k / 64 * 4 + bit] |= set << (k % 8 * 8 + k % 64 / 8);
            }
    bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_pack_words(
        vectors, length, words, WORDS, made, row_bytes(length), terms, affines);
    return all_agree(vectors, length, made, terms, affines, packed);
}

/* Whether rows packed one by one and all at once, and the sums of their codes, are as they are
 * in `packed`. */
static int rows_agree(size_t vectors, size_t length, const uint8_t *a, const uint64_t *packed)
{
    static uint8_t codes[VECTORS * APART], made[VECTORS * ROW_BYTES + 16];
    int32_t terms[VECTORS] = {0}, affines[VECTORS] = {0};
    const size_t size = row_bytes(length);
    memset(codes, 0xff, sizeof codes);
    for (size_t row = 0; row < vectors; ++row)
        for (size_t k = 0; k < length; ++k)
            codes[row * APART + k] = a[row * length + k];
    for (int more = 0; more < 2; ++more) {
        memset(made, 0xff, sizeof made);
        for (size_t row = 0; row < vectors; ++row)
            bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_pack_rows(
                1,
                length,
                codes + row * APART,
                APART,
                more ? APART : length,
                made + row * size,
                size,
                terms + row,
                affines + row);
        if (!all_agree(vectors, length, made, terms, affines, packed))
            return 0;
    }
    bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_pack_rows(
        vectors, length, codes, APART, sizeof codes, made, size, terms, affines);
    if (length > 0 && !words_agree(vectors, length, codes, packed))
        return 0;
    return all_agree(vectors, length, made, terms, affines, packed);
}

/* Bytes of a step of a column tile, which lie next to those of other steps. */
static const size_t chunks[] = {COLUMNS * 1};
enum { CHUNKS = 1, TILE_BYTES = STEPS * COLUMNS * 1 };

/* Runs the microkernel on tiles of columns, each repeated for every segment. Every fourth segment
 * has rows of the tile `odd`, the others of the tile `even`. */
static void run(
    size_t tiles,
    size_t segments,
    const uint8_t *even,
    const uint8_t *odd,
    const uint8_t *columns,
    const int32_t *g,
    const int32_t *h,
    int32_t *c)
{
    static uint64_t repeated[SEGMENTS * (TILE_BYTES + 7) / 8];
    static const uint8_t *rows[SEGMENTS * ROWS];
    uint8_t *to = (uint8_t *)repeated;
    for (size_t tile = 0; tile < tiles; ++tile)
        for (size_t chunk = 0; chunk < CHUNKS; columns += STEPS * chunks[chunk++])
            for (size_t segment = 0; segment < segments; ++segment, to += STEPS * chunks[chunk])
                memcpy(to, columns, STEPS * chunks[chunk]);
    for (size_t segment = 0; segment < segments; ++segment)
        for (size_t row = 0; row < ROWS; ++row)
            rows[segment * ROWS + row] = (segment % 4 == 3 ? odd : even) + row * row_bytes(K);
    memset(c, 0x55, ROWS * LDC * sizeof *c);
    bs_mm_a4u_w4b_s32_armv7_neon_2x32x2(
        tiles, segments, STEPS, rows, (const uint8_t *)repeated, g, h, c, LDC);
}

/* Whether sums of many steps are those of few, repeated, and start where they should. */
static int repeats(size_t tiles, size_t segments, const uint8_t *even, const uint8_t *columns)
{
    enum { UNIT = 1 };
    static int32_t c[ROWS * LDC], of_even[ROWS * LDC], of_odd[ROWS * LDC];
    const uint8_t *odd = even + ROWS * row_bytes(K);
    const int32_t odds = (int32_t)(segments / 4), evens = (int32_t)segments - odds;
    int32_t g[LDC], h[ROWS];
    memset(g, 0, sizeof g);
    memset(h, 0, sizeof h);
    run(tiles, UNIT, even, even, columns, g, h, of_even);
    run(tiles, UNIT, odd, odd, columns, g, h, of_odd);
    for (int32_t column = 0; column < LDC; ++column)
        g[column] = (column - 5) * 0x1f3b6;
    for (int32_t row = 0; row < ROWS; ++row)
        h[row] = (3 - 2 * row) * 0x2c9f2;
    run(tiles, segments, even, odd, columns, g, h, c);
    for (size_t row = 0; row < ROWS; ++row)
        for (size_t column = 0; column < LDC; ++column) {
            const size_t at = row * LDC + column;
            const int32_t start = g[column] + TERMS * h[row];
            const int32_t want = (evens * of_even[at] + odds * of_odd[at] + start) / UNIT;
            if (c[at] != (column < tiles * COLUMNS ? want : 0x55555555))
                return 0;
        }
    return 1;
}

static int32_t act_value(int32_t code)
{
    return code;
}

static int32_t wgt_value(int32_t code)
{
    return 2 * code - 15;
}

/* Whether products are plain sums, and rows are packed alike in every way. */
static int check(int pattern, size_t vectors, size_t length)
{
    enum { CODES = (VECTORS > OTHERS ? VECTORS : OTHERS) * LONGEST };
    static uint8_t a[CODES], w[CODES];
    static uint64_t act[BUFFER], wgt[BUFFER];
    static int32_t c[(VECTORS + 1) * (OTHERS + 1)];
    const size_t M = vectors, N = OTHERS;
    uint32_t state = 1;
    for (uint32_t i = 0; i < M * length; ++i)
        a[i] = code(pattern == 4 ? 2 : pattern, &state, 15, i);
    for (uint32_t i = 0; i < length * N; ++i)
        w[i] = code(pattern == 4 ? 1 : pattern, &state, 15, (uint32_t)(i / N + i % N));
    if (bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_act_bytes(M, length) > sizeof act
        || bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_wgt_bytes(length, N) > sizeof wgt)
        return 0;
    bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_pack_act(M, length, a, (uint8_t *)act);
    bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_pack_wgt(length, N, w, (uint8_t *)wgt);
    if (!rows_agree(vectors, length, a, act))
        return 0;
    const uint8_t *acts = (const uint8_t *)act, *wgts = (const uint8_t *)wgt;
    memset(c, 0x55, sizeof c);
    if (bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_matmul(M, length, N, acts, wgts, c) != 0)
        return 0;
    for (size_t i = M * N; i < sizeof c / sizeof *c; ++i)
        if (c[i] != 0x55555555)
            return 0;
    for (size_t m = 0; m < M; ++m)
        for (size_t n = 0; n < N; ++n) {
            int32_t want = 0;
            for (size_t k = 0; k < length; ++k)
                want += act_value(a[m * length + k]) * wgt_value(w[k * N + n]);
            if (c[m * N + n] != want)
                return 0;
        }
    if (length != K)
        return 1;
    if (!repeats(1, SEGMENTS, acts, wgts))
        return 0;
    return repeats(2, 8, acts, wgts) && repeats(2, 0, acts, wgts);
}

/* Whether sizes that no object has are refused. */
static int refuses(void)
{
    static uint8_t none[8];
    static const size_t counts[] = {SIZE_MAX, 1, SIZE_MAX, SIZE_MAX / 8};
    static const size_t lengths[] = {1, SIZE_MAX, 0, 8};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
        const size_t x = counts[i], y = lengths[i];
        if (bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_act_bytes(x, y) != SIZE_MAX
            || bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_wgt_bytes(y, x) != SIZE_MAX)
            return 0;
        if (bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_pack_act(x, y, none, none) != -1
            || bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_pack_wgt(y, x, none, none) != -1)
            return 0;
        if (bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_matmul(x, y, 1, none, none, NULL) != -1)
            return 0;
        if (bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_matmul(1, y, x, none, none, NULL) != -1)
            return 0;
    }
    /* Codes that an object could have, but not with their sums: of eight tiles, so that no size is
     * rounded up. */
    const size_t acts =
        (PTRDIFF_MAX / bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_act_bytes(16, 1) + 1) * 16;
    const size_t wgts =
        (PTRDIFF_MAX / bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_wgt_bytes(1, 256) + 1) * 256;
    if (bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_act_bytes(acts, 1) != SIZE_MAX
        || bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_wgt_bytes(1, wgts) != SIZE_MAX)
        return 0;
    const size_t k = (size_t)bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_k_max + 1;
    return bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_matmul(1, k, 1, none, none, NULL) == -1;
}

int bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_selftest(void);

int bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_selftest(void)
{
    static const size_t lengths[] = {0, 1, 3, 64, 1285};
    for (int pattern = 0; pattern < PATTERNS; ++pattern)
        if (!check(pattern, VECTORS, K))
            return pattern + 1;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i)
        if (!check(0, VECTORS - 1, lengths[i]))
            return PATTERNS + 1;
    return refuses() ? 0 : PATTERNS + 2;
}

#ifndef BITSYNTH_NO_MAIN
#include <stdio.h>

int main(void)
{
    const char *missing = bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_missing_feature();
    if (missing) {
        fputs("bs_mm_a4u_w4b_s32_armv7_neon_2x32x2", stderr);
        fprintf(stderr, " needs a processor with %s; this one lacks it: ", missing);
        fputs("run it elsewhere, or emit it for another instruction set\n", stderr);
        return 77;
    }
    return bs_mm_a4u_w4b_s32_armv7_neon_2x32x2_selftest();
}
#endif
