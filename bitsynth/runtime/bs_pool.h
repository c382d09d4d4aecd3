/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* A pool of threads for loops of microseconds: made once, passed to every layer. */
#ifndef BS_POOL_H
#define BS_POOL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs tasks 0 .. count - 1, each once; returns when all are done. A caller may pass its own. */
struct bs_pool {
    size_t threads;
    void (*run)(
        struct bs_pool *pool,
        void (*task)(void *argument, size_t index),
        void *argument,
        size_t count);
};

/* A pool of `threads` threads, the one that calls run among them, so that one fewer is started.
 * NULL if they cannot be made, or for 0 threads; whoever gets NULL can go on with it.
 *
 * run may be called from any thread: calls from several take turns, and one from inside a task does
 * its tasks itself. Only of two pools whose tasks call each other's run is each left waiting.
 * Threads without work look for some during 0.1 ms, then sleep. After fork() the child has no
 * threads of the pool and must make its own. */
struct bs_pool *bs_pool_create(size_t threads);

/* Ends the threads of a pool that bs_pool_create made and nothing runs on. NULL is fine. */
void bs_pool_destroy(struct bs_pool *pool);

/* Runs the tasks on `pool`, or in this thread if it is NULL. */
static inline void bs_run(
    struct bs_pool *pool, void (*task)(void *argument, size_t index), void *argument, size_t count)
{
    if (pool && count > 1) {
        pool->run(pool, task, argument, count);
        return;
    }
    for (size_t index = 0; index < count; ++index)
        task(argument, index);
}

#ifdef __cplusplus
}
#endif

#endif
