/* Activations of any layout as rows of the microkernel. */
#include "bs_call.h"

#include <string.h>

/* A line of the group, copied to where its codes lie channels last. */
static struct line stage_channels_first(const struct call *c, size_t y, uint8_t *to)
{
    const size_t channels = c->layer->in_channels, width = c->in.width,
                 plane = c->in.height * width;
    const size_t first = (c->image * c->layer->groups + c->group) * channels;
    const uint8_t *from = c->input + first * plane + y * width;
    for (size_t channel = 0; channel < channels; ++channel)
        for (size_t x = 0; x < width; ++x)
            to[x * channels + channel] = from[channel * plane + x];
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
    for (size_t x = 0; x < c->in.width; ++x, pixel += words)
        for (size_t i = 0; i < eights; ++i) {
            const uint64_t eight = bs_eight_codes(l->act_bits, pixel, from + i);
            memcpy(to + (x * eights + i) * 8, &eight, 8);
        }
    const struct line line = {
        to + before % 8, eights * 8, c->in.width * eights * 8 + 64 - before % 8};
    return line;
}

/* A line of the input as it lies. */
static struct line plain_line(const struct call *c, size_t y)
{
    const struct bs_layer *l = c->layer;
    const size_t channels = l->groups * l->in_channels, bytes = c->in.width * channels,
                 before = l->in_channels * c->group;
    const size_t number = c->image * c->in.height + y;
    const struct line line = {
        c->input + number * bytes + before,
        channels,
        (c->in.batch * c->in.height - number) * bytes - before};
    return line;
}

