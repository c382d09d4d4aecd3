/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Functions of real numbers in float64: the same bits on every host. Not for callers.
 * They are made of single operations: none of libm's is called. */
#ifndef BS_FUNCTIONS_H
#define BS_FUNCTIONS_H

#include "bs_real.h"

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

/* Of a number above 0: that of its power of two, and of what is left, between the roots of 1/2 and
 * 2, the series of the inverse hyperbolic tangent. */
static inline double bs_log(double x)
{
    const int small = x < 0x1p-1022;
    const uint64_t bits = bs_bits_of_double(small ? x * 0x1p54 : x) - UINT64_C(0x3fe6a09e667f3bcd);
    const double k = (double)((int64_t)bits >> 52) - (small ? 54 : 0);
    const double m =
        bs_double_of_bits((bits & UINT64_C(0xfffffffffffff)) + UINT64_C(0x3fe6a09e667f3bcd));
    const double f = m - 1, s = f / (m + 1), z = s * s;
    double p = 2.0 / 23;
    p = p * z + 2.0 / 21;
    p = p * z + 2.0 / 19;
    p = p * z + 2.0 / 17;
    p = p * z + 2.0 / 15;
    p = p * z + 2.0 / 13;
    p = p * z + 2.0 / 11;
    p = p * z + 2.0 / 9;
    p = p * z + 2.0 / 7;
    p = p * z + 2.0 / 5;
    p = p * z + 2.0 / 3;
    /* 2s is f - s f, and f is exact. */
    const double less = s * (f - p * z) - k * 0x1.a39ef35793c76p-33;
    const double made = k * 0x1.62e42feep-1 + (f - less);
    return x > 0 && x < __builtin_inf() ? made
        : x > 0                         ? x
        : x == 0                        ? -__builtin_inf()
                                        : __builtin_nan("");
}

#endif
