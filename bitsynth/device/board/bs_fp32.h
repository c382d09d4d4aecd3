/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* A float convolution, what bitsynth's layers are compared with on a board: written for bitsynth, no library's.
 * Channels last, one image, one group. Padding is copied around the image, weights are packed beforehand, and a tile
 * of pixels and channels stays in registers; vectors are GCC's, so that each processor gets its own. */
#ifndef BS_FP32_H
#define BS_FP32_H

#include <stddef.h>
#include <stdint.h>

#include "bs_pool.h"

struct bs_fp32 {
    int64_t height, width, in_channels, out_channels, kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    int64_t pad_top, pad_left, pad_bottom, pad_right;
};

/* Bytes of memory for a convolution, its operands included. */
size_t bs_fp32_bytes(const struct bs_fp32 *s);

/* Fill input and weights with small whole numbers; `memory` is aligned to 64 bytes. */
void bs_fp32_prepare(const struct bs_fp32 *s, void *memory);

void bs_fp32_run(const struct bs_fp32 *s, void *memory, struct bs_pool *pool);

/* Whether results here and there are what a plain convolution gives. */
int bs_fp32_right(const struct bs_fp32 *s, const void *memory);

#endif
