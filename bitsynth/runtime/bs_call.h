/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Internal to the runtime: the state of a call, and functions of several source files. */
#ifndef BS_CALL_H
#define BS_CALL_H

#include "bs_layer.h"

/* The state of a call, shared by all its tasks. Words of all files of the runtime:
 *
 * - line: a row of packed pixels.
 * - row: a pixel, or a patch, as the kernel reads it.
 * - tile: the columns that one call of the kernel computes.
 * - strip: the accumulators that are finished at once, some rows of some tiles.
 * - band: output rows that are packed and computed at once.
 * - view: the packed lines that one task reads.
 * - slot: one of the tasks that run at the same time, each with its own scratch memory.
 *
 * Names that end in `_bytes` are sizes or distances in bytes. Sizes of parts of the arena are
 * multiples of 64. */
struct call {
    /* What is computed: the layer, its tensors, their sizes in pixels. */
    const struct bs_layer *layer;
    const uint8_t *input, *residual;
    uint8_t *output, *sum;
    struct bs_shape in, out;
    size_t image, group; /* the image of the batch and the group that tasks compute now */
    int packs_only;      /* 1: bs_layer_pack, which computes nothing */

    /* How the input is read. */
    size_t from_words; /* 1: rows are packed from packed words */
    size_t expands;    /* 1: words are unpacked to codes first */
    size_t in_pixel;   /* bytes of a pixel of the input, codes or words */
    size_t tap_bytes;  /* bytes of one group of that pixel */
    int reads_input;   /* 1: rows are the input itself, nothing is packed */

    /* Packed pixels. The grid is the padded image, or the output with a patch for each pixel. */
    size_t grid_h, grid_w; /* pixels */
    size_t pixel_codes;    /* codes of a pixel of the grid */
    size_t pixel_bytes;    /* from one pixel to the next */
    size_t line_bytes;     /* from one line to the next */
    /* A copy of the last window of a line, which is paired with the first window of the next line:
     * its offset in the line and its size, 0 if no pair spans two lines. */
    size_t end_at, end_bytes;

    /* What the kernel reads for a row: segments of consecutive steps of K. */
    size_t segments, segment_steps;
    size_t *segment_offsets; /* bytes from the first segment to each */

    /* How work is split. */
    size_t tiles, tile_bytes;         /* of columns, and bytes of the weights of one */
    size_t bands;                     /* of an image */
    size_t band_rows, band_grid_rows; /* output rows of a band, and lines that they read */
    size_t slots;                     /* tasks at a time */
    /* A strip: rows, columns in whole units, and tiles. */
    size_t strip_rows, strip_columns, strip_tiles;

    /* Results that are stored first and finished later. */
    uint8_t *codes;     /* that wait to be packed to words or to be transposed; else NULL */
    size_t first_codes; /* the output pixel that `codes` start at */
    int pads_results;   /* 1: corrections of padding are added to stored results */

    /* The arena: all views, the scratch of each slot, `codes`, then `segment_offsets`. */
    uint8_t *arena;
    size_t arena_bytes, private_bytes; /* of everything; of views and scratch */
    size_t codes_bytes, offsets_bytes;
    size_t views;                       /* one for all tasks, or one for each slot */
    size_t view_bytes;                  /* packed rows, then terms, then affines */
    size_t rows_bytes, sums_bytes;      /* of packed rows; of terms, and of affines */
    size_t scratch_bytes;               /* of struct scratch, whose parts follow */
    size_t pointers_bytes, terms_bytes; /* of segments; of terms, and of affines */
    size_t strip_bytes, results_bytes;  /* of a strip's accumulators, and of its results */
    size_t held_bytes, taps_bytes;      /* of `held` and of `taps` */
    size_t staged_lines, staged_bytes;  /* input lines copied to channels last, bytes of one */
    size_t patch_bytes;                 /* of the codes of a patch */
};

/* The packed lines that one task reads. */
struct view {
    uint8_t *rows;          /* where lines are packed */
    const uint8_t *lines;   /* where they are read: there, or in the input itself */
    int32_t *term, *affine; /* of each pixel */
    size_t first;           /* the number of the first line in the image's grid */
};

/* Codes, or words, of a line of the input, channels last. */
struct line {
    const uint8_t *codes; /* the group's first pixel */
    size_t apart;         /* bytes from one pixel to the next */
    size_t readable;      /* bytes that can be read */
};

/* A staged line, and its number from 1 on; 0 for none. */
struct held {
    struct line line;
    size_t number;
};

