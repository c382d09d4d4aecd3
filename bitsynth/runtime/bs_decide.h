/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Levels of sums of real numbers: of a sum in float32 where its error decides nothing, else of the
 * sum in pairs of float64. Not for callers. */
#ifndef BS_DECIDE_H
#define BS_DECIDE_H

#include "bs_real.h"

#include <string.h>

/* Pixels and channels whose sums are computed at a time; weights lie in blocks of channels. */
#ifdef __AVX512F__
#define BS_FLOATS 16
#else
#define BS_FLOATS 8
#endif
enum { BS_PIXELS = 6, BS_BLOCK = 16, BS_CHANNELS = 2 * BS_FLOATS };
#define BS_EACH_PIXEL(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)

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

typedef float bs_floats __attribute__((vector_size(4 * BS_FLOATS)));

/* Products may be fused with the additions behind them: one rounding less, and margins hold for
 * both. */
#ifdef __clang__
#define BS_MAY_FUSE
#else
#define BS_MAY_FUSE __attribute__((optimize("fp-contract=fast")))
#endif

/* For each pixel and BS_CHANNELS channels the sum, over input channels and taps in this order, of
 * weights[channel][tap] * at[pixel][channel * plane + taps[tap]], into sums[pixel]. The second half
 * of the channels has its weights `apart` behind the first. */
BS_MAY_FUSE static inline void bs_float_sums(
    const float *restrict weights,
    size_t apart,
    const float *const *at,
    size_t channels,
    size_t plane,
    const uint32_t *restrict taps,
    size_t tap_count,
    float *restrict sums)
{
#ifdef __clang__
#pragma clang fp contract(fast)
#endif
#define BS_BEGIN(i) \
    bs_floats low##i = {0}, high##i = {0}; \
    const float *at##i = at[i];
#define BS_ADD(i) \
    low##i += low * at##i[tap]; \
    high##i += high * at##i[tap];
#define BS_NEXT(i) at##i += plane;
#define BS_KEEP(i) \
    memcpy(sums + i * BS_CHANNELS, &low##i, sizeof low##i); \
    memcpy(sums + i * BS_CHANNELS + BS_FLOATS, &high##i, sizeof high##i);
    BS_EACH_PIXEL(BS_BEGIN)
    for (size_t c = 0; c < channels; ++c) {
        for (size_t t = 0; t < tap_count; ++t, weights += BS_BLOCK) {
            const size_t tap = taps[t];
            bs_floats low, high;
            memcpy(&low, weights, sizeof low);
            memcpy(&high, weights + apart, sizeof high);
            BS_EACH_PIXEL(BS_ADD)
        }
        BS_EACH_PIXEL(BS_NEXT)
    }
    BS_EACH_PIXEL(BS_KEEP)
#undef BS_BEGIN
#undef BS_ADD
#undef BS_NEXT
#undef BS_KEEP
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

/* The level of a sum on its channel's line, and how far off: with s * slope + start, cut to low and
 * high, as `line` has each of these for all `places`, then the code of level 0 and the way codes
 * go. */
static inline float bs_line_level(const float *line, size_t places, float sum, float *off)
{
    const float magic = 12582912.0f;
    float t = sum * line[0] + line[places];
    t = t > line[2 * places] ? t : line[2 * places];
    t = t < line[3 * places] ? t : line[3 * places];
    const float level = (t + magic) - magic, rest = t - level;
    *off = rest < 0 ? -rest : rest;
    return level;
}

typedef int32_t bs_wholes __attribute__((vector_size(4 * BS_FLOATS)));

/* The lanes of a where `is` has all bits, the lanes of b where it has none. */
#define BS_CHOSEN(is, a, b) (bs_floats)(((bs_wholes)(a) & (is)) | ((bs_wholes)(b) & ~(is)))

/* Codes of BS_FLOATS channels of BS_PIXELS pixels, in the last bits of `whole`; lanes of all bits
 * where all were decided. As bs_line_level has them, in whole vectors: sums with 1.5 * 2**23 have
 * whole numbers in their last bits, and -x is ~x + 1. */
static inline void bs_decide_vector(
    const float *restrict lines,
    size_t places,
    const float *restrict most,
    const float *restrict sums,
    int32_t *restrict whole,
    int32_t *restrict decided)
{
    const float magic = 12582912.0f;
    bs_floats slope, start, low, high, base, way, near;
    memcpy(&slope, lines, sizeof slope);
    memcpy(&start, lines + places, sizeof start);
    memcpy(&low, lines + 2 * places, sizeof low);
    memcpy(&high, lines + 3 * places, sizeof high);
    memcpy(&base, lines + 4 * places, sizeof base);
    memcpy(&way, lines + 5 * places, sizeof way);
    memcpy(&near, most, sizeof near);
    const bs_wholes falls = way < 0, first = (bs_wholes)(base + magic) - falls;
    bs_wholes all = ~(bs_wholes){0};
    for (size_t p = 0; p < BS_PIXELS; ++p, sums += BS_CHANNELS, whole += BS_CHANNELS) {
        bs_floats t;
        memcpy(&t, sums, sizeof t);
        t = t * slope + start;
        t = BS_CHOSEN(t > low, t, low);
        t = BS_CHOSEN(t < high, t, high);
        const bs_floats moved = t + magic, rest = t - (moved - magic);
        all &= (bs_floats)((bs_wholes)rest & INT32_MAX) <= near;
        const bs_wholes code = ((bs_wholes)moved ^ falls) + first;
        memcpy(whole, &code, sizeof code);
    }
    memcpy(decided, &all, sizeof all);
}

/* Codes of sums of BS_PIXELS pixels; whether all were decided, being no more than `most` off. */
static inline int bs_decide(
    const float *restrict lines,
    size_t places,
    const float *restrict most,
    const float *restrict sums,
    uint8_t *restrict codes)
{
    int32_t whole[BS_PIXELS * BS_CHANNELS], decided[BS_CHANNELS], open_ones = 0;
    for (size_t i = 0; i < BS_CHANNELS; i += BS_FLOATS)
        bs_decide_vector(lines + i, places, most + i, sums + i, whole + i, decided + i);
    for (size_t i = 0; i < BS_PIXELS * BS_CHANNELS; ++i)
        codes[i] = (uint8_t)whole[i];
    for (size_t i = 0; i < BS_CHANNELS; ++i)
        open_ones |= ~decided[i];
    return open_ones == 0;
}

/* Which of these sums are not decided. */
static inline void bs_undecided(
    const float *restrict lines,
    size_t places,
    const float *restrict most,
    const float *restrict sums,
    uint8_t *restrict open_ones)
{
    for (size_t p = 0; p < BS_PIXELS; ++p, sums += BS_CHANNELS, open_ones += BS_CHANNELS)
        for (size_t i = 0; i < BS_CHANNELS; ++i) {
            float off;
            bs_line_level(lines + i, places, sums[i], &off);
            open_ones[i] = !(off <= most[i]);
        }
}

#endif
