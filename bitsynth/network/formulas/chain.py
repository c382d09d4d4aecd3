"""Chains: nodes that turn the elements of one edge, each by itself, into the integers of a quantizer.

Chains that another edge joins: sums and a shortcut are added before a quantizer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import Edge, Integers, Shape, whole
from bitsynth.network.def_use import DefUse, LinkKey, LinkList
from bitsynth.spec.matmul import MAX_BITS

_MONOTONE_IN_BOTH = ("add", "sub", "mul", "max", "min")
"""Rows that are monotone in their second operand too."""
_UNBOUNDED = ("round",)
"""Rows whose integers may be too great for int64 where their operand is any float."""
_PER_CHANNEL = ("thresholds",)
"""Attributes whose first axis are channels."""


@dataclass(frozen=True, eq=False)
class Chain:
    """Nodes from `start` to `end`, integers of at most 8 bits; each is monotone in the edge before it.

    What they do depends on an element and its channel alone.

    Args:
        start: The edge whose elements they take.
        nodes: In order; what they read besides are constants, or is made of such by `constant_nodes`.
        constant_nodes: Nodes that read nothing but constants.
        axes: The axis of channels of the first edge, then of what each node makes.
        varies: Whether channels differ.
        second: Another edge whose elements come in, at the same places; empty if there is none.
        second_path: The nodes, in order, on the path of `second`, up to the node of `nodes` where both paths join.
    """

    start: str
    nodes: tuple[Node, ...]
    constant_nodes: tuple[Node, ...]
    axes: tuple[int, ...]
    varies: bool
    second: str = ""
    second_path: tuple[Node, ...] = ()

    @property
    def end(self) -> str:
        """The edge that the last node makes."""
        return self.nodes[-1].outputs[0]

    @property
    def is_limited(self) -> bool:
        """Whether it makes integers of int64 of any number."""
        return not any(node.op in _UNBOUNDED for node in self.nodes)

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes by name."""
        return tuple(node.name for node in (*self.second_path, *self.nodes))


def find_chain(def_use: DefUse, start: str, axis: int = 1, *, monotone: bool = True) -> Chain | None:
    """The chain of single readers that begins with an edge whose channels lie along `axis`, if there is one.

    If it need not be `monotone`, nodes may be any functions of an element.

    Of the edges of integers it comes past it ends with the one of fewest bits, of these the last. Integers that stay
    what they are are none.
    """
    taken = cut_at_codes(def_use, find_links(def_use, start, axis, monotone=monotone))
    if not taken:
        return None
    kind, ops = def_use.graph.edges[start].type, [link.node.op for link in taken]
    if not isinstance(kind, Integers) and any(op in _UNBOUNDED for op in ops):
        return None
    if (
        isinstance(kind, Integers)
        and _code_bits(def_use, taken[-1].node) >= kind.bits
        and all(TABLE[op].kind != "step" for op in ops)
    ):
        return None
    return make_chain(def_use, start, taken, axis)


def cut_at_codes(def_use: DefUse, links: Sequence[Link]) -> Sequence[Link]:
    """Links up to the last of those that make the fewest bits; none if these are more than codes have."""
    bits = [_code_bits(def_use, link.node) for link in links]
    fewest = min(bits, default=MAX_BITS + 1)
    return links[: len(bits) - bits[::-1].index(fewest)] if fewest <= MAX_BITS else ()


def split_at_codes(def_use: DefUse, chain: Chain) -> Iterator[tuple[Chain, Chain]]:
    """What a chain without a second edge does before, and behind, each edge of codes that it passes."""
    links = find_links(def_use, chain.start, chain.axes[0], chain.nodes[0])[: len(chain.nodes)]
    for k in range(1, len(links)):
        edge = def_use.graph.edges[links[k - 1].node.outputs[0]]
        if isinstance(edge.type, Integers) and edge.type.bits <= MAX_BITS:
            before = make_chain(def_use, chain.start, links[:k], chain.axes[0])
            yield before, make_chain(def_use, edge.name, links[k:], links[k - 1].axis)


