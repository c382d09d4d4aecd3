"""Equalization of channels across layers: edges whose channels have very different ranges get similar ones.

All channels of an edge have one scale, so that a channel of small numbers has few codes. Between two products with a
function that is positive-homogeneous, f(s x) = s f(x) for s > 0, such as Relu, the network is the same if a channel of
the first product's results is divided by s, and the weights that the second multiplies it by are multiplied by s (Nagel
et al., *Data-Free Quantization Through Weight Equalization and Bias Correction*, 2019, section 4.1). Weights of the
first product have a scale for each of these channels anyway. Where each result of the second product reads one channel
(a depthwise convolution), its weights do too, and all ranges are made equal, up to the next power of two; else the
square root of the range is shared with the weights, as in the paper. Factors are powers of two: the float network gives
the same numbers, unless a result leaves the range of normal float32.

Given:  a = Relu(2 x, 32 x), of numbers up to 2 and up to 32 in two channels, which a depthwise convolution multiplies
        by 1 and by 1
Result: a = Relu(8 x, 8 x), which the convolution multiplies by 1/4 and by 4
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from bitsynth.network.check.data import Feed
from bitsynth.quantization.float_model import FloatModel, FloatRunner, WeightedProduct

_SAMPLES = 64
"""Samples that ranges are taken from."""
_MAX_EXPONENT = 6
"""The most that a channel's range is multiplied or divided by, as a power of two."""
_HOMOGENEOUS = (
    *("Relu", "LeakyRelu", "PRelu", "Identity"),
    *("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"),
)
"""Operators with f(s x) = s f(x) for s > 0 in each channel."""
_MIN_UNEVEN = 3.0
"""Weights that share a scale over channels are multiplied by factors where the largest range of these is at least 2**3
times the geometric mean of all. Where ranges differ less, which is usual, they may lose as much as the edge gains."""
_SMALLEST = 1e-12
"""A channel with a range below this has no numbers."""


@dataclass(frozen=True)
class Equalized:
    """A network whose channels were equalized.

    Args:
        network: The network; it computes what the one before did.
        edges: The edges whose channels were equalized.
        left: Why an edge between two products was left as it is, by edge.
    """

    network: FloatModel
    edges: tuple[str, ...]
    left: dict[str, str]


def equalize(network: FloatModel, samples: Sequence[Feed]) -> Equalized:
    """Return the network with equal channels, where two products have nothing else than a homogeneous function between.

    Args:
        network: The network.
        samples: Inputs that ranges are taken from.
    """
    pairs, left = _pairs(network)
    if not pairs:
        return Equalized(network, (), left)
    ranges = _ranges(network, [second for _, second in pairs], samples[:_SAMPLES])
    constants: dict[str, NDArray[Any]] = {}
    edges = []
    for first, second in pairs:
        divisor = _divisors(ranges[second.edge], _weights_read(network, second))
        if (divisor == 1).all():
            continue
        scaled: dict[str, NDArray[Any]] = {}
        for name, axis in _constants_of(network, first):
            value = constants.get(name, network.constants[name])
            shape = [-1 if k == axis % value.ndim else 1 for k in range(value.ndim)]
            scaled[name] = value / divisor.reshape(shape)
        weights = constants.get(second.weights, network.constants[second.weights])
        scaled[second.weights] = weights * _of_channels(second, weights, divisor)
        if all(map(_is_float32, scaled.values())):
            edges.append(second.edge)
            constants |= scaled
        else:
            left[second.edge] = "float32 does not hold the scaled weights"
    model = onnx.ModelProto()
    model.CopyFrom(network.model)
    for each in model.graph.initializer:
        if each.name in constants:
            each.CopyFrom(numpy_helper.from_array(constants[each.name].astype(np.float32), each.name))
    return Equalized(FloatModel(model), tuple(edges), left)


def _is_float32(values: NDArray[Any]) -> bool:
    """Return whether float32 holds all values exactly: factors may lead to infinities and to subnormal numbers."""
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float32) == values).all())


def _pairs(network: FloatModel) -> tuple[list[tuple[WeightedProduct, WeightedProduct]], dict[str, str]]:
    """Return the pairs of products that can be equalized, and why others cannot, by the edge that is read."""
    of_output = {product.output: product for product in network.products}
    pairs, left = [], {}
    for second in network.products:
        edge, why, is_flat, pools = second.edge, "", False, False
        while edge not in of_output and not why and edge in network.makers:
            node = network.makers[edge]
            why, is_flat = _why_not(network, edge, node), is_flat or node.op_type == "Flatten"
            pools |= node.op_type.endswith("Pool")
            edge = node.input[0]
        first = of_output.get(edge)
        why = why or _several(network, edge)
        if first is None or why:
            if edge in network.makers:
                left[second.edge] = why or f"no product before it ({network.makers[edge].op_type})"
        elif not _constants_of(network, first):
            left[second.edge] = f"the bias of {first.output} is not its own constant"
        elif pools and first.op != "Conv":
            left[second.edge] = f"a pool mixes channels of {first.output}, which are along the last axis"
        elif (first.op == "Conv") != (second.op == "Conv") and not is_flat:
            left[second.edge] = f"channels of {first.output} are along another axis"
        else:
            pairs.append((first, second))
    return pairs, left


