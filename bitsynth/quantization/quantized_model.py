"""Quantized networks as ONNX files: quantizers of QONNX, or the same arithmetic in float operators to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from bitsynth.errors import SpecError
from bitsynth.graph.read.file import edge_names
from bitsynth.quantization.calibration import Calibration
from bitsynth.quantization.float_model import FloatModel, WeightedProduct, names_read
from bitsynth.quantization.grids import QuantizerGrid, WeightCodes
from bitsynth.spec.matmul import MAX_BITS

FileFormat = Literal["qonnx", "qcdq", "qdq"]
FILE_FORMATS: tuple[FileFormat, ...] = ("qonnx", "qcdq", "qdq")
DOMAIN = "qonnx.custom_op.general"


@dataclass(frozen=True)
class Widths:
    """The bits of every quantizer; an edge or product that is left out stays in floats.

    Args:
        edges: Bits of activations, by edge.
        weights: Bits of weights, by product.
        bipolar: The products whose weights of 2 bits or more are bipolar, that is odd.
    """

    edges: Mapping[str, int]
    weights: Mapping[str, int]
    bipolar: frozenset[str] = frozenset()

    def codes(self, product: str) -> WeightCodes:
        """Return the codes of a product's weights."""
        return WeightCodes(self.weights[product], product in self.bipolar)


@dataclass(frozen=True)
class Corrections:
    """Constants of products, and grids of edges, that differ from the calibration's.

    Args:
        bias: Numbers (channels,) to add to the results of products, by product.
        weights: The grid and the rounded weights, by product.
        edges: The grid, by edge.
    """

    bias: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    weights: Mapping[str, tuple[QuantizerGrid, NDArray[np.float32]]] = field(default_factory=dict)
    edges: Mapping[str, QuantizerGrid] = field(default_factory=dict)


def bias_of(network: FloatModel, product: WeightedProduct) -> NDArray[np.float32] | None:
    """Return the bias of a product in the float network, (channels,) or one number.

    None if none can be added: it has a third operand that is computed when the network runs, or a bias of rows.
    """
    node = network.makers[product.output]
    if node.op_type == "MatMul" or len(node.input) < 3 or not node.input[2]:
        return np.zeros(1, np.float32)
    own = network.constants.get(node.input[2])
    channels = network.constants[product.weights].shape[product.channel_axis]
    if own is None or (own.size > 1 and (own.size, own.shape[-1]) != (channels, channels)):
        return None
    beta = next((a.f for a in node.attribute if a.name == "beta"), 1.0)
    return np.asarray(own.reshape(-1) * np.float32(beta), np.float32)


