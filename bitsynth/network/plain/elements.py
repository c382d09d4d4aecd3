"""Plain C of elementwise nodes: several in one loop, by their meanings in the operator table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE, Site
from bitsynth.graph.types import Integers, Tensor
from bitsynth.network.plain.body import NodeBody, ScratchArray
from bitsynth.network.plain.guarded import FLAG, GuardedWriter, Undecidable
from bitsynth.network.plain.loops import AxisStep, Loops
from bitsynth.network.plain.maths import InC, within
from bitsynth.network.plain.terms import LoopTerm, compare
from bitsynth.network.plain.writer import REAL, WHOLE, Writer

_MIN_GUARDED = 64
"""Elements from which on loops over float64 and over pairs of it are written, not over pairs alone.

An element takes 40 to 120 cycles in pairs on Zen 4 and some in float64, and a loop about 300 bytes of code.
"""


_Terms = dict[str, LoopTerm]
"""Numbers of a loop, by the names of their edges."""
_Start = Callable[[Writer], _Terms]
"""Writes what a loop begins with."""


def elements(body: NodeBody) -> None:
    """Write elementwise nodes in one loop."""
    _write(body, body.nodes, lambda writer: {})


def deliver(body: NodeBody, compute: Callable[[Writer], LoopTerm]) -> None:
    """Compute the elementwise nodes after a result in its loop, and store the last one's.

    Args:
        body: It ends with the loop.
        compute: Writes the result at a place of the loop; it may be asked again for another loop.
    """
    edge = body.outs[0]

    def start(writer: Writer) -> _Terms:
        term = compute(writer)
        is_whole = isinstance(edge.type, Integers)
        return {edge.name: term if is_whole else InC(writer, body.graph.reference).cast(term, edge.dtype)}

    _write(body, body.nodes[1:], start)


def deliver_array(body: NodeBody, array: ScratchArray, steps: Sequence[AxisStep]) -> None:
    """Deliver a result that an array holds, whose strides along the result's axes are `steps`."""
    out, is_whole = body.outs[0], body.gives_integers
    deliver(body, lambda writer: within(array.at(writer, steps), out) if is_whole else array.at(writer, steps))


def _write(body: NodeBody, nodes: tuple[Node, ...], start: _Start) -> None:
    """Write the loop over a result's elements.

    Where pairs of float64 would decide integers, a loop in float64 takes their place if it decides all elements. If
    not, one that may leave an element undecided comes first. The loop over pairs is run only then, over all elements.
    """
    constants = body.constants
    for may_flag in (False, True):
        body.constants = constants.copy()
        try:
            _write_guarded(body, nodes, start, may_flag)
        except Undecidable:
            body.constants = constants
            continue
        if may_flag:
            break
        return
    (edge,) = body.graph.edges_of(body.nodes[-1].outputs[:1])
    is_paired = any(TABLE[n.op].kind == "step" for n in nodes)
    writer = body.writer(edge.shape, body.memories[edge.name].steps(edge.shape), paired=is_paired)
    _finish(body, writer, start(writer), nodes)
    body.close(writer)


def _write_guarded(body: NodeBody, nodes: tuple[Node, ...], start: _Start, may_flag: bool) -> None:
    """Write the nodes in float64, with a flag for elements that are not decided or without it.

    Undecidable, and nothing written, if an operation has no bound. Tables are left to pairs if an element may be
    undecided, as its place could be outside.
    """
    (edge,) = body.graph.edges_of(body.nodes[-1].outputs[:1])
    ops = [n.op for n in nodes]
    has_steps = any(TABLE[op].kind == "step" for op in ops)
    if body.graph.reference != "exact" or not has_steps or "multi_threshold" in ops:
        raise Undecidable(body.node.op)
    if may_flag and (math.prod(edge.shape) < _MIN_GUARDED or "lookup" in ops):
        raise Undecidable(body.node.op)
    loops = Loops(edge.shape, body.constants, order=body.memories[edge.name].steps(edge.shape))
    writer = GuardedWriter(loops, may_flag=may_flag)
    _finish(body, writer, start(writer), nodes)
    if not may_flag:
        body.close(writer)
        return
    body.do(f"uint64_t {FLAG} = 0;")
    body.close(writer, until=f"{FLAG} >> 63")
    body.do(f"if (!({FLAG} >> 63))\nreturn BS_OK;")


