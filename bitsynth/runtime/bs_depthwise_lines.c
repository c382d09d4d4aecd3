/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Lines of the input for depthwise kernels: padded, and expanded to output channels. */
#include "bs_depthwise.h"

#include <string.h>

static inline void copy_each(
    size_t pixels,
    size_t channels,
    const uint8_t *from,
    size_t from_apart,
    uint8_t *to,
    size_t to_apart)
{
    for (size_t x = 0; x < pixels; ++x)
        memcpy(to + x * to_apart, from + x * from_apart, channels);
}

/* Copies pixels; pixels of a few usual sizes without a call for each. */
static void copy_pixels(
    size_t pixels,
    size_t channels,
    const uint8_t *from,
    size_t from_apart,
    uint8_t *to,
    size_t to_apart)
{
    if (channels == 8)
        copy_each(pixels, 8, from, from_apart, to, to_apart);
    else if (channels == 16)
        copy_each(pixels, 16, from, from_apart, to, to_apart);
    else if (channels == 32)
        copy_each(pixels, 32, from, from_apart, to, to_apart);
    else
        copy_each(pixels, channels, from, from_apart, to, to_apart);
}

static void copy_line(
    size_t pixels, size_t channels, const uint8_t *from, uint8_t *to, size_t apart)
{
    if (apart == channels)
        memcpy(to, from, pixels * channels);
    else
        copy_pixels(pixels, channels, from, channels, to, apart);
}

/* Transposes lines of the image from `first` on, which lie channels first. */
static void transpose_lines(
    const struct depthwise *d, size_t first, size_t lines, uint8_t *to, size_t apart)
{
    const struct call *c = &d->call;
    const size_t width = c->in.width, plane = c->in.height * width;
    const struct bs_matrix m = {1, d->in_channels, lines * width, plane, apart};
    bs_transpose(m, c->input + c->image * d->in_channels * plane + first * width, to);
}

/* Returns line y of an input of channels first; short lines are transposed several at once. */
static void transpose_line(
    const struct depthwise *d, const struct slot *s, size_t y, uint8_t *to, size_t apart)
{
    const size_t lines = d->transposed_lines, width = d->call.in.width, channels = d->in_channels;
    size_t *transposed = s->held + d->lines;
    if (lines == 1) {
        transpose_lines(d, y, 1, to, apart);
        return;
    }
    const size_t first = least(y / lines * lines, d->call.in.height - lines);
    if (*transposed != first + 1)
        transpose_lines(d, first, lines, s->transposed, channels);
    *transposed = first + 1;
    copy_line(width, channels, s->transposed + (y - first) * width * channels, to, apart);
}

/* Returns the codes of line y, channels last, pixels `apart` bytes from each other. */
static void read_line(
    const struct depthwise *d, const struct slot *s, size_t y, uint8_t *to, size_t apart)
{
    const struct call *c = &d->call;
    const size_t width = c->in.width, channels = d->in_channels, bits = c->layer->act_bits,
                 number = c->image * c->in.height + y;
    if (c->layer->in_layout == BS_NHWC)
        copy_line(width, channels, c->input + number * width * channels, to, apart);
    else if (c->layer->in_layout == BS_NCHW)
        transpose_line(d, s, y, to, apart);
    else {
        const size_t words = bs_packed_words(bits, channels);
        const uint64_t *from = (const uint64_t *)(const void *)c->input + number * width * words;
        bs_unpack_each(bits, channels, width, from, to, apart);
    }
}

static const uint64_t every_byte = UINT64_C(0x0101010101010101);

/* Copies byte i of every `group` bytes to all bytes of its group, eight bytes at a time. */
static inline uint64_t spread_eight(uint64_t codes, size_t i, size_t group)
{
    const uint64_t first = group == 2 ? UINT64_C(0x00ff00ff00ff00ff) : UINT64_C(0x000000ff000000ff);
    uint64_t one = codes >> 8 * i & first;
    one |= one << 8;
    return group == 2 ? one : one | one << 16;
}

