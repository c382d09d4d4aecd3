/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* bs_mm_a2u_w4b_s32_avxvnni_8x8x8: exact int32 products of 2-bit unsigned activations and 4-bit
 * bipolar weights, by dot products of 8-bit lanes.
 *
 *   computes  c (m x n) = activations (m x k) times weights (k x n), for k up to 47,721,858
 *   tile      8 rows of activations x 8 columns of weights; a step is 8 positions of k
 *   row       8 bytes a step: bit 0, bit 1 at positions 0, 2, 4, 6, byte by byte; bit 0, bit 1
 *             at positions 1, 3, 5, 7, byte by byte
 *   column    4 bytes a step: bit 0, bit 1, bit 2, bit 3 at positions 0 to 1, 2 to 3, 4 to 5, 6
 *             to 7, byte by byte
 *   columns   lie next to each other, in order, 4 bytes each
 *
 * From a kernel whose proof was checked. */
#include "bs_mm_a2u_w4b_s32_avxvnni_8x8x8.h"

#include <immintrin.h>
#include <string.h>

#ifndef __AVXVNNI__
#error "needs __AVXVNNI__: compile with -mavx2 -mavxvnni"
#endif

enum { ROWS = 8, COLUMNS = 8, K_STEP = 8, SLOT_BYTES = 4 };
enum { ROW_BYTES = bs_mm_a2u_w4b_s32_avxvnni_8x8x8_row_bytes, COLUMN_BYTES = 4 };

/* Instructions that need casts or several intrinsics; PIN keeps a value in its register. */
#define broadcast32_u32x8(p) _mm256_broadcastd_epi32(_mm_loadu_si32(p))
#define load_u32x8(p) _mm256_loadu_si256((const __m256i *)(p))
#define load_u8x32(p) _mm256_loadu_si256((const __m256i *)(p))
#define store_u32x8(to, a) _mm256_storeu_si256((__m256i *)(to), a)
#define PIN(x) __asm__ volatile("" : : "x"(x))

/* clang-format off */
static const uint8_t constant_k0[32] = {
    15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
    15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
};
/* clang-format on */
static const int32_t zero[8] = {0};

/* The tile if K is 0: its accumulators stay where they start, at the column's g and the terms of
 * the row, h. Not inline: the microkernel's registers are its own. */
static __attribute__((noinline)) void start_tile(
    const int32_t *g, const int32_t *h, int32_t *c, size_t ldc)
{
    for (size_t row = 0; row < ROWS; ++row)
        for (size_t column = 0; column < COLUMNS; column += 8) {
            __m256i start = load_u32x8(g + column);
            __m256i more = broadcast32_u32x8(h + row);
            __m256i both = _mm256_add_epi32(start, more);
            store_u32x8(c + row * ldc + column, both);
        }
}

