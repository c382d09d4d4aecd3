/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Encoding of values, and the check that each has a code. */
#include "bs_encode.h"

#include <string.h>

enum { CHUNK = 256, PIECE = 4096 };

/* A call: `slots` tasks encode the values in pieces. */
struct job {
    const struct bs_values *v;
    const uint8_t *from;
    uint8_t *to;
    size_t slots, pieces;
    uint64_t foreign; /* bits that the difference to the least value has in no code */
    int bad;          /* 1: a value has no code */
    int has_gap;      /* 1: the last code of that width is not used */
};

/* Codes of `count` values, and all bits of their differences to the least. In arithmetic of their
 * own width that wraps for unsigned values only from 2^width - 255 on, whose highest bits are
 * added: no difference that has a code has them. */
#define ENCODE(name, type, width, high) \
    static uint64_t name( \
        size_t count, const uint8_t *from, int64_t apart, int64_t least, int shift, uint8_t *to) \
    { \
        const width low = (width)least; \
        width all = 0; \
        if (apart == sizeof(type)) { \
            const type *value = (const type *)(const void *)from; \
            for (size_t i = 0; i < count; ++i) { \
                const width code = (width)((width)value[i] - low); \
                all = (width)(all | code | ((width)value[i] & (width)(high))); \
                to[i] = (uint8_t)(code >> shift); \
            } \
        } else \
            for (size_t i = 0; i < count; ++i, from += apart) { \
                const width value = (width) * (const type *)(const void *)from; \
                const width code = (width)(value - low); \
                all = (width)(all | code | (value & (width)(high))); \
                to[i] = (uint8_t)(code >> shift); \
            } \
        return all; \
    }

ENCODE(encode_u8, uint8_t, uint16_t, 0)
ENCODE(encode_i8, int8_t, uint16_t, 0)
ENCODE(encode_u16, uint16_t, uint16_t, 0xff00)
ENCODE(encode_i16, int16_t, uint16_t, 0)
ENCODE(encode_u32, uint32_t, uint32_t, 0xffffff00)
ENCODE(encode_i32, int32_t, uint32_t, 0)
ENCODE(encode_u64, uint64_t, uint64_t, UINT64_C(0xffffffffffffff00))
ENCODE(encode_i64, int64_t, uint64_t, 0)

static uint64_t bits_of(size_t count, const uint8_t *from)
{
    uint8_t all = 0;
    for (size_t i = 0; i < count; ++i)
        all |= from[i];
    return all;
}

static uint64_t encode(const struct bs_values *v, size_t count, const uint8_t *from, uint8_t *to)
{
    static uint64_t (*const by_type[])(
        size_t, const uint8_t *, int64_t, int64_t, int, uint8_t *) = {
        encode_u8,
        encode_i8,
        encode_u16,
        encode_i16,
        encode_u32,
        encode_i32,
        encode_u64,
        encode_i64};
    return by_type[v->type](count, from, v->apart[3], v->least, v->step == 2, to);
}

/* Returns whether the last code of a power of two is used, or no code is as great. */
static int has_gap(const struct job *j, size_t count, const uint8_t *codes)
{
    uint8_t most = 0;
    if (!j->has_gap)
        return 0;
    for (size_t i = 0; i < count; ++i)
        most = codes[i] > most ? codes[i] : most;
    return most >= j->v->codes;
}

/* Returns whether one of `count` neighbours on the last axis has no code. */
static int encode_run(const struct job *j, size_t length, const uint8_t *from, uint8_t *to)
{
    const struct bs_values *v = j->v;
    const int plain = v->type == BS_U8 && v->apart[3] == 1 && v->least == 0 && v->step == 1;
    uint8_t seen[CHUNK];
    if (plain && !to)
        return (bits_of(length, from) & j->foreign) != 0 || has_gap(j, length, from);
    for (size_t at = 0; at < length; at += CHUNK) {
        const size_t count = length - at < CHUNK ? length - at : CHUNK;
        uint8_t *codes = to ? to + at : seen;
        const uint64_t bits = encode(v, count, from + (int64_t)at * v->apart[3], codes);
        if ((bits & j->foreign) || has_gap(j, count, codes))
            return 1;
    }
    return 0;
}

/* The same of piece `number`, in the order of codes: runs on the last axis are cut into pieces. */
static int encode_piece(const struct job *j, size_t number)
{
    const struct bs_values *v = j->v;
    const size_t second = (size_t)v->shape[1], third = (size_t)v->shape[2],
                 length = (size_t)v->shape[3];
    const size_t from = number % j->pieces * PIECE, run = number / j->pieces, line = run / third;
    const int64_t at = (int64_t)(line / second) * v->apart[0]
        + (int64_t)(line % second) * v->apart[1] + (int64_t)(run % third) * v->apart[2]
        + (int64_t)from * v->apart[3];
    uint8_t *to = j->to ? j->to + run * length + from : NULL;
    return encode_run(j, length - from < PIECE ? length - from : PIECE, j->from + at, to);
}

static void encode_task(void *argument, size_t slot)
{
    struct job *j = argument;
    const struct bs_values *v = j->v;
    const size_t all = (size_t)(v->shape[0] * v->shape[1] * v->shape[2]) * j->pieces;
    const size_t each = all / j->slots, more = all % j->slots;
    const size_t first = slot * each + (slot < more ? slot : more);
    int bad = 0;
    for (size_t i = 0; i < each + (slot < more) && !bad; ++i)
        bad = encode_piece(j, first + i);
    if (bad)
        __atomic_store_n(&j->bad, 1, __ATOMIC_RELAXED);
}

int bs_encode(const struct bs_values *v, const void *values, uint8_t *to, struct bs_pool *pool)
{
    struct job j = {v, values, to, pool ? pool->threads : 1, 0, 0, 0, 0};
    int64_t whole = 1;
    while (whole < v->codes)
        whole *= 2;
    j.pieces = ((size_t)v->shape[3] + PIECE - 1) / PIECE;
    j.foreign = ~(uint64_t)((whole - 1) * v->step);
    j.has_gap = whole != v->codes;
    bs_run(pool, encode_task, &j, j.slots);
    return j.bad ? -1 : 0;
}
