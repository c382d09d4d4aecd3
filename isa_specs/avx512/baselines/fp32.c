#include "baseline.h"

#include <immintrin.h>

enum { VECTORS = COLUMNS / 16 };

void fp32(size_t steps, const float *a, const float *w, float *c)
{
    __m512 sum[ROWS][VECTORS];
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            sum[r][v] = _mm512_setzero_ps();
    for (; steps > 0; --steps, a += ROWS, w += COLUMNS) {
        __m512 b[VECTORS];
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            b[v] = _mm512_loadu_ps(w + 16 * v);
        UNROLL
        for (int r = 0; r < ROWS; ++r) {
            const __m512 x = _mm512_set1_ps(a[r]);
            UNROLL
            for (int v = 0; v < VECTORS; ++v)
                sum[r][v] = _mm512_fmadd_ps(x, b[v], sum[r][v]);
        }
    }
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            _mm512_storeu_ps(c + COLUMNS * r + 16 * v, sum[r][v]);
}
