/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* A layer of glue: the sizes of a call, its lines, its tasks. */
#include "bs_glue_call.h"

#include <string.h>

static size_t window_size(
    size_t size, size_t padding, size_t kernel, size_t stride, size_t dilation)
{
    const size_t reach = plus(times(dilation, kernel - 1), 1), whole = plus(size, padding);
    return size == 0 || whole < reach ? 0 : (whole - reach) / stride + 1;
}

static size_t resized(size_t size, size_t wanted, size_t scale)
{
    return size && wanted ? wanted : times(size, scale);
}

struct bs_shape bs_glue_output(const struct bs_glue *g, struct bs_shape in)
{
    struct bs_shape out = in;
    const size_t high = plus(g->pad_top, g->pad_bottom), wide = plus(g->pad_left, g->pad_right);
    if (g->whole_image) {
        out.height = in.height != 0;
        out.width = in.width != 0;
    } else if (g->op == BS_MAX_POOL || g->op == BS_MEAN_POOL) {
        out.height = window_size(in.height, high, g->kernel_h, g->stride_h, g->dilation_h);
        out.width = window_size(in.width, wide, g->kernel_w, g->stride_w, g->dilation_w);
    } else if (g->op == BS_PAD) {
        out.height = plus(in.height, high);
        out.width = plus(in.width, wide);
    } else if (g->op == BS_RESIZE) {
        out.height = resized(in.height, g->size_h, g->scale_h);
        out.width = resized(in.width, g->size_w, g->scale_w);
    } else if (g->op == BS_BLOCKS) {
        out.height = times(in.height, g->block);
        out.width = times(in.width, g->block);
    }
    return out;
}

/* Returns the bytes of a pixel of codes, or with 0 bits of floats or int32. */
static size_t pixel_bytes(enum bs_layout layout, size_t channels, size_t bits)
{
    if (bits == 0)
        return times(channels, sizeof(float));
    return layout == BS_PACKED ? times(bs_packed_words(bits, channels), 8) : channels;
}

static size_t image_bytes(struct bs_shape shape, size_t pixel)
{
    return times(times(shape.batch, times(shape.height, shape.width)), pixel);
}

static void plan_pixels(struct glue *c)
{
    const struct bs_glue *g = c->glue;
    for (size_t i = 0; i < g->inputs; ++i) {
        c->in_pixel[i] = pixel_bytes(g->in_layout, g->channels[i], g->bits[i]);
        c->pixel[i] = g->words ? c->in_pixel[i] : pixel_bytes(BS_NHWC, g->channels[i], g->bits[i]);
        if (c->pixel[i] != c->in_pixel[i] || g->in_layout == BS_PACKED)
            c->line_bytes = plus(c->line_bytes, aligned(times(c->in.width, c->pixel[i])));
    }
    c->out_pixel = pixel_bytes(g->out_layout, g->out_channels, g->out_bits);
    c->made_pixel = g->words ? c->out_pixel : pixel_bytes(BS_NHWC, g->out_channels, g->out_bits);
    if (g->out_layout == BS_PACKED)
        c->made_bytes = aligned(times(c->out.width, c->made_pixel));
}

/* Returns whether sums of a window may overflow. */
static int has_large_window(const struct glue *c)
{
    const size_t pixels = times(bs_glue_kernel_h(c), bs_glue_kernel_w(c));
    return c->glue->op == BS_MEAN_POOL && pixels > c->glue->most_pixels;
}

/* BS_OK, BS_EMPTY, or BS_ARENA if no memory could hold the arena, an input or the output. */
static int plan(struct glue *c, const struct bs_glue *g, struct bs_shape in, size_t threads)
{
    memset(c, 0, sizeof *c);
    c->glue = g;
    c->in = in;
    c->out = bs_glue_output(g, in);
    if (in.height == 0 || in.width == 0 || image_bytes(c->out, 1) == 0)
        return BS_EMPTY;
    c->slots = threads ? threads : 1;
    plan_pixels(c);
    if (g->op == BS_MAX_POOL)
        c->work_bytes = aligned(times(in.width, c->pixel[0]));
    else if (g->op == BS_MEAN_POOL)
        c->work_bytes = aligned(times(times(plus(in.width, 1), c->pixel[0]), sizeof(uint32_t)));
    c->scratch_bytes = plus(plus(c->line_bytes, c->made_bytes), plus(c->work_bytes, 64));
    c->arena_bytes = times(c->slots, c->scratch_bytes);
    size_t most = c->arena_bytes | image_bytes(c->out, c->out_pixel) | times(c->slots, c->slots);
    for (size_t i = 0; i < g->inputs; ++i)
        most |= image_bytes(in, c->in_pixel[i]);
    return most > PTRDIFF_MAX || has_large_window(c) ? BS_ARENA : BS_OK;
}

size_t bs_glue_arena_bytes(const struct bs_glue *glue, struct bs_shape in, size_t threads)
{
    struct glue c;
    const int status = plan(&c, glue, in, threads);
    if (status != BS_OK)
        return status == BS_EMPTY ? 0 : SIZE_MAX;
    return c.arena_bytes;
}

