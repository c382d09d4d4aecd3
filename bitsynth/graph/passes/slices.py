"""Slices move above the elementwise nodes that compute real numbers of codes: codes have fewer bits to move.

A network that splits the result of an activation has a quantizer behind each part. Where the parts are parts of codes,
each has its own activation and quantizer next to each other, which one step computes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.passes.driver import rewrite
from bitsynth.graph.passes.sequences import ELEMENTWISE_KINDS, is_scalar
from bitsynth.graph.types import Integers
from bitsynth.spec.matmul import MAX_BITS


def lift_slices(graph: Graph) -> Graph:
    """Move slices above elementwise nodes, up to codes, if nothing else reads the results of these nodes.

    Slices of all elements become reshapes, which cost nothing.

    Given:
        %s = quantize(sigmoid(%codes))
        %x = mul(%codes, %s)
        %a = slice(%x, channels 0 to 15)
        %b = slice(%x, channels 16 to 31)
    Result:
        %ca = slice(%codes, channels 0 to 15)
        %a = mul(%ca, quantize(sigmoid(%ca)))
        %cb = slice(%codes, channels 16 to 31)
        %b = mul(%cb, quantize(sigmoid(%cb)))
    """
    lifting = _Lifting(graph)
    if not any(lifting.takes_all(node) or lifting.lifts(node) for node in graph.nodes):
        return graph
    return rewrite(graph, lifting.replace_node)


@dataclass
class _Lifting:
    """The slices of a graph that move up.

    Args:
        graph: The graph before.
        parts: The edge of a part, by the name of the edge that it is of and the name of the first slice that takes it.
        unread: Whether nothing but slices reads an edge, or what is computed of it elementwise.
    """

    graph: Graph
    parts: dict[tuple[str, object], str] = field(default_factory=dict)
    unread: dict[str, bool] = field(default_factory=dict)

    def takes_all(self, node: Node) -> bool:
        """Return whether a node is a slice of all elements, in their order."""
        if node.op != "slice":
            return False
        shape = self.graph.edges[node.inputs[0]].shape
        is_rising = all(n == 1 or step == 1 for n, (_, _, step) in zip(shape, node.attributes["slices"], strict=True))
        return is_rising and shape == self.graph.edges[node.outputs[0]].shape

    def lifts(self, node: Node) -> bool:
        """Return whether a node is a slice of real numbers, or wide integers, that are computed of codes alone."""
        if node.op != "slice" or self._has_codes(node.inputs[0]):
            return False
        return self._is_for_slices(node.inputs[0]) and self._is_of_codes(node.inputs[0])

    def replace_node(self, builder: GraphBuilder, node: Node) -> bool:
        """Add a slice that moves up as the nodes that compute its part; return False for any other node."""
        if self.takes_all(node):
            builder.add("reshape", node.inputs[0], name=node.outputs[0], sizes=self.graph.edges[node.outputs[0]].shape)
            return True
        if not self.lifts(node):
            return False
        self._part(builder, node.inputs[0], node, node.outputs[0])
        return True

    def _part(self, builder: GraphBuilder, edge: str, node: Node, name: str = "") -> str:
        """Return the part of an edge that a slice takes; add the nodes that compute it if there are none yet."""
        if edge in self.graph.constants:
            return edge
        key = (edge, node.attributes["slices"])
        if key in self.parts and not name:
            return self.parts[key]
        maker = self.graph.makers.get(edge)
        name = name or builder.fresh(f"{edge}.part")
        if maker is not None and self._is_for_slices(edge) and self._is_of_codes(edge):
            inputs = [self._part(builder, e, node) for e in maker.inputs]
            self.parts[key] = builder.add(maker.op, *inputs, name=name, source=maker.source, **maker.attributes)
        else:
            self.parts[key] = builder.add("slice", edge, name=name, source=node.source, **node.attributes)
        return self.parts[key]

    def _has_codes(self, edge: str) -> bool:
        kind = self.graph.edges[edge].type
        return isinstance(kind, Integers) and kind.bits <= MAX_BITS

    def _is_for_slices(self, edge: str) -> bool:
        """Return whether slices alone read an edge, or elementwise nodes whose results are for slices alone."""
        if edge not in self.unread:
            readers = self.graph.readers[edge]
            self.unread[edge] = edge not in self.graph.output_set and all(
                r.op == "slice" or (self._is_elementwise(r) and self._is_for_slices(r.outputs[0])) for r in readers
            )
        return self.unread[edge]

    def _is_of_codes(self, edge: str) -> bool:
        """Return whether an edge is computed elementwise of codes."""
        maker = self.graph.makers.get(edge)
        if maker is None or not self._is_elementwise(maker):
            return False
        read = [e for e in maker.inputs if e not in self.graph.constants]
        return bool(read) and all(self._has_codes(e) or self._is_of_codes(e) for e in read)

    def _is_elementwise(self, node: Node) -> bool:
        """Return whether a node does the same to all elements of its operands, which all have one shape."""
        if TABLE[node.op].kind not in ELEMENTWISE_KINDS or not all(map(is_scalar, node.attributes.values())):
            return False
        shape, constants = self.graph.edges[node.outputs[0]].shape, self.graph.constants
        return len(node.outputs) == 1 and all(
            constants[e].size == 1 if e in constants else self.graph.edges[e].shape == shape for e in node.inputs
        )
