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