static struct glue_scratch scratch_of(const struct glue *c, size_t slot)
{
    struct glue_scratch s;
    uint8_t *at = c->arena + slot * c->scratch_bytes + 64;
    for (size_t i = 0; i < c->glue->inputs; ++i) {
        s.lines[i] = at;
        if (c->glue->in_layout == BS_PACKED)
            at += aligned(c->in.width * c->pixel[i]);
    }
    s.made = at;
    s.work = at + c->made_bytes;
    return s;
}

const uint8_t *bs_glue_input(
    const struct glue *c, size_t i, size_t image, size_t y, const struct glue_scratch *s)
{
    const struct bs_glue *g = c->glue;
    const uint8_t *line = c->inputs[i] + (image * c->in.height + y) * c->in.width * c->in_pixel[i];
    if (g->words || g->in_layout != BS_PACKED)
        return line;
    const void *words = line;
    bs_unpack_each(g->bits[i], g->channels[i], c->in.width, words, s->lines[i], c->pixel[i]);
    return s->lines[i];
}

static void pack_line(const struct glue *c, const uint8_t *codes, uint8_t *to)
{
    const struct bs_glue *g = c->glue;
    bs_pack_each(
        g->out_bits, g->out_channels, c->out.width, codes, c->made_pixel, (uint64_t *)(void *)to);
}

static void lines_task(void *argument, size_t slot)
{
    static bs_glue_line *const lines[] = {
        [BS_MAX_POOL] = bs_glue_max_pool,
        [BS_MEAN_POOL] = bs_glue_mean_pool,
        [BS_PAD] = bs_glue_pad,
        [BS_RESIZE] = bs_glue_resize,
        [BS_BLOCKS] = bs_glue_blocks,
        [BS_LOOKUP] = bs_glue_lookup,
        [BS_CONCAT] = bs_glue_concat,
        [BS_ADD] = bs_glue_add,
        [BS_QUANTIZE] = bs_glue_quantize,
        [BS_DEQUANTIZE] = bs_glue_quantize,
    };
    const struct glue *c = argument;
    const struct glue_scratch s = scratch_of(c, slot);
    const size_t count = c->out.batch * c->out.height, bytes = c->out.width * c->out_pixel;
    const int packs = !c->glue->words && c->glue->out_layout == BS_PACKED;
    const size_t end = part(count, slot + 1, c->slots);
    for (size_t n = part(count, slot, c->slots); n < end; ++n) {
        uint8_t *to = c->output + n * bytes;
        lines[c->glue->op](c, n / c->out.height, n % c->out.height, &s, packs ? s.made : to);
        if (packs)
            pack_line(c, s.made, to);
    }
}

static int has_greater(size_t count, const uint8_t *codes, size_t last)
{
    uint8_t most = 0;
    for (size_t i = 0; i < count; ++i)
        most = codes[i] > most ? codes[i] : most;
    return most > last;
}

/* Returns whether pixels from..to of an input have a code beyond the last. */
static int has_bad(const struct glue *c, size_t i, size_t from, size_t to)
{
    const struct bs_glue *g = c->glue;
    const uint8_t *at = c->inputs[i] + from * c->in_pixel[i];
    const size_t bytes = (to - from) * c->in_pixel[i], bits = g->bits[i];
    if (bits == 0 || g->last[i] == 255)
        return 0;
    if (g->in_layout != BS_PACKED)
        return has_greater(bytes, at, g->last[i]);
    return g->last[i] + 2 == (size_t)1 << bits
        && bs_has_all_ones(bits, bytes / 8, (const uint64_t *)(const void *)at);
}

static void check_task(void *argument, size_t slot)
{
    const struct glue *c = argument;
    const size_t pixels = c->in.batch * c->in.height * c->in.width;
    const size_t from = part(pixels, slot, c->slots), to = part(pixels, slot + 1, c->slots);
    uint8_t bad = 0;
    for (size_t i = 0; i < c->glue->inputs; ++i)
        bad |= (uint8_t)has_bad(c, i, from, to);
    c->arena[slot * c->scratch_bytes] = bad;
}

int bs_glue_run(
    const struct bs_glue *glue,
    struct bs_shape in,
    const void *const *inputs,
    void *output,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool)
{
    struct glue c;
    const int status = plan(&c, glue, in, pool ? pool->threads : 1);
    if (status != BS_OK || arena_bytes < c.arena_bytes)
        return status != BS_OK ? status : BS_ARENA;
    for (size_t i = 0; i < glue->inputs; ++i) {
        c.inputs[i] = inputs[i];
        if (!inputs[i])
            return BS_NULL;
    }
    c.output = output;
    c.arena = arena;
    if (!output || !arena)
        return BS_NULL;
    bs_run(pool, check_task, &c, c.slots);
    for (size_t slot = 0; slot < c.slots; ++slot)
        if (c.arena[slot * c.scratch_bytes])
            return BS_CODES;
    bs_run(pool, lines_task, &c, c.slots);
    return BS_OK;
}
