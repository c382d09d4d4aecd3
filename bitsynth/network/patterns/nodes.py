"""Nodes of a pre-quantized file: products and requantization, pools and moves of codes, and floats.

A product is an integer product, a float32 factor and QuantizeLinear. Floats are functions, casts and quantizers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.reference import run
from bitsynth.graph.types import INT32, Edge, Integers, Tensor
from bitsynth.layers.epilogues import Rescale
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas import EpilogueForm
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.fusion.layer_maker import Product
from bitsynth.network.patterns.writer import PatternWriter, refusal
from bitsynth.spec.matmul import MatmulOperand

_FUNCTIONS = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
}


def find_constant_nodes(graph: Graph) -> tuple[Node, ...]:
    """Return the nodes that depend on constants alone."""
    known, nodes = {*graph.constants}, []
    for node in graph.nodes:
        if known.issuperset(node.inputs):
            nodes.append(node)
            known |= set(node.outputs)
    return tuple(nodes)


def is_function(def_use: DefUse, node: Node) -> bool:
    """Return whether a node is a function of floats that ONNX has too."""
    return node.op in _FUNCTIONS and not isinstance(def_use.graph.edges[node.outputs[0]].type, Integers)


def write_function(writer: PatternWriter, def_use: DefUse, node: Node) -> None:
    """Write the operator, in the float type of its result."""
    given, dtype = [], def_use.graph.edges[node.outputs[0]].dtype
    for edge in def_use.graph.edges_of(node.inputs):
        numbers = _constant(def_use.graph, edge.name)
        given.append(writer.floats(edge) if numbers is None else writer.constant(numbers, dtype))
    writer.node(_FUNCTIONS[node.op], given, node.outputs[0])
    writer.held[node.outputs[0]] = None


def is_cast(def_use: DefUse, node: Node) -> bool:
    """Return whether a node rounds floats to 16 or 32 bits in the network's reference."""
    graph = def_use.graph
    kinds = [edge.dtype for edge in graph.edges_of((*node.inputs, *node.outputs))]
    return graph.reference == "onnxruntime" and node.op == "cast" and {"float16", "float32"}.issuperset(kinds)


def write_cast(writer: PatternWriter, def_use: DefUse, node: Node) -> None:
    """Write a cast to the float type of the edge."""
    given, result = def_use.graph.edges_of((node.inputs[0], node.outputs[0]))
    writer.held[writer.cast(writer.floats(given), result.dtype, result.name)] = None


def is_quantizer(def_use: DefUse, node: Node) -> bool:
    """Return whether a node is QuantizeLinear of float32 in the network's reference, for example after a function."""
    if node.op != "quantize" or def_use.graph.reference != "onnxruntime":
        return False
    (given, result), settings = def_use.graph.edges_of((node.inputs[0], node.outputs[0])), node.attributes
    operand = operand_of(result)
    return (
        (given.dtype, settings["real"], settings["rounding"]) == ("float32", "float32", "ROUND")
        and operand is not None
        and operand.scale == 1
        and np.size(settings["zero"]) == 1
        and 0 <= int(np.asarray(settings["zero"]).item()) - operand.offset <= 255
        and not (settings["zero_first"] and np.any(settings["zero"]))
    )


def write_quantizer(writer: PatternWriter, def_use: DefUse, node: Node) -> None:
    """Write QuantizeLinear unchanged."""
    given, result = def_use.graph.edges_of((node.inputs[0], node.outputs[0]))
    operand, value, scale = writer.codes(result), writer.floats(given), np.asarray(node.attributes["scale"])
    assert operand is not None
    if scale.size > 1:
        value, scale = writer.node("Div", [value, writer.constant(scale, "float32")]), np.ones(1)
    zero, low, high = (int(np.asarray(node.attributes[n]).item()) - operand.offset for n in ("zero", "low", "high"))
    writer.quantize(value, scale.item(), zero, (low, high), result.name)


def _constant(graph: Graph, name: str) -> Tensor | None:
    """Return the numbers of an edge that depends on no input; None for other edges."""
    nodes = find_constant_nodes(graph)
    if name not in {*graph.constants, *(output for node in nodes for output in node.outputs)}:
        return None
    builder = GraphBuilder.begin_from(graph)
    builder.inputs.clear()
    for node in nodes:
        builder.repeat(node)
    return np.asarray(run(builder.build((name,)), {}).floats(name))


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
    value = writer.scale(value, along(rescale.scale, axis, rank))
    if rescale.bias is not None:
        value = writer.node("Add", [value, writer.constant(along(rescale.bias, axis, rank), "float32")])
    if residual is not None and rescale.residual is not None:
        other = writer.cast(residual.name, "float32")
        if rescale.residual.zero_point:
            other = writer.node("Sub", [other, writer.constant(rescale.residual.zero_point, "float32")])
        other = writer.scale(other, along(rescale.residual.scale, axis, rank))
        value = writer.node("Add", [value, other])
    codes = writer.quantize(value, 1.0, rescale.zero_point, rescale.codes, "" if moved else end.name)
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
    assert product.weight is not None, "weights are constant"
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


