"""Nodes of standard ONNX that bring numbers to a mean of 0, to a spread or a length of 1, by sums along axes."""

from __future__ import annotations

import math
from dataclasses import replace

from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.read.float_nodes import Reader, length, mean_of, power_of, sum_of_sizes
from bitsynth.graph.read.source import FileNode

_LEAST = 2.0**-126
"""The least length that is divided by: zeros stay zeros."""


def layer_norm(node: FileNode) -> tuple[str, ...]:
    """Along the last axes, times a gain and plus a bias, element by element; the mean, and 1 over the spread."""
    axes = tuple(range(node.axis(node.get("axis", -1)), len(node.shape())))
    made, mean, spread = _normed(node, node.edge(0), axes)
    made = node.add("mul", made, node.edge(1))
    made = node.add("add", made, node.edge(2)) if node.has(2) else made
    return made, mean, node.add("div", node.like(1.0), spread)


def rms_norm(node: FileNode) -> tuple[str, ...]:
    """Along the last axes, over the root of the mean of squares, times a gain."""
    axes = tuple(range(node.axis(node.get("axis", -1)), len(node.shape())))
    made, _ = _over_root(node, node.edge(0), axes)
    return (node.add("mul", made, node.edge(1)),)


def _mean_variance_norm(node: FileNode) -> tuple[str, ...]:
    """Along axes, by default all but that of channels."""
    axes = node.axes([int(k) for k in node.get("axes", (0, 2, 3))])
    return (_normed(replace(node, attributes={"epsilon": 1e-9}), node.edge(0), axes)[0],)


def _length_norm(node: FileNode) -> tuple[str, ...]:
    """Over the length, or the sum of sizes, along an axis."""
    size = sum_of_sizes if node.get("p", 2) == 1 else length
    found = size(node, node.edge(0), (node.axis(node.get("axis", -1)),))
    return (node.add("div", node.edge(0), node.add("max", found, node.like(_LEAST))),)


def _local_norm(node: FileNode) -> tuple[str, ...]:
    """Over a power of the sum of squares of channels beside each other."""
    shape, size = node.shape(), int(node.get("size", 1))
    window = SlidingWindow((size, 1), (1, 1), (1, 1), ((size - 1) // 2, 0), (size // 2, 0), ceil=False)
    squares = node.reshape(node.add("mul", node.edge(0), node.edge(0)), (shape[0], 1, shape[1], math.prod(shape[2:])))
    sums = node.reshape(node.add("sum_pool", squares, window=window), shape)
    scaled = node.add("mul", sums, node.like(node.get("alpha", 1e-4) / size))
    made = power_of(node, node.add("add", scaled, node.like(node.get("bias", 1.0))), node.get("beta", 0.75))
    if made is None:
        raise node.fail(f"beta is {node.get('beta'):g}; known: 0.25, 0.5, 0.75, 1, 1.5, 2, 3 and 4")
    return (node.add("div", node.edge(0), made),)


def _instance_norm(node: FileNode) -> tuple[str, ...]:
    """Along the image of each channel."""
    return (_by_channel(node, _normed(node, node.edge(0), tuple(range(2, len(node.shape()))))[0]),)


def _group_norm(node: FileNode) -> tuple[str, ...]:
    """Along the images of some channels together."""
    shape, groups = node.shape(), node.get("num_groups", 0)
    if groups < 1 or shape[1] % groups or node.version < 21:
        raise node.fail(f"{groups} groups of {shape[1]} channels of opset {node.version}; export opset 21 or later")
    parts = node.reshape(node.edge(0), (shape[0], groups, shape[1] // groups, *shape[2:]))
    made, _, _ = _normed(node, parts, tuple(range(2, len(shape) + 1)))
    return (_by_channel(node, node.reshape(made, shape)),)


def _normed(node: FileNode, x: str, axes: tuple[int, ...]) -> tuple[str, str, str]:
    """Numbers less their mean along axes, over the root of the mean of squares of that; the mean and the root."""
    mean = mean_of(node, x, axes)
    apart = node.add("sub", x, mean)
    made, spread = _over_root(node, apart, axes)
    return made, mean, spread


def _over_root(node: FileNode, x: str, axes: tuple[int, ...]) -> tuple[str, str]:
    """Numbers over the root of the mean of their squares along axes, and that root."""
    squares = mean_of(node, node.add("mul", x, x), axes)
    root = node.add("sqrt", node.add("add", squares, node.like(node.get("epsilon", 1e-5))))
    return node.add("div", x, root), root


def _by_channel(node: FileNode, made: str) -> str:
    """Times a gain and plus a bias for each channel."""
    column = (node.shape()[1], *[1] * (len(node.shape()) - 2))
    gain, bias = (node.reshape(node.edge(k), column) for k in (1, 2))
    return node.add("add", node.add("mul", made, gain), bias)


READERS: dict[str, Reader] = {
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LRN": _local_norm,
    "LayerNormalization": layer_norm,
    "LpNormalization": _length_norm,
    "MeanVarianceNormalization": _mean_variance_norm,
    "RMSNormalization": rms_norm,
    "SimplifiedLayerNormalization": rms_norm,
}
