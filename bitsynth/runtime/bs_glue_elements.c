/* Bytes by proved programs, or by plain loops where an instruction set has none, or fewer than a
 * unit. */
#include "bs_glue_call.h"

#include <string.h>

/* Whole units, then the last one's bytes, some of them once more: `other` is `to` only of a program
 * that then gives the same. */
static void run(
    const struct bs_glue_program *p,
    const void *numbers,
    struct bs_glue_rows at,
    const uint8_t *from,
    const uint8_t *other,
    uint8_t *to)
{
    const size_t whole = at.count / p->unit * p->unit, apart = at.to_apart;
    p->run(NULL, numbers, at.rows, whole, from, at.from_apart, NULL, other, apart, to, apart);
    if (whole < at.count) {
        const size_t last = at.count - p->unit;
        const uint8_t *more = other ? other + last : NULL;
        from += last;
        to += last;
        p->run(NULL, numbers, at.rows, p->unit, from, at.from_apart, NULL, more, apart, to, apart);
    }
}

static int runs(const struct bs_glue_program *p, struct bs_glue_rows at)
{
    return p->run && at.count >= p->unit;
}

void bs_glue_take_greater(struct bs_glue_rows at, const uint8_t *from, uint8_t *to)
{
    if (runs(&bs_glue_greatest, at)) {
        run(&bs_glue_greatest, NULL, at, from, to, to);
        return;
    }
    for (; at.rows > 0; --at.rows, from += at.from_apart, to += at.to_apart)
        for (size_t i = 0; i < at.count; ++i)
            to[i] = from[i] > to[i] ? from[i] : to[i];
}

void bs_glue_look_up(
    size_t bits, const uint8_t *table, struct bs_glue_rows at, const uint8_t *from, uint8_t *to)
{
    const size_t number = bits > 4 ? bits - 4 : 0, entries = (size_t)16 << number;
    const struct bs_glue_program *p = &bs_glue_lookups[number];
    uint8_t repeated[256];
    if (runs(p, at)) {
        for (size_t i = 0; i < p->unit || i < entries; i += entries)
            memcpy(repeated + i, table, entries);
        run(p, repeated, at, from, NULL, to);
        return;
    }
    for (; at.rows > 0; --at.rows, from += at.from_apart, to += at.to_apart)
        for (size_t i = 0; i < at.count; ++i)
            to[i] = table[from[i]];
}
