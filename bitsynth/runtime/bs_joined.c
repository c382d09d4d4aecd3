/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Results of joined pixels, whose accumulators fill whole units together. */
#include "bs_call.h"

#include <string.h>

/* Removes columns that are no channels from a strip's accumulators, and fills a period with zeros.
 */
static void join_sums(const struct call *c, const struct strip *strip, size_t end, int32_t *sums)
{
    const size_t columns = strip->columns, count = strip->rows * columns;
    if (c->strip_columns != columns)
        for (size_t row = 1; row < strip->rows; ++row)
            memmove(sums + row * columns, sums + row * c->strip_columns, columns * sizeof *sums);
    memset(sums + count, 0, (end - count) * sizeof *sums);
}

/* Runs a program on `periods`. */
static void run_periods(
    const struct bs_epilogue *program,
    const void *constants,
    const void *shared,
    size_t periods,
    size_t period,
    const int32_t *sums,
    const void *other,
    void *to)
{
    program->finish(
        constants,
        shared,
        periods,
        period,
        sums,
        period * sizeof *sums,
        NULL,
        other,
        period * program->other_bytes,
        to,
        period * (program->result_bits / 8));
}

/* After the last whole period the residual has elements of other pixels, or ends. */
static void add_joined(const struct call *c, const struct strip *strip, int32_t *sums)
{
    const struct bs_layer *l = c->layer;
    const struct bs_epilogue *add = l->residual;
    const size_t pixels = l->joined_pixels, period = pixels * strip->columns;
    const size_t whole = strip->rows / pixels, rest = strip->rows % pixels * strip->columns;
    const size_t first = (c->image * c->out.height * c->out.width + strip->p) * strip->columns;
    const uint8_t *elements = c->residual + first * add->other_bytes;
    const void *constants = l->residual_constants, *shared = l->residual_shared;
    run_periods(add, constants, shared, whole, period, sums, elements, sums);
    if (rest) {
        int32_t last[BS_LONGEST_PERIOD] = {0}, *from = sums + whole * period;
        memcpy(last, elements + whole * period * add->other_bytes, rest * add->other_bytes);
        run_periods(add, constants, shared, 1, period, from, last, from);
    }
    if (c->sum)
        memcpy(c->sum + first * sizeof *sums, sums, strip->rows * strip->columns * sizeof *sums);
}

/* Computes the results of `periods`. */
static void run_program(
    const struct bs_layer *l, size_t periods, size_t period, const int32_t *sums, uint8_t *to)
{
    const void *constants = l->unit_constants, *shared = l->shared_constants;
    run_periods(l->program, constants, shared, periods, period, sums, NULL, to);
}

void bs_finish_joined(
    const struct call *c, const struct strip *strip, const int32_t *row, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const size_t whole = strip->rows / l->joined_pixels, rest = strip->rows % l->joined_pixels,
                 period = l->joined_pixels * strip->columns,
                 bytes = strip->columns * bs_out_bytes(l);
    uint8_t *to = bs_pixel_output(c, strip->p, 0);
    if (l->affine || l->residual)
        bs_values(c, strip, row, s->strip, s->strip, c->strip_columns);
    else if (l->padding)
        bs_pad_sums(c, strip, bs_whole_columns(c, strip), s->strip, c->strip_columns);
    join_sums(c, strip, (whole + (rest != 0)) * period, s->strip);
    if (l->residual)
        add_joined(c, strip, s->strip);
    if (!l->program) {
        memcpy(to, s->strip, strip->rows * bytes);
        return;
    }
    run_program(l, whole, period, s->strip, to);
    if (rest) {
        run_program(l, 1, period, s->strip + whole * period, s->results);
        memcpy(to + whole * l->joined_pixels * bytes, s->results, rest * bytes);
    }
}
