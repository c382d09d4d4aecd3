/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* The results of a strip's accumulators. */
#include "bs_exact.h"

#include "bs_call.h"

#include <string.h>

/* Returns the bytes of the results of a pixel's columns. */
static size_t result_bytes(const struct bs_layer *l, size_t columns)
{
    return bs_makes_words(l) ? ceiling(columns, 64) * l->out_bits * sizeof(uint64_t)
                             : columns * bs_out_bytes(l);
}

uint8_t *bs_pixel_output(const struct call *c, size_t p, size_t column)
{
    const struct bs_layer *l = c->layer;
    const size_t pixel = result_bytes(l, l->groups * l->out_channels);
    const size_t first = result_bytes(l, c->group * l->out_channels + column);
    if (c->codes)
        return c->codes + (p - c->first_codes) * pixel + first;
    return c->output + (c->image * c->out.height * c->out.width + p) * pixel + first;
}

/* Copies the results of a strip, rows `apart` bytes from each other, to the output. */
static void store_results(
    const struct call *c, const struct strip *strip, const uint8_t *from, size_t apart)
{
    const struct bs_layer *l = c->layer;
    const size_t bytes = bs_out_bytes(l), pixel = result_bytes(l, l->groups * l->out_channels);
    uint8_t *to = bs_pixel_output(c, strip->p, strip->column);
    for (size_t row = 0; row < strip->rows; ++row, from += apart, to += pixel)
        memcpy(to, from, strip->columns * bytes);
}

/* Copies the results of a strip to an output of channels first. */
static void store_channels_first(
    const struct call *c, const struct strip *strip, const uint8_t *from, size_t apart)
{
    const struct bs_layer *l = c->layer;
    const size_t plane = c->out.height * c->out.width, bytes = bs_out_bytes(l);
    const size_t first = (c->image * l->groups + c->group) * l->out_channels + strip->column;
    uint8_t *to = c->output + (first * plane + strip->p) * bytes;
    const struct bs_matrix m = {bytes, strip->rows, strip->columns, apart, plane * bytes};
    bs_transpose(m, from, to);
}

void bs_transpose_pixels(const struct call *c, size_t from, size_t to)
{
    const struct bs_layer *l = c->layer;
    const size_t plane = c->out.height * c->out.width, bytes = bs_out_bytes(l),
                 channels = l->groups * l->out_channels;
    const struct bs_matrix m = {bytes, to - from, channels, channels * bytes, plane * bytes};
    const uint8_t *codes = c->codes + (from - c->first_codes) * channels * bytes;
    bs_transpose(m, codes, c->output + (c->image * channels * plane + from) * bytes);
}

/* Moves the accumulators of a partial unit to the program's places of their channels. */
static void spread_tail(const struct call *c, const struct strip *strip, int32_t *sums)
{
    const struct bs_layer *l = c->layer;
    const size_t unit = l->program->unit, count = strip->columns % unit;
    int32_t whole[BS_LARGEST_UNIT];
    sums += strip->columns - count;
    for (size_t row = 0; row < strip->rows; ++row, sums += c->strip_columns) {
        memset(whole, 0, unit * sizeof *whole);
        for (size_t j = 0; j < count; ++j)
            whole[l->tail[j]] = sums[j];
        memcpy(sums, whole, unit * sizeof *whole);
    }
}

/* Clears the bits of words that belong to no channel. */
static void clear_tail(
    const struct bs_layer *l, const struct strip *strip, uint8_t *to, size_t apart)
{
    uint64_t channels = 0;
    for (size_t j = 0; j < strip->columns % 64; ++j)
        channels |= UINT64_C(1) << (j % 8 * 8 + j / 8);
    to += strip->columns / 64 * l->out_bits * sizeof channels;
    for (size_t row = 0; row < strip->rows; ++row, to += apart)
        for (size_t bit = 0; bit < l->out_bits; ++bit)
            ((uint64_t *)(void *)to)[bit] &= channels;
}

/* Computes the results of `count` units from unit `first` of the strip on. */
static void run_units(
    const struct call *c,
    const struct strip *strip,
    const int32_t *row,
    const int32_t *sums,
    size_t first,
    size_t count,
    uint8_t *to,
    size_t apart)
{
    const struct bs_layer *l = c->layer;
    const struct bs_epilogue *program = l->program;
    const size_t units = c->group * ceiling(l->out_channels, program->unit),
                 unit = units + strip->column / program->unit + first;
    program->finish(
        l->unit_constants + unit * program->constant_bytes,
        l->shared_constants,
        strip->rows,
        count * program->unit,
        sums + first * program->unit,
        c->strip_columns * sizeof *sums,
        row,
        NULL,
        0,
        to + first * (program->unit * program->result_bits / 8),
        apart);
}

