/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* What the parts of the runtime share. Not for callers. */
#ifndef BS_CALL_H
#define BS_CALL_H

#include "bs_layer.h"

/* Everything a call knows, the same for all its tasks. */
struct call {
    const struct bs_layer *layer;
    const uint8_t *input, *residual;
    uint8_t *output, *sum;
    struct bs_shape in, out;
    size_t grid_h, grid_w;                       /* pixels that are packed */
    size_t pixel_codes, pixel_bytes, line_bytes; /* of the packed pixels */
    /* Behind a line, once more: what its last output reads, in pairs with what the first one of the
     * next line does. 0 bytes if no pair lies in two lines. */
    size_t end_at, end_bytes;
    /* Rows are packed from words as they lie; bytes of a pixel of the input, and of its group. */
    size_t from_words, expands, in_pixel, tap_bytes;
    int reads_input; /* rows are the codes of the input's pixels, where they lie */
    size_t segments, segment_steps;
    size_t tiles, tile_bytes; /* of columns */
    size_t band_rows, band_grid_rows, bands;
    size_t slots; /* tasks at a time, each with its own scratch */
    size_t rows_bytes, sums_bytes, view_bytes, views;
    /* Of views and scratch, of codes that become words, of all. */
    size_t private_bytes, codes_bytes, arena_bytes;
    /* Lines of the input that are staged at a time, and bytes of one. */
    size_t staged_lines, staged_bytes;
    size_t pointers_bytes, terms_bytes, held_bytes, taps_bytes, patch_bytes;
    /* Sums that are finished at once: pixels, columns from one to the next, tiles. */
    size_t strip_rows, strip_columns, strip_tiles, strip_bytes, results_bytes;
    size_t scratch_bytes;
    /* Results that words are made of, or that are transposed, when there are enough; else NULL. */
    uint8_t *codes;
    size_t first_codes; /* the pixel that they start at */
    uint8_t *arena;
    size_t *segment_offsets;
    size_t offsets_bytes;
    size_t image, group;
    int packs_only;
    int pads_results; /* what taps on padding add goes to sums that are stored as results */
};

/* Packed grid lines from `first` on, where they are read, and the sums of the codes of their
 * pixels.
 */
struct view {
    uint8_t *rows;
    const uint8_t *lines;
    int32_t *term, *affine;
    size_t first;
};

/* Codes, or words, of a line of the input, channels last: the group's first pixel, bytes from one
 * to the next, and how many can be read there. */
struct line {
    const uint8_t *codes;
    size_t apart, readable;
};

/* A line that was staged, and its number from 1 on; 0 for none. */
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

/* Where part i of n of 0..count begins. */
static inline size_t part(size_t count, size_t i, size_t n)
{
    return count / n * i + count % n * i / n;
}

/* Packed pixels, or lines of them, from one output to the next. */
static inline size_t bs_step(const struct call *c, size_t stride)
{
    return c->layer->conv_algorithm == BS_IM2COL ? 1 : stride;
}

/* Whether a sum is a result, but for taps on padding, and lies as one. */
static inline int bs_stored_at_once(const struct bs_layer *l)
{
    return !l->program && !l->residual && l->out_layout == BS_NHWC && !l->affine && !l->shift
        && !(l->kernel && l->kernel->row_affines);
}

/* Whether results are codes of which words are made when all groups are done. */
static inline int bs_words_later(const struct bs_layer *l)
{
    return l->out_layout == BS_PACKED && l->program && !l->program->words;
}

/* Whether words are made of sums. */
static inline int bs_makes_words(const struct bs_layer *l)
{
    return l->program && l->program->words;
}

/* Bytes of a result that is not in words. */
static inline size_t bs_out_bytes(const struct bs_layer *l)
{
    return l->program ? l->program->result_bits / 8 : sizeof(int32_t);
}

/* Columns that results are made of at once: units are powers of two. */
static inline size_t bs_unit(const struct bs_layer *l)
{
    if (l->joined_pixels)
        return 1;
    const size_t unit = l->program ? l->program->unit : 1;
    return l->residual && l->residual->unit > unit ? l->residual->unit : unit;
}

/* Tiles of columns that are whole units, or all if pixels are joined. */
static inline size_t bs_unit_tiles(const struct bs_layer *l)
{
    if (l->joined_pixels)
        return ceiling(l->out_channels, l->kernel->columns);
    size_t tiles = 1;
    while (tiles * l->kernel->columns % bs_unit(l))
        ++tiles;
    return tiles;
}

