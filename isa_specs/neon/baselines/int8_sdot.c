#include "baseline.h"

#include <arm_neon.h>

enum { VECTORS = COLUMNS / 4 };

/* The lane is an immediate, so that no loop can count the rows. */
#define ROW(r)                        \
    UNROLL                            \
    for (int v = 0; v < VECTORS; ++v) \
        sum[r][v] = vdotq_laneq_s32(sum[r][v], b[v], x[(r) / 4], (r) % 4);

void int8(size_t steps, const uint8_t *a, const int8_t *w, int32_t *c)
{
    int32x4_t sum[ROWS][VECTORS];
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            sum[r][v] = vdupq_n_s32(0);
    for (; steps > 0; --steps, a += 4 * ROWS, w += 4 * COLUMNS) {
        const int8x16_t x[] = { vreinterpretq_s8_u8(vld1q_u8(a)), vreinterpretq_s8_u8(vld1q_u8(a + 16)) };
        int8x16_t b[VECTORS];
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            b[v] = vld1q_s8(w + 16 * v);
        ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)
    }
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            vst1q_s32(c + COLUMNS * r + 4 * v, sum[r][v]);
}
