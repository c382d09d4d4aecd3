/* Tiles of the microkernel over the pixels and channels of a layer. */
#include "bs_call.h"

#include <string.h>

/* Adds the sums of one tap to those of `count` output pixels of a line from ox on. */
static void add_tap(
    const struct call *c,
    const int32_t *sums,
    size_t first,
    size_t oy,
    size_t ox,
    size_t count,
    size_t ky,
    size_t kx,
    int32_t pad,
    int32_t *to)
{
    const struct bs_layer *l = c->layer;
    if (l->conv_algorithm == BS_DIRECT) {
        const size_t line = oy * l->stride_h + ky * l->dilation_h - first;
        const int32_t *from = sums + line * c->grid_w + ox * l->stride_w + kx * l->dilation_w;
        if (l->stride_w == 1)
            for (size_t i = 0; i < count; ++i)
                to[i] += from[i];
        else
            for (size_t i = 0; i < count; ++i)
                to[i] += from[i * l->stride_w];
        return;
    }
    for (size_t i = 0; i < count; ++i) {
        size_t y, x;
        to[i] += bs_inside(c, oy, ox + i, ky, kx, &y, &x) ? sums[y * c->grid_w + x] : pad;
    }
}

/* Sums of the codes that `count` output pixels of a line see. */
static void sum_line(
    const struct call *c,
    const int32_t *sums,
    size_t first,
    size_t oy,
    size_t ox,
    size_t count,
    int32_t pad,
    int32_t *to)
{
    const struct bs_layer *l = c->layer;
    if (l->conv_algorithm == BS_IM2COL) {
        memcpy(to, sums + (oy - first) * c->grid_w + ox, count * sizeof *to);
        return;
    }
    memset(to, 0, count * sizeof *to);
    for (size_t ky = 0; ky < l->kernel_h; ++ky)
        for (size_t kx = 0; kx < l->kernel_w; ++kx)
            add_tap(c, sums, first, oy, ox, count, ky, kx, pad, to);
}

/* The row terms of pixels from..to. */
static void sum_block(
    const struct call *c,
    struct view view,
    size_t from,
    size_t to,
    const struct scratch *s,
    const int32_t *pads)
{
    const struct bs_kernel *k = c->layer->kernel;
    for (size_t p = from, count; p < to; p += count) {
        const size_t oy = p / c->out.width, ox = p % c->out.width;
        count = least(to - p, c->out.width - ox);
        if (k->row_terms)
            sum_line(c, view.term, view.first, oy, ox, count, pads[0], s->term + (p - from));
        if (k->row_affines)
            sum_line(c, view.affine, view.first, oy, ox, count, pads[1], s->affine + (p - from));
    }
}

/* Where each tap of output pixel (oy, ox) lies, in the image or on the pixel of padding. */
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
            ? view.rows + y * c->line_bytes + x * c->pixel_bytes
            : s->pad;
    }
}

static void point_taps(const struct call *c, const uint8_t *at, const uint8_t **to)
{
    for (size_t i = 0; i < c->segments; ++i, to += c->layer->kernel->rows)
        *to = at + c->segment_offsets[i];
}

/* Where the segments of `rows` pixels from p on lie; rows of the tile beyond them read the last one
 * again. */
static void point_rows(
    const struct call *c, struct view view, size_t p, size_t rows, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const int plain = l->conv_algorithm == BS_IM2COL;
    const size_t down = (plain ? 1 : l->stride_h) * c->line_bytes,
                 right = (plain ? 1 : l->stride_w) * c->pixel_bytes;
    size_t oy = p / c->out.width, ox = p % c->out.width;
    const uint8_t *line = view.rows + oy * down - view.first * c->line_bytes,
                  *at = line + ox * right;
    for (size_t row = 0; row < l->kernel->rows; ++row) {
        if (l->conv_algorithm == BS_INDIRECT)
            point_inside(c, view, oy, ox, s->pointers + row, s);
        else
            point_taps(c, at, s->pointers + row);
        if (row + 1 >= rows)
            continue;
        at += right;
        if (++ox == c->out.width) {
            ox = 0;
            ++oy;
            at = line += down;
        }
    }
}

static int stored_at_once(const struct bs_layer *l)
{
    return l->epilogue == BS_INT32 && l->out_layout == BS_NHWC && !l->affine && !l->padding;
}

/* One tile: `rows` pixels from p on, which the pointers point to and whose row terms start at
 * `place`. */
static void run_tile(
    const struct call *c,
    size_t p,
    size_t rows,
    size_t place,
    size_t number,
    const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const struct bs_kernel *k = l->kernel;
    const size_t column = number * k->columns, tile = c->group * c->tiles + number;
    const uint8_t *w =
        l->weights + tile * c->segments * c->segment_steps * k->columns * k->column_bytes;
    const int32_t *start = l->start + tile * k->columns;
    if (rows == k->rows && column + k->columns <= l->out_channels && stored_at_once(l)) {
        int32_t *to = (int32_t *)(void *)bs_pixel_output(c, p, c->group * l->out_channels + column);
        k->run(
            c->segments,
            c->segment_steps,
            s->pointers,
            w,
            start,
            s->term + place,
            to,
            l->groups * l->out_channels);
        return;
    }
    k->run(
        c->segments, c->segment_steps, s->pointers, w, start, s->term + place, s->tile, k->columns);
    for (size_t row = 0; row < rows; ++row)
        bs_finish_row(
            c,
            p + row,
            k->row_affines ? s->affine[place + row] : 0,
            column,
            s->tile + row * k->columns,
            s->tile + k->rows * k->columns);
}

/* Pixels from..to and tiles of columns tile_from..tile_to, tile by tile. */
static void run_block(
    const struct call *c,
    struct view view,
    size_t from,
    size_t to,
    size_t tile_from,
    size_t tile_to,
    const struct scratch *s)
{
    const size_t rows = c->layer->kernel->rows,
                 tiles = c->layer->columns_first ? 1 : tile_to - tile_from;
    for (size_t first = tile_from; first < tile_to; first += tiles)
        for (size_t p = from; p < to; p += rows) {
            point_rows(c, view, p, least(rows, to - p), s);
            for (size_t tile = first; tile < first + tiles; ++tile)
                run_tile(c, p, least(rows, to - p), p - from, tile, s);
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
    const struct view pad = {NULL, &sums[0], &sums[1], 0};
    if (c->layer->conv_algorithm == BS_INDIRECT)
        bs_pack_padding(c, pad, s);
    for (size_t p = from; p < to; p += block) {
        sum_block(c, view, p, least(p + block, to), s, sums);
        run_block(c, view, p, least(p + block, to), tile_from, tile_to, s);
    }
}
