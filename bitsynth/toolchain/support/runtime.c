/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* The functions of libc that code may call where it runs without: those a C compiler calls on its own, and one. */
#include <stddef.h>
#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden"), used))
/* Keeps the compiler from recognising a loop below as the function it is in. */
#define STAY_A_LOOP __asm__ volatile("" ::: "memory")

typedef uint64_t __attribute__((aligned(1), may_alias)) word;

/* Not one of the names below, which a compiler takes for its own. */
static void *copy(void *to, const void *from, size_t n) {
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

static void *move(void *to, const void *from, size_t n) {
  unsigned char *t = to;
  const unsigned char *f = from;
  if ((uintptr_t)t - (uintptr_t)f >= n) return copy(to, from, n);
  while (n--) {
    t[n] = f[n];
    STAY_A_LOOP;
  }
  return to;
}

static void *set(void *to, int value, size_t n) {
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

void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int value, size_t n);
int memcmp(const void *a, const void *b, size_t n);

HIDDEN void *memcpy(void *to, const void *from, size_t n) { return copy(to, from, n); }

HIDDEN void *memmove(void *to, const void *from, size_t n) { return move(to, from, n); }

HIDDEN void *memset(void *to, int value, size_t n) { return set(to, value, n); }

HIDDEN int memcmp(const void *a, const void *b, size_t n) {
  const unsigned char *x = a, *y = b;
  for (; n; n--, x++, y++) {
    if (*x != *y) return *x - *y;
    STAY_A_LOOP;
  }
  return 0;
}

/* Of libc, which tells code what the processor has: the emulated one is chosen to have what the code needs. */
unsigned long getauxval(unsigned long type);

HIDDEN unsigned long getauxval(unsigned long type) {
  (void)type;
  return ~0ul;
}

#ifdef __ARM_EABI__
/* The run-time ABI of 32-bit Arm has its own names, and functions to divide. */
#define DEFINE(name, parameters, body) \
  void name parameters;                \
  HIDDEN void name parameters { body; }
#define FOR_EVERY_ALIGNMENT(name, parameters, body) \
  DEFINE(name, parameters, body)                    \
  DEFINE(name##4, parameters, body)                 \
  DEFINE(name##8, parameters, body)
FOR_EVERY_ALIGNMENT(__aeabi_memcpy, (void *to, const void *from, size_t n), copy(to, from, n))
FOR_EVERY_ALIGNMENT(__aeabi_memmove, (void *to, const void *from, size_t n), move(to, from, n))
FOR_EVERY_ALIGNMENT(__aeabi_memset, (void *to, size_t n, int value), set(to, value, n))
FOR_EVERY_ALIGNMENT(__aeabi_memclr, (void *to, size_t n), set(to, 0, n))
/* Clang refers to these from tables for C++ exceptions; nothing calls them. */
DEFINE(__aeabi_unwind_cpp_pr0, (void), (void)0)
DEFINE(__aeabi_unwind_cpp_pr1, (void), (void)0)

uint64_t __aeabi_uidivmod(uint32_t a, uint32_t b);
uint32_t __aeabi_uidiv(uint32_t a, uint32_t b);
int32_t __aeabi_idiv(int32_t a, int32_t b);
uint64_t __aeabi_idivmod(int32_t a, int32_t b);

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

/* 64-bit quotients come in r0 and r1, remainders in r2 and r3, which C cannot say. */
uint64_t bs_divide(uint64_t a, uint64_t b, uint64_t *rest);
int64_t bs_divide_signed(int64_t a, int64_t b, int64_t *rest);

HIDDEN uint64_t bs_divide(uint64_t a, uint64_t b, uint64_t *rest) {
  uint64_t quotient = 0;
  *rest = 0;
  for (int i = 63; i >= 0; i--) {
    const uint64_t carry = *rest >> 63;
    *rest = *rest << 1 | (a >> i & 1);
    if (carry || *rest >= b) {
      *rest -= b;
      quotient |= UINT64_C(1) << i;
    }
  }
  return quotient;
}

HIDDEN int64_t bs_divide_signed(int64_t a, int64_t b, int64_t *rest) {
  const uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
  uint64_t left;
  const uint64_t quotient = bs_divide(x, y, &left);
  *rest = (int64_t)(a < 0 ? 0 - left : left);
  return (int64_t)((a < 0) != (b < 0) ? 0 - quotient : quotient);
}

#define DIVIDES(name, by)                                          \
  void name(void);                                                 \
  __attribute__((visibility("hidden"), used, naked)) void name(void) { \
    __asm__("push {r4, lr}\n\t"                                    \
            "sub sp, sp, #16\n\t"                                  \
            "add r4, sp, #8\n\t"                                   \
            "str r4, [sp]\n\t"                                     \
            "bl " by "\n\t"                                        \
            "ldr r2, [sp, #8]\n\t"                                 \
            "ldr r3, [sp, #12]\n\t"                                \
            "add sp, sp, #16\n\t"                                  \
            "pop {r4, pc}");                                       \
  }
DIVIDES(__aeabi_uldivmod, "bs_divide")
DIVIDES(__aeabi_ldivmod, "bs_divide_signed")

/* Integers of 64 bits and floating-point numbers, which these functions take in registers of integers. */
#define BY_INTEGERS HIDDEN __attribute__((pcs("aapcs")))
__attribute__((pcs("aapcs"))) int64_t __aeabi_d2lz(double x);
__attribute__((pcs("aapcs"))) double __aeabi_l2d(int64_t x);
__attribute__((pcs("aapcs"))) float __aeabi_l2f(int64_t x);

/* Cut off toward 0, of numbers below 2**63. */
BY_INTEGERS int64_t __aeabi_d2lz(double x) {
  const double size = x < 0 ? -x : x;
  const uint32_t high = (uint32_t)(size * 0x1p-32), low = (uint32_t)(size - high * 0x1p32);
  const uint64_t whole = (uint64_t)high << 32 | low;
  return (int64_t)(x < 0 ? 0 - whole : whole);
}

/* Rounded once, as the sum of two halves that are exact. */
BY_INTEGERS double __aeabi_l2d(int64_t x) { return (int32_t)(x >> 32) * 0x1p32 + (uint32_t)x; }

/* Of what float64 does not hold, the last bits are one that says whether they are 0. */
BY_INTEGERS float __aeabi_l2f(int64_t x) {
  const uint64_t size = x < 0 ? 0 - (uint64_t)x : (uint64_t)x, cut = size >> 53 ? size >> 11 | !!(size & 2047) : size;
  const double near = (uint32_t)(cut >> 32) * 0x1p32 + (uint32_t)cut;
  const float made = (float)(size >> 53 ? near * 0x1p11 : near);
  return x < 0 ? -made : made;
}
#endif
