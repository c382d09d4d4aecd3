"""Functions of one edge of codes, by a table of glue: chains of elementwise nodes, and subgraphs that fork and rejoin.

Either computes a code of a code, so that the reference gives the table: one entry for each code.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Any

from bitsynth.graph.ir import Node
from bitsynth.graph.operators import PRODUCTS, TABLE
from bitsynth.layers.glue import Lookup
from bitsynth.network.declines import Stage
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas.chain import Chain, Link, explain_no_chain, find_links, fits_axis, make_chain, make_link
from bitsynth.network.fusion.codes import (
    code_values,
    codes_of,
    evaluate_codes,
    find_chains,
    layouts_of,
    operand_of,
    quantization_of,
)
from bitsynth.network.fusion.glue import GlueGroup
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.spec.layout import Layout


def match_lookup(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match the longest chain from codes to codes.

    Given:   %r = leaky_relu(mul(%codes, scale)); %out = quantize(%r)
    Result:  %out = lookup(%codes, table)    one entry a code, or one a code and channel
    """
    edges = def_use.graph.edges
    source = def_use.only_source(node)
    if source is None:
        return None
    if operand_of(edges[source]) is None:
        if TABLE[node.op].kind in ("elementwise", "step"):
            def_use.decline(node, Stage.OPERANDS, "it reads no codes of at most 8 bits")
        return None
    group = next(
        (make_lookup(def_use, c) for c in find_chains(def_use, source, node) if operand_of(edges[c.end])), None
    )
    if group is None and TABLE[node.op].kind in ("elementwise", "step"):
        def_use.decline(node, Stage.CHAIN, partial(_explain_no_lookup, def_use, source, node))
    return None if group and group.is_alias and _is_of_products(def_use, source) else group


def _explain_no_lookup(def_use: DefUse, source: str, node: Node) -> str:
    """Say in a few words why no table computes the codes after a node."""
    links = find_links(def_use, source, 1, node, monotone=False)
    if any(operand_of(def_use.graph.edges[link.node.outputs[0]]) for link in links):
        return "a reshape moves elements to other places before the next codes"
    return explain_no_chain(def_use, source, 1, node)


def _is_of_products(def_use: DefUse, edge: str) -> bool:
    """Return whether an edge has accumulators, which lie as int32 and not as codes."""
    maker = def_use.makers.get(edge)
    return maker is not None and maker.op in PRODUCTS


def make_lookup(def_use: DefUse, chain: Chain) -> FusionGroup:
    """Return the group of a chain from codes to codes."""
    graph = def_use.graph
    source, result = graph.edges[chain.start], graph.edges[chain.end]
    values = code_values(graph, chain.start)
    table, last = codes_of(evaluate_codes(graph, chain, values), result), quantization_of(result)
    options: dict[str, Any] = {"out_bits": last.bits, "out_encoding": last.encoding, "isa": def_use.target.isa}

    def make(layout: Layout, out_layout: Layout) -> Lookup:
        read = quantization_of(source)
        return Lookup(source.shape[1], table, read, layout=layout, out_layout=out_layout, **options)

    changes = operand_of(source) != operand_of(result) or bool((table != codes_of(values, source)).any())
    layouts = layouts_of(graph, chain.start, chain.end)
    return GlueGroup(def_use, chain.nodes, (chain.start,), make, layouts, changes=changes)


_MAX_NODES = 64
"""Nodes of a function: an activation written out in elementary operators has a dozen."""
_MAX_READERS = 4 * _MAX_NODES
"""Nodes that are looked at for one function: an edge may have thousands of readers."""


