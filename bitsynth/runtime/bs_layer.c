/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* A layer: the sizes of a call, and its tasks. */
#include "bs_call.h"

#include <string.h>

enum { STRIP_BYTES = 8192 };

static size_t out_size(size_t size, size_t padding, size_t kernel, size_t stride, size_t dilation)
{
    const size_t reach = plus(times(dilation, kernel - 1), 1), whole = plus(size, padding);
    return size == 0 || whole < reach ? 0 : (whole - reach) / stride + 1;
}

struct bs_shape bs_layer_output(const struct bs_layer *l, struct bs_shape in)
{
    const struct bs_shape out = {
        in.batch,
        out_size(
            in.height, plus(l->pad_top, l->pad_bottom), l->kernel_h, l->stride_h, l->dilation_h),
        out_size(
            in.width, plus(l->pad_left, l->pad_right), l->kernel_w, l->stride_w, l->dilation_w),
    };
    return out;
}

static void plan_grid(struct call *c)
{
    const struct bs_layer *l = c->layer;
    const size_t taps = times(l->kernel_h, l->kernel_w),
                 pixel_steps = ceiling(l->in_channels, l->kernel->k_step);
    if (l->conv_algorithm == BS_IM2COL) {
        c->grid_h = c->out.height;
        c->grid_w = c->out.width;
        c->pixel_codes = times(taps, l->in_channels);
        c->segments = 1;
        c->segment_steps = ceiling(c->pixel_codes, l->kernel->k_step);
        c->pixel_bytes = times(c->segment_steps, l->kernel->row_bytes);
        return;
    }
    const int padded = l->conv_algorithm == BS_DIRECT,
              joined = padded && l->dilation_w == 1 && !l->kernel->planes_apart;
    const size_t row_codes = times(l->kernel_w, l->in_channels);
    c->grid_h = plus(c->in.height, padded ? plus(l->pad_top, l->pad_bottom) : 0);
    c->grid_w = plus(c->in.width, padded ? plus(l->pad_left, l->pad_right) : 0);
    c->pixel_codes = l->in_channels;
    c->segments = joined ? l->kernel_h : taps;
    c->segment_steps = joined ? times(l->kernel_w, pixel_steps) : pixel_steps;
    c->pixel_bytes = times(pixel_steps, l->kernel->row_bytes);
    if (l->joined_taps) {
        c->segment_steps = ceiling(row_codes, l->kernel->k_step);
        c->pixel_bytes = times(l->in_channels, l->kernel->row_bytes / l->kernel->k_step);
    }
}

/* Words are packed into rows directly if every group, and every tap of a patch, begins with a word;
 * words of fewer bits than the kernel's only if rows are codes. Codes of patches are unpacked once
 * for all windows. */
static void plan_input(struct call *c)
{
    const struct bs_layer *l = c->layer;
    const size_t channels = times(l->groups, l->in_channels),
                 several = l->conv_algorithm == BS_IM2COL && times(l->kernel_h, l->kernel_w) > 1;
    const size_t words = times(bs_packed_words(l->act_bits, channels), 8);
    const int are_whole = l->in_channels % 64 == 0;
    const int whole = are_whole || (l->groups == 1 && !several);
    const int own = l->kernel->act_bits == l->act_bits;
    const int packs = own ? l->kernel->pack_words && (l->kernel->rows_of_words || !several)
                          : l->kernel->rows_of_codes && are_whole && !several;
    c->from_words = l->in_layout == BS_PACKED && packs && whole && !l->joined_taps;
    c->expands = c->from_words && !own;
    c->in_pixel = c->from_words ? words : channels;
    c->tap_bytes = c->from_words ? words / l->groups : l->in_channels;
}

/* Returns the packed lines that `rows` output rows read. */
static size_t grid_lines(const struct call *c, size_t rows)
{
    const struct bs_layer *l = c->layer;
    if (l->conv_algorithm == BS_IM2COL)
        return rows;
    if (l->conv_algorithm == BS_INDIRECT)
        return c->grid_h;
    return plus(plus(times(rows - 1, l->stride_h), times(l->kernel_h - 1, l->dilation_h)), 1);
}

