#include "baseline.h"

#include <immintrin.h>

enum { VECTORS = COLUMNS / 8 };

void fp32(size_t steps, const float *a, const float *w, float *c)
{
    __m256 sum[ROWS][VECTORS];
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            sum[r][v] = _mm256_setzero_ps();
    for (; steps > 0; --steps, a += ROWS, w += COLUMNS) {
        __m256 b[VECTORS];
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            b[v] = _mm256_loadu_ps(w + 8 * v);
        UNROLL
        for (int r = 0; r < ROWS; ++r) {
            const __m256 x = _mm256_broadcast_ss(a + r);
            UNROLL
            for (int v = 0; v < VECTORS; ++v)
                sum[r][v] = _mm256_fmadd_ps(x, b[v], sum[r][v]);
        }
    }
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            _mm256_storeu_ps(c + COLUMNS * r + 8 * v, sum[r][v]);
}