/* A tap of an output pixel: whether it lies in the image, and where. */
static inline int bs_inside(
    const struct call *c, size_t oy, size_t ox, size_t ky, size_t kx, size_t *y, size_t *x)
{
    const struct bs_layer *l = c->layer;
    *y = oy * l->stride_h + ky * l->dilation_h - l->pad_top;
    *x = ox * l->stride_w + kx * l->dilation_w - l->pad_left;
    return *y < c->in.height && *x < c->in.width;
}

/* `count` times eight channels from 8 * eighth on, a code a byte, of a packed pixel. */
void bs_expand(size_t bits, const uint64_t *words, size_t eighth, size_t count, uint8_t *to);

/* Codes of `count` pixels of whole words, whose words and codes lie so far apart, and their sums.
 */
void bs_expand_pixels(
    size_t bits,
    size_t count,
    size_t channels,
    const uint64_t *words,
    size_t apart,
    uint8_t *to,
    size_t to_apart,
    int32_t *sums);

/* Rows of elements of so many bytes, and how far rows and those of the transpose lie apart. */
struct bs_matrix {
    size_t bytes, rows, columns, from_apart, to_apart;
};

/* Rows and columns from which on bytes are transposed by vectors. */
enum { BS_TRANSPOSED = 16 };

/* Element j of row i to place i of row j. */
void bs_transpose(struct bs_matrix m, const uint8_t *from, uint8_t *to);

/* Whether a code of packed words has all bits set. */
int bs_has_all_ones(size_t bits, size_t count, const uint64_t *words);

/* Words of each of so many pixels, whose codes lie `apart` bytes from each other; and back. */
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

/* Words of the codes of output pixels from..to of the image. */
void bs_pack_pixels(const struct call *c, size_t from, size_t to);

/* Their results, which lie at the call's codes, channels first. */
void bs_transpose_pixels(const struct call *c, size_t from, size_t to);

/* Pack grid lines from..to into the view. */
void bs_pack_lines(
    const struct call *c, struct view view, size_t from, size_t to, const struct scratch *s);

/* Put what the first output of the next line reads into the pixels behind grid lines from..to of
 * those up to `end`, which are packed. */
void bs_pair_lines(const struct call *c, struct view view, size_t from, size_t to, size_t end);

/* A pixel of padding, packed into the scratch; its sums go to place 0 of the view. */
void bs_pack_padding(const struct call *c, struct view view, const struct scratch *s);

/* Output pixels from..to of the image, tiles tile_from..tile_to of the columns. */
void bs_compute(
    const struct call *c,
    struct view view,
    size_t from,
    size_t to,
    size_t tile_from,
    size_t tile_to,
    const struct scratch *s);

/* A strip's pixels, rows from `place` on of the block, and its columns. */
struct strip {
    size_t p, rows, place, column, columns;
};

/* Where a pixel's results go, from a column on. */
uint8_t *bs_pixel_output(const struct call *c, size_t p, size_t column);

/* Values of a strip's sums, `to` where those are or elsewhere; `row` is added to each row's, or
 * NULL. */
void bs_values(
    const struct call *c,
    struct strip strip,
    const int32_t *row,
    const int32_t *sums,
    int32_t *to,
    size_t to_apart);

/* Adds what taps on padding do to a strip's sums, `count` columns of pixels that lie `apart` from
 * each other. */
void bs_pad_sums(
    const struct call *c, struct strip strip, size_t count, int32_t *sums, size_t apart);

/* The strip's columns, and those behind them that fill a unit. */
static inline size_t bs_whole_columns(const struct call *c, struct strip strip)
{
    return ceiling(strip.columns, bs_unit(c->layer)) * bs_unit(c->layer);
}

/* Makes values of a strip's sums, adds the residual in their place, and keeps them. */
void bs_add_residual(const struct call *c, struct strip strip, const int32_t *row, int32_t *sums);

/* Copies a strip's values. */
void bs_copy_values(
    const struct call *c, struct strip strip, const int32_t *values, uint8_t *to, size_t to_apart);

/* Has the call know its tensors and memory: BS_OK, BS_NULL, or BS_RESIDUAL if one is missing, or
 * none wants it. */
int bs_set_tensors(struct call *c, const struct bs_tensors *tensors, void *arena);

/* The same if pixels are joined, whose rows have such addends. */
void bs_finish_joined(
    const struct call *c, struct strip strip, const int32_t *row, const struct scratch *s);

/* From the strip's sums to results in their place. */
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
