"""C of convolutions of float32 whose sums become codes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Shape, Tensor
from bitsynth.network.plain.planes import ImagePlanes

ROWS = 4
"""Channels whose sums are made at once."""
_PIXELS = 64
"""Pixels likewise."""


@dataclass(frozen=True)
class RealBody:
    """The body of a convolution's step: `in0` in planes, blocks of pixels, codes to `out0`.

    Its constants are k0 the weights, k1 where taps lie, k2 and k3 where lines and columns of an image do, k4 the
    thresholds, k5 lines of levels, k6 their margins, k7 codes.

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
        """Bytes of planes, sums, margins and codes."""
        rows = self._rows
        return 4 * (self._plane_floats + rows * _PIXELS + rows) + rows * _PIXELS

    @property
    def _rows(self) -> int:
        return -(-self.channels // ROWS) * ROWS

    @property
    def _plane_floats(self) -> int:
        return self.given[1] * self.planes.size + _PIXELS + max(self.planes.taps) + self.planes.pixels % _PIXELS

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
            "rows": self._rows,
            "out_channels": self.channels,
            "block": _PIXELS,
            "step": ROWS,
            "taps": len(self.planes.taps),
            "terms": channels * len(self.planes.taps),
            "pixels": self.planes.pixels,
            "line": line,
            "out_height": out_height,
            "out_width": out_width,
            "levels": self.levels,
        }
        return _BODY.format(**values)


_BODY = """
float *const planes = scratch, *const sums = planes + {floats}, *const margins = sums + {rows} * {block};
uint8_t *const codes = (uint8_t *)(margins + {rows});
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
    for (size_t c = 0; c < {out_channels}; ++c)
        margins[c] = (float)(k6[2 * c] * greatest + k6[2 * c + 1]);
    for (size_t start = 0; start < {pixels}; start += {block}) {{
        for (size_t r = 0; r < {rows}; r += {step})
            bs_float_sums(
                k0 + r * {terms}, planes + start, {channels}, {plane}, k1, {taps}, {block}, sums + r * {block});
        for (size_t c = 0; c < {out_channels}; ++c) {{
            const struct bs_channel channel = {{
                k5[4 * c], k5[4 * c + 1], k5[4 * c + 2], k5[4 * c + 3], k7[2 * c], k7[2 * c + 1]}};
            const float *own = sums + c * {block};
            uint8_t *made = codes + c * {block};
            if (bs_decide(&channel, margins[c], own, {block}, made))
                continue;
            for (size_t i = 0; i < {block}; ++i) {{
                uint8_t one;
                if (bs_decide(&channel, margins[c], own + i, 1, &one) || start + i >= {pixels})
                    continue;
                const int32_t level = bs_exact_level(
                    k0 + c / {step} * {step} * {terms} + c % {step}, {step}, planes + start + i, {channels}, {plane},
                    k1, {taps}, k4 + c * {levels}, {levels});
                made[i] = (uint8_t)(channel.first + channel.sign * level);
            }}
        }}
        for (size_t i = 0; i < {block}; ++i) {{
            const size_t y = (start + i) / {line}, x = (start + i) % {line};
            if (y >= {out_height} || x >= {out_width})
                continue;
            uint8_t *to = out0 + ((n * {out_height} + y) * {out_width} + x) * {out_channels};
            for (size_t c = 0; c < {out_channels}; ++c)
                to[c] = codes[c * {block} + i];
        }}
    }}
}}
"""
