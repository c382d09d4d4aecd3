/* layer_driver FILE...: runs the layer of each file between pages that cannot be touched, and compares.
 * A file holds the sizes of what follows, the layer's numbers and constants, input, residual, output and kept sums;
 * a layer without a residual has neither of those. */
#define _DEFAULT_SOURCE
#include "bs_layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HOLDS(x) ((x) ? (void)0 : (fprintf(stderr, "%s, line %d: %s\n", file, __LINE__, #x), exit(1)))

size_t NAME_layer_arena(const int64_t *n, const uint8_t *constants, size_t threads);
int NAME_layer_run(const int64_t *n, const uint8_t *constants, const void *input, const void *residual,
    void *output, void *sum, void *arena, size_t arena_bytes, struct bs_pool *pool, size_t calls);
int NAME_layer_pack(const int64_t *n, const uint8_t *constants, const void *input, const void *residual,
    void *output, void *sum, void *arena, size_t arena_bytes, struct bs_pool *pool, size_t calls);

enum { PAGE = 4096, GARBAGE = 0xa5 };
enum { NUMBERS, CONSTANTS, INPUT, RESIDUAL, OUTPUT, SUMS, THREADS, SIZES };

static const char *file;

/* Memory that ends, or starts, at a page that cannot be touched. */
static void *guarded(size_t bytes, int at_end)
{
    const size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    uint8_t *at = mmap(NULL, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HOLDS(at != MAP_FAILED);
    HOLDS(whole == 0 || mprotect(at + PAGE, whole, PROT_READ | PROT_WRITE) == 0);
    memset(at + PAGE, GARBAGE, whole);
    return at + PAGE + (at_end ? whole - bytes : 0);
}

static void *loaded(FILE *from, size_t bytes, int at_end)
{
    void *to = guarded(bytes, at_end);
    HOLDS(fread(to, 1, bytes, from) == bytes);
    return to;
}

static void run(int at_end)
{
    int64_t size[SIZES];
    FILE *from = fopen(file, "rb");
    HOLDS(from && fread(size, sizeof size, 1, from) == 1);
    int64_t *numbers = loaded(from, (size_t)size[NUMBERS], at_end);
    uint8_t *constants = loaded(from, (size_t)size[CONSTANTS], at_end);
    void *input = loaded(from, (size_t)size[INPUT], at_end);
    void *residual = size[RESIDUAL] ? loaded(from, (size_t)size[RESIDUAL], at_end) : NULL;
    void *want = loaded(from, (size_t)size[OUTPUT], at_end), *output = guarded((size_t)size[OUTPUT], at_end);
    void *kept = loaded(from, (size_t)size[SUMS], at_end);
    void *sum = size[SUMS] ? guarded((size_t)size[SUMS], at_end) : NULL;
    const size_t threads = (size_t)size[THREADS], bytes = NAME_layer_arena(numbers, constants, threads);
    struct bs_pool *pool = bs_pool_create(threads);
    void *arena = guarded(bytes, at_end);
    fclose(from);
    HOLDS(pool != NULL);
    HOLDS(NAME_layer_run(numbers, constants, input, residual, output, sum, arena, bytes - 1, pool, 1) == BS_ARENA);
    HOLDS(NAME_layer_pack(numbers, constants, input, NULL, NULL, NULL, arena, bytes, pool, 1) == BS_OK);
    HOLDS(NAME_layer_run(numbers, constants, input, residual, output, sum, arena, bytes, pool, 2) == BS_OK);
    HOLDS(memcmp(output, want, (size_t)size[OUTPUT]) == 0);
    HOLDS(!sum || memcmp(sum, kept, (size_t)size[SUMS]) == 0);
    int64_t *batch = numbers + size[NUMBERS] / (int64_t)sizeof *numbers - 3;
    *batch = 0;
    HOLDS(NAME_layer_arena(numbers, constants, threads) == 0);
    HOLDS(NAME_layer_run(numbers, constants, input, residual, output, sum, NULL, 0, pool, 1) == BS_EMPTY);
    bs_pool_destroy(pool);
}

int main(int count, char **files)
{
    for (int i = 1; i < count; ++i) {
        file = files[i];
        run(1);
        run(0);
    }
    return count < 2;
}
