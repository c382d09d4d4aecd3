/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* The runner of a board: reads a job, as bitsynth/device/job.py lays it out, checks and times its layers and prints a
 * line of JSON for each. It ends when its standard input does: whoever started it is gone. */
#define _POSIX_C_SOURCE 200809L

#include "bs_fp32.h"
#include "bs_kernels.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BAD_JOB = 10, NO_MEMORY = 11, LEFT_ALONE = 12, NO_THREADS = 13 };

struct head {
    char magic[8];
    int64_t size, threads, repeats, layers, row_words, together, sample_ns;
};

struct row {
    int64_t kernel, constants_at, input_at, residual_at, output_bytes, crc, with_fp32;
    struct bs_fp32 shape;
    int64_t numbers[];
};

struct job {
    const uint8_t *bytes;
    const struct head *head;
    struct bs_pool *pool;
};

static void fail(int code, const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(code);
}

static void *memory(size_t bytes)
{
    void *got = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!got)
        fail(NO_MEMORY, "not enough memory");
    return got;
}

static const uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        fail(BAD_JOB, "the job cannot be read");
    const long end = ftell(file);
    *size = end < 0 ? 0 : (size_t)end;
    uint8_t *bytes = memory(*size);
    rewind(file);
    if (fread(bytes, 1, *size, file) != *size)
        fail(BAD_JOB, "the job cannot be read");
    fclose(file);
    return bytes;
}

static struct job read_job(const char *path)
{
    size_t size;
    struct job job;
    job.bytes = read_file(path, &size);
    job.head = (const struct head *)(const void *)job.bytes;
    if (size < sizeof *job.head || memcmp(job.head->magic, "bsjob 3", 8) != 0 || (size_t)job.head->size != size ||
        job.head->together < 1)
        fail(BAD_JOB, "the job is none, or was cut short");
    job.pool = job.head->threads > 1 ? bs_pool_create((size_t)job.head->threads) : NULL;
    if (job.head->threads > 1 && !job.pool)
        fail(NO_THREADS, "the system does not give that many threads");
    return job;
}

static const struct row *row_of(const struct job *job, int64_t number)
{
    const uint8_t *rows = job->bytes + sizeof *job->head;
    return (const struct row *)(const void *)(rows + (size_t)(number * job->head->row_words) * sizeof(int64_t));
}

/* The checksum of zlib's crc32. */
static uint32_t crc32(const uint8_t *bytes, size_t count)
{
    uint32_t crc = ~UINT32_C(0);
    for (size_t i = 0; i < count; ++i) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; ++bit)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~crc;
}

struct layer {
    const struct job *job;
    const struct row *row;
    uint8_t *output, *arena, *fp32;
    size_t arena_bytes;
    double *samples; /* of the layer, then of the float convolution */
    int right, fp32_right;
};

static void run_layer(const struct layer *l, int64_t calls)
{
    const uint8_t *bytes = l->job->bytes;
    const struct row *row = l->row;
    const uint8_t *residual = row->residual_at ? bytes + row->residual_at : NULL;
    if (bs_entries[row->kernel].run(row->numbers, bytes + row->constants_at, bytes + row->input_at, residual, l->output,
            NULL, l->arena, l->arena_bytes, l->job->pool, (size_t)calls) != 0)
        fail(BAD_JOB, "a layer of the job does not run");
}

