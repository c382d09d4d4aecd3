"""Quantizers of codes that are on their grid already are left out: exporters put one behind each move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Integers

_MOST = 1 << 20
"""Integers up to this come back from float32: two roundings move them by less than a quarter."""
_LEAST_SCALE = 2.0**-100


def once(graph: Graph) -> Graph:
    """The graph without quantizers that leave every integer what it is."""
    same = {node.outputs[0]: node.inputs[0] for node in graph.nodes if _keeps(graph, node)}
    if not same:
        return graph
    builder = GraphBuilder.beginning(graph)
    for node in graph.nodes:
        if node.outputs[0] not in same:
            builder.repeat(replace(node, inputs=tuple(_first(same, edge) for edge in node.inputs)))
    return builder.build(graph.outputs)


def _first(same: dict[str, str], edge: str) -> str:
    """The edge whose integers one has."""
    while edge in same:
        edge = same[edge]
    return edge


def _keeps(graph: Graph, node: Node) -> bool:
    """Whether a node is a quantizer, of no output of the network, that gives the integers it is given."""
    return node.op == "quantize" and node.outputs[0] not in graph.output_set and keeps(graph, node, node.inputs[0])


def keeps(graph: Graph, node: Node, edge: str) -> bool:
    """Whether a quantizer would give the integers of an edge, on the same grid."""
    given, made = graph.edges[edge], graph.edges[node.outputs[0]]
    before, after, at = given.type, made.type, node.attributes
    if not (isinstance(before, Integers) and isinstance(after, Integers)) or given.dtype != made.dtype:
        return False
    scales, zeros = (before.scale, after.scale, at["scale"]), (before.zero, after.zero, at["zero"])
    if any(np.size(x) != 1 or np.ravel(x)[0] != np.ravel(some[0])[0] for some in (scales, zeros) for x in some):
        return False
    inside = np.all(at["low"] <= before.low) and np.all(before.high <= at["high"])
    return bool(inside) and before.is_centred and _comes_back(graph.reference, node, before)


def _comes_back(reference: str, node: Node, kind: Integers) -> bool:
    """Whether rounding the quotient of an integer times the scale by the scale gives the integer."""
    if node.attributes["rounding"] not in ("ROUND", "HALF_ODD"):
        return False
    small = max(-kind.least, kind.most, int(abs(kind.zero).max())) < _MOST and kind.scale.min() > _LEAST_SCALE
    return reference == "exact" or bool(small and node.attributes["real"] in ("float32", "float64"))
