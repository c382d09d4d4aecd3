"""Quantized nodes of com.microsoft, as ONNX Runtime's tools write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.graph.read.activation_nodes import softmax_axes
from bitsynth.graph.read.float_nodes import Reader, cast_to
from bitsynth.graph.read.layouts import by_layout
from bitsynth.graph.read.linear_nodes import (
    dequantize,
    out_dtype,
    per_channel,
    plain,
    quantize,
    requantized,
    scale_of,
    zero_of,
)
from bitsynth.graph.read.move_nodes import concatenated
from bitsynth.graph.read.quantizer import quantized_to
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.read.window_nodes import averaged, turned
from bitsynth.graph.types import Tensor, cast, limits


def _qgemm(node: FileNode) -> tuple[str, ...]:
    a, b = turned(node, 0, "transA", plain(node, 0, 2)), plain(node, 3, 5, 0 if node.get("transB") else 1)
    sums = node.add("matmul", a, turned(node, 3, "transB", b), dtype="int32")
    if node.has(6):
        sums = node.add("add", sums, node.edge(6))
    alpha = np.float32(node.get("alpha", 1.0))
    first = (scale_of(node, 1) * alpha).reshape(())
    second = per_channel(scale_of(node, 4), 2, 1)
    if not node.has(7):
        product = (first * second).astype(np.float32)
        return (node.add("mul", cast_to(node, sums, "float32"), node.constant(product)),)
    factors = first, second, scale_of(node, 7).reshape(())
    return (requantized(node, sums, factors, zero_of(node, 8), out_dtype(node, 8)),)


def _grid(node: FileNode, scale: int, zero: int) -> tuple[Tensor, Tensor]:
    return scale_of(node, scale).reshape(()), zero_of(node, zero).reshape(())


def _dequantized(node: FileNode, index: int, scale: Tensor, zero: Tensor) -> str:
    node.integers(index)
    return node.add(
        "view", node.edge(index), scale=scale.astype(np.float64), zero=zero.astype(np.float64), dtype=str(scale.dtype)
    )


def _qlinear_add(node: FileNode) -> tuple[str, ...]:
    for k in (0, 3):
        node.integers(k)
    grids = (*_grid(node, 1, 2), *_grid(node, 4, 5), *_grid(node, 6, 7))
    low, high = limits(node.of(0).dtype)
    made = node.add(
        "add_codes",
        node.edge(0),
        node.edge(3),
        grids=grids,
        low=low,
        high=high,
        rounding="ROUND",
        out_scale=1.0,
        out_zero=0.0,
        dtype=node.of(0).dtype,
    )
    return (made,)


def _by_table(op: str, **defaults: Any) -> Reader:
    """A function of codes: dequantized, computed in floats, quantized."""

    def read(node: FileNode) -> tuple[str, ...]:
        made = _dequantized(node, 0, *_grid(node, 1, 2))
        made = node.add(op, made, **{k: float(node.get(k, v)) for k, v in defaults.items()})
        return (quantized_to(node, made, *_grid(node, 3, 4), node.of(0).dtype),)

    return read


def _qlinear_softmax(node: FileNode) -> tuple[str, ...]:
    """Of dequantized codes; ONNX Runtime adds powers in a fixed point that it does not document, at most a code off."""
    made = _dequantized(node, 0, *_grid(node, 1, 2))
    made = node.add("softmax", made, axes=softmax_axes(node, int(node.get("opset", 13))))
    return (quantized_to(node, made, *_grid(node, 3, 4), node.of(0).dtype),)


def _qlinear_concat(node: FileNode) -> tuple[str, ...]:
    scale, zero = _grid(node, 0, 1)
    edges = []
    for k in range(2, len(node.inputs), 3):
        own = _grid(node, k + 1, k + 2)
        same = own[0] == scale and own[1] == zero
        made = node.edge(k)
        if not same:
            made = quantized_to(node, _dequantized(node, k, *own), scale, zero, node.of(1).dtype)
        edges.append(made)
    if not edges:
        raise node.fail("has nothing to concatenate")
    rank = len(node.graph.edges[edges[0]].shape)
    return (concatenated(node, edges, node.axis(int(node.get("axis", 1)), rank)),)


def _qlinear_mul(node: FileNode) -> tuple[str, ...]:
    product = node.add("mul", plain(node, 0, 2), plain(node, 3, 5))
    factors = (scale_of(node, 1).reshape(()), scale_of(node, 4).reshape(()), scale_of(node, 6).reshape(()))
    return (requantized(node, product, factors, zero_of(node, 7), out_dtype(node, 7), zero_first=True),)


def _qlinear_average_pool(node: FileNode) -> tuple[str, ...]:
    made = averaged(node, _dequantized(node, 0, *_grid(node, 1, 2)), str(scale_of(node, 1).dtype))
    return (quantized_to(node, made, *_grid(node, 3, 4), node.of(0).dtype, zero_first=True),)


def _qlinear_global_pool(node: FileNode) -> tuple[str, ...]:
    rank = len(node.shape())
    axes = tuple(range(1, rank - 1) if node.get("channels_last") else range(2, rank))
    sums = node.add("reduce_sum", plain(node, 0, 2), axes=axes)
    count = cast(np.prod([node.shape()[a] for a in axes]), str(scale_of(node, 3).dtype))
    over = (scale_of(node, 3) * count).reshape(())
    factors = scale_of(node, 1).reshape(()), np.ones((), over.dtype), over
    return (requantized(node, sums, factors, zero_of(node, 4), out_dtype(node, 4)),)


READERS: dict[str, Reader] = {
    "DequantizeLinear": dequantize,
    "QGemm": _qgemm,
    "QLinearAdd": _qlinear_add,
    "QLinearAveragePool": by_layout(_qlinear_average_pool),
    "QLinearConcat": _qlinear_concat,
    "QLinearGlobalAveragePool": _qlinear_global_pool,
    "QLinearLeakyRelu": _by_table("leaky_relu", alpha=0.01),
    "QLinearMul": _qlinear_mul,
    "QLinearSigmoid": _by_table("sigmoid"),
    "QLinearSoftmax": _qlinear_softmax,
    "QuantizeLinear": quantize,
}
