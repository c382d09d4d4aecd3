/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Conversion of accumulators to values: factor, addends, shift, and corrections of padding. */
#include "bs_call.h"

/* Taps of one dimension that lie in the image: from..to. */
struct taps {
    size_t from, to;
};

static struct taps seen(size_t at, size_t pad, size_t size, size_t taps, size_t dilation)
{
    const struct taps all = {0, taps};
    if (at >= pad && at + (taps - 1) * dilation < pad + size)
        return all;
    struct taps some = {at < pad ? ceiling(pad - at, dilation) : 0, 0};
    if (at < pad + size)
        some.to = ceiling(pad + size - at, dilation);
    some.to = least(some.to, taps);
    some.from = least(some.from, some.to);
    return some;
}

/* Output pixels of a line with the same taps in the image. */
struct run {
    size_t pixels;
    struct taps y, x;
};

/* Computes the output pixels of a line all of whose taps lie in the image: from..to. */
static struct taps inner(const struct call *c)
{
    const struct bs_layer *l = c->layer;
    const size_t reach = (l->kernel_w - 1) * l->dilation_w, end = l->pad_left + c->in.width;
    struct taps some = {ceiling(l->pad_left, l->stride_w), 0};
    if (end > reach)
        some.to = least((end - 1 - reach) / l->stride_w + 1, c->out.width);
    return some;
}

/* Returns the run from output (oy, ox) on, at most `most` pixels; `middle` is from `inner`. */
static struct run run_from(
    const struct call *c, struct taps middle, size_t oy, size_t ox, size_t most)
{
    const struct bs_layer *l = c->layer;
    return (struct run){
        ox >= middle.from && ox < middle.to ? least(most, middle.to - ox) : 1,
        seen(oy * l->stride_h, l->pad_top, c->in.height, l->kernel_h, l->dilation_h),
        seen(ox * l->stride_w, l->pad_left, c->in.width, l->kernel_w, l->dilation_w),
    };
}

static int sees_all(const struct call *c, const struct run *run)
{
    const struct bs_layer *l = c->layer;
    return run->y.to - run->y.from == l->kernel_h && run->x.to - run->x.from == l->kernel_w;
}

/* Returns the correction of the pixels' taps on padding, if padding has no code of value 0. */
static void pad_run(
    const struct call *c,
    const struct run *run,
    size_t place,
    size_t count,
    int32_t *restrict sums,
    size_t apart)
{
    const struct bs_layer *l = c->layer;
    const size_t down = (l->kernel_w + 1) * l->out_places;
    const int32_t *terms = l->padding + c->group * (l->kernel_h + 1) * down + place;
    const int32_t *all = terms + l->kernel_h * down + l->kernel_w * l->out_places;
    const int32_t *above = terms + run->y.from * down, *below = terms + run->y.to * down;
    const size_t left = run->x.from * l->out_places, right = run->x.to * l->out_places;
    for (size_t i = 0; i < run->pixels; ++i, sums += apart)
        for (size_t j = 0; j < count; ++j) {
            const uint32_t inside = (uint32_t)below[right + j] - (uint32_t)below[left + j]
                - (uint32_t)above[right + j] + (uint32_t)above[left + j];
            sums[j] = (int32_t)((uint32_t)sums[j] + (uint32_t)all[j] - inside);
        }
}

/* Converts accumulators of factor 1 that include their column's number to values at another place.
 * Unsigned arithmetic may wrap, values do not. */
static void shift_sums(
    size_t rows,
    size_t columns,
    const int32_t *row,
    size_t shift,
    const int32_t *restrict sums,
    size_t sums_apart,
    int32_t *restrict to,
    size_t to_apart)
{
    for (size_t i = 0; i < rows; ++i, sums += sums_apart, to += to_apart) {
        const uint32_t addend = row ? (uint32_t)row[i] : 0;
        for (size_t j = 0; j < columns; ++j)
            to[j] = (int32_t)((uint32_t)sums[j] + addend) >> shift;
    }
}

static void shift_in_place(size_t count, int32_t *sums, uint32_t addend, size_t shift)
{
    for (size_t j = 0; j < count; ++j)
        sums[j] = (int32_t)((uint32_t)sums[j] + addend) >> shift;
}

static void scale_sums(
    size_t count,
    const int32_t *sums,
    uint32_t factor,
    uint32_t addend,
    const int32_t *restrict more,
    size_t shift,
    int32_t *to)
{
    for (size_t j = 0; j < count; ++j)
        to[j] = (int32_t)(factor * (uint32_t)sums[j] + addend + (uint32_t)more[j]) >> shift;
}

/* Converts accumulators to values, without taps on padding if `shift` is not the layer's. */
static void make_pixels(
    const struct call *c,
    const struct strip *strip,
    const int32_t *row,
    size_t shift,
    const int32_t *sums,
    int32_t *to,
    size_t to_apart)
{
    const struct bs_layer *l = c->layer;
    const size_t place = c->group * l->out_places + strip->column, count = strip->columns;
    if (!l->affine && sums != to) {
        shift_sums(strip->rows, count, row, shift, sums, c->strip_columns, to, to_apart);
        return;
    }
    for (size_t i = 0; i < strip->rows; ++i, sums += c->strip_columns, to += to_apart) {
        const uint32_t addend = row ? (uint32_t)row[i] : 0;
        if (l->affine)
            scale_sums(count, sums, (uint32_t)l->factor, addend, l->affine + place, shift, to);
        else
            shift_in_place(count, to, addend, shift);
    }
}

void bs_values(
    const struct call *c,
    const struct strip *strip,
    const int32_t *row,
    const int32_t *sums,
    int32_t *to,
    size_t to_apart)
{
    const struct bs_layer *l = c->layer;
    const int pads = l->padding && !c->pads_results;
    if (sums == to && !row && !l->affine && !l->shift) {
        if (pads)
            bs_pad_sums(c, strip, strip->columns, to, to_apart);
        return;
    }
    const struct taps middle = pads ? inner(c) : (struct taps){0, 0};
    struct strip some = *strip;
    for (size_t i = 0; i < strip->rows; i += some.rows) {
        const size_t left = strip->rows - i, p = strip->p + i, width = c->out.width;
        struct run run = {left, {0, l->kernel_h}, {0, l->kernel_w}};
        if (pads)
            run = run_from(c, middle, p / width, p % width, left);
        const int whole = sees_all(c, &run);
        const int32_t *addends = row ? row + i : NULL, *from = sums + i * c->strip_columns;
        int32_t *there = to + i * to_apart;
        some.rows = run.pixels;
        make_pixels(c, &some, addends, whole ? l->shift : 0, from, there, to_apart);
        if (whole)
            continue;
        pad_run(c, &run, strip->column, strip->columns, there, to_apart);
        for (size_t n = 0; n < run.pixels; ++n)
            shift_in_place(strip->columns, there + n * to_apart, 0, l->shift);
    }
}

void bs_pad_sums(
    const struct call *c, const struct strip *strip, size_t count, int32_t *sums, size_t apart)
{
    const struct taps middle = inner(c);
    size_t oy = strip->p / c->out.width, ox = strip->p % c->out.width, some;
    for (size_t i = 0; i < strip->rows; i += some) {
        const struct run run = run_from(c, middle, oy, ox, strip->rows - i);
        some = run.pixels;
        if (!sees_all(c, &run))
            pad_run(c, &run, strip->column, count, sums + i * apart, apart);
        ox += some;
        if (ox == c->out.width) {
            ox = 0;
            ++oy;
        }
    }
}
