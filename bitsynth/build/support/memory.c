/* The functions a C compiler may call on its own, for code that runs without libc. */
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

#ifdef __ARM_EABI__
/* The run-time ABI of 32-bit Arm has its own names, and functions to divide. */
#define ALIAS(name) __attribute__((visibility("hidden"), used, alias(#name)))
#define COPIES(name, to)                                     \
  void *__aeabi_##name(void *, const void *, size_t) ALIAS(to);  \
  void *__aeabi_##name##4(void *, const void *, size_t) ALIAS(to); \
  void *__aeabi_##name##8(void *, const void *, size_t) ALIAS(to)
COPIES(memcpy, memcpy);
COPIES(memmove, memmove);

void __aeabi_memset(void *to, size_t n, int value);
void __aeabi_memset4(void *to, size_t n, int value) ALIAS(__aeabi_memset);
void __aeabi_memset8(void *to, size_t n, int value) ALIAS(__aeabi_memset);
void __aeabi_memclr(void *to, size_t n);
void __aeabi_memclr4(void *to, size_t n) ALIAS(__aeabi_memclr);
void __aeabi_memclr8(void *to, size_t n) ALIAS(__aeabi_memclr);
uint64_t __aeabi_uidivmod(uint32_t a, uint32_t b);
uint32_t __aeabi_uidiv(uint32_t a, uint32_t b);
int32_t __aeabi_idiv(int32_t a, int32_t b);
uint64_t __aeabi_idivmod(int32_t a, int32_t b);
void __aeabi_unwind_cpp_pr0(void);
void __aeabi_unwind_cpp_pr1(void) ALIAS(__aeabi_unwind_cpp_pr0);

HIDDEN void __aeabi_memset(void *to, size_t n, int value) { memset(to, value, n); }

HIDDEN void __aeabi_memclr(void *to, size_t n) { memset(to, 0, n); }

/* Quotient in the low half, remainder in the high one. */
HIDDEN uint64_t __aeabi_uidivmod(uint32_t a, uint32_t b) {
  uint32_t quotient = 0;
  uint64_t rest = 0;
  for (int i = 31; i >= 0; i--) {
    rest = rest << 1 | (a >> i & 1);
    if (rest >= b) {
      rest -= b;
      quotient |= UINT32_C(1) << i;
    }
  }
  return rest << 32 | quotient;
}

HIDDEN uint32_t __aeabi_uidiv(uint32_t a, uint32_t b) { return (uint32_t)__aeabi_uidivmod(a, b); }

HIDDEN int32_t __aeabi_idiv(int32_t a, int32_t b) {
  const uint32_t x = a < 0 ? 0 - (uint32_t)a : (uint32_t)a, y = b < 0 ? 0 - (uint32_t)b : (uint32_t)b;
  const uint32_t quotient = __aeabi_uidiv(x, y);
  return (int32_t)((a < 0) != (b < 0) ? 0 - quotient : quotient);
}

HIDDEN uint64_t __aeabi_idivmod(int32_t a, int32_t b) {
  const uint32_t quotient = (uint32_t)__aeabi_idiv(a, b);
  return (uint64_t)((uint32_t)a - quotient * (uint32_t)b) << 32 | quotient;
}

/* Clang refers to it from tables for C++ exceptions; nothing calls it. */
HIDDEN void __aeabi_unwind_cpp_pr0(void) {}
#endif
