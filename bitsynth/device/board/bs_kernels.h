/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* The kernels a runner was built with; bs_kernels.c is written for each. */
#ifndef BS_KERNELS_H
#define BS_KERNELS_H

#include "bs_pool.h"

#include <stdint.h>

struct bs_entry {
    size_t (*arena)(const int64_t *numbers, const uint8_t *constants, size_t threads);
    int (*run)(const int64_t *numbers, const uint8_t *constants, const void *input, const void *residual,
        void *output, void *sum, void *arena, size_t arena_bytes, struct bs_pool *pool, size_t calls);
};

extern const struct bs_entry bs_entries[];
extern const size_t bs_entry_count;

#endif
