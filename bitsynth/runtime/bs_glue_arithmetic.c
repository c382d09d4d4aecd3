/* Codes of two inputs, and to and from floats. */
#include "bs_glue_call.h"

void bs_glue_add(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const struct bs_glue *g = c->glue;
    const struct bs_glue_program *p = &bs_glue_programs[g->program];
    const size_t count = c->in.width * g->out_channels, shift = g->pair_shift;
    const uint8_t *a = bs_glue_input(c, 0, image, y, s), *b = bs_glue_input(c, 1, image, y, s);
    if (g->numbers)
        bs_glue_map(p, g->numbers, count, a, b, to);
    else if (g->program)
        bs_glue_map(p, g->tables, count, a, b, to);
    else
        for (size_t i = 0; i < count; ++i)
            to[i] = g->tables[(size_t)a[i] << shift | b[i]];
}

void bs_glue_quantize(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const size_t count = c->in.width * c->glue->out_channels;
    bs_glue_scale(c->glue, count, bs_glue_input(c, 0, image, y, s), to);
}
