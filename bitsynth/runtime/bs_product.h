/* Sums of products for plain C: weights times planes, in float64 or modulo 2**32. Not for callers.
 */
#ifndef BS_PRODUCT_H
#define BS_PRODUCT_H

#include "bs_real.h"

/* For `ROWS` rows of weights and each pixel the sum, over channels and taps in this order, of
 * weights[channel][tap][row] * planes[channel][taps[tap] + pixel], into sums[row][pixel]. Pixels
 * are done LANES at a time: planes and sums have room for as many behind the last. Products in
 * float64 are rounded before they are added. */
#define BS_PRODUCT(NAME, TYPE, ROWS, LANES) \
    static inline void NAME( \
        const TYPE *restrict weights, \
        const TYPE *restrict planes, \
        size_t channels, \
        size_t plane, \
        const uint32_t *restrict taps, \
        size_t tap_count, \
        size_t pixels, \
        TYPE *restrict sums, \
        size_t apart) \
    { \
        for (size_t p = 0; p < pixels; p += LANES) { \
            TYPE sum[ROWS][LANES] = {{0}}; \
            const TYPE *w = weights; \
            for (size_t c = 0; c < channels; ++c) \
                for (size_t t = 0; t < tap_count; ++t, w += ROWS) { \
                    const TYPE *x = planes + c * plane + taps[t] + p; \
                    for (size_t r = 0; r < ROWS; ++r) \
                        for (size_t l = 0; l < LANES; ++l) \
                            sum[r][l] += w[r] * x[l]; \
                } \
            for (size_t r = 0; r < ROWS; ++r) \
                for (size_t l = 0; l < LANES; ++l) \
                    sums[r * apart + p + l] = sum[r][l]; \
        } \
    }

BS_PRODUCT(bs_products4_double, double, 4, 8)
BS_PRODUCT(bs_products1_double, double, 1, 32)
BS_PRODUCT(bs_products4_uint32, uint32_t, 4, 16)
BS_PRODUCT(bs_products1_uint32, uint32_t, 1, 64)

#endif
