/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
#include "layer_names.h"
/* Self-test of layer: random, zero, greatest and alternating codes against a plain convolution,
 * with one thread and with three. Exit status 0 when every result is right, 1 when one is not or
 * memory is short, 77 if the processor lacks a feature. */
#include "layer.h"
#include "bs_plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 2,
    HEIGHT = 5,
    WIDTH = 5,
    GROUPS = 1,
    IC = 8,
    OC = 4,
    KH = 3,
    KW = 3,
    IN = GROUPS * IC,
    OUT = GROUPS * OC,
    COLUMNS = 16,
    WGT_BITS = 1,
    CODES = 64,
    PATTERNS = 4
};

/* Codes of the weights, in the order [OUT][IC][KH][KW]. */
/* clang-format off */
static const uint64_t weights[5] = {
    0xb972e5cb972e5cb9, 0x5cb972e5cb972e5c, 0x2e5cb972e5cb972e, 0x972e5cb972e5cb97,
    0x00000000b972e5cb,
};
/* clang-format on */

/* Shapes of the input that are tried, the largest first; and the one that is tried now. */
static const struct bs_shape shapes[] = {
    {BATCH, HEIGHT, WIDTH},
    {1, HEIGHT - 1, WIDTH},
    {1, HEIGHT - 4 * 1, WIDTH - 4 * 1},
};
static struct bs_shape shape = {BATCH, HEIGHT, WIDTH};

static size_t pixels(void)
{
    return shape.batch * shape.height * shape.width;
}

static int32_t wgt_value(size_t i)
{
    const uint64_t word = weights[i / CODES] >> i % CODES * WGT_BITS;
    const int32_t code = (int32_t)(word & ((1u << WGT_BITS) - 1));
    return 2 * code - 1;
}

static int32_t act_value(int32_t code)
{
    return code;
}

static uint8_t act_code(int pattern, uint32_t *state, uint32_t i)
{
    *state = *state * 1664525u + 1013904223u;
    switch (pattern) {
    case 1:
        return 0;
    case 2:
        return 3;
    case 3:
        return (uint8_t)(i % 2 ? 3 : 0);
    default:
        return (uint8_t)((*state >> 16) % 4);
    }
}

/* Returns one accumulator of a plain convolution of codes, channels last. */
static int32_t sum_at(const uint8_t *codes, size_t image, size_t oy, size_t ox, size_t channel)
{
    int32_t sum = 0;
    for (long ky = 0; ky < KH; ++ky)
        for (long kx = 0; kx < KW; ++kx) {
            const long y = (long)oy * 1 + ky * 1 - 1;
            const long x = (long)ox * 1 + kx * 1 - 1;
            if (y < 0 || y >= (long)shape.height || x < 0 || x >= (long)shape.width)
                continue;
            const size_t pixel = (image * shape.height + (size_t)y) * shape.width + (size_t)x;
            const uint8_t *from = codes + pixel * IN + channel / OC * IC;
            for (size_t i = 0; i < IC; ++i) {
                const size_t tap = ((channel * IC + i) * KH + (size_t)ky) * KW + (size_t)kx;
                sum += act_value(from[i]) * wgt_value(tap);
            }
        }
    return sum;
}

/* Lays the input out for layer. */
static void lay_out(const uint8_t *codes, void *input)
{
    memcpy(input, codes, pixels() * IN);
}

/* Computes results: portable C of the function that the layer's programs are proved to compute. */
/* clang-format off */
static const uint64_t wanted_constants[24] = {
    0xffffffecffffffec, 0xffffffecffffffec, 0xffffffecffffffec, 0xffffffecffffffec,
    0xffffffecffffffec, 0xffffffecffffffec, 0xffffffecffffffec, 0xffffffecffffffec,
    0x0000000000000000, 0x0000000000000000, 0x0000000000000000, 0x0000000000000000,
    0x0000000000000000, 0x0000000000000000, 0x0000000000000000, 0x0000000000000000,
    0x0000001400000014, 0x0000001400000014, 0x0000001400000014, 0x0000001400000014,
    0x0000001400000014, 0x0000001400000014, 0x0000001400000014, 0x0000001400000014,
};
/* clang-format on */
static const uint64_t wanted_shared[1] = {0x0000000000000000};

