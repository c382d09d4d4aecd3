/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
/* bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64: exact int32 products of 3-bit unsigned activations and
 * 3-bit bipolar weights, by counting bits.
 *
 *   computes  c (m x n) = activations (m x k) times weights (k x n), for k up to 43,826,196
 *   tile      1 row of activations x 8 columns of weights; a step is 64 positions of k
 *   row       24 bytes a step: bit 0 at positions 0 to 7, 8 to 15, .., 56 to 63, byte by byte;
 *             bit 1 at positions 0 to 7, 8 to 15, .., 56 to 63, byte by byte; bit 2 at positions
 *             0 to 7, 8 to 15, .., 56 to 63, byte by byte
 *   column    32 bytes a step: codes 2, 5, 6, 7 at positions 0 to 7, 8 to 15, .., 56 to 63, byte
 *             by byte; codes 6, 7 at positions 0 to 7, 8 to 15, .., 56 to 63, byte by byte;
 *             codes 1, 2, 4, 5, 6 at positions 0 to 7, 8 to 15, .., 56 to 63, byte by byte;
 *             codes 2, 3, 4 at positions 0 to 7, 8 to 15, .., 56 to 63, byte by byte
 *   columns   lie next to each other, in order, 8 bytes each
 *   command   bitsynth synth --isa neon_dotprod --act-bits 3 --w-bits 3 --method popcount
 *             --channels 64
 *
 * From a kernel whose proof was checked. */
#ifndef BS_MM_A3U_W3B_S32_NEON_DOTPROD_1X8X64_H
#define BS_MM_A3U_W3B_S32_NEON_DOTPROD_1X8X64_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Codes, one a byte, stand for values: code for activations and 2 * code - 7 for weights. Codes
 * beyond 7 and 7 are not allowed.
 *
 * K must not exceed 43,826,196, so that no sum leaves int32. Packed buffers must be 8-byte
 * aligned and not overlap; nothing is allocated and no state is kept. */
enum {
    bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_rows = 1,
    bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_columns = 8,
    bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_k_step = 64,
    bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_row_bytes = 24,
    bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_k_max = 43826196
};

/* The first feature, as Linux names it, that the kernel needs and this processor or its system
 * lacks; NULL if it has them all. Nothing else here may be called if one is missing. */
const char *bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_missing_feature(void);

/* Return the bytes of packed operands; SIZE_MAX if no object can be that large. */
size_t bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_act_bytes(size_t m, size_t k);
size_t bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_wgt_bytes(size_t k, size_t n);

/* Pack row-major codes: act is m x k, wgt is k x n. Returns 0, or -1 if no object can hold the
 * operand, and then writes nothing. */
int bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_pack_act(
    size_t m, size_t k, const uint8_t *codes, uint8_t *packed);
int bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_pack_wgt(
    size_t k, size_t n, const uint8_t *codes, uint8_t *packed);

/* Pack `count` rows of k codes that lie `apart` bytes from each other; `readable` bytes or more
 * can be read from `codes` on. Up to 16 bytes behind a packed row are written too: rows are
 * packed from first to last, `packed_apart` bytes from each other, and the buffer has room
 * behind the last.
 *
 * `terms` gets a number for each row, computed from its codes alone: the caller passes it to the
 * microkernel as h, and the accumulators of the row start from it. It corrects what the kernel
 * computes in place of the products of codes.
 *
 * `affines` is not written: rows of this kernel need none. */
void bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_pack_rows(
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
void bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_pack_words(
    size_t count,
    size_t k,
    const uint64_t *words,
    size_t apart,
    uint8_t *packed,
    size_t packed_apart,
    int32_t *terms,
    int32_t *affines);

/* c (m x n, row-major) = act times wgt. Returns 0; or -1, and writes nothing, if k is beyond
 * bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_k_max or no object can hold an operand or c. */
int bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64_matmul(
    size_t m, size_t k, size_t n, const uint8_t *act, const uint8_t *wgt, int32_t *c);

/* The microkernel: `tiles` neighbouring tiles of 1 x 8 over `segments` segments of K, `steps`
 * steps of 64 positions each. All tiles have the same rows; w advances from tile to tile by a
 * tile's packed columns, g and c by 8 elements. Rows are activations: a[segment * 1 + row]
 * points at the packed steps of a row. The accumulator in c[row * ldc + column] starts from
 * g[column] + h[row], and the products are added to it: g has a number for each column, h the
 * terms of each row. */
void bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64(
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
