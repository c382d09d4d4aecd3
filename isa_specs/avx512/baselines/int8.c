#include "baseline.h"

#include <immintrin.h>
#include <string.h>

enum { VECTORS = COLUMNS / 16 };

void int8(size_t steps, const uint8_t *a, const int8_t *w, int32_t *c)
{
    const __m512i ones = _mm512_set1_epi16(1);
    __m512i sum[ROWS][VECTORS];
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            sum[r][v] = _mm512_setzero_si512();
    for (; steps > 0; --steps, a += 4 * ROWS, w += 4 * COLUMNS) {
        __m512i b[VECTORS];
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            b[v] = _mm512_loadu_si512(w + 64 * v);
        UNROLL
        for (int r = 0; r < ROWS; ++r) {
            int32_t four;
            memcpy(&four, a + 4 * r, 4);
            const __m512i x = _mm512_set1_epi32(four);
            UNROLL
            for (int v = 0; v < VECTORS; ++v)
                sum[r][v] = _mm512_add_epi32(sum[r][v], _mm512_madd_epi16(_mm512_maddubs_epi16(x, b[v]), ones));
        }
    }
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            _mm512_storeu_si512(c + COLUMNS * r + 16 * v, sum[r][v]);
}
