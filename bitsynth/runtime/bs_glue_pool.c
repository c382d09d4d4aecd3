/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Pooling: the greatest code of a window, and the mean. */
#include "bs_glue_call.h"

#include <string.h>

/* Returns the place of a tap in the input; a place beyond it if the tap is on padding. */
static size_t tap_at(size_t at, size_t stride, size_t tap, size_t dilation, size_t pad)
{
    return at * stride + tap * dilation - pad;
}

static void take(const struct glue *c, struct bs_glue_rows at, const uint8_t *from, uint8_t *to)
{
    bs_glue_words *const of_words = bs_glue_greatest_words[c->glue->bits[0]];
    if (c->glue->words)
        of_words(at.rows, at.count / 8, from, at.from_apart, to, at.to_apart);
    else
        bs_glue_take_greater(at, from, to);
}

/* Computes the greatest of the lines of a window, for each column. */
static void take_lines(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const struct bs_glue *g = c->glue;
    const struct bs_glue_rows line = {1, c->in.width * c->pixel[0], 0, 0};
    size_t taken = 0;
    for (size_t ky = 0; ky < bs_glue_kernel_h(c); ++ky) {
        const size_t at = tap_at(y, g->stride_h, ky, g->dilation_h, g->pad_top);
        if (at >= c->in.height)
            continue;
        const uint8_t *from = bs_glue_input(c, 0, image, at, s);
        if (taken++ == 0)
            memcpy(to, from, line.count);
        else
            take(c, line, from, to);
    }
    if (taken == 0)
        memset(to, 0, line.count);
}

void bs_glue_max_pool(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const struct bs_glue *g = c->glue;
    const size_t pixel = c->pixel[0], far = c->in.width - 1 + g->pad_left;
    take_lines(c, image, y, s, s->work);
    memset(to, 0, c->out.width * pixel);
    for (size_t kx = 0; kx < bs_glue_kernel_w(c); ++kx) {
        /* The output's pixels whose tap lies in the image. */
        const size_t tap = kx * g->dilation_w,
                     first = tap < g->pad_left ? ceiling(g->pad_left - tap, g->stride_w) : 0,
                     end = tap > far ? 0 : least((far - tap) / g->stride_w + 1, c->out.width);
        if (first >= end)
            continue;
        const struct bs_glue_rows at = {end - first, pixel, g->stride_w * pixel, pixel};
        const size_t from = tap_at(first, g->stride_w, kx, g->dilation_w, g->pad_left);
        take(c, at, s->work + from * pixel, to + first * pixel);
    }
}

static void add_codes(size_t count, const uint8_t *from, uint32_t *to)
{
    for (size_t i = 0; i < count; ++i)
        to[i] += from[i];
}

static void add_sums(size_t count, const uint32_t *from, uint32_t *to)
{
    for (size_t i = 0; i < count; ++i)
        to[i] += from[i];
}

/* Computes means of sums over `pixels` pixels by a multiplication: with S = 31 bits and those of
 * the divisor d, floor(n / d) is n * (floor(2^S / d) + 1) >> S for every n below 2^31. */
static void means(const struct bs_glue *g, size_t pixels, const uint32_t *sums, uint8_t *to)
{
    /* As the programs read them, one after the other. */
    struct {
        uint32_t added, reciprocal, divisor, odd;
        int32_t shift;
        uint8_t last;
    } even;
    struct {
        uint32_t added, reciprocal;
        int32_t shift;
        uint8_t last;
    } plain;
    const int ties = g->rounding == BS_TO_EVEN && pixels % 2 == 0;
    unsigned shift = 32;
    even.divisor = 2 * (uint32_t)pixels;
    while ((UINT64_C(1) << (shift - 31)) < even.divisor)
        ++shift;
    even.reciprocal = (uint32_t)((UINT64_C(1) << shift) / even.divisor + 1);
    even.added = g->rounding == BS_DOWN ? 0 : (uint32_t)pixels;
    even.odd = (uint32_t)g->summand & 1;
    even.shift = (int32_t)shift - 32;
    even.last = (uint8_t)g->out_last;
    plain.added = even.added;
    plain.reciprocal = even.reciprocal;
    plain.shift = even.shift;
    plain.last = even.last;
    const void *numbers = ties ? (const void *)&even : &plain;
    const struct bs_glue_program *p = &bs_glue_programs[ties ? BS_MEAN_EVEN : BS_MEAN];
    bs_glue_map(p, numbers, g->out_channels, sums, NULL, to);
}

