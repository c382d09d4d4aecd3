/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Ticks that parts of layers take: linked so that calls of the functions below come here first, one
 * thread at a time. */
#include "bs_depthwise.h"

#if defined(__x86_64__) || defined(__i386__)
#include <x86intrin.h>
static inline uint64_t now(void)
{
    return __rdtsc();
}
#elif defined(__aarch64__)
static inline uint64_t now(void)
{
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}
#else
#include <time.h>
static inline uint64_t now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
#endif

enum { PACK, EPILOGUE, WHOLE, PARTS };

static uint64_t spent[PARTS], calls[PARTS];

static void add(int part, uint64_t from)
{
    spent[part] += now() - from;
    ++calls[part];
}

/* Takes of all parts ticks, then calls, and starts anew. */
int bs_parts_take(uint64_t *to);
int bs_parts_take(uint64_t *to)
{
    for (int part = 0; part < PARTS; ++part) {
        to[part] = spent[part];
        to[PARTS + part] = calls[part];
        spent[part] = calls[part] = 0;
    }
    return BS_OK;
}

/* Ticks from one look at the clock to the next. */
int bs_parts_look(void);
int bs_parts_look(void)
{
    uint64_t fewest = UINT64_MAX;
    for (int i = 0; i < 1000; ++i) {
        const uint64_t from = now(), ticks = now() - from;
        fewest = ticks < fewest ? ticks : fewest;
    }
    return (int)fewest;
}

/* What the linker knows a wrapped function by: itself, and what stands in its place. */
#define WRAPPED(function) __typeof__(function) __real_##function, __wrap_##function

WRAPPED(bs_pack_lines);
WRAPPED(bs_line_at);
WRAPPED(bs_finish);
WRAPPED(bs_pack_pixels);
WRAPPED(bs_transpose_pixels);
WRAPPED(bs_layer_run);

void __wrap_bs_pack_lines(
    const struct call *c, struct view view, size_t from, size_t to, const struct scratch *s)
{
    const uint64_t start = now();
    __real_bs_pack_lines(c, view, from, to, s);
    add(PACK, start);
}

const uint8_t *__wrap_bs_line_at(const struct depthwise *d, const struct slot *s, size_t y)
{
    const uint64_t start = now();
    const uint8_t *line = __real_bs_line_at(d, s, y);
    add(PACK, start);
    return line;
}

void __wrap_bs_finish(const struct call *c, const struct strip *strip, const struct scratch *s)
{
    const uint64_t start = now();
    __real_bs_finish(c, strip, s);
    add(EPILOGUE, start);
}

void __wrap_bs_pack_pixels(const struct call *c, size_t from, size_t to)
{
    const uint64_t start = now();
    __real_bs_pack_pixels(c, from, to);
    add(EPILOGUE, start);
}

void __wrap_bs_transpose_pixels(const struct call *c, size_t from, size_t to)
{
    const uint64_t start = now();
    __real_bs_transpose_pixels(c, from, to);
    add(EPILOGUE, start);
}

int __wrap_bs_layer_run(
    const struct bs_layer *layer,
    struct bs_shape in,
    const struct bs_tensors *tensors,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool)
{
    const uint64_t start = now();
    const int status = __real_bs_layer_run(layer, in, tensors, arena, arena_bytes, pool);
    add(WHOLE, start);
    return status;
}