/* The microkernel: `tiles` neighbouring tiles, over `segments` segments of `steps` steps each. */
void bs_mm_a2u_w4b_s32_avxvnni_8x8x8(
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
    __m256i k0 = load_u8x32(constant_k0);
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
        const uint8_t *row4 = a[4], *row5 = a[5], *row6 = a[6], *row7 = a[7];
        const uint8_t *column = w;
        size_t steps_here = steps, offset = 0;
        for (size_t steps_left = all_steps; steps_left > 0;) {
            const size_t block = steps_left < 16777216 ? steps_left : 16777216;
            __m256i acc0_0 = load_u8x32(zero);
            __m256i acc0_1 = load_u8x32(zero);
            __m256i acc0_2 = load_u8x32(zero);
            __m256i acc0_3 = load_u8x32(zero);
            __m256i acc0_4 = load_u8x32(zero);
            __m256i acc0_5 = load_u8x32(zero);
            __m256i acc0_6 = load_u8x32(zero);
            __m256i acc0_7 = load_u8x32(zero);
            size_t count = block;
            while (count > 0) {
                if (steps_here == 0) {
                    row0 = *segment++;
                    row1 = *segment++;
                    row2 = *segment++;
                    row3 = *segment++;
                    row4 = *segment++;
                    row5 = *segment++;
                    row6 = *segment++;
                    row7 = *segment++;
                    steps_here = steps;
                    offset = 0;
                }
                size_t run = count < steps_here ? count : steps_here;
                count -= run;
                steps_here -= run;
                /* Step: 8 positions of K. */
                for (; run > 0; --run) {
                    __m256i w0_0 = load_u8x32(column);
                    PIN(w0_0);
                    __m256i t0 = _mm256_and_si256(w0_0, k0);
                    __m256i t2 = _mm256_srli_epi16(w0_0, 4);
                    __m256i t3 = _mm256_and_si256(t2, k0);
                    { /* row 0 */
                        __m256i a0 = broadcast32_u32x8(row0 + offset);
                        __m256i a1 = broadcast32_u32x8(row0 + offset + 4);
                        __m256i t1 = _mm256_dpbusd_avx_epi32(acc0_0, a0, t0);
                        acc0_0 = _mm256_dpbusd_avx_epi32(t1, a1, t3);
                        PIN(acc0_0);
                    }
                    { /* row 1 */
                        __m256i a0 = broadcast32_u32x8(row1 + offset);
                        __m256i a1 = broadcast32_u32x8(row1 + offset + 4);
                        __m256i t1 = _mm256_dpbusd_avx_epi32(acc0_1, a0, t0);
                        acc0_1 = _mm256_dpbusd_avx_epi32(t1, a1, t3);
                        PIN(acc0_1);
                    }
                    { /* row 2 */
                        __m256i a0 = broadcast32_u32x8(row2 + offset);
                        __m256i a1 = broadcast32_u32x8(row2 + offset + 4);
                        __m256i t1 = _mm256_dpbusd_avx_epi32(acc0_2, a0, t0);
                        acc0_2 = _mm256_dpbusd_avx_epi32(t1, a1, t3);
                        PIN(acc0_2);
                    }
                    { /* row 3 */
                        __m256i a0 = broadcast32_u32x8(row3 + offset);
                        __m256i a1 = broadcast32_u32x8(row3 + offset + 4);
                        __m256i t1 = _mm256_dpbusd_avx_epi32(acc0_3, a0, t0);
                        acc0_3 = _mm256_dpbusd_avx_epi32(t1, a1, t3);
                        PIN(acc0_3);
                    }
                    { /* row 4 */
                        __m256i a0 = broadcast32_u32x8(row4 + offset);
                        __m256i a1 = broadcast32_u32x8(row4 + offset + 4);
                        __m256i t1 = _mm256_dpbusd_avx_epi32(acc0_4, a0, t0);
                        acc0_4 = _mm256_dpbusd_avx_epi32(t1, a1, t3);
                        PIN(acc0_4);
                    }
                    { /* row 5 */
                        __m256i a0 = broadcast32_u32x8(row5 + offset);
                        __m256i a1 = broadcast32_u32x8(row5 + offset + 4);
                        __m256i t1 = _mm256_dpbusd_avx_epi32(acc0_5, a0, t0);
                        acc0_5 = _mm256_dpbusd_avx_epi32(t1, a1, t3);
                        PIN(acc0_5);
                    }
                    { /* row 6 */
                        __m256i a0 = broadcast32_u32x8(row6 + offset);
                        __m256i a1 = broadcast32_u32x8(row6 + offset + 4);
                        __m256i t1 = _mm256_dpbusd_avx_epi32(acc0_6, a0, t0);
                        acc0_6 = _mm256_dpbusd_avx_epi32(t1, a1, t3);
                        PIN(acc0_6);
                    }
                    { /* row 7 */
                        __m256i a0 = broadcast32_u32x8(row7 + offset);
                        __m256i a1 = broadcast32_u32x8(row7 + offset + 4);
                        __m256i t1 = _mm256_dpbusd_avx_epi32(acc0_7, a0, t0);
                        acc0_7 = _mm256_dpbusd_avx_epi32(t1, a1, t3);
                        PIN(acc0_7);
                    }
                    offset += ROW_BYTES;
                    column += COLUMNS * 4;
                }
            }
            /* Flush: every 16,777,216 steps. */
            { /* row 0 */
                __m256i more = broadcast32_u32x8(row_start);
                __m256i c0 = load_u32x8(start);
                c0 = _mm256_add_epi32(c0, more);
                __m256i t0 = _mm256_slli_epi32(acc0_0, 1);
                __m256i t1 = _mm256_add_epi32(c0, t0);
                /* Write back. */
                store_u32x8(c, t1);
            }
            { /* row 1 */
                __m256i more = broadcast32_u32x8(row_start + row_start_ld);
                __m256i c0 = load_u32x8(start + start_ld);
                c0 = _mm256_add_epi32(c0, more);
                __m256i t0 = _mm256_slli_epi32(acc0_1, 1);
                __m256i t1 = _mm256_add_epi32(c0, t0);
                /* Write back. */
                store_u32x8(c + ldc, t1);
            }
            { /* row 2 */
                __m256i more = broadcast32_u32x8(row_start + 2 * row_start_ld);
                __m256i c0 = load_u32x8(start + 2 * start_ld);
                c0 = _mm256_add_epi32(c0, more);
                __m256i t0 = _mm256_slli_epi32(acc0_2, 1);
                __m256i t1 = _mm256_add_epi32(c0, t0);
                /* Write back. */
                store_u32x8(c + 2 * ldc, t1);
            }
            { /* row 3 */
                __m256i more = broadcast32_u32x8(row_start + 3 * row_start_ld);
                __m256i c0 = load_u32x8(start + 3 * start_ld);
                c0 = _mm256_add_epi32(c0, more);
                __m256i t0 = _mm256_slli_epi32(acc0_3, 1);
                __m256i t1 = _mm256_add_epi32(c0, t0);
                /* Write back. */
                store_u32x8(c + 3 * ldc, t1);
            }
            { /* row 4 */
                __m256i more = broadcast32_u32x8(row_start + 4 * row_start_ld);
                __m256i c0 = load_u32x8(start + 4 * start_ld);
                c0 = _mm256_add_epi32(c0, more);
                __m256i t0 = _mm256_slli_epi32(acc0_4, 1);
                __m256i t1 = _mm256_add_epi32(c0, t0);
                /* Write back. */
                store_u32x8(c + 4 * ldc, t1);
            }
            { /* row 5 */
                __m256i more = broadcast32_u32x8(row_start + 5 * row_start_ld);
                __m256i c0 = load_u32x8(start + 5 * start_ld);
                c0 = _mm256_add_epi32(c0, more);
                __m256i t0 = _mm256_slli_epi32(acc0_5, 1);
                __m256i t1 = _mm256_add_epi32(c0, t0);
                /* Write back. */
                store_u32x8(c + 5 * ldc, t1);
            }
            { /* row 6 */
                __m256i more = broadcast32_u32x8(row_start + 6 * row_start_ld);
                __m256i c0 = load_u32x8(start + 6 * start_ld);
                c0 = _mm256_add_epi32(c0, more);
                __m256i t0 = _mm256_slli_epi32(acc0_6, 1);
                __m256i t1 = _mm256_add_epi32(c0, t0);
                /* Write back. */
                store_u32x8(c + 6 * ldc, t1);
            }
            { /* row 7 */
                __m256i more = broadcast32_u32x8(row_start + 7 * row_start_ld);
                __m256i c0 = load_u32x8(start + 7 * start_ld);
                c0 = _mm256_add_epi32(c0, more);
                __m256i t0 = _mm256_slli_epi32(acc0_7, 1);
                __m256i t1 = _mm256_add_epi32(c0, t0);
                /* Write back. */
                store_u32x8(c + 7 * ldc, t1);
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

/* The code at each position of a step. */
static const uint16_t order[K_STEP] = {0, 4, 1, 5, 2, 6, 3, 7};

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
    static const struct input inputs[] = {{0, 2, 0, 2, 1}, {2, 2, 1, 2, 1}};
    static const uint64_t table[] = {UINT64_C(0), UINT64_C(5), UINT64_C(10), UINT64_C(15)};
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

void bs_mm_a2u_w4b_s32_avxvnni_8x8x8_pack_rows(
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

/* A register of words at any alignment. */
typedef uint64_t whole __attribute__((vector_size(32), aligned(1), may_alias));

/* Unpacks 64 codes from words, and adds to their sums. */
static inline void expand(const uint64_t *words, uint64_t mask, uint8_t *to, int32_t *sums)
{
    const uint64_t low = UINT64_C(0x0101010101010101);
    const whole none = {0};
    whole codes;
    const uint64_t b0 = words[0] & mask;
    const whole plane0 = none + b0;
    const uint64_t b1 = words[1] & mask;
    const whole plane1 = none + b1;
    const whole shifts0 = {0, 1, 2, 3};
    codes = plane0 >> shifts0 & low;
    codes |= (plane1 >> shifts0 & low) << 1;
    *(whole *)(void *)(to) = codes;
    const whole shifts4 = {4, 5, 6, 7};
    codes = plane0 >> shifts4 & low;
    codes |= (plane1 >> shifts4 & low) << 1;
    *(whole *)(void *)(to + 32) = codes;
    sums[0] += -15 * ones(b0) + -30 * ones(b1);
}

void bs_mm_a2u_w4b_s32_avxvnni_8x8x8_pack_words(
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
        for (; k - at >= 64; at += 64, from += 2)
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
    for (; stride == 1 && row < count && (rows - row - 1) * size >= 32; ++row) {
        const size_t readable = (count - row - 1) * apart + k;
        int32_t term, affine;
        bs_mm_a2u_w4b_s32_avxvnni_8x8x8_pack_rows(
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
            to += COLUMNS * 4;
        }
    }
    int64_t *sums = (int64_t *)(void *)(packed + column_input_bytes(count, k));
    column_sums(count, k, codes, apart, stride, sums);
}

size_t bs_mm_a2u_w4b_s32_avxvnni_8x8x8_act_bytes(size_t m, size_t k)
{
    return row_bytes(m, k);
}

size_t bs_mm_a2u_w4b_s32_avxvnni_8x8x8_wgt_bytes(size_t k, size_t n)
{
    return column_bytes(n, k);
}

int bs_mm_a2u_w4b_s32_avxvnni_8x8x8_pack_act(
    size_t m, size_t k, const uint8_t *codes, uint8_t *packed)
{
    if (product(m, k) > PTRDIFF_MAX || row_bytes(m, k) == SIZE_MAX)
        return -1;
    pack_rows(m, k, codes, k, 1, packed);
    return 0;
}

int bs_mm_a2u_w4b_s32_avxvnni_8x8x8_pack_wgt(
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

int bs_mm_a2u_w4b_s32_avxvnni_8x8x8_matmul(
    size_t m, size_t k, size_t n, const uint8_t *act, const uint8_t *wgt, int32_t *c)
{
    const uint8_t *a = act, *w = wgt;
    const size_t rows = m, columns = n;
    int32_t tile[ROWS * COLUMNS], g[COLUMNS], h[ROWS];
    if (k > bs_mm_a2u_w4b_s32_avxvnni_8x8x8_k_max
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
            bs_mm_a2u_w4b_s32_avxvnni_8x8x8(1, 1, steps, inputs, tile_w, g, h, tile, COLUMNS);
            for (size_t i = 0; i < height; ++i)
                for (size_t j = 0; j < width; ++j) {
                    const int32_t sum = tile[i * COLUMNS + j];
                    c[(row + i) * n + column + j] = sum;
                }
        }
    }
    return 0;
}