static inline void wanted_unit(
    const bs_u32 *restrict x_s, const bs_u32 *restrict x_t, bs_u8 *restrict to)
{
    for (size_t j = 0; j < 16; ++j) {
        const uint32_t v0 = x_t[0 + j];
        const uint32_t v1 = x_s[j];
        const int v2 = (int32_t)v0 < (int32_t)v1;
        const uint8_t v3 = (uint8_t)(v2);
        const uint32_t v4 = x_t[16 + j];
        const int v5 = (int32_t)v4 < (int32_t)v1;
        const uint8_t v6 = (uint8_t)(v5);
        const uint8_t v7 = (uint8_t)(v3 + v6);
        const uint32_t v8 = x_t[32 + j];
        const int v9 = (int32_t)v8 < (int32_t)v1;
        const uint8_t v10 = (uint8_t)(v9);
        const uint8_t v11 = (uint8_t)(v7 + v10);
        to[j] = v11;
    }
}

static void wanted(
    const void *constants,
    const void *numbers,
    size_t rows,
    size_t columns,
    const void *from,
    size_t from_apart,
    const int32_t *row,
    const void *other,
    size_t other_apart,
    void *to,
    size_t to_apart)
{
    (void)numbers;
    (void)row;
    (void)other;
    (void)other_apart;
    const uint8_t *constant = constants;
    for (size_t column = 0; column < columns; column += 16) {
        const uint8_t *in = (const uint8_t *)from + column * 4;
        uint8_t *out = (uint8_t *)to + column * 1;
        for (size_t i = 0; i < rows; ++i) {
            wanted_unit(
                (const bs_u32 *)(const void *)in,
                (const bs_u32 *)(const void *)(constant + 0),
                (bs_u8 *)(void *)out);
            in += from_apart;
            out += to_apart;
        }
        constant += 192;
    }
}

/* Returns whether the result at a place of the output is that which is wanted. */
static int is_right(const void *output, size_t pixel, size_t pixels, size_t channel, uint8_t want)
{
    const size_t at = pixel * OUT + channel;
    (void)pixels;
    return ((const uint8_t *)output)[at] == want;
}

struct buffers {
    uint8_t *codes;
    void *input, *output, *arena;
    size_t input_bytes, output_bytes, arena_bytes;
};

static int all_right(const struct buffers *b)
{
    static int32_t sums[COLUMNS];
    static uint8_t results[COLUMNS];
    const struct bs_shape out = layer_output(shape);
    const size_t each = out.height * out.width;
    for (size_t pixel = 0; pixel < shape.batch * each; ++pixel) {
        const size_t image = pixel / each, y = pixel % each / out.width;
        for (size_t c = 0; c < OUT; ++c)
            sums[c] = sum_at(b->codes, image, y, pixel % out.width, c);
        wanted(wanted_constants, wanted_shared, 1, COLUMNS, sums, 0, NULL, NULL, 0, results, 0);
        for (size_t c = 0; c < OUT; ++c)
            if (!is_right(b->output, pixel, each, c, results[c]))
                return 0;
    }
    return 1;
}

/* Whether the output has as many lines and columns as there are windows. */
static int is_sized(void)
{
    const struct bs_shape out = layer_output(shape);
    const size_t h = (shape.height + 2 - 3) / 1 + 1;
    const size_t w = (shape.width + 2 - 3) / 1 + 1;
    return out.batch == shape.batch && out.height == h && out.width == w;
}

