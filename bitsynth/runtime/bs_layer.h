/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Convolutions and dense layers around a bitsynth microkernel. Nothing is allocated and no state is
 * kept. */
#ifndef BS_LAYER_H
#define BS_LAYER_H

#include <stddef.h>
#include <stdint.h>

#include "bs_pool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A microkernel whose rows are activations of at least as many bits as the layer's. rows, columns
 * and k_step are the tile's size in elements; row_bytes and column_bytes are bytes of one row and
 * one column in a step of K. A call computes `tiles` tiles of the same rows; their columns lie
 * behind each other in w.
 *
 * The accumulator of a row and a column starts from g[column] + h[row]. g holds the layer's
 * `start`; h holds the terms of packed rows. Terms and affines are computed from the codes of one
 * row alone. Terms correct what the kernel computes in place of products of codes. Affines are what
 * the offset of the weights' encoding contributes; they are added to finished accumulators. */
struct bs_kernel {
    size_t act_bits, rows, columns, k_step, row_bytes, column_bytes;
    size_t slack; /* bytes that may be written behind a packed row */
    /* 1: a row has all steps of one bit plane before the next plane. Rows next to each other are
     * then not one long row. */
    size_t planes_apart;
    void (*run)(
        size_t tiles,
        size_t segments,
        size_t steps,
        const uint8_t *const *a,
        const uint8_t *w,
        const int32_t *g,
        const int32_t *h,
        int32_t *c,
        size_t ldc);
    /* Packs rows of k codes, `apart` bytes from each other, and computes their terms and affines
     * (see the kernel's header). */
    void (*pack_rows)(
        size_t count,
        size_t k,
        const uint8_t *codes,
        size_t apart,
        size_t readable,
        uint8_t *packed,
        size_t packed_apart,
        int32_t *terms,
        int32_t *affines);
    /* NULL, or the same from words of codes (bs_pack_codes), `apart` words from each other. */
    void (*pack_words)(
        size_t count,
        size_t k,
        const uint64_t *words,
        size_t apart,
        uint8_t *packed,
        size_t packed_apart,
        int32_t *terms,
        int32_t *affines);
    /* NULL, or merges each row with its partner, the row `next` rows behind, into the first row's
     * bytes. `run` then reads the first row of each pair alone. */
    void (*pair_rows)(
        size_t count, size_t next, size_t bytes, uint8_t *packed, size_t packed_apart);
    size_t rows_of_words;          /* 1: rows are packed from words, so codes become words first */
    size_t row_terms, row_affines; /* 1: rows have terms, affines */
    /* 1: a row packed from whole words is the unpacked codes, one byte each. Its terms are
     * `code_terms` times the sum of its codes, its affines `code_affines` times that sum. */
    size_t rows_of_codes;
    int32_t code_terms, code_affines;
};

/* A depthwise kernel: its lanes are output channels, `unit` of them in a register of bytes. A step
 * takes `taps` taps of the window and `step_bytes` bytes of a unit's weights. `run` computes
 * `pixels` pixels of `units` units; tap t of the first pixel lies at a[t], of the next `apart`
 * bytes behind. */
struct bs_depthwise {
    size_t unit, taps, step_bytes;
    uint8_t flip; /* codes are xored with it before they are multiplied */
    void (*run)(
        size_t pixels,
        size_t units,
        size_t steps,
        const uint8_t *const *a,
        size_t apart,
        const uint8_t *w,
        const int32_t *start,
        int32_t *c,
        size_t ldc);
};

/* The layout of activations in memory: channels last, channels first, or packed words, each with
 * one bit of 64 channels (bs_pack_codes). */
enum bs_layout { BS_NHWC, BS_NCHW, BS_PACKED };

/* Where the rows of the microkernel lie: in the padded image, in the image and one pixel of padding
 * that all windows share, or in copied patches. */
enum bs_conv_algorithm { BS_DIRECT, BS_INDIRECT, BS_IM2COL };

/* Computes results from rows x columns accumulators, whole units of columns. Rows of `from`,
 * `other` and `to` lie `..._apart` bytes from each other. `constants` are one block for each unit,
 * `shared` one block for all columns; `row` is a number for each row that is added to its
 * accumulators, `other` the second operand. An argument that a program does not read may be NULL.
 */
typedef void bs_finish_rows(
    const void *constants,
    const void *shared,
    size_t rows,
    size_t columns,
    const void *from,
    size_t from_apart,
    const int32_t *row,
    const void *other,
    size_t other_apart,
    void *to,
    size_t to_apart);

/* Reorders whole units of columns from the order of channels to a program's order. Rows lie `apart`
 * elements from each other. */
typedef void bs_order_rows(size_t rows, size_t columns, size_t apart, int32_t *sums);

/* An epilogue: the program that computes results from accumulators. */
struct bs_epilogue {
    size_t unit;           /* columns that are computed at once */
    size_t constant_bytes; /* of a unit's constants */
    size_t result_bits;
    size_t other_bytes; /* of an element of the second operand, 0 without one */
    int words;          /* 1: results are packed words */
    bs_finish_rows *finish;
    bs_order_rows *order; /* NULL if columns lie in the program's order already */
};

enum { BS_LARGEST_UNIT = 128, BS_LONGEST_PERIOD = 512 };

/* A layer. It has a `kernel` of tiles or a `depthwise` one, for which all channels are one group;
 * the other is NULL. Channels are counted in one group. Arrays over output channels have
 * `out_places` elements for each group: its channels, then padding to whole tiles and units. */