def _several(network: FloatModel, edge: str) -> str:
    """Return that an edge has other readers, or is an output; empty if not."""
    if edge in network.outputs:
        return f"{edge} is an output"
    return f"several nodes read {edge}" if len(network.readers.get(edge, ())) > 1 else ""


def _why_not(network: FloatModel, edge: str, node: Any) -> str:
    """Return why a node before an edge is not homogeneous in each channel, or the edge is read elsewhere."""
    is_flat = node.op_type == "Flatten" and _of_points(network, node)
    if node.op_type not in _HOMOGENEOUS and not is_flat:
        return f"{node.op_type} is not homogeneous"
    if node.op_type == "PRelu" and node.input[1] not in network.constants:
        return "the slope of PRelu is computed"
    return _several(network, edge)


def _of_points(network: FloatModel, node: Any) -> bool:
    """Return whether a node's input has one number a channel."""
    maker, axis = network.makers.get(node.input[0]), next((a.i for a in node.attribute if a.name == "axis"), 1)
    return axis == 1 and maker is not None and maker.op_type in ("GlobalAveragePool", "GlobalMaxPool")


def _constants_of(network: FloatModel, product: WeightedProduct) -> list[tuple[str, int]]:
    """Return weights and bias of a product, and the axes of its channels; nothing if others read the bias."""
    node = network.makers[product.output]
    constants = [(product.weights, product.channel_axis)]
    if len(node.input) > 2 and node.input[2]:
        name = node.input[2]
        channels = network.constants[product.weights].shape[product.channel_axis]
        bias = network.constants.get(name)
        if bias is None or bias.shape[-1:] != (channels,) or len(network.readers[name]) > 1:
            return []
        constants.append((name, -1))
    return constants


def _ranges(
    network: FloatModel, products: Sequence[WeightedProduct], samples: Sequence[Feed]
) -> dict[str, NDArray[np.float64]]:
    """Return the greatest absolute number of each channel of the edges that products read."""
    run = FloatRunner(network.model, [product.edge for product in products])
    ranges: dict[str, NDArray[np.float64]] = {}
    for sample in samples:
        values = run(sample)
        for product in products:
            x = values[product.edge]
            axis = 1 if product.op == "Conv" else x.ndim - 1
            most = np.abs(x).max(axis=tuple(k for k in range(x.ndim) if k != axis)).astype(np.float64)
            ranges[product.edge] = np.maximum(ranges.get(product.edge, 0.0), most)
    return ranges


def _weights_read(network: FloatModel, product: WeightedProduct) -> NDArray[np.float64] | None:
    """Return the greatest weight of each channel read, relative to its row's greatest; None if rows read one
    channel."""
    weights = np.abs(network.constants[product.weights].astype(np.float64))
    index = _channels_read(product, weights.shape)
    axis = product.channel_axis
    if weights.shape[1 if product.op == "Conv" else 1 - axis] == 1:
        return None
    others = tuple(k for k in range(weights.ndim) if k != axis)
    relative = weights / np.maximum(weights.max(axis=others, keepdims=True), _SMALLEST)
    most = np.zeros(index.max() + 1)
    np.maximum.at(most, np.broadcast_to(index, weights.shape).reshape(-1), relative.reshape(-1))
    return most


def _channels_read(product: WeightedProduct, shape: Sequence[int]) -> NDArray[np.int64]:
    """Return the channel that each weight multiplies, in a shape that broadcasts to the weights'."""
    if product.op != "Conv":
        read = np.arange(shape[1 - product.channel_axis])
        return read.reshape((1, -1) if product.channel_axis == 0 else (-1, 1))
    groups = np.arange(shape[0]) // (shape[0] // product.group)
    read = groups[:, None] * shape[1] + np.arange(shape[1])
    return read.reshape(*read.shape, *(1 for _ in shape[2:]))


def _of_channels(product: WeightedProduct, weights: NDArray[Any], numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the number of the channel that each weight multiplies."""
    return numbers[_channels_read(product, weights.shape)]


def _divisors(ranges: NDArray[np.float64], weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the powers of two that channels are divided by, whose logarithms have a mean near 0."""
    if not np.isfinite(ranges).all():
        return np.ones(len(ranges))
    wanted = np.log2(np.maximum(ranges, _SMALLEST))
    used = ranges > _SMALLEST
    if weights is not None:
        used &= weights > _SMALLEST
    if not used.any():
        return np.ones(len(ranges))
    if weights is None:  # rounded up, so that no channel exceeds the one that had the largest range
        exponents = np.ceil(wanted - wanted[used].max())
        exponents -= np.rint(exponents[used].mean())
    elif wanted[used].max() - wanted[used].mean() < _MIN_UNEVEN:
        return np.ones(len(ranges))
    else:
        wanted = (wanted - np.log2(np.maximum(weights, _SMALLEST))) / 2
        exponents = np.rint(wanted - wanted[used].mean())
    return np.exp2(np.where(used, exponents.clip(-_MAX_EXPONENT, _MAX_EXPONENT), 0.0))
