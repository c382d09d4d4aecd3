/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* A plugin of qemu-user: executed instructions and cache misses of the code at addresses from..to.
 *
 * Counts and caches live in the file `state`, which others may read, and fill with zeros to begin anew. Two levels of
 * data caches with lines of 64 bytes: least recently used lines go, stores fetch their lines as loads do, and whatever
 * misses the first level asks the second; none with `caches=off`, which is faster. With `fetch=` a file has loads, by
 * their addresses, and how many bytes behind what they read lines are asked for: these are there, and not counted. With
 * `trace=` a file has the blocks that were run, in order. What it needs of qemu's header is declared here. */
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
unsigned qemu_plugin_mem_size_shift(uint32_t info);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*call)(uint64_t id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_tb_exec_cb(
    struct qemu_plugin_tb *tb, void (*call)(unsigned cpu, void *data), int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
    void (*call)(unsigned cpu, uint32_t info, uint64_t address, void *data), int flags, int which, void *data);

enum { NO_REGISTERS = 0, READS_AND_WRITES = 3, LINE_SHIFT = 6 };

/* Lines by set, the last used first, each as its number and one more: 0 is none. */
struct state {
    uint64_t instructions, l1_misses, l2_misses;
    uint64_t l1[L1_SETS][L1_WAYS], l2[L2_SETS][L2_WAYS];
};

enum { MOST_BLOCKS = 1 << 16, MOST_RUNS = 1 << 26 };

/* A block has `count` instructions from the address `at` on; `run` has the numbers of blocks. */
struct block {
    uint64_t at, count;
};
struct trace {
    uint64_t runs, blocks;
    struct block block[MOST_BLOCKS];
    uint32_t run[MOST_RUNS];
};

/* A load at the address `at` and a distance in bytes; the last one is at 0. */
struct fetch {
    uint64_t at;
    int64_t distance;
};
enum { MOST_FETCHES = 1 << 12 };

static struct state *state;
static struct fetch *fetches;
static struct trace *trace;
static uint64_t from, to;
static bool caches = true;

/* Whether the line was there; it is now. */
static bool use(uint64_t *set, size_t ways, uint64_t line)
{
    size_t i = 0;
    while (i < ways - 1 && set[i] != line)
        ++i;
    const bool hit = set[i] == line;
    memmove(set + 1, set, i * sizeof *set);
    set[0] = line;
    return hit;
}

static void on_fetch(unsigned cpu, uint32_t info, uint64_t address, void *data)
{
    const struct fetch *fetch = data;
    const uint64_t line = (address + (uint64_t)fetch->distance) >> LINE_SHIFT;
    (void)cpu;
    (void)info;
    if (!use(state->l1[line % L1_SETS], L1_WAYS, line + 1))
        use(state->l2[line % L2_SETS], L2_WAYS, line + 1);
}

static void on_access(unsigned cpu, uint32_t info, uint64_t address, void *data)
{
    const uint64_t last = (address + (UINT64_C(1) << qemu_plugin_mem_size_shift(info)) - 1) >> LINE_SHIFT;
    (void)cpu;
    (void)data;
    for (uint64_t line = address >> LINE_SHIFT; line <= last; ++line) {
        if (use(state->l1[line % L1_SETS], L1_WAYS, line + 1))
            continue;
        ++state->l1_misses;
        state->l2_misses += !use(state->l2[line % L2_SETS], L2_WAYS, line + 1);
    }
}

static void on_block(unsigned cpu, void *data)
{
    (void)cpu;
    state->instructions += (uintptr_t)data;
}

static void on_traced_block(unsigned cpu, void *data)
{
    const uintptr_t number = (uintptr_t)data;
    (void)cpu;
    state->instructions += trace->block[number].count;
    if (trace->runs == MOST_RUNS)
        abort();
    trace->run[trace->runs++] = (uint32_t)number;
}

static void on_translation(uint64_t id, struct qemu_plugin_tb *tb)
{
    uintptr_t instructions = 0;
    uint64_t start = 0;
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); ++i) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        const uint64_t at = qemu_plugin_insn_vaddr(insn);
        if (at < from || at >= to)
            continue;
        if (instructions++ == 0)
            start = at;
        if (caches)
            qemu_plugin_register_vcpu_mem_cb(insn, on_access, NO_REGISTERS, READS_AND_WRITES, NULL);
        for (struct fetch *fetch = fetches; caches && fetch != NULL && fetch->at != 0; ++fetch)
            if (fetch->at == at)
                qemu_plugin_register_vcpu_mem_cb(insn, on_fetch, NO_REGISTERS, READS_AND_WRITES, fetch);
    }
    if (instructions == 0)
        return;
    if (trace == NULL) {
        qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, NO_REGISTERS, (void *)instructions);
        return;
    }
    if (trace->blocks == MOST_BLOCKS)
        abort();
    trace->block[trace->blocks] = (struct block){start, instructions};
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_traced_block, NO_REGISTERS, (void *)(uintptr_t)trace->blocks++);
}

/* The file at `path` as memory of so many bytes, which are 0 at first; MAP_FAILED without it. */
static void *shared(const char *path, size_t size)
{
    const int file = open(path, O_RDWR);
    if (file < 0 || ftruncate(file, (off_t)size) != 0)
        return MAP_FAILED;
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv);
int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; ++i) {
        if (strncmp(argv[i], "from=", 5) == 0)
            from = strtoull(argv[i] + 5, NULL, 0);
        else if (strncmp(argv[i], "to=", 3) == 0)
            to = strtoull(argv[i] + 3, NULL, 0);
        else if (strcmp(argv[i], "caches=off") == 0)
            caches = false;
        else if (strncmp(argv[i], "state=", 6) == 0)
            state = shared(argv[i] + 6, sizeof *state);
        else if (strncmp(argv[i], "trace=", 6) == 0)
            trace = shared(argv[i] + 6, sizeof *trace);
        else if (strncmp(argv[i], "fetch=", 6) == 0)
            fetches = shared(argv[i] + 6, MOST_FETCHES * sizeof *fetches);
    }
    if (state == NULL || state == MAP_FAILED || trace == MAP_FAILED || fetches == MAP_FAILED)
        return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    return 0;
}
