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

/* Eight channels from 8 * eighth on, a code a byte. */
static uint64_t eight_codes(size_t bits, const uint64_t *words, size_t eighth)
{
    uint64_t codes = 0;
    for (size_t bit = 0; bit < bits; ++bit)
        codes |= (words[eighth / 8 * bits + bit] >> eighth % 8 & low_bits) << bit;
    return codes;
}

/* 64 codes: bit q of byte b of a word is that of code 8 q + b. */
static void expand_word(size_t bits, const uint64_t *words, uint8_t *to)
{
    typedef uint64_t four __attribute__((vector_size(32), may_alias));
    const four low = {low_bits, low_bits, low_bits, low_bits}, first = {0, 1, 2, 3},
               last = {4, 5, 6, 7};
    four head = {0, 0, 0, 0}, tail = head;
    for (size_t bit = 0; bit < bits; ++bit) {
        const four word = {words[bit], words[bit], words[bit], words[bit]};
        head |= (word >> first & low) << bit;
        tail |= (word >> last & low) << bit;
    }
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, &tail, sizeof tail);
}

void bs_expand(size_t bits, const uint64_t *words, size_t eighth, size_t count, uint8_t *to)
{
    for (size_t i = 0; i < count;) {
        if ((eighth + i) % 8 == 0 && count - i >= 8) {
            expand_word(bits, words + (eighth + i) / 8 * bits, to + 8 * i);
            i += 8;
            continue;
        }
        const uint64_t eight = eight_codes(bits, words, eighth + i);
        memcpy(to + 8 * i++, &eight, 8);
    }
}

void bs_unpack_codes(size_t bits, size_t channels, const uint64_t *words, uint8_t *codes)
{
    const size_t eights = channels / 8;
    bs_expand(bits, words, 0, eights, codes);
    if (channels % 8) {
        const uint64_t eight = eight_codes(bits, words, eights);
        memcpy(codes + eights * 8, &eight, channels % 8);
    }
}
