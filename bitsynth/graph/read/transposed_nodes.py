"""ConvTranspose: a convolution that makes all phases of a pixel as channels of their own, which then move into place.

Of a stride s and b elements cut off at the beginning, element s * t + r of an axis is phase r of pixel t, to which
pixel t + o adds by tap r + b - s * o. So all phases are one convolution of stride 1, without zeros between pixels.
"""

from __future__ import annotations

import math

import numpy as np

from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.read.float_nodes import Reader
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.read.weight_grids import on_grid
from bitsynth.graph.read.window_nodes import channel
from bitsynth.graph.types import Shape, Tensor

_MOST_STRIDE = 64


def _conv_transpose(node: FileNode) -> tuple[str, ...]:
    stride, groups = _stride(node), int(node.get("group", 1))
    image, weights = node.shape(), node.shape(1)
    if len(image) != 4 or len(weights) != 4 or groups < 1 or image[1] != weights[0] or image[1] % groups:
        raise node.fail(
            f"weights {weights} of {groups} groups do not fit an image {image}; it wants two axes of pixels"
        )
    begins, sizes = _places(node, stride)
    taps = [_taps(stride, begin, kernel) for begin, kernel in zip(begins, weights[2:], strict=True)]
    pixels = [-(-size // stride) for size in sizes]
    before = tuple(-first for first, _ in taps)
    after = tuple(
        t - n + first + table.shape[1] - 1 for t, n, (first, table) in zip(pixels, image[2:], taps, strict=True)
    )
    kept, pads = _without_negative(node, before, after)
    window = SlidingWindow(tuple(t.shape[1] for _, t in taps), (1, 1), (1, 1), *pads, False)
    rows = _phases(node, [table for _, table in taps], groups)
    made = node.add("conv", kept, rows, window=window, groups=groups)
    if node.has(2):
        bias = node.add("gather", node.edge(2), places=np.repeat(np.arange(node.shape(2)[0]), stride**2), axis=0)
        made = node.add("add", made, channel(node, bias, 4))
    if stride > 1:
        made = node.add("depth_to_space", made, block=stride, mode="CRD")
    return (_cut(node, made, [(0, size) for size in sizes]),)


def _stride(node: FileNode) -> int:
    """The stride of both axes; SpecError for what is not compiled."""
    strides = {int(n) for n in node.get("strides") or [1]}
    if len(strides) != 1 or not 1 <= min(strides) <= _MOST_STRIDE:
        raise node.fail(f"strides {node.get('strides')} are not compiled; they must be alike, of 1 to {_MOST_STRIDE}")
    if set(node.get("dilations") or [1]) != {1}:
        raise node.fail(f"dilations {node.get('dilations')} are not compiled; export it without")
    if node.get("output_shape") or node.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID", ""):
        raise node.fail("output_shape and auto_pad are not compiled; export it with pads and output_padding")
    return strides.pop()


def _places(node: FileNode, stride: int) -> tuple[Shape, Shape]:
    """How many elements are cut off at the beginning of each axis, and how many are left."""
    pads, more = node.get("pads") or [0] * 4, node.get("output_padding") or [0] * 2
    if len(pads) != 4 or len(more) != 2 or min(pads) < 0 or not 0 <= min(more) <= max(more) < stride:
        raise node.fail(f"pads {pads} and output_padding {more} do not fit a stride of {stride}")
    axes = zip(node.shape()[2:], node.shape(1)[2:], pads[:2], pads[2:], more, strict=True)
    sizes = tuple(stride * (n - 1) + k + extra - begin - end for n, k, begin, end, extra in axes)
    if min(sizes) < 1:
        raise node.fail(f"pads {pads} leave nothing of an image {node.shape()}")
    return tuple(pads[:2]), sizes


def _taps(stride: int, begin: int, kernel: int) -> tuple[int, Tensor]:
    """The first pixel that adds, counted from that of the result, and each phase's taps; `kernel` where it has none."""
    first, last = math.ceil((begin - kernel + 1) / stride), (stride - 1 + begin) // stride
    phases, pixels = np.arange(stride)[:, None], np.arange(first, last + 1)[None]
    table = phases + begin - stride * pixels
    return first, np.where((table >= 0) & (table < kernel), table, kernel)


def _phases(node: FileNode, tables: list[Tensor], groups: int) -> str:
    """Weights (C, O / groups, H, W) as those of all phases, (O * phases, C / groups, taps, taps)."""
    edge, (channels, out, *kernel) = on_grid(node, 1, 1), node.shape(1)
    if any((table == k).any() for table, k in zip(tables, kernel, strict=True)):
        edge = node.add("pad", edge, pads=((0, 0), (0, 0), (0, 1), (0, 1)), mode="constant", fills=True)
    for axis, table in zip((3, 2), reversed(tables), strict=True):
        edge = node.add("gather", edge, places=table, axis=axis)
    (s, high), (_, wide) = tables[0].shape, tables[1].shape
    edge = node.reshape(edge, (groups, channels // groups, out, s, high, s, wide))
    edge = node.add("transpose", edge, order=(0, 2, 3, 5, 1, 4, 6))
    return node.reshape(edge, (groups * out * s * s, channels // groups, high, wide))


def _without_negative(node: FileNode, before: Shape, after: Shape) -> tuple[str, tuple[Shape, Shape]]:
    """The image without the pixels that no result reads, and the pads that are left."""
    ends = [(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(before, after, node.shape()[2:], strict=True)]
    if any(first >= last for first, last in ends):
        raise node.fail(f"pads {node.get('pads')} leave nothing of an image {node.shape()}; no pixel of it is read")
    return _cut(node, node.edge(0), ends), (tuple(max(n, 0) for n in before), tuple(max(n, 0) for n in after))


def _cut(node: FileNode, edge: str, ends: list[tuple[int, int]]) -> str:
    """What is between the ends of both axes of pixels."""
    if all((0, n) == end for n, end in zip(node.graph.edges[edge].shape[2:], ends, strict=True)):
        return edge
    every = (None, None, 1)
    return node.add("slice", edge, slices=(every, every, *((first, last, 1) for first, last in ends)))


READERS: dict[str, Reader] = {"ConvTranspose": _conv_transpose}
