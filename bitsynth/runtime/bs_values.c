/* From the microkernel's sums to sums of values. */
#include "bs_call.h"

/* Taps of one dimension that see the image: from..to. */
struct taps {
    size_t from, to;
};

static struct taps seen(size_t at, size_t pad, size_t size, size_t taps, size_t dilation)
{
    const struct taps all = {0, taps};
    if (at >= pad && at + (taps - 1) * dilation < pad + size)
        return all;
    struct taps some = {at < pad ? ceiling(pad - at, dilation) : 0, 0};
    if (at < pad + size)
        some.to = ceiling(pad + size - at, dilation);
    some.to = least(some.to, taps);
    some.from = least(some.from, some.to);
    return some;
}

/* What the taps of a pixel on padding add, if padding has no code of value 0: all of them but those
 * in the image. */
static void pad_pixel(
    const struct call *c, size_t place, struct taps y, struct taps x, size_t count, int32_t *sums)
{
    const struct bs_layer *l = c->layer;
    const size_t down = (l->kernel_w + 1) * l->out_places;
    const int32_t *terms = l->padding + c->group * (l->kernel_h + 1) * down + place;
    const int32_t *all = terms + l->kernel_h * down + l->kernel_w * l->out_places;
    const int32_t *above = terms + y.from * down, *below = terms + y.to * down;
    const size_t left = x.from * l->out_places, right = x.to * l->out_places;
    for (size_t j = 0; j < count; ++j) {
        const uint32_t inside = (uint32_t)below[right + j] - (uint32_t)below[left + j]
            - (uint32_t)above[right + j] + (uint32_t)above[left + j];
        sums[j] = (int32_t)((uint32_t)sums[j] + (uint32_t)all[j] - inside);
    }
}

static void pad_strip(const struct call *c, struct strip strip, int32_t *sums)
{
    const struct bs_layer *l = c->layer;
    for (size_t row = 0; row < strip.rows; ++row, sums += c->strip_columns) {
        const size_t oy = (strip.p + row) / c->out.width, ox = (strip.p + row) % c->out.width;
        const struct taps y =
            seen(oy * l->stride_h, l->pad_top, c->in.height, l->kernel_h, l->dilation_h);
        const struct taps x =
            seen(ox * l->stride_w, l->pad_left, c->in.width, l->kernel_w, l->dilation_w);
        if (y.to - y.from < l->kernel_h || x.to - x.from < l->kernel_w)
            pad_pixel(c, strip.column, y, x, strip.columns, sums);
    }
}

/* Unsigned arithmetic may wrap, the result does not. */
static void apply_affine(
    const struct call *c, struct strip strip, const int32_t *row, int32_t *sums)
{
    const struct bs_layer *l = c->layer;
    const int32_t *more = l->affine + c->group * l->out_places + strip.column;
    const uint32_t factor = (uint32_t)l->factor;
    for (size_t i = 0; i < strip.rows; ++i, sums += c->strip_columns) {
        const uint32_t addend = row ? (uint32_t)row[i] : 0;
        for (size_t j = 0; j < strip.columns; ++j)
            sums[j] =
                (int32_t)(factor * (uint32_t)sums[j] + addend + (uint32_t)more[j]) >> l->shift;
    }
}

const int32_t *bs_make_values(const struct call *c, struct strip strip, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const int32_t *row = l->kernel && l->kernel->row_affines ? s->affine + strip.place : NULL;
    if (l->affine)
        apply_affine(c, strip, row, s->strip);
    if (l->padding)
        pad_strip(c, strip, s->strip);
    return l->affine ? NULL : row;
}
