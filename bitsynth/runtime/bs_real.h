/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Real numbers in float64, and the floats of files: the same bits on every host. Not for callers.
 * Every operation is rounded once. */
#ifndef BS_REAL_H
#define BS_REAL_H

#include "bs_exact.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bits. */

static inline double bs_double_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t bs_bits_of_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float bs_float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bs_bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Rounding to whole numbers. Below 2**52 the sum with it has no bits for a fraction. */

static inline double bs_size(double x)
{
    return bs_double_of_bits(bs_bits_of_double(x) & INT64_MAX);
}

static inline double bs_rint(double x)
{
    const double most = x < 0 ? -0x1p52 : 0x1p52, near = (x + most) - most;
    return bs_size(x) < 0x1p52 ? near : x;
}

static inline double bs_floor(double x)
{
    const double near = bs_rint(x);
    return near - (near > x ? 1.0 : 0.0);
}

static inline float bs_size_f(float x)
{
    return bs_float_of_bits(bs_bits_of_float(x) & INT32_MAX);
}

static inline float bs_rint_f(float x)
{
    const float most = x < 0 ? -0x1p23f : 0x1p23f, near = (x + most) - most;
    return bs_size_f(x) < 0x1p23f ? near : x;
}

static inline float bs_floor_f(float x)
{
    const float near = bs_rint_f(x);
    return near - (near > x ? 1.0f : 0.0f);
}

/* Integers of whole numbers; 0 of what is not a number, the nearest of what is beyond. */

static inline int32_t bs_whole32(double x)
{
    const double cut = x < -0x1p31 ? -0x1p31 : x > 0x1p31 - 1 ? 0x1p31 - 1 : x;
    return (int32_t)(cut == cut ? cut : 0);
}

/* Of a number of at most 2**24, or none. */
static inline int32_t bs_small_f(float x)
{
    return (int32_t)(x == x ? x : 0);
}

static inline int64_t bs_whole64(double x)
{
    const double cut = x < -0x1p62 ? -0x1p62 : x > 0x1p62 ? 0x1p62 : x;
    return (int64_t)(cut == cut ? cut : 0);
}

/* A whole number as it is after bs_whole64. */
static inline float bs_whole_f(float x)
{
    const float cut = x < -0x1p62f ? -0x1p62f : x > 0x1p62f ? 0x1p62f : x;
    return cut == cut ? cut : 0;
}

/* The greatest and the least of 16 numbers or more; what is not a number if one is none. The last
 * ones may be compared twice. */

