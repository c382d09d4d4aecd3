"""Quantizers that a file writes in parts become one: quantize, cut the codes, say what they stand for.

QuantizeLinear, Clip and DequantizeLinear then are the node that QONNX has as one.
"""

from __future__ import annotations

from types import MappingProxyType

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Edge, Integers

_QUANTIZERS = ("quantize", "requantize", "add_codes", "trunc")


def joined(graph: Graph) -> Graph:
    """The graph with `clip`, `view` and changes of scale taken into the quantizers whose only readers they are."""
    readers, makers = graph.readers(), graph.makers()
    nodes = {node.name: node for node in graph.nodes}
    edges = dict(graph.edges)
    for node in graph.nodes:
        if not _keeps_or_cuts(graph, node) or node.inputs[0] not in makers:
            continue
        maker = nodes[makers[node.inputs[0]].name]
        if maker.op in _QUANTIZERS and len(readers[node.inputs[0]]) == 1 and node.inputs[0] not in graph.output_set:
            made = _taken(maker, node, edges)
            if made is not None:
                nodes[maker.name] = made
                makers[node.outputs[0]] = maker
                del nodes[node.name]
    builder = GraphBuilder.beginning(graph)
    for node in nodes.values():
        builder.repeat(node)
    return builder.build(graph.outputs)


def _keeps_or_cuts(graph: Graph, node: Node) -> bool:
    """Whether a node cuts codes, or says what they stand for without changing them."""
    if node.op in ("clip", "view"):
        return True
    if node.op not in ("mul", "div") or node.inputs[1] not in graph.constants:
        return False
    before, after = (graph.edges[name] for name in (node.inputs[0], node.outputs[0]))
    if before.shape != after.shape or not (isinstance(before.type, Integers) and isinstance(after.type, Integers)):
        return False
    return before.type.low is after.type.low and before.type.high is after.type.high


def _taken(maker: Node, node: Node, edges: dict[str, Edge]) -> Node | None:
    """The quantizer with what follows it; None if its codes would then be others."""
    kind, edge = edges[node.outputs[0]].type, edges[node.outputs[0]]
    if not isinstance(kind, Integers) or kind.low.size != 1 or kind.high.size != 1:
        return None
    attributes = dict(maker.attributes)
    if node.op == "clip":
        if not edges[node.inputs[0]].type.is_plain:  # type: ignore[union-attr]
            return None
        attributes |= {"low": kind.least, "high": kind.most}
    else:
        attributes |= {"out_scale": kind.scale, "out_zero": kind.zero}
    attributes |= {"dtype": edge.dtype}
    return Node(maker.name, maker.op, maker.inputs, node.outputs, MappingProxyType(attributes), maker.source)
