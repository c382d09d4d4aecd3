/* Real numbers in float64, and the floats of files: the same bits on every host. Not for callers.
 * Every operation is rounded once, and functions are made of these: none of libm's is called. */
#ifndef BS_REAL_H
#define BS_REAL_H

#include "bs_exact.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What follows is compiled without fused multiplications and additions, but for those written; and
 * for vectors, as nobody reads the flags of exceptions. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-trapping-math")
#endif

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

static inline int64_t bs_whole64(double x)
{
    const double cut = x < -0x1p62 ? -0x1p62 : x > 0x1p62 ? 0x1p62 : x;
    return (int64_t)(cut == cut ? cut : 0);
}

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

/* Errors of sums and products (Knuth; Dekker 1971): exact unless numbers are huge or tiny. */

static inline double bs_sum_error(double a, double b, double sum)
{
    const double back = sum - a;
    return (a - (sum - back)) + (b - back);
}

static inline double bs_product_error(double a, double b, double product)
{
#if defined(__FMA__) || defined(__aarch64__)
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

/* The middle of the bounds that float64 gives a number that lies beside `near`, off by `rest`. */
static inline double bs_middle(double near, double rest)
{
    const double unit = bs_size(near) * 0x1p-52;
    const double low = near - (rest < 0 ? unit : 0), high = near + (rest > 0 ? unit : 0);
    return (low + high) / 2;
}

/* Functions, off by less than two units in the last place. */

/* The number that is divided by 2**52 is the exponent's bits. */
static inline double bs_power_of_two(double k)
{
    return bs_double_of_bits((uint64_t)(int64_t)(int32_t)(k + 1023) << 52);
}

/* e**r - 1 for |r| <= ln 2 / 2: its series. */
static inline double bs_expm1_near(double r)
{
    double p = 0x1.6124613a86d09p-33;
    p = p * r + 0x1.1eed8eff8d898p-29;
    p = p * r + 0x1.ae64567f544e4p-26;
    p = p * r + 0x1.27e4fb7789f5cp-22;
    p = p * r + 0x1.71de3a556c734p-19;
    p = p * r + 0x1.a01a01a01a01ap-16;
    p = p * r + 0x1.a01a01a01a01ap-13;
    p = p * r + 0x1.6c16c16c16c17p-10;
    p = p * r + 0x1.1111111111111p-7;
    p = p * r + 0x1.5555555555555p-5;
    p = p * r + 0x1.5555555555555p-3;
    p = p * r + 0.5;
    return p * r * r + r;
}

/* The k with |x - k ln 2| <= ln 2 / 2, and what is left. */
static inline double bs_reduced(double x, double *k)
{
    *k = bs_rint(x * 0x1.71547652b82fep0);
    return (x - *k * 0x1.62e42feep-1) - *k * 0x1.a39ef35793c76p-33;
}

static inline double bs_exp(double x)
{
    double k;
    const double cut = x < -750 ? -750 : x > 710 ? 710 : x;
    const double p = bs_expm1_near(bs_reduced(cut, &k)), half = bs_floor(k * 0.5);
    return cut == cut ? (1 + p) * bs_power_of_two(half) * bs_power_of_two(k - half) : x;
}

/* The greatest number below 1 instead of 1, which no sigmoid is: what rounds down must see that. */
static inline double bs_below_one(double x)
{
    return x == 1 ? 0x1.fffffffffffffp-1 : x;
}

/* Above 0, too: what rounds up must see that. */
static inline double bs_sigmoid(double x)
{
    const double small = bs_exp(-bs_size(x)),
                 made = bs_below_one((x < 0 ? small : 1) / (1 + small));
    return made < 0x1p-1022 ? 0x1p-1022 : made;
}

/* By e**2x - 1, which keeps the digits of small numbers. */
static inline double bs_tanh(double x)
{
    double k;
    const double size = bs_size(x), cut = size > 20 ? 20 : size;
    const double p = bs_expm1_near(bs_reduced(2 * cut, &k)), two = bs_power_of_two(k);
    const double e = two * p + (two - 1), t = bs_below_one(size > 20 ? 1 : e / (e + 2));
    return x == x ? (x < 0 ? -t : t) : x;
}

/* Newton's steps toward 1 over the root, and one toward the root with its exact error; of what is
 * below 0 it is 0, as in the reference. */
static inline double bs_sqrt(double x)
{
    const int small = x < 0x1p-900, large = x > 0x1p900;
    const double a = small ? x * 0x1p200 : large ? x * 0x1p-200 : x;
    double y = bs_double_of_bits(UINT64_C(0x5fe6eb50c7b537a9) - (bs_bits_of_double(a) >> 1));
    for (int i = 0; i < 4; ++i)
        y = y * (1.5 - 0.5 * a * y * y);
    const double root = a * y, square = root * root;
    const double left = (a - square) - bs_product_error(root, root, square);
    const double made = (root + 0.5 * y * left) * (small ? 0x1p-100 : large ? 0x1p100 : 1);
    return x > 0 && x < __builtin_inf() ? made : x < 0 ? 0 : x;
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