#define BS_EXTREME(name, type, whole, above) \
    typedef type name##_numbers __attribute__((vector_size(32))); \
    static inline void name##_next(name##_numbers *most, const type *x) \
    { \
        typedef whole mask __attribute__((vector_size(32))); \
        name##_numbers next; \
        memcpy(&next, x, sizeof next); \
        const mask is = (next above * most) | (next != next); \
        *most = (name##_numbers)((is & (mask)next) | (~is & (mask) * most)); \
    } \
    static inline type name(const type *x, size_t count) \
    { \
        enum { LANES = 32 / sizeof(type) }; \
        name##_numbers most, other; \
        memcpy(&most, x, sizeof most); \
        other = most; \
        for (size_t i = LANES; i < count; i += 2 * LANES) { \
            const size_t last = count - 2 * LANES, at = i < last ? i : last; \
            name##_next(&most, x + at); \
            name##_next(&other, x + at + LANES); \
        } \
        type found = most[0]; \
        for (size_t j = 1; j < 2 * LANES; ++j) { \
            const type one = j < LANES ? most[j] : other[j - LANES]; \
            found = ((one above found) | (one != one)) ? one : found; \
        } \
        return found; \
    }

BS_EXTREME(bs_greatest, double, int64_t, >)
BS_EXTREME(bs_least, double, int64_t, <)
BS_EXTREME(bs_greatest_f, float, int32_t, >)
BS_EXTREME(bs_least_f, float, int32_t, <)

/* The quotient cut off toward 0; over 0 it is 0. */
static inline int64_t bs_quotient(int64_t a, int64_t b)
{
    return b ? a / b : 0;
}

/* What is left of a floor division by a positive number. */
static inline int64_t bs_modulo(int64_t a, int64_t b)
{
    return (a % b + b) % b;
}

/* A number, or 0 for what is infinite or none. */
static inline double bs_finite(double x)
{
    return x - x == 0 ? x : 0;
}

/* Errors of sums and products (Knuth; Dekker 1971): exact unless numbers are huge or tiny. */

static inline double bs_sum_error(double a, double b, double sum)
{
    const double back = sum - a;
    return (a - (sum - back)) + (b - back);
}

static inline double bs_product_error(double a, double b, double product)
{
#if defined(__FMA__) || defined(__AVX512F__) || defined(__aarch64__)
    return __builtin_fma(a, b, -product);
#else
    const double split_a = a * 134217729.0, split_b = b * 134217729.0;
    const double high_a = split_a - (split_a - a), high_b = split_b - (split_b - b);
    const double low_a = a - high_a, low_b = b - high_b;
    return ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b;
#endif
}

/* Whole numbers of a number and what is left of it, less than half a unit in its last place. */

static inline double bs_rint_pair(double x, double rest)
{
    const double near = bs_rint(x), off = x - near, other = near + (off < 0 ? -1.0 : 1.0);
    const double up = off < 0 ? near : other, down = off < 0 ? other : near;
    const double beyond = rest > 0 ? up : rest < 0 ? down : near;
    return bs_size(off) == 0.5 ? beyond : near;
}

static inline double bs_floor_pair(double x, double rest)
{
    const double below = bs_floor(x);
    return below - (((below == x) & (rest < 0)) ? 1.0 : 0.0);
}

/* The highest bit is set where a distance of 0 or more is below an error, and where the error is
 * above `most`, infinite or not a number. */
static inline uint64_t bs_undecided_bit(double distance, double error, double most)
{
    const uint64_t bits = bs_bits_of_double(error) & INT64_MAX;
    return (bs_bits_of_double(distance) - bits) | (bs_bits_of_double(most) - bits);
}

/* The middle of the bounds that float64 has for a number that differs from `near` by `rest`. */
static inline double bs_middle(double near, double rest)
{
    const double unit = bs_size(near) * 0x1p-52;
    const double low = near - (rest < 0 ? unit : 0), high = near + (rest > 0 ? unit : 0);
    return (low + high) / 2;
}

/* float16 and bfloat16: numbers are held in float, and lie in memory as bits. */

static inline float bs_half_value(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, size = bits & 0x7fff;
    const float tiny = (float)(int32_t)size * 0x1p-24f;
    const uint32_t wide = size < 0x7c00 ? (size << 13) + 0x38000000 : (size << 13) + 0x70000000;
    return bs_float_of_bits((size < 0x400 ? bs_bits_of_float(tiny) : wide) | sign);
}

static inline uint16_t bs_half_bits(float x)
{
    const uint32_t bits = bs_bits_of_float(x), size = bits & 0x7fffffff;
    const uint32_t normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
    const uint32_t tiny =
        (uint32_t)(int32_t)bs_rint_f(bs_float_of_bits(size < 0x38800000 ? size : 0) * 0x1p24f);
    const uint32_t huge = size > 0x7f800000 ? 0x7e00 : 0x7c00;
    const uint32_t made = size < 0x38800000 ? tiny : size < 0x477ff000 ? normal : huge;
    return (uint16_t)(made | (bits >> 16 & 0x8000));
}

/* The float toward 0 with its last bit set if anything was lost: rounded again, it is once. */
static inline float bs_odd_float(double x)
{
    const float near = (float)x;
    const double back = (double)near;
    const uint32_t bits = bs_bits_of_float(near);
    const uint32_t below = bs_size(back) > bs_size(x) ? bits - 1 : bits;
    return back == x || x != x ? near : bs_float_of_bits(below | 1);
}

static inline float bs_half(float x)
{
    return bs_half_value(bs_half_bits(x));
}

static inline float bs_half_of_double(double x)
{
    return bs_half(bs_odd_float(x));
}

static inline float bs_bfloat_value(uint16_t bits)
{
    return bs_float_of_bits((uint32_t)bits << 16);
}

static inline uint16_t bs_bfloat_bits(float x)
{
    const uint32_t bits = bs_bits_of_float(x);
    return (uint16_t)(x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0);
}

static inline float bs_bfloat(float x)
{
    return bs_bfloat_value(bs_bfloat_bits(x));
}

static inline float bs_bfloat_of_double(double x)
{
    return bs_bfloat((float)x);
}

#endif
