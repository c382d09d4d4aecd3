/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Whether an input holds codes alone. */
#include "bs_call.h"
#include "bs_encode.h"

int bs_layer_holds(
    const struct bs_layer *l,
    size_t codes,
    struct bs_shape in,
    const void *input,
    struct bs_pool *pool)
{
    const size_t channels = l->groups * l->in_channels, lines = in.batch * in.height;
    if (l->in_layout == BS_PACKED) {
        const size_t words = bs_packed_words(l->act_bits, channels);
        return codes >> l->act_bits
            || !bs_has_all_ones(l->act_bits, lines * in.width * words, input);
    }
    const int64_t line = (int64_t)(in.width * channels), all = (int64_t)codes;
    const struct bs_values v = {BS_U8, 0, 1, all, {1, 1, (int64_t)lines, line}, {0, 0, line, 1}};
    return bs_encode(&v, input, NULL, pool) == 0;
}
