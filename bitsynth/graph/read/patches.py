"""Convolutions that are written as products of patches, and of the channels of each pixel.

FINN writes a convolution as Im2Col, whose patches of pixels are the rows of a MatMul. Patches are a convolution of each
channel by itself, by weights of which each takes one pixel, so that both together are one.
"""

from __future__ import annotations

import math

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Node
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.read.layouts import to_last
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Shape, Tensor, cast

_FIRST_TO_LAST = (0, 2, 3, 1)
_PIXEL = SlidingWindow((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), ceil=False)


def patches(node: FileNode, window: SlidingWindow) -> str:
    """The pixels of each window, those of all channels beside each other, as channels of one pixel."""
    channels, size = node.shape()[1], math.prod(window.kernel)
    weights = node.constant(cast(_one_pixel_each(channels, window.kernel), node.of(0).dtype))
    by_channel = node.add("conv", node.edge(0), weights, window=window, groups=channels)
    return node.add("gather", by_channel, places=_by_pixel(channels, size), axis=1)


def _one_pixel_each(channels: int, kernel: Shape) -> Tensor:
    """Weights of a convolution of each channel by itself, whose results are the pixels of a window."""
    size = math.prod(kernel)
    return np.tile(np.eye(size), (channels, 1)).reshape(channels * size, 1, *kernel)


def _by_pixel(channels: int, size: int) -> Tensor:
    """The places of what is sorted by pixel and channel in what is sorted by channel and pixel."""
    return np.arange(channels * size).reshape(channels, size).T.reshape(-1)


def product_of_image(node: FileNode, x: str, weights: str) -> str | None:
    """A product of the channels of each pixel, or of patches, with a matrix as a convolution; None of others."""
    graph = node.graph
    moved = graph.maker(x, "transpose")
    if moved is None or moved.attributes["order"] != _FIRST_TO_LAST or weights not in graph.constants:
        return None
    image, sizes = moved.inputs[0], graph.edges[weights].shape
    if len(sizes) != 2 or graph.edges[image].shape[1] != sizes[0]:
        return None
    rows = node.add("transpose", weights, order=(1, 0))
    made = _maker_of_patches(graph, image)
    if made is not None:
        return to_last(node, _of_patches(node, made, rows))
    whole = node.reshape(rows, (*graph.edges[rows].shape, 1, 1))
    return to_last(node, node.add("conv", image, whole, window=_PIXEL, groups=1))


def _maker_of_patches(graph: GraphBuilder, image: str) -> Node | None:
    """The convolution of each channel by itself whose results, sorted by pixel, are patches; None of other images."""
    sorted_by = graph.maker(image, "gather")
    made = graph.maker(sorted_by.inputs[0], "conv") if sorted_by else None
    if sorted_by is None or made is None or sorted_by.attributes["axis"] != 1:
        return None
    weights, channels = graph.constants.get(made.inputs[1]), made.attributes["groups"]
    kernel = made.attributes["window"].kernel
    if weights is None or not np.array_equal(weights, _one_pixel_each(channels, kernel)):
        return None
    same = np.array_equal(sorted_by.attributes["places"], _by_pixel(channels, math.prod(kernel)))
    return made if same else None


def _of_patches(node: FileNode, made_by: Node, rows: str) -> str:
    """The convolution by rows of weights, of pixels and channels; by channel if no row has those of several."""
    channels, window = made_by.attributes["groups"], made_by.attributes["window"]
    count, size = node.graph.edges[rows].shape[0], math.prod(window.kernel)
    by_channel = node.add("gather", rows, places=_by_pixel(size, channels), axis=1)
    made, groups = node.reshape(by_channel, (count, channels, *window.kernel)), 1
    if _is_by_channel(node.graph.value(by_channel), channels):
        each, groups = node.reshape(made, (count * channels, *window.kernel)), channels
        own = np.arange(count) * channels + np.arange(count) * channels // count
        made = node.reshape(node.add("gather", each, places=own, axis=0), (count, 1, *window.kernel))
    return node.add("conv", made_by.inputs[0], made, window=window, groups=groups)


def _is_by_channel(rows: Tensor | None, channels: int) -> bool:
    """Whether rows of weights of all channels have, in as many equal parts, those of one channel each."""
    if rows is None or channels == 1 or len(rows) % channels:
        return False
    others = rows.reshape(channels, -1, channels, rows.shape[1] // channels).copy()
    others[range(channels), :, range(channels)] = 0
    return not others.any()
