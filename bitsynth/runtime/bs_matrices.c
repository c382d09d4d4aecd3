/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Products of matrices that are both given at run time. */
#include "bs_matrices.h"

#include <string.h>

#include "bs_call.h"

/* The call, and the parts of a slot's arena. Sizes are in bytes. */
struct products {
    const struct bs_matrices *m;
    struct bs_layer layer; /* with the rows as its input */
    const struct bs_tensors *tensors;
    const uint8_t *columns;
    uint8_t *arena;
    struct bs_pool *pool; /* of a product by itself; NULL if slots have several products each */
    size_t rows, slots;
    size_t steps;
    size_t column_codes; /* from one staged column to the next */
    size_t copies_columns, copies_rows;
    size_t copies_results;
    size_t weights_bytes, numbers_bytes, columns_bytes, rows_bytes, results_bytes, layer_bytes;
    size_t slot_bytes;
    int *statuses;
};

static size_t tiles_of(const struct bs_layer *l)
{
    return ceiling(l->out_channels, l->kernel->columns);
}

/* Whole columns of codes can be read where they lie if they are the kernel's codes. */
static int has_to_copy_columns(const struct bs_matrices *m)
{
    const struct bs_layer *l = m->layer;
    return m->columns.stride != 1 || l->in_channels % l->kernel->k_step || m->code_factor != 1
        || m->code_summand;
}

static void plan(struct products *p, const struct bs_matrices *m, struct bs_shape in, size_t slots)
{
    const struct bs_layer *l = m->layer;
    const struct bs_kernel *k = l->kernel;
    const struct bs_shape one = {1, 1, in.width};
    memset(p, 0, sizeof *p);
    p->m = m;
    p->layer = *l;
    p->rows = in.width;
    p->slots = least(slots, m->count);
    p->steps = ceiling(l->in_channels, k->k_step);
    p->column_codes = times(p->steps, k->k_step);
    p->copies_columns = has_to_copy_columns(m);
    p->copies_rows = m->rows.stride != 1 || m->rows.apart != l->in_channels;
    const size_t tile = times(times(p->steps, k->columns), k->column_bytes);
    p->weights_bytes = aligned(times(tiles_of(l), tile));
    p->numbers_bytes = aligned(times(l->out_places, sizeof(int32_t)));
    if (p->copies_columns)
        p->columns_bytes = aligned(plus(times(l->out_channels, p->column_codes), 64));
    if (p->copies_rows)
        p->rows_bytes = aligned(plus(times(p->rows, l->in_channels), 64));
    p->copies_results = m->result_starts && m->result_apart != l->out_channels;
    if (p->copies_results)
        p->results_bytes = aligned(times(times(p->rows, l->out_channels), bs_out_bytes(l)));
    p->layer_bytes = aligned(bs_layer_arena_bytes(l, one, m->count > 1 ? 1 : slots));
    p->slot_bytes = plus(p->weights_bytes, times(2, p->numbers_bytes));
    p->slot_bytes = plus(p->slot_bytes, plus(p->columns_bytes, p->rows_bytes));
    p->slot_bytes = plus(p->slot_bytes, plus(p->results_bytes, p->layer_bytes));
}

size_t bs_matrices_arena_bytes(const struct bs_matrices *m, struct bs_shape in, size_t threads)
{
    struct products p;
    plan(&p, m, in, threads ? threads : 1);
    const size_t bytes = plus(times(p.slots, p.slot_bytes), aligned(times(p.slots, sizeof(int))));
    return bytes > PTRDIFF_MAX ? SIZE_MAX : bytes;
}

/* Copies `count` vectors of k codes, so that they lie one after the other, `to_apart` bytes from
 * each other. */
static void copy_vectors(
    const struct bs_vectors *v,
    size_t count,
    size_t k,
    const uint8_t *from,
    uint8_t *to,
    size_t to_apart)
{
    if (v->stride == 1) {
        for (size_t i = 0; i < count; ++i)
            memcpy(to + i * to_apart, from + i * v->apart, k);
        return;
    }
    if (v->apart == 1) {
        const struct bs_matrix m = {1, k, count, v->stride, to_apart};
        bs_transpose(m, from, to);
        return;
    }
    for (size_t i = 0; i < count; ++i)
        for (size_t j = 0; j < k; ++j)
            to[i * to_apart + j] = from[i * v->apart + j * v->stride];
}

/* Converts `k` codes to the kernel's codes, and pads them to whole steps. */
static void convert_column(const struct products *p, uint8_t *codes)
{
    const struct bs_matrices *m = p->m;
    const size_t k = p->layer.in_channels;
    if (m->code_factor != 1 || m->code_summand)
        for (size_t i = 0; i < k; ++i)
            codes[i] = (uint8_t)(codes[i] * m->code_factor + m->code_summand);
    memset(codes + k, m->idle, p->column_codes - k);
}

static uint32_t sum_of(size_t k, const uint8_t *codes)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < k; ++i)
        sum += codes[i];
    return sum;
}

/* Sums are exact modulo 2^32, and the layer's bound has them in int32. */
static void add_terms(
    const struct products *p, const uint8_t *codes, size_t place, int32_t *start, int32_t *affine)
{
    const struct bs_matrices *m = p->m;
    const size_t k = p->layer.in_channels;
    uint32_t more = 0, affine_more = 0;
    if (m->start_slope || m->affine_slope) {
        const uint32_t sum = sum_of(k, codes);
        more = (uint32_t)m->start_slope * sum;
        affine_more = (uint32_t)m->affine_slope * sum;
    }
    if (m->start_terms)
        for (size_t i = 0; i < k; ++i)
            more += (uint32_t)m->start_terms[codes[i]];
    if (m->cross_terms)
        for (size_t i = 1; i < k; i += 2)
            more += (uint32_t)m->cross_terms * codes[i - 1] * codes[i];
    start[place] = (int32_t)((uint32_t)m->start[place] + more);
    if (m->affine)
        affine[place] = (int32_t)((uint32_t)m->affine[place] + affine_more);
}