static struct line input_line(const struct call *c, size_t y, const struct scratch *s)
{
    if (c->layer->in_layout == BS_NHWC)
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

/* Row terms of `count` pixels `apart` bytes from each other, the first of which is at `place`. */
static void sum_pixels(
    const struct call *c,
    struct view view,
    size_t place,
    size_t count,
    const uint8_t *codes,
    size_t apart)
{
    const struct bs_kernel *k = c->layer->kernel;
    if (k->row_terms)
        k->row_terms(count, c->pixel_codes, codes, apart, view.term + place);
    if (k->row_affines)
        k->row_affines(count, c->pixel_codes, codes, apart, view.affine + place);
}

static void pack_pixel(
    const struct call *c,
    struct view view,
    size_t place,
    const uint8_t *codes,
    size_t readable,
    uint8_t *to)
{
    c->layer->kernel->pack_row(c->pixel_codes, codes, readable, to);
    sum_pixels(c, view, place, 1, codes, 0);
}

/* A pixel of padding, packed: its sums go to place 0 of the view. */
void bs_pack_padding(const struct call *c, struct view view, const struct scratch *s)
{
    memset(s->patch, (int)c->layer->pad_code, c->layer->in_channels);
    pack_pixel(c, view, 0, s->patch, c->pixel_codes + 64, s->pad);
}

static void pad_pixels(
    const struct call *c,
    struct view view,
    size_t line,
    size_t from,
    size_t to,
    const struct scratch *s,
    int32_t term,
    int32_t affine)
{
    for (size_t x = from; x < to; ++x) {
        memcpy(view.rows + line * c->line_bytes + x * c->pixel_bytes, s->pad, c->pixel_bytes);
        view.term[line * c->grid_w + x] = term;
        view.affine[line * c->grid_w + x] = affine;
    }
}

static void pack_line(
    const struct call *c, struct view view, size_t line, size_t left, struct line in)
{
    const struct bs_layer *l = c->layer;
    uint8_t *to = view.rows + line * c->line_bytes + left * c->pixel_bytes;
    const size_t first = line * c->grid_w + left;
    if (in.apart == l->in_channels && l->in_channels % l->kernel->k_step == 0
        && !l->kernel->planes_apart)
        l->kernel->pack_row(c->in.width * l->in_channels, in.codes, in.readable, to);
    else
        for (size_t x = 0; x < c->in.width; ++x, to += c->pixel_bytes)
            l->kernel->pack_row(
                l->in_channels, in.codes + x * in.apart, in.readable - x * in.apart, to);
    sum_pixels(c, view, first, c->in.width, in.codes, in.apart);
}

/* Grid lines from..to of the image, padding and all. */
static void pack_image(
    const struct call *c, struct view view, size_t from, size_t to, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const size_t top = l->conv_algorithm == BS_DIRECT ? l->pad_top : 0,
                 left = l->conv_algorithm == BS_DIRECT ? l->pad_left : 0;
    int32_t sums[2] = {0, 0};
    const struct view pad = {NULL, &sums[0], &sums[1], 0};
    bs_pack_padding(c, pad, s);
    for (size_t y = from; y < to; ++y) {
        const size_t line = y - view.first;
        if (y < top || y >= top + c->in.height) {
            pad_pixels(c, view, line, 0, c->grid_w, s, sums[0], sums[1]);
            continue;
        }
        pad_pixels(c, view, line, 0, left, s, sums[0], sums[1]);
        pack_line(c, view, line, left, input_line(c, y - top, s));
        pad_pixels(c, view, line, left + c->in.width, c->grid_w, s, sums[0], sums[1]);
    }
}

/* Codes of the taps of a kernel row that output row y reads, into the patches of all its pixels. */
static void gather_patch(const struct call *c, struct line in, size_t x, uint8_t *to)
{
    const struct bs_layer *l = c->layer;
    for (size_t kx = 0; kx < l->kernel_w; ++kx, to += l->in_channels) {
        const size_t at = x * l->stride_w + kx * l->dilation_w;
        if (in.codes && at >= l->pad_left && at < l->pad_left + c->in.width)
            memcpy(to, in.codes + (at - l->pad_left) * in.apart, l->in_channels);
        else
            memset(to, (int)l->pad_code, l->in_channels);
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

/* The only tap of every pixel of a line is packed from where it lies, if that is no padding. */
static void pack_only_taps(
    const struct call *c, struct view view, size_t y, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const struct line in = tap_line(c, y, 0, s);
    const size_t line = y - view.first;
    uint8_t *to = view.rows + line * c->line_bytes;
    for (size_t x = 0; x < c->grid_w; ++x, to += c->pixel_bytes) {
        const size_t at = x * l->stride_w - l->pad_left;
        if (in.codes && at < c->in.width)
            pack_pixel(
                c,
                view,
                line * c->grid_w + x,
                in.codes + at * in.apart,
                in.readable - at * in.apart,
                to);
        else {
            gather_patch(c, in, x, s->patch);
            pack_pixel(c, view, line * c->grid_w + x, s->patch, c->pixel_codes + 64, to);
        }
    }
}

static void pack_patches(const struct call *c, struct view view, size_t y, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const size_t tap_codes = l->kernel_w * l->in_channels, line = y - view.first;
    uint8_t *to = view.rows + line * c->line_bytes;
    for (size_t ky = 0; ky < l->kernel_h; ++ky)
        s->taps[ky] = tap_line(c, y, ky, s);
    for (size_t x = 0; x < c->grid_w; ++x, to += c->pixel_bytes) {
        for (size_t ky = 0; ky < l->kernel_h; ++ky)
            gather_patch(c, s->taps[ky], x, s->patch + ky * tap_codes);
        pack_pixel(c, view, line * c->grid_w + x, s->patch, c->pixel_codes + 64, to);
    }
}

void bs_pack_lines(
    const struct call *c, struct view view, size_t from, size_t to, const struct scratch *s)
{
    for (size_t i = 0; i < c->staged_lines; ++i)
        s->held[i].number = 0;
    if (c->layer->conv_algorithm != BS_IM2COL) {
        pack_image(c, view, from, to, s);
        return;
    }
    for (size_t y = from; y < to; ++y)
        if (c->layer->kernel_h * c->layer->kernel_w == 1)
            pack_only_taps(c, view, y, s);
        else
            pack_patches(c, view, y, s);
}
