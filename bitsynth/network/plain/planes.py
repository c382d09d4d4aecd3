"""Padded images in scratch memory in which each tap of a window is at a constant offset: planes, or channels last.

In planes an axis of a stride s is cut in s phases, so that the elements that neighbouring windows have at one tap lie
together. With channels last the elements of the channels do.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.types import Edge, Shape
from bitsynth.network.plain.body import NodeBody, ScratchArray
from bitsynth.network.plain.loops import AxisStep, dense_steps


@dataclass(frozen=True)
class PaddedImage:
    """The axes of an image that a window sees.

    Args:
        window: The window.
        image: The elements of each axis.
    """

    window: SlidingWindow
    image: Shape

    @property
    def out(self) -> Shape:
        """The number of windows along each axis."""
        return self.window.count(self.image)

    @property
    def padded(self) -> Shape:
        """The elements of each axis that windows see, padding included."""
        w = self.window
        return tuple((o - 1) * s + r for o, s, r in zip(self.out, w.strides, w.reach, strict=True))

    @property
    def begins(self) -> Shape:
        """The first element of each axis that windows see."""
        return tuple(max(0, -b) for b in self.window.begins)

    @property
    def before(self) -> Shape:
        """The elements of padding before the first of each axis."""
        return tuple(max(0, b) for b in self.window.begins)

    @property
    def counts(self) -> Shape:
        """The elements of each axis that windows see, without padding; 0 where they see padding alone."""
        axes = zip(self.image, self.begins, self.padded, self.before, strict=True)
        return tuple(max(0, min(n - b, whole - pad)) for n, b, whole, pad in axes)


@dataclass(frozen=True)
class ChannelsLast(PaddedImage):
    """The layout (N, *padded, C) of a padded image of `channels` channels."""

    channels: int

    @property
    def size(self) -> int:
        """The elements of an image."""
        return int(np.prod(self.padded)) * self.channels

    @property
    def pixel_steps(self) -> Shape:
        """The elements from a pixel to the next along each axis."""
        return tuple(self.channels * step for step in dense_steps(self.padded))

    @property
    def steps(self) -> Shape:
        """The elements from a window to the next along each axis of (N, C, *windows)."""
        return (self.size, 1, *(a * s for a, s in zip(self.pixel_steps, self.window.strides, strict=True)))

    @property
    def taps(self) -> list[int]:
        """The offset of each tap from its window's first."""
        axes = zip(self.window.kernel, self.window.dilations, self.pixel_steps, strict=True)
        return [sum(parts) for parts in product(*([t * d * step for t in range(k)] for k, d, step in axes))]

    def fill(self, body: NodeBody, edge: Edge, to: ScratchArray, fill: str, *, centred: bool) -> None:
        """Copy an image to scratch memory; the padding gets `fill`."""
        if self.counts != self.padded:
            body.do(f"for (size_t i = 0; i < {edge.shape[0] * self.size}; ++i)\n{to.name}[i] = {fill};")
        if 0 in self.counts:
            return
        at = sum(b * step for b, step in zip(self.before, self.pixel_steps, strict=True))
        moved = ScratchArray(f"({to.name} + {at})" if at else to.name, to.dtype)
        begin, shape = (0, 0, *self.begins), (*edge.shape[:2], *self.counts)
        steps = self.size, 1, *self.pixel_steps
        body.stage(edge, moved, steps, centred=centred, begin=begin, shape=shape)


@dataclass(frozen=True)
class ImagePlanes(PaddedImage):
    """The layout of the planes of an image (N, C, *image) for a window: N * C planes."""

    @property
    def phase(self) -> Shape:
        """The elements of each axis in one phase of the stride."""
        return tuple(-(-n // s) for n, s in zip(self.padded, self.window.strides, strict=True))

    @property
    def size(self) -> int:
        """The elements of a plane."""
        return int(np.prod([*self.phase, *self.window.strides]))

    @property
    def steps(self) -> Shape:
        """The elements from a window to the next along each axis."""
        return dense_steps(self.phase)

    @property
    def pixels(self) -> int:
        """The elements from the first window to past the last, with those between rows."""
        return 1 + sum((o - 1) * step for o, step in zip(self.out, self.steps, strict=True))

    @property
    def taps(self) -> list[int]:
        """The offset of each tap from its window's first."""
        axes = zip(self.window.kernel, self.window.dilations, range(len(self.image)), strict=True)
        return [sum(parts) for parts in product(*([self.place(t * d, a) for t in range(k)] for k, d, a in axes))]

    def place(self, x: int, axis: int) -> int:
        """Return the place of an element of the padded image."""
        stride = self.window.strides[axis]
        return x % stride * self._apart(axis) + x // stride * self.steps[axis]

    def _apart(self, axis: int) -> int:
        """Return the elements from a phase of an axis to the next."""
        return int(np.prod(self.phase)) * dense_steps(self.window.strides)[axis]

    def _step(self, axis: int, before: int) -> AxisStep:
        """Return the strides from an element of the image to the next, after `begin` elements of padding."""
        stride = self.window.strides[axis]
        if stride == 1:
            return self.steps[axis]
        at = f"({{i}} + {before})" if before else "{i}"
        return f"{at} % {stride} * {self._apart(axis)} + {at} / {stride} * {self.steps[axis]}"

    def fill(self, body: NodeBody, edge: Edge, to: ScratchArray, fill: str, *, centred: bool) -> None:
        """Copy an image to planes; the padding gets `fill`."""
        count = int(np.prod(edge.shape[:2])) * self.size
        begins, before, counts = self.begins, self.before, self.counts
        if counts != self.padded or int(np.prod(self.padded)) != self.size:
            body.do(f"for (size_t i = 0; i < {count}; ++i)\n{to.name}[i] = {fill};")
        if 0 in counts:
            return
        fixed = [stride == 1 or count == 1 for stride, count in zip(self.window.strides, counts, strict=True)]
        steps = [self.steps[a] if fixed[a] else self._step(a, before[a]) for a in range(len(self.image))]
        at = sum(self.place(before[a], a) for a in range(len(self.image)) if fixed[a])
        moved = ScratchArray(f"({to.name} + {at})" if at else to.name, to.dtype)
        outer = (edge.shape[1] * self.size, self.size)
        body.stage(
            edge, moved, [*outer, *steps], centred=centred, begin=(0, 0, *begins), shape=(*edge.shape[:2], *counts)
        )
