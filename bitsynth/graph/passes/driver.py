"""The driver of graph passes, and the loop with which they rebuild a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node


@dataclass(frozen=True)
class GraphPass:
    """A named rewrite of a graph, which leaves the numbers on its outputs as they are.

    Args:
        name: The name of the rewrite, such as "fuse-quantizers".
        run: Returns the rewritten graph, or the graph itself where nothing matches.
    """

    name: str
    run: Callable[[Graph], Graph]


def run_passes(graph: Graph, passes: Iterable[GraphPass]) -> Graph:
    """Return the graph after all passes, each run once, in order."""
    for each in passes:
        graph = each.run(graph)
    return graph


def rebuild(graph: Graph, nodes: Iterable[Node]) -> Graph:
    """Return the graph with other nodes, in an order in which they can run; their edges are inferred again."""
    builder = GraphBuilder.begin_from(graph)
    for node in nodes:
        builder.repeat(node)
    return builder.build(graph.outputs)


def rewrite(graph: Graph, replace_node: Callable[[GraphBuilder, Node], bool]) -> Graph:
    """Return the graph with some nodes replaced.

    Args:
        graph: The graph.
        replace_node: Is called with each node in order. It adds the nodes that make the node's outputs to the builder
            and returns True, or returns False to keep the node as it is.
    """
    builder = GraphBuilder.begin_from(graph)
    for node in graph.nodes:
        if not replace_node(builder, node):
            builder.repeat(node)
    return builder.build(graph.outputs)
