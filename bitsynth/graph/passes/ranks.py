"""ArgMax and TopK rank the numbers before increasing functions, which may make different numbers equal.

The sigmoids of -1800 and -1900 are different numbers, but float64 makes 0 of both, so that only fractions of many
digits would tell which is greater.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.passes.driver import rewrite

_INCREASING = ("sigmoid", "tanh", "exp")
"""Functions of real numbers with f(a) < f(b) wherever a < b."""


def rank_before_monotone(graph: Graph) -> Graph:
    """Find the places of ranked numbers before the increasing functions that made them; of exact graphs alone.

    Given:
        %s = sigmoid(%x)
        %values, %places = rank(%s, k=1)
    Result:
        %s = sigmoid(%x)
        %values, %unused = rank(%s, k=1)
        %unused, %places = rank(%x, k=1)
    """
    makers = graph.makers if graph.reference == "exact" else {}
    ranks = (node for node in graph.nodes if node.op == "rank")
    starts = {node.name: start for node in ranks if (start := _find_start(node, makers)) != node.inputs[0]}
    if not starts:
        return graph

    def replace_node(builder: GraphBuilder, node: Node) -> bool:
        if node.name not in starts:
            return False
        values, places = node.outputs
        builder.repeat(replace(node, outputs=(values, builder.fresh(f"{places}.late"))))
        early = builder.fresh(f"{values}.early")
        builder.repeat(replace(node, name=early, inputs=(starts[node.name],), outputs=(early, places)))
        return True

    return rewrite(graph, replace_node)


def _find_start(node: Node, makers: Mapping[str, Node]) -> str:
    """Find the first edge whose numbers have the same order as the numbers that a node ranks."""
    edge = node.inputs[0]
    while (maker := makers.get(edge)) and _keeps_order(maker, node.attributes["axis"]):
        edge = maker.inputs[0]
    return edge


def _keeps_order(maker: Node, axis: int) -> bool:
    """Return whether the outputs of a node are ordered along `axis` as its inputs are."""
    return maker.op in _INCREASING or (maker.op == "softmax" and axis in maker.attributes["axes"])
