/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Depthwise and grouped convolutions of few channels: output channels in lanes, summed over taps.
 */
#include "bs_depthwise.h"

#include <string.h>

/* Returns the lines that are transposed together, enough for vector registers; or all. */
static size_t transposed_parts(size_t lines, size_t width)
{
    const size_t fewest = ceiling(BS_TRANSPOSED, width);
    return lines < fewest ? 1 : lines / fewest;
}

/* Returns how many neighbouring pixels a unit holds: as many as divide a row of the output. */
static size_t joined_pixels(const struct bs_layer *l, size_t width)
{
    size_t pixels = l->joined_pixels ? l->joined_pixels : 1;
    while (width % pixels)
        --pixels;
    return pixels;
}

static void plan_lines(struct depthwise *d)
{
    const struct bs_layer *l = d->call.layer;
    d->joined = joined_pixels(l, d->call.out.width);
    d->splits = d->joined > 1 ? l->stride_w : 1;
    d->call.out.width /= d->joined;
    d->in_channels = times(l->groups, l->in_channels);
    d->channels = times(times(l->groups, l->out_channels), d->joined);
    d->padded = times(ceiling(d->channels, l->depthwise->unit), l->depthwise->unit);
    d->pixel_bytes = d->joined > 1 ? d->in_channels : d->padded;
    d->phases = l->in_channels;
    d->taps = times(times(times(l->kernel_h, l->kernel_w), d->phases), l->tap_parts);
    d->steps = ceiling(d->taps, l->depthwise->taps);
    d->lines = least(plus(times(l->kernel_h - 1, l->dilation_h), 1), d->call.in.height);
    d->width = plus(d->call.in.width, plus(l->pad_left, l->pad_right));
    /* Units that joined pixels do not fill are read whole, too. */
    const size_t behind = d->joined > 1 ? d->padded : 0;
    d->phase_bytes = aligned(plus(times(ceiling(d->width, d->splits), d->pixel_bytes), behind));
    d->line_bytes = times(times(d->phases, d->splits), d->phase_bytes);
    d->transposed_lines = 1;
    if (l->in_layout == BS_NCHW) {
        const struct bs_shape *in = &d->call.in;
        d->transposed_lines = ceiling(in->height, transposed_parts(in->height, in->width));
    }
    if (d->transposed_lines > 1)
        d->transposed_bytes =
            aligned(times(times(d->transposed_lines, d->call.in.width), d->in_channels));
}

/* A band is one row, unless results are transposed. */
static void plan_bands(struct depthwise *d)
{
    struct call *c = &d->call;
    const size_t rows = c->out.height, width = c->out.width;
    const int transposes = c->layer->out_layout == BS_NCHW;
    d->bands = transposes ? transposed_parts(rows, width) : rows;
    if (transposes || bs_words_later(&d->one)) {
        const size_t pixels = times(ceiling(rows, d->bands), width);
        c->codes_bytes = aligned(times(times(pixels, d->channels), bs_out_bytes(&d->one)));
    }
    const size_t sums = times(width, c->layer->out_places);
    d->sums_bytes = aligned(times(sums, sizeof(int32_t)));
    if (d->channels % bs_unit(&d->one) && !bs_makes_words(&d->one))
        c->results_bytes = aligned(times(sums, bs_out_bytes(&d->one)));
}

static void plan_slots(struct depthwise *d, size_t threads)
{
    struct call *c = &d->call;
    const struct bs_layer *l = c->layer;
    d->held_bytes = aligned(times(plus(d->lines, 1), sizeof(size_t)));
    d->pointers_bytes = aligned(times(times(d->steps, l->depthwise->taps), sizeof(uint8_t *)));
    if (!bs_is_plain(l) || d->splits > 1)
        d->codes_bytes = aligned(plus(times(c->in.width, d->in_channels), 8));
    d->slot_bytes = plus(
        plus(plus(d->held_bytes, d->pointers_bytes), plus(d->codes_bytes, d->transposed_bytes)),
        plus(plus(d->sums_bytes, c->results_bytes), c->codes_bytes));
    d->slot_bytes = plus(d->slot_bytes, times(plus(d->lines, 1), d->line_bytes));
    c->slots = least(threads ? threads : 1, times(c->in.batch, d->bands));
    c->arena_bytes = times(c->slots, d->slot_bytes);
}

/* Returns whether the arena, input or output exceed any object. */
static int is_too_large(const struct depthwise *d)
{
    const struct call *c = &d->call;
    const size_t read = times(times(c->in.batch, times(c->in.height, c->in.width)), d->in_channels),
                 written =
                     times(times(c->out.batch, times(c->out.height, c->out.width)), d->channels);
    const size_t weights = times(times(d->padded, d->steps), c->layer->depthwise->taps);
    return (c->arena_bytes | times(read, 8) | times(written, 8) | weights) > PTRDIFF_MAX;
}

static int plan(
    struct depthwise *d, const struct bs_layer *layer, struct bs_shape in, size_t threads)
{
    memset(d, 0, sizeof *d);
    d->call.layer = layer;
    d->call.in = in;
    d->call.out = bs_layer_output(layer, in);
    if (d->call.out.batch == 0 || d->call.out.height == 0 || d->call.out.width == 0)
        return BS_EMPTY;
    plan_lines(d);
    d->one = *layer;
    d->one.groups = 1;
    d->one.in_channels = d->in_channels;
    d->one.out_channels = d->channels;
    d->one.joined_pixels = 0;
    if (layer->out_layout == BS_NCHW)
        d->one.out_layout = BS_NHWC;
    plan_bands(d);
    plan_slots(d, threads);
    return is_too_large(d) ? BS_ARENA : BS_OK;
}

