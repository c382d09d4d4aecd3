/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Packing of activations of any layout to rows of the microkernel. */
#include "bs_call.h"

#include <string.h>

/* Copies a line of the group to channels last. */
static struct line stage_channels_first(const struct call *c, size_t y, uint8_t *to)
{
    const size_t channels = c->layer->in_channels, width = c->in.width,
                 plane = c->in.height * width;
    const size_t first = (c->image * c->layer->groups + c->group) * channels;
    const uint8_t *from = c->input + first * plane + y * width;
    bs_transpose((struct bs_matrix){1, channels, width, plane, channels}, from, to);
    const struct line line = {to, channels, width * channels + 64};
    return line;
}

static struct line stage_packed(const struct call *c, size_t y, uint8_t *to)
{
    const struct bs_layer *l = c->layer;
    const size_t before = l->in_channels * c->group, from = before / 8,
                 eights = ceiling(before + l->in_channels, 8) - from;
    const size_t words = bs_packed_words(l->act_bits, l->groups * l->in_channels);
    const uint64_t *pixel = (const uint64_t *)(const void *)c->input
        + (c->image * c->in.height + y) * c->in.width * words;
    /* Pixels of whole words are one of many channels. */
    const size_t several = words * 8 == eights * l->act_bits ? c->in.width : 1;
    for (size_t x = 0; x < c->in.width; x += several, pixel += several * words)
        bs_expand(l->act_bits, pixel, from, several * eights, to + x * eights * 8);
    const struct line line = {
        to + before % 8, eights * 8, c->in.width * eights * 8 + 64 - before % 8};
    return line;
}

/* Returns a line of the input in place. */
static struct line plain_line(const struct call *c, size_t y)
{
    const size_t line = c->in.width * c->in_pixel, before = c->group * c->tap_bytes;
    const size_t number = c->image * c->in.height + y;
    const struct line found = {
        c->input + number * line + before,
        c->in_pixel,
        (c->in.batch * c->in.height - number) * line - before};
    return found;
}

static struct line input_line(const struct call *c, size_t y, const struct scratch *s)
{
    if (c->staged_lines == 0)
        return plain_line(c, y);
    struct held *held = s->held + y % c->staged_lines;
    if (held->number != y + 1) {
        uint8_t *to = s->staged + y % c->staged_lines * c->staged_bytes;
        held->line = c->layer->in_layout == BS_NCHW ? stage_channels_first(c, y, to)
                                                    : stage_packed(c, y, to);
        held->number = y + 1;
    }
    return held->line;
}

/* Returns whether pixels are one long row: words and rows without gaps, and no terms wanted. */
static int are_one_row(const struct call *c, struct line in)
{
    const struct bs_kernel *k = c->layer->kernel;
    return !k->row_terms && !k->row_affines && !k->planes_apart && !k->pair_rows
        && c->pixel_codes % 64 == 0 && c->pixel_codes % k->k_step == 0
        && in.apart * 8 == c->pixel_codes * k->act_bits;
}

/* Unpacks words to rows of codes, and computes their terms. */
static __attribute__((noinline)) void expand_rows(
    const struct call *c,
    size_t count,
    struct line in,
    uint8_t *to,
    int32_t *terms,
    int32_t *affines)
{
    enum { AT_ONCE = 64 };
    const struct bs_kernel *k = c->layer->kernel;
    int32_t sums[AT_ONCE];
    for (size_t from = 0, some; from < count; from += some) {
        some = least(count - from, AT_ONCE);
        bs_expand_pixels(
            c->layer->act_bits,
            some,
            c->pixel_codes,
            (const uint64_t *)(const void *)(in.codes + from * in.apart),
            in.apart / 8,
            to + from * c->pixel_bytes,
            c->pixel_bytes,
            sums);
        for (size_t i = 0; k->row_terms && i < some; ++i)
            terms[from + i] = k->code_terms * sums[i];
        for (size_t i = 0; k->row_affines && i < some; ++i)
            affines[from + i] = k->code_affines * sums[i];
    }
}

