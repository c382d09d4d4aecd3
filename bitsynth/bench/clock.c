/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* `loops` times 32 additions, each waiting for the one before: as many core cycles. */
#include <stddef.h>

#define ADD __asm__ volatile("" : "+r"(sum)); sum += one;
#define ADD_8 ADD ADD ADD ADD ADD ADD ADD ADD

size_t bs_clock(size_t loops, size_t one);
size_t bs_clock(size_t loops, size_t one)
{
    size_t sum = 0;
    for (; loops > 0; --loops) {
        ADD_8 ADD_8 ADD_8 ADD_8
    }
    return sum;
}
