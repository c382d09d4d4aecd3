/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Internal to the runtime: the state of a call, and functions of several source files. */
#ifndef BS_CALL_H
#define BS_CALL_H

#include "bs_layer.h"

/* The state of a call, shared by all its tasks. A *line* is a row of packed pixels, a *view* the
 * packed lines that one task reads, a *strip* the accumulators that are finished at once. */
struct call {
    const struct bs_layer *layer;
    const uint8_t *input, *residual;
    uint8_t *output, *sum;
    struct bs_shape in, out;
    size_t grid_h, grid_w;                       /* pixels that are packed */
    size_t pixel_codes, pixel_bytes, line_bytes; /* of the packed pixels */
    /* A copy of the last window of a line, paired with the first window of the next line. 0 bytes
     * if no pair spans two lines. */
    size_t end_at, end_bytes;
    /* from_words: rows are packed from packed words. expands: words are unpacked to codes first.
     * Bytes of a pixel of the input, and of its group. */
    size_t from_words, expands, in_pixel, tap_bytes;
    int reads_input; /* rows are the input itself: nothing is packed */
    size_t segments, segment_steps;
    size_t tiles, tile_bytes; /* of columns */
    size_t band_rows, band_grid_rows, bands;
    size_t slots; /* tasks at a time, each with its own scratch */
    size_t rows_bytes, sums_bytes, view_bytes, views;
    /* Of views and scratch, of codes that are packed to words at the end, of everything. */
    size_t private_bytes, codes_bytes, arena_bytes;
    /* Lines of the input that are copied to channels last and kept, and bytes of one. */
    size_t staged_lines, staged_bytes;
    size_t pointers_bytes, terms_bytes, held_bytes, taps_bytes, patch_bytes;
    /* A strip, accumulators that are finished at once: pixels, distance of rows, tiles. */
    size_t strip_rows, strip_columns, strip_tiles, strip_bytes, results_bytes;
    size_t scratch_bytes;
    /* Results that wait to be packed to words, or to be transposed; else NULL. */
    uint8_t *codes;
    size_t first_codes; /* the pixel that they start at */
    uint8_t *arena;
    size_t *segment_offsets;
    size_t offsets_bytes;
    size_t image, group;
    int packs_only;
    int pads_results; /* corrections of padding are added to stored results */
};

/* Packed lines from `first` on, the address they are read from, and terms and affines of pixels. */
struct view {
    uint8_t *rows;
    const uint8_t *lines;
    int32_t *term, *affine;
    size_t first;
};

/* Codes, or words, of a line of the input, channels last: the group's first pixel, bytes from one
 * pixel to the next, and bytes that can be read. */
struct line {
    const uint8_t *codes;
    size_t apart, readable;
};

/* A staged line, and its number from 1 on; 0 for none. */
struct held {
    struct line line;
    size_t number;
};

struct scratch {
    const uint8_t **pointers;
    int32_t *term, *affine, *strip;
    uint8_t *results;  /* of a strip, if they have another order in memory */
    struct held *held; /* the line y of the input is in place y % staged_lines */
    struct line *taps; /* the lines that a row of output reads */
    uint8_t *staged, *patch, *pad;
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

/* Returns whether a tap of an output pixel lies in the image; y and x are its place. */
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

/* Packs a pixel of padding into the scratch; its terms go to place 0 of the view. */
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
    struct strip strip,
    const int32_t *row,
    const int32_t *sums,
    int32_t *to,
    size_t to_apart);

/* Adds the corrections of taps on padding to a strip's accumulators, `count` columns of pixels that
 * lie `apart` from each other. */
void bs_pad_sums(
    const struct call *c, struct strip strip, size_t count, int32_t *sums, size_t apart);

/* Returns the strip's columns, rounded up to whole units. */
static inline size_t bs_whole_columns(const struct call *c, struct strip strip)
{
    return ceiling(strip.columns, bs_unit(c->layer)) * bs_unit(c->layer);
}

/* Converts a strip's accumulators to values, adds the residual in place, and stores the sums. */
void bs_add_residual(const struct call *c, struct strip strip, const int32_t *row, int32_t *sums);

/* Copies a strip's values to the output. */
void bs_copy_values(
    const struct call *c, struct strip strip, const int32_t *values, uint8_t *to, size_t to_apart);

/* Stores the tensors and the arena in the call: BS_OK, BS_NULL, or BS_RESIDUAL if a tensor is
 * missing or not wanted. */
int bs_set_tensors(struct call *c, const struct bs_tensors *tensors, void *arena);

/* Computes the results of a strip of joined pixels; `row` has a number to add for each row. */
void bs_finish_joined(
    const struct call *c, struct strip strip, const int32_t *row, const struct scratch *s);

/* Computes the results of a strip's accumulators and stores them. */
void bs_finish(const struct call *c, struct strip strip, const struct scratch *s);

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