/* Spreads groups of two or four channels, eight channels at a time; writes up to seven more. */
static inline void spread_pixel(
    size_t channels, const uint8_t *from, size_t i, size_t group, uint8_t *to)
{
    for (size_t j = 0; j < channels; j += 8) {
        uint64_t eight;
        memcpy(&eight, from + j, 8);
        eight = spread_eight(eight, i, group);
        memcpy(to + j, &eight, 8);
    }
}

/* Copies one of every `in` bytes to `out` bytes. */
static inline void repeat_pixel(
    size_t groups, const uint8_t *from, size_t in, size_t out, uint8_t *to)
{
    for (size_t group = 0; group < groups; ++group, from += in)
        for (size_t j = 0; j < out; ++j)
            *to++ = *from;
}

static inline void repeat_eights(
    size_t groups, const uint8_t *from, size_t in, size_t out, uint8_t *to)
{
    for (size_t group = 0; group < groups; ++group, from += in) {
        const uint64_t eight = *from * every_byte;
        for (size_t j = 0; j < out; j += 8, to += 8)
            memcpy(to, &eight, 8);
    }
}

/* Spreads input channels to output channels: phase i has input channel i of every group. */
static void spread_line(const struct depthwise *d, const uint8_t *codes, uint8_t *to)
{
    const struct bs_layer *l = d->call.layer;
    const size_t in = l->in_channels, out = l->out_channels;
    for (size_t i = 0; i < d->phases; ++i, to += d->phase_bytes)
        for (size_t x = 0; x < d->call.in.width; ++x) {
            const uint8_t *from = codes + x * d->in_channels;
            uint8_t *at = to + x * d->padded;
            if (in == 2 && out == 2)
                spread_pixel(d->channels, from, i, 2, at);
            else if (in == 4 && out == 4)
                spread_pixel(d->channels, from, i, 4, at);
            else if (out == 1)
                repeat_pixel(l->groups, from + i, in, 1, at);
            else if (out == 2)
                repeat_pixel(l->groups, from + i, in, 2, at);
            else if (out % 8 == 0)
                repeat_eights(l->groups, from + i, in, out, at);
            else
                repeat_pixel(l->groups, from + i, in, out, at);
        }
}

/* Copies a line to the lines of the remainders of its pixels' numbers. */
static void split_line(const struct depthwise *d, const uint8_t *codes, uint8_t *line)
{
    const size_t splits = d->splits, bytes = d->pixel_bytes, left = d->call.layer->pad_left,
                 width = d->call.in.width;
    for (size_t x = 0; x < splits && x < width; ++x)
        copy_pixels(
            ceiling(width - x, splits),
            bytes,
            codes + x * bytes,
            splits * bytes,
            line + bs_place_of(d, left + x),
            bytes);
}

static void flip_line(const struct depthwise *d, uint8_t *line)
{
    for (size_t i = 0; i < d->phases; ++i)
        for (size_t x = 0; x < d->call.in.width * d->pixel_bytes; ++x)
            line[i * d->phase_bytes + x] ^= d->call.layer->depthwise->flip;
}

const uint8_t *bs_line_at(const struct depthwise *d, const struct slot *s, size_t y)
{
    const struct bs_layer *l = d->call.layer;
    uint8_t *line = s->ring + y % d->lines * d->line_bytes,
            *to = d->splits > 1 ? s->codes : line + l->pad_left * d->pixel_bytes;
    if (s->held[y % d->lines] == y + 1)
        return line;
    s->held[y % d->lines] = y + 1;
    if (bs_is_plain(l))
        read_line(d, s, y, to, d->pixel_bytes);
    else {
        read_line(d, s, y, s->codes, d->in_channels);
        spread_line(d, s->codes, to);
    }
    if (l->depthwise->flip)
        flip_line(d, to);
    if (d->splits > 1)
        split_line(d, to, line);
    return line;
}
