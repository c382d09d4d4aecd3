"""Elementwise nodes that join two edges of codes, by a table with an entry for each pair of codes."""

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
from bitsynth.network.declines import Stage
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas import find_links
from bitsynth.network.fusion.codes import code_values, codes_of, find_chains, operand_of, quantization_of
from bitsynth.network.fusion.glue import GlueGroup
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.spec.layout import Layout


@dataclass(frozen=True, eq=False)
class Join:
    """Nodes from two edges of codes to another edge; one of the nodes has two inputs.

    Args:
        nodes: In the graph's order.
        starts: The edges of codes.
        end: The edge that is made.
    """

    nodes: tuple[Node, ...]
    starts: tuple[str, ...]
    end: str


def match_pair_chains(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match the widest join that begins with a node: chains from two edges of codes, where they meet, a chain to codes.

    Given:   %sum = add(mul(%a, s), mul(%b, t)); %codes = quantize(relu(%sum))    %a, %b of codes
    Result:  %codes = pair_lookup(%a, %b, table)    an entry for each pair of codes
    """
    return _match_join(def_use, node, nearest=False)


def match_pair_nearest(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match as `match_pair_chains`, but chains begin at the nearest codes: nodes before them may be in other groups.

    Given:   %a = view(%layer); %sum = add(mul(%a, s), mul(%b, t)); %codes = quantize(%sum)    the layer has the view
    Result:  %codes = pair_lookup(%a, %b, table)    an entry for each pair of codes
    """
    return _match_join(def_use, node, nearest=True)


def _match_join(def_use: DefUse, node: Node, *, nearest: bool) -> FusionGroup | None:
    """Return the group of the longest join that begins with a node; None if there is none."""
    joins = (join for join in _find_joins(def_use, node, nearest=nearest) if node in join.nodes)
    return next((group for join in joins if (group := _make_group(def_use, join))), None)


def match_pair_node(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match a node that reads two edges of codes, with the chain to codes after it.

    Given:   %codes = quantize(mul(%a, %b))    %a, %b of codes
    Result:  %codes = pair_lookup(%a, %b, table)    an entry for each pair of codes
    """
    given = def_use.sources(node)
    if any(operand_of(def_use.graph.edges[e]) is None for e in given):
        if len(given) == 2 and TABLE[node.op].kind == "elementwise":
            def_use.decline(node, Stage.OPERANDS, "its two operands are not both codes of at most 8 bits")
        return None
    first_group = next(
        (group for join in _find_ended(def_use, node, {}) if (group := _make_group(def_use, join))), None
    )
    if first_group is None and len(given) == 2 and TABLE[node.op].kind == "elementwise":
        def_use.decline(node, Stage.CHAIN, "no codes follow that are a function of two codes, alike for all channels")
    return first_group


def _find_joins(def_use: DefUse, node: Node, *, nearest: bool) -> Iterator[Join]:
    """Yield the joins to which the chain that begins with a node leads, the longest first.

    Chains from both edges begin at the `nearest` codes, else at the farthest ones.
    """
    source, at = def_use.only_source(node), node
    if source is not None:
        links = find_links(def_use, source, 1, node, monotone=False)
        reader = def_use.only_reader(links[-1].node.outputs[0]) if links else None
        if reader is None:
            return
        at = reader
    given = def_use.sources(at)
    if len(given) == 2:
        yield from _find_ended(def_use, at, {e: _nodes_before(def_use, e, node, nearest=nearest) for e in given})


def _nodes_before(def_use: DefUse, edge: str, first: Node, *, nearest: bool) -> tuple[Node, ...]:
    """Return the nodes from the farthest, or `nearest`, edge of codes to an edge, the last one first.

    None comes before `first`.
    """
    order = def_use.order
    nodes: list[Node] = []
    before: tuple[Node, ...] = ()
    at = edge
    while (maker := def_use.makers.get(at)) and order[maker.name] >= order[first.name]:
        source = def_use.only_source(maker)
        if source is None or def_use.only_reader(at) is None or not _is_link(def_use, maker, source):
            break
        nodes.append(maker)
        at = source
        if operand_of(def_use.graph.edges[at]):
            before = tuple(nodes)
            if nearest:
                break
    return before


def _is_link(def_use: DefUse, node: Node, source: str) -> bool:
    links = find_links(def_use, source, 1, node, monotone=False)
    return bool(links) and links[0].node is node and not links[0].varies


def _find_ended(def_use: DefUse, node: Node, before: dict[str, tuple[Node, ...]]) -> Iterator[Join]:
    """Yield the joins at a node of two inputs, with the chains `before` it, that end in codes; the longest first."""
    edges = def_use.graph.edges
    given = def_use.sources(node)
    if len(given) != 2 or TABLE[node.op].kind not in ("elementwise", "step") or len(node.outputs) > 1:
        return
    (result,) = node.outputs
    if len(edges[result].shape) < 2:
        return
    starts = tuple(dict.fromkeys(def_use.only_source(before[e][-1]) or e if before.get(e) else e for e in given))
    if len(starts) != 2 or any(operand_of(edges[e]) is None or edges[e].shape != edges[result].shape for e in starts):
        return
    nodes = (*(n for e in given for n in reversed(before.get(e, ()))), node)
    for chain in find_chains(def_use, result):
        if operand_of(edges[chain.end]) and not chain.varies:
            yield Join((*nodes, *chain.nodes), starts, chain.end)
    if operand_of(edges[result]):
        yield Join(nodes, starts, result)


def _make_group(def_use: DefUse, join: Join) -> FusionGroup | None:
    """Return the group of a join; None if it differs by pixel or channel."""
    graph, target = def_use.graph, def_use.target
    starts, end = graph.edges_of(join.starts), graph.edges[join.end]
    values = [code_values(graph, name) for name in join.starts]
    results = _evaluate_join(graph, join, np.meshgrid(*values, indexing="ij"))
    if results is None:
        return None
    table, channels = codes_of(results, end), starts[0].shape[1]
    first, second = (int(codes_of(np.array([e.integers.most]), e)[0]) + 1 for e in starts)

    def make(layout: Layout, out_layout: Layout) -> Glue:
        layouts: dict[str, Any] = {"layout": layout, "out_layout": out_layout, "isa": target.isa}
        kinds = [scale_quantization(e, x) for e, x in zip((*starts, end), (*factors, 1.0), strict=True)]
        return PairLookup(channels, table, *kinds, reachable=(first, second), **layouts)

    factors = tuple(_fixed_point_factors(join))
    nodes = tuple(sorted(join.nodes, key=lambda node: def_use.order[node.name]))
    return GlueGroup(def_use, nodes, join.starts, make, (Layout.NHWC,))


def _fixed_point_factors(join: Join) -> Iterator[float]:
    """Yield for each start what multiplications in fixed point multiply its integers by, up to the end.

    Given:   %sum = multiply_shift(add(multiply_shift(%a, by 3/4), %b), by 1/2)
    Result:  3/8 of %a, 1/2 of %b
    """
    for start in join.starts:
        factors = {start: 1.0}
        for node in join.nodes:
            before = next((factors[edge] for edge in node.inputs if edge in factors), None)
            if before is not None:
                factors[node.outputs[0]] = before * _fixed_point_factor(node)
        yield factors.get(join.end, 1.0)


def _fixed_point_factor(node: Node) -> float:
    """Return what a node multiplies by in fixed point; 1 for other nodes, and if channels differ."""
    if node.op != "multiply_shift" or np.size(node.attributes["multiplier"]) != 1:
        return 1.0
    return float(node.attributes["multiplier"] * 0.5 ** (node.attributes["shift"] + node.attributes["right"]))


def scale_quantization(edge: Edge, factor: float = 1.0) -> Quantization:
    """Return the quantization of an edge of codes, with its scale and zero point if glue can have them.

    The scale is multiplied by `factor`.
    """
    kind, plain = edge.integers, quantization_of(edge)
    if not kind.has_one_grid or not kind.is_centred:
        return plain
    try:
        return Quantization(plain.bits, factor * float(kind.scale.min()), int(kind.zero.min()), plain.encoding)
    except SpecError:
        return plain


def _evaluate_join(graph: Graph, join: Join, points: Sequence[Tensor]) -> Tensor | None:
    """Return the integers that a join gives for integers of its starts, by running the reference on a small graph."""
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
        results = run(small, given)[join.end]
    except (SpecError, ValueError):
        return None
    is_whole = isinstance(small.edges[join.end].type, Integers)
    return results.reshape(points[0].shape) if is_whole and results.size == points[0].size else None


def _column(shape: Shape, points: int) -> Shape:
    """Return the shape (points, 1, ...) with as many axes."""
    return (points, *[1] * (len(shape) - 1))
