/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Arithmetic of epilogues in portable C: floats as the bits they have. Not for callers. */
#ifndef BS_PLAIN_H
#define BS_PLAIN_H

#include "bs_exact.h"
#include "bs_layer.h"

#include <stdint.h>
#include <string.h>

/* Elements in memory, whatever type they were stored as. */
typedef uint8_t bs_u8 __attribute__((may_alias));
typedef uint16_t bs_u16 __attribute__((may_alias));
typedef uint32_t bs_u32 __attribute__((may_alias));
typedef uint64_t bs_u64 __attribute__((may_alias));

/* Without the library of the compiler. */
static inline uint32_t bs_popcount(uint64_t x)
{
    x -= x >> 1 & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
    x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (uint32_t)(x * UINT64_C(0x0101010101010101) >> 56);
}

static inline float bs_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bs_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline uint32_t bs_float_of(uint32_t x)
{
    return bs_bits((float)(int32_t)x);
}

/* Vectors of 32-bit Arm take subnormal numbers for 0: no compiler may use them. */
static inline float bs_scalar(float x)
{
#ifdef __arm__
    __asm__("" : "+w"(x));
#endif
    return x;
}

static inline uint32_t bs_fmul(uint32_t a, uint32_t b)
{
    return bs_bits(bs_scalar(bs_float(a) * bs_float(b)));
}

static inline uint32_t bs_fadd(uint32_t a, uint32_t b)
{
    return bs_bits(bs_scalar(bs_float(a) + bs_float(b)));
}

static inline int bs_flt(uint32_t a, uint32_t b)
{
    return bs_scalar(bs_float(a)) < bs_float(b);
}

/* By masks: compilers take a choice to vector registers only if they see no branch. */
static inline uint32_t bs_chosen(int first, uint32_t a, uint32_t b)
{
    const uint32_t mask = 0 - (uint32_t)first;
    return (a & mask) | (b & ~mask);
}

static inline uint32_t bs_fdiv(uint32_t a, uint32_t b)
{
    return bs_bits(bs_float(a) / bs_float(b));
}

/* The int32 nearest to a float, ties to even, saturated; 0 for what is not a number. From 2**23 on
 * floats are whole; below, the sum with 2**23 has no bits for a fraction, and is rounded so. */
static inline uint32_t bs_nearest(uint32_t x)
{
    const uint32_t size = x & 0x7fffffff, sign = x >> 31;
    const float shifted = bs_float(size) + 8388608.0f;
    const uint32_t rounded = bs_bits(shifted - 8388608.0f);
    const uint32_t whole = bs_chosen(size < 0x4b000000, rounded, size);
    const uint32_t number = (uint32_t)(int32_t)bs_float(bs_chosen(size < 0x4f000000, whole, 0));
    const uint32_t most = bs_chosen(size > 0x7f800000, 0, 0x7fffffff + sign);
    return bs_chosen(size < 0x4f000000, (number ^ (0 - sign)) + sign, most);
}

#endif
