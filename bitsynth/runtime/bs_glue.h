/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Elementwise and pooling operators between convolutions, on codes: pooling, addition,
 * concatenation, padding, resizing, tables, and conversions from and to floats. Nothing is
 * allocated and no state is kept. */
#ifndef BS_GLUE_H
#define BS_GLUE_H

#include "bs_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BS_GLUE_INPUTS = 4 };

/* BS_MAX_POOL: the greatest code of a window. BS_MEAN_POOL: of a window of n pixels and sum s,
 * (s * factor + n * summand) / (n * divisor), or with whole_sums / divisor alone, rounded, plus
 * zero_point, clamped; n does not count padding. BS_PAD: `fill` around the image. BS_RESIZE: the
 * nearest pixel. BS_BLOCKS: blocks of channels become blocks of pixels. BS_LOOKUP: a table's entry
 * for each code, a code or a float. BS_CONCAT: channels of all inputs, each through its table.
 * BS_ADD: a program of both codes, or a table's entry for each pair.
 * BS_QUANTIZE: x / scale to codes. BS_DEQUANTIZE: (value - zero_point) * scale. */
enum bs_glue_op {
    BS_MAX_POOL,
    BS_MEAN_POOL,
    BS_PAD,
    BS_RESIZE,
    BS_BLOCKS,
    BS_LOOKUP,
    BS_CONCAT,
    BS_ADD,
    BS_QUANTIZE,
    BS_DEQUANTIZE
};

/* Elementwise programs, proved ones of the instruction set or plain C: the greater of two bytes; a
 * table's entry for a code (one table or one a channel), for a sum, or for a pair of codes; a
 * shifted weighted sum of two codes; a sum times a reciprocal, or divided; floats to codes and
 * back.
 */
enum bs_elements {
    BS_GREATEST,
    BS_LOOKUP16,
    BS_LOOKUP32,
    BS_LOOKUP64,
    BS_LOOKUP128,
    BS_LOOKUP256,
    BS_LOOKUP_CHANNELS,
    BS_LOOKUP_FLOATS,
    BS_LOOKUP_SUMS,
    BS_PAIRS16,
    BS_PAIRS64,
    BS_PAIRS256,
    BS_PAIRS65536,
    BS_WEIGHTED16,
    BS_WEIGHTED16_EVEN,
    BS_WEIGHTED32,
    BS_WEIGHTED32_EVEN,
    BS_MEAN,
    BS_MEAN_EVEN,
    BS_SCALED_MEAN,
    BS_QUANTIZE_FLOATS,
    BS_SIGNS,
    BS_DEQUANTIZE_CODES
};

/* How a quotient is rounded: half to even, half up, or down. */
enum bs_rounding { BS_TO_EVEN, BS_HALF_UP, BS_DOWN };

/* An operator. Its inputs have one layout, channels last or packed. Codes of input i are 0 ..
 * last[i]; bits[i] is 0 for floats. */
struct bs_glue {
    enum bs_glue_op op;
    size_t inputs, channels[BS_GLUE_INPUTS], bits[BS_GLUE_INPUTS], last[BS_GLUE_INPUTS];
    enum bs_layout in_layout, out_layout;
    size_t out_channels, out_bits, out_last;
    /* 1: packed words are moved or compared without unpacking; 0: lines of codes are. */
    size_t words;
    size_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    size_t pad_top, pad_left, pad_bottom, pad_right;
    size_t whole_image, most_pixels; /* 1: the window is the image; the limit of its pixels */
    enum bs_rounding rounding;
    /* BS_RESIZE: output pixels, or 0 for scale_ times the input's; centers 1: nearest center. */
    size_t size_h, size_w, scale_h, scale_w, centers;
    /* BS_BLOCKS: pixels a side of a block; bytes from a channel, and from a block's pixel, to the
     * next. */
    size_t block, channel_apart, pixel_apart;
    enum bs_elements program; /* BS_GREATEST for none */
    int64_t factor, summand, divisor;
    size_t whole_sums; /* 1: the divisor is not multiplied by the pixels */
    size_t out_first;  /* the least code of a mean */
    int64_t zero_point;
    size_t period;          /* of the scales of elements: whole pixels and whole units */
    size_t table_count;     /* 1 for all channels, or one a channel */
    const uint8_t *tables;  /* [table_count or inputs][256]; of pairs, or of sums of a whole
                             * window; or NULL. Those of codes and pairs go on to 256 entries, of
                             * 4 bytes if they are floats */
    const uint8_t *numbers; /* constants of the program; NULL if these are tables */
    const uint8_t *fill;    /* a pixel as it lies in memory */
    const float *scale;     /* [out_channels] */
};

/* Returns batch, height and width of the output; 0 if there is none. */
struct bs_shape bs_glue_output(const struct bs_glue *glue, struct bs_shape in);

/* Returns the bytes of scratch memory that a call takes; SIZE_MAX if no object can be that large,
 * or as large as inputs or output. */
size_t bs_glue_arena_bytes(const struct bs_glue *glue, struct bs_shape in, size_t threads);

/* Runs the operator on inputs of one shape. `arena` and words must be aligned to 8 bytes; 64 is
 * faster for the arena. Returns BS_OK; BS_EMPTY if the output has no element; BS_ARENA if the arena
 * is too small; BS_NULL; BS_CODES. The output is written by BS_OK only. */
int bs_glue_run(
    const struct bs_glue *glue,
    struct bs_shape in,
    const void *const *inputs,
    void *output,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
