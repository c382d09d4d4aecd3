/* Runs under qemu: maps memory, calls functions and reports faults, as standard input asks.
 * Freestanding, so that any cross compiler builds it without a C library. */
#include <stddef.h>
#include <stdint.h>

enum { MAP, UNMAP, READ, CALL };
enum { SYS_READ = 63, SYS_WRITE = 64, SYS_EXIT = 93, SYS_SIGACTION = 134, SYS_MUNMAP = 215, SYS_MMAP = 222, SYS_MPROTECT = 226 };

typedef uint64_t function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
typedef struct { uint64_t op, arg[9]; } request;
typedef struct { uint64_t signal, value; } reply;
typedef struct { void (*handler)(int, const uint64_t *, void *); uint64_t flags, restorer, mask; } action;

static int64_t call_system(int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
  register int64_t x8 __asm__("x8") = number;
  register uint64_t x0 __asm__("x0") = a;
  register uint64_t x1 __asm__("x1") = b;
  register uint64_t x2 __asm__("x2") = c;
  register uint64_t x3 __asm__("x3") = d;
  register uint64_t x4 __asm__("x4") = e;
  register uint64_t x5 __asm__("x5") = 0;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return (int64_t)x0;
}

static void leave(uint64_t code) {
  for (;;) call_system(SYS_EXIT, code, 0, 0, 0, 0);
}

static void move(int64_t number, uint64_t file, uint64_t at, uint64_t n) {
  while (n) {
    int64_t done = call_system(number, file, at, n, 0, 0);
    if (done == -4) continue;
    if (done <= 0) leave(0);
    at += (uint64_t)done;
    n -= (uint64_t)done;
  }
}

static void answer(uint64_t signal, uint64_t value) {
  reply r = {signal, value};
  move(SYS_WRITE, 1, (uint64_t)&r, sizeof r);
}

static void fault(int signal, const uint64_t *info, void *context) {
  (void)context;
  answer((uint64_t)signal, info[2]);
  leave(1);
}

static void map(const uint64_t *arg) {
  /* PROT_READ | PROT_WRITE; MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE */
  int64_t got = call_system(SYS_MMAP, arg[0], arg[1], 3, 0x100022, (uint64_t)-1);
  if (got != (int64_t)arg[0]) {
    answer(255, (uint64_t)got);
    leave(1);
  }
  move(SYS_READ, 0, arg[0], arg[1]);
  call_system(SYS_MPROTECT, arg[0], arg[1], arg[2], 0, 0);
}

static void serve(const request *r) {
  const uint64_t *a = r->arg;
  if (r->op == MAP) map(a);
  if (r->op == UNMAP) call_system(SYS_MUNMAP, a[0], a[1], 0, 0, 0);
  if (r->op == READ) move(SYS_WRITE, 1, a[0], a[1]);
  if (r->op == CALL) answer(0, ((function *)(uintptr_t)a[0])(a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]));
}

void bs_main(void);
void bs_main(void) {
  const uint64_t signals[] = {4, 5, 7, 8, 11};
  action act = {fault, 4 /* SA_SIGINFO */, 0, 0};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
    call_system(SYS_SIGACTION, signals[i], (uint64_t)&act, 0, 8, 0);
  move(SYS_WRITE, 1, (uint64_t)"!", 1); /* ready */
  for (;;) {
    request r;
    move(SYS_READ, 0, (uint64_t)&r, sizeof r);
    serve(&r);
  }
}

__asm__(".globl _start\n_start: b bs_main\n");
