#include <stdint.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif

/* Implementer and part of this core's MIDR, as 0x41d03; 0 where programs cannot read it. */
static uint32_t processor(void)
{
#if defined(__linux__) && defined(__aarch64__)
    if (getauxval(AT_HWCAP) >> 11 & 1) {
        uint64_t midr;
        __asm__("mrs %0, MIDR_EL1" : "=r"(midr));
        return (uint32_t)(midr >> 24 & 0xff) << 12 | (uint32_t)(midr >> 4 & 0xfff);
    }
#endif
    return 0;
}
