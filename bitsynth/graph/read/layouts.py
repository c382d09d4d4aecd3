"""Channels-last images and im2col, which converters write as Transpose and Gather around nodes.

Transposes that undo each other vanish: for Transpose(Round(Transpose(x))), which tf2onnx writes, the graph has Round(x)
alone.

FINN writes a convolution as Im2Col, whose patches are the rows of a MatMul. Here patches are a depthwise convolution,
whose weights pick one pixel each, so that the product after Im2Col can be recognized and written as one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.read.file_node import FileNode
from bitsynth.graph.types import Shape, Tensor, cast

_MAX_NODES_BEFORE = 8
"""How far back nodes are searched for a transpose that can be undone."""
_IMAGE_RANK = 4
"""Axes of (N, H, W, C)."""
_ELEMENTWISE_KINDS = ("elementwise", "step")
_ORDER_INDEPENDENT = ("concatenate", "pad", "reduce_max", "reduce_min", "reduce_sum")
"""Operators of other kinds that can work on axes in any order; their attributes are reordered."""


def with_channels_last(
    read: Callable[[FileNode], tuple[str, ...]], *more: int
) -> Callable[[FileNode], tuple[str, ...]]:
    """Return a reader like `read` for nodes whose first input, inputs `more` and outputs have channels last."""

    def made(node: FileNode) -> tuple[str, ...]:
        inputs = list(node.inputs)
        for k in (0, *more):
            inputs[k] = to_channels_first(node, node.edge(k))
        return tuple(to_channels_last(node, edge) for edge in read(replace(node, inputs=tuple(inputs))))

    return made


def with_layout_attribute(read: Callable[[FileNode], tuple[str, ...]]) -> Callable[[FileNode], tuple[str, ...]]:
    """Return a reader like `read` for nodes whose attribute `channels_last` says where channels are."""
    return lambda node: (with_channels_last(read) if node.get("channels_last") else read)(node)


def to_channels_first(node: FileNode, edge: str) -> str:
    """Return an edge (N, ..., C) as (N, C, ...)."""
    rank = len(node.graph.edges[edge].shape)
    return transpose(node, edge, (0, rank - 1, *range(1, rank - 1)))


def to_channels_last(node: FileNode, edge: str) -> str:
    """Return an edge (N, C, ...) as (N, ..., C)."""
    rank = len(node.graph.edges[edge].shape)
    return transpose(node, edge, (0, *range(2, rank), 1))


def transpose(node: FileNode, edge: str, order: tuple[int, ...]) -> str:
    """Return an edge with its axes in another order; without a new transpose if one can be undone."""
    if order == tuple(range(len(order))):
        return edge
    if (edge, order) in node.graph.transposed:
        return node.graph.transposed[edge, order]
    shape = node.graph.edges[edge].shape
    several = [k for k in order if shape[k] != 1]
    if several == sorted(several):
        return _remember(node, edge, order, node.reshape(edge, tuple(shape[k] for k in order)))
    return _reorder(node, edge, order) or _remember(node, edge, order, node.add("transpose", edge, order=order))


def find_channels_first(node: FileNode, edge: str, axes: tuple[int, ...]) -> tuple[str, tuple[int, ...], bool]:
    """Return an image (N, H, W, C) as (N, C, H, W) if that needs no transpose, and where its axes `axes` are there.

    Else the edge and the axes are returned as they are. The last result says whether an edge was found.
    """
    rank = len(node.graph.edges[edge].shape)
    order = (0, rank - 1, *range(1, rank - 1))
    reordered = _reorder(node, edge, order) if rank == _IMAGE_RANK else None
    if reordered is None:
        return edge, axes, False
    return reordered, tuple(sorted(order.index(k) for k in axes)), True


def _remember(node: FileNode, edge: str, order: tuple[int, ...], reordered: str) -> str:
    """Remember that `reordered` is `edge` transposed, so that neither is transposed again; return `reordered`."""
    back = tuple(int(k) for k in np.argsort(order))
    node.graph.transposed |= {(edge, order): reordered, (reordered, back): edge}
    return reordered


def _reorder(node: FileNode, edge: str, order: tuple[int, ...], deep: int = _MAX_NODES_BEFORE) -> str | None:
    """Return an edge with its axes in another order, if that needs no new transpose; else None.

    The nodes that make it are looked at: an elementwise node of transposed edges is repeated on the edges before.
    """
    graph, maker = node.graph, node.graph.maker(edge)
    if maker is not None and maker.op == "transpose":
        axes = maker.attributes["order"]
        return maker.inputs[0] if [axes[k] for k in order] == list(range(len(order))) else None
    known = graph.transposed.get((edge, order))
    if known is not None and graph.maker(known, "transpose") is None:
        return known
    if maker is None or not deep:
        return None
    if maker.op not in _ORDER_INDEPENDENT and TABLE[maker.op].kind not in _ELEMENTWISE_KINDS:
        return None
    inputs = []
    for name in maker.inputs:
        alike = len(graph.edges[name].shape) == len(order)
        reordered = _transpose_constant(node, name, order) if name in graph.constants else None
        reordered = reordered or (_reorder(node, name, order, deep - 1) if alike else None)
        if reordered is None:
            return None
        inputs.append(reordered)
    attributes = {key: _reorder_attribute(key, value, order) for key, value in maker.attributes.items()}
    return _remember(node, edge, order, node.add(maker.op, *inputs, **attributes))


def _transpose_constant(node: FileNode, name: str, order: tuple[int, ...]) -> str:
    """Return the edge of a constant operand with its axes in another order."""
    shape = node.graph.edges[name].shape
    if node.graph.constants[name].size == 1:
        return name
    whole = node.reshape(name, (1,) * (len(order) - len(shape)) + shape)
    return node.add("transpose", whole, order=order)


def _reorder_attribute(key: str, value: Any, order: tuple[int, ...]) -> Any:
    """Return an attribute of a node whose axes are in another order; rows of thresholds stay as they are."""
    if key == "pads":
        return tuple(value[k] for k in order)
    if key == "axes":
        return tuple(sorted(order.index(k) for k in value))
    if isinstance(value, tuple):
        return tuple(_reorder_attribute(key, part, order) for part in value)
    if key == "axis":
        return order.index(value)
    if key == "thresholds" or not isinstance(value, np.ndarray) or value.size == 1:
        return value
    whole: Tensor = value.reshape((1,) * (len(order) - value.ndim) + value.shape)
    return whole.transpose(order)


_TO_CHANNELS_LAST = (0, 2, 3, 1)
_POINT_WINDOW = SlidingWindow((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), ceil=False)


def add_patches(node: FileNode, window: SlidingWindow) -> str:
    """Return the edge of im2col: each pixel has all pixels of its window, with all their channels, as channels."""
    channels, size = node.shape()[1], math.prod(window.kernel)
    weights = node.constant(cast(_one_pixel_weights(channels, window.kernel), node.input(0).dtype))
    by_channel = node.add("conv", node.edge(0), weights, window=window, groups=channels)
    return node.add("gather", by_channel, places=_order_by_pixel(channels, size), axis=1)


def _one_pixel_weights(channels: int, kernel: Shape) -> Tensor:
    """Return depthwise weights (C * size, 1, *kernel) that pick one pixel of the window each."""
    size = math.prod(kernel)
    return np.tile(np.eye(size), (channels, 1)).reshape(channels * size, 1, *kernel)


def _order_by_pixel(channels: int, size: int) -> Tensor:
    """Return the indices that sort channels of (channel, pixel) by (pixel, channel)."""
    return np.arange(channels * size).reshape(channels, size).T.reshape(-1)


def match_product_of_pixels(node: FileNode, x: str, weights: str) -> str | None:
    """Return the edge of a convolution for im2col, or for pixels, times a matrix; None of other products."""
    graph = node.graph
    moved = graph.maker(x, "transpose")
    if moved is None or moved.attributes["order"] != _TO_CHANNELS_LAST or weights not in graph.constants:
        return None
    image, sizes = moved.inputs[0], graph.edges[weights].shape
    if len(sizes) != 2 or graph.edges[image].shape[1] != sizes[0]:
        return None
    rows = node.add("transpose", weights, order=(1, 0))
    depthwise = _find_patches(graph, image)
    if depthwise is not None:
        return to_channels_last(node, _convolve_patches(node, depthwise, rows))
    whole = node.reshape(rows, (*graph.edges[rows].shape, 1, 1))
    return to_channels_last(node, node.add("conv", image, whole, window=_POINT_WINDOW, groups=1))


def _find_patches(graph: GraphBuilder, image: str) -> Node | None:
    """Return the depthwise convolution of im2col, if an image is its result sorted by pixel; else None."""
    sorted_by = graph.maker(image, "gather")
    depthwise = graph.maker(sorted_by.inputs[0], "conv") if sorted_by else None
    if sorted_by is None or depthwise is None or sorted_by.attributes["axis"] != 1:
        return None
    weights, channels = graph.constants.get(depthwise.inputs[1]), depthwise.attributes["groups"]
    kernel = depthwise.attributes["window"].kernel
    if weights is None or not np.array_equal(weights, _one_pixel_weights(channels, kernel)):
        return None
    same = np.array_equal(sorted_by.attributes["places"], _order_by_pixel(channels, math.prod(kernel)))
    return depthwise if same else None


def _convolve_patches(node: FileNode, depthwise: Node, rows: str) -> str:
    """Add a convolution for the product of im2col with rows of weights; depthwise if the weights are block diagonal."""
    channels, window = depthwise.attributes["groups"], depthwise.attributes["window"]
    count, size = node.graph.edges[rows].shape[0], math.prod(window.kernel)
    by_channel = node.add("gather", rows, places=_order_by_pixel(size, channels), axis=1)
    kernel, groups = node.reshape(by_channel, (count, channels, *window.kernel)), 1
    if _is_depthwise(node.graph.value(by_channel), channels):
        each, groups = node.reshape(kernel, (count * channels, *window.kernel)), channels
        own = np.arange(count) * channels + np.arange(count) * channels // count
        kernel = node.reshape(node.add("gather", each, places=own, axis=0), (count, 1, *window.kernel))
    return node.add("conv", depthwise.inputs[0], kernel, window=window, groups=groups)


def _is_depthwise(rows: Tensor | None, channels: int) -> bool:
    """Return whether rows of weights have nonzero numbers of one channel each, in equal parts for all channels."""
    if rows is None or channels == 1 or len(rows) % channels:
        return False
    others = rows.reshape(channels, -1, channels, rows.shape[1] // channels).copy()
    others[range(channels), :, range(channels)] = 0
    return not others.any()