static void run_program(
    const struct call *c,
    const struct strip *strip,
    const int32_t *row,
    const int32_t *sums,
    uint8_t *to,
    size_t apart)
{
    const struct bs_layer *l = c->layer;
    const size_t units = ceiling(strip->columns, l->program->unit);
    run_units(c, strip, row, sums, 0, units, to, apart);
    if (bs_makes_words(l) && strip->columns % 64)
        clear_tail(l, strip, to, apart);
}

/* Computes the results of pixels that are neighbours in memory. The last unit of a pixel writes
 * over the next pixel, which is computed after it; the last pixels go through the scratch. */
static void run_side_by_side(
    const struct call *c,
    const struct strip *strip,
    const int32_t *row,
    const int32_t *sums,
    const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const size_t unit = l->program->unit, units = ceiling(strip->columns, unit),
                 whole = strip->columns / unit, bytes = bs_out_bytes(l),
                 pixel = strip->columns * bytes,
                 behind = ceiling(units * unit - strip->columns, strip->columns);
    struct strip some = *strip;
    uint8_t *to = bs_pixel_output(c, strip->p, 0);
    some.rows = strip->rows - least(strip->rows, behind);
    run_units(c, &some, row, sums, whole, units - whole, to, pixel);
    run_units(c, &some, row, sums, 0, whole, to, pixel);
    sums += some.rows * c->strip_columns;
    to += some.rows * pixel;
    row = row ? row + some.rows : NULL;
    some.rows = strip->rows - some.rows;
    run_program(c, &some, row, sums, s->results, c->strip_columns * bytes);
    for (size_t i = 0; i < some.rows; ++i, to += pixel)
        memcpy(to, s->results + i * c->strip_columns * bytes, pixel);
}

/* Prepares a strip's accumulators in place for the program; returns the `row` it reads. */
static const int32_t *make_values(
    const struct call *c, const struct strip *strip, const int32_t *row, int32_t *sums)
{
    const struct bs_layer *l = c->layer;
    const size_t unit = l->program->unit, columns = ceiling(strip->columns, unit) * unit;
    if (l->residual) {
        bs_add_residual(c, strip, row, sums);
        row = NULL;
        if (l->program->order)
            l->program->order(strip->rows, columns, c->strip_columns, sums);
    } else if (l->affine) {
        bs_values(c, strip, row, sums, sums, c->strip_columns);
        row = NULL;
    } else if (l->padding)
        bs_pad_sums(c, strip, bs_whole_columns(c, strip), sums, c->strip_columns);
    if (l->tail && strip->columns % unit)
        spread_tail(c, strip, sums);
    return row;
}

/* Stores values as results. */
static void finish_values(
    const struct call *c,
    const struct strip *strip,
    const int32_t *row,
    int32_t *sums,
    uint8_t *to,
    size_t apart)
{
    if (!c->layer->residual) {
        bs_values(c, strip, row, sums, (int32_t *)(void *)to, apart / sizeof *sums);
        return;
    }
    bs_add_residual(c, strip, row, sums);
    bs_copy_values(c, strip, sums, to, apart);
}

static void finish_to(
    const struct call *c,
    const struct strip *strip,
    const int32_t *row,
    int32_t *sums,
    uint8_t *to,
    size_t apart)
{
    if (c->layer->program)
        run_program(c, strip, make_values(c, strip, row, sums), sums, to, apart);
    else
        finish_values(c, strip, row, sums, to, apart);
}

void bs_finish(const struct call *c, const struct strip *strip, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const int32_t *row = l->kernel && l->kernel->row_affines ? s->affine + strip->place : NULL;
    const size_t apart = c->strip_columns * bs_out_bytes(l);
    if (l->joined_pixels) {
        bs_finish_joined(c, strip, row, s);
        return;
    }
    if (!c->results_bytes) {
        uint8_t *to = bs_pixel_output(c, strip->p, strip->column);
        finish_to(c, strip, row, s->strip, to, result_bytes(l, l->groups * l->out_channels));
        return;
    }
    if (l->program && l->out_layout != BS_NCHW && strip->columns == l->groups * l->out_channels) {
        run_side_by_side(c, strip, make_values(c, strip, row, s->strip), s->strip, s);
        return;
    }
    finish_to(c, strip, row, s->strip, s->results, apart);
    if (l->out_layout == BS_NCHW)
        store_channels_first(c, strip, s->results, apart);
    else
        store_results(c, strip, s->results, apart);
}
