"""Chains that another edge joins: sums and a shortcut are added before a quantizer."""

from __future__ import annotations

from dataclasses import replace

from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE
from bitsynth.network.formulas.chain import Chain, Link, chain_of, link_of, links_from, up_to_codes
from bitsynth.network.wiring import Wiring

_JOINTS = ("add", "sub")


def joined_chain(wiring: Wiring, start: str, axis: int, first: Node) -> Chain | None:
    """The chain of an edge that another one joins, up to its first codes; None if there is none such.

    Nodes that the other edge's elements pass are part of it where they come after `first` in the graph.
    """
    before = links_from(wiring, start, axis)
    edge = before[-1].node.outputs[0] if before else start
    joint = wiring.only_reader(edge)
    if joint is None or any(link.axis != axis or _steps(link) for link in before) or not _joins(wiring, joint, edge):
        return None
    (other,) = (name for name in joint.inputs if name != edge)
    way = _way_of(wiring, other, axis, first)
    after = up_to_codes(wiring, links_from(wiring, joint.outputs[0], axis))
    if way is None or not after:
        return None
    second, beside = way
    chain = chain_of(wiring, start, [*before, Link(joint, axis, False), *after], axis)
    others = chain_of(wiring, second, beside, axis)
    aside = tuple(dict.fromkeys((*chain.aside, *others.aside)))
    return replace(chain, aside=aside, varies=chain.varies or others.varies, second=second, beside=others.nodes)


def _joins(wiring: Wiring, node: Node, edge: str) -> bool:
    """Whether a node adds another edge of this one's shape, no constant, to an edge."""
    others = [name for name in node.inputs if name != edge]
    shape = wiring.graph.edges[edge].shape
    return node.op in _JOINTS and len(others) == 1 and wiring.graph.edges[others[0]].shape == shape


def _steps(link: Link) -> bool:
    return TABLE[link.node.op].kind == "step" and link.node.op != "view"


def _way_of(wiring: Wiring, edge: str, axis: int, first: Node) -> tuple[str, list[Link]] | None:
    """The farthest edge of integers from which an edge is made element by element, and the nodes between."""
    found, links = None, list[Link]()
    while True:
        if wiring.carries_integers(edge) and not wiring.is_constant(edge):
            found = edge, list(links)
        maker = wiring.makers.get(edge)
        if maker is None or wiring.only_reader(edge) is None or wiring.order[maker.name] < wiring.order[first.name]:
            return found
        source = wiring.only_source(maker)
        link = link_of(wiring, maker, source, axis, monotone=False) if source else None
        if source is None or link is None or maker.op == "reshape" or _steps(link):
            return found
        links.insert(0, link)
        edge = source
