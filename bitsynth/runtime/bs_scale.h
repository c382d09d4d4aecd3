/* scale * sum + bias in float. Not for callers. */
#ifndef BS_SCALE_H
#define BS_SCALE_H

#include "bs_exact.h"

#include <stddef.h>
#include <stdint.h>

/* Floats a register holds; vectors of 32-bit Arm take denormal numbers for 0. */
#if defined(__AVX512F__)
#define BS_FLOATS 16
#elif defined(__AVX__)
#define BS_FLOATS 8
#elif defined(__x86_64__) || defined(__aarch64__)
#define BS_FLOATS 4
#endif

#ifdef BS_FLOATS
typedef float bs_floats __attribute__((vector_size(4 * BS_FLOATS)));
typedef float bs_floats_at __attribute__((vector_size(4 * BS_FLOATS), aligned(4), may_alias));
typedef int32_t bs_sums_at __attribute__((vector_size(4 * BS_FLOATS), aligned(4), may_alias));

static inline void bs_scale_register(
    const int32_t *sums, const float *scale, const float *bias, float *to)
{
    bs_floats scaled = __builtin_convertvector(*(const bs_sums_at *)sums, bs_floats)
        * *(const bs_floats_at *)scale;
    BS_ROUNDED(scaled);
    *(bs_floats_at *)to = scaled + *(const bs_floats_at *)bias;
}
#endif

/* `count` neighbouring channels; `to` does not overlap what is read. */
static inline void bs_scale(
    size_t count, const int32_t *sums, const float *scale, const float *bias, float *to)
{
    size_t j = 0;
#ifdef BS_FLOATS
    for (; j + BS_FLOATS <= count; j += BS_FLOATS)
        bs_scale_register(sums + j, scale + j, bias + j, to + j);
    if (j < count && count > BS_FLOATS) { /* the last register's end once more */
        j = count - BS_FLOATS;
        bs_scale_register(sums + j, scale + j, bias + j, to + j);
        return;
    }
#endif
    for (; j < count; ++j) {
        float scaled = (float)sums[j] * scale[j];
        BS_ROUNDED(scaled);
        to[j] = scaled + bias[j];
    }
}

#endif
