/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Products of matrices that are both given at run time: dense layers whose weights are packed
 * before they run. */
#ifndef BS_MATRICES_H
#define BS_MATRICES_H

#include "bs_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The vectors of codes that products are of: rows of the first operand, columns of the second.
 * Vector i of matrix g begins at element starts[g] + i * apart; its codes lie `stride` elements
 * from each other. */
struct bs_vectors {
    const uint32_t *starts;
    size_t apart, stride;
};

/* Products of `count` pairs of matrices. The first result of product g lies at element
 * result_starts[g], rows `result_apart` elements from each other; without `result_starts` results
 * lie matrix by matrix, row by row. A residual always lies so.
 *
 * `layer` is a dense layer without `weights`, `start` and `affine`: these are computed from the
 * codes of columns. A code becomes code_factor * code + code_summand, a code of the kernel's
 * weights, modulo 256. Each code of the kernel adds to where its column's accumulators start, and
 * to the column's affine number. */
struct bs_matrices {
    const struct bs_layer *layer;
    size_t count;
    struct bs_vectors rows, columns;
    const uint32_t *result_starts;
    size_t result_apart;
    /* Packs a tile of columns, each of `steps` steps of codes. */
    void (*pack_columns)(size_t steps, const uint8_t *const *codes, uint8_t *packed);
    uint8_t code_factor, code_summand;
    uint8_t idle; /* the kernel's code behind the last of a column */
    /* NULL, or the column at each place of the kernel's tiles. */
    const uint32_t *order;
    /* What a code adds to the start: `start_slope` times the code, and a number of a table, NULL if
     * these are 0; and to the affine number. `cross_terms` is a factor of products of neighbouring
     * codes. */
    int32_t start_slope, affine_slope, cross_terms;
    const int32_t *start_terms;
    /* The start and affine number of a column of no codes, `out_places` each; `affine` is NULL if
     * the layer has none. */
    const int32_t *start, *affine;
};

/* Returns the bytes of scratch memory that a call takes for products of `rows` rows; SIZE_MAX if no
 * object can be that large. */
size_t bs_matrices_arena_bytes(
    const struct bs_matrices *matrices, struct bs_shape in, size_t threads);

/* Computes all products; `in` is {count, 1, rows}, `columns` the second operand. Other arguments
 * and statuses are those of bs_layer_run. */
int bs_matrices_run(
    const struct bs_matrices *matrices,
    struct bs_shape in,
    const struct bs_tensors *tensors,
    const uint8_t *columns,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
