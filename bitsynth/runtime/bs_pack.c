/* Activations of any layout as rows of the microkernel. */
#include "bs_call.h"

#include <string.h>

/* Codes of a line of the input, channels last: the group's first pixel, and how many bytes can be read there. */
struct line {
    const uint8_t *codes;
    size_t apart, readable;
};

static void stage_channels_first(const struct call *c, size_t y, uint8_t *to)
{
    const size_t channels = c->layer->groups * c->layer->in_channels, plane = c->in.height * c->in.width;
    const uint8_t *from = c->input + c->image * channels * plane + y * c->in.width;
    for (size_t channel = 0; channel < channels; ++channel)
        for (size_t x = 0; x < c->in.width; ++x)
            to[x * channels + channel] = from[channel * plane + x];
}

static void stage_packed(const struct call *c, size_t y, uint8_t *to)
{
    const size_t channels = c->layer->groups * c->layer->in_channels, bits = c->layer->act_bits;
    const size_t words = bs_packed_words(bits, channels);
    const uint64_t *from = (const uint64_t *)(const void *)c->input + (c->image * c->in.height + y) * c->in.width * words;
    for (size_t x = 0; x < c->in.width; ++x)
        bs_unpack_codes(bits, channels, from + x * words, to + x * channels);
}

static struct line input_line(const struct call *c, size_t y, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const size_t channels = l->groups * l->in_channels, bytes = c->in.width * channels, before = l->in_channels * c->group;
    const size_t number = c->image * c->in.height + y;
    if (l->in_layout == BS_NHWC) {
        const struct line line = {
            c->input + number * bytes + before, channels, (c->in.batch * c->in.height - number) * bytes - before};
        return line;
    }
    if (l->in_layout == BS_NCHW)
        stage_channels_first(c, y, s->staged);
    else
        stage_packed(c, y, s->staged);
    const struct line line = {s->staged + before, channels, bytes + 64 - before};
    return line;
}

/* Row terms of `count` pixels `apart` bytes from each other, the first of which is at `place`. */
static void sum_pixels(const struct call *c, struct view view, size_t place, size_t count, const uint8_t *codes,
    size_t apart)
{
    const struct bs_kernel *k = c->layer->kernel;
    if (k->row_terms)
        k->row_terms(count, c->pixel_codes, codes, apart, view.term + place);
    if (k->row_affines)
        k->row_affines(count, c->pixel_codes, codes, apart, view.affine + place);
}

static void pack_pixel(const struct call *c, struct view view, size_t place, const uint8_t *codes, size_t readable,
    uint8_t *to)
{
    c->layer->kernel->pack_row(c->pixel_codes, codes, readable, to);
    sum_pixels(c, view, place, 1, codes, 0);
}

/* A pixel of padding, packed: its sums go to place 0 of the view. */
void bs_pack_padding(const struct call *c, struct view view, const struct scratch *s)
{
    uint8_t *codes = s->pad - aligned(c->pixel_codes + 64);
    memset(codes, (int)c->layer->pad_code, c->layer->in_channels);
    pack_pixel(c, view, 0, codes, c->pixel_codes + 64, s->pad);
}

static void pad_pixels(const struct call *c, struct view view, size_t line, size_t from, size_t to,
    const struct scratch *s, int32_t term, int32_t affine)
{
    for (size_t x = from; x < to; ++x) {
        memcpy(view.rows + line * c->line_bytes + x * c->pixel_bytes, s->pad, c->pixel_bytes);
        view.term[line * c->grid_w + x] = term;
        view.affine[line * c->grid_w + x] = affine;
    }
}

static void pack_line(const struct call *c, struct view view, size_t line, size_t left, struct line in)
{
    const struct bs_layer *l = c->layer;
    uint8_t *to = view.rows + line * c->line_bytes + left * c->pixel_bytes;
    const size_t first = line * c->grid_w + left;
    if (in.apart == l->in_channels && l->in_channels % l->kernel->k_step == 0 && !l->kernel->planes_apart)
        l->kernel->pack_row(c->in.width * l->in_channels, in.codes, in.readable, to);
    else
        for (size_t x = 0; x < c->in.width; ++x, to += c->pixel_bytes)
            l->kernel->pack_row(l->in_channels, in.codes + x * in.apart, in.readable - x * in.apart, to);
    sum_pixels(c, view, first, c->in.width, in.codes, in.apart);
}

/* Grid lines from..to of the image, padding and all. */
static void pack_image(const struct call *c, struct view view, size_t from, size_t to, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const size_t top = l->gather == BS_DIRECT ? l->pad_top : 0, left = l->gather == BS_DIRECT ? l->pad_left : 0;
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
    return at < l->pad_top || at >= l->pad_top + c->in.height ? none : input_line(c, at - l->pad_top, s);
}

/* The only tap of every pixel of a line is packed from where it lies, where it does not lie on padding. */
static void pack_only_taps(const struct call *c, struct view view, size_t y, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const struct line in = tap_line(c, y, 0, s);
    const size_t line = y - view.first;
    uint8_t *patch = s->pad - aligned(c->pixel_codes + 64), *to = view.rows + line * c->line_bytes;
    for (size_t x = 0; x < c->grid_w; ++x, to += c->pixel_bytes) {
        const size_t at = x * l->stride_w - l->pad_left;
        if (in.codes && at < c->in.width)
            pack_pixel(c, view, line * c->grid_w + x, in.codes + at * in.apart, in.readable - at * in.apart, to);
        else {
            gather_patch(c, in, x, patch);
            pack_pixel(c, view, line * c->grid_w + x, patch, c->pixel_codes + 64, to);
        }
    }
}

static void pack_patches(const struct call *c, struct view view, size_t y, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const size_t tap_codes = l->kernel_w * l->in_channels, line = y - view.first;
    uint8_t *patch = s->pad - aligned(c->pixel_codes + 64), *to = view.rows + line * c->line_bytes;
    for (size_t x = 0; x < c->grid_w; ++x, to += c->pixel_bytes) {
        for (size_t ky = 0; ky < l->kernel_h; ++ky)
            gather_patch(c, tap_line(c, y, ky, s), x, patch + ky * tap_codes);
        pack_pixel(c, view, line * c->grid_w + x, patch, c->pixel_codes + 64, to);
    }
}

void bs_pack_lines(const struct call *c, struct view view, size_t from, size_t to, const struct scratch *s)
{
    if (c->layer->gather != BS_IM2COL) {
        pack_image(c, view, from, to, s);
        return;
    }
    for (size_t y = from; y < to; ++y)
        if (c->layer->kernel_h * c->layer->kernel_w == 1)
            pack_only_taps(c, view, y, s);
        else
            pack_patches(c, view, y, s);
}