/* Packs `count` pixels, or patches, of a line; their terms go to `place` and the next. */
static void pack_pixels(
    const struct call *c, struct view view, size_t place, size_t count, struct line in, uint8_t *to)
{
    const struct bs_kernel *k = c->layer->kernel;
    int32_t *terms = view.term + place, *affines = view.affine + place;
    const size_t joined = c->from_words && are_one_row(c, in) ? count : 1;
    if (c->expands)
        expand_rows(c, count, in, to, terms, affines);
    else if (c->from_words)
        k->pack_words(
            count / joined,
            joined * c->pixel_codes,
            (const uint64_t *)(const void *)in.codes,
            in.apart / 8,
            to,
            c->pixel_bytes,
            terms,
            affines);
    else
        k->pack_rows(
            count,
            c->pixel_codes,
            in.codes,
            in.apart,
            in.readable,
            to,
            c->pixel_bytes,
            terms,
            affines);
}

/* Packs a pixel of padding; its terms go to place 0 of the view. */
void bs_pack_padding(const struct call *c, struct view view, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    memset(s->patch, (int)l->pad_code, l->in_channels);
    l->kernel->pack_rows(
        1,
        l->in_channels,
        s->patch,
        0,
        l->in_channels + 64,
        s->pad,
        c->pixel_bytes,
        view.term,
        view.affine);
}

/* Returns whether packed pixels are their codes, without gaps between them. */
static int are_codes(const struct call *c)
{
    const struct bs_layer *l = c->layer;
    const struct bs_kernel *k = l->kernel;
    return k->rows_of_codes && !k->row_terms && !k->row_affines && c->pixel_bytes == l->in_channels;
}

/* Fills pixels from..to of a packed line with padding. */
static void pad_pixels(
    const struct call *c,
    struct view view,
    size_t line,
    size_t from,
    size_t to,
    const struct scratch *s,
    const int32_t *sums)
{
    uint8_t *pixels = view.rows + line * c->line_bytes;
    if (are_codes(c)) {
        memset(
            pixels + from * c->pixel_bytes, (int)c->layer->pad_code, (to - from) * c->pixel_bytes);
        return;
    }
    for (size_t x = from; x < to; ++x) {
        memcpy(pixels + x * c->pixel_bytes, s->pad, c->pixel_bytes);
        view.term[line * c->grid_w + x] = sums[0];
        view.affine[line * c->grid_w + x] = sums[1];
    }
}

/* Packs line y, whose pixels are the input's or padding. */
static void pack_line(
    const struct call *c, struct view view, size_t y, const struct scratch *s, const int32_t *sums)
{
    const struct bs_layer *l = c->layer;
    const int padded = l->conv_algorithm != BS_INDIRECT, strided = l->conv_algorithm == BS_IM2COL;
    const size_t top = padded ? l->pad_top : 0, left = padded ? l->pad_left : 0;
    const size_t down = strided ? l->stride_h : 1, right = strided ? l->stride_w : 1;
    const size_t line = y - view.first;
    if (y * down < top || y * down >= top + c->in.height) {
        pad_pixels(c, view, line, 0, c->grid_w, s, sums);
        return;
    }
    const size_t end = left + c->in.width;
    const size_t from = least(strided ? ceiling(left, right) : left, c->grid_w),
                 to = least(strided ? ceiling(end, right) : end, c->grid_w);
    struct line in = input_line(c, y * down - top, s);
    pad_pixels(c, view, line, 0, from, s, sums);
    if (from < to) {
        const size_t before = (from * right - left) * in.apart;
        const struct line there = {in.codes + before, right * in.apart, in.readable - before};
        uint8_t *rows = view.rows + line * c->line_bytes + from * c->pixel_bytes;
        const int copied = !c->from_words && (l->joined_taps || are_codes(c));
        if (copied && there.apart == l->in_channels && !l->kernel->row_terms
            && !l->kernel->row_affines)
            l->kernel->pack_rows(
                1,
                (to - from) * l->in_channels,
                there.codes,
                0,
                there.readable,
                rows,
                0,
                view.term,
                view.affine);
        else
            pack_pixels(c, view, line * c->grid_w + from, to - from, there, rows);
    }
    pad_pixels(c, view, line, to, c->grid_w, s, sums);
}

/* Pairs each pixel of a line with the pixel that is computed with it. The last window is copied
 * behind the line before.
 */
static void pair_pixels(const struct call *c, struct view view, size_t y)
{
    const struct bs_layer *l = c->layer;
    const size_t next = bs_step(c, l->stride_w), last = (c->out.width - 1) * next;
    uint8_t *line = view.rows + (y - view.first) * c->line_bytes;
    memcpy(line + c->end_at, line + last * c->pixel_bytes, c->end_bytes);
    l->kernel->pair_rows(c->grid_w, next, c->pixel_bytes, line, c->pixel_bytes);
}