/* Memory that is not part of the call has no codes, and the arena holds no zeros. */
static int check(int pattern, const struct buffers *b, struct bs_pool *pool)
{
    uint32_t state = 1;
    memset(b->input, 0xff, b->input_bytes);
    memset(b->arena, 0xa5, b->arena_bytes);
    for (uint32_t i = 0; i < (uint32_t)pixels() * IN; ++i)
        b->codes[i] = act_code(pattern, &state, i / IN + i % IN);
    memset(b->output, 0xa5, b->output_bytes);
    lay_out(b->codes, b->input);
    const int status = layer_run(shape, b->input, b->output, b->arena, b->arena_bytes, pool);
    return status == BS_OK && all_right(b);
}

/* Returns whether nothing was written. */
static int untouched(const struct buffers *b)
{
    const uint8_t *output = b->output;
    size_t same = 0;
    while (same < b->output_bytes && output[same] == 0xa5)
        ++same;
    return same == b->output_bytes;
}

/* A call without input, output or arena is refused, and nothing is written. */
static int refuses_null(const struct buffers *b)
{
    memset(b->input, 0, b->input_bytes);
    memset(b->output, 0xa5, b->output_bytes);
    const int input = layer_run(shape, NULL, b->output, b->arena, b->arena_bytes, NULL);
    const int output = layer_run(shape, b->input, NULL, b->arena, b->arena_bytes, NULL);
    const int arena = layer_run(shape, b->input, b->output, NULL, b->arena_bytes, NULL);
    return input == BS_NULL && output == BS_NULL && arena == BS_NULL && untouched(b);
}

/* A code beyond the last is refused, and nothing is written. */
static int refuses(const struct buffers *b)
{
    const size_t last = pixels() * IN - 1;
    memset(b->codes, 0, last);
    b->codes[last] = 4;
    memset(b->output, 0xa5, b->output_bytes);
    lay_out(b->codes, b->input);
    const int status = layer_run(shape, b->input, b->output, b->arena, b->arena_bytes, NULL);
    return status == BS_CODES && untouched(b);
}

static int check_all(const struct buffers *b)
{
    struct bs_pool *pool = bs_pool_create(3);
    int right = b->codes && b->input && b->output && b->arena && pool;
    for (int pattern = 0; right && pattern < PATTERNS; ++pattern)
        right =
            check(pattern, b, pattern % 2 ? NULL : pool) && (pattern || check(pattern, b, NULL));
    for (size_t i = 0; right && i < sizeof shapes / sizeof *shapes; ++i) {
        shape = shapes[i];
        right = is_sized() && (i == 0 || (check(0, b, pool) && check(2, b, NULL)));
    }
    shape = shapes[0];
    bs_pool_destroy(pool);
    right = right && refuses_null(b);
    return right && refuses(b);
}

int layer_selftest(void)
{
    const struct bs_shape out = layer_output(shape);
    const size_t codes = (size_t)BATCH * HEIGHT * WIDTH * (IN + 63);
    struct buffers b;
    b.input_bytes = codes;
    b.output_bytes = (size_t)BATCH * out.height * out.width * (OUT + 63) * 4;
    b.arena_bytes = layer_arena_bytes(shape, 3);
    b.codes = malloc(codes);
    b.input = malloc(codes);
    b.output = malloc(b.output_bytes);
    b.arena = malloc(b.arena_bytes);
    const int right = check_all(&b);
    free(b.codes);
    free(b.input);
    free(b.output);
    free(b.arena);
    return right ? 0 : 1;
}

#ifndef BITSYNTH_NO_MAIN
int main(void)
{
    const char *missing = layer_missing_feature();
    if (missing) {
        fputs("layer", stderr);
        fprintf(stderr, " needs a processor with %s; this one lacks it: ", missing);
        fputs("run it elsewhere, or emit it for another instruction set\n", stderr);
        return 77;
    }
    const int failed = layer_selftest();
    printf("%s: ", "layer");
    puts(failed ? "wrong, or no memory" : "right");
    return failed;
}
#endif