def _finish(body: NodeBody, writer: Writer, terms: _Terms, nodes: tuple[Node, ...]) -> None:
    """Compute nodes one after another; each reads buffers, constants, or results of the nodes before it.

    Real numbers on which no integer of the loop depends are computed in float64 alone, whatever the writer is.
    """
    last, graph = body.nodes[-1].outputs[0], body.graph
    read = set[str]()
    for node in reversed(nodes):
        if node.outputs[0] in read or isinstance(graph.edges[node.outputs[0]].type, Integers):
            read.update(node.outputs + node.inputs)
    for node in nodes:
        if graph.reference == "exact" and read and node.outputs[0] not in read:
            continue
        for name in node.inputs:
            if name not in terms:
                terms[name] = _source(body, name, writer)
        terms[node.outputs[0]] = _meaning(graph, node, [terms[n] for n in node.inputs], writer)
    if last not in terms:
        terms[last] = _compute_numbers(body, writer, terms, nodes)
    body.memories[last].store(writer, terms[last])


def _compute_numbers(body: NodeBody, writer: Writer, terms: _Terms, nodes: tuple[Node, ...]) -> LoopTerm:
    """Compute the last node's real numbers in float64, of the integers of other nodes and of what the loop reads."""
    plain = Writer(writer.loops, exact=writer.exact)
    of_nodes = {node.outputs[0] for node in nodes}
    numbers = {}
    for name, term in terms.items():
        if name not in of_nodes or isinstance(body.graph.edges[name].type, Integers):
            numbers[name] = replace(term, writer=plain, rest="", whole=None)
    for node in nodes:
        for name in node.inputs:
            if name not in numbers:
                numbers[name] = _source(body, name, plain)
        if node.outputs[0] not in numbers:
            numbers[node.outputs[0]] = _meaning(body.graph, node, [numbers[n] for n in node.inputs], plain)
    return numbers[body.nodes[-1].outputs[0]]


def _source(body: NodeBody, name: str, writer: Writer) -> LoopTerm:
    if name in body.graph.constants:
        return writer.constant(body.graph.constants[name])
    return body.memories[name].load(writer)


def _meaning(graph: Graph, node: Node, terms: list[LoopTerm], writer: Writer) -> LoopTerm:
    edge = graph.edges[node.outputs[0]]
    site = site_of(graph, node, writer)
    if node.op == "multi_threshold":
        result = _count_thresholds(site, terms[0], writer)
    elif node.op == "lookup":
        result = _look_up(site, terms[0], writer)
    else:
        (result,) = TABLE[node.op].run(site, *terms)
    if isinstance(edge.type, Integers):
        return within(writer.hold(writer.cast(result, WHOLE)), edge)
    return result


def site_of(graph: Graph, node: Node, writer: Writer) -> Site:
    """Return a node with its edges, in the arithmetic of a writer."""
    given = tuple(graph.constants.get(name) for name in node.inputs)
    edges = graph.edges_of(node.inputs), graph.edges_of(node.outputs)
    return Site(node, edges[0], given, graph.reference, edges[1], InC(writer, graph.reference), _never)


def _never(mask: Tensor) -> list[Tensor]:
    raise TypeError("terms are no fractions")


def _look_up(site: Site, value: LoopTerm, writer: Writer) -> LoopTerm:
    """Return the element of a table for an integer."""
    table = site["table"]
    name = writer.constants.add(table.astype(np.int32))
    place = writer.hold(value - site["first"])
    return LoopTerm(
        writer, WHOLE, writer.loops.value("int32_t", f"{name}[{place.code}]"), (int(table.min()), int(table.max()))
    )


def _count_thresholds(site: Site, value: LoopTerm, writer: Writer) -> LoopTerm:
    """Return the number of a channel's thresholds that are not above the number, counted one by one."""
    (number,) = site.numbers([value])
    thresholds: Any = site["thresholds"]
    number = writer.hold(writer.cast(number, np.result_type(number.dtype, thresholds.dtype)))
    count = thresholds.shape[1]
    steps = [0] * len(writer.loops.shape)
    if thresholds.shape[0] > 1:
        steps[site["axis"]] = count
    table = writer.constants.add(thresholds.astype(np.float64 if number.dtype == REAL else np.float32))
    first = writer.loops.value("size_t", writer.loops.place(steps))
    threshold = LoopTerm(writer, number.dtype, f"{table}[{first} + j]")
    lines = f"int32_t {{0}} = 0; for (size_t j = 0; j < {count}; ++j) {{0}} += {compare('>=', number, threshold)};"
    counted = LoopTerm(writer, WHOLE, writer.loops.name_value(lines), (0, count))
    levels: LoopTerm = site["least"] + site["step"] * counted
    return levels