/* A line of another layout is staged once; as many are kept as the window is high. */
static void plan_staging(struct call *c)
{
    const struct bs_layer *l = c->layer;
    const size_t reach = plus(times(l->kernel_h - 1, l->dilation_h), 1);
    if (l->in_layout != BS_NHWC && !c->from_words) {
        c->staged_lines = l->conv_algorithm == BS_IM2COL ? least(reach, c->in.height) : 1;
        /* Groups start anywhere in an eight. */
        const size_t codes = times(ceiling(plus(l->in_channels, 7), 8), 8);
        c->staged_bytes = aligned(plus(times(c->in.width, codes), 64));
    }
    c->held_bytes = aligned(times(c->staged_lines, sizeof(struct held)));
    c->taps_bytes = aligned(times(l->kernel_h, sizeof(struct line)));
    c->patch_bytes = aligned(plus(c->pixel_codes, 64));
}

/* Chooses a strip of rows that stays in the first cache, with all tiles if they fit. */
static void plan_strips(struct call *c, size_t pixels)
{
    const struct bs_layer *l = c->layer;
    const struct bs_kernel *k = l->kernel;
    const size_t unit = bs_unit(l), fewest = bs_stored_at_once(l) ? 1 : bs_unit_tiles(l);
    c->strip_tiles = l->columns_first ? least(fewest, c->tiles) : c->tiles;
    const size_t columns = bs_stored_at_once(l) ? k->columns : times(c->strip_tiles, k->columns);
    c->strip_columns = times(ceiling(columns, unit), unit);
    const size_t row_bytes = times(c->strip_columns, sizeof(int32_t)),
                 tile_bytes = times(row_bytes, k->rows);
    const size_t fit =
        bs_stored_at_once(l) || tile_bytes > STRIP_BYTES ? 1 : STRIP_BYTES / tile_bytes;
    c->strip_rows = times(least(fit, ceiling(pixels, k->rows)), k->rows);
    c->strip_bytes = aligned(times(c->strip_rows, row_bytes));
    if (l->out_layout == BS_NCHW || (l->out_channels % unit && !bs_makes_words(l)))
        c->results_bytes = aligned(times(times(c->strip_rows, c->strip_columns), bs_out_bytes(l)));
    if (l->joined_pixels) {
        const size_t rows = times(ceiling(c->strip_rows, l->joined_pixels), l->joined_pixels),
                     sums = times(rows, c->strip_columns);
        c->strip_bytes = aligned(times(sums, sizeof(int32_t)));
        c->results_bytes =
            aligned(times(times(l->joined_pixels, c->strip_columns), bs_out_bytes(l)));
    }
}

/* Pairs span two lines if lines have an odd width. */
static void plan_ends(struct call *c)
{
    const struct bs_layer *l = c->layer;
    const size_t window = plus(times(l->kernel_w - 1, l->dilation_w), 1),
                 pixels = l->conv_algorithm == BS_IM2COL ? 1 : window;
    c->end_at = times(c->grid_w, c->pixel_bytes);
    if (l->kernel->pair_rows && c->out.width % 2)
        c->end_bytes = times(pixels, c->pixel_bytes);
}

/* Plans the scratch of one task, after everything else. */
static size_t scratch_bytes(const struct call *c)
{
    const size_t strip = plus(c->strip_bytes, c->results_bytes);
    const size_t rows = plus(c->pointers_bytes, plus(times(2, c->terms_bytes), strip));
    const size_t lines =
        plus(plus(c->held_bytes, c->taps_bytes), times(c->staged_lines, c->staged_bytes));
    return plus(
        plus(rows, lines),
        plus(c->patch_bytes, aligned(plus(c->pixel_bytes, c->layer->kernel->slack))));
}

