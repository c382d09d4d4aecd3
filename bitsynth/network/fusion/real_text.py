"""C of convolutions of float32 whose sums become codes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Shape, Tensor
from bitsynth.network.plain.planes import ImagePlanes

BLOCK = 16
"""Channels whose weights lie beside each other, as the runtime has it."""
_CHANNELS_AT_ONCE = 32
"""The most channels whose sums are made at once."""


@dataclass(frozen=True)
class RealBody:
    """The body of a convolution's step: `in0` in planes, blocks of pixels, codes to `out0`.

    Its constants are k0 the weights, k1 where taps lie, k2 and k3 where lines and columns of an image do, k4 the
    thresholds, k5 lines of levels and codes, k6 margins.

    Args:
        given: (N, C, H, W) or (N, C, L).
        channels: Channels of the result.
        planes: The planes of one image.
        levels: Thresholds of a channel.
    """

    given: Shape
    channels: int
    planes: ImagePlanes
    levels: int

    @property
    def scratch_bytes(self) -> int:
        """Bytes of planes and margins."""
        return 4 * (self._plane_floats + self.room)

    @property
    def room(self) -> int:
        """Places for channels, with those that no channel has."""
        return -(-self.channels // _CHANNELS_AT_ONCE) * _CHANNELS_AT_ONCE

    @property
    def _plane_floats(self) -> int:
        return -(-self.given[1] * self.planes.size // BLOCK) * BLOCK

    def places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where taps, lines and columns lie in a plane."""
        window = self.planes.window
        begins, last = window.begins, len(self.planes.image) - 1
        axes = [
            [self.planes.place(x + begins[a], a) for x in range(n) if x + begins[a] < self.planes.padded[a]]
            for a, n in enumerate(self.planes.image)
        ]
        lines = axes[0] if last else [0]
        return tuple(np.array(places, np.uint32) for places in (self.planes.taps, lines, axes[last]))  # type: ignore[return-value]

    def text(self) -> str:
        """The body."""
        batch, channels = self.given[:2]
        width = self.given[-1]
        _, lines, columns = self.places()
        out_height, out_width = (1, *self.planes.out)[-2:]
        line = self.planes.steps[0] if len(self.planes.image) > 1 else self.planes.pixels
        values = {
            "batch": batch,
            "channels": channels,
            "image": math.prod(self.given[2:]),
            "width": width,
            "lines": len(lines),
            "columns": len(columns),
            "plane": self.planes.size,
            "floats": self._plane_floats,
            "room": self.room,
            "out_channels": self.channels,
            "taps": len(self.planes.taps),
            "terms": channels * len(self.planes.taps),
            "pixels": out_height * out_width,
            "line": line,
            "out_width": out_width,
            "levels": self.levels,
        }
        return _BODY.format(**values)


_BODY = """
float *const planes = scratch, *const most = planes + {floats};
const size_t apart = BS_FLOATS < BS_BLOCK ? BS_FLOATS : {terms} * BS_BLOCK;
memset(planes, 0, {floats} * sizeof *planes);
for (size_t n = 0; n < {batch}; ++n) {{
    const float *image = in0 + n * {channels} * {image};
    for (size_t c = 0; c < {channels}; ++c)
        for (size_t y = 0; y < {lines}; ++y) {{
            const float *from = image + c * {image} + y * {width};
            float *to = planes + c * {plane} + k2[y];
            for (size_t x = 0; x < {columns}; ++x)
                to[k3[x]] = from[x];
        }}
    const double greatest = bs_greatest_size(image, {channels} * {image});
    for (size_t c = 0; c < {room}; ++c)
        most[c] = 0.5f - (float)(k6[2 * c] * greatest + k6[2 * c + 1]);
    for (size_t start = 0; start < {pixels}; start += BS_PIXELS) {{
        const size_t count = {pixels} - start < BS_PIXELS ? {pixels} - start : BS_PIXELS;
        uint8_t *to = out0 + (n * {pixels} + start) * {out_channels};
        const float *at[BS_PIXELS];
        for (size_t i = 0; i < BS_PIXELS; ++i) {{
            const size_t pixel = start + (i < count ? i : count - 1);
            at[i] = planes + pixel / {out_width} * {line} + pixel % {out_width};
        }}
        for (size_t c = 0; c < {out_channels}; c += BS_CHANNELS, to += BS_CHANNELS) {{
            const size_t several = {out_channels} - c < BS_CHANNELS ? {out_channels} - c : BS_CHANNELS;
            float sums[BS_PIXELS * BS_CHANNELS];
            uint8_t codes[BS_PIXELS * BS_CHANNELS];
            bs_float_sums(k0 + c * {terms}, apart, at, {channels}, {plane}, k1, {taps}, sums);
            if (!bs_decide(k5 + c, {room}, most + c, sums, codes)) {{
                uint8_t open_ones[BS_PIXELS * BS_CHANNELS];
                bs_undecided(k5 + c, {room}, most + c, sums, open_ones);
                for (size_t i = 0; i < count * BS_CHANNELS; ++i) {{
                    const size_t own = c + i % BS_CHANNELS;
                    if (!open_ones[i] || own >= {out_channels})
                        continue;
                    const int32_t level = bs_exact_level(
                        k0 + own / BS_BLOCK * BS_BLOCK * {terms} + own % BS_BLOCK, BS_BLOCK, at[i / BS_CHANNELS],
                        {channels}, {plane}, k1, {taps}, k4 + own * {levels}, {levels});
                    codes[i] = (uint8_t)((int32_t)k5[4 * {room} + own] + (int32_t)k5[5 * {room} + own] * level);
                }}
            }}
            for (size_t i = 0; i < count; ++i)
                memcpy(to + i * {out_channels}, codes + i * BS_CHANNELS, several);
        }}
    }}
}}
"""
