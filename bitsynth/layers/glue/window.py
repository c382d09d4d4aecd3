"""Windows over images of codes: what pooling reads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.geometry import Geometry, Pair, edges, pair
from bitsynth.layers.glue.activations import require_channels
from bitsynth.layers.glue.base import Glue


class WindowGlue(Glue):
    """Pooling by a window."""

    geometry: Geometry

    def out_size(self, height: int, width: int) -> tuple[int, int]:
        return self.geometry.output(height, width)

    def _example_size(self) -> tuple[int, int]:
        (high, wide), (down, right) = self.geometry.reach, self.geometry.stride
        return high + 2 * down, wide + 2 * right

    def _taps(self, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """What each tap of each window reads, (taps, N, OH, OW, C) int64, and whether it lies in the image."""
        g, (_, height, width, _) = self.geometry, x.shape
        (oh, ow), read, inside = self.out_size(height, width), [], []
        for ky in range(g.kernel[0]):
            for kx in range(g.kernel[1]):
                y = np.arange(oh) * g.stride[0] + ky * g.dilation[0] - g.padding[0]
                z = np.arange(ow) * g.stride[1] + kx * g.dilation[1] - g.padding[1]
                ok = ((y >= 0) & (y < height))[:, None] & ((z >= 0) & (z < width))
                read.append(x[:, y.clip(0, height - 1)][:, :, z.clip(0, width - 1)].astype(np.int64))
                inside.append(np.broadcast_to(ok[None, :, :, None], read[-1].shape))
        return np.stack(read), np.stack(inside)


def window_of(channels: int, window: Pair, stride: Pair | None, padding: Any, dilation: Pair) -> Geometry:
    """The window; SpecError for padding as wide as it reaches."""
    require_channels(channels)
    size = pair("window", window, 1)
    made = Geometry(
        *(channels, channels, 1),
        kernel=size,
        stride=size if stride is None else pair("stride", stride, 1),
        padding=edges(padding),
        dilation=pair("dilation", dilation, 1),
    )
    if any(pad >= reach for pad, reach in zip(made.padding, made.reach * 2, strict=True)):
        raise SpecError(f"padding {made.padding} must be less than the window reaches over, {made.reach}")
    return made
