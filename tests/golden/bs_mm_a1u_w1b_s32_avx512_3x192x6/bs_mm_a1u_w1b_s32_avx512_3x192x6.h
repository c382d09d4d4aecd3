/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* bs_mm_a1u_w1b_s32_avx512_3x192x6: exact int32 products of 1-bit unsigned activations and 1-bit
 * bipolar weights, by looking sums up in tables.
 *
 *   computes  c (m x n) = activations (m x k) times weights (k x n), for k up to 2,147,483,647
 *   tile      3 rows of weights x 192 columns of activations; a step is 6 positions of k
 *   row       64 bytes a step: table of 64 sums of 0 1 by code at positions 0 to 5
 *   column    1 byte a step: bit 0 at positions 0 to 5
 *   columns   lie next to each other, in the order of `slots` in the source, 1 byte each
 *   command   bitsynth synth --isa avx512 --act-bits 1 --w-bits 1 --method lookup
 *
 * From a kernel whose proof was checked. */
#ifndef BS_MM_A1U_W1B_S32_AVX512_3X192X6_H
#define BS_MM_A1U_W1B_S32_AVX512_3X192X6_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Codes, one a byte, stand for values: code for activations and 2 * code - 1 for weights. Codes
 * beyond 1 and 1 are not allowed.
 *
 * K must not exceed 2,147,483,647, so that no sum leaves int32. Packed buffers must be 8-byte
 * aligned and not overlap; nothing is allocated and no state is kept. */
enum {
    bs_mm_a1u_w1b_s32_avx512_3x192x6_rows = 3,
    bs_mm_a1u_w1b_s32_avx512_3x192x6_columns = 192,
    bs_mm_a1u_w1b_s32_avx512_3x192x6_k_step = 6,
    bs_mm_a1u_w1b_s32_avx512_3x192x6_row_bytes = 64,
    bs_mm_a1u_w1b_s32_avx512_3x192x6_k_max = 2147483647
};

/* The first feature, as Linux names it, that the kernel needs and this processor or its system
 * lacks; NULL if it has them all. Nothing else here may be called if one is missing. */
const char *bs_mm_a1u_w1b_s32_avx512_3x192x6_missing_feature(void);

/* Return the bytes of packed operands; SIZE_MAX if no object can be that large. */
size_t bs_mm_a1u_w1b_s32_avx512_3x192x6_act_bytes(size_t m, size_t k);
size_t bs_mm_a1u_w1b_s32_avx512_3x192x6_wgt_bytes(size_t k, size_t n);

/* Pack row-major codes: act is m x k, wgt is k x n. Returns 0, or -1 if no object can hold the
 * operand, and then writes nothing. */
int bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_act(
    size_t m, size_t k, const uint8_t *codes, uint8_t *packed);
int bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_wgt(
    size_t k, size_t n, const uint8_t *codes, uint8_t *packed);

/* Pack `count` rows of k codes that lie `apart` bytes from each other; `readable` bytes or more
 * can be read from `codes` on. Up to 64 bytes behind a packed row are written too: rows are
 * packed from first to last, `packed_apart` bytes from each other, and the buffer has room
 * behind the last.
 *
 * `terms` and `affines` are not written: rows of this kernel need none. */
void bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_rows(
    size_t count,
    size_t k,
    const uint8_t *codes,
    size_t apart,
    size_t readable,
    uint8_t *packed,
    size_t packed_apart,
    int32_t *terms,
    int32_t *affines);

/* Pack rows of packed words, for each 64 codes one word for each bit, in which bit 8 b + q is
 * code 8 q + b; rows lie `apart` words from each other. Bits beyond the k codes are ignored. */
void bs_mm_a1u_w1b_s32_avx512_3x192x6_pack_words(
    size_t count,
    size_t k,
    const uint64_t *words,
    size_t apart,
    uint8_t *packed,
    size_t packed_apart,
    int32_t *terms,
    int32_t *affines);

/* c (m x n, row-major) = act times wgt. Returns 0; or -1, and writes nothing, if k is beyond
 * bs_mm_a1u_w1b_s32_avx512_3x192x6_k_max or no object can hold an operand or c. */
int bs_mm_a1u_w1b_s32_avx512_3x192x6_matmul(
    size_t m, size_t k, size_t n, const uint8_t *act, const uint8_t *wgt, int32_t *c);

/* The microkernel: `tiles` neighbouring tiles of 3 x 192 over `segments` segments of K, `steps`
 * steps of 6 positions each. All tiles have the same rows; w advances from tile to tile by a
 * tile's packed columns, g and c by 192 elements. Rows are weights: a[segment * 3 + row] points
 * at the packed steps of a row. The accumulator in c[row * ldc + column] starts from g[column],
 * and the products are added to it: g has a number for each column, such as a bias; h is not
 * read, as rows of this kernel have no terms. */
void bs_mm_a1u_w1b_s32_avx512_3x192x6(
    size_t tiles,
    size_t segments,
    size_t steps,
    const uint8_t *const *a,
    const uint8_t *w,
    const int32_t *g,
    const int32_t *h,
    int32_t *c,
    size_t ldc);

#ifdef __cplusplus
}
#endif

#endif
