/* Codes as bits, 64 channels a word. */
#include "bs_call.h"

#include <string.h>

static const uint64_t low_bits = UINT64_C(0x0101010101010101);

size_t bs_packed_words(size_t bits, size_t channels)
{
    return times(ceiling(channels, 64), bits);
}

typedef uint64_t four __attribute__((vector_size(32), may_alias));
typedef uint64_t two __attribute__((vector_size(16), may_alias));
static const four places = {0, 1, 2, 3};

#define REPEATED(x) ((four){x, x, x, x})

/* All bits that one of the four has. */
static inline uint64_t any_of(const four *x)
{
    two low, high;
    memcpy(&low, x, sizeof low);
    memcpy(&high, (const uint8_t *)x + sizeof low, sizeof high);
    low |= high;
    return low[0] | low[1];
}

/* `count` times the words of 64 codes: bit q of byte b of a word is that of code 8 q + b. Four bits
 * of codes go at a time: those of the last 32 lie above those of the first. */
static inline __attribute__((always_inline)) void gather_words(
    size_t bits, size_t count, const uint8_t *codes, uint64_t *words)
{
    const four low_halves = REPEATED(15 * low_bits), ends = REPEATED(17 * low_bits);
    for (; count > 0; --count, codes += 64, words += bits) {
        four head, tail;
        memcpy(&head, codes, sizeof head);
        memcpy(&tail, codes + sizeof head, sizeof tail);
        for (size_t first = 0; first < bits; first += 4) {
            const four both = (head >> first & low_halves)
                | (first ? tail & ~low_halves : (tail & low_halves) << 4);
            for (size_t bit = first; bit < least(bits, first + 4); ++bit) {
                const four found = (both >> (bit - first) & ends) << places;
                words[bit] = any_of(&found);
            }
        }
    }
}

/* The same backwards. */
static inline __attribute__((always_inline)) void expand_words(
    size_t bits, size_t count, const uint64_t *words, uint8_t *codes)
{
    const four low_halves = REPEATED(15 * low_bits), ends = REPEATED(17 * low_bits);
    for (; count > 0; --count, codes += 64, words += bits) {
        four head = REPEATED(0), tail = head;
        for (size_t first = 0; first < bits; first += 4) {
            four both = REPEATED(0);
            for (size_t bit = first; bit < least(bits, first + 4); ++bit)
                both |= (REPEATED(words[bit]) >> places & ends) << (bit - first);
            head |= (both & low_halves) << first;
            tail |= first ? both & ~low_halves : both >> 4 & low_halves;
        }
        memcpy(codes, &head, sizeof head);
        memcpy(codes + sizeof head, &tail, sizeof tail);
    }
}

/* Loops over few bits are straight lines if their number is known. */
#define BY_BITS(function, bits, ...) \
    switch (bits) { \
    case 1: \
        function(1, __VA_ARGS__); \
        break; \
    case 2: \
        function(2, __VA_ARGS__); \
        break; \
    case 4: \
        function(4, __VA_ARGS__); \
        break; \
    default: \
        function(bits, __VA_ARGS__); \
    }

void bs_pack_codes(size_t bits, size_t channels, const uint8_t *codes, uint64_t *words)
{
    const size_t whole = channels / 64, rest = channels % 64;
    BY_BITS(gather_words, bits, whole, codes, words);
    if (rest > 0) {
        uint8_t last[64] = {0};
        memcpy(last, codes + 64 * whole, rest);
        BY_BITS(gather_words, bits, 1, last, words + whole * bits);
    }
}

/* The words of the `rest` channels that fill none, of whose codes 64 can be read. */
static void pack_rest(size_t bits, size_t rest, const uint8_t *codes, uint64_t *words)
{
    uint8_t last[64];
    for (size_t j = 0; j < 64; ++j)
        last[j] = codes[j] & (j < rest ? UINT8_MAX : 0);
    BY_BITS(gather_words, bits, 1, last, words);
}

void bs_pack_pixels(const struct call *c, size_t from, size_t to)
{
    const struct bs_layer *l = c->layer;
    const size_t channels = l->groups * l->out_channels, rest = channels % 64,
                 words = bs_packed_words(l->out_bits, channels);
    /* Pixels of whole words are one of many channels. */
    const size_t several = rest ? 1 : to - from, whole = several * channels - rest;
    const uint8_t *codes = c->codes + (from - c->first_codes) * channels;
    uint64_t *packed =
        (uint64_t *)(void *)c->output + (c->image * c->out.height * c->out.width + from) * words;
    for (; from < to; from += several, codes += several * channels, packed += several * words) {
        bs_pack_codes(l->out_bits, whole, codes, packed);
        if (rest)
            pack_rest(l->out_bits, rest, codes + whole, packed + whole / 64 * l->out_bits);
    }
}

/* Eight channels from 8 * eighth on, a code a byte. */
static uint64_t eight_codes(size_t bits, const uint64_t *words, size_t eighth)
{
    uint64_t codes = 0;
    for (size_t bit = 0; bit < bits; ++bit)
        codes |= (words[eighth / 8 * bits + bit] >> eighth % 8 & low_bits) << bit;
    return codes;
}

void bs_expand(size_t bits, const uint64_t *words, size_t eighth, size_t count, uint8_t *to)
{
    for (; count > 0 && (eighth % 8 || count < 8); ++eighth, --count, to += 8) {
        const uint64_t eight = eight_codes(bits, words, eighth);
        memcpy(to, &eight, 8);
    }
    if (count == 0)
        return;
    BY_BITS(expand_words, bits, count / 8, words + eighth / 8 * bits, to);
    bs_expand(bits, words, eighth + count / 8 * 8, count % 8, to + count / 8 * 64);
}

void bs_unpack_codes(size_t bits, size_t channels, const uint64_t *words, uint8_t *codes)
{
    const size_t whole = channels / 64, rest = channels % 64;
    BY_BITS(expand_words, bits, whole, words, codes);
    if (rest > 0) {
        uint8_t last[64];
        BY_BITS(expand_words, bits, 1, words + whole * bits, last);
        memcpy(codes + 64 * whole, last, rest);
    }
}

int bs_has_all_ones(size_t bits, size_t count, const uint64_t *words)
{
    uint64_t found = 0;
    for (size_t at = 0; at < count; at += bits) {
        uint64_t all = UINT64_MAX;
        for (size_t bit = 0; bit < bits; ++bit)
            all &= words[at + bit];
        found |= all;
    }
    return found != 0;
}
