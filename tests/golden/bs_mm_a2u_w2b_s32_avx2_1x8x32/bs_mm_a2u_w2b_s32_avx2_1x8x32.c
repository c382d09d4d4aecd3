/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* bs_mm_a2u_w2b_s32_avx2_1x8x32: exact int32 products of 2-bit unsigned activations and 2-bit
 * bipolar weights, by counting bits.
 *
 *   computes  c (m x n) = activations (m x k) times weights (k x n), for k up to 238,609,294
 *   tile      1 row of activations x 8 columns of weights; a step is 32 positions of k
 *   row       24 bytes a step: bit 1 at positions 0 to 3, 4 to 7, .., 28 to 31, byte by byte;
 *             bit 0 at positions 0 to 3, 4 to 7, .., 28 to 31, byte by byte; bit 0 ^ bit 1 at
 *             positions 0 to 3, 4 to 7, .., 28 to 31, byte by byte
 *   column    24 bytes a step: bit 1 at positions 0 to 3, 4 to 7, .., 28 to 31, byte by byte;
 *             bit 0 at positions 0 to 3, 4 to 7, .., 28 to 31, byte by byte; bit 0 ^ bit 1 at
 *             positions 0 to 3, 4 to 7, .., 28 to 31, byte by byte
 *   columns   lie next to each other, in the order 0 1 4 5 2 3 6 7, 8 bytes each
 *
 * From a kernel whose proof was checked. */
#include "bs_mm_a2u_w2b_s32_avx2_1x8x32.h"

#include <immintrin.h>
#include <string.h>

#ifndef __AVX2__
#error "needs __AVX2__: compile with -mavx2"
#endif

enum { ROWS = 1, COLUMNS = 8, K_STEP = 32, SLOT_BYTES = 8 };
enum { ROW_BYTES = bs_mm_a2u_w2b_s32_avx2_1x8x32_row_bytes, COLUMN_BYTES = 24 };

/* Instructions that need casts or several intrinsics; PIN keeps a value in its register. */
#define broadcast64_u8x32(p) _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(p)))
#define load_u32x8(p) _mm256_loadu_si256((const __m256i *)(p))
#define load_u8x32(p) _mm256_loadu_si256((const __m256i *)(p))
#define shuffle2_u32x8(a, b, n) \
    _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), n))
#define store_u32x8(to, a) _mm256_storeu_si256((__m256i *)(to), a)
#define PIN(x) __asm__ volatile("" : : "x"(x))

/* clang-format off */
static const uint8_t constant_k0[32] = {
    0, 2, 2, 4, 2, 4, 4, 6, 2, 4, 4, 6, 4, 6, 6, 8, 0, 2, 2, 4, 2, 4, 4, 6, 2, 4, 4, 6, 4, 6, 6, 8,
};
static const uint8_t constant_k1[32] = {
    0, 3, 3, 6, 3, 6, 6, 9, 3, 6, 6, 9, 6, 9, 9, 12,
    0, 3, 3, 6, 3, 6, 6, 9, 3, 6, 6, 9, 6, 9, 9, 12,
};
static const uint8_t constant_k2[32] = {
    0, 4, 4, 8, 4, 8, 8, 12, 4, 8, 8, 12, 8, 12, 12, 16,
    0, 4, 4, 8, 4, 8, 8, 12, 4, 8, 8, 12, 8, 12, 12, 16,
};
static const uint8_t constant_k3[32] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
};
/* clang-format on */

/* The tile if K is 0: its accumulators stay where they start, at the column's g. Not inline: the
 * microkernel's registers are its own. */
static __attribute__((noinline)) void start_tile(const int32_t *g, int32_t *c, size_t ldc)
{
    for (size_t row = 0; row < ROWS; ++row)
        for (size_t column = 0; column < COLUMNS; column += 8) {
            __m256i start = load_u32x8(g + column);
            store_u32x8(c + row * ldc + column, start);
        }
}

