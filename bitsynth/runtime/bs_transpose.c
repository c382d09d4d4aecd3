/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Transposition of matrices: channels first to channels last, and back. */
#include "bs_call.h"

#include <string.h>

/* Bytes of a side of a block, and of one where a matrix is too small for that. */
enum { BLOCK = BS_TRANSPOSED, SMALL = 8 };

typedef uint8_t bytes __attribute__((vector_size(BLOCK)));

#ifdef __clang__
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, (bytes){__VA_ARGS__})
#endif

/* Interleaves the bytes of both halves of a block, row by row; four times transposes it. */
static inline __attribute__((always_inline)) void interleave_halves(const bytes *rows, bytes *to)
{
    for (size_t i = 0; i < BLOCK / 2; ++i) {
        const bytes a = rows[i], b = rows[i + BLOCK / 2];
        to[2 * i] = SHUFFLED(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        to[2 * i + 1] =
            SHUFFLED(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
}

static inline void transpose_block(struct bs_matrix m, const uint8_t *from, uint8_t *to)
{
    bytes rows[BLOCK], other[BLOCK];
    for (size_t i = 0; i < BLOCK; ++i)
        memcpy(rows + i, from + i * m.from_apart, BLOCK);
    interleave_halves(rows, other);
    interleave_halves(other, rows);
    interleave_halves(rows, other);
    interleave_halves(other, rows);
    for (size_t j = 0; j < BLOCK; ++j)
        memcpy(to + j * m.to_apart, rows + j, BLOCK);
}

/* Of twice as many rows both blocks, one under the other, are transposed at once. Measured on Zen
 * 4: with the fewer registers of AVX2 that takes longer. */
#if defined __AVX512BW__ && defined __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define HAS_PAIRS
#endif
#endif

#ifdef HAS_PAIRS
enum { TALL = 2 * BLOCK };

typedef uint8_t pair __attribute__((vector_size(TALL)));

#define EIGHT(n) n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7
#define IN_TURN(n) n, n + TALL, n + 1, n + TALL + 1, n + 2, n + TALL + 2, n + 3, n + TALL + 3
#define PAIR(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)

static inline __attribute__((always_inline)) void interleave_pairs(const pair *rows, pair *to)
{
    for (size_t i = 0; i < BLOCK / 2; ++i) {
        const pair a = rows[i], b = rows[i + BLOCK / 2];
        to[2 * i] = PAIR(a, b, IN_TURN(0), IN_TURN(4), IN_TURN(16), IN_TURN(20));
        to[2 * i + 1] = PAIR(a, b, IN_TURN(8), IN_TURN(12), IN_TURN(24), IN_TURN(28));
    }
}

static inline void transpose_tall(struct bs_matrix m, const uint8_t *from, uint8_t *to)
{
    pair rows[BLOCK], other[BLOCK];
    for (size_t i = 0; i < BLOCK; ++i, from += m.from_apart) {
        bytes above, below;
        memcpy(&above, from, BLOCK);
        memcpy(&below, from + BLOCK * m.from_apart, BLOCK);
        rows[i] = PAIR(above, below, EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24));
    }
    interleave_pairs(rows, other);
    interleave_pairs(other, rows);
    interleave_pairs(rows, other);
    interleave_pairs(other, rows);
    for (size_t j = 0; j < BLOCK; ++j)
        memcpy(to + j * m.to_apart, rows + j, TALL);
}
#else
enum { TALL = BLOCK };
#define transpose_tall transpose_block
#endif

/* Swaps bytes of each row with bytes of the row that is `width` rows further. */
static inline void swap_bytes(uint64_t *rows, size_t width, uint64_t low)
{
    for (size_t i = 0; i < SMALL; ++i)
        if (!(i & width)) {
            const uint64_t moved = (rows[i] >> 8 * width ^ rows[i + width]) & low;
            rows[i + width] ^= moved;
            rows[i] ^= moved << 8 * width;
        }
}

static inline void transpose_small(struct bs_matrix m, const uint8_t *from, uint8_t *to)
{
    uint64_t rows[SMALL];
    for (size_t i = 0; i < SMALL; ++i)
        memcpy(rows + i, from + i * m.from_apart, SMALL);
    swap_bytes(rows, 4, UINT64_C(0x00000000ffffffff));
    swap_bytes(rows, 2, UINT64_C(0x0000ffff0000ffff));
    swap_bytes(rows, 1, UINT64_C(0x00ff00ff00ff00ff));
    for (size_t j = 0; j < SMALL; ++j)
        memcpy(to + j * m.to_apart, rows + j, SMALL);
}

/* Whole blocks; the last ones of rows and columns cover some elements again. */
static void transpose_bytes(struct bs_matrix m, const uint8_t *from, uint8_t *to)
{
    const size_t wide = least(m.rows, m.columns) < BLOCK ? SMALL : BLOCK;
    const size_t high = wide == BLOCK && m.rows >= TALL ? TALL : wide;
    for (size_t row = 0; row < m.rows; row += high)
        for (size_t column = 0; column < m.columns; column += wide) {
            const size_t i = least(row, m.rows - high), j = least(column, m.columns - wide);
            const uint8_t *at = from + i * m.from_apart + j;
            uint8_t *there = to + j * m.to_apart + i;
            if (high == TALL)
                transpose_tall(m, at, there);
            else if (wide == BLOCK)
                transpose_block(m, at, there);
            else
                transpose_small(m, at, there);
        }
}

/* A few rows at a time, so that what is written at once lies together. */
static inline __attribute__((always_inline)) void transpose_elements(
    struct bs_matrix m, size_t size, const uint8_t *from, uint8_t *to)
{
    for (size_t row = 0; row < m.rows; row += SMALL) {
        const size_t count = least(SMALL, m.rows - row);
        for (size_t j = 0; j < m.columns; ++j)
            for (size_t i = row; i < row + count; ++i)
                memcpy(to + j * m.to_apart + i * size, from + i * m.from_apart + j * size, size);
    }
}

void bs_transpose(struct bs_matrix m, const uint8_t *from, uint8_t *to)
{
    if (m.bytes == 1 && least(m.rows, m.columns) >= SMALL)
        transpose_bytes(m, from, to);
    else if (m.bytes == 1)
        transpose_elements(m, 1, from, to);
    else if (m.bytes == 4)
        transpose_elements(m, 4, from, to);
    else
        transpose_elements(m, m.bytes, from, to);
}
