/* Written by bitsynth, which replaces it: not to be edited. */
/* SPDX-License-Identifier: MIT-0 */
#include "layer_names.h"
/* How to call layer: an image of one code, with a pool of threads. Exit status 77 if the
 * processor lacks a feature. */
#include "layer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    const char *missing = layer_missing_feature();
    if (missing) {
        fputs("layer", stderr);
        fprintf(stderr, " needs a processor with %s; this one lacks it: ", missing);
        fputs("run it elsewhere, or emit it for another instruction set\n", stderr);
        return 77;
    }
    const size_t threads = 2;
    const struct bs_shape in = {1, 5, 5};
    const struct bs_shape out = layer_output(in);
    const size_t in_pixel = layer_in_channels;
    const size_t out_pixel = layer_out_channels;
    const size_t in_elements = in.batch * in.height * in.width * in_pixel;
    const size_t out_elements = out.batch * out.height * out.width * out_pixel;
    const size_t arena_bytes = layer_arena_bytes(in, threads);
    uint8_t *input = calloc(in_elements, sizeof *input);
    uint8_t *output = calloc(out_elements, sizeof *output);
    void *arena = malloc(arena_bytes);
    struct bs_pool *pool = bs_pool_create(threads);
    int status = 1;
    if (input && output && arena)
        status = layer_run(in, input, output, arena, arena_bytes, pool);
    printf("status %d, output %zu x %zu x ", status, out.height, out.width);
    printf("%d", (int)layer_out_channels);
    for (size_t i = 0; status == BS_OK && i < 4 && i < out_elements; ++i)
        printf(", %" PRId32, (int32_t)output[i]);
    puts("");
    bs_pool_destroy(pool);
    free(arena);
    free(output);
    free(input);
    return status == BS_OK ? 0 : 1;
}