static void plan_arena(struct call *c, size_t threads)
{
    const struct bs_layer *l = c->layer;
    const struct bs_kernel *k = l->kernel;
    const size_t pixels = times(c->out.height, c->out.width);
    const size_t block = l->block_rows ? times(ceiling(l->block_rows, k->rows), k->rows) : pixels;
    c->tiles = ceiling(l->out_channels, k->columns);
    c->tile_bytes = times(times(c->segments, c->segment_steps), k->columns * k->column_bytes);
    c->slots = threads ? threads : 1;
    c->band_rows = l->band_rows && l->conv_algorithm != BS_INDIRECT
        ? least(l->band_rows, c->out.height)
        : c->out.height;
    c->bands = ceiling(c->out.height, c->band_rows);
    if (l->conv_algorithm == BS_DIRECT)
        c->grid_h = grid_lines(c, c->out.height);
    c->band_grid_rows = grid_lines(c, c->band_rows);
    c->views = c->bands > 1 ? c->slots : 1;
    const size_t behind = plus(k->slack, l->joined_taps ? k->row_bytes : 0);
    plan_ends(c);
    c->line_bytes = aligned(plus(plus(c->end_at, c->end_bytes), behind));
    c->rows_bytes = times(c->band_grid_rows, c->line_bytes);
    c->reads_input = bs_can_read_input(l);
    if (c->reads_input) {
        const int strided = l->conv_algorithm == BS_IM2COL;
        c->pixel_bytes = times(c->in_pixel, strided ? l->stride_w : 1);
        c->line_bytes = times(times(c->in.width, c->in_pixel), strided ? l->stride_h : 1);
        c->rows_bytes = 0;
    }
    c->sums_bytes = aligned(times(times(c->band_grid_rows, c->grid_w), sizeof(int32_t)));
    c->view_bytes = plus(c->rows_bytes, times(2, c->sums_bytes));
    c->pointers_bytes = aligned(times(times(c->segments, k->rows), sizeof(uint8_t *)));
    c->offsets_bytes = aligned(times(c->segments, sizeof(size_t)));
    c->terms_bytes = aligned(times(plus(least(block, pixels), k->rows), sizeof(int32_t)));
    plan_strips(c, pixels);
    plan_staging(c);
    c->scratch_bytes = scratch_bytes(c);
    c->private_bytes = plus(times(c->views, c->view_bytes), times(c->slots, c->scratch_bytes));
    if (bs_words_later(l))
        c->codes_bytes = aligned(plus(times(pixels, times(l->groups, l->out_channels)), 64));
    c->arena_bytes = plus(c->private_bytes, plus(c->codes_bytes, c->offsets_bytes));
}

/* Returns the bytes of images of `shape` with `pixel` bytes a pixel. */
static size_t image_bytes(struct bs_shape shape, size_t pixel)
{
    return times(times(shape.batch, times(shape.height, shape.width)), pixel);
}

/* Returns whether the arena, input or output exceed any object: then offsets have overflowed. */
static int too_large(const struct call *c)
{
    const struct bs_layer *l = c->layer;
    const size_t in = times(l->groups, l->in_channels), out = times(l->groups, l->out_channels);
    const size_t in_pixel =
        l->in_layout == BS_PACKED ? times(bs_packed_words(l->act_bits, in), 8) : in;
    const size_t out_pixel =
        (l->out_layout == BS_PACKED ? times(bs_packed_words(l->out_bits, out), 8)
                                    : times(out, bs_out_bytes(l)))
        | times(out, l->residual ? sizeof(int32_t) : 0);
    const size_t read =
        image_bytes(c->in, in_pixel) | times(times(l->groups, c->tiles), c->tile_bytes);
    const size_t padded = plus(c->in.height, plus(l->pad_top, l->pad_bottom))
        | plus(c->in.width, plus(l->pad_left, l->pad_right));
    return (c->arena_bytes | read | image_bytes(c->out, out_pixel) | padded
            | times(c->slots, c->slots))
        > PTRDIFF_MAX;
}

/* BS_OK, BS_EMPTY, or BS_ARENA if no memory could hold the arena, the input or the output. */
static int plan(struct call *c, const struct bs_layer *layer, struct bs_shape in, size_t threads)
{
    memset(c, 0, sizeof *c);
    c->layer = layer;
    c->in = in;
    c->out = bs_layer_output(layer, in);
    if (c->out.batch == 0 || c->out.height == 0 || c->out.width == 0)
        return BS_EMPTY;
    plan_input(c);
    plan_grid(c);
    plan_arena(c, threads);
    c->pads_results = layer->padding && bs_stored_at_once(layer);
    return too_large(c) ? BS_ARENA : BS_OK;
}

