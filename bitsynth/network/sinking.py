"""Moves and maxima sink below the nodes that make codes: codes have fewer bits to move, and products make codes.

This pass stays in `network/`, because its maxima need the analysis of `network/formulas`: a maximum may only sink below
functions that are proved to increase.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.passes.driver import rewrite
from bitsynth.graph.types import Integers
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.formulas import Chain, StepFunction, find_chain, find_step_function
from bitsynth.network.formulas.step_functions import find_real_step_function
from bitsynth.network.fusion.codes import operand_of

_MOVES = ("reshape", "transpose", "depth_to_space", "space_to_depth", "resize")
"""Moves that lose no element, and add none but copies."""


def sink_moves(graph: Graph, target: NetworkTarget) -> Graph:
    """Move moves and maxima of wide integers or real numbers below the elementwise nodes that make codes of them.

    A move of f(x) is f of the moved x for every f that is the same for all elements, and the maximum of f(x) is f of
    the maximum for every increasing f. It is repeated until nothing sinks, as a move may sink below several chains.

    Given:
        %m = max_pool(%accumulators)
        %s = mul(%m, 0.1)
        %q = quantize(%s)
    Result:
        %s.early = mul(%accumulators, 0.1)
        %q.early = quantize(%s.early)
        %q = max_pool(%q.early)
    """
    while (changed := _sink_once(graph, target)) is not graph:
        graph = changed
    return graph


def _sink_once(graph: Graph, target: NetworkTarget) -> Graph:
    """Return the graph with each move and maximum below the next chain of nodes; the graph itself if none sinks."""
    def_use = DefUse(graph, target)
    chains = {node.name: chain for node in graph.nodes if (chain := _chain_to_codes(def_use, node))}
    if not chains:
        return graph
    done = set[str]()

    def replace_node(builder: GraphBuilder, node: Node) -> bool:
        if node.name in done:
            return True
        chain = chains.get(node.name, ())
        if chain:
            _add_swapped(builder, node, chain)
            done.update(link.name for link in chain)
        return bool(chain)

    return rewrite(graph, replace_node)


def _chain_to_codes(def_use: DefUse, node: Node) -> tuple[Node, ...]:
    """Return the nodes that make codes of a move or maximum of no codes; none if it cannot sink below them."""
    if node.op not in (*_MOVES, "max_pool") or operand_of(def_use.graph.edges[node.inputs[0]]):
        return ()
    if node.inputs[0] in def_use.graph.inputs and not def_use.carries_integers(node.inputs[0]):
        return ()
    return _increasing_chain(def_use, node) if node.op == "max_pool" else _uniform_chain(def_use, node)


def _uniform_chain(def_use: DefUse, node: Node) -> tuple[Node, ...]:
    """Return the nodes from a move to codes, if each does the same to all elements; else none."""
    chain: list[Node] = []
    edge = node.outputs[0]
    while (reader := def_use.only_reader(edge)) and _is_uniform(def_use, reader, edge):
        chain.append(reader)
        (edge,) = reader.outputs
        if operand_of(def_use.graph.edges[edge]):
            return tuple(chain)
    return ()


def _is_uniform(def_use: DefUse, node: Node, edge: str) -> bool:
    """Return whether a node does the same to all elements of an edge, and keeps their shape."""
    edges = def_use.graph.edges
    others = [e for e in node.inputs if e != edge]
    if TABLE[node.op].kind not in ("elementwise", "step") or edges[node.outputs[0]].shape != edges[edge].shape:
        return False
    return all(def_use.is_constant(e) and def_use.graph.constants[e].size == 1 for e in others) and all(
        _size(value) <= 1 for value in node.attributes.values()
    )


def _size(value: Any) -> int:
    """Return the number of elements of an attribute; for a tuple the number of its largest member."""
    return max(map(_size, value), default=0) if isinstance(value, tuple) else int(np.size(value))


def _increasing_chain(def_use: DefUse, node: Node) -> tuple[Node, ...]:
    """Return the nodes from a maximum to codes, if they increase in every channel; else none."""
    chain = find_chain(def_use, node.outputs[0])
    if chain is None or chain.constant_nodes or any(TABLE[n.op].kind == "move" for n in chain.nodes):
        return ()
    step_function = _find_step_function(def_use.graph, chain)
    return chain.nodes if step_function is not None and step_function.rising.all() else ()


def _find_step_function(graph: Graph, chain: Chain) -> StepFunction | None:
    """Return the step function of a chain from integers, or from real numbers; None of floats, which may be NaN."""
    if isinstance(graph.edges[chain.start].type, Integers):
        return find_step_function(graph, chain)
    return find_real_step_function(graph, chain) if graph.reference == "exact" else None


def _add_swapped(builder: GraphBuilder, node: Node, chain: tuple[Node, ...]) -> None:
    """Add a chain on the input of a node, then the node on the result of the chain."""
    at = node.inputs[0]
    before = {node.outputs[0]: at}
    for link in chain:
        inputs = tuple(before.get(e, e) for e in link.inputs)
        name = builder.fresh(f"{link.outputs[0]}.early")
        at = builder.add(link.op, *inputs, name=name, source=link.source, **link.attributes)
        before[link.outputs[0]] = at
    builder.add(node.op, at, name=chain[-1].outputs[0], source=node.source, **node.attributes)
