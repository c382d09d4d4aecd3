/* Bytes by proved programs, or by plain loops where an instruction set has none. */
#include "bs_glue_call.h"

#include <string.h>

enum { MOST_UNIT = 256, MOST_BYTES = 4 };

/* Rows of fewer elements than a unit, each in a unit of its own. */
static void run_few(
    const struct bs_glue_program *p,
    const void *numbers,
    struct bs_glue_rows at,
    const uint8_t *from,
    const uint8_t *other,
    uint8_t *to)
{
    _Alignas(8) uint8_t one[MOST_UNIT * MOST_BYTES] = {0}, two[MOST_UNIT] = {0};
    _Alignas(8) uint8_t made[MOST_UNIT * MOST_BYTES];
    for (size_t i = 0; i < at.rows; ++i) {
        memcpy(one, from + i * at.from_apart, at.count * p->from_bytes);
        if (other)
            memcpy(two, other + i * at.to_apart, at.count);
        p->run(NULL, numbers, 1, p->unit, one, 0, NULL, two, 0, made, 0);
        memcpy(to + i * at.to_apart, made, at.count * p->to_bytes);
    }
}

/* Whole units, then the last one's elements, some of them once more: `other` is `to` only of a
 * program that then gives the same. */
static void run(
    const struct bs_glue_program *p,
    const void *numbers,
    struct bs_glue_rows at,
    const uint8_t *from,
    const uint8_t *other,
    uint8_t *to)
{
    const size_t whole = at.count / p->unit * p->unit, apart = at.to_apart;
    if (whole == 0) {
        run_few(p, numbers, at, from, other, to);
        return;
    }
    p->run(NULL, numbers, at.rows, whole, from, at.from_apart, NULL, other, apart, to, apart);
    if (whole < at.count) {
        const size_t last = at.count - p->unit;
        const uint8_t *more = other ? other + last : NULL;
        from += last * p->from_bytes;
        to += last * p->to_bytes;
        p->run(NULL, numbers, at.rows, p->unit, from, at.from_apart, NULL, more, apart, to, apart);
    }
}

void bs_glue_take_greater(struct bs_glue_rows at, const uint8_t *from, uint8_t *to)
{
    const struct bs_glue_program *p = &bs_glue_programs[BS_GREATEST];
    if (p->run) {
        run(p, NULL, at, from, to, to);
        return;
    }
    for (; at.rows > 0; --at.rows, from += at.from_apart, to += at.to_apart)
        for (size_t i = 0; i < at.count; ++i)
            to[i] = from[i] > to[i] ? from[i] : to[i];
}

void bs_glue_look_up(
    size_t bits, const uint8_t *table, struct bs_glue_rows at, const uint8_t *from, uint8_t *to)
{
    const struct bs_glue_program *p = &bs_glue_programs[BS_LOOKUP16 + (bits > 4 ? bits - 4 : 0)];
    if (p->run) {
        run(p, table, at, from, NULL, to);
        return;
    }
    for (; at.rows > 0; --at.rows, from += at.from_apart, to += at.to_apart)
        for (size_t i = 0; i < at.count; ++i)
            to[i] = table[from[i]];
}

void bs_glue_map(
    const struct bs_glue_program *p,
    const void *numbers,
    size_t count,
    const void *from,
    const uint8_t *other,
    uint8_t *to)
{
    const struct bs_glue_rows line = {1, count, 0, 0};
    run(p, numbers, line, from, other, to);
}
