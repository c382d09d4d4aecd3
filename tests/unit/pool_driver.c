/* pool_driver CHECK THREADS: exits with 0, or names the line that does not hold. */
#define _POSIX_C_SOURCE 200809L

#include "bs_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define HOLDS(x) ((x) ? (void)0 : (fprintf(stderr, "line %d: %s\n", __LINE__, #x), exit(1)))

enum { MOST = 1000, ROUNDS = 2000, UNBOUNDED = 77 };

static const size_t counts[] = { 0, 1, 2, MOST };

static void pause_for(long milliseconds)
{
    const struct timespec span = { milliseconds / 1000, milliseconds % 1000 * 1000000 };
    nanosleep(&span, NULL);
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Not atomic: one index belongs to one thread at a time. */
static void tally(void *argument, size_t index) { ++((unsigned *)argument)[index]; }

static void all_once(struct bs_pool *pool, unsigned rounds)
{
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
        unsigned done[MOST + 64] = { 0 };
        for (unsigned round = 1; round <= rounds; ++round) {
            bs_run(pool, tally, done, counts[i]);
            for (size_t index = 0; index < MOST + 64; ++index) HOLDS(done[index] == (index < counts[i] ? round : 0));
        }
        if (pool) pool->run(pool, tally, done, counts[i]);
        for (size_t index = 0; index < MOST + 64; ++index)
            HOLDS(done[index] == (index < counts[i] ? rounds + (pool != NULL) : 0));
    }
}

static void sums(struct bs_pool *pool) { all_once(pool, ROUNDS); }

static void serial(struct bs_pool *pool)
{
    (void)pool;
    all_once(NULL, 2);
}

struct meeting {
    pthread_t caller;
    atomic_size_t here;
    size_t wanted;
    long worker_stays;
};

static void meet(void *argument, size_t index)
{
    struct meeting *meeting = argument;
    (void)index;
    atomic_fetch_add(&meeting->here, 1);
    while (atomic_load(&meeting->here) < meeting->wanted) sched_yield();
    if (!pthread_equal(pthread_self(), meeting->caller)) pause_for(meeting->worker_stays);
}

static void all_meet(struct bs_pool *pool, long worker_stays)
{
    struct meeting meeting = { .caller = pthread_self(), .wanted = pool->threads, .worker_stays = worker_stays };
    atomic_init(&meeting.here, 0);
    bs_run(pool, meet, &meeting, pool->threads);
    HOLDS(atomic_load(&meeting.here) == pool->threads);
}

/* Ends only if every thread takes part: hot, after they fell asleep, and with a caller that falls asleep. */
static void parallel(struct bs_pool *pool)
{
    for (int i = 0; i < 20; ++i) all_meet(pool, 0);
    for (int i = 0; i < 5; ++i) {
        pause_for(5);
        all_meet(pool, 0);
        all_meet(pool, 5);
    }
}

static void idle(struct bs_pool *pool)
{
    all_meet(pool, 0);
    const double before = cpu_seconds();
    pause_for(300);
    HOLDS(cpu_seconds() - before < 0.06);
}

struct nest {
    struct bs_pool *pool;
    struct meeting *meeting;
    unsigned (*done)[MOST];
};

static void nest(void *argument, size_t index)
{
    struct nest *outer = argument;
    meet(outer->meeting, index);
    bs_run(outer->pool, tally, outer->done[index], MOST);
}

static void nested(struct bs_pool *pool)
{
    unsigned(*done)[MOST] = calloc(pool->threads, sizeof *done);
    HOLDS(done);
    struct meeting meeting = { .caller = pthread_self(), .wanted = pool->threads };
    atomic_init(&meeting.here, 0);
    struct nest outer = { pool, &meeting, done };
    pool->run(pool, nest, &outer, pool->threads);
    for (size_t i = 0; i < pool->threads; ++i)
        for (size_t j = 0; j < MOST; ++j) HOLDS(done[i][j] == 1);
    free(done);
    all_once(pool, 2);
}

static void *call(void *pool)
{
    all_once(pool, ROUNDS);
    return NULL;
}

static void concurrent(struct bs_pool *pool)
{
    pthread_t other;
    HOLDS(pthread_create(&other, NULL, call, pool) == 0);
    call(pool);
    HOLDS(pthread_join(other, NULL) == 0);
}

struct own {
    struct bs_pool shared;
    unsigned calls;
};

static void run_backwards(struct bs_pool *pool, void (*task)(void *, size_t), void *argument, size_t count)
{
    ++((struct own *)pool)->calls;
    while (count > 0) task(argument, --count);
}

static void own(struct bs_pool *pool)
{
    struct own mine = { { pool->threads, run_backwards }, 0 };
    unsigned done[MOST] = { 0 };
    bs_run(&mine.shared, tally, done, 0);
    bs_run(&mine.shared, tally, done, 1);
    HOLDS(mine.calls == 0);
    bs_run(&mine.shared, tally, done, MOST);
    HOLDS(mine.calls == 1);
    for (size_t i = 0; i < MOST; ++i) HOLDS(done[i] == (i == 0 ? 2 : 1));
}

static void lives(struct bs_pool *pool)
{
    HOLDS(bs_pool_create(0) == NULL);
    HOLDS(bs_pool_create(SIZE_MAX) == NULL);
    bs_pool_destroy(NULL);
    for (int i = 0; i < 100; ++i) {
        struct bs_pool *other = bs_pool_create(pool->threads);
        HOLDS(other && other->threads == pool->threads);
        if (i % 2) all_once(other, 1);
        bs_pool_destroy(other);
    }
}

static void no_room(struct bs_pool *pool)
{
    const struct rlimit little = { 512u << 20, 512u << 20 };
    HOLDS(setrlimit(RLIMIT_AS, &little) == 0);
    void *volatile more = malloc(1u << 30);
    if (more) exit(UNBOUNDED);
    HOLDS(bs_pool_create(10000) == NULL);
    lives(pool);
}

static const struct {
    const char *name;
    void (*check)(struct bs_pool *pool);
} checks[] = { { "sums", sums }, { "serial", serial }, { "parallel", parallel }, { "idle", idle }, { "nested", nested },
    { "concurrent", concurrent }, { "own", own }, { "lives", lives }, { "no_room", no_room } };

int main(int argc, char **argv)
{
    HOLDS(argc == 3);
    struct bs_pool *pool = bs_pool_create((size_t)atoi(argv[2]));
    HOLDS(pool);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; ++i) {
        if (strcmp(checks[i].name, argv[1]) != 0) continue;
        checks[i].check(pool);
        bs_pool_destroy(pool);
        return 0;
    }
    fprintf(stderr, "no check %s\n", argv[1]);
    return 2;
}
