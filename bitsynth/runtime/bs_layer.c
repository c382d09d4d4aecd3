/* A layer: what a call needs, and its tasks. */
#include "bs_call.h"

#include <string.h>

static size_t out_size(size_t size, size_t padding, size_t kernel, size_t stride, size_t dilation)
{
    const size_t reach = dilation * (kernel - 1) + 1;
    return size == 0 || size + padding < reach ? 0 : (size + padding - reach) / stride + 1;
}

struct bs_shape bs_layer_output(const struct bs_layer *l, struct bs_shape in)
{
    const struct bs_shape out = {
        in.batch,
        out_size(in.height, l->pad_top + l->pad_bottom, l->kernel_h, l->stride_h, l->dilation_h),
        out_size(in.width, l->pad_left + l->pad_right, l->kernel_w, l->stride_w, l->dilation_w),
    };
    return out;
}

static void plan_grid(struct call *c)
{
    const struct bs_layer *l = c->layer;
    const size_t taps = l->kernel_h * l->kernel_w, pixel_steps = ceiling(l->in_channels, l->kernel->k_step);
    if (l->gather == BS_IM2COL) {
        c->grid_h = c->out.height;
        c->grid_w = c->out.width;
        c->pixel_codes = taps * l->in_channels;
        c->segments = 1;
        c->segment_steps = ceiling(c->pixel_codes, l->kernel->k_step);
        c->pixel_bytes = c->segment_steps * l->kernel->row_bytes;
        return;
    }
    const int padded = l->gather == BS_DIRECT, joined = padded && l->dilation_w == 1 && !l->kernel->planes_apart;
    c->grid_h = c->in.height + (padded ? l->pad_top + l->pad_bottom : 0);
    c->grid_w = c->in.width + (padded ? l->pad_left + l->pad_right : 0);
    c->pixel_codes = l->in_channels;
    c->segments = joined ? l->kernel_h : taps;
    c->segment_steps = joined ? l->kernel_w * pixel_steps : pixel_steps;
    c->pixel_bytes = pixel_steps * l->kernel->row_bytes;
}

/* Grid lines that `rows` output rows read. */
static size_t grid_lines(const struct call *c, size_t rows)
{
    const struct bs_layer *l = c->layer;
    if (l->gather == BS_IM2COL)
        return rows;
    if (l->gather == BS_INDIRECT)
        return c->grid_h;
    return (rows - 1) * l->stride_h + (l->kernel_h - 1) * l->dilation_h + 1;
}

/* A line of another layout is staged once: as many are kept as a window reaches over. */
static void plan_staging(struct call *c)
{
    const struct bs_layer *l = c->layer;
    const size_t reach = (l->kernel_h - 1) * l->dilation_h + 1;
    if (l->in_layout != BS_NHWC) {
        c->staged_lines = l->gather == BS_IM2COL ? least(reach, c->in.height) : 1;
        c->staged_bytes = aligned(c->in.width * ceiling(l->in_channels + 7, 8) * 8 + 64); /* groups start anywhere in an eight */
    }
    c->held_bytes = aligned(c->staged_lines * sizeof(struct held));
    c->taps_bytes = aligned(l->kernel_h * sizeof(struct line));
    c->patch_bytes = aligned(c->pixel_codes + 64);
}

static void plan_arena(struct call *c, size_t threads)
{
    const struct bs_layer *l = c->layer;
    const struct bs_kernel *k = l->kernel;
    const size_t block = l->block_rows ? ceiling(l->block_rows, k->rows) * k->rows : c->out.height * c->out.width;
    c->tiles = ceiling(l->out_channels, k->columns);
    c->slots = threads ? threads : 1;
    c->band_rows = l->band_rows && l->gather != BS_INDIRECT ? least(l->band_rows, c->out.height) : c->out.height;
    c->bands = ceiling(c->out.height, c->band_rows);
    if (l->gather == BS_DIRECT)
        c->grid_h = grid_lines(c, c->out.height);
    c->band_grid_rows = grid_lines(c, c->band_rows);
    c->views = c->bands > 1 ? c->slots : 1;
    c->line_bytes = aligned(c->grid_w * c->pixel_bytes + k->slack);
    c->rows_bytes = c->band_grid_rows * c->line_bytes;
    c->sums_bytes = aligned(c->band_grid_rows * c->grid_w * sizeof(int32_t));
    c->view_bytes = c->rows_bytes + 2 * c->sums_bytes;
    c->pointers_bytes = aligned(c->segments * k->rows * sizeof(uint8_t *));
    c->offsets_bytes = aligned(c->segments * sizeof(size_t));
    c->terms_bytes = aligned((least(block, c->out.height * c->out.width) + k->rows) * sizeof(int32_t));
    c->tile_bytes = aligned((k->rows + 1) * k->columns * sizeof(int32_t));
    plan_staging(c);
    c->scratch_bytes = c->pointers_bytes + 2 * c->terms_bytes + c->tile_bytes + c->held_bytes + c->taps_bytes
        + c->staged_lines * c->staged_bytes + c->patch_bytes + aligned(c->pixel_bytes + k->slack);
}

