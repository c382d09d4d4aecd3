/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L

#include "bs_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

/* The state of a pool is one word: how many of its threads are inside the current job, whether the
 * pool ends, and a turn that goes up when a job opens and when it closes, so that odd turns are
 * open.
 *
 * A thread enters an open job, takes indices until there are none, and leaves. The caller closes
 * the job when all indices are taken: who has not entered by then stays out, and the job is done
 * when the last one has left. A job changes only while it is closed and empty, and no thread has to
 * be waited for that slept through it. */
enum { INSIDE = 0x7fff, STOP = 0x8000, TURN = 0x10000, THREADS_MAX = INSIDE };
#define TURN_BITS (~(unsigned)(INSIDE | STOP))

/* Each emitted layer and network has a copy of this file. In a program with several of them the
 * linker keeps one definition, so that they can share a pool. */
#define SHARED __attribute__((weak))

enum { SPIN_NANOSECONDS = 100000, PAUSES = 256 };

struct bench {
    pthread_cond_t wake;
    atomic_uint sleepers;
};

struct job {
    void (*task)(void *argument, size_t index);
    void *argument;
    size_t count;
};

struct pool {
    struct bs_pool shared;     /* First: its address is the pool's. */
    pthread_mutex_t job_mutex; /* Whoever holds it runs a job; refuses the thread that holds it. */
    pthread_mutex_t bed;       /* Held while falling asleep and while waking. */
    struct bench idle;         /* Threads without a job. */
    struct bench caller;       /* The caller of run, until the job is empty. */
    size_t started;
    char apart[64]; /* The state, which idle threads watch, has a cache line of its own. */
    atomic_uint state;
    char between[64];
    atomic_size_t next;
    struct job job;
    pthread_t thread[];
};

typedef bool test(unsigned state, unsigned turn);

static bool job_opened(unsigned state, unsigned last)
{
    return (state & STOP) || ((state & TURN) && (state & TURN_BITS) != last);
}

static bool job_empty(unsigned state, unsigned unused)
{
    (void)unused;
    return (state & INSIDE) == 0;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || (defined(__arm__) && __ARM_ARCH >= 7)
    __asm__ volatile("yield");
#endif
}

