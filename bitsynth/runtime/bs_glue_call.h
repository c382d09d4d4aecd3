/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* What the parts of the glue share. Not for callers. */
#ifndef BS_GLUE_CALL_H
#define BS_GLUE_CALL_H

#include "bs_call.h"
#include "bs_glue.h"

/* Everything a call knows, the same for all its tasks. */
struct glue {
    const struct bs_glue *glue;
    struct bs_shape in, out;
    const uint8_t *inputs[BS_GLUE_INPUTS];
    uint8_t *output, *arena;
    /* Bytes of a pixel in memory, and in the lines that an operation reads and writes. */
    size_t in_pixel[BS_GLUE_INPUTS], out_pixel;
    size_t pixel[BS_GLUE_INPUTS], made_pixel;
    size_t slots; /* tasks at a time, each with its own scratch */
    size_t line_bytes, made_bytes, work_bytes, scratch_bytes, arena_bytes;
};

/* A task's memory: a line of codes of each input and of the output, if they are packed, and what
 * pooling works in. */
struct glue_scratch {
    uint8_t *lines[BS_GLUE_INPUTS], *made, *work;
};

/* Makes line y of an image of the output at `to`. */
typedef void bs_glue_line(
    const struct glue *c, size_t image, size_t y, const struct glue_scratch *s, uint8_t *to);

bs_glue_line bs_glue_max_pool, bs_glue_mean_pool, bs_glue_pad, bs_glue_resize, bs_glue_blocks,
    bs_glue_lookup, bs_glue_concat, bs_glue_add, bs_glue_quantize;

/* A proved program, or plain C, on whole units of elements (emit/elementwise.py says how it is
 * called). */
struct bs_glue_program {
    bs_finish_rows *run;
    size_t unit, from_bytes, to_bytes; /* elements, and bytes of one */
};

/* By number (enum bs_elements). */
extern const struct bs_glue_program bs_glue_programs[];

/* On `rows` of `count` packed words: what is there and what is at `from`, the result there. */
typedef void bs_glue_words(
    size_t rows,
    size_t count,
    const uint8_t *from,
    size_t from_apart,
    uint8_t *to,
    size_t to_apart);

/* The greater of two codes of each place, by their bits. */
extern bs_glue_words *const bs_glue_greatest_words[];

/* `rows` of `count` neighbouring elements, which lie `apart` bytes from each other. */
struct bs_glue_rows {
    size_t rows, count, from_apart, to_apart;
};

/* The greater of each byte and what is there. */
void bs_glue_take_greater(struct bs_glue_rows at, const uint8_t *from, uint8_t *to);

/* Entries of a table for codes of so many bits. */
void bs_glue_look_up(
    size_t bits, const uint8_t *table, struct bs_glue_rows at, const uint8_t *from, uint8_t *to);

/* Floats to codes or back: elements at `from`, each with its channel's scale. */
void bs_glue_scale(const struct bs_glue *g, size_t count, const void *from, void *to);

/* What a program makes of `count` elements, and those of `other` if it has two inputs. */
void bs_glue_map(
    const struct bs_glue_program *p,
    const void *numbers,
    size_t count,
    const void *from,
    const uint8_t *other,
    uint8_t *to);

/* Line y of input i, as the operation reads it. */
const uint8_t *bs_glue_input(
    const struct glue *c, size_t i, size_t image, size_t y, const struct glue_scratch *s);

/* The window of an operation that has one: `whole_image` is looked at here alone. */
static inline size_t bs_glue_kernel_h(const struct glue *c)
{
    return c->glue->whole_image ? c->in.height : c->glue->kernel_h;
}

static inline size_t bs_glue_kernel_w(const struct glue *c)
{
    return c->glue->whole_image ? c->in.width : c->glue->kernel_w;
}

#endif
