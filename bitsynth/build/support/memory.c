/* The four functions a C compiler may call on its own, for code that runs without libc. */
#include <stddef.h>
#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden"), used))
/* Keeps the compiler from recognising a loop below as the function it is in. */
#define STAY_A_LOOP __asm__ volatile("" ::: "memory")

typedef uint64_t __attribute__((aligned(1), may_alias)) word;

void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int value, size_t n);
int memcmp(const void *a, const void *b, size_t n);

HIDDEN void *memcpy(void *to, const void *from, size_t n) {
  unsigned char *t = to;
  const unsigned char *f = from;
  for (; n >= 8; n -= 8, t += 8, f += 8) {
    *(word *)t = *(const word *)f;
    STAY_A_LOOP;
  }
  for (; n; n--) {
    *t++ = *f++;
    STAY_A_LOOP;
  }
  return to;
}

HIDDEN void *memmove(void *to, const void *from, size_t n) {
  unsigned char *t = to;
  const unsigned char *f = from;
  if ((uintptr_t)t - (uintptr_t)f >= n) return memcpy(to, from, n);
  while (n--) {
    t[n] = f[n];
    STAY_A_LOOP;
  }
  return to;
}

HIDDEN void *memset(void *to, int value, size_t n) {
  unsigned char *t = to;
  const uint64_t wide = (unsigned char)value * UINT64_C(0x0101010101010101);
  for (; n >= 8; n -= 8, t += 8) {
    *(word *)t = wide;
    STAY_A_LOOP;
  }
  for (; n; n--) {
    *t++ = (unsigned char)value;
    STAY_A_LOOP;
  }
  return to;
}

HIDDEN int memcmp(const void *a, const void *b, size_t n) {
  const unsigned char *x = a, *y = b;
  for (; n; n--, x++, y++) {
    if (*x != *y) return *x - *y;
    STAY_A_LOOP;
  }
  return 0;
}
