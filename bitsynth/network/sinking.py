"""Moves and maxima sink below the chain to codes that follows them: fewer bits are moved, and products make codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import Integers
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.formulas import Chain, StepFunction, find_chain, find_step_function
from bitsynth.network.formulas.step_functions import find_real_step_function
from bitsynth.network.fusion.codes import operand_of

_MOVES = ("reshape", "transpose", "depth_to_space", "space_to_depth", "resize")
"""Moves that lose no element and add none but copies."""


def sunk(graph: Graph, target: NetworkTarget) -> Graph:
    """The graph with moves and maxima of wide integers or real numbers after the elementwise nodes to codes.

    What a move makes of f(x) is f of what it makes of x, for any f that is alike for all elements; so it is of maxima,
    for any f that rises.
    """
    while (made := _once(graph, target)) is not graph:
        graph = made
    return graph


def _once(graph: Graph, target: NetworkTarget) -> Graph:
    """The graph with each of them after one more chain; itself if there are none."""
    def_use = DefUse(graph, target)
    chains = {node.name: chain for node in graph.nodes if (chain := _to_codes(def_use, node))}
    if not chains:
        return graph
    builder, done = GraphBuilder.beginning(graph), set[str]()
    for node in graph.nodes:
        if node.name in done:
            continue
        chain = chains.get(node.name, ())
        if not chain:
            builder.repeat(node)
            continue
        _turned(builder, node, chain)
        done |= {link.name for link in chain}
    return builder.build(graph.outputs)


def _to_codes(def_use: DefUse, node: Node) -> tuple[Node, ...]:
    """The elementwise nodes after a move or maximum of what is no codes that make codes; none if it cannot sink."""
    if node.op not in (*_MOVES, "max_pool") or operand_of(def_use.graph.edges[node.inputs[0]]):
        return ()
    if node.inputs[0] in def_use.graph.inputs and not def_use.carries_integers(node.inputs[0]):
        return ()
    return _after_maximum(def_use, node) if node.op == "max_pool" else _after_move(def_use, node)


def _after_move(def_use: DefUse, node: Node) -> tuple[Node, ...]:
    """Nodes whose constants are alike for all elements."""
    found: list[Node] = []
    edge = node.outputs[0]
    while (reader := def_use.only_reader(edge)) and _is_alike(def_use, reader, edge):
        found.append(reader)
        (edge,) = reader.outputs
        if operand_of(def_use.graph.edges[edge]):
            return tuple(found)
    return ()


def _is_alike(def_use: DefUse, node: Node, edge: str) -> bool:
    """Whether a node does the same to all elements of an edge, and leaves their shape."""
    edges = def_use.graph.edges
    others = [e for e in node.inputs if e != edge]
    if TABLE[node.op].kind not in ("elementwise", "step") or edges[node.outputs[0]].shape != edges[edge].shape:
        return False
    return all(def_use.is_constant(e) and def_use.graph.constants[e].size == 1 for e in others) and all(
        _size(value) <= 1 for value in node.attributes.values()
    )


def _size(value: Any) -> int:
    """Elements of an attribute, of a tuple those of its largest."""
    return max(map(_size, value), default=0) if isinstance(value, tuple) else int(np.size(value))


def _after_maximum(def_use: DefUse, node: Node) -> tuple[Node, ...]:
    """The nodes of a chain that rises in every channel."""
    chain = find_chain(def_use, node.outputs[0])
    if chain is None or chain.constant_nodes or any(TABLE[n.op].kind == "move" for n in chain.nodes):
        return ()
    found = _step_function(def_use.graph, chain)
    return chain.nodes if found is not None and found.rising.all() else ()


def _step_function(graph: Graph, chain: Chain) -> StepFunction | None:
    """The step function of a chain from integers, or real numbers; of floats, which may be none, None."""
    if isinstance(graph.edges[chain.start].type, Integers):
        return find_step_function(graph, chain)
    return find_real_step_function(graph, chain) if graph.reference == "exact" else None


def _turned(builder: GraphBuilder, node: Node, chain: tuple[Node, ...]) -> None:
    """Add the chain on what a node reads, then the node."""
    at = node.inputs[0]
    before = {node.outputs[0]: at}
    for link in chain:
        inputs = tuple(before.get(e, e) for e in link.inputs)
        name = builder.fresh(f"{link.outputs[0]}.early")
        at = builder.add(link.op, *inputs, name=name, source=link.source, **link.attributes)
        before[link.outputs[0]] = at
    builder.add(node.op, at, name=chain[-1].outputs[0], source=node.source, **node.attributes)
