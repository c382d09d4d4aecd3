/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Operators that move pixels and channels without changing them. */
#include "bs_glue_call.h"

#include <string.h>

/* Writes `count` pixels of the fill. */
static uint8_t *filled(const struct glue *c, size_t count, uint8_t *to)
{
    for (size_t i = 0; i < count; ++i, to += c->made_pixel)
        memcpy(to, c->glue->fill, c->made_pixel);
    return to;
}

void bs_glue_pad(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const struct bs_glue *g = c->glue;
    if (y - g->pad_top >= c->in.height) {
        filled(c, c->out.width, to);
        return;
    }
    to = filled(c, g->pad_left, to);
    memcpy(to, bs_glue_input(c, 0, image, y - g->pad_top, s), c->in.width * c->pixel[0]);
    filled(c, g->pad_right, to + c->in.width * c->pixel[0]);
}

/* Returns the input pixel nearest to output pixel `at`: the one it begins in, or that has its
 * center. */
static size_t nearest(const struct bs_glue *g, size_t at, size_t in, size_t out)
{
    const uint64_t twice = 2 * (uint64_t)at + (g->centers ? 1 : 0);
    return (size_t)(twice * in / (2 * (uint64_t)out));
}

void bs_glue_resize(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const size_t pixel = c->pixel[0], from_y = nearest(c->glue, y, c->in.height, c->out.height);
    const uint8_t *from = bs_glue_input(c, 0, image, from_y, s);
    /* nearest() of every pixel: the quotient and what is left over, step by step. */
    const uint64_t step = 2 * (uint64_t)c->in.width, divisor = 2 * (uint64_t)c->out.width;
    const size_t whole = (size_t)(step / divisor) * pixel;
    uint64_t rest = c->glue->centers ? c->in.width : 0;
    from += (size_t)(rest / divisor) * pixel;
    rest %= divisor;
    for (size_t x = 0; x < c->out.width; ++x, to += pixel) {
        memcpy(to, from, pixel);
        from += whole;
        rest += step % divisor;
        if (rest >= divisor) {
            rest -= divisor;
            from += pixel;
        }
    }
}

/* Copies every channel_apart-th byte. */
static void take_channels(const struct bs_glue *g, size_t count, const uint8_t *from, uint8_t *to)
{
    if (g->channel_apart == 1)
        memcpy(to, from, count);
    else
        for (size_t i = 0; i < count; ++i)
            to[i] = from[i * g->channel_apart];
}

void bs_glue_blocks(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const struct bs_glue *g = c->glue;
    const uint8_t *line = bs_glue_input(c, 0, image, y / g->block, s);
    line += y % g->block * g->block * g->pixel_apart;
    for (size_t x = 0; x < c->in.width; ++x, line += c->pixel[0])
        for (size_t place = 0; place < g->block; ++place, to += c->made_pixel)
            take_channels(g, c->made_pixel, line + place * g->pixel_apart, to);
}

void bs_glue_lookup(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const struct bs_glue *g = c->glue;
    const uint8_t *from = bs_glue_input(c, 0, image, y, s);
    const struct bs_glue_program *p = &bs_glue_programs[g->program];
    const size_t count = c->in.width * g->out_channels, columns = g->table_count;
    if (!g->program) {
        const struct bs_glue_rows line = {1, count, 0, 0};
        bs_glue_look_up(g->bits[0], g->tables, line, from, to);
    } else {
        const size_t rows = count / columns, apart = columns * p->to_bytes;
        p->run(g->tables, NULL, rows, columns, from, columns, NULL, NULL, 0, to, apart);
    }
}

void bs_glue_concat(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const struct bs_glue *g = c->glue;
    for (size_t i = 0; i < g->inputs; to += c->pixel[i++]) {
        const uint8_t *from = bs_glue_input(c, i, image, y, s);
        const struct bs_glue_rows at = {c->in.width, c->pixel[i], c->pixel[i], c->made_pixel};
        if (g->tables)
            bs_glue_look_up(g->bits[i], g->tables + i * 256, at, from, to);
        else
            for (size_t x = 0; x < at.rows; ++x)
                memcpy(to + x * at.to_apart, from + x * at.from_apart, at.count);
    }
}
