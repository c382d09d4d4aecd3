/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Codes of two inputs, and to and from floats. */
#include "bs_glue_call.h"

void bs_glue_add(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const struct bs_glue *g = c->glue;
    const struct bs_glue_program *p = &bs_glue_programs[g->program];
    const size_t count = c->in.width * g->out_channels;
    const uint8_t *a = bs_glue_input(c, 0, image, y, s), *b = bs_glue_input(c, 1, image, y, s);
    bs_glue_map(p, g->numbers ? g->numbers : g->tables, count, a, b, to);
}

void bs_glue_quantize(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to)
{
    const size_t count = c->in.width * c->glue->out_channels;
    bs_glue_scale(c->glue, count, bs_glue_input(c, 0, image, y, s), to);
}