/* The microkernel: `tiles` neighbouring tiles, over `segments` segments of `steps` steps each. */
void bs_mm_a2u_w2b_s32_avx2_1x8x32(
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
    __m256i k0 = load_u8x32(constant_k0);
    __m256i k1 = load_u8x32(constant_k1);
    __m256i k2 = load_u8x32(constant_k2);
    __m256i k3 = load_u8x32(constant_k3);
    for (; tiles > 0; --tiles) {
        /* What a flush adds sums to: the start, then the tile. */
        const int32_t *start = g;
        /* Rows of the next segment; then of this one, how many steps are left and where they
         * are. */
        const uint8_t *const *segment = a + ROWS;
        const uint8_t *row0 = a[0];
        const uint8_t *column = w;
        size_t steps_here = steps, offset = 0;
        for (size_t steps_left = all_steps; steps_left > 0;) {
            const size_t block = steps_left < 7 ? steps_left : 7;
            __m256i acc0_0, acc1_0;
            size_t count = block;
            /* First run of the step: it sets the accumulators. */
            if (steps_here == 0) {
                row0 = *segment++;
                steps_here = steps;
                offset = 0;
            }
            {
                __m256i w0_0 = load_u8x32(column);
                __m256i w1_0 = load_u8x32(column + 32);
                __m256i w0_1 = load_u8x32(column + 64);
                __m256i w1_1 = load_u8x32(column + 96);
                __m256i w0_2 = load_u8x32(column + 128);
                __m256i w1_2 = load_u8x32(column + 160);
                {
                    __m256i a0 = broadcast64_u8x32(row0 + offset);
                    PIN(a0);
                    __m256i a1 = broadcast64_u8x32(row0 + offset + 8);
                    PIN(a1);
                    __m256i a2 = broadcast64_u8x32(row0 + offset + 16);
                    PIN(a2);
                    __m256i t0 = _mm256_or_si256(a2, w0_2);
                    __m256i t1 = _mm256_xor_si256(a0, w0_0);
                    __m256i t2 = _mm256_shuffle_epi8(k0, t1);
                    __m256i t3 = _mm256_or_si256(a2, w1_2);
                    __m256i t4 = _mm256_xor_si256(a0, w1_0);
                    __m256i t5 = _mm256_shuffle_epi8(k0, t4);
                    __m256i t6 = _mm256_xor_si256(a1, w0_1);
                    __m256i t7 = _mm256_shuffle_epi8(k1, t6);
                    __m256i t8 = _mm256_add_epi8(t2, t7);
                    __m256i t9 = _mm256_xor_si256(a1, w1_1);
                    __m256i t10 = _mm256_shuffle_epi8(k1, t9);
                    __m256i t11 = _mm256_add_epi8(t5, t10);
                    __m256i t12 = _mm256_xor_si256(t0, t6);
                    __m256i t13 = _mm256_shuffle_epi8(k2, t12);
                    acc0_0 = _mm256_add_epi8(t8, t13);
                    PIN(acc0_0);
                    __m256i t15 = _mm256_xor_si256(t3, t9);
                    __m256i t16 = _mm256_shuffle_epi8(k2, t15);
                    acc1_0 = _mm256_add_epi8(t11, t16);
                    PIN(acc1_0);
                }
                offset += ROW_BYTES;
                column += COLUMNS * 24;
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
                /* Step: 32 positions of K. */
                for (; run > 0; --run) {
                    __m256i w0_0 = load_u8x32(column);
                    __m256i w1_0 = load_u8x32(column + 32);
                    __m256i w0_1 = load_u8x32(column + 64);
                    __m256i w1_1 = load_u8x32(column + 96);
                    __m256i w0_2 = load_u8x32(column + 128);
                    __m256i w1_2 = load_u8x32(column + 160);
                    {
                        __m256i a0 = broadcast64_u8x32(row0 + offset);
                        PIN(a0);
                        __m256i a1 = broadcast64_u8x32(row0 + offset + 8);
                        PIN(a1);
                        __m256i a2 = broadcast64_u8x32(row0 + offset + 16);
                        PIN(a2);
                        __m256i t0 = _mm256_or_si256(a2, w0_2);
                        __m256i t1 = _mm256_xor_si256(a0, w0_0);
                        __m256i t2 = _mm256_shuffle_epi8(k0, t1);
                        __m256i t3 = _mm256_add_epi8(acc0_0, t2);
                        __m256i t4 = _mm256_or_si256(a2, w1_2);
                        __m256i t5 = _mm256_xor_si256(a0, w1_0);
                        __m256i t6 = _mm256_shuffle_epi8(k0, t5);
                        __m256i t7 = _mm256_add_epi8(acc1_0, t6);
                        __m256i t8 = _mm256_xor_si256(a1, w0_1);
                        __m256i t9 = _mm256_shuffle_epi8(k1, t8);
                        __m256i t10 = _mm256_add_epi8(t3, t9);
                        __m256i t11 = _mm256_xor_si256(a1, w1_1);
                        __m256i t12 = _mm256_shuffle_epi8(k1, t11);
                        __m256i t13 = _mm256_add_epi8(t7, t12);
                        __m256i t14 = _mm256_xor_si256(t0, t8);
                        __m256i t15 = _mm256_shuffle_epi8(k2, t14);
                        acc0_0 = _mm256_add_epi8(t10, t15);
                        PIN(acc0_0);
                        __m256i t17 = _mm256_xor_si256(t4, t11);
                        __m256i t18 = _mm256_shuffle_epi8(k2, t17);
                        acc1_0 = _mm256_add_epi8(t13, t18);
                        PIN(acc1_0);
                    }
                    offset += ROW_BYTES;
                    column += COLUMNS * 24;
                }
            }
            /* Flush: every 7 steps. */
            {
                __m256i c0 = load_u32x8(start);
                __m256i t0 = _mm256_sad_epu8(acc0_0, k3);
                __m256i t1 = _mm256_sad_epu8(acc1_0, k3);
                __m256i t2 = shuffle2_u32x8(t0, t1, 136);
                __m256i t3 = _mm256_sub_epi32(c0, t2);
                /* Write back. */
                store_u32x8(c, t3);
            }
            steps_left -= block;
            start = c;
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
    0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27,
    4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31,
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
    static const struct input inputs[] = {{0, 1, 0, 4, 4}, {1, 1, 0, 4, 4}, {2, 1, 0, 4, 4}};
    static const uint64_t table[] = {UINT64_C(0), UINT64_C(6), UINT64_C(5), UINT64_C(3)};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; ++i, to += SLOT_BYTES)
        pack_bytes(inputs + i, table, left, codes, stride, to);
}

/* 32 codes at any alignment. */
typedef uint64_t four __attribute__((vector_size(32), aligned(1), may_alias));

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
    const four bits = *(const four *)(const void *)codes >> plane & low;
    return (bits[0] | bits[1] << 1) | (bits[2] | bits[3] << 1) << 2;
}

