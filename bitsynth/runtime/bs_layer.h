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

/* A microkernel whose rows are activations of as many bits as the layer's or more: sizes in
 * elements, and bytes a step of K. It runs tiles of the same rows, one behind the other in w. */
struct bs_kernel {
    size_t act_bits, rows, columns, k_step, row_bytes, column_bytes;
    size_t slack; /* bytes that may be written behind a packed row */
    /* 1: a row has all steps of a plane before the next plane, so rows in line are no long row. */
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
    /* Rows of k codes, `apart` bytes from each other, and their sums (see the kernel's header). */
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
    /* NULL, or puts a row's partner, the row `next` behind it, into its bytes: of pairs of rows
     * `run` reads the first alone, which has both. */
    void (*pair_rows)(
        size_t count, size_t next, size_t bytes, uint8_t *packed, size_t packed_apart);
    size_t rows_of_words;          /* 1: codes become words before they become rows */
    size_t row_terms, row_affines; /* 1: rows have such sums */
    /* 1: rows of whole words are their codes, a byte each, and their sums so many times those of
     * the codes. */
    size_t rows_of_codes;
    int32_t code_terms, code_affines;
};

/* A kernel whose lanes are output channels: channels of a register of bytes, taps and bytes of a
 * unit's weights in a step, what codes are xored with, and what computes `pixels` pixels of `units`
 * units: tap t of the first lies at a[t], of the next `apart` bytes behind. */
