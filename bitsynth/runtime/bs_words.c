/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Packing of codes to words, one bit of 64 channels each, and unpacking. */
#include "bs_word.h"

size_t bs_packed_words(size_t bits, size_t channels)
{
    return times(ceiling(channels, 64), bits);
}

/* Pixels with channels beyond whole words: the number of these, and distances of codes and words.
 */
struct rests {
    size_t channels, apart, words_apart;
};

/* Returns how many pixels have up to 64 channels together. */
static inline size_t pixels_of_word(size_t channels)
{
    return channels > 32 ? 1 : channels > 16 ? 2 : channels > 8 ? 4 : 8;
}

/* Returns the bits of a word that belong to `channels` channels. */
static inline uint64_t bits_of(size_t channels)
{
    const uint64_t some = bs_low_bits & ~(UINT64_MAX << channels % 8 * 8);
    return bs_low_bits * ((1U << channels / 8) - 1) | some << channels / 8;
}

/* Returns whether the halves of 64 codes can be read from the `pixels` in place, `second` bytes
 * apart: a pixel's codes are followed by those of the next. */
static inline int lie_as_halves(size_t several, struct rests r, size_t pixels, size_t second)
{
    return (pixels - 1) * r.apart + r.channels >= second + 32
        && (several <= 2 || r.apart * several == 64);
}

/* Copies the codes of a pixel, inline for the usual number. */
static inline void copy_rest(uint8_t *to, const uint8_t *from, size_t channels)
{
    if (channels == 8)
        memcpy(to, from, 8);
    else if (channels == 16)
        memcpy(to, from, 16);
    else if (channels == 32)
        memcpy(to, from, 32);
    else
        memcpy(to, from, channels);
}

/* Splits common words of `count` pixels, `width` bits of every byte each, into words of a pixel. */
static inline __attribute__((always_inline)) void part_words(
    size_t bits,
    size_t count,
    size_t width,
    struct rests r,
    const uint64_t *joined,
    uint64_t *words)
{
    const uint64_t those = bits_of(r.channels);
    for (size_t bit = 0; bit < bits; ++bit)
        for (size_t i = 0; i < count; ++i)
            words[i * r.words_apart + bit] = joined[bit] >> width * i & those;
}

/* Merges words of `count` pixels into common words. */
static inline __attribute__((always_inline)) void join_words(
    size_t bits,
    size_t count,
    size_t width,
    struct rests r,
    const uint64_t *words,
    uint64_t *joined)
{
    const uint64_t those = bits_of(r.channels);
    for (size_t bit = 0; bit < bits; ++bit) {
        joined[bit] = 0;
        for (size_t i = 0; i < count; ++i)
            joined[bit] |= (words[i * r.words_apart + bit] & those) << width * i;
    }
}

static inline __attribute__((always_inline)) void gather_rests(
    size_t bits, size_t pixels, struct rests r, const uint8_t *codes, uint64_t *words)
{
    const size_t several = pixels_of_word(r.channels), width = 8 / several,
                 second = several == 2 ? r.apart : 32;
    uint64_t joined[8];
    uint8_t all[64] = {0};
    for (size_t x = 0; x < pixels; x += several, words += several * r.words_apart) {
        const size_t count = least(several, pixels - x);
        const uint8_t *at = codes + x * r.apart;
        if (lie_as_halves(several, r, pixels - x, second))
            bs_gather_word(bits, at, at + second, joined);
        else {
            for (size_t i = 0; i < count; ++i)
                copy_rest(all + 8 * width * i, at + i * r.apart, r.channels);
            bs_gather_word(bits, all, all + 32, joined);
        }
        if (count == 2)
            part_words(bits, 2, width, r, joined, words);
        else
            part_words(bits, count, width, r, joined, words);
    }
}

static inline __attribute__((always_inline)) void expand_rests(
    size_t bits, size_t pixels, struct rests r, const uint64_t *words, uint8_t *codes)
{
    const size_t several = pixels_of_word(r.channels), width = 8 / several,
                 second = several == 2 ? r.apart : 32;
    uint64_t joined[8];
    uint8_t all[64];
    for (size_t x = 0; x < pixels; x += several, words += several * r.words_apart) {
        const size_t count = least(several, pixels - x);
        uint8_t *at = codes + x * r.apart;
        if (count == 2)
            join_words(bits, 2, width, r, words, joined);
        else
            join_words(bits, count, width, r, words, joined);
        if (lie_as_halves(several, r, pixels - x, second))
            bs_expand_word(bits, joined, at, at + second);
        else {
            bs_expand_word(bits, joined, all, all + 32);
            for (size_t i = 0; i < count; ++i)
                copy_rest(at + i * r.apart, all + 8 * width * i, r.channels);
        }
    }
}

