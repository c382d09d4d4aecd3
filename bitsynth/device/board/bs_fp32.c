/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
#include "bs_fp32.h"

#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
#if defined(__arm__) || (defined(__x86_64__) && !defined(__AVX512F__))
enum { PIXELS = 4 };
#else
enum { PIXELS = 8 };
#endif
enum { QUAD = 4, COLUMNS = 2 * LANES, BLOCK = 8 * PIXELS, SAMPLES = 64 };

typedef float vector __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef float quad __attribute__((vector_size(QUAD * sizeof(float)), aligned(4), may_alias));

struct plan {
    const struct bs_fp32 *s;
    size_t channels, grid_h, grid_w, out_h, out_w, tiles, depth; /* channels: in whole quads */
    float *input, *grid, *weights, *output;
    size_t bytes;
};

static size_t outputs(int64_t size, int64_t padding, int64_t kernel, int64_t stride, int64_t dilation)
{
    return (size_t)((size + padding - dilation * (kernel - 1) - 1) / stride + 1);
}

static float *take(struct plan *p, uint8_t *memory, size_t floats)
{
    float *here = (float *)(void *)(memory ? memory + p->bytes : NULL);
    p->bytes += (floats * sizeof(float) + 63) / 64 * 64;
    return here;
}

static struct plan plan(const struct bs_fp32 *s, const void *at)
{
    uint8_t *memory = (uint8_t *)(uintptr_t)at;
    struct plan p = {.s = s};
    p.channels = (size_t)(s->in_channels + QUAD - 1) / QUAD * QUAD;
    p.grid_h = (size_t)(s->height + s->pad_top + s->pad_bottom);
    p.grid_w = (size_t)(s->width + s->pad_left + s->pad_right);
    p.out_h = outputs(s->height, s->pad_top + s->pad_bottom, s->kernel_h, s->stride_h, s->dilation_h);
    p.out_w = outputs(s->width, s->pad_left + s->pad_right, s->kernel_w, s->stride_w, s->dilation_w);
    p.tiles = (size_t)(s->out_channels + COLUMNS - 1) / COLUMNS;
    p.depth = (size_t)(s->kernel_h * s->kernel_w) * p.channels;
    p.input = take(&p, memory, (size_t)(s->height * s->width * s->in_channels));
    p.grid = take(&p, memory, p.grid_h * p.grid_w * p.channels);
    p.weights = take(&p, memory, p.tiles * p.depth * COLUMNS);
    p.output = take(&p, memory, p.out_h * p.out_w * (size_t)s->out_channels);
    return p;
}

size_t bs_fp32_bytes(const struct bs_fp32 *s)
{
    return plan(s, NULL).bytes;
}

static float small(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)((int)(*state >> 16 & 7) - 3);
}

void bs_fp32_prepare(const struct bs_fp32 *s, void *memory)
{
    const struct plan p = plan(s, memory);
    uint32_t state = 1;
    memset(memory, 0, p.bytes);
    for (size_t i = 0; i < (size_t)(s->height * s->width * s->in_channels); ++i)
        p.input[i] = small(&state);
    for (size_t i = 0; i < p.tiles * p.depth * COLUMNS; ++i)
        p.weights[i] = small(&state);
}

/* A line of the padded image. Its margins, which stay zero, are not written. */
static void copy_line(void *argument, size_t y)
{
    const struct plan *p = argument;
    const size_t channels = (size_t)p->s->in_channels, width = (size_t)p->s->width;
    float *to = p->grid + ((y + (size_t)p->s->pad_top) * p->grid_w + (size_t)p->s->pad_left) * p->channels;
    const float *from = p->input + y * width * channels;
    for (size_t x = 0; x < width; ++x)
        memcpy(to + x * p->channels, from + x * channels, channels * sizeof *to);
}

static const float *window(const struct plan *p, size_t pixel)
{
    const size_t y = pixel / p->out_w * (size_t)p->s->stride_h, x = pixel % p->out_w * (size_t)p->s->stride_w;
    return p->grid + (y * p->grid_w + x) * p->channels;
}

static vector load(const float *from)
{
    return *(const vector *)(const void *)from;
}