/* Whether the sizes below are none because products wrapped: reckoned with doubles, generously. */
static int wraps(const struct call *c)
{
    const struct bs_layer *l = c->layer;
    const double pixels = (double)c->out.height * (double)c->out.width, out_pixel = (double)l->groups * (double)l->out_channels;
    const double view = ((double)c->band_grid_rows + 1) * ((double)c->grid_w + 1) * ((double)c->pixel_bytes + 256);
    const double lines = (double)c->staged_lines * (double)c->in.width * ((double)l->in_channels + 256);
    const double bytes = (double)c->views * view + (double)c->slots * (lines + 8 * pixels) + pixels * out_pixel;
    return bytes > (double)(SIZE_MAX / 2);
}

/* BS_OK, BS_EMPTY, or BS_ARENA where no memory could hold the arena. */
static int plan(struct call *c, const struct bs_layer *layer, struct bs_shape in, size_t threads)
{
    memset(c, 0, sizeof *c);
    c->layer = layer;
    c->in = in;
    c->out = bs_layer_output(layer, in);
    if (c->out.batch == 0 || c->out.height == 0 || c->out.width == 0)
        return BS_EMPTY;
    plan_grid(c);
    plan_arena(c, threads);
    return wraps(c) ? BS_ARENA : BS_OK;
}

static size_t codes_bytes(const struct call *c)
{
    const struct bs_layer *l = c->layer;
    return l->out_layout == BS_PACKED ? aligned(c->out.height * c->out.width * l->groups * l->out_channels + 64) : 0;
}

/* Bytes of everything but the scratch of tasks and the views. */
static size_t shared_bytes(const struct call *c)
{
    return codes_bytes(c) + c->offsets_bytes;
}

/* How far the segments lie from the first. */
static void set_offsets(struct call *c)
{
    const struct bs_layer *l = c->layer;
    const size_t across = c->segments / l->kernel_h ? c->segments / l->kernel_h : 1;
    for (size_t i = 0; i < c->segments; ++i)
        c->segment_offsets[i] = i / across * l->dilation_h * c->line_bytes + i % across * l->dilation_w * c->pixel_bytes;
}

size_t bs_layer_arena_bytes(const struct bs_layer *layer, struct bs_shape in, size_t threads)
{
    struct call c;
    const int status = plan(&c, layer, in, threads);
    if (status != BS_OK)
        return status == BS_EMPTY ? 0 : SIZE_MAX;
    return c.views * c.view_bytes + c.slots * c.scratch_bytes + shared_bytes(&c);
}