/* The memory of one task. */
struct scratch {
    const uint8_t **pointers; /* the address of each segment of each row of a tile */
    int32_t *term, *affine;   /* of the rows of a block */
    int32_t *strip;           /* accumulators */
    uint8_t *results;         /* of a strip, if they have another order in memory */
    struct held *held;        /* the line y of the input is in place y % staged_lines */
    struct line *taps;        /* the lines that a row of output reads */
    uint8_t *staged;          /* lines of the input, copied to channels last */
    uint8_t *patch;           /* the codes of a window */
    uint8_t *pad;             /* a packed pixel of padding */
};

static inline size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t ceiling(size_t x, size_t unit)
{
    return x / unit + (x % unit != 0);
}

/* Sizes are exact, or beyond PTRDIFF_MAX if they do not fit. */
static inline size_t times(size_t x, size_t y)
{
    size_t z;
    return __builtin_expect(__builtin_mul_overflow(x, y, &z), 0) ? SIZE_MAX : z;
}

static inline size_t plus(size_t x, size_t y)
{
    size_t z;
    return __builtin_expect(__builtin_add_overflow(x, y, &z), 0) ? SIZE_MAX : z;
}

static inline size_t aligned(size_t bytes)
{
    return plus(bytes, 63) / 64 * 64;
}

/* Returns the begin of part i when 0..count is split in n parts. */
static inline size_t part(size_t count, size_t i, size_t n)
{
    return count / n * i + count % n * i / n;
}

/* Returns the packed pixels, or lines, from one output to the next. */
static inline size_t bs_step(const struct call *c, size_t stride)
{
    return c->layer->conv_algorithm == BS_IM2COL ? 1 : stride;
}

/* Returns whether accumulators are the results, in their layout, but for taps on padding. */
static inline int bs_stored_at_once(const struct bs_layer *l)
{
    return !l->program && !l->residual && l->out_layout == BS_NHWC && !l->affine && !l->shift
        && !(l->kernel && l->kernel->row_affines);
}

/* Returns whether results are codes that are packed to words when all groups are done. */
static inline int bs_words_later(const struct bs_layer *l)
{
    return l->out_layout == BS_PACKED && l->program && !l->program->words;
}

/* Returns whether the epilogue's program writes packed words. */
static inline int bs_makes_words(const struct bs_layer *l)
{
    return l->program && l->program->words;
}

/* Returns the bytes of a result that is not packed. */
static inline size_t bs_out_bytes(const struct bs_layer *l)
{
    return l->program ? l->program->result_bits / 8 : sizeof(int32_t);
}

/* Returns the columns that programs compute at once, a power of two. */
static inline size_t bs_unit(const struct bs_layer *l)
{
    if (l->joined_pixels)
        return 1;
    const size_t unit = l->program ? l->program->unit : 1;
    return l->residual && l->residual->unit > unit ? l->residual->unit : unit;
}

/* Returns the fewest tiles whose columns are whole units; all tiles if pixels are joined. */
static inline size_t bs_unit_tiles(const struct bs_layer *l)
{
    if (l->joined_pixels)
        return ceiling(l->out_channels, l->kernel->columns);
    size_t tiles = 1;
    while (tiles * l->kernel->columns % bs_unit(l))
        ++tiles;
    return tiles;
}

/* Returns whether rows are the input itself: the codes of one pixel each, whole steps, no padding.
 */
static inline int bs_can_read_input(const struct bs_layer *l)
{
    const struct bs_kernel *k = l->kernel;
    const int taps_one = l->kernel_h == 1 && l->kernel_w == 1,
              pads = l->pad_top || l->pad_left || l->pad_bottom || l->pad_right;
    return k->rows_of_codes && !k->row_terms && !k->row_affines && l->in_layout == BS_NHWC
        && l->in_channels % k->k_step == 0 && taps_one && !pads && !l->joined_taps
        && l->conv_algorithm != BS_INDIRECT;
}

/* Returns whether a tap of an output pixel lies in the image, and stores its position in y and x.
 */
static inline int bs_inside(
    const struct call *c, size_t oy, size_t ox, size_t ky, size_t kx, size_t *y, size_t *x)
{
    const struct bs_layer *l = c->layer;
    *y = oy * l->stride_h + ky * l->dilation_h - l->pad_top;
    *x = ox * l->stride_w + kx * l->dilation_w - l->pad_left;
    return *y < c->in.height && *x < c->in.width;
}

/* Unpacks `count` times eight channels of a packed pixel from channel 8 * eighth on, a byte each.
 */
void bs_expand(size_t bits, const uint64_t *words, size_t eighth, size_t count, uint8_t *to);

/* Unpacks `count` pixels of whole words, words `apart` and codes `to_apart` from each other, and
 * sums the codes of each. */
void bs_expand_pixels(
    size_t bits,
    size_t count,
    size_t channels,
    const uint64_t *words,
    size_t apart,
    uint8_t *to,
    size_t to_apart,
    int32_t *sums);

