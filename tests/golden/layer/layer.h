/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* layer: a layer of 2-bit unsigned activations and 1-bit bipolar weights.
 *
 *   geometry  8 -> 4 channels, window 3 x 3,
 *             stride 1 x 1, dilation 1 x 1, groups 1
 *   padding   1 1 1 1 (top, left, bottom, right)
 *   chosen    for avx2 on zen5 */
#ifndef LAYER_H
#define LAYER_H

#include "bs_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    layer_in_channels = 8,
    layer_out_channels = 4,
    layer_act_bits = 2,
    /* Bits of a result's code; 0 if results are not codes. */
    layer_out_bits = 2
};

/* The first feature, as Linux names it, that the layer needs and this processor or its system
 * lacks; NULL if it has them all. If one is missing, use neither the layer nor a pool for it. */
const char *layer_missing_feature(void);

/* Returns height and width of the output; 0 if there is none. */
struct bs_shape layer_output(struct bs_shape in);

/* Returns the bytes of scratch memory of a call with a pool of `threads` threads, 1 without a pool;
 * SIZE_MAX if no object can be that large, or as large as input or output. */
size_t layer_arena_bytes(struct bs_shape in, size_t threads);

/* Run the layer. `arena` must be aligned to 8 bytes, better to 64; `pool` comes from
 * bs_pool_create, or is NULL. Returns BS_OK, BS_EMPTY if the output has no element, BS_ARENA if
 * the arena is too small, BS_NULL if input, output or arena are NULL, BS_CODES if a code is not
 * allowed: then nothing is written.
 *
 *   input     NHWC: codes, a byte each; values are code, codes up to 3 are allowed
 *   output    NHWC: codes, a byte each */
int layer_run(
    struct bs_shape in,
    const void *input,
    void *output,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool);

/* Compares the layer with a plain convolution on random codes: 0 if all is right. */
int layer_selftest(void);

#ifdef __cplusplus
}
#endif

#endif
