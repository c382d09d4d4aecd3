/* Levels of sums of real numbers: of a sum in float32 where its error decides nothing, else of the
 * sum in pairs of float64. Not for callers. */
#ifndef BS_DECIDE_H
#define BS_DECIDE_H

#include "bs_real.h"

#include <string.h>

/* A channel: a sum s has about the level s * slope + start, cut to low and high, and that the code
 * first + sign * level. */
struct bs_channel {
    float slope, start, low, high;
    int32_t first, sign;
};

/* The size of the greatest of `count` numbers; no number is greater than all. */
static inline float bs_greatest_size(const float *x, size_t count)
{
    uint32_t most = 0;
    for (size_t i = 0; i < count; ++i) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float made;
    memcpy(&made, &most, sizeof made);
    return made;
}

typedef float bs_floats __attribute__((vector_size(64)));

/* For 4 rows of weights and 64 bytes of pixels at a time the sums, over channels and taps in this
 * order, of weights[channel][tap][row] * planes[channel][taps[tap] + pixel], into
 * sums[row][pixel]. */
static inline void bs_float_sums(
    const float *restrict weights,
    const float *restrict planes,
    size_t channels,
    size_t plane,
    const uint32_t *restrict taps,
    size_t tap_count,
    size_t pixels,
    float *restrict sums)
{
    for (size_t p = 0; p < pixels; p += sizeof(bs_floats) / sizeof(float)) {
        bs_floats sum[4] = {{0}};
        const float *w = weights;
        for (size_t c = 0; c < channels; ++c)
            for (size_t t = 0; t < tap_count; ++t, w += 4) {
                bs_floats x;
                memcpy(&x, planes + c * plane + taps[t] + p, sizeof x);
                sum[0] += w[0] * x;
                sum[1] += w[1] * x;
                sum[2] += w[2] * x;
                sum[3] += w[3] * x;
            }
        for (size_t r = 0; r < 4; ++r)
            memcpy(sums + r * pixels + p, &sum[r], sizeof sum[r]);
    }
}

/* How many of `levels` ascending thresholds a sum of exact products has reached. */
static inline int32_t bs_exact_level(
    const float *weights,
    size_t apart,
    const float *planes,
    size_t channels,
    size_t plane,
    const uint32_t *taps,
    size_t tap_count,
    const double *thresholds,
    size_t levels)
{
    double high = 0, low = 0;
    for (size_t c = 0; c < channels; ++c)
        for (size_t t = 0; t < tap_count; ++t, weights += apart) {
            const double term = (double)*weights * (double)planes[c * plane + taps[t]];
            const double sum = high + term;
            low += bs_sum_error(high, term, sum);
            high = sum;
        }
    const double sum = high + low, rest = low - (sum - high);
    int32_t level = 0;
    for (size_t k = 0; k < levels; ++k)
        level += sum > thresholds[k] || (sum == thresholds[k] && rest >= 0);
    return level;
}

/* Codes of `count` sums of a channel; whether all were decided, being no nearer to a half than the
 * margin. */
static inline int bs_decide(
    const struct bs_channel *channel,
    float margin,
    const float *restrict sums,
    size_t count,
    uint8_t *restrict codes)
{
    const struct bs_channel c = *channel;
    const float magic = 12582912.0f, most = 0.5f - margin;
    int32_t open_ones = 0;
    for (size_t i = 0; i < count; ++i) {
        float t = sums[i] * c.slope + c.start;
        t = t > c.low ? t : c.low;
        t = t < c.high ? t : c.high;
        const float level = (t + magic) - magic, off = t - level;
        open_ones |= !((off < 0 ? -off : off) <= most);
        codes[i] = (uint8_t)(c.first + c.sign * (int32_t)level);
    }
    return open_ones == 0;
}

#endif