struct bs_layer {
    const struct bs_kernel *kernel;
    const struct bs_depthwise *depthwise;
    size_t groups, in_channels, out_channels, out_places;
    size_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    size_t pad_top, pad_left, pad_bottom, pad_right;
    size_t act_bits;
    size_t pad_code; /* the code of padding */
    const uint8_t *weights;
    const int32_t *start; /* where a column's accumulators start: bias and terms of the weights */
    /* Weights with a zero point that the kernel does not know: the terms of packed rows are shifted
     * right by `row_shift`, then multiplied by `row_factor`. 0 for the terms as they are. */
    size_t row_shift;
    int32_t row_factor;
    /* The value of an accumulator is (factor * accumulator + affines of its row + `affine` of its
     * column) >> shift. NULL if the factor is 1 and `start` has the column's number already, or if
     * the epilogue's program computes values. */
    const int32_t *affine;
    size_t factor, shift;
    size_t tap_parts; /* depthwise: packed weights whose sum is the weight of a tap */
    /* NULL, or the correction of a column for taps on padding, before the shift: a table of
     * [kernel_h + 1][kernel_w + 1] sums over the taps above and left of each place. */
    const int32_t *padding;
    enum bs_layout in_layout, out_layout;
    size_t out_bits; /* of codes, 0 if results are not codes */
    /* The epilogue's program, or NULL if values are the results. It reads one block of constants
     * for each unit of a group, and one that all units share. Columns lie in its order. A unit that
     * is not full may have another order: `tail` then has the place of each of its columns. */
    const struct bs_epilogue *program;
    const uint8_t *unit_constants, *shared_constants;
    const int32_t *tail;
    /* NULL, or the program that runs before: it adds a second tensor to values, in place. Columns
     * then lie in the order of channels. */
    const struct bs_epilogue *residual;
    const uint8_t *residual_constants, *residual_shared;
    /* 0, or a number of pixels that fill whole units together, a period of at most
     * BS_LONGEST_PERIOD accumulators. The accumulators of a strip then lie behind each other,
     * constants are those of a period, and columns and units lie in the order of channels. Programs
     * read no number of a row. Depthwise: the most neighbouring pixels whose channels a unit of the
     * kernel holds together; weights and constants are repeated for each of them. */
    size_t joined_pixels;
    /* Schedule: it changes no result. */
    enum bs_conv_algorithm conv_algorithm;
    /* 1: the codes of neighbouring pixels lie without gaps, so that a row of taps is padded to
     * whole steps once, at its end */
    size_t joined_taps;
    size_t columns_first; /* 1: all rows of a block for one tile of columns, then the next */
    size_t block_rows;    /* pixels in a block, 0 for all */
    size_t band_rows;     /* output rows packed and computed at a time, 0 for all */
};

struct bs_shape {
    size_t batch, height, width;
};

/* The memory that a call reads and writes. A layer with a residual reads a residual of the output's
 * shape, channels last. Unless `sum` is NULL, it writes the sum of values and residual there, in
 * the same layout. `residual` and `sum` are NULL for other layers. */
struct bs_tensors {
    const void *input, *residual;
    void *output, *sum;
};

/* BS_CODES: an input has a code beyond its last. BS_RESIDUAL: a residual or a place for sums is
 * missing, or given to a layer without; or floats of the residual are not finite. BS_NULL: an
 * input, the output or the arena is NULL. */
enum { BS_OK = 0, BS_EMPTY = -1, BS_ARENA = -2, BS_CODES = -3, BS_RESIDUAL = -4, BS_NULL = -5 };

/* Returns height and width of the output; 0 if there is none. */
struct bs_shape bs_layer_output(const struct bs_layer *layer, struct bs_shape in);

/* Returns the bytes of scratch memory that a call takes; SIZE_MAX if no object can be that large,
 * or as large as the input or output. */
size_t bs_layer_arena_bytes(const struct bs_layer *layer, struct bs_shape in, size_t threads);

/* Runs the layer. The input is codes or packed words, the output int32, floats, codes or words, in
 * the layer's layouts. `arena` and words must be aligned to 8 bytes; 64 is faster for the arena.
 * Returns BS_OK; BS_EMPTY if the output has no element; BS_ARENA if the arena is too small, as it
 * always is if bs_layer_arena_bytes is SIZE_MAX; BS_NULL; BS_RESIDUAL if a tensor is missing or not
 * wanted. The output is written by BS_OK only. */
int bs_layer_run(
    const struct bs_layer *layer,
    struct bs_shape in,
    const struct bs_tensors *tensors,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool);

/* Returns whether all codes of the call's input are below `codes`. */
int bs_layer_holds(
    const struct bs_layer *layer,
    size_t codes,
    struct bs_shape in,
    const void *input,
    struct bs_pool *pool);

/* Returns whether all floats of the call's residual are finite. */
int bs_layer_finite(
    const struct bs_layer *layer, struct bs_shape in, const void *residual, struct bs_pool *pool);

/* Packs activations and computes nothing: for measuring the share of a call that packing takes. */
int bs_layer_pack(
    const struct bs_layer *layer,
    struct bs_shape in,
    const void *input,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool);

/* Packed words of one pixel: for every 64 channels one word for each bit of a code, in which bit
 * 8b + q is channel 8q + b. */
size_t bs_packed_words(size_t bits, size_t channels);
void bs_pack_codes(size_t bits, size_t channels, const uint8_t *codes, uint64_t *words);
void bs_unpack_codes(size_t bits, size_t channels, const uint64_t *words, uint8_t *codes);

#ifdef __cplusplus
}
#endif

#endif