/* A matrix of elements of `bytes` bytes; distances of its rows, and of rows of the transpose. */
struct bs_matrix {
    size_t bytes, rows, columns, from_apart, to_apart;
};

/* Rows and columns from which on bytes are transposed in vector registers. */
enum { BS_TRANSPOSED = 16 };

/* Transposes the matrix. */
void bs_transpose(struct bs_matrix m, const uint8_t *from, uint8_t *to);

/* Returns whether a code of packed words has all bits set. */
int bs_has_all_ones(size_t bits, size_t count, const uint64_t *words);

/* Packs pixels, whose codes lie `apart` bytes from each other, to words; and unpacks them. */
void bs_pack_each(
    size_t bits,
    size_t channels,
    size_t pixels,
    const uint8_t *codes,
    size_t apart,
    uint64_t *words);
void bs_unpack_each(
    size_t bits,
    size_t channels,
    size_t pixels,
    const uint64_t *words,
    uint8_t *codes,
    size_t apart);

/* Packs the codes of output pixels from..to of the image to words. */
void bs_pack_pixels(const struct call *c, size_t from, size_t to);

/* Transposes results of pixels from..to, which lie at the call's codes, to channels first. */
void bs_transpose_pixels(const struct call *c, size_t from, size_t to);

/* Packs lines from..to into the view. */
void bs_pack_lines(
    const struct call *c, struct view view, size_t from, size_t to, const struct scratch *s);

/* Pairs the copies at the ends of lines from..to with the first pixels of the next lines; lines up
 * to `end` are packed. */
void bs_pair_lines(const struct call *c, struct view view, size_t from, size_t to, size_t end);

/* Packs a pixel of padding into the scratch; its term and affine are stored at index 0 of the view.
 */
void bs_pack_padding(const struct call *c, struct view view, const struct scratch *s);

/* Computes output pixels from..to of the image, tiles tile_from..tile_to of the columns. */
void bs_compute(
    const struct call *c,
    struct view view,
    size_t from,
    size_t to,
    size_t tile_from,
    size_t tile_to,
    const struct scratch *s);

/* A strip: pixel p and the next, rows from `place` on of the block, and its columns. */
struct strip {
    size_t p, rows, place, column, columns;
};

/* Returns the address of a pixel's results from a column on. */
uint8_t *bs_pixel_output(const struct call *c, size_t p, size_t column);

/* Converts a strip's accumulators to values, in place or at `to`. `row` has a number to add for
 * each row, or is NULL. */
void bs_values(
    const struct call *c,
    const struct strip *strip,
    const int32_t *row,
    const int32_t *sums,
    int32_t *to,
    size_t to_apart);

/* Adds the corrections of taps on padding to a strip's accumulators, `count` columns of pixels that
 * lie `apart` from each other. */
void bs_pad_sums(
    const struct call *c, const struct strip *strip, size_t count, int32_t *sums, size_t apart);

/* Returns the strip's columns, rounded up to whole units. */
static inline size_t bs_whole_columns(const struct call *c, const struct strip *strip)
{
    return ceiling(strip->columns, bs_unit(c->layer)) * bs_unit(c->layer);
}

/* Converts a strip's accumulators to values, adds the residual in place, and stores the sums. */
void bs_add_residual(
    const struct call *c, const struct strip *strip, const int32_t *row, int32_t *sums);

/* Copies a strip's values to the output. */
void bs_copy_values(
    const struct call *c,
    const struct strip *strip,
    const int32_t *values,
    uint8_t *to,
    size_t to_apart);

/* Stores the tensors and the arena in the call: BS_OK, BS_NULL, or BS_RESIDUAL if a tensor is
 * missing or not wanted. */
int bs_set_tensors(struct call *c, const struct bs_tensors *tensors, void *arena);

/* Computes the results of a strip of joined pixels; `row` has a number to add for each row. */
void bs_finish_joined(
    const struct call *c, const struct strip *strip, const int32_t *row, const struct scratch *s);

/* Computes the results of a strip's accumulators and stores them. */
void bs_finish(const struct call *c, const struct strip *strip, const struct scratch *s);

/* A layer whose input is the one row that it computes, on one thread. */
int bs_is_row(const struct bs_layer *layer, struct bs_shape in, size_t threads);
size_t bs_row_arena_bytes(const struct bs_layer *layer);
int bs_row_run(
    const struct bs_layer *layer,
    const struct bs_tensors *tensors,
    int packs_only,
    void *arena,
    size_t arena_bytes);

/* A layer with a depthwise kernel. */
size_t bs_depthwise_arena_bytes(const struct bs_layer *layer, struct bs_shape in, size_t threads);
int bs_depthwise_run(
    const struct bs_layer *layer,
    struct bs_shape in,
    const struct bs_tensors *tensors,
    int packs_only,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool);

#endif
