/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
#include "layer_names.h"
/* Self-test of layer: random, zero, greatest and alternating codes against a plain convolution,
 * with one thread and with three. Exit status 0 when every result is right, 1 when one is not or
 * memory is short, 77 if the processor lacks a feature. */
#include "layer.h"

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

static const int32_t thresholds[12] = {-20, -20, -20, -20, 0, 0, 0, 0, 20, 20, 20, 20};

static const struct bs_shape shape = {BATCH, HEIGHT, WIDTH};

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

/* Returns one accumulator of a plain convolution of codes [BATCH][HEIGHT][WIDTH][IN]. */
static int32_t sum_at(const uint8_t *codes, size_t image, size_t oy, size_t ox, size_t channel)
{
    int32_t sum = 0;
    for (long ky = 0; ky < KH; ++ky)
        for (long kx = 0; kx < KW; ++kx) {
            const long y = (long)oy * 1 + ky * 1 - 1;
            const long x = (long)ox * 1 + kx * 1 - 1;
            if (y < 0 || y >= HEIGHT || x < 0 || x >= WIDTH)
                continue;
            const size_t pixel = (image * HEIGHT + (size_t)y) * WIDTH + (size_t)x;
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
    memcpy(input, codes, (size_t)BATCH * HEIGHT * WIDTH * IN);
}

/* Returns the code of an accumulator: the number of thresholds below it. */
static int64_t wanted(int32_t sum, size_t channel)
{
    int64_t count = 0;
    for (size_t t = 0; t < 3; ++t) {
        const int32_t level = thresholds[t * OUT + channel];
        count += sum > level;
    }
    return count;
}

/* Returns whether the result at a place of the output is that of `sum`. */
static int is_right(const void *output, size_t pixel, size_t pixels, size_t channel, int32_t sum)
{
    const size_t at = pixel * OUT + channel;
    (void)pixels;
    const int64_t want = wanted(sum, channel);
    return ((const uint8_t *)output)[at] == want;
}

struct buffers {
    uint8_t *codes;
    void *input, *output, *arena;
    size_t output_bytes, arena_bytes;
};

static int all_right(const struct buffers *b)
{
    const struct bs_shape out = layer_output(shape);
    const size_t pixels = out.height * out.width;
    for (size_t pixel = 0; pixel < BATCH * pixels; ++pixel)
        for (size_t c = 0; c < OUT; ++c) {
            const size_t image = pixel / pixels, y = pixel % pixels / out.width;
            const int32_t sum = sum_at(b->codes, image, y, pixel % out.width, c);
            if (!is_right(b->output, pixel, pixels, c, sum))
                return 0;
        }
    return 1;
}

static int check(int pattern, const struct buffers *b, struct bs_pool *pool)
{
    uint32_t state = 1;
    for (uint32_t i = 0; i < (uint32_t)BATCH * HEIGHT * WIDTH * IN; ++i)
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
    memset(b->output, 0xa5, b->output_bytes);
    const int input = layer_run(shape, NULL, b->output, b->arena, b->arena_bytes, NULL);
    const int output = layer_run(shape, b->input, NULL, b->arena, b->arena_bytes, NULL);
    const int arena = layer_run(shape, b->input, b->output, NULL, b->arena_bytes, NULL);
    return input == BS_NULL && output == BS_NULL && arena == BS_NULL && untouched(b);
}

/* A code beyond the last is refused, and nothing is written. */
static int refuses(const struct buffers *b)
{
    const size_t last = (size_t)BATCH * HEIGHT * WIDTH * IN - 1;
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
    bs_pool_destroy(pool);
    right = right && refuses_null(b);
    return right && refuses(b);
}

int layer_selftest(void)
{
    const struct bs_shape out = layer_output(shape);
    const size_t codes = (size_t)BATCH * HEIGHT * WIDTH * (IN + 63);
    struct buffers b;
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
