/* Multiply matrices by an emitted kernel, and compare the product with a plain loop. */
#include "bs_mm_a2u_w1b_s32_avx2_3x64x4.h"

#include <stdio.h>
#include <stdlib.h>

#define KERNEL(what) bs_mm_a2u_w1b_s32_avx2_3x64x4_##what

enum { M = 10, K = 100, N = 70 };

static int32_t plain(const uint8_t *act, const uint8_t *wgt, int m, int n)
{
    int32_t sum = 0;
    for (int k = 0; k < K; ++k)
        sum += act[m * K + k] * (2 * wgt[k * N + n] - 1);
    return sum;
}

int main(void)
{
    const char *missing = KERNEL(missing_feature)();
    if (missing) {
        fprintf(stderr, "this processor lacks %s\n", missing);
        return 77;
    }
    uint8_t act[M * K]; /* codes 0 to 3: the values themselves */
    uint8_t wgt[K * N]; /* codes 0 and 1: the values -1 and 1 */
    for (int i = 0; i < M * K; ++i)
        act[i] = (uint8_t)(i * 7 % 4);
    for (int i = 0; i < K * N; ++i)
        wgt[i] = (uint8_t)(i * 5 % 3 % 2);

    uint8_t *packed_act = malloc(KERNEL(act_bytes)(M, K));
    uint8_t *packed_wgt = malloc(KERNEL(wgt_bytes)(K, N));
    static int32_t c[M * N];
    if (!packed_act || !packed_wgt)
        return 1;
    KERNEL(pack_act)(M, K, act, packed_act);
    KERNEL(pack_wgt)(K, N, wgt, packed_wgt);
    int wrong = KERNEL(matmul)(M, K, N, packed_act, packed_wgt, c) != 0;

    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n)
            wrong += c[m * N + n] != plain(act, wgt, m, n);
    const char *verdict = wrong ? "wrong" : "as the plain loop has them";
    printf("%d x %d sums of %d products: %s\n", M, N, K, verdict);
    free(packed_act);
    free(packed_wgt);
    return wrong ? 1 : 0;
}
