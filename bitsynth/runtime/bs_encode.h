/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Encoding of values of any integer type, in any layout. */
#ifndef BS_ENCODE_H
#define BS_ENCODE_H

#include <stdint.h>

#include "bs_pool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Types of values; they are aligned to their size. */
enum bs_type { BS_U8, BS_I8, BS_U16, BS_I16, BS_U32, BS_I32, BS_U64, BS_I64 };

/* An array of four axes and its encoding: code k of `codes`, up to 256, stands for least + k *
 * step, where least is -255 to 0 and step 1 or 2. Neighbours on an axis are `apart` bytes from each
 * other. Numbers alone, so that an array of them will do. */
struct bs_values {
    int64_t type, least, step, codes, shape[4], apart[4];
};

/* Writes the codes of all values, the last axis fastest, and returns 0; or returns -1 if a value
 * has no code, and then `to` has undefined content. With NULL for `to` values are only checked. */
int bs_encode(const struct bs_values *v, const void *values, uint8_t *to, struct bs_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