static struct slot slot_of(const struct depthwise *d, size_t number)
{
    uint8_t *at = d->call.arena + number * d->slot_bytes;
    struct slot s;
    s.held = (size_t *)(void *)at;
    at += d->held_bytes;
    s.pointers = (const uint8_t **)(void *)at;
    at += d->pointers_bytes;
    memset(&s.results, 0, sizeof s.results);
    s.results.strip = (int32_t *)(void *)at;
    at += d->sums_bytes;
    s.results.results = at;
    at += d->call.results_bytes;
    s.codes = at;
    at += d->codes_bytes;
    s.transposed = at;
    at += d->transposed_bytes;
    s.made = at;
    at += d->call.codes_bytes;
    s.ring = at;
    s.pad = at + d->lines * d->line_bytes;
    return s;
}

/* Computes the addresses of the taps of the first pixel of output row oy. */
static void point_taps(const struct depthwise *d, const struct slot *s, size_t oy)
{
    const struct bs_layer *l = d->call.layer;
    const uint8_t **to = s->pointers;
    for (size_t ky = 0; ky < l->kernel_h; ++ky) {
        const size_t y = oy * l->stride_h + ky * l->dilation_h - l->pad_top;
        const uint8_t *line = y < d->call.in.height ? bs_line_at(d, s, y) : s->pad;
        for (size_t kx = 0; kx < l->kernel_w; ++kx)
            for (size_t i = 0; i < d->phases; ++i)
                for (size_t part = 0; part < l->tap_parts; ++part)
                    *to++ = line + bs_place_of(d, kx * l->dilation_w) + i * d->phase_bytes;
    }
    for (size_t tap = d->taps; tap < d->steps * l->depthwise->taps; ++tap)
        *to++ = s->pad;
}

/* Computes a row of output: accumulators, then results. */
static void compute_row(
    const struct depthwise *d, const struct call *one, size_t oy, const struct slot *s)
{
    const struct bs_layer *l = d->call.layer;
    const size_t width = d->call.out.width;
    const struct strip strip = {oy * width, width, 0, 0, d->channels};
    const int stored = bs_stored_at_once(&d->one) && !l->padding && d->channels == d->padded;
    int32_t *sums = stored ? (int32_t *)(void *)bs_pixel_output(one, strip.p, 0) : s->results.strip;
    l->depthwise->run(
        width,
        d->padded / l->depthwise->unit,
        d->steps,
        s->pointers,
        l->stride_w / d->splits * d->joined * d->pixel_bytes,
        l->weights,
        l->start,
        sums,
        stored ? d->channels : one->strip_columns);
    if (!stored)
        bs_finish(one, &strip, &s->results);
}

static void compute_band(const struct depthwise *d, size_t from, size_t to, const struct slot *s)
{
    const size_t width = d->call.out.width;
    struct call one = d->call;
    one.layer = &d->one;
    one.codes = one.codes_bytes ? s->made : NULL;
    one.first_codes = from * width;
    one.strip_columns = d->one.out_places;
    for (size_t oy = from; oy < to; ++oy) {
        point_taps(d, s, oy);
        if (!d->call.packs_only)
            compute_row(d, &one, oy, s);
    }
    if (d->call.packs_only || !one.codes)
        return;
    if (bs_words_later(&d->one))
        bs_pack_pixels(&one, from * width, to * width);
    else
        bs_transpose_pixels(&one, from * width, to * width);
}

/* Computes a part of the bands of all images. */
static void bands_task(void *argument, size_t number)
{
    struct depthwise d = *(const struct depthwise *)argument;
    const struct bs_layer *l = d.call.layer;
    const struct slot s = slot_of(&d, number);
    const size_t bands = d.call.in.batch * d.bands, slots = d.call.slots, rows = d.call.out.height;
    const size_t from = part(bands, number, slots), to = part(bands, number + 1, slots);
    memset(s.results.strip, 0, d.sums_bytes); /* units may have more columns than registers */
    memset(s.ring, (int)(l->pad_code ^ l->depthwise->flip), (d.lines + 1) * d.line_bytes);
    for (size_t i = from; i < to; ++i) {
        const size_t band = i % d.bands;
        if (i == from || band == 0)
            memset(s.held, 0, d.held_bytes);
        d.call.image = i / d.bands;
        compute_band(&d, part(rows, band, d.bands), part(rows, band + 1, d.bands), &s);
    }
}

size_t bs_depthwise_arena_bytes(const struct bs_layer *layer, struct bs_shape in, size_t threads)
{
    struct depthwise d;
    const int status = plan(&d, layer, in, threads);
    if (status != BS_OK)
        return status == BS_EMPTY ? 0 : SIZE_MAX;
    return d.call.arena_bytes;
}

int bs_depthwise_run(
    const struct bs_layer *layer,
    struct bs_shape in,
    const struct bs_tensors *tensors,
    int packs_only,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool)
{
    struct depthwise d;
    int status = plan(&d, layer, in, pool ? pool->threads : 1);
    if (status != BS_OK)
        return status;
    if (arena_bytes < d.call.arena_bytes)
        return BS_ARENA;
    d.call.packs_only = packs_only;
    status = bs_set_tensors(&d.call, tensors, arena);
    if (status != BS_OK)
        return status;
    bs_run(pool, bands_task, &d, d.call.slots);
    return BS_OK;
}