static long long nanoseconds(void)
{
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Whether the state came true before it was time to sleep. */
static bool spin(struct pool *pool, test *done, unsigned turn)
{
    const long long start = nanoseconds();
    do {
        for (int i = 0; i < PAUSES; ++i) {
            if (done(atomic_load(&pool->state), turn))
                return true;
            relax();
        }
        sched_yield(); /* The thread that is waited for may need this core. */
    } while (nanoseconds() - start < SPIN_NANOSECONDS);
    return false;
}

/* Sleepers are counted before the state is looked at, and wake() is called after it changed: one
 * sees the other. Locks and waits do not fail on locks of the default kind that were made. */
static void doze(struct pool *pool, test *done, unsigned turn, struct bench *bench)
{
    pthread_mutex_lock(&pool->bed);
    atomic_fetch_add(&bench->sleepers, 1);
    while (!done(atomic_load(&pool->state), turn))
        pthread_cond_wait(&bench->wake, &pool->bed);
    atomic_fetch_sub(&bench->sleepers, 1);
    pthread_mutex_unlock(&pool->bed);
}

static void wake(struct pool *pool, struct bench *bench)
{
    if (atomic_load(&bench->sleepers) == 0)
        return;
    pthread_mutex_lock(&pool->bed); /* Who has looked at the state before now waits. */
    pthread_mutex_unlock(&pool->bed);
    pthread_cond_broadcast(&bench->wake);
}

static void await(struct pool *pool, test *done, unsigned turn, struct bench *bench)
{
    if (!done(atomic_load(&pool->state), turn) && !spin(pool, done, turn))
        doze(pool, done, turn, bench);
}

static bool enter(struct pool *pool, unsigned turn)
{
    unsigned state = atomic_load(&pool->state);
    while ((state & TURN) && (state & TURN_BITS) == turn) {
        if (atomic_compare_exchange_weak(&pool->state, &state, state + 1))
            return true;
    }
    return false;
}

static void leave(struct pool *pool)
{
    const unsigned before = atomic_fetch_sub(&pool->state, 1);
    if (!(before & TURN) && (before & INSIDE) == 1)
        wake(pool, &pool->caller);
}

static void take(struct pool *pool)
{
    const struct job job = pool->job;
    size_t index;
    while ((index = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < job.count) {
        job.task(job.argument, index);
    }
}

static void *work(void *argument)
{
    struct pool *pool = argument;
    unsigned last = 0;
    for (;;) {
        await(pool, job_opened, last, &pool->idle);
        const unsigned state = atomic_load(&pool->state);
        if (state & STOP)
            return NULL;
        last = state & TURN_BITS;
        if (enter(pool, last)) {
            take(pool);
            leave(pool);
        }
    }
}

static bool is_mine(const struct pool *pool, pthread_t thread)
{
    for (size_t i = 0; i < pool->started; ++i) {
        if (pthread_equal(pool->thread[i], thread))
            return true;
    }
    return false;
}

static void run(struct bs_pool *shared, void (*task)(void *, size_t), void *argument, size_t count)
{
    struct pool *pool = (struct pool *)shared;
    /* Both fail for a call from inside a task. */
    if (is_mine(pool, pthread_self()) || pthread_mutex_lock(&pool->job_mutex) != 0) {
        bs_run(NULL, task, argument, count);
        return;
    }
    pool->job = (struct job){task, argument, count};
    atomic_store(&pool->next, 0);
    atomic_fetch_add(&pool->state, TURN);
    wake(pool, &pool->idle);
    take(pool);
    atomic_fetch_add(&pool->state, TURN);
    await(pool, job_empty, 0, &pool->caller);
    pthread_mutex_unlock(&pool->job_mutex);
}

static bool make_job_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t kind;
    if (pthread_mutexattr_init(&kind) != 0)
        return false;
    const bool made = pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK) == 0
        && pthread_mutex_init(mutex, &kind) == 0;
    pthread_mutexattr_destroy(&kind);
    return made;
}

static bool make_bench(struct bench *bench)
{
    atomic_init(&bench->sleepers, 0);
    return pthread_cond_init(&bench->wake, NULL) == 0;
}

static bool make_locks(struct pool *pool)
{
    if (!make_job_mutex(&pool->job_mutex))
        return false;
    if (pthread_mutex_init(&pool->bed, NULL) == 0) {
        if (make_bench(&pool->idle)) {
            if (make_bench(&pool->caller))
                return true;
            pthread_cond_destroy(&pool->idle.wake);
        }
        pthread_mutex_destroy(&pool->bed);
    }
    pthread_mutex_destroy(&pool->job_mutex);
    return false;
}

SHARED struct bs_pool *bs_pool_create(size_t threads)
{
    if (threads == 0 || threads > THREADS_MAX)
        return NULL;
    struct pool *pool = malloc(sizeof *pool + (threads - 1) * sizeof pool->thread[0]);
    if (!pool)
        return NULL;
    pool->shared = (struct bs_pool){threads, run};
    atomic_init(&pool->state, 0);
    atomic_init(&pool->next, 0);
    pool->started = 0;
    if (!make_locks(pool)) {
        free(pool);
        return NULL;
    }
    for (; pool->started < threads - 1; ++pool->started) {
        if (pthread_create(&pool->thread[pool->started], NULL, work, pool) != 0) {
            bs_pool_destroy(&pool->shared);
            return NULL;
        }
    }
    return &pool->shared;
}

SHARED void bs_pool_destroy(struct bs_pool *shared)
{
    struct pool *pool = (struct pool *)shared;
    if (!pool)
        return;
    atomic_fetch_or(&pool->state, STOP);
    wake(pool, &pool->idle);
    for (size_t i = 0; i < pool->started; ++i)
        pthread_join(pool->thread[i], NULL);
    pthread_cond_destroy(&pool->caller.wake);
    pthread_cond_destroy(&pool->idle.wake);
    pthread_mutex_destroy(&pool->bed);
    pthread_mutex_destroy(&pool->job_mutex);
    free(pool);
}
