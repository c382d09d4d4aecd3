/* Channels first to channels last, and back. */
#include "bs_call.h"

#include <string.h>

enum { BLOCK = 8 };

/* Bytes of `width` of each row change places with those of the row that far on. */
static inline void swap_blocks(uint64_t *rows, size_t width, uint64_t low)
{
    for (size_t i = 0; i < BLOCK; ++i)
        if (!(i & width)) {
            const uint64_t moved = (rows[i] >> 8 * width ^ rows[i + width]) & low;
            rows[i + width] ^= moved;
            rows[i] ^= moved << 8 * width;
        }
}

static inline void transpose_block(
    const uint8_t *from, size_t from_apart, uint8_t *to, size_t to_apart)
{
    uint64_t rows[BLOCK];
    for (size_t i = 0; i < BLOCK; ++i)
        memcpy(rows + i, from + i * from_apart, BLOCK);
    swap_blocks(rows, 4, UINT64_C(0x00000000ffffffff));
    swap_blocks(rows, 2, UINT64_C(0x0000ffff0000ffff));
    swap_blocks(rows, 1, UINT64_C(0x00ff00ff00ff00ff));
    for (size_t j = 0; j < BLOCK; ++j)
        memcpy(to + j * to_apart, rows + j, BLOCK);
}

/* Whole blocks; the last ones of rows and columns cover some elements again. */
static void transpose_bytes(
    size_t rows,
    size_t columns,
    const uint8_t *from,
    size_t from_apart,
    uint8_t *to,
    size_t to_apart)
{
    for (size_t row = 0; row < rows; row += BLOCK)
        for (size_t column = 0; column < columns; column += BLOCK) {
            const size_t i = least(row, rows - BLOCK), j = least(column, columns - BLOCK);
            transpose_block(from + i * from_apart + j, from_apart, to + j * to_apart + i, to_apart);
        }
}

/* A few rows at a time, so that what is written at once lies together. */
static inline __attribute__((always_inline)) void transpose_elements(
    size_t bytes,
    size_t rows,
    size_t columns,
    const uint8_t *from,
    size_t from_apart,
    uint8_t *to,
    size_t to_apart)
{
    for (size_t row = 0; row < rows; row += BLOCK) {
        const size_t count = least(BLOCK, rows - row);
        for (size_t j = 0; j < columns; ++j)
            for (size_t i = row; i < row + count; ++i)
                memcpy(to + j * to_apart + i * bytes, from + i * from_apart + j * bytes, bytes);
    }
}

void bs_transpose(
    size_t bytes,
    size_t rows,
    size_t columns,
    const uint8_t *from,
    size_t from_apart,
    uint8_t *to,
    size_t to_apart)
{
    if (bytes == 1 && rows >= BLOCK && columns >= BLOCK)
        transpose_bytes(rows, columns, from, from_apart, to, to_apart);
    else if (bytes == 1)
        transpose_elements(1, rows, columns, from, from_apart, to, to_apart);
    else if (bytes == 4)
        transpose_elements(4, rows, columns, from, from_apart, to, to_apart);
    else
        transpose_elements(bytes, rows, columns, from, from_apart, to, to_apart);
}