/* Adds what one tap gives to a tile. */
static inline void add_tap(const float *const *x, size_t offset, size_t channels, const float *w, vector sum[PIXELS][2])
{
    for (size_t c = 0; c < channels; c += QUAD, w += QUAD * COLUMNS) {
        quad values[PIXELS];
        for (int r = 0; r < PIXELS; ++r)
            values[r] = *(const quad *)(const void *)(x[r] + offset + c);
#pragma GCC unroll 4
        for (int lane = 0; lane < QUAD; ++lane) {
            const vector left = load(w + lane * COLUMNS), right = load(w + lane * COLUMNS + LANES);
#pragma GCC unroll 8
            for (int r = 0; r < PIXELS; ++r) {
                sum[r][0] += left * values[r][lane];
                sum[r][1] += right * values[r][lane];
            }
        }
    }
}

static void run_tile(const struct plan *p, size_t pixel, size_t count, size_t tile)
{
    const struct bs_fp32 *s = p->s;
    const float *x[PIXELS], *w = p->weights + tile * p->depth * COLUMNS;
    vector sum[PIXELS][2] = {0};
    for (size_t r = 0; r < PIXELS; ++r)
        x[r] = window(p, pixel + (r < count ? r : count - 1));
    for (size_t ky = 0; ky < (size_t)s->kernel_h; ++ky)
        for (size_t kx = 0; kx < (size_t)s->kernel_w; ++kx, w += p->channels * COLUMNS) {
            const size_t down = ky * (size_t)s->dilation_h, right = kx * (size_t)s->dilation_w;
            add_tap(x, (down * p->grid_w + right) * p->channels, p->channels, w, sum);
        }
    const size_t left = (size_t)s->out_channels - tile * COLUMNS, columns = left < COLUMNS ? left : COLUMNS;
    for (size_t r = 0; r < count; ++r)
        memcpy(p->output + (pixel + r) * (size_t)s->out_channels + tile * COLUMNS, sum[r], columns * sizeof(float));
}

static void run_block(void *argument, size_t index)
{
    const struct plan *p = argument;
    const size_t first = index / p->tiles * BLOCK, pixels = p->out_h * p->out_w;
    const size_t end = first + BLOCK < pixels ? first + BLOCK : pixels;
    for (size_t pixel = first; pixel < end; pixel += PIXELS)
        run_tile(p, pixel, end - pixel < PIXELS ? end - pixel : PIXELS, index % p->tiles);
}

void bs_fp32_run(const struct bs_fp32 *s, void *memory, struct bs_pool *pool)
{
    struct plan p = plan(s, memory);
    bs_run(pool, copy_line, &p, (size_t)s->height);
    bs_run(pool, run_block, &p, (p.out_h * p.out_w + BLOCK - 1) / BLOCK * p.tiles);
}

/* One sum; whole numbers this small are exact. */
static float plain(const struct plan *p, size_t pixel, size_t channel)
{
    const struct bs_fp32 *s = p->s;
    const float *w = p->weights + channel / COLUMNS * p->depth * COLUMNS + channel % COLUMNS;
    float sum = 0;
    for (int64_t ky = 0; ky < s->kernel_h; ++ky)
        for (int64_t kx = 0; kx < s->kernel_w; ++kx) {
            const int64_t y = (int64_t)(pixel / p->out_w) * s->stride_h + ky * s->dilation_h - s->pad_top;
            const int64_t x = (int64_t)(pixel % p->out_w) * s->stride_w + kx * s->dilation_w - s->pad_left;
            const float *taps = w + (size_t)(ky * s->kernel_w + kx) * p->channels * COLUMNS;
            for (int64_t c = 0; c < s->in_channels; ++c)
                if (y >= 0 && y < s->height && x >= 0 && x < s->width)
                    sum += p->input[(y * s->width + x) * s->in_channels + c] * taps[c * COLUMNS];
        }
    return sum;
}

int bs_fp32_right(const struct bs_fp32 *s, const void *memory)
{
    const struct plan p = plan(s, memory);
    const size_t count = p.out_h * p.out_w * (size_t)s->out_channels;
    const size_t step = count / SAMPLES + 1;
    for (size_t i = 0; i < count; i += step)
        if (p.output[i] != plain(&p, i / (size_t)s->out_channels, i % (size_t)s->out_channels))
            return 0;
    return p.output[count - 1] == plain(&p, p.out_h * p.out_w - 1, (size_t)s->out_channels - 1);
}
