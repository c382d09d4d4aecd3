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

/* Whether all taps of a pixel of the output see the image, and which do. */
static int sees_all(const struct call *c, size_t p, struct taps *y, struct taps *x)
{
    const struct bs_layer *l = c->layer;
    const size_t oy = p / c->out.width * l->stride_h, ox = p % c->out.width * l->stride_w;
    *y = seen(oy, l->pad_top, c->in.height, l->kernel_h, l->dilation_h);
    *x = seen(ox, l->pad_left, c->in.width, l->kernel_w, l->dilation_w);
    return y->to - y->from == l->kernel_h && x->to - x->from == l->kernel_w;
}

/* Values of sums that have their columns' terms and whose factor is 1, to another place. Unsigned
 * arithmetic may wrap, values do not. */
static void shift_sums(
    size_t rows,
    size_t columns,
    const int32_t *row,
    size_t shift,
    const int32_t *restrict sums,
    size_t sums_apart,
    int32_t *restrict to,
    size_t to_apart)
{
    for (size_t i = 0; i < rows; ++i, sums += sums_apart, to += to_apart) {
        const uint32_t addend = row ? (uint32_t)row[i] : 0;
        for (size_t j = 0; j < columns; ++j)
            to[j] = (int32_t)((uint32_t)sums[j] + addend) >> shift;
    }
}

static void shift_in_place(size_t count, int32_t *sums, uint32_t addend, size_t shift)
{
    for (size_t j = 0; j < count; ++j)
        sums[j] = (int32_t)((uint32_t)sums[j] + addend) >> shift;
}

static void scale_sums(
    size_t count,
    const int32_t *sums,
    uint32_t factor,
    uint32_t addend,
    const int32_t *more,
    size_t shift,
    int32_t *to)
{
    for (size_t j = 0; j < count; ++j)
        to[j] = (int32_t)(factor * (uint32_t)sums[j] + addend + (uint32_t)more[j]) >> shift;
}

/* Values of a pixel's sums, but for taps on padding if `shift` is not the layer's. */
static void make_pixel(
    const struct bs_layer *l,
    size_t place,
    size_t count,
    const int32_t *row,
    size_t shift,
    const int32_t *sums,
    int32_t *to)
{
    const uint32_t addend = row ? (uint32_t)*row : 0;
    if (l->affine)
        scale_sums(count, sums, (uint32_t)l->factor, addend, l->affine + place, shift, to);
    else if (sums == to)
        shift_in_place(count, to, addend, shift);
    else
        shift_sums(1, count, row, shift, sums, 0, to, 0);
}

void bs_values(
    const struct call *c,
    struct strip strip,
    const int32_t *row,
    const int32_t *sums,
    int32_t *to,
    size_t to_apart)
{
    const struct bs_layer *l = c->layer;
    const size_t place = c->group * l->out_places + strip.column, count = strip.columns;
    if (!l->affine && !l->padding) {
        shift_sums(strip.rows, count, row, l->shift, sums, c->strip_columns, to, to_apart);
        return;
    }
    for (size_t i = 0; i < strip.rows; ++i, sums += c->strip_columns, to += to_apart) {
        const int32_t *addend = row ? row + i : NULL;
        struct taps y, x;
        if (!l->padding || sees_all(c, strip.p + i, &y, &x)) {
            make_pixel(l, place, count, addend, l->shift, sums, to);
            continue;
        }
        make_pixel(l, place, count, addend, 0, sums, to);
        pad_pixel(c, strip.column, y, x, count, to);
        for (size_t j = 0; j < count; ++j)
            to[j] >>= l->shift;
    }
}

void bs_pad_sums(const struct call *c, struct strip strip, int32_t *sums)
{
    const size_t unit = bs_unit(c->layer);
    struct taps y, x;
    for (size_t i = 0; i < strip.rows; ++i, sums += c->strip_columns)
        if (!sees_all(c, strip.p + i, &y, &x))
            pad_pixel(c, strip.column, y, x, ceiling(strip.columns, unit) * unit, sums);
}
