"""Tensors without elements, for which C has no arrays."""

from __future__ import annotations

import math

from bitsynth.errors import SpecError
from bitsynth.graph.ir import Graph


def require_elements(graph: Graph) -> Graph:
    """Return the graph; SpecError for a tensor without elements that a node reads or the caller gets.

    The message names the node that makes it, else the one that reads it. One that nothing reads does no harm.
    """
    makers = graph.makers()
    for node in graph.nodes:
        for name in node.inputs:
            if not math.prod(graph.edges[name].shape):
                raise SpecError(f"{makers.get(name, node)}: {_fault(graph, name)}")
    for name in graph.outputs:
        if not math.prod(graph.edges[name].shape):
            raise SpecError(f"{makers.get(name, f'output {name}')}: {_fault(graph, name)}")
    return graph


def _fault(graph: Graph, name: str) -> str:
    return f"{name} has shape {graph.edges[name].shape}, so no elements; cut it and what reads it from the network"
