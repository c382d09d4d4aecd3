"""Nodes of standard ONNX that bring numbers to a mean of 0 and a spread of 1, by sums along axes."""

from __future__ import annotations

from bitsynth.graph.read.float_nodes import Reader, mean_of
from bitsynth.graph.read.source import FileNode


def _layer_norm(node: FileNode) -> tuple[str, ...]:
    """Along the last axes, times a gain and plus a bias, element by element; the mean, and 1 over the spread."""
    axes = tuple(range(node.axis(node.get("axis", -1)), len(node.shape())))
    made, mean, spread = _normed(node, node.edge(0), axes)
    made = node.add("mul", made, node.edge(1))
    made = node.add("add", made, node.edge(2)) if node.has(2) else made
    return made, mean, node.add("div", node.like(1.0), spread)


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
    variance = mean_of(node, node.add("mul", apart, apart), axes)
    spread = node.add("sqrt", node.add("add", variance, node.like(node.get("epsilon", 1e-5))))
    return node.add("div", apart, spread), mean, spread


def _by_channel(node: FileNode, made: str) -> str:
    """Times a gain and plus a bias for each channel."""
    column = (node.shape()[1], *[1] * (len(node.shape()) - 2))
    gain, bias = (node.reshape(node.edge(k), column) for k in (1, 2))
    return node.add("add", node.add("mul", made, gain), bias)


READERS: dict[str, Reader] = {
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
}
