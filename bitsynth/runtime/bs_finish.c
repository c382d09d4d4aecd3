/* From sums of a strip to the results of a layer. */
#include "bs_call.h"
#include "bs_scale.h"

#include <string.h>

static uint8_t requantized(const struct bs_layer *l, size_t channel, int32_t sum)
{
    const int64_t half = l->multiplier_shift ? INT64_C(1) << (l->multiplier_shift - 1) : 0;
    const int64_t code = ((int64_t)sum * l->multiplier[channel] + half) >> l->multiplier_shift;
    const int64_t most = (INT64_C(1) << l->out_bits) - 1;
    return (uint8_t)(code < 0 ? 0 : code > most ? most : code);
}

/* How many thresholds are less than each sum and the row's addend. */
static inline void count_thresholds(
    const struct bs_layer *l,
    size_t channel,
    size_t count,
    const int32_t *sums,
    int32_t addend,
    uint8_t *to)
{
    const int32_t *first = l->thresholds + channel;
    const size_t apart = l->groups * l->out_places, levels = l->threshold_count;
    for (size_t j = 0; j < count; ++j)
        to[j] = sums[j] + addend > first[j];
    for (size_t t = 1; t + 1 < levels; t += 2) {
        const int32_t *one = first + t * apart, *other = one + apart;
        for (size_t j = 0; j < count; ++j) {
            const int32_t sum = sums[j] + addend;
            to[j] = (uint8_t)(to[j] + (sum > one[j]) + (sum > other[j]));
        }
    }
    const int32_t *last = first + (levels - 1) * apart;
    for (size_t j = 0; levels % 2 == 0 && j < count; ++j)
        to[j] = (uint8_t)(to[j] + (sums[j] + addend > last[j]));
}

/* Codes of up to 64 neighbouring columns of a pixel; `channel` is the first one's place among the
 * constants. */
static void make_codes(
    const struct bs_layer *l,
    size_t channel,
    size_t count,
    const int32_t *sums,
    int32_t addend,
    uint8_t *to)
{
    if (l->epilogue == BS_REQUANTIZE)
        for (size_t j = 0; j < count; ++j)
            to[j] = requantized(l, channel + j, sums[j]);
    else if (count == 64)
        count_thresholds(l, channel, 64, sums, addend, to);
    else
        count_thresholds(l, channel, count, sums, addend, to);
}

/* The results of a pixel's columns. */
static void finish_row(
    const struct bs_layer *l,
    size_t channel,
    size_t count,
    const int32_t *sums,
    int32_t addend,
    void *to)
{
    if (l->epilogue == BS_INT32)
        memcpy(to, sums, count * sizeof *sums);
    else if (l->epilogue == BS_FLOAT)
        bs_scale(count, sums, l->scale + channel, l->bias + channel, to);
    else
        for (size_t j = 0; j < count; j += 64) {
            uint8_t *codes = (uint8_t *)to + j;
            make_codes(l, channel + j, least(64, count - j), sums + j, addend, codes);
        }
}

/* The results of a pixel's columns as words of 64. */
static void finish_words(
    const struct bs_layer *l,
    size_t channel,
    size_t count,
    const int32_t *sums,
    int32_t addend,
    uint64_t *to)
{
    for (size_t j = 0; j < count; j += 64, to += l->out_bits) {
        uint8_t codes[64];
        make_codes(l, channel + j, 64, sums + j, addend, codes);
        bs_pack_codes(l->out_bits, 64, codes, to);
    }
}

/* Results of a strip, channels last, to where its pixels lie channels first. */
static void store_channels_first(const struct call *c, struct strip strip, const uint8_t *from)
{
    const struct bs_layer *l = c->layer;
    const size_t plane = c->out.height * c->out.width, bytes = out_bytes(l->epilogue);
    const size_t first = (c->image * l->groups + c->group) * l->out_channels + strip.column;
    uint8_t *to = c->output + (first * plane + strip.p) * bytes;
    for (size_t j = 0; j < strip.columns; ++j, to += plane * bytes)
        for (size_t row = 0; row < strip.rows; ++row)
            memcpy(to + row * bytes, from + (row * strip.columns + j) * bytes, bytes);
}

/* Bytes of a pixel's results, and of a strip's columns of it. */
static size_t result_bytes(const struct bs_layer *l, size_t columns)
{
    return l->out_layout == BS_PACKED && !bs_words_later(l)
        ? ceiling(columns, 64) * l->out_bits * sizeof(uint64_t)
        : columns * out_bytes(l->epilogue);
}

uint8_t *bs_pixel_output(const struct call *c, size_t p, size_t column)
{
    const struct bs_layer *l = c->layer;
    const size_t pixel = result_bytes(l, l->groups * l->out_channels);
    const size_t first = result_bytes(l, c->group * l->out_channels + column);
    if (bs_words_later(l))
        return c->codes + p * pixel + first;
    return c->output + (c->image * c->out.height * c->out.width + p) * pixel + first;
}

static void finish_strip(
    const struct call *c,
    struct strip strip,
    const int32_t *row,
    const int32_t *sums,
    uint8_t *to,
    size_t apart)
{
    const struct bs_layer *l = c->layer;
    const size_t channel = c->group * l->out_places + strip.column;
    const int words = bs_unit(l) == 64;
    for (size_t i = 0; i < strip.rows; ++i, sums += c->strip_columns, to += apart) {
        const int32_t addend = row ? row[i] : 0;
        if (words)
            finish_words(l, channel, strip.columns, sums, addend, (uint64_t *)(void *)to);
        else
            finish_row(l, channel, strip.columns, sums, addend, to);
    }
}

void bs_finish(const struct call *c, struct strip strip, const struct scratch *s)
{
    const struct bs_layer *l = c->layer;
    const int32_t *row = bs_make_values(c, strip, s);
    if (l->out_layout == BS_NCHW) {
        finish_strip(c, strip, row, s->strip, s->results, result_bytes(l, strip.columns));
        store_channels_first(c, strip, s->results);
        return;
    }
    uint8_t *to = bs_pixel_output(c, strip.p, strip.column);
    finish_strip(c, strip, row, s->strip, to, result_bytes(l, l->groups * l->out_channels));
}
