"""Hard swish that a file writes in two nodes, x * HardSigmoid(x), becomes one node."""

from __future__ import annotations

from types import MappingProxyType

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.passes.driver import rebuild

_HARD_SWISH_BETA = 0.5
"""The summand of the hard sigmoid in the definition of hard swish."""


def fuse_hard_swish(graph: Graph) -> Graph:
    """Fuse the product of an edge and its hard sigmoid, which nothing else reads.

    Given:
        %g = hard_sigmoid(%x, alpha=1/6, beta=1/2)   # clip(alpha * %x + beta, 0, 1)
        %y = mul(%x, %g)
    Result:
        %y = hard_swish(%x, alpha=1/6)
    """
    makers = graph.makers
    nodes = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        gate = _find_gate(node, makers.get(node.inputs[0]), node.inputs[-1]) or _find_gate(
            node, makers.get(node.inputs[-1]), node.inputs[0]
        )
        if gate is None or graph.only_reader(gate.outputs[0]) is None:
            continue
        attributes = MappingProxyType({"alpha": gate.attributes["alpha"]})
        nodes[node.name] = Node(node.name, "hard_swish", gate.inputs, node.outputs, attributes, node.source)
        del nodes[gate.name]
    return graph if len(nodes) == len(graph.nodes) else rebuild(graph, nodes.values())


def _find_gate(node: Node, maker: Node | None, other: str) -> Node | None:
    """Return `maker` if it is the hard sigmoid of `other`, and `node` multiplies both; else None."""
    if node.op != "mul" or maker is None or maker.op != "hard_sigmoid" or maker.inputs != (other,):
        return None
    return maker if maker.attributes["beta"] == _HARD_SWISH_BETA else None
