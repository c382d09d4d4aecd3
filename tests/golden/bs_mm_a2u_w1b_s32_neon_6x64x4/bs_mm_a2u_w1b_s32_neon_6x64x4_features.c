/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* bs_mm_a2u_w1b_s32_neon_6x64x4: what this processor lacks. To be compiled without the flags of
 * bs_mm_a2u_w1b_s32_neon_6x64x4.c, so that it runs anywhere. */
#include "bs_mm_a2u_w1b_s32_neon_6x64x4.h"

#ifdef __linux__
#include <sys/auxv.h>
#endif

/* A bit of AT_HWCAP; where no Linux tells, the processor is taken to have it. */
static int has(int bit)
{
#ifdef __linux__
    return (int)(getauxval(AT_HWCAP) >> bit & 1);
#else
    (void)bit;
    return 1;
#endif
}

const char *bs_mm_a2u_w1b_s32_neon_6x64x4_missing_feature(void)
{
    if (!has(1))
        return "asimd";
    return NULL;
}