@dataclass(frozen=True)
class Link:
    """A node of a chain, the axis of channels of what it makes, and whether these differ in it."""

    node: Node
    axis: int
    varies: bool
    constant_nodes: tuple[Node, ...] = ()


def find_links(
    def_use: DefUse,
    start: str,
    axis: int = 1,
    first: Node | None = None,
    *,
    monotone: bool = True,
    mixing: bool = False,
) -> list[Link]:
    """Single readers one after another, as far as they can be links of a chain, of a `monotone` one if that is wanted.

    Of an edge with several readers the `first` is said. Reshapes that make other channels of elements are links too
    where channels are alike, if `mixing` is allowed.
    """
    node = first or def_use.only_reader(start)
    if not fits_axis(def_use.graph.edges[start], axis):
        return []
    if not mixing:
        return _find_links_onward(def_use, start, axis, node, monotone)
    found: list[Link] = []
    edge, at, varies, mixed = start, axis, _varies_type(def_use.graph.edges[start]), False
    while node is not None:
        link = make_link(def_use, node, edge, at, monotone=monotone)
        if link is None and not varies:
            link, mixed = _make_mixing_link(def_use, node), True
        if link is None or (link.varies and mixed):
            break
        found.append(link)
        varies, edge, at = varies or link.varies, node.outputs[0], link.axis
        node = def_use.only_reader(edge)
    return found


def _find_links_onward(def_use: DefUse, edge: str, axis: int, node: Node | None, monotone: bool) -> list[Link]:
    """Return the links from a node on.

    Every node of a long chain asks for the links after it. So the memo holds linked lists, which share their ends: of
    a chain of n nodes it has n lists, found in n steps.
    """
    memo, passed, found = def_use.memo.links, list[tuple[LinkKey, Link]](), None
    while node is not None:
        key = LinkKey(edge, axis, node.name, monotone)
        if key in memo:
            found = memo[key]
            break
        link = make_link(def_use, node, edge, axis, monotone=monotone)
        if link is None:
            memo[key] = None
            break
        passed.append((key, link))
        edge, axis = node.outputs[0], link.axis
        node = def_use.only_reader(edge)
    for key, link in reversed(passed):
        found = memo[key] = LinkList(link, found)
    links = []
    while found:
        link, found = found
        links.append(link)
    return links


def _make_mixing_link(def_use: DefUse, node: Node) -> Link | None:
    axes = len(def_use.graph.edges[node.outputs[0]].shape)
    return Link(node, 1, False) if node.op == "reshape" and axes > 1 else None


def make_chain(def_use: DefUse, start: str, links: Sequence[Link], axis: int = 1) -> Chain:
    """The chain of links, at least one, of an edge."""
    constant_nodes = tuple(dict.fromkeys(n for link in links for n in link.constant_nodes))
    axes = (axis, *(link.axis for link in links))
    varies = any(link.varies for link in links) or _varies_type(def_use.graph.edges[start])
    return Chain(start, tuple(link.node for link in links), constant_nodes, axes, varies)


def make_link(def_use: DefUse, node: Node, edge: str, axis: int, *, monotone: bool = True) -> Link | None:
    """A node that reads `edge` as a link of a chain, of a `monotone` one if that is wanted; None if it is none."""
    row, graph = TABLE[node.op], def_use.graph
    made = graph.edges[node.outputs[0]]
    if node.op == "reshape":
        to = moved_axis(graph.edges[edge].shape, made.shape, axis)
        return None if to is None else Link(node, to, False)
    if (
        row.kind not in ("elementwise", "step")
        or (monotone and (not row.monotone or _may_wrap(graph, node)))
        or made.shape != graph.edges[edge].shape
    ):
        return None
    others = [name for name in node.inputs if name != edge]
    falls_out = node.inputs[0] != edge and node.op not in _MONOTONE_IN_BOTH
    elsewhere = (
        node.op == "multi_threshold" and len(node.attributes["thresholds"]) > 1 and node.attributes["axis"] != axis
    )
    if len(others) + 1 != len(node.inputs) or (monotone and falls_out) or elsewhere:
        return None
    constant_nodes = [makers_of_constant(def_use, name) for name in others]
    along = [_along(graph.edges[name].shape, made.shape, axis) for name in others]
    along += [_attribute_along(key, value, made.shape, axis) for key, value in node.attributes.items()]
    if any(a is None for a in constant_nodes) or any(a is None for a in along):
        return None
    return Link(node, axis, any(along), tuple(n for made_by in constant_nodes for n in made_by or ()))


