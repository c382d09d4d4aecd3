/* From sums of a tile to the results of a layer. */
#include "bs_call.h"
#include "bs_scale.h"

#include <string.h>

/* What the taps on padding add, if padding has no code of value 0. */
static void add_padding(const struct call *c, size_t p, size_t column, size_t count, int32_t *sums)
{
    const struct bs_layer *l = c->layer;
    const size_t width = c->tiles * l->kernel->columns, taps = l->kernel_h * l->kernel_w;
    const size_t oy = p / c->out.width, ox = p % c->out.width;
    const int32_t *terms = l->padding + c->group * taps * width + column;
    for (size_t tap = 0; tap < taps; ++tap, terms += width) {
        size_t y, x;
        if (bs_inside(c, oy, ox, tap / l->kernel_w, tap % l->kernel_w, &y, &x))
            continue;
        for (size_t j = 0; j < count; ++j)
            sums[j] += terms[j];
    }
}

/* From the microkernel's sums to sums of values. Unsigned arithmetic may wrap, the result does
 * not. */
static void make_values(
    const struct call *c, size_t p, int32_t affine, size_t column, size_t count, int32_t *sums)
{
    const struct bs_layer *l = c->layer;
    if (l->affine) {
        const int32_t *more = l->affine + c->group * c->tiles * l->kernel->columns + column;
        for (size_t j = 0; j < count; ++j) {
            const uint32_t whole =
                (uint32_t)l->factor * (uint32_t)sums[j] + (uint32_t)affine + (uint32_t)more[j];
            sums[j] = (int32_t)whole >> l->shift;
        }
    }
    if (l->padding)
        add_padding(c, p, column, count, sums);
}

static uint8_t requantized(const struct bs_layer *l, size_t channel, int32_t sum)
{
    const int64_t half = l->multiplier_shift ? INT64_C(1) << (l->multiplier_shift - 1) : 0;
    const int64_t code = ((int64_t)sum * l->multiplier[channel] + half) >> l->multiplier_shift;
    const int64_t most = (INT64_C(1) << l->out_bits) - 1;
    return (uint8_t)(code < 0 ? 0 : code > most ? most : code);
}

static void count_thresholds(
    const struct bs_layer *l, size_t channel, size_t count, const int32_t *sums, uint8_t *to)
{
    memset(to, 0, count);
    const int32_t *thresholds = l->thresholds + channel;
    for (size_t t = 0; t < l->threshold_count; ++t, thresholds += l->groups * l->out_channels)
        for (size_t j = 0; j < count; ++j)
            to[j] = (uint8_t)(to[j] + (sums[j] > thresholds[j]));
}

/* The epilogue of neighbouring channels of a pixel. */
static void finish(
    const struct bs_layer *l, size_t channel, size_t count, const int32_t *sums, void *to)
{
    switch (l->epilogue) {
    case BS_INT32:
        memcpy(to, sums, count * sizeof *sums);
        break;
    case BS_FLOAT:
        bs_scale(count, sums, l->scale + channel, l->bias + channel, to);
        break;
    case BS_REQUANTIZE:
        for (size_t j = 0; j < count; ++j)
            ((uint8_t *)to)[j] = requantized(l, channel + j, sums[j]);
        break;
    case BS_THRESHOLDS:
        count_thresholds(l, channel, count, sums, to);
        break;
    }
}

static void store_channels_first(
    const struct call *c, size_t p, size_t channel, size_t count, const void *from)
{
    const struct bs_layer *l = c->layer;
    const size_t plane = c->out.height * c->out.width, bytes = out_bytes(l->epilogue);
    const uint8_t *element = from;
    for (size_t j = 0; j < count; ++j, element += bytes) {
        const size_t place = (c->image * l->groups * l->out_channels + channel + j) * plane + p;
        memcpy(c->output + place * bytes, element, bytes);
    }
}

uint8_t *bs_pixel_output(const struct call *c, size_t p, size_t channel)
{
    const struct bs_layer *l = c->layer;
    const size_t channels = l->groups * l->out_channels;
    if (l->out_layout == BS_PACKED)
        return c->codes + p * channels + channel;
    return c->output
        + ((c->image * c->out.height * c->out.width + p) * channels + channel)
        * out_bytes(l->epilogue);
}

void bs_finish_row(
    const struct call *c, size_t p, int32_t affine, size_t column, int32_t *sums, void *staged)
{
    const struct bs_layer *l = c->layer;
    const size_t count = least(l->kernel->columns, l->out_channels - column);
    const size_t channel = c->group * l->out_channels + column;
    make_values(c, p, affine, column, count, sums);
    if (l->out_layout == BS_NCHW) {
        finish(l, channel, count, sums, staged);
        store_channels_first(c, p, channel, count, staged);
    } else
        finish(l, channel, count, sums, bs_pixel_output(c, p, channel));
}