/* Pixels of whole words without gaps are one pixel of many channels. */
void bs_pack_each(
    size_t bits,
    size_t channels,
    size_t pixels,
    const uint8_t *codes,
    size_t apart,
    uint64_t *words)
{
    const size_t whole = channels / 64, words_apart = bs_packed_words(bits, channels);
    const struct rests rests = {channels % 64, apart, words_apart};
    const int joined = rests.channels == 0 && apart == channels;
    const size_t runs = joined ? 1 : pixels, words_of_run = joined ? pixels * whole : whole;
    for (size_t x = 0; x < runs && whole > 0; ++x)
        BS_BY_BITS(bs_gather_words, bits, words_of_run, codes + x * apart, words + x * words_apart);
    if (rests.channels > 0)
        BS_BY_BITS(gather_rests, bits, pixels, rests, codes + 64 * whole, words + whole * bits);
}

void bs_unpack_each(
    size_t bits,
    size_t channels,
    size_t pixels,
    const uint64_t *words,
    uint8_t *codes,
    size_t apart)
{
    const size_t whole = channels / 64, words_apart = bs_packed_words(bits, channels);
    const struct rests rests = {channels % 64, apart, words_apart};
    const int joined = rests.channels == 0 && apart == channels;
    const size_t runs = joined ? 1 : pixels, words_of_run = joined ? pixels * whole : whole;
    /* Channels beyond whole words first: behind them the next pixel's are written to. */
    if (rests.channels > 0)
        BS_BY_BITS(expand_rests, bits, pixels, rests, words + whole * bits, codes + 64 * whole);
    for (size_t x = 0; x < runs && whole > 0; ++x)
        BS_BY_BITS(bs_expand_words, bits, words_of_run, words + x * words_apart, codes + x * apart);
}

void bs_pack_codes(size_t bits, size_t channels, const uint8_t *codes, uint64_t *words)
{
    bs_pack_each(bits, channels, 1, codes, channels, words);
}

void bs_unpack_codes(size_t bits, size_t channels, const uint64_t *words, uint8_t *codes)
{
    bs_unpack_each(bits, channels, 1, words, codes, channels);
}

void bs_pack_pixels(const struct call *c, size_t from, size_t to)
{
    const struct bs_layer *l = c->layer;
    const size_t channels = l->groups * l->out_channels,
                 words = bs_packed_words(l->out_bits, channels),
                 first = c->image * c->out.height * c->out.width + from;
    bs_pack_each(
        l->out_bits,
        channels,
        to - from,
        c->codes + (from - c->first_codes) * channels,
        channels,
        (uint64_t *)(void *)c->output + first * words);
}

/* Unpacks eight channels from 8 * eighth on, a code a byte. */
static uint64_t eight_codes(size_t bits, const uint64_t *words, size_t eighth)
{
    uint64_t codes = 0;
    for (size_t bit = 0; bit < bits; ++bit)
        codes |= (words[eighth / 8 * bits + bit] >> eighth % 8 & bs_low_bits) << bit;
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
    BS_BY_BITS(bs_expand_words, bits, count / 8, words + eighth / 8 * bits, to);
    bs_expand(bits, words, eighth + count / 8 * 8, count % 8, to + count / 8 * 64);
}

/* How many bits are set: compilers know the instruction for it, where there is one. */
static inline int32_t ones(uint64_t x)
{
    x -= x >> 1 & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
    x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (int32_t)((x * UINT64_C(0x0101010101010101)) >> 56);
}

static inline __attribute__((always_inline)) int32_t
expand_pixel(size_t bits, size_t count, const uint64_t *words, uint8_t *codes)
{
    int32_t sum = 0;
    for (; count > 0; --count, codes += 64, words += bits) {
        bs_expand_word(bits, words, codes, codes + 32);
        for (size_t bit = 0; bit < bits; ++bit)
            sum += ones(words[bit]) << bit;
    }
    return sum;
}

static inline __attribute__((always_inline)) void expand_pixels(
    size_t bits,
    size_t count,
    size_t channels,
    const uint64_t *words,
    size_t apart,
    uint8_t *to,
    size_t to_apart,
    int32_t *sums)
{
    for (size_t i = 0; i < count; ++i, words += apart, to += to_apart)
        sums[i] = expand_pixel(bits, channels / 64, words, to);
}

void bs_expand_pixels(
    size_t bits,
    size_t count,
    size_t channels,
    const uint64_t *words,
    size_t apart,
    uint8_t *to,
    size_t to_apart,
    int32_t *sums)
{
    BS_BY_BITS(expand_pixels, bits, count, channels, words, apart, to, to_apart, sums);
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
