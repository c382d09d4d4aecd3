#include "baseline.h"

#include <arm_neon.h>

enum { VECTORS = COLUMNS / 4 };

/* The lane is an immediate, so that no loop can count the rows. */
#define ROW(r)                        \
    UNROLL                            \
    for (int v = 0; v < VECTORS; ++v) \
        sum[r][v] = vfmaq_laneq_f32(sum[r][v], b[v], x[(r) / 4], (r) % 4);

void fp32(size_t steps, const float *a, const float *w, float *c)
{
    float32x4_t sum[ROWS][VECTORS];
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            sum[r][v] = vdupq_n_f32(0);
    for (; steps > 0; --steps, a += ROWS, w += COLUMNS) {
        const float32x4_t x[] = { vld1q_f32(a), vld1q_f32(a + 4) };
        float32x4_t b[VECTORS];
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            b[v] = vld1q_f32(w + 4 * v);
        ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)
    }
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            vst1q_f32(c + COLUMNS * r + 4 * v, sum[r][v]);
}
