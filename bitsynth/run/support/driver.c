/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Runs under qemu: maps memory, calls functions, gives what they wrote and reports faults, as standard input asks.
 * Freestanding, so that any cross compiler builds it without a C library; system.h has the
 * numbers of Linux's system calls and the registers they take. */
#include "system.h"

#include <stddef.h>
#include <stdint.h>

enum { MAP, UNMAP, CALL };
enum { MOST = 12 }; /* arguments of a request, and pieces of an answer */

typedef uintptr_t word;
typedef word function(word, word, word, word, word, word, word, word, word, word);
typedef struct { uint64_t op, arg[MOST]; } request;
typedef struct { uint64_t signal, value; } reply;
typedef struct { word start, size; } piece;
typedef struct { int signal, error, code; void *address; } info;
typedef struct { void (*handler)(int, const info *, void *); word flags, restorer; unsigned char mask[8]; } action;

static intptr_t call_system(word number, word a, word b, word c, word d, word e) {
  register word n __asm__(NUMBER) = number;
  register word r0 __asm__(ARGUMENT_0) = a;
  register word r1 __asm__(ARGUMENT_1) = b;
  register word r2 __asm__(ARGUMENT_2) = c;
  register word r3 __asm__(ARGUMENT_3) = d;
  register word r4 __asm__(ARGUMENT_4) = e;
  register word r5 __asm__(ARGUMENT_5) = 0;
  __asm__ volatile(TRAP : "+r"(r0) : "r"(n), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5) : "memory");
  return (intptr_t)r0;
}

static void leave(word code) {
  for (;;) call_system(SYS_EXIT, code, 0, 0, 0, 0);
}

static void move(word number, word file, word at, word n) {
  while (n) {
    intptr_t done = call_system(number, file, at, n, 0, 0);
    if (done == -4) continue;
    if (done <= 0) leave(0);
    at += (word)done;
    n -= (word)done;
  }
}

static void answer(uint64_t signal, uint64_t value) {
  reply r = {signal, value};
  move(SYS_WRITE, 1, (word)&r, sizeof r);
}

static void fault(int signal, const info *about, void *context) {
  (void)context;
  answer((uint64_t)signal, (word)about->address);
  leave(1);
}

static void map(const word *arg) {
  /* PROT_READ | PROT_WRITE; MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE */
  intptr_t got = call_system(SYS_MMAP, arg[0], arg[1], 3, 0x100022, (word)-1);
  if ((word)got != arg[0]) {
    answer(255, (word)got);
    leave(1);
  }
  move(SYS_READ, 0, arg[0], arg[1]);
  call_system(SYS_MPROTECT, arg[0], arg[1], arg[2], 0, 0);
}

/* Writes the pieces as one, so that who waits for them wakes once. */
static void write_all(piece *p, word n) {
  while (n) {
    intptr_t done = call_system(SYS_WRITEV, 1, (word)p, n, 0, 0);
    if (done == -4) continue;
    if (done <= 0) leave(0);
    word left = (word)done;
    for (; n && left >= p->size; p++, n--) left -= p->size;
    if (n) {
      p->start += left;
      p->size -= left;
    }
  }
}

/* Calls a[0]; a[11] pieces of memory follow the request, and the answer. */
static void call(const word *a) {
  uint64_t asked[MOST][2];
  piece p[MOST];
  move(SYS_READ, 0, (word)asked, a[11] * sizeof *asked);
  reply r = {0, ((function *)a[0])(a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10])};
  p[0].start = (word)&r;
  p[0].size = sizeof r;
  for (word i = 0; i < a[11]; i++) {
    p[i + 1].start = (word)asked[i][0];
    p[i + 1].size = (word)asked[i][1];
  }
  write_all(p, a[11] + 1);
}

static void serve(const request *r) {
  word a[MOST];
  for (int i = 0; i < MOST; i++) a[i] = (word)r->arg[i];
  if (r->op == MAP) map(a);
  if (r->op == UNMAP) call_system(SYS_MUNMAP, a[0], a[1], 0, 0, 0);
  if (r->op == CALL) call(a);
}

void _start(void);
void _start(void) {
  const word signals[] = {4, 5, 7, 8, 11};
  action act = {fault, 4 /* SA_SIGINFO */, 0, {0}};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
    call_system(SYS_SIGACTION, signals[i], (word)&act, 0, 8, 0);
  move(SYS_WRITE, 1, (word)"!", 1); /* ready */
  for (;;) {
    request r;
    move(SYS_READ, 0, (word)&r, sizeof r);
    serve(&r);
  }
}
