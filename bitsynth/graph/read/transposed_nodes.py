"""ConvTranspose: a convolution that makes all phases of a pixel as channels of their own, which then move into place.

Of a stride s and b elements cut off at the beginning, element s * t + r of an axis is phase r of pixel t, to which
pixel t + o adds by tap r + b - s * o. So all phases are one convolution of stride 1, without zeros between pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.read.float_nodes import Reader
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.read.weight_grids import on_grid
from bitsynth.graph.read.window_nodes import channel
from bitsynth.graph.types import Shape, Tensor

_MOST = 64
"""Strides and dilations."""
_MOST_WEIGHTS = 1 << 28


@dataclass(frozen=True)
class _Axis:
    """One axis of pixels: what is given, and the `size` of the result after `begin` elements are cut off."""

    image: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    size: int

    @property
    def pixels(self) -> int:
        """Pixels of the result, each of all phases."""
        return -(-self.size // self.stride)

    @property
    def first(self) -> int:
        """The first pixel that adds, counted from that of the result."""
        return math.ceil((self.begin - self._reach + 1) / self.stride)

    @property
    def taps(self) -> Tensor:
        """(phases, pixels): the tap by which a pixel adds to a phase, `kernel` where it adds nothing."""
        last = (self.stride - 1 + self.begin) // self.stride
        phases, pixels = np.arange(self.stride)[:, None], np.arange(self.first, last + 1)[None]
        place = phases + self.begin - self.stride * pixels
        adds = (place >= 0) & (place < self._reach) & (place % self.dilation == 0)
        return np.where(adds, place // self.dilation, self.kernel)

    @property
    def pads(self) -> tuple[int, int]:
        """Pixels of padding before and after the image; fewer than none if some are not read."""
        return -self.first, self.pixels - self.image + self.first + self.taps.shape[1] - 1

    @property
    def _reach(self) -> int:
        return self.dilation * (self.kernel - 1) + 1


def _conv_transpose(node: FileNode) -> tuple[str, ...]:
    groups = int(node.get("group", 1))
    image, weights = node.shape(), node.shape(1)
    fits = 3 <= len(image) == len(weights) and groups >= 1 and 0 not in weights
    if not fits or image[1] != weights[0] or image[1] % groups:
        raise node.fail(f"weights {weights} of {groups} groups do not fit an image {image}")
    axes = _axes(node)
    kept, (begins, ends) = _read(node, axes)
    ones = (1,) * len(axes)
    window = SlidingWindow(tuple(a.taps.shape[1] for a in axes), ones, ones, begins, ends, False)
    made = node.add("conv", kept, _phases(node, axes, groups), window=window, groups=groups)
    phases = math.prod(a.stride for a in axes)
    if node.has(2):
        bias = node.add("gather", node.edge(2), places=np.repeat(np.arange(node.shape(2)[0]), phases), axis=0)
        made = node.add("add", made, channel(node, bias, len(image)))
    return (_cut(node, _in_place(node, made, axes), [(0, a.size) for a in axes]),)


def _axes(node: FileNode) -> list[_Axis]:
    """Axes of pixels; SpecError for attributes that do not fit."""
    image, kernel, count = node.shape()[2:], node.shape(1)[2:], len(node.shape()) - 2
    strides, dilations, more = (
        [int(n) for n in node.get(name) or [least] * count]
        for name, least in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    if not len(strides) == len(dilations) == len(more) == count:
        raise node.fail(f"strides {strides}, dilations {dilations}, output_padding {more} do not fit {count} axes")
    steps = [max(s, d) for s, d in zip(strides, dilations, strict=True)]
    if max(steps) > _MOST or min(strides + dilations) < 1:
        raise node.fail(f"strides {strides} and dilations {dilations} must be 1 to {_MOST}")
    if not all(0 <= m < s for m, s in zip(more, steps, strict=True)):
        raise node.fail(f"output_padding {more} wants numbers below {steps}")
    whole = [
        s * (n - 1) + d * (k - 1) + 1 + m for n, k, s, d, m in zip(image, kernel, strides, dilations, more, strict=True)
    ]
    begins, sizes = _kept(node, whole, [min(n, i * s) for n, i, s in zip(whole, image, strides, strict=True)], steps)
    return [_Axis(*given) for given in zip(image, kernel, strides, dilations, begins, sizes, strict=True)]


def _kept(node: FileNode, whole: list[int], same: list[int], steps: list[int]) -> tuple[list[int], list[int]]:
    """Elements of `whole` that are cut off at the beginning of each axis, and those that are left: `same` if automatic.

    By `output_shape` there may be more than the whole, to which nothing adds: fewer than a step.
    """
    count, auto = len(whole), node.get("auto_pad", "NOTSET") or "NOTSET"
    pads, wanted = [int(n) for n in node.get("pads") or [0] * (2 * count)], node.get("output_shape")
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.fail(f"auto_pad {auto!r} is not known")
    if wanted or auto.startswith("SAME"):
        wanted = [int(n) for n in wanted or same][-count:]
        if len(wanted) != count or not all(0 < n < m + s for n, m, s in zip(wanted, whole, steps, strict=True)):
            raise node.fail(f"output_shape {wanted} does not fit {whole} elements; export it with pads")
        cut = [max(m - n, 0) for n, m in zip(wanted, whole, strict=True)]
        return [n // 2 if auto == "SAME_UPPER" else n - n // 2 for n in cut], wanted
    if len(pads) != 2 * count or min(pads) < 0:
        raise node.fail(f"pads {pads} do not fit {count} axes")
    pads = [0] * (2 * count) if auto == "VALID" else pads
    sizes = [n - b - e for n, b, e in zip(whole, pads[:count], pads[count:], strict=True)]
    if min(sizes) < 1:
        raise node.fail(f"pads {pads} leave nothing of an image {node.shape()}")
    return pads[:count], sizes


def _phases(node: FileNode, axes: list[_Axis], groups: int) -> str:
    """Weights (C, O / groups, *kernel) as those of all phases, (O * phases, C / groups, *taps)."""
    if (size := math.prod(node.shape(1)[:2]) * math.prod(a.taps.size for a in axes)) > _MOST_WEIGHTS:
        raise node.fail(f"weights of all phases would be {size:,}, more than {_MOST_WEIGHTS:,}; use smaller strides")
    edge, (channels, out), count = on_grid(node, 1, 1), node.shape(1)[:2], len(axes)
    if any((a.taps == a.kernel).any() for a in axes):
        edge = node.add("pad", edge, pads=((0, 0), (0, 0), *((0, 1),) * count), mode="constant", fills=True)
    for k, a in reversed(list(enumerate(axes))):
        edge = node.add("gather", edge, places=a.taps, axis=2 + k)
    edge = node.reshape(edge, (groups, channels // groups, out, *(n for a in axes for n in a.taps.shape)))
    phases, taps = range(3, 3 + 2 * count, 2), range(4, 4 + 2 * count, 2)
    edge = node.add("transpose", edge, order=(0, 2, *phases, 1, *taps))
    rows = groups * out * math.prod(a.stride for a in axes)
    return node.reshape(edge, (rows, channels // groups, *(a.taps.shape[1] for a in axes)))


def _in_place(node: FileNode, edge: str, axes: list[_Axis]) -> str:
    """All phases of pixels, channels of their own, where they belong."""
    strides, count = tuple(a.stride for a in axes), len(axes)
    if set(strides) == {1}:
        return edge
    if count == 2 and len(set(strides)) == 1:
        return node.add("depth_to_space", edge, block=strides[0], mode="CRD")
    batch, channels, *pixels = node.graph.edges[edge].shape
    edge = node.reshape(edge, (batch, channels // math.prod(strides), *strides, *pixels))
    order = (0, 1, *(k for n in range(count) for k in (2 + count + n, 2 + n)))
    edge = node.add("transpose", edge, order=order)
    made = tuple(n * s for n, s in zip(pixels, strides, strict=True))
    return node.reshape(edge, (batch, channels // math.prod(strides), *made))


def _read(node: FileNode, axes: list[_Axis]) -> tuple[str, tuple[Shape, Shape]]:
    """The image without the pixels that no result reads, and the padding that is left."""
    ends = [(max(-a.pads[0], 0), a.image - max(-a.pads[1], 0)) for a in axes]
    if any(first >= last for first, last in ends):
        raise node.fail(f"pads leave nothing of an image {node.shape()}; no pixel of it is read")
    before, after = (tuple(max(a.pads[k], 0) for a in axes) for k in (0, 1))
    return _cut(node, node.edge(0), ends), (before, after)


def _cut(node: FileNode, edge: str, ends: list[tuple[int, int]]) -> str:
    """What is between the ends of all axes of pixels."""
    if all((0, n) == end for n, end in zip(node.graph.edges[edge].shape[2:], ends, strict=True)):
        return edge
    every = (None, None, 1)
    return node.add("slice", edge, slices=(every, every, *((first, last, 1) for first, last in ends)))


READERS: dict[str, Reader] = {"ConvTranspose": _conv_transpose}
