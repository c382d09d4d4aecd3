"""Reductions along axes, global pools, ArgMax, TopK, and normalizations, which are made of sums along axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.read.file_node import FileNode, Reader, find_channels_first, to_channels_last
from bitsynth.graph.read.nodes.elementwise import add_power

Reducer = Callable[[FileNode, str, tuple[int, ...]], str]
"""Adds the reduction of an edge along axes, which stay as 1; returns its edge."""


def read_batch_norm(node: FileNode) -> tuple[str, ...]:
    """Read BatchNormalization of inference, along the second axis."""
    if node.get("training_mode") or (node.version >= 14 and any(node.outputs[1:])):
        raise node.fail("is in training mode; export the network for inference")
    shape = (-1, *[1] * (len(node.shape()) - 2))
    sizes = tuple(node.shape()[1] if n == -1 else n for n in shape)
    parameters = [node.reshape(node.edge(k), (1, *sizes)) for k in range(1, 5)]
    return (node.add("batch_norm", node.edge(0), *parameters, epsilon=float(node.get("epsilon", 1e-5))),)


def add_mean(node: FileNode, edge: str, axes: tuple[int, ...]) -> str:
    """Return the mean along axes, which stay as 1."""
    count = int(np.prod([node.graph.edges[edge].shape[k] for k in axes]))
    return node.add("div", node.add("reduce_sum", edge, axes=axes), node.constant_like(count))


def add_absolute_sum(node: FileNode, edge: str, axes: tuple[int, ...]) -> str:
    """Return the sums of absolute numbers along axes, which stay as 1."""
    return node.add("reduce_sum", node.add("abs", edge), axes=axes)


def add_square_sum(node: FileNode, edge: str, axes: tuple[int, ...]) -> str:
    """Return the sums of squares along axes, which stay as 1."""
    return node.add("reduce_sum", node.add("mul", edge, edge), axes=axes)


def add_length(node: FileNode, edge: str, axes: tuple[int, ...]) -> str:
    """Return the square roots of sums of squares along axes, which stay as 1."""
    return node.add("sqrt", add_square_sum(node, edge, axes))


def _row_reducer(op: str) -> Reducer:
    """Return the reducer by an operator of the table."""
    return lambda node, edge, axes: node.add(op, edge, axes=axes)


def _reduction_reader(fold: Reducer) -> Reader:
    """Return the reader of a reduction, with axes from an attribute or an input."""

    def read(node: FileNode) -> tuple[str, ...]:
        asked = node.numbers("axes", 1)
        if not asked and node.get("noop_with_empty_axes"):
            return (node.edge(0),)
        axes = node.axes(asked or None)
        edge, places, is_turned = find_channels_first(node, node.edge(0), axes)
        reduced = fold(node, edge, places)
        return (_drop_reduced_axes(node, to_channels_last(node, reduced) if is_turned else reduced, axes),)

    return read


def _drop_reduced_axes(node: FileNode, edge: str, axes: tuple[int, ...]) -> str:
    """Return the edge without the reduced axes, unless `keepdims` keeps them as 1."""
    if node.get("keepdims", 1):
        return edge
    return node.reshape(edge, tuple(n for k, n in enumerate(node.shape()) if k not in axes))


def _global_pool_reader(fold: Reducer) -> Reader:
    """Return the reader of a reduction of images."""
    return lambda node: (fold(node, node.edge(0), tuple(range(2, len(node.shape())))),)


def _arg_reader(largest: bool) -> Reader:
    """Return the reader of ArgMax or ArgMin."""

    def read(node: FileNode) -> tuple[str, ...]:
        axis = node.axis(node.get("axis", 0))
        last = bool(node.get("select_last_index", 0))
        _, places = node.graph.add_all(
            "rank", node.edge(0), source=str(node), count=2, axis=axis, k=1, largest=largest, last=last
        )
        return (_drop_reduced_axes(node, places, (axis,)),)

    return read


def _read_top_k(node: FileNode) -> tuple[str, ...]:
    count = (node.numbers("k", 1) or [1])[0]
    axis, largest = node.axis(node.get("axis", -1)), bool(node.get("largest", 1))
    return node.graph.add_all(
        "rank", node.edge(0), source=str(node), count=2, axis=axis, k=count, largest=largest, last=False
    )


_MIN_LENGTH = 2.0**-126
"""Shorter lengths are replaced by this one before the division: zeros stay zeros."""


def read_layer_norm(node: FileNode) -> tuple[str, ...]:
    """Read LayerNormalization along the last axes; the outputs are the result, the mean, and 1 / standard deviation."""
    axes = tuple(range(node.axis(node.get("axis", -1)), len(node.shape())))
    normalized, mean, spread = _normalize(node, node.edge(0), axes)
    normalized = node.add("mul", normalized, node.edge(1))
    normalized = node.add("add", normalized, node.edge(2)) if node.has(2) else normalized
    return normalized, mean, node.add("div", node.constant_like(1.0), spread)


def read_rms_norm(node: FileNode) -> tuple[str, ...]:
    """Read RMSNormalization: x / sqrt(mean of squares) along the last axes, times a gain."""
    axes = tuple(range(node.axis(node.get("axis", -1)), len(node.shape())))
    normalized, _ = _divide_by_root_mean_square(node, node.edge(0), axes)
    return (node.add("mul", normalized, node.edge(1)),)


def _read_mean_variance_norm(node: FileNode) -> tuple[str, ...]:
    """Read MeanVarianceNormalization, by default along all axes but the channels' axis."""
    axes = node.axes([int(k) for k in node.get("axes", (0, 2, 3))])
    return (_normalize(replace(node, attributes={"epsilon": 1e-9}), node.edge(0), axes)[0],)


