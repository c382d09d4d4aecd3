"""Hard swish that a file writes in parts becomes one node: a number times a line of itself, kept between 0 and 1."""

from __future__ import annotations

from types import MappingProxyType

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node

_MIDDLE = 0.5
"""The summand of the gate of hard swish."""


def swished(graph: Graph) -> Graph:
    """The graph with products of an edge and its hard sigmoid, which nothing else reads, as hard swish."""
    readers, makers = graph.readers(), graph.makers()
    nodes = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        gate = _gate(node, makers.get(node.inputs[0]), node.inputs[-1]) or _gate(
            node, makers.get(node.inputs[-1]), node.inputs[0]
        )
        if gate is None or len(readers[gate.outputs[0]]) > 1 or gate.outputs[0] in graph.output_set:
            continue
        about = MappingProxyType({"alpha": gate.attributes["alpha"]})
        nodes[node.name] = Node(node.name, "hard_swish", gate.inputs, node.outputs, about, node.source)
        del nodes[gate.name]
    if len(nodes) == len(graph.nodes):
        return graph
    builder = GraphBuilder.beginning(graph)
    for node in nodes.values():
        builder.repeat(node)
    return builder.build(graph.outputs)


def _gate(node: Node, maker: Node | None, other: str) -> Node | None:
    """The hard sigmoid that a node multiplies what it was made of by; None if it does not."""
    if node.op != "mul" or maker is None or maker.op != "hard_sigmoid" or maker.inputs != (other,):
        return None
    return maker if maker.attributes["beta"] == _MIDDLE else None
