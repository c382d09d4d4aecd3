/* Epilogues that no program makes. */
#include "bs_call.h"
#include "bs_scale.h"

#include <string.h>

static uint8_t requantized(const struct bs_layer *l, size_t channel, int32_t sum)
{
    const int64_t half = l->multiplier_shift ? INT64_C(1) << (l->multiplier_shift - 1) : 0;
    const int64_t code = ((int64_t)sum * l->multiplier[channel] + half) >> l->multiplier_shift;
    const int64_t most = (INT64_C(1) << l->out_bits) - 1;
    return (uint8_t)(code < 0 ? 0 : code > most ? most : code);
}

/* How many thresholds are less than each sum and the row's addend. */
static inline void count_thresholds(
    const struct bs_layer *l,
    size_t channel,
    size_t count,
    const int32_t *sums,
    int32_t addend,
    uint8_t *to)
{
    const int32_t *first = l->thresholds + channel;
    const size_t apart = l->groups * l->out_places, levels = l->threshold_count;
    for (size_t j = 0; j < count; ++j)
        to[j] = sums[j] + addend > first[j];
    for (size_t t = 1; t + 1 < levels; t += 2) {
        const int32_t *one = first + t * apart, *other = one + apart;
        for (size_t j = 0; j < count; ++j) {
            const int32_t sum = sums[j] + addend;
            to[j] = (uint8_t)(to[j] + (sum > one[j]) + (sum > other[j]));
        }
    }
    const int32_t *last = first + (levels - 1) * apart;
    for (size_t j = 0; levels % 2 == 0 && j < count; ++j)
        to[j] = (uint8_t)(to[j] + (sums[j] + addend > last[j]));
}

/* Codes of up to 64 neighbouring columns of a pixel; `channel` is the first one's place among the
 * constants. */
static void make_codes(
    const struct bs_layer *l,
    size_t channel,
    size_t count,
    const int32_t *sums,
    int32_t addend,
    uint8_t *to)
{
    if (l->epilogue == BS_REQUANTIZE)
        for (size_t j = 0; j < count; ++j)
            to[j] = requantized(l, channel + j, sums[j]);
    else if (count == 64)
        count_thresholds(l, channel, 64, sums, addend, to);
    else
        count_thresholds(l, channel, count, sums, addend, to);
}

/* The results of a pixel's columns. */
static void finish_row(
    const struct bs_layer *l,
    size_t channel,
    size_t count,
    const int32_t *sums,
    int32_t addend,
    void *to)
{
    if (l->epilogue == BS_INT32)
        memcpy(to, sums, count * sizeof *sums);
    else if (l->epilogue == BS_FLOAT)
        bs_scale(count, sums, l->scale + channel, l->bias + channel, to);
    else
        for (size_t j = 0; j < count; j += 64) {
            uint8_t *codes = (uint8_t *)to + j;
            make_codes(l, channel + j, least(64, count - j), sums + j, addend, codes);
        }
}

/* The results of a pixel's columns as words of 64. */
static void finish_words(
    const struct bs_layer *l,
    size_t channel,
    size_t count,
    const int32_t *sums,
    int32_t addend,
    uint64_t *to)
{
    for (size_t j = 0; j < count; j += 64, to += l->out_bits) {
        uint8_t codes[64];
        make_codes(l, channel + j, 64, sums + j, addend, codes);
        bs_pack_codes(l->out_bits, 64, codes, to);
    }
}

void bs_finish_plainly(
    const struct bs_layer *l,
    size_t channel,
    struct strip strip,
    const int32_t *row,
    const int32_t *sums,
    size_t sums_apart,
    uint8_t *to,
    size_t to_apart)
{
    const int words = bs_makes_words(l);
    for (size_t i = 0; i < strip.rows; ++i, sums += sums_apart, to += to_apart) {
        const int32_t addend = row ? row[i] : 0;
        if (words)
            finish_words(l, channel, strip.columns, sums, addend, (uint64_t *)(void *)to);
        else
            finish_row(l, channel, strip.columns, sums, addend, to);
    }
}
