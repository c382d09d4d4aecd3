/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Floats whose every operation is rounded once, under any flags short of -ffast-math. Not for
 * callers. */
#ifndef BS_EXACT_H
#define BS_EXACT_H

#include <float.h>

#ifdef __FAST_MATH__
#error "floats of a layer are exact: compile it without -ffast-math and -Ofast"
#elif FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#error \
    "floats of a layer are exact: compile it for arithmetic of float in float, without -mfpmath=387"
#endif

/* What follows is compiled without fused multiplications and additions, but for those written; and
 * for vectors, as nobody reads the flags of exceptions. GCC inlines no function that was compiled
 * otherwise, and then vectorizes no loop that calls it: a header of such functions includes this
 * one before them. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-trapping-math")
#endif

/* Compilers fuse a multiplication with an addition behind it, by default or as flags say; not what
 * an asm may change. */
#define BS_ROUNDED_ARRAY(x) __asm__("" : "+m"(x))

#endif
