/* One call of an emitted layer: an image of 2-bit codes in, floats out. */
#include "conv.h"

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    const char *missing = conv_missing_feature();
    if (missing) {
        fprintf(stderr, "this processor lacks %s\n", missing);
        return 77;
    }
    const size_t threads = 2;
    const struct bs_shape in = {1, 28, 28}, out = conv_output(in); /* batch, height, width */
    const size_t codes = in.height * in.width * conv_in_channels;
    const size_t results = out.height * out.width * conv_out_channels;
    const size_t bytes = conv_arena_bytes(in, threads);
    uint8_t *input = malloc(codes);
    float *output = malloc(results * sizeof *output);
    void *arena = malloc(bytes);
    struct bs_pool *pool = bs_pool_create(threads);
    int status = 1;
    if (input && output && arena) {
        for (size_t i = 0; i < codes; ++i)
            input[i] = (uint8_t)(i % 4); /* a byte a code, channels last */
        status = conv_run(in, input, output, arena, bytes, pool);
    }
    if (status == BS_OK)
        printf(
            "%zu x %zu x %d results, the first is %g\n",
            out.height,
            out.width,
            (int)conv_out_channels,
            (double)output[0]);
    bs_pool_destroy(pool);
    free(arena);
    free(output);
    free(input);
    return status == BS_OK ? 0 : 1;
}
