/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* A layer whose input is the one row that the kernel reads, as a dense layer and one sample: the
 * plan of an image, its lines and its bands would take longer than a small layer itself. */
#include "bs_call.h"

#include <string.h>

/* Up to this number of channels no size overflows. */
enum { MOST_CHANNELS = 1 << 20 };

/* The arena: the row's address for each row of a tile, accumulators, then results that are copied
 * to the output. */
struct parts {
    size_t tiles, tiled_columns, columns; /* columns of all tiles, and of all units */
    size_t pointers_bytes, strip_bytes, results_bytes;
};

int bs_is_row(const struct bs_layer *l, struct bs_shape in, size_t threads)
{
    return threads <= 1 && in.batch == 1 && in.height == 1 && in.width == 1 && l->groups == 1
        && l->in_channels <= MOST_CHANNELS && l->out_channels <= MOST_CHANNELS && !l->joined_pixels
        && !bs_words_later(l) && bs_can_read_input(l);
}

static struct parts parts_of(const struct bs_layer *l)
{
    const struct bs_kernel *k = l->kernel;
    const size_t unit = bs_unit(l), tiles = ceiling(l->out_channels, k->columns),
                 tiled = tiles * k->columns, columns = ceiling(tiled, unit) * unit,
                 elements = k->rows * columns;
    const int copied = l->out_layout == BS_NCHW || (l->out_channels % unit && !bs_makes_words(l));
    const struct parts parts = {
        tiles,
        tiled,
        columns,
        aligned(k->rows * sizeof(uint8_t *)),
        aligned(elements * sizeof(int32_t)),
        copied ? aligned(elements * bs_out_bytes(l)) : 0};
    return parts;
}

static size_t arena_bytes_of(struct parts parts)
{
    return parts.pointers_bytes + parts.strip_bytes + parts.results_bytes;
}

size_t bs_row_arena_bytes(const struct bs_layer *layer)
{
    return arena_bytes_of(parts_of(layer));
}

/* Computes all accumulators; a tile's further rows repeat the first. */
static void run_tiles(const struct bs_layer *l, struct parts parts, struct call *c, int32_t *sums)
{
    const struct bs_kernel *k = l->kernel;
    const uint8_t **rows = (const uint8_t **)(void *)c->arena;
    for (size_t row = 0; row < k->rows; ++row)
        rows[row] = c->input;
    const size_t steps = l->in_channels / k->k_step;
    k->run(parts.tiles, 1, steps, rows, l->weights, l->start, NULL, sums, parts.columns);
    const size_t rest = parts.columns - parts.tiled_columns;
    if (rest) /* units have more columns than tiles */
        memset(sums + parts.tiled_columns, 0, rest * sizeof *sums);
}

int bs_row_run(
    const struct bs_layer *layer,
    const struct bs_tensors *tensors,
    int packs_only,
    void *arena,
    size_t arena_bytes)
{
    const struct parts parts = parts_of(layer);
    const struct bs_shape one = {1, 1, 1};
    struct call c = {.layer = layer, .in = one, .out = one, .packs_only = packs_only};
    if (arena_bytes < arena_bytes_of(parts))
        return BS_ARENA;
    const int status = bs_set_tensors(&c, tensors, arena);
    if (status != BS_OK || packs_only)
        return status;
    c.strip_rows = layer->kernel->rows;
    c.strip_columns = parts.columns;
    c.results_bytes = parts.results_bytes;
    struct scratch s = {.strip = (int32_t *)(void *)(c.arena + parts.pointers_bytes)};
    s.results = c.arena + parts.pointers_bytes + parts.strip_bytes;
    run_tiles(layer, parts, &c, s.strip);
    const struct strip strip = {0, 1, 0, 0, layer->out_channels};
    bs_finish(&c, &strip, &s);
    return BS_OK;
}