def match_forks(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match the longest function of one edge of codes whose paths fork and rejoin.

    Given:   %r = mul(%codes, scale); %out = quantize(mul(%r, sigmoid(%r)))
    Result:  %out = lookup(%codes, table)
    """
    source, graph = def_use.only_source(node), def_use.graph
    if source is None or operand_of(graph.edges[source]) is None or not fits_axis(graph.edges[source], 1):
        return None
    functions = find_forks(def_use, source, node)
    fork = next((chain for chain in functions if layouts_of(graph, source, chain.end)), None)
    return make_lookup(def_use, fork) if fork else None


def find_forks(def_use: DefUse, source: str, first: Node) -> Iterator[Chain]:
    """Yield the functions of an edge that contain a node and whose paths fork, the longest first, as chains."""
    fork = _Fork(def_use, source, first)
    for place in reversed(range(fork.parting, len(fork.links))):
        before = fork.find_needed(place)
        if before is None or before[0].node is not first:
            continue
        end = before[-1].node.outputs[0]
        varies = make_chain(def_use, source, before).varies
        after = [] if varies else find_links(def_use, end, 1, monotone=False, mixing=True)
        for count in range(len(after), -1, -1):
            links = [*before, *after[:count]]
            if links[-1].axis == 1 and operand_of(def_use.graph.edges[links[-1].node.outputs[0]]):
                yield make_chain(def_use, source, links)


@dataclass
class _Fork:
    """Elementwise nodes, from a `first` one on, that depend on one edge and constants alone.

    Attributes:
        links: The nodes in the graph's order.
        makers: The index of each node in `links`, by the edge that it makes.
    """

    def_use: DefUse
    source: str
    first: Node
    links: list[Link] = field(default_factory=list)
    makers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order, readers = self.def_use.order, self.def_use.readers
        first = order[self.first.name]
        # A heap of (place of the edge's next reader in the graph, index of that reader, edge): nodes are visited in
        # the graph's order, however many edges they read.
        open_ones: list[tuple[int, int, str]] = []

        def open_next(edge: str, which: int) -> None:
            if which < len(readers[edge]):
                heappush(open_ones, (order[readers[edge][which].name], which, edge))

        open_next(self.source, bisect_left(readers[self.source], first, key=lambda node: order[node.name]))
        for _ in range(_MAX_READERS):
            if not open_ones or len(self.links) == _MAX_NODES:
                break
            place, which, edge = heappop(open_ones)
            open_next(edge, which + 1)
            node = self.def_use.graph.nodes[place]
            link = None if node.outputs[0] in self.makers else self._link(node)
            if link:
                self.makers[node.outputs[0]] = len(self.links)
                self.links.append(link)
                open_next(node.outputs[0], 0)
            elif node is self.first:
                break

    def _link(self, node: Node) -> Link | None:
        """Return a node as a link; None if it reads anything but the fork's edges and constants."""
        edges = self.def_use.graph.edges
        own = [e for e in node.inputs if e == self.source or e in self.makers]
        if node.op == "reshape" or len(node.outputs) > 1:
            return None
        if len(own) == 1:
            return make_link(self.def_use, node, own[0], 1, monotone=False)
        shape = edges[self.source].shape
        alike = len(own) == len(node.inputs) and all(edges[e].shape == shape for e in (*own, *node.outputs))
        return Link(node, 1, False) if alike and TABLE[node.op].kind == "elementwise" else None

    @property
    def parting(self) -> int:
        """The index of the first node that reads several edges that are not constant: before it there is one path."""
        ways = (sum(not self.def_use.is_constant(e) for e in link.node.inputs) for link in self.links)
        return next((place for place, count in enumerate(ways) if count > 1), len(self.links))

    def find_needed(self, place: int) -> list[Link] | None:
        """Return the nodes needed to compute one, in order; None if none forks, or another node reads one of them."""
        places = {place}
        for k in range(place, -1, -1):
            if k in places:
                places |= {self.makers[e] for e in self.links[k].node.inputs if e in self.makers}
        nodes = [self.links[k].node for k in sorted(places)]
        graph, names = self.def_use.graph, {node.name for node in nodes}
        for node in nodes[:-1]:
            readers = {reader.name for reader in self.def_use.readers[node.outputs[0]]}
            if not readers <= names or node.outputs[0] in graph.output_set:
                return None
        parts = any(sum(not self.def_use.is_constant(e) for e in node.inputs) > 1 for node in nodes)
        return [self.links[k] for k in sorted(places)] if parts else None
