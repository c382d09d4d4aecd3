#include "baseline.h"

#include <immintrin.h>
#include <string.h>

enum { VECTORS = COLUMNS / 8 };

void int8(size_t steps, const uint8_t *a, const int8_t *w, int32_t *c)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[ROWS][VECTORS];
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            sum[r][v] = _mm256_setzero_si256();
    for (; steps > 0; --steps, a += 4 * ROWS, w += 4 * COLUMNS) {
        __m256i b[VECTORS];
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            b[v] = _mm256_loadu_si256((const __m256i *)(const void *)(w + 32 * v));
        UNROLL
        for (int r = 0; r < ROWS; ++r) {
            int32_t four;
            memcpy(&four, a + 4 * r, 4);
            const __m256i x = _mm256_set1_epi32(four);
            UNROLL
            for (int v = 0; v < VECTORS; ++v)
                sum[r][v] = _mm256_add_epi32(sum[r][v], _mm256_madd_epi16(_mm256_maddubs_epi16(x, b[v]), ones));
        }
    }
    UNROLL
    for (int r = 0; r < ROWS; ++r)
        UNROLL
        for (int v = 0; v < VECTORS; ++v)
            _mm256_storeu_si256((__m256i *)(void *)(c + COLUMNS * r + 8 * v), sum[r][v]);
}