/* Packs the columns of a matrix, and computes where their accumulators start. */
static void pack_matrix(
    const struct products *p,
    const uint8_t *from,
    uint8_t *copied,
    uint8_t *weights,
    int32_t *start,
    int32_t *affine)
{
    enum { MOST = BS_LONGEST_PERIOD };
    const struct bs_matrices *m = p->m;
    const size_t columns = p->layer.out_channels, wide = p->layer.kernel->columns;
    const size_t tile_bytes = p->steps * wide * p->layer.kernel->column_bytes;
    const uint8_t *codes = from;
    size_t apart = m->columns.apart;
    if (p->copies_columns) {
        copy_vectors(&m->columns, columns, p->layer.in_channels, from, copied, p->column_codes);
        for (size_t i = 0; i < columns; ++i)
            convert_column(p, copied + i * p->column_codes);
        codes = copied;
        apart = p->column_codes;
    }
    for (size_t first = 0; first < columns; first += wide, weights += tile_bytes) {
        const uint8_t *tile[MOST];
        for (size_t i = 0; i < wide; ++i) {
            const size_t place = least(first + i, columns - 1);
            tile[i] = codes + (m->order ? m->order[place] : place) * apart;
            if (first + i < columns)
                add_terms(p, tile[i], place, start, affine);
        }
        m->pack_columns(p->steps, tile, weights);
    }
}

/* Copies the results of a product to their rows in the output. */
static void deliver(const struct products *p, const uint8_t *from, uint8_t *to)
{
    const size_t bytes = bs_out_bytes(&p->layer), row = p->layer.out_channels * bytes;
    for (size_t i = 0; i < p->rows; ++i)
        memcpy(to + i * p->m->result_apart * bytes, from + i * row, row);
}

static const uint8_t *offset_by(const void *from, size_t bytes)
{
    return from ? (const uint8_t *)from + bytes : NULL;
}

/* Computes the products of a slot. */
static void product_task(void *argument, size_t slot)
{
    struct products *p = argument;
    const struct bs_matrices *m = p->m;
    struct bs_layer layer = p->layer;
    uint8_t *weights = p->arena + slot * p->slot_bytes, *at = weights + p->weights_bytes;
    int32_t *start = (int32_t *)(void *)at;
    int32_t *affine = (int32_t *)(void *)(at + p->numbers_bytes);
    uint8_t *columns = at + 2 * p->numbers_bytes, *rows = columns + p->columns_bytes;
    uint8_t *results = rows + p->rows_bytes, *of_layer = results + p->results_bytes;
    const struct bs_shape in = {1, 1, p->rows};
    const size_t size = p->rows * layer.out_channels, bytes = bs_out_bytes(&layer);
    const size_t residual_bytes = layer.residual ? size * layer.residual->other_bytes : 0;
    layer.weights = weights;
    layer.start = start;
    layer.affine = m->affine ? affine : NULL;
    memset(start, 0, 2 * p->numbers_bytes);
    const size_t from = part(m->count, slot, p->slots), to = part(m->count, slot + 1, p->slots);
    for (size_t g = from; g < to && p->statuses[slot] == BS_OK; ++g) {
        if (g == from || m->columns.starts[g] != m->columns.starts[g - 1])
            pack_matrix(p, p->columns + m->columns.starts[g], columns, weights, start, affine);
        const uint8_t *given = (const uint8_t *)p->tensors->input + m->rows.starts[g];
        if (p->copies_rows) {
            copy_vectors(&m->rows, p->rows, layer.in_channels, given, rows, layer.in_channels);
            given = rows;
        }
        uint8_t *result = (uint8_t *)p->tensors->output
            + (m->result_starts ? m->result_starts[g] : g * size) * bytes;
        const struct bs_tensors tensors = {
            given,
            offset_by(p->tensors->residual, g * residual_bytes),
            p->copies_results ? results : result,
            NULL};
        p->statuses[slot] = bs_layer_run(&layer, in, &tensors, of_layer, p->layer_bytes, p->pool);
        if (p->copies_results && p->statuses[slot] == BS_OK)
            deliver(p, results, result);
    }
}

int bs_matrices_run(
    const struct bs_matrices *m,
    struct bs_shape in,
    const struct bs_tensors *tensors,
    const uint8_t *columns,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool)
{
    const size_t threads = pool && pool->threads ? pool->threads : 1;
    struct products p;
    if (!tensors->input || !tensors->output || !columns || !arena)
        return BS_NULL;
    if (arena_bytes < bs_matrices_arena_bytes(m, in, threads))
        return BS_ARENA;
    plan(&p, m, in, threads);
    p.tensors = tensors;
    p.columns = columns;
    p.arena = arena;
    p.pool = m->count > 1 ? NULL : pool;
    p.statuses = (int *)(void *)(p.arena + p.slots * p.slot_bytes);
    for (size_t slot = 0; slot < p.slots; ++slot)
        p.statuses[slot] = BS_OK;
    bs_run(m->count > 1 ? pool : NULL, product_task, &p, p.slots);
    for (size_t slot = 0; slot < p.slots; ++slot)
        if (p.statuses[slot] != BS_OK)
            return p.statuses[slot];
    return BS_OK;
}
