/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Internal to plain C of networks: sums of products, in float64 or modulo 2**32. */
#ifndef BS_PRODUCT_H
#define BS_PRODUCT_H

#include "bs_real.h"

/* For `ROWS` rows of weights and each pixel the sum, over channels and taps in this order, of
 * weights[channel][tap][row] * planes[channel][taps[tap] + pixel], into sums[row][pixel]. Pixels
 * are done LANES at a time: planes and sums have room for as many behind the last. Products in
 * float64 are rounded before they are added. Not inline: as fast, and compiled once. */
#define BS_PRODUCT(NAME, WEIGHT, PLANE, SUM, ROWS, LANES) \
    static __attribute__((noinline, unused)) void NAME( \
        const WEIGHT *restrict weights, \
        const PLANE *restrict planes, \
        size_t channels, \
        size_t plane, \
        const uint32_t *restrict taps, \
        size_t tap_count, \
        size_t pixels, \
        SUM *restrict sums, \
        size_t apart) \
    { \
        for (size_t p = 0; p < pixels; p += LANES) { \
            SUM sum[ROWS][LANES] = {{0}}; \
            const WEIGHT *w = weights; \
            for (size_t c = 0; c < channels; ++c) \
                for (size_t t = 0; t < tap_count; ++t, w += ROWS) { \
                    const PLANE *x = planes + c * plane + taps[t] + p; \
                    for (size_t r = 0; r < ROWS; ++r) \
                        for (size_t l = 0; l < LANES; ++l) \
                            sum[r][l] += (SUM)w[r] * (SUM)x[l]; \
                } \
            for (size_t r = 0; r < ROWS; ++r) \
                for (size_t l = 0; l < LANES; ++l) \
                    sums[r * apart + p + l] = sum[r][l]; \
        } \
    }

BS_PRODUCT(bs_products4_double_double, double, double, double, 4, 8)
BS_PRODUCT(bs_products1_double_double, double, double, double, 1, 32)
BS_PRODUCT(bs_products4_float_double, float, double, double, 4, 8)
BS_PRODUCT(bs_products1_float_double, float, double, double, 1, 32)
BS_PRODUCT(bs_products4_double_float, double, float, double, 4, 8)
BS_PRODUCT(bs_products1_double_float, double, float, double, 1, 32)
BS_PRODUCT(bs_products4_float_float, float, float, double, 4, 8)
BS_PRODUCT(bs_products1_float_float, float, float, double, 1, 32)
BS_PRODUCT(bs_products4_int32_int32, uint32_t, uint32_t, uint32_t, 4, 16)
BS_PRODUCT(bs_products1_int32_int32, uint32_t, uint32_t, uint32_t, 1, 64)

#endif
