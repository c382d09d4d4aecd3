/* Convolutions with few channels a group: output channels in lanes, sums over taps lane by lane. */
#include "bs_call.h"

#include <string.h>

/* A call, and the sizes of its scratch. Lines of the input lie padded in a ring of as many as a
 * window reaches over; each has `phases` lines of output channels, one for every input channel of a
 * group. */
struct depthwise {
    struct call call;
    struct bs_layer one; /* the layer as results see it: all channels in one group */
    size_t in_channels, channels, padded; /* of all groups; padded to whole units */
    size_t phases, taps, steps;
    size_t lines, width, phase_bytes, line_bytes;
    size_t held_bytes, pointers_bytes, codes_bytes, sums_bytes, slot_bytes;
};

/* What a task works in. */
struct slot {
    size_t *held; /* the number of the line in each place of the ring from 1 on, 0 for none */
    const uint8_t **pointers;
    uint8_t *ring, *pad, *codes;
    struct scratch results; /* sums of a row, and what is made of them */
};

static void plan_lines(struct depthwise *d)
{
    const struct bs_layer *l = d->call.layer;
    d->in_channels = times(l->groups, l->in_channels);
    d->channels = times(l->groups, l->out_channels);
    d->padded = times(ceiling(d->channels, l->depthwise->unit), l->depthwise->unit);
    d->phases = l->in_channels;
    d->taps = times(times(times(l->kernel_h, l->kernel_w), d->phases), l->tap_parts);
    d->steps = ceiling(d->taps, l->depthwise->taps);
    d->lines = least(plus(times(l->kernel_h - 1, l->dilation_h), 1), d->call.in.height);
    d->width = plus(d->call.in.width, plus(l->pad_left, l->pad_right));
    d->phase_bytes = aligned(times(d->width, d->padded));
    d->line_bytes = times(d->phases, d->phase_bytes);
}

/* Whether lines are as they lie in memory, but for padding. */
static int is_plain(const struct bs_layer *l)
{
    return l->in_channels == 1 && l->out_channels == 1;
}

static void plan_slots(struct depthwise *d, size_t threads)
{
    struct call *c = &d->call;
    const struct bs_layer *l = c->layer;
    d->held_bytes = aligned(times(d->lines, sizeof(size_t)));
    d->pointers_bytes = aligned(times(times(d->steps, l->depthwise->taps), sizeof(uint8_t *)));
    if (!is_plain(l))
        d->codes_bytes = aligned(times(c->in.width, d->in_channels));
    d->sums_bytes = aligned(times(times(c->out.width, l->out_places), sizeof(int32_t)));
    if (l->out_layout == BS_NCHW)
        c->results_bytes = aligned(times(times(c->out.width, l->out_places), bs_out_bytes(l)));
    d->slot_bytes = plus(
        plus(plus(d->held_bytes, d->pointers_bytes), plus(d->codes_bytes, d->sums_bytes)),
        plus(c->results_bytes, times(plus(d->lines, 1), d->line_bytes)));
    c->slots = least(threads ? threads : 1, times(c->in.batch, c->out.height));
    c->arena_bytes = times(c->slots, d->slot_bytes);
}

/* Whether no memory could hold the arena, or what is read and written. */
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
    plan_slots(d, threads);
    d->one = *layer;
    d->one.groups = 1;
    d->one.in_channels = d->in_channels;
    d->one.out_channels = d->channels;
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
    s.ring = at;
    s.pad = at + d->lines * d->line_bytes;
    return s;
}

/* The codes of line y, channels last, pixels `apart` bytes from each other. */
static void read_line(const struct depthwise *d, size_t y, uint8_t *to, size_t apart)
{
    const struct call *c = &d->call;
    const size_t width = c->in.width, channels = d->in_channels, bits = c->layer->act_bits,
                 number = c->image * c->in.height + y;
    if (c->layer->in_layout == BS_NHWC) {
        const uint8_t *from = c->input + number * width * channels;
        for (size_t x = 0; x < width; ++x)
            memcpy(to + x * apart, from + x * channels, channels);
    } else if (c->layer->in_layout == BS_NCHW) {
        const size_t plane = c->in.height * width;
        const uint8_t *from = c->input + c->image * channels * plane + y * width;
        for (size_t channel = 0; channel < channels; ++channel)
            for (size_t x = 0; x < width; ++x)
                to[x * apart + channel] = from[channel * plane + x];
    } else {
        const size_t words = bs_packed_words(bits, channels);
        const uint64_t *from = (const uint64_t *)(const void *)c->input + number * width * words;
        for (size_t x = 0; x < width; ++x)
            bs_unpack_codes(bits, channels, from + x * words, to + x * apart);
    }
}

