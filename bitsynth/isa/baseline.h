/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* What bitsynth's kernels are compared with: one tile of ROWS x COLUMNS, at the processor's peak.
 *
 * c = a times w over `steps` steps of K_STEP positions of K. A step of `a` is ROWS x K_STEP, one of
 * `w` COLUMNS x K_STEP elements; c is ROWS x COLUMNS. The three sizes are macros from baselines.toml.
 * Activations are at most 127, so that signed and unsigned instructions read them alike. */
#include <stddef.h>
#include <stdint.h>

void fp32(size_t steps, const float *a, const float *w, float *c);
void int8(size_t steps, const uint8_t *a, const int8_t *w, int32_t *c);

/* Before loops over the tile, so that every compiler keeps its sums in registers. */
#define UNROLL _Pragma("GCC unroll 16")
