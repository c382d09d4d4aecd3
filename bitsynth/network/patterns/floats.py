"""Floats in a pre-quantized file: functions, casts, and quantizers."""

from __future__ import annotations

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.reference import run
from bitsynth.graph.types import Integers, Tensor
from bitsynth.network.def_use import DefUse
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.patterns.writer import PatternWriter

_FUNCTIONS = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
}


def made_of_constants(graph: Graph) -> tuple[Node, ...]:
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
    writer.quantized(value, scale.item(), zero, (low, high), result.name)


def _constant(graph: Graph, name: str) -> Tensor | None:
    """Return the numbers of an edge that depends on no input; None for other edges."""
    nodes = made_of_constants(graph)
    if name not in {*graph.constants, *(output for node in nodes for output in node.outputs)}:
        return None
    builder = GraphBuilder.begin_from(graph)
    builder.inputs.clear()
    for node in nodes:
        builder.repeat(node)
    return np.asarray(run(builder.build((name,)), {}).floats(name))
