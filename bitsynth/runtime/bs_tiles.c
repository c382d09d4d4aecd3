/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Tiles of the microkernel over the pixels and channels of a layer. */
#include "bs_call.h"

#include <string.h>

/* Adds the terms of pixels at `taps` taps, `apart` from each other, to terms of `count` outputs. */
static void add_taps(
    size_t taps, size_t apart, size_t stride, size_t count, const uint32_t *from, uint32_t *to)
{
    for (; stride == 1 && taps >= 3; taps -= 3, from += 3 * apart) {
        const uint32_t *one = from + apart, *other = one + apart;
        for (size_t i = 0; i < count; ++i)
            to[i] += from[i] + one[i] + other[i];
    }
    for (; taps > 0; --taps, from += apart)
        for (size_t i = 0; i < count; ++i)
            to[i] += from[i * stride];
}

/* Adds the terms of a row of taps; some of the taps are on padding. */
static void add_inside(
    const struct call *c,
    const uint32_t *sums,
    size_t oy,
    size_t ox,
    size_t count,
    size_t ky,
    uint32_t pad,
    uint32_t *to)
{
    for (size_t kx = 0; kx < c->layer->kernel_w; ++kx)
        for (size_t i = 0; i < count; ++i) {
            size_t y, x;
            to[i] += bs_inside(c, oy, ox + i, ky, kx, &y, &x) ? sums[y * c->grid_w + x] : pad;
        }
}

/* Sums the terms of the pixels in the windows of `count` outputs of a line, modulo 2^32. */
static void sum_line(
    const struct call *c,
    const int32_t *terms,
    size_t first,
    size_t oy,
    size_t ox,
    size_t count,
    int32_t pad,
    int32_t *line_sums)
{
    const struct bs_layer *l = c->layer;
    const uint32_t *sums = (const uint32_t *)terms;
    uint32_t *to = (uint32_t *)line_sums;
    if (l->conv_algorithm == BS_IM2COL) {
        memcpy(to, sums + (oy - first) * c->grid_w + ox, count * sizeof *to);
        return;
    }
    memset(to, 0, count * sizeof *to);
    for (size_t ky = 0; ky < l->kernel_h; ++ky)
        if (l->conv_algorithm == BS_INDIRECT)
            add_inside(c, sums, oy, ox, count, ky, (uint32_t)pad, to);
        else {
            const size_t line = oy * l->stride_h + ky * l->dilation_h - first;
            const uint32_t *from = sums + line * c->grid_w + ox * l->stride_w;
            add_taps(l->kernel_w, l->dilation_w, l->stride_w, count, from, to);
        }
}

/* Converts the kernel's terms, multiples of 1 << row_shift, to terms of the layer's weights. */
static void scale_terms(const struct bs_layer *l, size_t count, int32_t *terms)
{
    for (size_t i = 0; i < count; ++i)
        terms[i] = (terms[i] >> l->row_shift) * l->row_factor;
}

/* Computes the row terms of pixels from..to. */
static void sum_block(
    const struct call *c,
    struct view view,
    size_t from,
    size_t to,
    const struct scratch *s,
    const int32_t *pads)
{
    const struct bs_kernel *k = c->layer->kernel;
    if (!k->row_terms && !k->row_affines)
        return;
    for (size_t p = from, count; p < to; p += count) {
        const size_t oy = p / c->out.width, ox = p % c->out.width;
        count = least(to - p, c->out.width - ox);
        if (k->row_terms)
            sum_line(c, view.term, view.first, oy, ox, count, pads[0], s->term + (p - from));
        if (k->row_affines)
            sum_line(c, view.affine, view.first, oy, ox, count, pads[1], s->affine + (p - from));
    }
    if (c->layer->row_shift)
        scale_terms(c->layer, to - from, s->term);
}

/* Computes the address of each tap of output (oy, ox), in the image or the pixel of padding. */
static void point_inside(
    const struct call *c,
    struct view view,
    size_t oy,
    size_t ox,
    const uint8_t **to,
    const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    for (size_t i = 0; i < c->segments; ++i, to += l->kernel->rows) {
        size_t y, x;
        *to = bs_inside(c, oy, ox, i / l->kernel_w, i % l->kernel_w, &y, &x)
            ? view.lines + y * c->line_bytes + x * c->pixel_bytes
            : s->pad;
    }
}

/* Computes the addresses of the first segment of `rows` pixels from p on; the tile's further rows
 * repeat the last. A pair whose first pixel ends its line is read from the copy behind the line. */
static void point_pixels(
    const struct call *c, struct view view, size_t p, size_t rows, const uint8_t **to)
{
    const struct bs_layer *l = c->layer;
    const size_t down = bs_step(c, l->stride_h) * c->line_bytes,
                 right = bs_step(c, l->stride_w) * c->pixel_bytes;
    const size_t oy = p / c->out.width;
    const uint8_t *line = view.lines + oy * down - view.first * c->line_bytes,
                  *at = line + (p - oy * c->out.width) * right;
    size_t left = c->out.width - (p - oy * c->out.width);
    for (size_t row = 0; row < rows;) {
        const size_t count = least(left, rows - row);
#pragma GCC unroll 4
        for (size_t i = 0; i < count; ++i, at += right)
            to[row + i] = at;
        row += count;
        left -= count;
        if (left == 0) {
            if (row % 2 == 1 && c->end_bytes)
                to[row - 1] = line + c->end_at;
            at = line += down;
            left = c->out.width;
        }
    }
    for (size_t row = rows; row < l->kernel->rows; ++row)
        to[row] = to[rows - 1];
}