struct bs_depthwise {
    size_t unit, taps, step_bytes;
    uint8_t flip;
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

/* How activations lie in memory: channels last, channels first, or bits of 64 channels a word
 * (bs_pack_codes). */
enum bs_layout { BS_NHWC, BS_NCHW, BS_PACKED };

/* Where a row of the microkernel comes from: the padded image, the image and one pixel of padding,
 * or copied patches. */
enum bs_conv_algorithm { BS_DIRECT, BS_INDIRECT, BS_IM2COL };

/* Results of rows x columns sums, whole units of columns: `rows` lie `..._apart` bytes from each
 * other. `constants` are those of the first unit on, `shared` those of all columns; `row` has what
 * is added to each row's sums, `other` a second operand. What a program does not read may be NULL.
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

/* Brings whole units of columns from the order of channels into a program's, rows `apart` from each
 * other. */
typedef void bs_order_rows(size_t rows, size_t columns, size_t apart, int32_t *sums);

/* An epilogue as a program: columns of a unit, bytes of its constants, bits of a result, bytes of
 * an element of the second operand if it has one. `order` is NULL if its order is that of channels,
 * or columns lie in its order anyway. */
struct bs_epilogue {
    size_t unit, constant_bytes, result_bits, other_bytes;
    int words; /* 1: results are words */
    bs_finish_rows *finish;
    bs_order_rows *order;
};

enum { BS_LARGEST_UNIT = 128, BS_LONGEST_PERIOD = 512 };

/* A layer. Channels are those of one group; arrays over output channels have `out_places` places in
 * every group: channels, then what makes tiles and units of results whole. It has a kernel of tiles
 * or a depthwise one, for which all groups' channels are those of one; the other is NULL. */
struct bs_layer {
    const struct bs_kernel *kernel;
    const struct bs_depthwise *depthwise;
    size_t groups, in_channels, out_channels, out_places;
    size_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    size_t pad_top, pad_left, pad_bottom, pad_right;
    size_t act_bits;
    size_t pad_code; /* the code of padding */
    const uint8_t *weights;
    const int32_t *start; /* where a column's sum starts */
    /* 0, or rows' terms are these, shifted right by so much, times `row_factor`: weights have a
     * zero point that the kernel does not know. */
    size_t row_shift;
    int32_t row_factor;
    /* A value is factor * sum, its row's addend and its column's, `affine`, shifted by `shift`.
     * NULL if sums have their column's and the factor is 1, or the epilogue's program makes values.
     */
    const int32_t *affine;
    size_t factor, shift;
    size_t tap_parts; /* depthwise: the weights of a tap are sums of so many */
    /* NULL, or what a column adds for taps on padding, before the shift: [kernel_h + 1][kernel_w +
     * 1] sums over the taps above and left of each. */
    const int32_t *padding;
    enum bs_layout in_layout, out_layout;
    size_t out_bits; /* of codes, 0 of other results */
    /* NULL if values are the results, or the epilogue's program, and what it reads: constants of
     * every group's units, and of all of them. Columns lie in its order, but for those of a unit
     * that is not full, if `tail` has their places in it. */
    const struct bs_epilogue *program;
    const uint8_t *unit_constants, *shared_constants;
    const int32_t *tail;
    /* NULL, or a program that comes before: it adds a second tensor to values, in their place. Then
     * columns lie in the order of channels. */
    const struct bs_epilogue *residual;
    const uint8_t *residual_constants, *residual_shared;
    /* 0, or so many pixels that fill whole units together, a period of BS_LONGEST_PERIOD sums at
     * the most. Sums of a strip lie one behind the other then, constants are those of a period,
     * columns and the program's units lie in the order of channels. Programs read no row's addends.
     */
    size_t joined_pixels;
    /* Schedule: none of it changes a result. */
    enum bs_conv_algorithm conv_algorithm;
    size_t joined_taps;   /* 1: pixels lie code by code, and a row of taps has one end of its own */
    size_t columns_first; /* 1: all rows of a block for one tile of columns, then the next */
    size_t block_rows;    /* pixels in a block, 0 for all */
    size_t band_rows;     /* output rows packed and computed at a time, 0 for all */
};

struct bs_shape {
    size_t batch, height, width;
};

/* What a call reads and writes. A layer with a residual reads one of the output's shape, channels
 * last, and writes what its epilogue takes with it to `sum`, likewise, unless that is NULL. For
 * other layers both are NULL. */
struct bs_tensors {
    const void *input, *residual;
    void *output, *sum;
};

/* BS_CODES: an input has a code beyond its last. BS_RESIDUAL: a residual or a place for sums is
 * missing, or given to a layer without; or floats of the residual are not finite. BS_NULL: an
 * input, the output or the arena is NULL. */
enum { BS_OK = 0, BS_EMPTY = -1, BS_ARENA = -2, BS_CODES = -3, BS_RESIDUAL = -4, BS_NULL = -5 };

/* Height and width of the output; 0 if there is none. */
struct bs_shape bs_layer_output(const struct bs_layer *layer, struct bs_shape in);

/* Bytes of scratch memory a call takes; SIZE_MAX if no object can have so many, or as many as
 * input or output have. */
size_t bs_layer_arena_bytes(const struct bs_layer *layer, struct bs_shape in, size_t threads);

/* Codes (or bs_pack_codes words) in, int32, float, codes or words out, by the layer's layouts.
 * `arena` and words must be aligned to 8 bytes, the arena better to 64. Returns BS_OK, BS_EMPTY
 * if the output has no element, BS_ARENA if the arena is too small, as any is if
 * bs_layer_arena_bytes is SIZE_MAX, BS_NULL, BS_RESIDUAL if tensors are missing or too many;
 * nothing is written but by BS_OK. */
int bs_layer_run(
    const struct bs_layer *layer,
    struct bs_shape in,
    const struct bs_tensors *tensors,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool);

/* Whether all codes of an input that a call takes are below `codes`. */
int bs_layer_holds(
    const struct bs_layer *layer,
    size_t codes,
    struct bs_shape in,
    const void *input,
    struct bs_pool *pool);

/* Whether all floats of a residual that a call takes are finite. */
int bs_layer_finite(
    const struct bs_layer *layer, struct bs_shape in, const void *residual, struct bs_pool *pool);

/* The packing of activations alone: what of a call it takes is measured with it. */
int bs_layer_pack(
    const struct bs_layer *layer,
    struct bs_shape in,
    const void *input,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool);

/* Words of one pixel: for every 64 channels one word a bit; bit 8b + q of it is channel 8q + b. */
size_t bs_packed_words(size_t bits, size_t channels);
void bs_pack_codes(size_t bits, size_t channels, const uint8_t *codes, uint64_t *words);
void bs_unpack_codes(size_t bits, size_t channels, const uint64_t *words, uint8_t *codes);

#ifdef __cplusplus
}
#endif

#endif
