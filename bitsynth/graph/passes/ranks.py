"""Places of the greatest or least are looked for before functions that rise: behind them float64 has more equals.

The sigmoids of -1800 and -1900 are different numbers, of which float64 makes 0 twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node

_RISING = ("sigmoid", "tanh", "exp")
"""Of real numbers, a < b is f(a) < f(b)."""


def ranked_early(graph: Graph) -> Graph:
    """The graph with places of what rises found in what it rises with; exact ones alone."""
    makers = graph.makers() if graph.reference == "exact" else {}
    ranks = (node for node in graph.nodes if node.op == "rank")
    moved = {node.name: start for node in ranks if (start := _start(node, makers)) != node.inputs[0]}
    if not moved:
        return graph
    builder = GraphBuilder.beginning(graph)
    for node in graph.nodes:
        if node.name not in moved:
            builder.repeat(node)
            continue
        values, places = node.outputs
        builder.repeat(replace(node, outputs=(values, builder.fresh(f"{places}.late"))))
        early = builder.fresh(f"{values}.early")
        builder.repeat(replace(node, name=early, inputs=(moved[node.name],), outputs=(early, places)))
    return builder.build(graph.outputs)


def _start(node: Node, makers: Mapping[str, Node]) -> str:
    """The first edge that has the order of what a node ranks."""
    edge = node.inputs[0]
    while (maker := makers.get(edge)) and _rises(maker, node.attributes["axis"]):
        edge = maker.inputs[0]
    return edge


def _rises(maker: Node, axis: int) -> bool:
    """Whether a node makes numbers that have the order along `axis` of those it reads."""
    return maker.op in _RISING or (maker.op == "softmax" and axis in maker.attributes["axes"])
