/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Bytes by proved programs, or by plain loops where an instruction set has none. */
#include "bs_glue_call.h"

#include <string.h>

enum { MOST_UNIT = 256, MOST_BYTES = 4, TOGETHER = 512, PIECE = 16 };

/* Addresses of a program's inputs and results: `other` is NULL without a second input. */
struct operands {
    const uint8_t *from, *other;
    uint8_t *to;
};

/* Copies rows of few bytes to rows of another distance. */
static void move_rows(
    size_t rows, size_t bytes, const uint8_t *from, size_t from_apart, uint8_t *to, size_t to_apart)
{
    for (size_t i = 0; i < rows; ++i, from += from_apart, to += to_apart) {
        const size_t whole = bytes / PIECE * PIECE;
        for (size_t k = 0; k < whole; k += PIECE)
            memcpy(to + k, from + k, PIECE);
        if (whole < bytes)
            memcpy(to + whole, from + whole, bytes - whole);
    }
}

/* Runs a program on rows shorter than a unit, joined as far as there is room; one row at a time if
 * elements have constants. */
static void run_few(
    const struct bs_glue_program *p,
    const void *constants,
    const void *numbers,
    struct bs_glue_rows at,
    struct operands x)
{
    _Alignas(8) uint8_t one[(TOGETHER + MOST_UNIT) * MOST_BYTES], two[TOGETHER + MOST_UNIT];
    _Alignas(8) uint8_t made[(TOGETHER + MOST_UNIT) * MOST_BYTES];
    const size_t in = at.count * p->from_bytes, out = at.count * p->to_bytes;
    const size_t most = constants || at.count == 0 ? 1 : TOGETHER / at.count;
    for (size_t i = 0; i < at.rows; i += most) {
        const size_t rows = least(at.rows - i, most), filled = rows * at.count;
        const size_t whole = ceiling(filled, p->unit) * p->unit, rest = whole - filled;
        move_rows(rows, in, x.from + i * at.from_apart, at.from_apart, one, in);
        memset(one + filled * p->from_bytes, 0, rest * p->from_bytes);
        if (x.other)
            move_rows(rows, at.count, x.other + i * at.to_apart, at.to_apart, two, at.count);
        memset(x.other ? two + filled : two, 0, x.other ? rest : whole);
        p->run(constants, numbers, 1, whole, one, 0, NULL, two, 0, made, 0);
        move_rows(rows, out, made, out, x.to + i * at.to_apart, at.to_apart);
    }
}

/* Runs a program on whole units, then on a last unit that overlaps the one before. `other` may be
 * `to` only for programs that give the same twice. */
static void run(
    const struct bs_glue_program *p, const void *numbers, struct bs_glue_rows at, struct operands x)
{
    const size_t whole = at.count / p->unit * p->unit, apart = at.to_apart;
    if (whole == 0) {
        run_few(p, NULL, numbers, at, x);
        return;
    }
    p->run(NULL, numbers, at.rows, whole, x.from, at.from_apart, NULL, x.other, apart, x.to, apart);
    if (whole < at.count) {
        const size_t last = at.count - p->unit;
        const uint8_t *from = x.from + last * p->from_bytes,
                      *other = x.other ? x.other + last : NULL;
        uint8_t *to = x.to + last * p->to_bytes;
        p->run(NULL, numbers, at.rows, p->unit, from, at.from_apart, NULL, other, apart, to, apart);
    }
}

void bs_glue_take_greater(struct bs_glue_rows at, const uint8_t *from, uint8_t *to)
{
    run(&bs_glue_programs[BS_GREATEST], NULL, at, (struct operands){from, to, to});
}

void bs_glue_look_up(
    size_t bits, const uint8_t *table, struct bs_glue_rows at, const uint8_t *from, uint8_t *to)
{
    const size_t number = BS_LOOKUP16 + (bits > 4 ? bits - 4 : 0);
    run(&bs_glue_programs[number], table, at, (struct operands){from, NULL, to});
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
    run(p, numbers, line, (struct operands){from, other, to});
}

void bs_glue_scale(const struct bs_glue *g, size_t count, const void *from, void *to)
{
    const struct bs_glue_program *p = &bs_glue_programs[g->program];
    const size_t in = p->from_bytes, out = p->to_bytes, period = g->period, rows = count / period;
    const size_t from_apart = period * in, to_apart = period * out;
    const size_t done = rows * period, whole = (count - done) / p->unit * p->unit;
    const uint8_t *at = (const uint8_t *)from + done * in;
    uint8_t *made = (uint8_t *)to + done * out;
    p->run(g->scale, g->numbers, rows, period, from, from_apart, NULL, NULL, 0, to, to_apart);
    p->run(g->scale, g->numbers, 1, whole, at, 0, NULL, NULL, 0, made, 0);
    if (done + whole < count) {
        const struct bs_glue_rows rest = {1, count - done - whole, 0, 0};
        const struct operands few = {at + whole * in, NULL, made + whole * out};
        run_few(p, g->scale + whole, g->numbers, rest, few);
    }
}
