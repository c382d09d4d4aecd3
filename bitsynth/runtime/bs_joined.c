/* From sums to results where the sums of several pixels, one behind the other, fill whole units
 * together. */
#include "bs_call.h"

#include <string.h>

/* The sums of a strip without columns that are no channels; zeros up to the end of a period. */
static void join_sums(const struct call *c, struct strip strip, size_t end, int32_t *sums)
{
    const size_t columns = strip.columns, count = strip.rows * columns;
    if (c->strip_columns != columns)
        for (size_t row = 1; row < strip.rows; ++row)
            memmove(sums + row * columns, sums + row * c->strip_columns, columns * sizeof *sums);
    memset(sums + count, 0, (end - count) * sizeof *sums);
}

/* What a program makes of `periods`. */
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

/* Behind the last whole period the residual has elements of other pixels, or none. */
static void add_joined(const struct call *c, struct strip strip, int32_t *sums)
{
    const struct bs_layer *l = c->layer;
    const struct bs_epilogue *add = l->residual;
    const size_t pixels = l->joined_pixels, period = pixels * strip.columns;
    const size_t whole = strip.rows / pixels, rest = strip.rows % pixels * strip.columns;
    const size_t first = (c->image * c->out.height * c->out.width + strip.p) * strip.columns;
    const uint8_t *elements = c->residual + first * add->other_bytes;
    const void *constants = l->residual_constants, *shared = l->residual_shared;
    run_periods(add, constants, shared, whole, period, sums, elements, sums);
    if (rest) {
        int32_t last[BS_LONGEST_PERIOD] = {0}, *from = sums + whole * period;
        memcpy(last, elements + whole * period * add->other_bytes, rest * add->other_bytes);
        run_periods(add, constants, shared, 1, period, from, last, from);
    }
    if (c->sum)
        memcpy(c->sum + first * sizeof *sums, sums, strip.rows * strip.columns * sizeof *sums);
}

/* Codes of units that lie in the order of channels of the program, in that of sums. */
static void order_codes(const struct bs_layer *l, size_t count, const uint8_t *from, uint8_t *to)
{
    const size_t unit = l->program->unit;
    for (; count >= unit; count -= unit, from += unit, to += unit)
        for (size_t j = 0; j < unit; j += 4)
            memcpy(to + j, from + l->order[j], 4);
    for (size_t j = 0; j < count; ++j)
        to[j] = from[l->order[j]];
}

void bs_finish_joined(
    const struct call *c, struct strip strip, const int32_t *row, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const size_t periods = ceiling(strip.rows, l->joined_pixels),
                 period = l->joined_pixels * strip.columns, count = strip.rows * strip.columns;
    uint8_t *to = bs_pixel_output(c, strip.p, 0);
    if (l->affine || l->residual)
        bs_values(c, strip, row, s->strip, s->strip, c->strip_columns);
    else if (l->padding)
        bs_pad_sums(c, strip, bs_whole_columns(c, strip), s->strip, c->strip_columns);
    join_sums(c, strip, periods * period, s->strip);
    if (l->residual)
        add_joined(c, strip, s->strip);
    if (!l->program) {
        memcpy(to, s->strip, count * sizeof(int32_t));
        return;
    }
    run_periods(
        l->program,
        l->unit_constants,
        l->shared_constants,
        periods,
        period,
        s->strip,
        NULL,
        s->results);
    if (l->order)
        order_codes(l, count, s->results, to);
    else
        memcpy(to, s->results, count * bs_out_bytes(l));
}
