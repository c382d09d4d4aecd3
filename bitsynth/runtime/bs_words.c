/* Codes as bits, 64 channels a word. */
#include "bs_call.h"

#include <string.h>

static const uint64_t low_bits = UINT64_C(0x0101010101010101);

size_t bs_packed_words(size_t bits, size_t channels)
{
    return times(ceiling(channels, 64), bits);
}

void bs_pack_codes(size_t bits, size_t channels, const uint8_t *codes, uint64_t *words)
{
    for (size_t from = 0; from < channels; from += 64, words += bits) {
        memset(words, 0, bits * sizeof *words);
        for (size_t q = 0; q < 8 && from + 8 * q < channels; ++q) {
            uint64_t eight = 0;
            memcpy(&eight, codes + from + 8 * q, least(8, channels - from - 8 * q));
            for (size_t bit = 0; bit < bits; ++bit)
                words[bit] |= (eight >> bit & low_bits) << q;
        }
    }
}

void bs_unpack_codes(size_t bits, size_t channels, const uint64_t *words, uint8_t *codes)
{
    for (size_t from = 0; from < channels; from += 8) {
        const uint64_t eight = bs_eight_codes(bits, words, from / 8);
        memcpy(codes + from, &eight, least(8, channels - from));
    }
}