/* Adds an offset to pointers, four at a time: an in-order processor stalls on a value just read. */
static void point_behind(
    size_t count, size_t bytes, const uint8_t *const *restrict from, const uint8_t **restrict to)
{
    size_t i = 0;
    for (; count - i >= 4; i += 4) {
        const uint8_t *a = from[i], *b = from[i + 1], *c = from[i + 2], *d = from[i + 3];
        to[i] = a + bytes;
        to[i + 1] = b + bytes;
        to[i + 2] = c + bytes;
        to[i + 3] = d + bytes;
    }
    for (; i < count; ++i)
        to[i] = from[i] + bytes;
}

/* Computes the addresses of all segments of the pixels. */
static void point_rows(
    const struct call *c, struct view view, size_t p, size_t rows, const struct scratch *s)
{
    const size_t all = c->layer->kernel->rows;
    if (c->layer->conv_algorithm == BS_INDIRECT) {
        for (size_t row = 0; row < all; ++row) {
            const size_t pixel = p + least(row, rows - 1);
            point_inside(c, view, pixel / c->out.width, pixel % c->out.width, s->pointers + row, s);
        }
        return;
    }
    point_pixels(c, view, p, rows, s->pointers);
    for (size_t i = 1; i < c->segments; ++i)
        point_behind(all, c->segment_offsets[i], s->pointers, s->pointers + i * all);
}

/* Computes tiles first..end of the columns into `to`, rows `apart` from each other. */
static void run_tiles(
    const struct call *c,
    size_t first,
    size_t end,
    size_t place,
    int32_t *to,
    size_t apart,
    const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const uint8_t *weights = l->weights + (c->group * c->tiles + first) * c->tile_bytes;
    const int32_t *start = l->start + c->group * l->out_places + first * l->kernel->columns;
    l->kernel->run(
        end - first,
        c->segments,
        c->segment_steps,
        s->pointers,
        weights,
        start,
        s->term + place,
        to,
        apart);
}

/* Computes a tile whose accumulators are the results, in place; by way of the strip if the tile has
 * more rows or columns than the output. */
static void store_tile(
    const struct call *c, struct strip strip, size_t number, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    strip.column = number * l->kernel->columns;
    strip.columns = least(l->kernel->columns, l->out_channels - strip.column);
    if (strip.rows == l->kernel->rows && strip.columns == l->kernel->columns) {
        int32_t *to = (int32_t *)(void *)bs_pixel_output(c, strip.p, strip.column);
        run_tiles(c, number, number + 1, strip.place, to, l->groups * l->out_channels, s);
        return;
    }
    run_tiles(c, number, number + 1, strip.place, s->strip, c->strip_columns, s);
    bs_finish(c, &strip, s);
}

/* Computes the pixels of a strip, tiles first..end of the columns. */
static void run_strip(
    const struct call *c,
    struct view view,
    struct strip strip,
    size_t first,
    size_t end,
    const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const struct bs_kernel *k = l->kernel;
    strip.column = first * k->columns;
    strip.columns = least(end * k->columns, l->out_channels) - strip.column;
    for (size_t row = 0; row < strip.rows; row += k->rows) {
        point_rows(c, view, strip.p + row, least(k->rows, strip.rows - row), s);
        int32_t *to = s->strip + row * c->strip_columns;
        if (!bs_stored_at_once(l))
            run_tiles(c, first, end, strip.place + row, to, c->strip_columns, s);
        else
            for (size_t tile = first; tile < end; ++tile)
                store_tile(c, strip, tile, s);
    }
    if (!bs_stored_at_once(l))
        bs_finish(c, &strip, s);
}

/* Adds the corrections of taps on padding to results of pixels from..to and those tiles. */
static void pad_results(
    const struct call *c, size_t from, size_t to, size_t tile_from, size_t tile_to)
{
    const struct bs_layer *l = c->layer;
    const size_t column = tile_from * l->kernel->columns;
    const size_t columns = least(tile_to * l->kernel->columns, l->out_channels) - column;
    const struct strip all = {from, to - from, 0, column, columns};
    int32_t *sums = (int32_t *)(void *)bs_pixel_output(c, from, column);
    bs_pad_sums(c, &all, columns, sums, l->groups * l->out_channels);
}

/* Computes pixels from..to and tiles tile_from..tile_to, strip by strip. */
static void run_block(
    const struct call *c,
    struct view view,
    size_t from,
    size_t to,
    size_t tile_from,
    size_t tile_to,
    const struct scratch *s)
{
    for (size_t first = tile_from; first < tile_to; first += c->strip_tiles)
        for (size_t p = from; p < to; p += c->strip_rows) {
            const struct strip strip = {p, least(c->strip_rows, to - p), p - from, 0, 0};
            run_strip(c, view, strip, first, least(first + c->strip_tiles, tile_to), s);
        }
}

void bs_compute(
    const struct call *c,
    struct view view,
    size_t from,
    size_t to,
    size_t tile_from,
    size_t tile_to,
    const struct scratch *s)
{
    const size_t rows = c->layer->kernel->rows;
    const size_t block =
        c->layer->block_rows ? ceiling(c->layer->block_rows, rows) * rows : to - from;
    int32_t sums[2] = {0, 0};
    const struct view pad = {NULL, NULL, &sums[0], &sums[1], 0};
    if (c->layer->conv_algorithm == BS_INDIRECT)
        bs_pack_padding(c, pad, s);
    const size_t tiles = c->strip_tiles;
    if (c->tiles % tiles || tiles * c->layer->kernel->columns != c->strip_columns)
        memset(s->strip, 0, c->strip_bytes); /* units have more columns than tiles */
    for (size_t p = from; p < to; p += block) {
        const size_t end = least(p + block, to);
        sum_block(c, view, p, end, s, sums);
        run_block(c, view, p, end, tile_from, tile_to, s);
        if (c->pads_results)
            pad_results(c, p, end, tile_from, tile_to);
    }
}
