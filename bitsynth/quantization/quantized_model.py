"""Quantized networks as ONNX files: quantizers of QONNX, or the same arithmetic in float operators to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from bitsynth.graph.read.file import edge_names
from bitsynth.quantization.calibration import Calibration, channel_means
from bitsynth.quantization.float_model import FloatRunner, WeightedProduct
from bitsynth.quantization.grids import QuantizerGrid

DOMAIN = "qonnx.custom_op.general"


@dataclass(frozen=True)
class Widths:
    """The bits of every quantizer; an edge or product that is left out stays in floats.

    Args:
        edges: Bits of activations, by edge.
        weights: Bits of weights, by product.
    """

    edges: Mapping[str, int]
    weights: Mapping[str, int]


@dataclass
class _Writer:
    """Adds quantizers to a copy of the model."""

    calibration: Calibration
    widths: Widths
    bias: Mapping[str, NDArray[np.float32]]
    runnable: bool
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    _used: set[str] = field(default_factory=set)
    same: dict[str, str] = field(default_factory=dict)
    """The quantized edge that stands for an edge."""

    def write(self) -> Any:
        """Return the model."""
        network = self.calibration.network
        source = network.model
        products = {p.name: p for p in network.products}
        replaced: set[str] = set()
        for edge in network.inputs:
            self._edge(edge)
        for node in source.graph.node:
            changed = onnx.NodeProto()
            changed.CopyFrom(node)
            for k, name in enumerate(node.input):
                changed.input[k] = self.same.get(name, name)
            product = products.get(node.name)
            if product and product.name in self.widths.weights:
                grid, weights = self.calibration.weights(product, self.widths.weights[product.name])
                replaced.add(product.weights)
                changed.input[1] = self._weights(product.weights, grid, weights)
            self.nodes.append(changed)
            if product and product.name in self.widths.weights:
                self._add_bias(changed, product)
            for name in node.output:
                self._edge(name)
        made = onnx.ModelProto()
        made.CopyFrom(source)
        del made.graph.node[:], made.graph.value_info[:], made.graph.initializer[:]
        made.graph.node.extend(self.nodes)
        made.graph.initializer.extend(x for x in source.graph.initializer if x.name not in replaced)
        made.graph.initializer.extend(self.constants)
        if not self.runnable:
            made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        return made

    def _fresh(self, name: str) -> str:
        """Return a name that no edge of the file has, and that was not given before."""
        self._used = self._used or set(edge_names(self.calibration.network.model.graph))
        while name in self._used:
            name += "_"
        self._used.add(name)
        return name

    def _constant(self, name: str, value: Any) -> str:
        """Add a constant; return its name."""
        name = self._fresh(name)
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _edge(self, edge: str) -> None:
        """Add the quantizer of an edge, if it has one."""
        if bits := self.widths.edges.get(edge):
            self.same[edge] = self._quantizer(edge, self.calibration.grid(edge, bits))

    def _weights(self, name: str, grid: QuantizerGrid, weights: NDArray[np.float32]) -> str:
        """Add quantized weights; return their edge."""
        values = self._constant(f"{name}.rounded", weights)
        return values if self.runnable else self._quantizer(values, grid)

    def _quantizer(self, edge: str, grid: QuantizerGrid) -> str:
        """Add a quantizer; return its result."""
        result = self._fresh(f"{edge}.quantized")
        scale = self._constant(f"{edge}.scale", np.asarray(grid.scale, np.float32))
        if grid.bipolar:
            self.nodes.append(helper.make_node("BipolarQuant", [edge, scale], [result], domain=DOMAIN))
        elif not self.runnable:
            parameters = [(f"{edge}.zero", float(grid.zero)), (f"{edge}.bits", float(grid.bits))]
            names = [self._constant(name, np.float32(value)) for name, value in parameters]
            signed = int(grid.signed)
            self.nodes.append(
                helper.make_node(
                    *("Quant", [edge, scale, *names], [result]),
                    domain=DOMAIN,
                    signed=signed,
                    narrow=signed,
                    rounding_mode="ROUND",
                )
            )
        else:
            low, high = (np.float32(limit - grid.zero) for limit in grid.limits)
            ends = [self._constant(f"{edge}.low", low), self._constant(f"{edge}.high", high)]
            divided, whole, codes = (self._fresh(f"{edge}.{part}") for part in ("divided", "whole", "codes"))
            self.nodes += [
                helper.make_node("Div", [edge, scale], [divided]),
                helper.make_node("Round", [divided], [whole]),
                helper.make_node("Clip", [whole, *ends], [codes]),
                helper.make_node("Mul", [codes, scale], [result]),
            ]
        return result

    def _add_bias(self, node: Any, product: WeightedProduct) -> None:
        """Add the bias and its correction to a product, as whole accumulators, so that it costs nothing."""
        network = self.calibration.network
        place = 2 if node.op_type in ("Conv", "Gemm") else -1
        has_own = place == 2 and len(node.input) > 2 and node.input[2] in network.constants
        own = network.constants[node.input[2]] if has_own else np.zeros(1, np.float32)
        if place == 2 and len(node.input) > 2 and node.input[2] and not has_own:
            return  # a third operand that is computed when the network runs
        channels = network.constants[product.weights].shape[product.channel_axis]
        if own.size not in (1, channels):
            return  # a bias of rows
        beta = next((a for a in node.attribute if a.name == "beta"), None)
        total = self._whole(product, own * (beta.f if beta else 1.0) + self.bias.get(product.name, 0))
        if beta:
            beta.f = 1.0
        if not total.any() and not has_own:
            return
        name = self._constant(f"{node.name}.bias", total.astype(np.float32))
        if place == 2:
            del node.input[2:]
            node.input.append(name)
        else:
            output = node.output[0]
            node.output[0] = self._fresh(f"{output}.product")
            self.nodes.append(helper.make_node("Add", [node.output[0], name], [output]))

    def _whole(self, product: WeightedProduct, bias: NDArray[Any]) -> NDArray[Any]:
        """Return a bias (channels,) rounded to multiples of what one accumulator stands for.

        Before a residual addition it is rounded to odd multiples of half an accumulator. Then no sum lies in the middle
        between two codes, where an error of any size in a float32 formula would change the code.
        """
        channels = self.calibration.network.constants[product.weights].shape[product.channel_axis]
        bias = np.broadcast_to(np.asarray(bias, np.float64).reshape(-1), (channels,))
        if product.edge not in self.widths.edges:
            return bias
        grid, _ = self.calibration.weights(product, self.widths.weights[product.name])
        unit = grid.scale.reshape(-1).astype(np.float64) * float(
            self.calibration.grid(product.edge, self.widths.edges[product.edge]).scale
        )
        half = 0.5 * self.calibration.network.is_added(product.output)
        return np.asarray((np.rint(bias / unit - half) + half) * unit)


def write_model(
    calibration: Calibration,
    widths: Widths,
    bias: Mapping[str, NDArray[np.float32]] | None = None,
    *,
    runnable: bool = False,
) -> Any:
    """Return a network with quantizers as an ONNX model.

    Args:
        calibration: The float network, with the grids of its quantizers.
        widths: The bits of every quantizer.
        bias: Numbers (channels,) to add to the results of products, by product.
        runnable: Whether quantizers are float operators, which ONNX Runtime runs; else they are those of QONNX.
    """
    return _Writer(calibration, widths, bias or {}, runnable).write()


def correct_bias(calibration: Calibration, widths: Widths) -> dict[str, NDArray[np.float32]]:
    """Return what makes the mean of each channel of every product that of the float network, on the first samples.

    Quantized weights and activations move the means of accumulators (Nagel et al., 2019, section 4.2). Products are
    corrected in order: each sees the corrected ones before it.
    """
    bias: dict[str, NDArray[np.float32]] = {}
    for product in calibration.network.products:
        run = FloatRunner(write_model(calibration, widths, bias, runnable=True), [product.output])
        means = [channel_means(product, run(sample)[product.output]) for sample in calibration.bias_samples]
        bias[product.name] = (calibration.means[product.name] - sum(means) / len(means)).astype(np.float32)
    return bias
