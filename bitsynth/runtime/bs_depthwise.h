/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Internal to depthwise layers: the state of a call. */
#ifndef BS_DEPTHWISE_H
#define BS_DEPTHWISE_H

#include "bs_call.h"

/* A call, and the sizes of its scratch. Padded lines of the input lie in a ring buffer as high as
 * the window; each has `phases` lines of output channels, one for every input channel of a group.
 */
struct depthwise {
    struct call call;
    struct bs_layer one; /* the layer as results see it: all channels in one group */
    size_t in_channels, channels, padded; /* of all groups; padded to whole units */
    size_t phases, taps, steps;
    size_t lines, width, phase_bytes, line_bytes;
    /* Lines of the input that become channels last at once, and bands of rows of the output that
     * become channels first. */
    size_t transposed_lines, bands;
    size_t held_bytes, pointers_bytes, codes_bytes, transposed_bytes, sums_bytes, slot_bytes;
};

/* The scratch of a task. */
struct slot {
    /* The number of the line in each place of the ring from 1 on, 0 for none; behind them that of
     * the first of the transposed ones. */
    size_t *held;
    const uint8_t **pointers;
    uint8_t *ring, *pad, *codes, *transposed;
    uint8_t *made;          /* results of a band that wait to be packed or transposed */
    struct scratch results; /* sums of a row, and what is made of them */
};

/* Returns whether lines are copied as they are, but for padding. */
static inline int bs_is_plain(const struct bs_layer *l)
{
    return l->in_channels == 1 && l->out_channels == 1;
}

/* Returns line y of the input in the ring buffer of its slot. */
const uint8_t *bs_line_at(const struct depthwise *d, const struct slot *s, size_t y);

#endif
