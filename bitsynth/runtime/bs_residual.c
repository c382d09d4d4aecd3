/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* The residual, a second tensor that is added to values before the epilogue. */
#include "bs_call.h"

#include <string.h>

int bs_set_tensors(struct call *c, const struct bs_tensors *tensors, void *arena)
{
    const int missing = c->layer->residual && !tensors->residual,
              superfluous = !c->layer->residual && (tensors->residual || tensors->sum);
    c->input = tensors->input;
    c->residual = tensors->residual;
    c->output = tensors->output;
    c->sum = tensors->sum;
    c->arena = arena;
    if (!c->input || !arena || (!c->output && !c->packs_only))
        return BS_NULL;
    return !c->packs_only && (missing || superfluous) ? BS_RESIDUAL : BS_OK;
}

/* Returns the first element of a strip in a tensor of the output's shape, channels last. */
static size_t element_of(const struct call *c, const struct strip *strip)
{
    const struct bs_layer *l = c->layer;
    const size_t pixel = c->image * c->out.height * c->out.width + strip->p;
    return (pixel * l->groups + c->group) * l->out_channels + strip->column;
}

static void add_columns(
    const struct call *c,
    size_t column,
    size_t rows,
    size_t columns,
    int32_t *sums,
    const uint8_t *elements,
    size_t apart)
{
    const struct bs_layer *l = c->layer;
    const struct bs_epilogue *add = l->residual;
    const size_t unit = c->group * ceiling(l->out_channels, add->unit) + column / add->unit;
    const size_t sums_apart = c->strip_columns * sizeof *sums;
    add->finish(
        l->residual_constants + unit * add->constant_bytes,
        l->residual_shared,
        rows,
        columns,
        sums,
        sums_apart,
        NULL,
        elements,
        apart,
        sums,
        sums_apart);
}

/* Adds the residual to columns of a partial unit, row by row: elements of other pixels follow. */
static void add_tail(
    const struct call *c,
    const struct strip *strip,
    int32_t *sums,
    const uint8_t *elements,
    size_t apart)
{
    const struct bs_epilogue *add = c->layer->residual;
    const size_t count = strip->columns % add->unit, whole = strip->columns - count;
    int32_t unit[BS_LARGEST_UNIT] = {0};
    for (size_t row = 0; row < strip->rows; ++row, sums += c->strip_columns, elements += apart) {
        memcpy(unit, elements + whole * add->other_bytes, count * add->other_bytes);
        add_columns(
            c, strip->column + whole, 1, add->unit, sums + whole, (const uint8_t *)unit, apart);
    }
}

void bs_copy_values(
    const struct call *c,
    const struct strip *strip,
    const int32_t *values,
    uint8_t *to,
    size_t to_apart)
{
    for (size_t row = 0; row < strip->rows; ++row, values += c->strip_columns, to += to_apart)
        memcpy(to, values, strip->columns * sizeof *values);
}

void bs_add_residual(
    const struct call *c, const struct strip *strip, const int32_t *row, int32_t *sums)
{
    const struct bs_layer *l = c->layer;
    const size_t bytes = l->residual->other_bytes, pixel = l->groups * l->out_channels,
                 first = element_of(c, strip), tail = strip->columns % l->residual->unit;
    const uint8_t *elements = c->residual + first * bytes;
    bs_values(c, strip, row, sums, sums, c->strip_columns);
    add_columns(
        c, strip->column, strip->rows, strip->columns - tail, sums, elements, pixel * bytes);
    if (tail)
        add_tail(c, strip, sums, elements, pixel * bytes);
    if (c->sum)
        bs_copy_values(c, strip, sums, c->sum + first * sizeof *sums, pixel * sizeof *sums);
}

struct finite_job {
    const uint32_t *bits;
    size_t count, slots;
    int bad;
};

static void finite_task(void *argument, size_t slot)
{
    static const uint32_t exponent = 0x7f800000;
    struct finite_job *j = argument;
    const size_t end = part(j->count, slot + 1, j->slots);
    uint32_t bad = 0;
    for (size_t i = part(j->count, slot, j->slots); i < end; ++i)
        bad |= (j->bits[i] & exponent) == exponent;
    if (bad)
        __atomic_store_n(&j->bad, 1, __ATOMIC_RELAXED);
}

int bs_layer_finite(
    const struct bs_layer *layer, struct bs_shape in, const void *residual, struct bs_pool *pool)
{
    const struct bs_shape out = bs_layer_output(layer, in);
    struct finite_job job = {residual, 0, pool ? pool->threads : 1, 0};
    job.count = out.batch * out.height * out.width * layer->groups * layer->out_channels;
    bs_run(pool, finite_task, &job, job.slots);
    return !job.bad;
}