@dataclass
class _Writer:
    """Adds quantizers to a copy of the model."""

    calibration: Calibration
    widths: Widths
    corrections: Corrections
    runnable: bool
    file_format: FileFormat = "qonnx"
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
        for edge in network.inputs:
            self._edge(edge)
        for node in source.graph.node:
            changed = onnx.NodeProto()
            changed.CopyFrom(node)
            for k, name in enumerate(node.input):
                changed.input[k] = self.same.get(name, name)
            product = products.get(node.name)
            if product and product.name in self.widths.weights:
                grid, weights = self._round(product)
                changed.input[1] = self._weights(product.weights, grid, weights)
            self.nodes.append(changed)
            if product and product.name in self.widths.weights:
                self._add_bias(changed, product)
            for name in node.output:
                self._edge(name)
        model = onnx.ModelProto()
        model.CopyFrom(source)
        del model.graph.node[:], model.graph.value_info[:], model.graph.initializer[:]
        model.graph.node.extend(self.nodes)
        read = {name for node in self.nodes for name in names_read(node)} | {*network.outputs}
        model.graph.initializer.extend(x for x in (*source.graph.initializer, *self.constants) if x.name in read)
        if not self.runnable and self.file_format == "qonnx":
            model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        return model

    def _round(self, product: WeightedProduct) -> tuple[QuantizerGrid, NDArray[np.float32]]:
        """Return the grid of a product's weights, and the weights on it."""
        corrected = self.corrections.weights.get(product.name)
        return corrected or self.calibration.weights(product, self.widths.codes(product.name))

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
            self.same[edge] = self._quantizer(edge, self._grid(edge, bits))

    def _grid(self, edge: str, bits: int) -> QuantizerGrid:
        """Return the grid of an edge."""
        return self.corrections.edges.get(edge) or self.calibration.grid(edge, bits)

    def _weights(self, name: str, grid: QuantizerGrid, weights: NDArray[np.float32]) -> str:
        """Add quantized weights; return their edge."""
        if not self.runnable and self.file_format != "qonnx":
            return self._integer_weights(name, grid, weights)
        values = self._constant(f"{name}.rounded", weights)
        return values if self.runnable else self._quantizer(values, grid)

    def _quantizer(self, edge: str, grid: QuantizerGrid) -> str:
        """Add a quantizer; return its result."""
        result = self._fresh(f"{edge}.quantized")
        scale = self._constant(f"{edge}.scale", np.asarray(grid.scale, np.float32))
        if grid.bipolar and grid.bits == 1:
            self.nodes.append(helper.make_node("BipolarQuant", [edge, scale], [result], domain=DOMAIN))
        elif not self.runnable and self.file_format != "qonnx":
            self._integer_quantizer(edge, result, scale, grid)
        elif not self.runnable:
            parameters = [(f"{edge}.zero", float(grid.zero)), (f"{edge}.bits", float(_count_written_bits(grid)))]
            names = [self._constant(name, np.float32(value)) for name, value in parameters]
            signed = int(grid.signed or grid.bipolar)
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

    def _integer_quantizer(self, edge: str, result: str, scale: str, grid: QuantizerGrid) -> None:
        """Add QuantizeLinear, Clip for codes of fewer than 8 bits, and DequantizeLinear."""
        low, high = grid.limits
        zero = self._constant(f"{edge}.zero", np.uint8(grid.zero))
        codes = self._fresh(f"{edge}.codes")
        self.nodes.append(helper.make_node("QuantizeLinear", [edge, scale, zero], [codes]))
        if grid.bits < MAX_BITS:
            if self.file_format == "qdq":
                raise SpecError(
                    f"--format qdq: activations of {edge} have {grid.bits} bits, and QDQ files 8; allow only 8 bits of "
                    "activations (--act-bits 8), or write --format qcdq"
                )
            ends = [self._constant(f"{edge}.{end}", np.uint8(n)) for end, n in (("low", low), ("high", high))]
            clipped = self._fresh(f"{edge}.clipped")
            self.nodes.append(helper.make_node("Clip", [codes, *ends], [clipped]))
            codes = clipped
        self.nodes.append(helper.make_node("DequantizeLinear", [codes, scale, zero], [result]))

    def _integer_weights(self, name: str, grid: QuantizerGrid, weights: NDArray[np.float32]) -> str:
        """Add weights as int8 codes, a Clip that shows their bits in QCDQ, and DequantizeLinear; return their edge."""
        if grid.bipolar and grid.bits == 1:
            raise SpecError(
                f"--format {self.file_format}: {name} has 1-bit weights of two values, which it cannot express; allow "
                "2 bits or more (--w-bits), or write --format qonnx"
            )
        axes = [axis for axis, size in enumerate(grid.scale.shape) if size > 1]
        axis = axes[0] if axes else 0
        scales = grid.scale.reshape(-1) if axes else grid.scale.reshape(())
        codes = self._constant(f"{name}.codes", np.rint(weights / grid.scale).astype(np.int8))
        scale = self._constant(f"{name}.scale", np.asarray(scales, np.float32))
        zero = self._constant(f"{name}.zero", np.zeros(scales.shape, np.int8))
        if _count_written_bits(grid) < MAX_BITS and self.file_format == "qcdq":
            low, high = grid.limits
            ends = [self._constant(f"{name}.{end}", np.int8(n)) for end, n in (("low", low), ("high", high))]
            clipped = self._fresh(f"{name}.clipped")
            self.nodes.append(helper.make_node("Clip", [codes, *ends], [clipped]))
            codes = clipped
        result = self._fresh(f"{name}.quantized")
        self.nodes.append(helper.make_node("DequantizeLinear", [codes, scale, zero], [result], axis=axis))
        return result

    def _add_bias(self, node: Any, product: WeightedProduct) -> None:
        """Add the bias and its correction to a product, as whole accumulators, so that it costs nothing."""
        own = bias_of(self.calibration.network, product)
        if own is None:
            return
        place = 2 if node.op_type in ("Conv", "Gemm") else -1
        has_own = place == 2 and len(node.input) > 2 and bool(node.input[2])
        total = self._whole(product, own + self.corrections.bias.get(product.name, 0))
        for attribute in node.attribute:
            if attribute.name == "beta":
                attribute.f = 1.0
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
        grid, _ = self._round(product)
        edge_scale = self._grid(product.edge, self.widths.edges[product.edge]).scale
        unit = grid.scale.reshape(-1).astype(np.float64) * float(edge_scale)
        half = 0.5 * self.calibration.network.is_added(product.output)
        return np.asarray((np.rint(bias / unit - half) + half) * unit)


def _count_written_bits(grid: QuantizerGrid) -> int:
    """Return the bits of a quantizer in the file: odd codes lie among the codes of a bit more, symmetric around 0.

    Readers see that all of the constant weights are odd: -3, -1, 1 and 3 are codes of 2 bits.
    """
    return grid.bits + (grid.bipolar and grid.bits > 1)


def write_model(
    calibration: Calibration,
    widths: Widths,
    corrections: Corrections | None = None,
    *,
    runnable: bool = False,
    file_format: FileFormat = "qonnx",
) -> Any:
    """Return a network with quantizers as an ONNX model.

    Args:
        calibration: The float network, with the grids of its quantizers.
        widths: The bits of every quantizer.
        corrections: Other weights and biases of products.
        runnable: Whether quantizers are float operators, which ONNX Runtime runs; else they are the format's operators.
        file_format: "qonnx"; "qcdq" (QuantizeLinear, Clip, DequantizeLinear); or "qdq", of 8-bit activations.

    Raises:
        SpecError: The format cannot express the widths.
    """
    return _Writer(calibration, widths, corrections or Corrections(), runnable, file_format).write()