/* A step of a row, from the words of its codes' bits; adds to their sums. */
static inline void pack_bits(uint64_t b0, uint64_t b1, uint8_t *to, int32_t *sums)
{
    uint64_t word;
    word = b1;
    memcpy(to, &word, 8);
    word = b0;
    memcpy(to + 8, &word, 8);
    word = b0 ^ b1;
    memcpy(to + 16, &word, 8);
    (void)sums;
}

/* The same from codes; bits outside of `mask` are ignored. */
static inline void pack_codes(const uint8_t *codes, uint64_t mask, uint8_t *to, int32_t *sums)
{
    pack_bits(gathered(codes, 0) & mask, gathered(codes, 1) & mask, to, sums);
}

void bs_mm_a2u_w2b_s32_avx2_1x8x32_pack_rows(
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
    }
}

/* Packs 64 codes of a row from words, `left` of them in the row; bits outside of `mask` are
 * ignored. */
static inline void pack_64(
    const uint64_t *words, size_t left, uint64_t mask, uint8_t *to, int32_t *sums)
{
    const uint64_t b0 = words[0] & mask;
    const uint64_t b1 = words[1] & mask;
    const uint64_t first = UINT64_C(0x0f0f0f0f0f0f0f0f);
    pack_bits(b0 & first, b1 & first, to, sums);
    if (left > K_STEP)
        pack_bits(b0 >> 4 & first, b1 >> 4 & first, to + ROW_BYTES, sums);
}