/* Computes the offsets of segments from the first. */
static void set_offsets(struct call *c)
{
    const struct bs_layer *l = c->layer;
    const size_t across = c->segments / l->kernel_h ? c->segments / l->kernel_h : 1;
    for (size_t i = 0; i < c->segments; ++i)
        c->segment_offsets[i] = i / across * l->dilation_h * c->line_bytes
            + i % across * l->dilation_w * c->pixel_bytes;
}

size_t bs_layer_arena_bytes(const struct bs_layer *layer, struct bs_shape in, size_t threads)
{
    struct call c;
    if (layer->depthwise)
        return bs_depthwise_arena_bytes(layer, in, threads);
    if (bs_is_row(layer, in, threads))
        return bs_row_arena_bytes(layer);
    const int status = plan(&c, layer, in, threads);
    if (status != BS_OK)
        return status == BS_EMPTY ? 0 : SIZE_MAX;
    return c.arena_bytes;
}

static struct view view_of(const struct call *c, size_t number, size_t first)
{
    uint8_t *at = c->arena + number * c->view_bytes;
    const size_t image = c->in.height * c->in.width * c->in_pixel;
    const struct view view = {
        at,
        c->reads_input
            ? c->input + c->image * image + first * c->line_bytes + c->group * c->tap_bytes
            : at,
        (int32_t *)(void *)(at + c->rows_bytes),
        (int32_t *)(void *)(at + c->rows_bytes + c->sums_bytes),
        first};
    return view;
}

static struct scratch scratch_of(const struct call *c, size_t slot)
{
    uint8_t *at = c->arena + c->views * c->view_bytes + slot * c->scratch_bytes;
    struct scratch s;
    s.pointers = (const uint8_t **)(void *)at;
    at += c->pointers_bytes;
    s.term = (int32_t *)(void *)at;
    at += c->terms_bytes;
    s.affine = (int32_t *)(void *)at;
    at += c->terms_bytes;
    s.strip = (int32_t *)(void *)at;
    at += c->strip_bytes;
    s.results = at;
    at += c->results_bytes;
    s.held = (struct held *)(void *)at;
    at += c->held_bytes;
    s.taps = (struct line *)(void *)at;
    at += c->taps_bytes;
    s.staged = at;
    at += c->staged_lines * c->staged_bytes;
    s.patch = at;
    s.pad = at + c->patch_bytes;
    return s;
}

/* Returns the begin of part i when 0..count is split in n parts of whole units. */
static size_t unit_part(size_t count, size_t unit, size_t i, size_t n)
{
    return least(part(ceiling(count, unit), i, n) * unit, count);
}

static void pack_task(void *argument, size_t slot)
{
    const struct call *c = argument;
    const struct scratch s = scratch_of(c, slot);
    bs_pack_lines(
        c,
        view_of(c, 0, 0),
        part(c->grid_h, slot, c->slots),
        part(c->grid_h, slot + 1, c->slots),
        &s);
}

static void pair_task(void *argument, size_t slot)
{
    const struct call *c = argument;
    const size_t from = part(c->grid_h, slot, c->slots), to = part(c->grid_h, slot + 1, c->slots);
    bs_pair_lines(c, view_of(c, 0, 0), from, to, c->grid_h);
}

/* Returns how many of n slots share the columns, so that the busiest slot has the least work. */
static size_t column_slots(const struct call *c)
{
    const size_t units = ceiling(c->out.height * c->out.width, c->layer->kernel->rows);
    const size_t whole = bs_unit_tiles(c->layer);
    size_t best = 1, load = SIZE_MAX;
    for (size_t n = 1; n <= c->slots; ++n)
        if (c->slots % n == 0) {
            const size_t here = ceiling(units, c->slots / n) * ceiling(ceiling(c->tiles, whole), n);
            if (here < load) {
                best = n;
                load = here;
            }
        }
    return best;
}

