"""Products and requantization in the patterns: integer products, a float32 factor, QuantizeLinear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bitsynth.graph.ir import Node
from bitsynth.graph.types import INT32, Edge, Tensor
from bitsynth.layers.epilogues import Rescale
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas import EpilogueForm
from bitsynth.network.fusion.layer_maker import Product
from bitsynth.network.patterns.writer import PatternWriter, refusal
from bitsynth.spec.matmul import MatmulOperand


@dataclass(frozen=True, eq=False)
class PatternForm:
    """The requantization of `gain` times the accumulators plus integers `bias`, one for all or one a channel."""

    epilogue: Rescale
    bias: Tensor
    gain: int = 1

    @classmethod
    def of(cls, form: EpilogueForm) -> PatternForm:
        """Return the form of a layer's float32 epilogue."""
        assert isinstance(form.epilogue, Rescale)
        return cls(form.epilogue, form.bias)


def write_sums(writer: PatternWriter, def_use: DefUse, product: Product, form: PatternForm | None) -> str:
    """Write ConvInteger or MatMulInteger, and Add of the bias in int32; return the name of the accumulators."""
    output, gain = ("", form.gain) if form else (product.end, 1)
    node = product.nodes[-1] if product.nodes[-1].op != "add" else product.nodes[-2]
    operand = writer.held[product.start]
    if operand is None:
        raise refusal(node, "its activations have more than 8 bits")
    weight, first = _weights(node, product, operand, gain)
    zero = (product.zero_point - operand.offset) // operand.scale if operand.scale == 1 else 0
    if not 0 <= zero <= 255:
        raise refusal(node, f"its activations' zero point {zero} is no uint8")
    bias = product.bias * gain + first + (form.bias if form else 0)
    if bias.min() < INT32[0] or bias.max() > INT32[1]:
        raise refusal(node, "its bias is beyond int32")
    given = [product.start, writer.constant(_as_written(def_use, node, weight), "int8"), writer.constant(zero, "uint8")]
    biased = bool(bias.any())
    name, attributes = ("MatMulInteger", {}) if node.op == "matmul" else ("ConvInteger", _window(node))
    sums = writer.node(name, given, "" if biased else output, **attributes)
    if not biased:
        return sums
    shape = def_use.graph.edges[product.end].shape
    return writer.node("Add", [sums, writer.constant(along(bias, product.axis, len(shape)), "int32")], output)


def write_codes(
    writer: PatternWriter, sums: str, ends: tuple[Edge, Edge], form: PatternForm, axis: int, residual: Edge | None
) -> None:
    """Write Cast, Mul, Add (for a residual, or where an integer bias is too coarse), QuantizeLinear and Clip."""
    (start, end), rescale = ends, form.epilogue
    rank, moved = len(start.shape), start.shape != end.shape
    value = writer.cast(sums, "float32")
    value = writer.scaled(value, along(rescale.scale, axis, rank))
    if rescale.bias is not None:
        value = writer.node("Add", [value, writer.constant(along(rescale.bias, axis, rank), "float32")])
    if residual is not None and rescale.residual is not None:
        other = writer.cast(residual.name, "float32")
        if rescale.residual.zero_point:
            other = writer.node("Sub", [other, writer.constant(rescale.residual.zero_point, "float32")])
        other = writer.scaled(other, along(rescale.residual.scale, axis, rank))
        value = writer.node("Add", [value, other])
    codes = writer.quantized(value, 1.0, rescale.zero_point, rescale.codes, "" if moved else end.name)
    if moved:
        writer.node("Reshape", [codes, writer.constant(end.shape, "int64")], end.name)
    writer.codes(end)


def along(values: Any, axis: int, rank: int) -> Tensor:
    """Return one number, or one a channel along an axis of `rank` axes."""
    array = np.asarray(values).reshape(-1)
    if array.size == 1 or (array == array[0]).all():
        return array[:1].reshape(())
    return array.reshape([-1 if k == axis else 1 for k in range(rank)])


def _weights(node: Node, product: Product, operand: MatmulOperand, gain: int) -> tuple[Tensor, Tensor]:
    """Return the weights for codes, and the correction of each channel's accumulator for bipolar codes 0 and 1."""
    weight, none = product.weight * operand.scale * gain, np.zeros(1, np.int64)
    if np.abs(weight + 0.5).max() > 127.5:
        raise refusal(node, "its weights are no int8")
    if operand.scale == 1:
        return weight, none
    if np.any(product.window["padding"]):
        raise refusal(node, "it pads integers -1 and 1, which have no 0")
    return weight, gain * product.weight.reshape(len(weight), -1).sum(1) * (operand.offset - product.zero_point)


def _as_written(def_use: DefUse, node: Node, weight: Tensor) -> Tensor:
    shape = def_use.graph.edges[node.inputs[1]].shape
    return weight.T if node.op == "matmul" else weight.reshape(shape)


def _window(node: Node) -> dict[str, Any]:
    window = node.attributes["window"]
    return {
        "kernel_shape": window.kernel,
        "strides": window.strides,
        "dilations": window.dilations,
        "pads": [*window.begins, *window.ends],
        "group": int(node.attributes["groups"]),
    }
