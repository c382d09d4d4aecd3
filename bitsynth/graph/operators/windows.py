"""Sliding windows over images with any number of axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Shape, Tensor


@dataclass(frozen=True)
class SlidingWindow:
    """A window that slides along all axes but the first two.

    Args:
        kernel: The elements of a window along each axis.
        strides: The steps from one window to the next.
        dilations: The steps between elements of a window.
        begins: The padding before each axis.
        ends: The padding after each axis.
        ceil: Whether a last window counts that begins inside the image and ends beyond its padding.
    """

    kernel: Shape
    strides: Shape
    dilations: Shape
    begins: Shape
    ends: Shape
    ceil: bool = False

    @property
    def reach(self) -> Shape:
        """The elements from the first to the last of a window, along each axis."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def count(self, image: Shape) -> Shape:
        """Return the number of windows along each axis."""
        counts = []
        for n, reach, stride, begin, end in zip(image, self.reach, self.strides, self.begins, self.ends, strict=True):
            room = n + begin + end - reach
            count = (-(-room // stride) if self.ceil else room // stride) + 1
            if self.ceil and (count - 1) * stride >= n + begin:
                count -= 1
            counts.append(count)
        return tuple(counts)

    def extract(self, x: Tensor, fill: object = 0) -> Tensor:
        """Return the windows (N, C, *out, *kernel) of an array (N, C, *image); padding is filled with `fill`."""
        image, out = x.shape[2:], self.count(x.shape[2:])
        pads, cut = [(0, 0), (0, 0)], [slice(None), slice(None)]
        for n, count, reach, stride, begin in zip(image, out, self.reach, self.strides, self.begins, strict=True):
            whole = (count - 1) * stride + reach
            pads.append((begin, max(0, whole - n - begin)))
            cut.append(slice(0, whole))
        padded = np.pad(x, pads, constant_values=fill)[tuple(cut)]  # type: ignore[call-overload]
        axes = tuple(range(2, x.ndim))
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.reach, axes)
        steps = [slice(None, None, s) for s in self.strides]
        inner = [slice(None, None, d) for d in self.dilations]
        elements: Tensor = windows[(slice(None), slice(None), *steps, *inner)]
        return elements
