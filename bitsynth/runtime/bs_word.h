/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Internal to the runtime: packing of 64 codes, a byte each, to words, one for each bit. */
#ifndef BS_WORD_H
#define BS_WORD_H

#include "bs_call.h"

#include <string.h>

static const uint64_t bs_low_bits = UINT64_C(0x0101010101010101);

typedef uint64_t bs_four __attribute__((vector_size(32), may_alias));
typedef uint64_t bs_two __attribute__((vector_size(16), may_alias));
static const bs_four bs_places = {0, 1, 2, 3};

#define BS_REPEATED(x) ((bs_four){x, x, x, x})

/* Returns the bitwise or of the four words. */
static inline uint64_t bs_any_of(const bs_four *x)
{
    bs_two low, high;
    memcpy(&low, x, sizeof low);
    memcpy(&high, (const uint8_t *)x + sizeof low, sizeof high);
    low |= high;
    return low[0] | low[1];
}

/* Packs 64 codes, the last 32 given apart: bit q of byte b of a word is that of code 8 q + b. Four
 * bits of a code are packed at a time, those of the last 32 codes above those of the first. */
static inline __attribute__((always_inline)) void bs_gather_word(
    size_t bits, const uint8_t *codes, const uint8_t *last, uint64_t *words)
{
    const bs_four low_halves = BS_REPEATED(15 * bs_low_bits), ends = BS_REPEATED(17 * bs_low_bits);
    bs_four head, tail;
    memcpy(&head, codes, sizeof head);
    memcpy(&tail, last, sizeof tail);
    for (size_t first = 0; first < bits; first += 4) {
        const bs_four both =
            (head >> first & low_halves) | (first ? tail & ~low_halves : (tail & low_halves) << 4);
        for (size_t bit = first; bit < least(bits, first + 4); ++bit) {
            const bs_four found = (both >> (bit - first) & ends) << bs_places;
            words[bit] = bs_any_of(&found);
        }
    }
}

/* Unpacks the words to 64 codes. */
static inline __attribute__((always_inline)) void bs_expand_word(
    size_t bits, const uint64_t *words, uint8_t *codes, uint8_t *last)
{
    const bs_four low_halves = BS_REPEATED(15 * bs_low_bits), ends = BS_REPEATED(17 * bs_low_bits);
    bs_four head = BS_REPEATED(0), tail = head;
    for (size_t first = 0; first < bits; first += 4) {
        bs_four both = BS_REPEATED(0);
        for (size_t bit = first; bit < least(bits, first + 4); ++bit)
            both |= (BS_REPEATED(words[bit]) >> bs_places & ends) << (bit - first);
        head |= (both & low_halves) << first;
        tail |= first ? both & ~low_halves : both >> 4 & low_halves;
    }
    memcpy(codes, &head, sizeof head);
    memcpy(last, &tail, sizeof tail);
}

static inline __attribute__((always_inline)) void bs_gather_words(
    size_t bits, size_t count, const uint8_t *codes, uint64_t *words)
{
    for (; count > 0; --count, codes += 64, words += bits)
        bs_gather_word(bits, codes, codes + 32, words);
}

static inline __attribute__((always_inline)) void bs_expand_words(
    size_t bits, size_t count, const uint64_t *words, uint8_t *codes)
{
    for (; count > 0; --count, codes += 64, words += bits)
        bs_expand_word(bits, words, codes, codes + 32);
}

/* Calls a function with a constant number of bits, so that compilers unroll its loops. */
#define BS_BY_BITS(function, bits, ...) \
    switch (bits) { \
    case 1: \
        function(1, __VA_ARGS__); \
        break; \
    case 2: \
        function(2, __VA_ARGS__); \
        break; \
    case 3: \
        function(3, __VA_ARGS__); \
        break; \
    case 4: \
        function(4, __VA_ARGS__); \
        break; \
    default: \
        function(bits, __VA_ARGS__); \
    }

#endif
