/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Internal to the runtime of glue: the state of a call, and functions of several source files. */
#ifndef BS_GLUE_CALL_H
#define BS_GLUE_CALL_H

#include "bs_call.h"
#include "bs_glue.h"

/* The state of a call, shared by all its tasks. */
struct glue {
    const struct bs_glue *glue;
    struct bs_shape in, out;
    const uint8_t *inputs[BS_GLUE_INPUTS];
    uint8_t *output, *arena;
    size_t in_pixel[BS_GLUE_INPUTS], out_pixel; /* bytes of a pixel in memory */
    size_t pixel[BS_GLUE_INPUTS], made_pixel;   /* and in the lines that an operation computes on */
    size_t slots;                               /* tasks at a time, each with its own scratch */
    /* Sizes of the parts of struct glue_scratch, of all of it, and of the arena. */
    size_t line_bytes, made_bytes, work_bytes, scratch_bytes, arena_bytes;
};

/* The memory of a task. */
struct glue_scratch {
    uint8_t *lines[BS_GLUE_INPUTS]; /* for each packed input a line of its codes */
    uint8_t *made;                  /* a line of codes of a packed output */
    uint8_t *work;                  /* sums of a pool */
};

/* Computes line y of an image of the output into `to`. */
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

/* Combines `rows` of `count` packed words at `from` into those at `to`. */
typedef void bs_glue_words(
    size_t rows,
    size_t count,
    const uint8_t *from,
    size_t from_apart,
    uint8_t *to,
    size_t to_apart);

/* The functions that compute the greater of two codes on their bits, by the number of bits. */
extern bs_glue_words *const bs_glue_greatest_words[];

/* `rows` of `count` neighbouring elements, which lie `apart` bytes from each other. */
struct bs_glue_rows {
    size_t rows, count, from_apart, to_apart;
};

/* Replaces each byte at `to` by the greater of it and the byte at `from`. */
void bs_glue_take_greater(struct bs_glue_rows at, const uint8_t *from, uint8_t *to);

/* Looks up codes of `bits` bits in a table. */
void bs_glue_look_up(
    size_t bits, const uint8_t *table, struct bs_glue_rows at, const uint8_t *from, uint8_t *to);

/* Converts floats to codes or back, each element with its channel's scale. */
void bs_glue_scale(const struct bs_glue *g, size_t count, const void *from, void *to);

/* Runs a program on `count` elements, and on elements of `other` if it has two inputs. */
void bs_glue_map(
    const struct bs_glue_program *p,
    const void *numbers,
    size_t count,
    const void *from,
    const uint8_t *other,
    uint8_t *to);

/* Returns line y of input i, unpacked if the operation reads codes. */
const uint8_t *bs_glue_input(
    const struct glue *c, size_t i, size_t image, size_t y, const struct glue_scratch *s);

/* Return the height and width of the window; `whole_image` is read here alone. */
static inline size_t bs_glue_kernel_h(const struct glue *c)
{
    return c->glue->whole_image ? c->in.height : c->glue->kernel_h;
}

static inline size_t bs_glue_kernel_w(const struct glue *c)
{
    return c->glue->whole_image ? c->in.width : c->glue->kernel_w;
}

#endif