static void compute_task(void *argument, size_t slot)
{
    const struct call *c = argument;
    const struct scratch s = scratch_of(c, slot);
    const size_t across = column_slots(c), down = c->slots / across, i = slot / across,
                 j = slot % across;
    const size_t pixels = c->out.height * c->out.width, rows = c->layer->kernel->rows;
    bs_compute(
        c,
        view_of(c, 0, 0),
        unit_part(pixels, rows, i, down),
        unit_part(pixels, rows, i + 1, down),
        unit_part(c->tiles, bs_unit_tiles(c->layer), j, across),
        unit_part(c->tiles, bs_unit_tiles(c->layer), j + 1, across),
        &s);
}

static void band_task(void *argument, size_t slot)
{
    const struct call *c = argument;
    const struct scratch s = scratch_of(c, slot);
    const size_t stride = bs_step(c, c->layer->stride_h);
    for (size_t band = part(c->bands, slot, c->slots); band < part(c->bands, slot + 1, c->slots);
         ++band) {
        const size_t from = band * c->band_rows, to = least(from + c->band_rows, c->out.height);
        const struct view view = view_of(c, slot, from * stride);
        const size_t end = view.first + grid_lines(c, to - from);
        bs_pack_lines(c, view, view.first, end, &s);
        bs_pair_lines(c, view, view.first, end, end);
        if (!c->packs_only)
            bs_compute(c, view, from * c->out.width, to * c->out.width, 0, c->tiles, &s);
    }
}

static void words_task(void *argument, size_t slot)
{
    const struct call *c = argument;
    const size_t pixels = c->out.height * c->out.width;
    bs_pack_pixels(c, part(pixels, slot, c->slots), part(pixels, slot + 1, c->slots));
}

static void run_image(struct call *c, struct bs_pool *pool)
{
    for (c->group = 0; c->group < c->layer->groups; ++c->group)
        if (c->bands > 1)
            bs_run(pool, band_task, c, c->slots);
        else {
            bs_run(pool, pack_task, c, c->slots);
            if (c->end_bytes)
                bs_run(pool, pair_task, c, c->slots);
            if (!c->packs_only)
                bs_run(pool, compute_task, c, c->slots);
        }
    if (bs_words_later(c->layer) && !c->packs_only)
        bs_run(pool, words_task, c, c->slots);
}

static int run(
    struct call *c,
    const struct bs_tensors *tensors,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool)
{
    if (arena_bytes < c->arena_bytes)
        return BS_ARENA;
    const int status = bs_set_tensors(c, tensors, arena);
    if (status != BS_OK)
        return status;
    uint8_t *shared = c->arena + c->private_bytes;
    c->codes = c->codes_bytes ? shared : NULL;
    c->segment_offsets = (size_t *)(void *)(shared + c->codes_bytes);
    set_offsets(c);
    for (c->image = 0; c->image < c->in.batch; ++c->image)
        run_image(c, pool);
    return BS_OK;
}

int bs_layer_run(
    const struct bs_layer *layer,
    struct bs_shape in,
    const struct bs_tensors *tensors,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool)
{
    struct call c;
    if (layer->depthwise)
        return bs_depthwise_run(layer, in, tensors, 0, arena, arena_bytes, pool);
    const size_t threads = pool ? pool->threads : 1;
    if (bs_is_row(layer, in, threads))
        return bs_row_run(layer, tensors, 0, arena, arena_bytes);
    const int status = plan(&c, layer, in, threads);
    return status == BS_OK ? run(&c, tensors, arena, arena_bytes, pool) : status;
}

int bs_layer_pack(
    const struct bs_layer *layer,
    struct bs_shape in,
    const void *input,
    void *arena,
    size_t arena_bytes,
    struct bs_pool *pool)
{
    struct call c;
    const struct bs_tensors tensors = {input, NULL, NULL, NULL};
    if (layer->depthwise)
        return bs_depthwise_run(layer, in, &tensors, 1, arena, arena_bytes, pool);
    const size_t threads = pool ? pool->threads : 1;
    if (bs_is_row(layer, in, threads))
        return bs_row_run(layer, &tensors, 1, arena, arena_bytes);
    const int status = plan(&c, layer, in, threads);
    c.packs_only = 1;
    return status == BS_OK ? run(&c, &tensors, arena, arena_bytes, pool) : status;
}
