/* glue_driver FILE...: runs the layer of glue of each file between pages that cannot be touched, and compares.
 * A file holds threads, the sizes of what follows, the layer's description, the output and the inputs. */
#define _DEFAULT_SOURCE
#include "bs_glue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HOLDS(x) ((x) ? (void)0 : (fprintf(stderr, "%s, line %d: %s\n", file, __LINE__, #x), exit(1)))

size_t bs_glue_described_arena(const int64_t *n, size_t threads);
int bs_glue_described_run(const int64_t *n, void *output, void *arena, struct bs_pool *pool, const void *first,
    const void *second, const void *third, const void *fourth);

enum { PAGE = 4096, GARBAGE = 0xa5, ALIGN = 64 };
enum { BATCH, HEIGHT, WIDTH, ARENA_BYTES };
enum { THREADS, DESCRIBED, OUTPUT, INPUTS, SIZES = INPUTS + BS_GLUE_INPUTS };

static const char *file;

/* Memory that ends, but for its alignment, at a page that cannot be touched, or starts at one. */
static void *guarded(size_t bytes, size_t align, int at_end)
{
    const size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    uint8_t *at = mmap(NULL, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HOLDS(at != MAP_FAILED);
    HOLDS(whole == 0 || mprotect(at + PAGE, whole, PROT_READ | PROT_WRITE) == 0);
    memset(at + PAGE, GARBAGE, whole);
    return at + PAGE + (at_end ? (whole - bytes) / align * align : 0);
}

static void *loaded(FILE *from, size_t bytes, int at_end)
{
    void *to = guarded(bytes, 1, at_end);
    HOLDS(fread(to, 1, bytes, from) == bytes);
    return to;
}

static void run(int at_end)
{
    int64_t size[SIZES];
    const void *in[BS_GLUE_INPUTS];
    FILE *from = fopen(file, "rb");
    HOLDS(from && fread(size, sizeof size, 1, from) == 1);
    int64_t *described = loaded(from, (size_t)size[DESCRIBED], at_end);
    const size_t out_bytes = (size_t)size[OUTPUT], threads = (size_t)size[THREADS];
    void *want = loaded(from, out_bytes, at_end), *output = guarded(out_bytes, 1, at_end);
    for (int i = 0; i < BS_GLUE_INPUTS; ++i)
        in[i] = loaded(from, (size_t)size[INPUTS + i], at_end);
    fclose(from);
    const size_t bytes = bs_glue_described_arena(described, threads);
    struct bs_pool *pool = bs_pool_create(threads);
    void *arena = guarded(bytes, ALIGN, at_end);
    HOLDS(pool != NULL);
    HOLDS(bs_glue_described_run(described, output, arena, pool, in[0], in[1], in[2], in[3]) == BS_ARENA);
    HOLDS(out_bytes == 0 || *(uint8_t *)output == GARBAGE);
    described[ARENA_BYTES] = (int64_t)bytes;
    HOLDS(bs_glue_described_run(described, output, arena, pool, in[0], in[1], in[2], in[3]) == BS_OK);
    HOLDS(memcmp(output, want, out_bytes) == 0);
    bs_pool_destroy(pool);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; ++i) {
        file = argv[i];
        run(0);
        run(1);
    }
    return 0;
}