def _may_wrap(graph: Graph, node: Node) -> bool:
    """Whether results of a type of integers can leave it and come back at its other end: what wraps also falls."""
    made = graph.edges[node.outputs[0]]
    if made.is_float or TABLE[node.op].kind != "elementwise":
        return False
    every, kind = whole(made.dtype), made.integers
    if node.op != "cast":
        return kind.least == every.least and kind.most == every.most
    given = graph.edges[node.inputs[0]].type
    inside = isinstance(given, Integers) and given.is_plain
    return not (inside and every.least <= given.least and given.most <= every.most)  # type: ignore[union-attr]


def moved_axis(before: Shape, after: Shape, axis: int) -> int | None:
    """Where the axis of channels is after a reshape that leaves channels what they are; None if it does not."""
    first = math.prod(before[:axis])
    places = [k for k, n in enumerate(after) if n == before[axis] and math.prod(after[:k]) == first]
    return next((k for k in places if k > 0), None)


def makers_of_constant(def_use: DefUse, edge: str) -> tuple[Node, ...] | None:
    """The nodes that make an edge of constants alone, in order; None if it depends on an input of the network."""
    if edge in def_use.varying:
        return None
    found: dict[str, Node] = {}
    open_ones = [edge]
    while open_ones:
        maker = def_use.makers.get(open_ones.pop())
        if maker is not None and maker.name not in found:
            found[maker.name] = maker
            open_ones += maker.inputs
    return tuple(sorted(found.values(), key=lambda node: def_use.order[node.name]))


def _along(shape: Shape, whole: Shape, axis: int) -> bool | None:
    """Whether what broadcasts to `whole` varies along an axis; None if it does along another."""
    first = len(whole) - len(shape)
    if first < 0 or any(n != 1 and k + first != axis for k, n in enumerate(shape)):
        return None
    return any(n != 1 for n in shape)


def _attribute_along(key: str, value: Any, whole: Shape, axis: int) -> bool | None:
    """The same of an attribute's arrays."""
    if isinstance(value, tuple):
        parts = [_attribute_along(key, part, whole, axis) for part in value]
        return None if any(p is None for p in parts) else any(parts)
    if not isinstance(value, np.ndarray):
        return False
    if key in _PER_CHANNEL:
        return len(value) > 1
    return _along(value.shape, whole, axis)


def fits_axis(edge: Edge, axis: int) -> bool:
    """Whether an edge has channels along an axis behind the first, and a type that varies along these alone."""
    if not 0 < axis < len(edge.shape):
        return False
    return not isinstance(edge.type, Integers) or all(
        _along(p.shape, edge.shape, axis) is not None for p in (edge.type.scale, edge.type.zero)
    )


def _varies_type(edge: Edge) -> bool:
    """Whether an edge carries integers of several scales or zero points."""
    kind = edge.type
    return isinstance(kind, Integers) and not kind.has_one_grid


def _code_bits(def_use: DefUse, node: Node) -> int:
    """Bits of the integers that a node makes; more than codes have if it makes none."""
    kind = def_use.graph.edges[node.outputs[0]].type
    return kind.bits if isinstance(kind, Integers) else MAX_BITS + 1


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