void bs_pair_lines(const struct call *c, struct view view, size_t from, size_t to, size_t end)
{
    const size_t next = bs_step(c, c->layer->stride_h), apart = next * c->line_bytes - c->end_at;
    uint8_t *line = view.rows + (from - view.first) * c->line_bytes;
    for (size_t y = from; c->end_bytes && y < to && next < end - y; ++y, line += c->line_bytes)
        c->layer->kernel->pair_rows(2, 1, c->end_bytes, line + c->end_at, apart);
}

/* Returns a line of padding. */
static void fill_blank(const struct call *c, size_t taps, uint8_t *to)
{
    const struct bs_layer *l = c->layer;
    if (!c->from_words) {
        memset(to, (int)l->pad_code, taps * c->tap_bytes);
        return;
    }
    for (size_t word = 0; word < taps * c->tap_bytes / 8; ++word, to += 8)
        memset(to, l->pad_code >> word % l->act_bits & 1 ? 0xff : 0, 8);
}

/* Copies a tap in whole chunks if they can be read: a patch has room behind, and taps are copied in
 * order. */
static void copy_taps(uint8_t *to, const uint8_t *from, size_t bytes, size_t readable)
{
    enum { CHUNK = 16 };
    if (ceiling(bytes, CHUNK) * CHUNK > readable) {
        memcpy(to, from, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += CHUNK)
        memcpy(to + i, from + i, CHUNK);
}

/* Copies the taps of a kernel row that output x reads into its patch. */
static void gather_taps(const struct call *c, struct line in, size_t x, uint8_t *to)
{
    const struct bs_layer *l = c->layer;
    const size_t at = x * l->stride_w, left = l->pad_left, right = left + c->in.width;
    const int joined = l->dilation_w == 1 && in.apart == c->tap_bytes;
    if (!in.codes) {
        fill_blank(c, l->kernel_w, to);
        return;
    }
    for (size_t kx = 0, count = 1; kx < l->kernel_w; kx += count, to += count * c->tap_bytes) {
        const size_t tap = at + kx * l->dilation_w;
        count = joined && tap >= left && tap < right ? least(l->kernel_w - kx, right - tap) : 1;
        if (tap < left || tap >= right) {
            fill_blank(c, 1, to);
            continue;
        }
        const size_t before = (tap - left) * in.apart;
        copy_taps(to, in.codes + before, count * c->tap_bytes, in.readable - before);
    }
}

static struct line tap_line(const struct call *c, size_t y, size_t ky, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const size_t at = y * l->stride_h + ky * l->dilation_h;
    const struct line none = {NULL, 0, 0};
    return at < l->pad_top || at >= l->pad_top + c->in.height ? none
                                                              : input_line(c, at - l->pad_top, s);
}

static void pack_patches(const struct call *c, struct view view, size_t y, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const size_t row = l->kernel_w * c->tap_bytes, line = y - view.first;
    const struct line patch = {s->patch, 0, l->kernel_h * row + 64};
    uint8_t *to = view.rows + line * c->line_bytes;
    for (size_t ky = 0; ky < l->kernel_h; ++ky)
        s->taps[ky] = tap_line(c, y, ky, s);
    for (size_t x = 0; x < c->grid_w; ++x, to += c->pixel_bytes) {
        for (size_t ky = 0; ky < l->kernel_h; ++ky)
            gather_taps(c, s->taps[ky], x, s->patch + ky * row);
        pack_pixels(c, view, line * c->grid_w + x, 1, patch, to);
    }
}

void bs_pack_lines(
    const struct call *c, struct view view, size_t from, size_t to, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const int plain = l->conv_algorithm != BS_IM2COL || l->kernel_h * l->kernel_w == 1;
    int32_t sums[2] = {0, 0};
    const struct view pad = {NULL, NULL, &sums[0], &sums[1], 0};
    if (c->reads_input)
        return;
    for (size_t i = 0; i < c->staged_lines; ++i)
        s->held[i].number = 0;
    if (plain)
        bs_pack_padding(c, pad, s);
    for (size_t y = from; y < to; ++y) {
        if (plain)
            pack_line(c, view, y, s, sums);
        else
            pack_patches(c, view, y, s);
        if (l->kernel->pair_rows)
            pair_pixels(c, view, y);
    }
}