static struct view view_of(const struct call *c, size_t number, size_t first)
{
    uint8_t *at = c->arena + number * c->view_bytes;
    const struct view view = {
        at, (int32_t *)(void *)(at + c->rows_bytes), (int32_t *)(void *)(at + c->rows_bytes + c->sums_bytes), first};
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
    s.tile = (int32_t *)(void *)at;
    at += c->tile_bytes;
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

/* Part i of n of 0..count, in whole units. */
static size_t part(size_t count, size_t unit, size_t i, size_t n)
{
    return least(ceiling(count, unit) * i / n * unit, count);
}

static void pack_task(void *argument, size_t slot)
{
    const struct call *c = argument;
    const struct scratch s = scratch_of(c, slot);
    bs_pack_lines(c, view_of(c, 0, 0), part(c->grid_h, 1, slot, c->slots), part(c->grid_h, 1, slot + 1, c->slots), &s);
}

/* How many of n slots share the columns, so that the fullest slot has least to do. */
static size_t column_slots(const struct call *c)
{
    const size_t units = ceiling(c->out.height * c->out.width, c->layer->kernel->rows);
    size_t best = 1, load = SIZE_MAX;
    for (size_t n = 1; n <= c->slots; ++n)
        if (c->slots % n == 0) {
            const size_t here = ceiling(units, c->slots / n) * ceiling(c->tiles, n);
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
    const size_t across = column_slots(c), down = c->slots / across, i = slot / across, j = slot % across;
    const size_t pixels = c->out.height * c->out.width, rows = c->layer->kernel->rows;
    bs_compute(c, view_of(c, 0, 0), part(pixels, rows, i, down), part(pixels, rows, i + 1, down),
        part(c->tiles, 1, j, across), part(c->tiles, 1, j + 1, across), &s);
}

static void band_task(void *argument, size_t slot)
{
    const struct call *c = argument;
    const struct scratch s = scratch_of(c, slot);
    const size_t stride = c->layer->gather == BS_IM2COL ? 1 : c->layer->stride_h;
    for (size_t band = part(c->bands, 1, slot, c->slots); band < part(c->bands, 1, slot + 1, c->slots); ++band) {
        const size_t from = band * c->band_rows, to = least(from + c->band_rows, c->out.height);
        const struct view view = view_of(c, slot, from * stride);
        bs_pack_lines(c, view, view.first, view.first + grid_lines(c, to - from), &s);
        if (!c->packs_only)
            bs_compute(c, view, from * c->out.width, to * c->out.width, 0, c->tiles, &s);
    }
}

static void words_task(void *argument, size_t slot)
{
    const struct call *c = argument;
    const struct bs_layer *l = c->layer;
    const size_t channels = l->groups * l->out_channels, words = bs_packed_words(l->out_bits, channels);
    const size_t pixels = c->out.height * c->out.width;
    uint64_t *to = (uint64_t *)(void *)c->output + c->image * pixels * words;
    for (size_t p = part(pixels, 1, slot, c->slots); p < part(pixels, 1, slot + 1, c->slots); ++p)
        bs_pack_codes(l->out_bits, channels, c->codes + p * channels, to + p * words);
}

static void run_image(struct call *c, struct bs_pool *pool)
{
    for (c->group = 0; c->group < c->layer->groups; ++c->group)
        if (c->bands > 1)
            bs_run(pool, band_task, c, c->slots);
        else {
            bs_run(pool, pack_task, c, c->slots);
            if (!c->packs_only)
                bs_run(pool, compute_task, c, c->slots);
        }
    if (c->layer->out_layout == BS_PACKED && !c->packs_only)
        bs_run(pool, words_task, c, c->slots);
}

static int run(struct call *c, const void *input, void *output, void *arena, size_t arena_bytes, struct bs_pool *pool)
{
    const size_t private = c->views * c->view_bytes + c->slots * c->scratch_bytes;
    if (arena_bytes < private + shared_bytes(c))
        return BS_ARENA;
    c->input = input;
    c->output = output;
    c->arena = arena;
    c->codes = c->arena + private;
    c->segment_offsets = (size_t *)(void *)(c->codes + codes_bytes(c));
    set_offsets(c);
    for (c->image = 0; c->image < c->in.batch; ++c->image)
        run_image(c, pool);
    return BS_OK;
}

int bs_layer_run(const struct bs_layer *layer, struct bs_shape in, const void *input, void *output, void *arena,
    size_t arena_bytes, struct bs_pool *pool)
{
    struct call c;
    const int status = plan(&c, layer, in, pool ? pool->threads : 1);
    return status == BS_OK ? run(&c, input, output, arena, arena_bytes, pool) : status;
}

int bs_layer_pack(const struct bs_layer *layer, struct bs_shape in, const void *input, void *arena, size_t arena_bytes,
    struct bs_pool *pool)
{
    struct call c;
    const int status = plan(&c, layer, in, pool ? pool->threads : 1);
    c.packs_only = 1;
    return status == BS_OK ? run(&c, input, NULL, arena, arena_bytes, pool) : status;
}