/* Computes means as codes of another scale, or sums: (n + half) / divisor, plus the zero point, is
 * (2 * n + divisor * (1 + 2 * zero point)) / (2 * divisor). */
static void scaled_means(const struct bs_glue *g, size_t pixels, const uint32_t *sums, uint8_t *to)
{
    /* As the program reads them, one after the other. */
    struct {
        int64_t factor, added;
        uint64_t divisor, odd, even;
        uint8_t first, last;
    } n;
    const int64_t twice = g->rounding == BS_DOWN ? 1 : 2,
                  divisor = g->divisor * (g->whole_sums ? 1 : (int64_t)pixels);
    n.factor = twice * g->factor;
    n.added = twice * ((int64_t)pixels * g->summand + divisor * g->zero_point);
    n.added += twice == 2 ? divisor : 0;
    n.divisor = (uint64_t)(twice * divisor);
    n.odd = (uint64_t)g->zero_point & 1;
    n.even = g->rounding == BS_TO_EVEN;
    n.first = (uint8_t)g->out_first;
    n.last = (uint8_t)g->out_last;
    bs_glue_map(&bs_glue_programs[BS_SCALED_MEAN], &n, g->out_channels, sums, NULL, to);
}

/* Computes sums of the values of codes. */
static void values(const struct bs_glue *g, size_t pixels, const uint32_t *sums, void *to)
{
    int32_t *made = to;
    for (size_t i = 0; i < g->out_channels; ++i)
        made[i] = (int32_t)(sums[i] * g->factor + (int64_t)pixels * g->summand);
}

/* Converts the window's sums to results; a window of padding alone has sum 0 and one pixel. */
static void finish_means(const struct bs_glue *g, size_t pixels, const uint32_t *sums, uint8_t *to)
{
    if (g->out_bits == 0)
        values(g, pixels ? pixels : 1, sums, to);
    else if (g->program == BS_MEAN)
        means(g, pixels ? pixels : 1, sums, to);
    else if (g->tables && pixels == g->kernel_h * g->kernel_w)
        bs_glue_map(&bs_glue_programs[BS_LOOKUP_SUMS], g->tables, g->out_channels, sums, NULL, to);
    else
        scaled_means(g, pixels ? pixels : 1, sums, to);
}

void bs_glue_mean_pool(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const struct bs_glue *g = c->glue;
    const size_t channels = g->channels[0], count = c->in.width * channels;
    uint32_t *sums = (uint32_t *)(void *)s->work, *window = sums + count;
    size_t high = 0;
    memset(sums, 0, count * sizeof *sums);
    for (size_t ky = 0; ky < bs_glue_kernel_h(c); ++ky) {
        const size_t at = tap_at(y, g->stride_h, ky, g->dilation_h, g->pad_top);
        if (at < c->in.height && ++high)
            add_codes(count, bs_glue_input(c, 0, image, at, s), sums);
    }
    for (size_t x = 0; x < c->out.width; ++x, to += c->made_pixel) {
        size_t wide = 0;
        memset(window, 0, channels * sizeof *window);
        for (size_t kx = 0; kx < bs_glue_kernel_w(c); ++kx) {
            const size_t at = tap_at(x, g->stride_w, kx, g->dilation_w, g->pad_left);
            if (at < c->in.width && ++wide)
                add_sums(channels, sums + at * channels, window);
        }
        finish_means(g, high * wide, window, to);
    }
}