Write = Callable[[PatternWriter], None]


def writer_of(def_use: DefUse, node: Node) -> Write | None:
    """Return the function that writes a single node; None if there is none."""
    writers = (write for fits, write in _WRITERS if fits(def_use, node))
    write = next(writers, None)
    return None if write is None else lambda writer: write(writer, def_use, node)


def keeps(def_use: DefUse, node: Node) -> bool:
    """Return whether a node keeps integers and changes scale or zero point alone."""
    source = def_use.only_source(node)
    if not source or node.op not in ("mul", "div", "view", "cast"):
        return False
    before, after = def_use.graph.edges_of((source, node.outputs[0]))
    if not isinstance(before.type, Integers) or not isinstance(after.type, Integers) or before.shape != after.shape:
        return False
    factors = [def_use.graph.constants.get(e) for e in node.inputs if e != source or node.inputs.count(e) > 1]
    if not all(factor is not None and (factor > 0).all() for factor in factors):
        return False  # integers times -1 may have the range they had
    (low, high), (new_low, new_high) = ((kind.low, kind.high) for kind in (before.type, after.type))
    return bool(np.array_equal(low, new_low) and np.array_equal(high, new_high))


def _same(writer: PatternWriter, def_use: DefUse, node: Node) -> None:
    (given, *_) = (name for name in node.inputs if name in writer.held)
    writer.held[writer.node("Identity", [given], node.outputs[0])] = writer.held[given]


def _move(writer: PatternWriter, def_use: DefUse, node: Node) -> None:
    (given,), (result,) = node.inputs, node.outputs
    if node.op == "reshape":
        sizes = writer.constant(def_use.graph.edges[result].shape, "int64")
        writer.node("Reshape", [given, sizes], result)
    else:
        writer.node("Transpose", [given], result, perm=list(node.attributes["order"]))
    writer.held[result] = writer.held.get(given)


def _max_pool(writer: PatternWriter, def_use: DefUse, node: Node) -> None:
    window, (given,), (result,) = node.attributes["window"], node.inputs, node.outputs
    if writer.held[given] is None:
        raise refusal(node, "its integers are no codes")
    ends = window.ends
    if window.ceil:  # the rule for the last window is not the same in all versions of ONNX
        image, count = (def_use.graph.edges[name].shape[2:] for name in (given, result))
        reach = [(n - 1) * s + r for n, s, r in zip(count, window.strides, window.reach, strict=True)]
        ends = [max(0, r - n - b) for r, n, b in zip(reach, image, window.begins, strict=True)]
    sizes = {"kernel_shape": window.kernel, "strides": window.strides, "dilations": window.dilations}
    writer.node("MaxPool", [given], result, **sizes, pads=[*window.begins, *ends])
    writer.held[result] = writer.held[given]


def _sum(writer: PatternWriter, def_use: DefUse, node: Node) -> None:
    """Write a sum of integers less their zero point; as codes, if the result is unsigned and narrow enough."""
    given, result = def_use.graph.edges[node.inputs[0]], def_use.graph.edges[node.outputs[0]]
    operand = operand_of(result)
    narrow = operand is not None and operand.offset == 0 and operand.scale == 1
    axes = writer.constant(node.attributes["axes"], "int64")
    terms = writer.integers(given)
    if given.integers.zero.any():
        terms = writer.node("Sub", [terms, writer.constant(given.integers.zero, "int32")])
    sums = writer.node("ReduceSum", [terms, axes], "" if narrow else result.name, keepdims=1)
    if narrow:
        writer.cast(sums, "uint8", result.name)
    writer.held[result.name] = operand if narrow else None


def _is_move(def_use: DefUse, node: Node) -> bool:
    return node.op in ("reshape", "transpose")


def _is_pool_of_codes(def_use: DefUse, node: Node) -> bool:
    return node.op == "max_pool" and _is_whole(def_use, node) and bool(operand_of(def_use.graph.edges[node.inputs[0]]))


def _is_sum(def_use: DefUse, node: Node) -> bool:
    return node.op == "reduce_sum" and _is_whole(def_use, node)


def _is_whole(def_use: DefUse, node: Node) -> bool:
    return isinstance(def_use.graph.edges[node.outputs[0]].type, Integers)


_WRITERS: tuple[tuple[Callable[[DefUse, Node], bool], Callable[[PatternWriter, DefUse, Node], None]], ...] = (
    (_is_move, _move),
    (_is_pool_of_codes, _max_pool),
    (_is_sum, _sum),
    (keeps, _same),
    (is_function, write_function),
    (is_cast, write_cast),
    (is_quantizer, write_quantizer),
)
