/* Codes by arithmetic: sums of two, and to and from floats, each operation rounded once. */
#include "bs_glue_call.h"
#include "bs_scale.h"

void bs_glue_add(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const struct bs_glue *g = c->glue;
    const struct bs_glue_program *p = &bs_glue_programs[g->program];
    const size_t count = c->in.width * g->out_channels, shift = g->pair_shift;
    const uint8_t *a = bs_glue_input(c, 0, image, y, s), *b = bs_glue_input(c, 1, image, y, s);
    if (g->numbers)
        bs_glue_map(p, g->numbers, count, a, b, to);
    else if (g->program && p->run)
        bs_glue_map(p, g->tables, count, a, b, to);
    else
        for (size_t i = 0; i < count; ++i)
            to[i] = g->tables[(size_t)a[i] << shift | b[i]];
}

/* Adding this rounds a float of few bits to a whole number, half to even. */
static const float whole = 12582912.0f;

/* x / scale, clamped and rounded, as its code; what is no number is the least. */
static void quantize(
    const struct bs_glue *g, size_t count, const float *x, const float *scale, uint8_t *to)
{
    const float low = (float)(int32_t)(g->low - g->zero_point),
                high = (float)(int32_t)(g->high - g->zero_point);
    const int32_t more = (int32_t)(g->zero_point - g->offset);
    for (size_t i = 0; i < count; ++i) {
        float v = x[i] / scale[i];
        v = v > low ? v : low;
        v = v < high ? v : high;
        v += whole;
        to[i] = (uint8_t)((int32_t)(v - whole) + more);
    }
}

/* One bit, -1 or 1: the sign of x / scale. */
static void quantize_signs(size_t count, const float *x, const float *scale, uint8_t *to)
{
    for (size_t i = 0; i < count; ++i)
        to[i] = x[i] / scale[i] >= 0;
}

void bs_glue_quantize(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const struct bs_glue *g = c->glue;
    const float *x = (const float *)(const void *)bs_glue_input(c, 0, image, y, s);
    const size_t channels = g->out_channels;
    for (size_t i = 0; i < c->in.width; ++i, x += channels, to += channels)
        if (g->step == 2)
            quantize_signs(channels, x, g->scale, to);
        else
            quantize(g, channels, x, g->scale, to);
}

void bs_glue_dequantize(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const struct bs_glue *g = c->glue;
    const uint8_t *from = bs_glue_input(c, 0, image, y, s);
    const int32_t step = (int32_t)g->step, more = (int32_t)(g->offset - g->zero_point);
    const size_t channels = g->out_channels;
    float *at = (float *)(void *)to;
    for (size_t x = 0; x < c->in.width; ++x, from += channels, at += channels)
        for (size_t i = 0; i < channels; ++i)
            at[i] = (float)(from[i] * step + more) * g->scale[i];
}
