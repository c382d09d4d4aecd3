/* SPDX-FileCopyrightText: 2026 the bitsynth authors */
/* SPDX-License-Identifier: MIT */
/* Internal to depthwise layers: the state of a call. */
#ifndef BS_DEPTHWISE_H
#define BS_DEPTHWISE_H

#include "bs_call.h"

/* A call, and the sizes of its scratch. Padded lines of the input lie in a ring buffer as high as
 * the window; each has `phases` lines of output channels, one for every input channel of a group.
 *
 * Channels that fill no unit of the kernel are those of `joined` neighbouring pixels of the output,
 * whose number divides the output's width. The call then has that many times the channels and that
 * part of the width. Their taps must be neighbours too, so a line is split into `splits` lines, one
 * for each remainder of a pixel's number by the stride.
 *
 * Given: 16 channels, units of 64, stride 2. Result: 4 pixels at once; those of tap 0 begin at
 * pixels 0, 2, 4, 6 of the padded line, which are neighbours in the first of two lines. */
struct depthwise {
    struct call call;
    struct bs_layer one; /* the layer as the epilogue sees it: all channels in one group */

    /* The input: channels of all groups, output channels of joined pixels, and these padded to
     * whole units. */
    size_t in_channels, channels, padded;
    size_t joined, splits;
    size_t transposed_lines; /* lines that are transposed to channels last at once */

    /* The ring buffer: lines, pixels of a line, bytes from a pixel to the next one of its phase or
     * split, bytes of these, and of a whole line. */
    size_t lines, width, pixel_bytes, phase_bytes, line_bytes;

    /* What the kernel reads for a pixel: phases, taps of the window, steps of taps. */
    size_t phases, taps, steps;

    size_t bands; /* of output rows that are finished at once */

    /* Sizes of the parts of a slot, and of a slot. */
    size_t held_bytes, pointers_bytes, codes_bytes, transposed_bytes, sums_bytes, slot_bytes;
};

/* The scratch of a task. */
struct slot {
    /* For each line of the ring the number of its input line from 1 on, 0 for none; then the number
     * of the first transposed line. */
    size_t *held;
    const uint8_t **pointers;
    uint8_t *ring, *pad, *codes, *transposed;
    uint8_t *made;          /* results of a band that wait to be packed or transposed */
    struct scratch results; /* accumulators of a row, and their results */
};

/* Returns whether lines are copied as they are, but for padding. */
static inline int bs_is_plain(const struct bs_layer *l)
{
    return l->in_channels == 1 && l->out_channels == 1;
}

/* Returns the byte of a padded line in the ring buffer at which its pixel x lies. */
static inline size_t bs_place_of(const struct depthwise *d, size_t x)
{
    return x % d->splits * d->phase_bytes + x / d->splits * d->pixel_bytes;
}

/* Returns line y of the input in the ring buffer of its slot. */
const uint8_t *bs_line_at(const struct depthwise *d, const struct slot *s, size_t y);

#endif
