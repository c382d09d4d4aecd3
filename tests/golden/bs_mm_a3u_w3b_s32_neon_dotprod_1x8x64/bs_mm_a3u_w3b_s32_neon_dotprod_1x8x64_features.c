/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64: what this processor lacks. To be compiled without the
 * flags of bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64.c, so that it runs anywhere. */
#include "bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64.h"

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

const char *bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_missing_feature(void)
{
    if (!has(1))
        return "asimd";
    if (!has(20))
        return "asimddp";
    return NULL;
}