/* From input channels to output channels: phase i has input channel i of every channel's group. */
static void spread_line(const struct depthwise *d, const uint8_t *codes, uint8_t *to)
{
    const struct bs_layer *l = d->call.layer;
    for (size_t i = 0; i < d->phases; ++i)
        for (size_t x = 0; x < d->call.in.width; ++x) {
            const uint8_t *from = codes + x * d->in_channels + i;
            uint8_t *at = to + i * d->phase_bytes + x * d->padded;
            for (size_t group = 0; group < l->groups; ++group, from += l->in_channels)
                for (size_t j = 0; j < l->out_channels; ++j)
                    *at++ = *from;
        }
}

static void flip_line(const struct depthwise *d, uint8_t *line)
{
    for (size_t i = 0; i < d->phases; ++i)
        for (size_t x = 0; x < d->call.in.width * d->padded; ++x)
            line[i * d->phase_bytes + x] ^= d->call.layer->depthwise->flip;
}

/* Line y of the input in the ring. */
static const uint8_t *line_at(const struct depthwise *d, const struct slot *s, size_t y)
{
    const struct bs_layer *l = d->call.layer;
    uint8_t *line = s->ring + y % d->lines * d->line_bytes, *to = line + l->pad_left * d->padded;
    if (s->held[y % d->lines] == y + 1)
        return line;
    s->held[y % d->lines] = y + 1;
    if (is_plain(l))
        read_line(d, y, to, d->padded);
    else {
        read_line(d, y, s->codes, d->in_channels);
        spread_line(d, s->codes, to);
    }
    if (l->depthwise->flip)
        flip_line(d, to);
    return line;
}

/* Where the taps of the first pixel of output row oy lie. */
static void point_taps(const struct depthwise *d, const struct slot *s, size_t oy)
{
    const struct bs_layer *l = d->call.layer;
    const uint8_t **to = s->pointers;
    for (size_t ky = 0; ky < l->kernel_h; ++ky) {
        const size_t y = oy * l->stride_h + ky * l->dilation_h - l->pad_top;
        const uint8_t *line = y < d->call.in.height ? line_at(d, s, y) : s->pad;
        for (size_t kx = 0; kx < l->kernel_w; ++kx)
            for (size_t i = 0; i < d->phases; ++i)
                for (size_t part = 0; part < l->tap_parts; ++part)
                    *to++ = line + i * d->phase_bytes + kx * l->dilation_w * d->padded;
    }
    for (size_t tap = d->taps; tap < d->steps * l->depthwise->taps; ++tap)
        *to++ = s->pad;
}

/* Sums of a row of output, and its results. */
static void compute_row(struct depthwise *d, const struct slot *s, size_t oy)
{
    const struct bs_layer *l = d->call.layer;
    const size_t width = d->call.out.width;
    const struct strip strip = {oy * width, width, 0, 0, d->channels};
    const int stored = bs_stored_at_once(l) && d->channels == d->padded;
    struct call one = d->call;
    one.layer = &d->one;
    one.strip_columns = stored ? d->channels : l->out_places;
    int32_t *sums =
        stored ? (int32_t *)(void *)bs_pixel_output(&one, strip.p, 0) : s->results.strip;
    l->depthwise->run(
        width,
        d->padded / l->depthwise->unit,
        d->steps,
        s->pointers,
        l->stride_w * d->padded,
        l->weights,
        l->start,
        sums,
        one.strip_columns);
    if (!stored)
        bs_finish(&one, strip, &s->results);
}

/* A part of the rows of all images. */
static void rows_task(void *argument, size_t number)
{
    struct depthwise d = *(const struct depthwise *)argument;
    const struct bs_layer *l = d.call.layer;
    const struct slot s = slot_of(&d, number);
    const size_t rows = d.call.out.batch * d.call.out.height, slots = d.call.slots;
    const size_t from = rows / slots * number + rows % slots * number / slots,
                 to = rows / slots * (number + 1) + rows % slots * (number + 1) / slots;
    memset(s.results.strip, 0, d.sums_bytes); /* units may have more columns than registers */
    memset(s.ring, (int)(l->pad_code ^ l->depthwise->flip), (d.lines + 1) * d.line_bytes);
    for (size_t row = from; row < to; ++row) {
        if (row == from || row % d.call.out.height == 0)
            memset(s.held, 0, d.lines * sizeof *s.held);
        d.call.image = row / d.call.out.height;
        point_taps(&d, &s, row % d.call.out.height);
        if (!d.call.packs_only)
            compute_row(&d, &s, row % d.call.out.height);
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
    const void *input,
    void *output,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool)
{
    struct depthwise d;
    const int status = plan(&d, layer, in, pool ? pool->threads : 1);
    if (status != BS_OK)
        return status;
    if (arena_bytes < d.call.arena_bytes)
        return BS_ARENA;
    d.call.input = input;
    d.call.output = output;
    d.call.arena = arena;
    d.call.packs_only = output == NULL;
    bs_run(pool, rows_task, &d, d.call.slots);
    return BS_OK;
}
