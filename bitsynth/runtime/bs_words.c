/* Codes as bits, 64 channels a word. */
#include "bs_call.h"

#include <string.h>

static const uint64_t low_bits = UINT64_C(0x0101010101010101);

size_t bs_packed_words(size_t bits, size_t channels)
{
    return times(ceiling(channels, 64), bits);
}

typedef uint64_t four __attribute__((vector_size(32), may_alias));
static const four low_fours = {
    UINT64_C(0x0101010101010101),
    UINT64_C(0x0101010101010101),
    UINT64_C(0x0101010101010101),
    UINT64_C(0x0101010101010101)};
static const four first_places = {0, 1, 2, 3}, last_places = {4, 5, 6, 7};

/* Words of 64 codes: bit q of byte b of a word is that of code 8 q + b. */
static void gather_words(size_t bits, const uint8_t *codes, uint64_t *words)
{
    four head, tail;
    memcpy(&head, codes, sizeof head);
    memcpy(&tail, codes + sizeof head, sizeof tail);
    for (size_t bit = 0; bit < bits; ++bit) {
        const four both = (head >> bit & low_fours) << first_places
            | (tail >> bit & low_fours) << last_places;
        words[bit] = both[0] | both[1] | both[2] | both[3];
    }
}

void bs_pack_codes(size_t bits, size_t channels, const uint8_t *codes, uint64_t *words)
{
    for (; channels >= 64; channels -= 64, codes += 64, words += bits)
        gather_words(bits, codes, words);
    if (channels > 0) {
        uint8_t last[64] = {0};
        memcpy(last, codes, channels);
        gather_words(bits, last, words);
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

/* The same backwards. */
static void expand_word(size_t bits, const uint64_t *words, uint8_t *to)
{
    four head = {0, 0, 0, 0}, tail = head;
    for (size_t bit = 0; bit < bits; ++bit) {
        const four word = {words[bit], words[bit], words[bit], words[bit]};
        head |= (word >> first_places & low_fours) << bit;
        tail |= (word >> last_places & low_fours) << bit;
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