static void run_fp32(const struct layer *l, int64_t calls)
{
    for (int64_t i = 0; i < calls; ++i)
        bs_fp32_run(&l->row->shape, l->fp32, l->job->pool);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Nanoseconds of one of `calls` in a row, after one that brings its operands back into the caches. */
static double time_calls(void (*run)(const struct layer *, int64_t), const struct layer *l, int64_t calls)
{
    run(l, 1);
    const int64_t start = now();
    run(l, calls);
    return (double)(now() - start) / (double)calls;
}

/* As many calls as a sample of the job takes, and at least one. */
static int64_t calls_of(const struct layer *l)
{
    const double wanted = (double)l->job->head->sample_ns, once = time_calls(run_layer, l, 1);
    return wanted > once ? (int64_t)(wanted / (once > 1 ? once : 1)) : 1;
}

static void print_samples(const char *name, const double *samples, int64_t count)
{
    printf(", \"%s\": [", name);
    for (int64_t i = 0; i < count; ++i)
        printf("%s%.1f", i ? ", " : "", samples[i]);
    printf("]");
}

/* Layers and float convolutions take turns, so that what disturbs the board disturbs all. */
static void time_in_turn(struct layer *layers, int64_t count, int64_t repeats)
{
    const int64_t calls = calls_of(layers);
    for (int64_t i = 0; i < count; ++i)
        layers[i].samples = memory((size_t)repeats * 2 * sizeof(double));
    for (int64_t i = 0; i < repeats; ++i)
        for (struct layer *l = layers; l < layers + count; ++l) {
            l->samples[i] = time_calls(run_layer, l, calls);
            if (l->fp32)
                l->samples[repeats + i] = time_calls(run_fp32, l, calls);
        }
}

static int fp32_right(const struct layer *l)
{
    bs_fp32_prepare(&l->row->shape, l->fp32);
    run_fp32(l, 1);
    return bs_fp32_right(&l->row->shape, l->fp32);
}

static struct layer checked(const struct job *job, int64_t number)
{
    struct layer l = {.job = job, .row = row_of(job, number)};
    if ((size_t)l.row->kernel >= bs_entry_count)
        fail(BAD_JOB, "the job names a kernel that is not here");
    const uint8_t *constants = job->bytes + l.row->constants_at;
    l.arena_bytes = bs_entries[l.row->kernel].arena(l.row->numbers, constants, (size_t)job->head->threads);
    l.output = memory((size_t)l.row->output_bytes);
    l.arena = memory(l.arena_bytes);
    l.fp32 = l.row->with_fp32 ? memory(bs_fp32_bytes(&l.row->shape)) : NULL;
    run_layer(&l, 1);
    l.right = crc32(l.output, (size_t)l.row->output_bytes) == (uint32_t)l.row->crc;
    l.fp32_right = l.fp32 && fp32_right(&l);
    return l;
}

static void answer(const struct layer *l, int64_t number, int64_t repeats)
{
    printf("{\"layer\": %" PRId64 ", \"right\": %s", number, l->right ? "true" : "false");
    if (l->samples)
        print_samples("ns", l->samples, repeats);
    if (l->samples && l->fp32)
        print_samples("fp32_ns", l->samples + repeats, repeats);
    if (l->fp32)
        printf(", \"fp32_right\": %s", l->fp32_right ? "true" : "false");
    printf("}\n");
    fflush(stdout);
}

static void release(const struct layer *l)
{
    free(l->samples);
    free(l->fp32);
    free(l->arena);
    free(l->output);
}

static void do_layers(const struct job *job, int64_t first, int64_t count)
{
    struct layer *layers = memory((size_t)count * sizeof *layers);
    const int64_t repeats = job->head->repeats;
    int right = 1;
    for (int64_t i = 0; i < count; ++i) {
        layers[i] = checked(job, first + i);
        right &= layers[i].right;
    }
    if (right && repeats > 0)
        time_in_turn(layers, count, repeats);
    for (int64_t i = 0; i < count; ++i) {
        answer(&layers[i], first + i, repeats);
        release(&layers[i]);
    }
    free(layers);
}

static void *watch(void *unused)
{
    char byte;
    (void)unused;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    _exit(LEFT_ALONE);
}

int main(int argc, char **argv)
{
    pthread_t watcher;
    puts("{\"runner\": 1}");
    fflush(stdout);
    if (argc != 2)
        fail(BAD_JOB, "want the path of a job");
    if (pthread_create(&watcher, NULL, watch, NULL) != 0)
        fail(NO_THREADS, "the system gives no thread");
    const struct job job = read_job(argv[1]);
    const int64_t layers = job.head->layers, together = job.head->together;
    for (int64_t i = 0; i < layers; i += together)
        do_layers(&job, i, layers - i < together ? layers - i : together);
    bs_pool_destroy(job.pool);
    return 0;
}
