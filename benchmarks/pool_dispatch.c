/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* pool_dispatch THREADS ROUNDS: nanoseconds of every round, one line each:
 * empty tasks, a task for every thread that waits for all others, the same after sleep. */
#define _POSIX_C_SOURCE 200809L

#include "bs_pool.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct meeting {
    atomic_size_t here;
    size_t wanted;
};

static void meet(void *argument, size_t index)
{
    struct meeting *meeting = argument;
    (void)index;
    atomic_fetch_add(&meeting->here, 1);
    for (unsigned looks = 1; atomic_load(&meeting->here) < meeting->wanted; ++looks) {
        if (looks % 1024 == 0) sched_yield(); /* With fewer cores than threads. */
    }
}

static long long timed(struct bs_pool *pool, size_t wanted)
{
    struct meeting meeting = { .wanted = wanted };
    atomic_init(&meeting.here, 0);
    const long long start = now();
    bs_run(pool, meet, &meeting, pool->threads);
    return now() - start;
}

static void rounds(const char *name, struct bs_pool *pool, size_t wanted, long count, const struct timespec *rest)
{
    printf("%s", name);
    for (long i = 0; i < count; ++i) {
        if (rest) nanosleep(rest, NULL);
        printf(" %lld", timed(pool, wanted));
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    const struct timespec two_ms = { 0, 2000000 };
    if (argc != 3) return 2;
    struct bs_pool *pool = bs_pool_create((size_t)atol(argv[1]));
    if (!pool) {
        fprintf(stderr, "no pool of %s threads\n", argv[1]);
        return 1;
    }
    const long count = atol(argv[2]);
    rounds("empty", pool, 0, count, NULL);
    rounds("hot", pool, pool->threads, count, NULL);
    rounds("idle", pool, pool->threads, count / 100 + 1, &two_ms);
    bs_pool_destroy(pool);
    return 0;
}