def _read_lp_norm(node: FileNode) -> tuple[str, ...]:
    """Read LpNormalization: x over its length, or over the sum of absolute numbers, along an axis."""
    size = add_absolute_sum if node.get("p", 2) == 1 else add_length
    length = size(node, node.edge(0), (node.axis(node.get("axis", -1)),))
    return (node.add("div", node.edge(0), node.add("max", length, node.constant_like(_MIN_LENGTH))),)


def _read_lrn(node: FileNode) -> tuple[str, ...]:
    """Read LRN: x over a power of the sum of squares of neighbouring channels."""
    shape, size = node.shape(), int(node.get("size", 1))
    window = SlidingWindow((size, 1), (1, 1), (1, 1), ((size - 1) // 2, 0), (size // 2, 0), ceil=False)
    squares = node.reshape(node.add("mul", node.edge(0), node.edge(0)), (shape[0], 1, shape[1], math.prod(shape[2:])))
    sums = node.reshape(node.add("sum_pool", squares, window=window), shape)
    scaled = node.add("mul", sums, node.constant_like(node.get("alpha", 1e-4) / size))
    divisor = add_power(
        node, node.add("add", scaled, node.constant_like(node.get("bias", 1.0))), node.get("beta", 0.75)
    )
    if divisor is None:
        raise node.fail(f"beta is {node.get('beta'):g}; known: 0.25, 0.5, 0.75, 1, 1.5, 2, 3 and 4")
    return (node.add("div", node.edge(0), divisor),)


def _read_instance_norm(node: FileNode) -> tuple[str, ...]:
    """Read InstanceNormalization: each channel of each image by itself."""
    return (_scale_channels(node, _normalize(node, node.edge(0), tuple(range(2, len(node.shape()))))[0]),)


def _read_group_norm(node: FileNode) -> tuple[str, ...]:
    """Read GroupNormalization: groups of channels of each image by themselves."""
    shape, groups = node.shape(), node.get("num_groups", 0)
    if groups < 1 or shape[1] % groups or node.version < 21:
        raise node.fail(f"{groups} groups of {shape[1]} channels of opset {node.version}; export opset 21 or later")
    parts = node.reshape(node.edge(0), (shape[0], groups, shape[1] // groups, *shape[2:]))
    normalized, _, _ = _normalize(node, parts, tuple(range(2, len(shape) + 1)))
    return (_scale_channels(node, node.reshape(normalized, shape)),)


def _normalize(node: FileNode, x: str, axes: tuple[int, ...]) -> tuple[str, str, str]:
    """Return x - mean over its standard deviation along axes, the mean, and the standard deviation."""
    mean = add_mean(node, x, axes)
    apart = node.add("sub", x, mean)
    normalized, spread = _divide_by_root_mean_square(node, apart, axes)
    return normalized, mean, spread


def _divide_by_root_mean_square(node: FileNode, x: str, axes: tuple[int, ...]) -> tuple[str, str]:
    """Return x over the root of the mean of squares plus epsilon along axes, and that root."""
    squares = add_mean(node, node.add("mul", x, x), axes)
    root = node.add("sqrt", node.add("add", squares, node.constant_like(node.get("epsilon", 1e-5))))
    return node.add("div", x, root), root


def _scale_channels(node: FileNode, normalized: str) -> str:
    """Return the edge times a gain plus a bias for each channel."""
    column = (node.shape()[1], *[1] * (len(node.shape()) - 2))
    gain, bias = (node.reshape(node.edge(k), column) for k in (1, 2))
    return node.add("add", node.add("mul", normalized, gain), bias)


READERS: dict[str, Reader] = {
    "ArgMax": _arg_reader(True),
    "ArgMin": _arg_reader(False),
    "BatchNormalization": read_batch_norm,
    "GlobalAveragePool": _global_pool_reader(add_mean),
    "GlobalMaxPool": _global_pool_reader(_row_reducer("reduce_max")),
    "GroupNormalization": _read_group_norm,
    "InstanceNormalization": _read_instance_norm,
    "LRN": _read_lrn,
    "LayerNormalization": read_layer_norm,
    "LpNormalization": _read_lp_norm,
    "MeanVarianceNormalization": _read_mean_variance_norm,
    "RMSNormalization": read_rms_norm,
    "ReduceL1": _reduction_reader(add_absolute_sum),
    "ReduceL2": _reduction_reader(add_length),
    "ReduceMax": _reduction_reader(_row_reducer("reduce_max")),
    "ReduceMean": _reduction_reader(add_mean),
    "ReduceMin": _reduction_reader(_row_reducer("reduce_min")),
    "ReduceSum": _reduction_reader(_row_reducer("reduce_sum")),
    "ReduceSumSquare": _reduction_reader(add_square_sum),
    "SimplifiedLayerNormalization": read_rms_norm,
    "TopK": _read_top_k,
}