void bs_mm_a2u_w2b_s32_avx2_1x8x32_pack_words(
    size_t count,
    size_t k,
    const uint64_t *words,
    size_t apart,
    uint8_t *packed,
    size_t packed_apart,
    int32_t *terms,
    int32_t *affines)
{
    (void)terms;
    (void)affines;
    for (size_t row = 0; row < count; ++row, words += apart, packed += packed_apart) {
        int32_t sum[2] = {0, 0};
        for (size_t i = 0; i < k / 64; ++i)
            pack_64(words + i * 2, 64, UINT64_MAX, packed + i * 64 / K_STEP * ROW_BYTES, sum);
        if (k % 64)
            pack_64(
                words + k / 64 * 2,
                k % 64,
                first_bits(k % 64),
                packed + k / 64 * 64 / K_STEP * ROW_BYTES,
                sum);
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
    static const int64_t code_terms[] = {0, 3, 6, 9};
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
    for (; stride == 1 && row < count && (rows - row - 1) * size >= 32; ++row) {
        const size_t readable = (count - row - 1) * apart + k;
        int32_t term, affine;
        bs_mm_a2u_w2b_s32_avx2_1x8x32_pack_rows(
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
    static const size_t slots[COLUMNS] = {0, 1, 4, 5, 2, 3, 6, 7};
    const size_t steps = ceiling(k, K_STEP), columns = ceiling(count, COLUMNS) * COLUMNS;
    uint8_t *to = packed;
    for (size_t tile = 0; tile < columns; tile += COLUMNS) {
        for (size_t step = 0; step < steps; ++step) {
            /* clang-format off */
            static const struct input inputs[] = {
                {0, 1, 0, 4, 4}, {1, 1, 0, 4, 4}, {2, 1, 0, 4, 4},
            };
            /* clang-format on */
            static const uint64_t table[] = {UINT64_C(0), UINT64_C(6), UINT64_C(5), UINT64_C(3)};
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
            to += COLUMNS * 24;
        }
    }
    int64_t *sums = (int64_t *)(void *)(packed + column_input_bytes(count, k));
    column_sums(count, k, codes, apart, stride, sums);
}

size_t bs_mm_a2u_w2b_s32_avx2_1x8x32_act_bytes(size_t m, size_t k)
{
    return row_bytes(m, k);
}

size_t bs_mm_a2u_w2b_s32_avx2_1x8x32_wgt_bytes(size_t k, size_t n)
{
    return column_bytes(n, k);
}

int bs_mm_a2u_w2b_s32_avx2_1x8x32_pack_act(
    size_t m, size_t k, const uint8_t *codes, uint8_t *packed)
{
    if (product(m, k) > PTRDIFF_MAX || row_bytes(m, k) == SIZE_MAX)
        return -1;
    pack_rows(m, k, codes, k, 1, packed);
    return 0;
}

int bs_mm_a2u_w2b_s32_avx2_1x8x32_pack_wgt(
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

int bs_mm_a2u_w2b_s32_avx2_1x8x32_matmul(
    size_t m, size_t k, size_t n, const uint8_t *act, const uint8_t *wgt, int32_t *c)
{
    const uint8_t *a = act, *w = wgt;
    const size_t rows = m, columns = n;
    int32_t tile[ROWS * COLUMNS], g[COLUMNS], h[ROWS];
    if (k > bs_mm_a2u_w2b_s32_avx2_1x8x32_k_max || product(product(m, n), sizeof *c) > PTRDIFF_MAX)
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
            bs_mm_a2u_w2b_s32_avx2_1x8x32(1, 1, steps, inputs, tile_w, g, h, tile, COLUMNS);
            for (size_t i = 0; i < height; ++i)
                for (size_t j = 0; j < width; ++j) {
                    const int32_t sum = tile[i * COLUMNS + j];
                    c[(row + i) * n + column + j] = sum;
                }
        }
    }
    return 0;
}
