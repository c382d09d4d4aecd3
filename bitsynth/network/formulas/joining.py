"""Chains that another edge joins: sums and a shortcut are added before a quantizer."""

from __future__ import annotations

from dataclasses import replace

from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas.chain import Chain, Link, cut_at_codes, find_links, make_chain, make_link

_JOINTS = ("add", "sub")


def find_joined_chain(def_use: DefUse, start: str, axis: int, first: Node) -> Chain | None:
    """The chain of an edge that another one joins, up to its first codes; None if there is none such.

    Nodes that the other edge's elements pass are part of it where they come after `first` in the graph.
    """
    before = find_links(def_use, start, axis)
    edge = before[-1].node.outputs[0] if before else start
    joint = def_use.only_reader(edge)
    if joint is None or any(link.axis != axis or _is_step(link) for link in before) or not _joins(def_use, joint, edge):
        return None
    (other,) = (name for name in joint.inputs if name != edge)
    way = _find_second_path(def_use, other, axis, first)
    after = cut_at_codes(def_use, find_links(def_use, joint.outputs[0], axis))
    if way is None or not after:
        return None
    second, second_path = way
    chain = make_chain(def_use, start, [*before, Link(joint, axis, False), *after], axis)
    others = make_chain(def_use, second, second_path, axis)
    constant_nodes = tuple(dict.fromkeys((*chain.constant_nodes, *others.constant_nodes)))
    return replace(
        chain,
        constant_nodes=constant_nodes,
        varies=chain.varies or others.varies,
        second=second,
        second_path=others.nodes,
    )


def _joins(def_use: DefUse, node: Node, edge: str) -> bool:
    """Whether a node adds another edge of this one's shape, no constant, to an edge."""
    others = [name for name in node.inputs if name != edge]
    shape = def_use.graph.edges[edge].shape
    return node.op in _JOINTS and len(others) == 1 and def_use.graph.edges[others[0]].shape == shape


def _is_step(link: Link) -> bool:
    return TABLE[link.node.op].kind == "step" and link.node.op != "view"


def _find_second_path(def_use: DefUse, edge: str, axis: int, first: Node) -> tuple[str, list[Link]] | None:
    """The farthest edge of integers from which an edge is made element by element, and the nodes between."""
    found, links = None, list[Link]()
    while True:
        if def_use.carries_integers(edge) and not def_use.is_constant(edge):
            found = edge, list(links)
        maker = def_use.makers.get(edge)
        if maker is None or def_use.only_reader(edge) is None or def_use.order[maker.name] < def_use.order[first.name]:
            return found
        source = def_use.only_source(maker)
        link = make_link(def_use, maker, source, axis, monotone=False) if source else None
        if source is None or link is None or maker.op == "reshape" or _is_step(link):
            return found
        links.insert(0, link)
        edge = source
