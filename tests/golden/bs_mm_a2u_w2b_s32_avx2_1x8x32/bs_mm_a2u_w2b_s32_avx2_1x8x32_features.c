/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* bs_mm_a2u_w2b_s32_avx2_1x8x32: what this processor lacks. To be compiled without the flags of
 * bs_mm_a2u_w2b_s32_avx2_1x8x32.c, so that it runs anywhere. */
#include "bs_mm_a2u_w2b_s32_avx2_1x8x32.h"

#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };
/* Registers as XCR0 lists those that the system keeps; macOS lists ZMM only once a thread has used
 * them. */
#ifdef __APPLE__
enum { YMM = 0x06, ZMM = YMM };
#else
enum { YMM = 0x06, ZMM = 0xe6 };
#endif

/* A bit of what cpuid says, where the system keeps the registers that the feature needs. */
static int has(unsigned registers, unsigned leaf, unsigned subleaf, int from, int bit)
{
    unsigned said[4], low, high;
    if (!__get_cpuid_count(1, 0, &said[EAX], &said[EBX], &said[ECX], &said[EDX])
        || !(said[ECX] >> 27 & 1))
        return 0; /* Without OSXSAVE there is no xgetbv. */
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
    if ((low & registers) != registers
        || !__get_cpuid_count(leaf, subleaf, &said[EAX], &said[EBX], &said[ECX], &said[EDX]))
        return 0;
    return (int)(said[from] >> bit & 1);
}

const char *bs_mm_a2u_w2b_s32_avx2_1x8x32_missing_feature(void)
{
    if (!has(YMM, 7, 0, EBX, 5))
        return "avx2";
    return NULL;
}
