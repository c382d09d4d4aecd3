/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
#include "layer_names.h"
/* layer: packed weights, the constants of its channels, and calls of the runtime.
 *
 * Accumulators of a channel start from `start`: the bias and the terms of its weights, sums over
 * their codes. `affine` has what the offsets of the encodings contribute, which is added to the
 * finished accumulators. bs_layer.h explains every field. */
#include "layer.h"
#include "bs_mm_a2u_w1b_s32_avx2_4x8x32_layer.h"
#include "bs_mm_a2u_w1b_s32_avx2_4x8x32_program.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "packed weights are for little-endian processors"
#endif

/* clang-format off */
static const _Alignas(64) uint64_t weights[72] = {
    0x0101010000010001, 0x0001010100000100, 0x0000000000000000, 0x0000000000000000,
    0x0100010101000001, 0x0001000101010000, 0x0000000000000000, 0x0000000000000000,
    0x0000010001010100, 0x0100000100010101, 0x0000000000000000, 0x0000000000000000,
    0x0101000001000101, 0x0101010000010001, 0x0000000000000000, 0x0000000000000000,
    0x0001010100000100, 0x0100010101000001, 0x0000000000000000, 0x0000000000000000,
    0x0001000101010000, 0x0000010001010100, 0x0000000000000000, 0x0000000000000000,
    0x0100000100010101, 0x0101000001000101, 0x0000000000000000, 0x0000000000000000,
    0x0101010000010001, 0x0001010100000100, 0x0000000000000000, 0x0000000000000000,
    0x0100010101000001, 0x0001000101010000, 0x0000000000000000, 0x0000000000000000,
    0x0000010001010100, 0x0100000100010101, 0x0000000000000000, 0x0000000000000000,
    0x0101000001000101, 0x0101010000010001, 0x0000000000000000, 0x0000000000000000,
    0x0001010100000100, 0x0100010101000001, 0x0000000000000000, 0x0000000000000000,
    0x0001000101010000, 0x0000010001010100, 0x0000000000000000, 0x0000000000000000,
    0x0100000100010101, 0x0101000001000101, 0x0000000000000000, 0x0000000000000000,
    0x0101010000010001, 0x0001010100000100, 0x0000000000000000, 0x0000000000000000,
    0x0100010101000001, 0x0001000101010000, 0x0000000000000000, 0x0000000000000000,
    0x0000010001010100, 0x0100000100010101, 0x0000000000000000, 0x0000000000000000,
    0x0101000001000101, 0x0101010000010001, 0x0000000000000000, 0x0000000000000000,
};
/* clang-format on */

static const _Alignas(64) int32_t start[8] = {123, 123, 126, 123, 0, 0, 0, 0};

/* clang-format off */
static const _Alignas(64) uint64_t unit_constants[24] = {
    0xffecffecffecffec, 0xffecffecffecffec, 0xffecffecffecffec, 0xffecffecffecffec,
    0xffecffecffecffec, 0xffecffecffecffec, 0xffecffecffecffec, 0xffecffecffecffec,
    0x0000000000000000, 0x0000000000000000, 0x0000000000000000, 0x0000000000000000,
    0x0000000000000000, 0x0000000000000000, 0x0000000000000000, 0x0000000000000000,
    0x0014001400140014, 0x0014001400140014, 0x0014001400140014, 0x0014001400140014,
    0x0014001400140014, 0x0014001400140014, 0x0014001400140014, 0x0014001400140014,
};
/* clang-format on */

static const struct bs_layer layer = {
    .kernel = &bs_mm_a2u_w1b_s32_avx2_4x8x32_layer_kernel,
    .program = &bs_mm_a2u_w1b_s32_avx2_4x8x32_program,
    .groups = 1,
    .in_channels = 8,
    .out_channels = 4,
    .out_places = 8,
    .kernel_h = 3,
    .kernel_w = 3,
    .stride_h = 1,
    .stride_w = 1,
    .dilation_h = 1,
    .dilation_w = 1,
    .pad_top = 1,
    .pad_left = 1,
    .pad_bottom = 1,
    .pad_right = 1,
    .act_bits = 2,
    .pad_code = 0,
    .row_shift = 0,
    .row_factor = 0,
    .factor = 1,
    .shift = 0,
    .tap_parts = 0,
    .out_bits = 2,
    .in_layout = BS_NHWC,
    .out_layout = BS_NHWC,
    .joined_pixels = 8,
    .conv_algorithm = BS_DIRECT,
    .joined_taps = 0,
    .columns_first = 0,
    .block_rows = 0,
    .band_rows = 0,
    .weights = (const uint8_t *)weights,
    .start = start,
    .unit_constants = (const uint8_t *)unit_constants,
};

const char *layer_missing_feature(void)
{
    return bs_mm_a2u_w1b_s32_avx2_4x8x32_missing_feature();
}

struct bs_shape layer_output(struct bs_shape in)
{
    return bs_layer_output(&layer, in);
}

size_t layer_arena_bytes(struct bs_shape in, size_t threads)
{
    return bs_layer_arena_bytes(&layer, in, threads);
}

int layer_run(
    struct bs_shape in,
    const void *input,
    void *output,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool)
{
    const struct bs_tensors tensors = {input, NULL, output, NULL};
    const size_t bytes = bs_layer_arena_bytes(&layer, in, pool ? pool->threads : 1);
    const int can_run = bytes > 0 && bytes <= arena_bytes && bytes < SIZE_MAX;
    if (can_run && input && !bs_layer_holds(&layer, 4, in, input, pool))
        return BS_CODES;
    return bs_layer_run(&layer, in, &tensors, arena, arena_bytes, pool);
}
