#include "baseline.h"

#include <arm_neon.h>

/* K is in the lanes: two products meet in 16 bits, pairs of those in 32, and lanes after the loop. */
void int8(size_t steps, const uint8_t *a, const int8_t *w, int32_t *c)
{
    int32x4_t sum[ROWS][COLUMNS];
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int n = 0; n < COLUMNS; ++n)
            sum[r][n] = vdupq_n_s32(0);
    for (; steps > 0; --steps, a += 16 * ROWS, w += 16 * COLUMNS) {
        int8x16_t x[ROWS];
        UNROLL
        for (int r = 0; r < ROWS; ++r)
            x[r] = vreinterpretq_s8_u8(vld1q_u8(a + 16 * r));
        UNROLL
        for (int n = 0; n < COLUMNS; ++n) {
            const int8x16_t b = vld1q_s8(w + 16 * n);
            UNROLL
            for (int r = 0; r < ROWS; ++r) {
                const int16x8_t low = vmull_s8(vget_low_s8(x[r]), vget_low_s8(b));
                sum[r][n] = vpadalq_s16(sum[r][n], vmlal_high_s8(low, x[r], b));
            }
        }
    }
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int n = 0; n < COLUMNS; ++n)
            c[COLUMNS * r + n] = vaddvq_s32(sum[r][n]);
}
