"""Elementwise nodes that join two edges of codes, by a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.reference import run
from bitsynth.graph.types import Edge, Integers, Shape, Tensor
from bitsynth.layers.glue import Glue, PairLookup, Quantization
from bitsynth.network.program import CHANNELS_LAST
from bitsynth.network.regions.codes import codes_of, operand_of, quantization_of
from bitsynth.network.regions.functions import chains, code_values
from bitsynth.network.regions.glue import GlueRegion
from bitsynth.network.regions.region import Region
from bitsynth.network.stairs import links_from
from bitsynth.network.wiring import Wiring


@dataclass(frozen=True, eq=False)
class Join:
    """Nodes from two edges of codes to another, of which one has two inputs.

    Args:
        nodes: In the graph's order.
        starts: The edges of codes.
        end: The edge that is made.
    """

    nodes: tuple[Node, ...]
    starts: tuple[str, ...]
    end: str


def match_join(wiring: Wiring, node: Node) -> Region | None:
    """A join that begins with a node, and with chains before and after it the widest."""
    joins = (join for join in _joins(wiring, node) if node in join.nodes)
    return next((region for join in joins if (region := _made(wiring, join))), None)


def match_near_join(wiring: Wiring, node: Node) -> Region | None:
    """A node of two edges of codes, with the chain after it."""
    if any(operand_of(wiring.graph.edges[e]) is None for e in _varying(wiring, node)):
        return None
    return next((region for join in _ended(wiring, node, {}) if (region := _made(wiring, join))), None)


def _joins(wiring: Wiring, node: Node) -> Iterator[Join]:
    """The joins to which the chain that begins with a node leads, the longest first."""
    source, at = wiring.only_source(node), node
    if source is not None:
        links = links_from(wiring, source, 1, node, monotone=False)
        reader = wiring.only_reader(links[-1].node.outputs[0]) if links else None
        if reader is None:
            return
        at = reader
    given = _varying(wiring, at)
    if len(given) == 2:
        yield from _ended(wiring, at, {e: _before(wiring, e, node) for e in given})


def _varying(wiring: Wiring, node: Node) -> tuple[str, ...]:
    """The edges of a node that are no constants."""
    return tuple(dict.fromkeys(e for e in node.inputs if not wiring.is_constant(e)))


def _before(wiring: Wiring, edge: str, first: Node) -> tuple[Node, ...]:
    """Nodes that make an edge of codes farthest before it, none of which comes before the `first`; last ones first."""
    order = wiring.order
    nodes: list[Node] = []
    found: tuple[Node, ...] = ()
    at = edge
    while (maker := wiring.makers.get(at)) and order[maker.name] >= order[first.name]:
        source = wiring.only_source(maker)
        if source is None or wiring.only_reader(at) is None or not _is_link(wiring, maker, source):
            break
        nodes.append(maker)
        at = source
        if operand_of(wiring.graph.edges[at]):
            found = tuple(nodes)
    return found


def _is_link(wiring: Wiring, node: Node, source: str) -> bool:
    found = links_from(wiring, source, 1, node, monotone=False)
    return bool(found) and found[0].node is node and not found[0].varies


def _ended(wiring: Wiring, node: Node, before: dict[str, tuple[Node, ...]]) -> Iterator[Join]:
    """Joins by a node of two inputs, with the chains before it and one after, the longest first, that give codes."""
    edges = wiring.graph.edges
    given = _varying(wiring, node)
    if len(given) != 2 or TABLE[node.op].kind not in ("elementwise", "step") or len(node.outputs) > 1:
        return
    (made,) = node.outputs
    if len(edges[made].shape) < 2:
        return
    starts = tuple(dict.fromkeys(wiring.only_source(before[e][-1]) or e if before.get(e) else e for e in given))
    if len(starts) != 2 or any(operand_of(edges[e]) is None or edges[e].shape != edges[made].shape for e in starts):
        return
    nodes = (*(n for e in given for n in reversed(before.get(e, ()))), node)
    for chain in chains(wiring, made):
        if operand_of(edges[chain.end]) and not chain.varies:
            yield Join((*nodes, *chain.nodes), starts, chain.end)
    if operand_of(edges[made]):
        yield Join(nodes, starts, made)


def _made(wiring: Wiring, join: Join) -> Region | None:
    """The region of a join; None if pixels or channels differ in it."""
    graph, target = wiring.graph, wiring.target
    starts, end = graph.edges_of(join.starts), graph.edges[join.end]
    values = [code_values(graph, name) for name in join.starts]
    made = _evaluated(graph, join, np.meshgrid(*values, indexing="ij"))
    if made is None:
        return None
    table, channels = codes_of(made, end), starts[0].shape[1]
    first, second = (int(codes_of(np.array([e.integers.most]), e)[0]) + 1 for e in starts)

    def make(layout: str, out_layout: str) -> Glue:
        layouts: dict[str, Any] = {"layout": layout, "out_layout": out_layout, "isa": target.isa}
        kinds = [scaled_quantization(e) for e in (*starts, end)]
        return PairLookup(channels, table, *kinds, come=(first, second), **layouts)

    nodes = tuple(sorted(join.nodes, key=lambda node: wiring.order[node.name]))
    return GlueRegion(wiring, nodes, join.starts, make, (CHANNELS_LAST,))


def scaled_quantization(edge: Edge) -> Quantization:
    """The quantization of an edge of codes with its scale and zero point, if it can have them."""
    kind, plain = edge.integers, quantization_of(edge)
    if not kind.has_one_grid or not kind.is_centred:
        return plain
    try:
        return Quantization(plain.bits, float(kind.scale.min()), int(kind.zero.min()), plain.encoding)
    except SpecError:
        return plain


def _evaluated(graph: Graph, join: Join, points: Sequence[Tensor]) -> Tensor | None:
    """The integers that a join makes of integers of its starts, all alike in shape, by a small network."""
    read = {name for node in join.nodes for name in node.inputs if name in graph.constants}
    builder = GraphBuilder.begin_from(replace(graph, inputs=(), constants={n: graph.constants[n] for n in read}))
    given = {}
    for name, values in zip(join.starts, points, strict=True):
        edge = graph.edges[name]
        kind = edge.integers
        if not kind.has_one_grid:
            return None
        shape = _column(edge.shape, values.size)
        alike = Integers.between(kind.least, kind.most, kind.scale.min(), kind.zero.min())
        builder.input(name, shape, edge.dtype, alike)
        given[name] = values.clip(kind.least, kind.most).reshape(shape)
    try:
        for node in join.nodes:
            sizes = _column(graph.edges[node.outputs[0]].shape, points[0].size)
            attributes = {**node.attributes, "sizes": sizes} if node.op == "reshape" else node.attributes
            builder.repeat(replace(node, attributes=MappingProxyType(dict(attributes))))
        small = builder.build((join.end,))
        made = run(small, given)[join.end]
    except (SpecError, ValueError):
        return None
    is_whole = isinstance(small.edges[join.end].type, Integers)
    return made.reshape(points[0].shape) if is_whole and made.size == points[0].size else None


def _column(shape: Shape, points: int) -> Shape:
    """A shape of as many axes for points alone."""
    return (points, *[1] * (len(shape) - 1))
