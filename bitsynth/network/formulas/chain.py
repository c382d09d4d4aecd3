"""Chains: elementwise nodes from one edge to the codes of a quantizer, with a second edge that may join them.

For example batch_norm, relu and quantize after a convolution are a chain from its accumulators to codes:

    %acc -> batch_norm -> relu -> quantize -> %codes

A chain has single readers inside, so that one step can compute it; its constants may differ by channel alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import Edge, Integers, Shape, full_range
from bitsynth.network.def_use import DefUse, LinkKey, LinkList
from bitsynth.spec.matmul import MAX_BITS

AFFINE_OPS = ("add", "sub", "mul", "div", "batch_norm", "neg", "cast", "view")
"""Operators that are affine in their first operand where the others are constants."""
_MONOTONE_IN_BOTH = ("add", "sub", "mul", "max", "min")
"""Operators that are monotone in their second operand too."""
_UNBOUNDED = ("round",)
"""Operators whose integers may exceed int64 where the operand is any float."""
_PER_CHANNEL = ("thresholds",)
"""Attributes with channels along their first axis."""


@dataclass(frozen=True, eq=False)
class Chain:
    """Elementwise nodes from `start` to `end`, integers of at most 8 bits.

    Each result depends on one element and its channel alone. It is monotone in the element, unless a chain that is not
    monotone was asked for.

    Args:
        start: The edge that they begin with.
        nodes: In order; their other operands are constants, or results of `constant_nodes`.
        constant_nodes: Nodes that read nothing but constants.
        axes: The axis of channels of the first edge, then of each node's result.
        varies: Whether nodes treat channels differently.
        second: A second edge that joins the chain, element by element; empty if there is none.
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
        """The edge of the last node's result."""
        return self.nodes[-1].outputs[0]

    @property
    def is_limited(self) -> bool:
        """Whether its results fit int64 for any number."""
        return not any(node.op in _UNBOUNDED for node in self.nodes)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all nodes."""
        return tuple(node.name for node in (*self.second_path, *self.nodes))


def find_chain(def_use: DefUse, start: str, axis: int = 1, *, monotone: bool = True) -> Chain | None:
    """Return the chain of single readers after an edge whose channels lie along `axis`; None if there is none.

    Without `monotone`, nodes may be any functions of an element.

    It ends with the edge of integers of fewest bits on its way, the last of several. Integers that keep their bits
    without a quantizer are no chain.
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


def explain_no_chain(def_use: DefUse, start: str, axis: int = 1, first: Node | None = None) -> str:
    """Say in a few words why no chain to codes begins with an edge, or with the `first` of its readers."""
    graph = def_use.graph
    links = find_links(def_use, start, axis, first, monotone=False)
    if any(_code_bits(def_use, link.node) <= MAX_BITS for link in links):
        return "the nodes up to the next codes are not monotone, or keep the integers as they are"
    edge = links[-1].node.outputs[0] if links else start
    readers = [first] if first and not links else def_use.readers[edge]
    if edge in graph.output_set and not (first and not links):
        return "no quantizer follows before an output of the network"
    if len(readers) != 1:
        return f"{len(readers)} nodes read a result before it is quantized"
    return _explain_no_link(def_use, readers[0], edge)


def _explain_no_link(def_use: DefUse, node: Node, edge: str) -> str:
    """Say in a few words why a node that reads `edge` is no link of a chain."""
    if node.op == "reshape":
        return "a reshape moves elements to other channels before they are quantized"
    if TABLE[node.op].kind not in ("elementwise", "step"):
        return f"{node.op} follows before a quantizer of at most {MAX_BITS} bits"
    if sum(not def_use.is_constant(e) for e in dict.fromkeys(node.inputs)) > 1:
        return f"{node.op} joins a second operand before a quantizer"
    if def_use.graph.edges[node.outputs[0]].shape != def_use.graph.edges[edge].shape:
        return f"{node.op} broadcasts to another shape before a quantizer"
    return f"constants of {node.op} differ along another axis than channels"


def cut_at_codes(def_use: DefUse, links: Sequence[Link]) -> Sequence[Link]:
    """Return the links up to the last result of fewest bits; none if that has more bits than codes."""
    bits = [_code_bits(def_use, link.node) for link in links]
    fewest = min(bits, default=MAX_BITS + 1)
    return links[: len(bits) - bits[::-1].index(fewest)] if fewest <= MAX_BITS else ()


def split_at_codes(def_use: DefUse, chain: Chain) -> Iterator[tuple[Chain, Chain]]:
    """Yield a chain without a second edge in two parts, split at each edge of codes inside it."""
    links = find_links(def_use, chain.start, chain.axes[0], chain.nodes[0])[: len(chain.nodes)]
    for k in range(1, len(links)):
        edge = def_use.graph.edges[links[k - 1].node.outputs[0]]
        if isinstance(edge.type, Integers) and edge.type.bits <= MAX_BITS:
            before = make_chain(def_use, chain.start, links[:k], chain.axes[0])
            yield before, make_chain(def_use, edge.name, links[k:], links[k - 1].axis)


@dataclass(frozen=True)
class Link:
    """A node of a chain, the axis of channels of its result, and whether it treats channels differently."""

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
    """Return the single readers, one after another, that can be links of a chain, of a `monotone` one if asked for.

    For an edge with several readers, `first` names one. With `mixing`, reshapes that change the channel of an element
    are links too, where channels are treated alike.
    """
    node = first or def_use.only_reader(start)
    if not fits_axis(def_use.graph.edges[start], axis):
        return []
    if not mixing:
        return _find_links_onward(def_use, start, axis, node, monotone)
    links: list[Link] = []
    edge, at, varies, mixed = start, axis, _varies_type(def_use.graph.edges[start]), False
    while node is not None:
        link = make_link(def_use, node, edge, at, monotone=monotone)
        if link is None and not varies:
            link, mixed = _make_mixing_link(def_use, node), True
        if link is None or (link.varies and mixed):
            break
        links.append(link)
        varies, edge, at = varies or link.varies, node.outputs[0], link.axis
        node = def_use.only_reader(edge)
    return links


def _find_links_onward(def_use: DefUse, edge: str, axis: int, node: Node | None, monotone: bool) -> list[Link]:
    """Return the links from a node on.

    Every node of a long chain asks for the links after it. So the memo holds linked lists, which share their ends: of
    a chain of n nodes it has n lists, found in n steps.
    """
    memo, passed, onward = def_use.memo.links, list[tuple[LinkKey, Link]](), None
    while node is not None:
        key = LinkKey(edge, axis, node.name, monotone)
        if key in memo:
            onward = memo[key]
            break
        link = make_link(def_use, node, edge, axis, monotone=monotone)
        if link is None:
            memo[key] = None
            break
        passed.append((key, link))
        edge, axis = node.outputs[0], link.axis
        node = def_use.only_reader(edge)
    for key, link in reversed(passed):
        onward = memo[key] = LinkList(link, onward)
    links = []
    while onward:
        link, onward = onward
        links.append(link)
    return links


def _make_mixing_link(def_use: DefUse, node: Node) -> Link | None:
    axes = len(def_use.graph.edges[node.outputs[0]].shape)
    return Link(node, 1, False) if node.op == "reshape" and axes > 1 else None


def make_chain(def_use: DefUse, start: str, links: Sequence[Link], axis: int = 1) -> Chain:
    """Return the chain of an edge and one or more links."""
    constant_nodes = tuple(dict.fromkeys(n for link in links for n in link.constant_nodes))
    axes = (axis, *(link.axis for link in links))
    varies = any(link.varies for link in links) or _varies_type(def_use.graph.edges[start])
    return Chain(start, tuple(link.node for link in links), constant_nodes, axes, varies)


def make_link(def_use: DefUse, node: Node, edge: str, axis: int, *, monotone: bool = True) -> Link | None:
    """Return a node that reads `edge` as a link of a chain, of a `monotone` one if asked for; None if it is no link."""
    row, graph = TABLE[node.op], def_use.graph
    result = graph.edges[node.outputs[0]]
    if node.op == "reshape":
        to = find_moved_axis(graph.edges[edge].shape, result.shape, axis)
        return None if to is None else Link(node, to, False)
    if (
        row.kind not in ("elementwise", "step")
        or (monotone and (not row.is_monotone(node) or _may_wrap(graph, node)))
        or result.shape != graph.edges[edge].shape
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
    along = [_along(graph.edges[name].shape, result.shape, axis) for name in others]
    along += [_attribute_along(key, value, result.shape, axis) for key, value in node.attributes.items()]
    if any(a is None for a in constant_nodes) or any(a is None for a in along):
        return None
    return Link(node, axis, any(along), tuple(n for made_by in constant_nodes for n in made_by or ()))


def _may_wrap(graph: Graph, node: Node) -> bool:
    """Return whether integer results can wrap around in their type: a function that wraps is not monotone."""
    result = graph.edges[node.outputs[0]]
    if result.is_float or TABLE[node.op].kind != "elementwise":
        return False
    every, kind = full_range(result.dtype), result.integers
    if node.op != "cast":
        return kind.least == every.least and kind.most == every.most
    given = graph.edges[node.inputs[0]].type
    inside = isinstance(given, Integers) and given.is_plain
    return not (inside and every.least <= given.least and given.most <= every.most)  # type: ignore[union-attr]


def find_moved_axis(before: Shape, after: Shape, axis: int) -> int | None:
    """Return the axis of channels after a reshape; None if it changes the channel of an element."""
    first = math.prod(before[:axis])
    places = [k for k, n in enumerate(after) if n == before[axis] and math.prod(after[:k]) == first]
    return next((k for k in places if k > 0), None)


def makers_of_constant(def_use: DefUse, edge: str) -> tuple[Node, ...] | None:
    """Return the nodes that compute an edge from constants alone, in order; None if it depends on an input."""
    if edge in def_use.varying:
        return None
    makers: dict[str, Node] = {}
    open_ones = [edge]
    while open_ones:
        maker = def_use.makers.get(open_ones.pop())
        if maker is not None and maker.name not in makers:
            makers[maker.name] = maker
            open_ones += maker.inputs
    return tuple(sorted(makers.values(), key=lambda node: def_use.order[node.name]))


def _along(shape: Shape, whole: Shape, axis: int) -> bool | None:
    """Return whether an array that broadcasts to `whole` varies along an axis; None if it varies along another one."""
    first = len(whole) - len(shape)
    if first < 0 or any(n != 1 and k + first != axis for k, n in enumerate(shape)):
        return None
    return any(n != 1 for n in shape)


def _attribute_along(key: str, value: Any, whole: Shape, axis: int) -> bool | None:
    """Return whether an attribute's arrays vary along an axis; None if they vary along another one."""
    if isinstance(value, tuple):
        parts = [_attribute_along(key, part, whole, axis) for part in value]
        return None if any(p is None for p in parts) else any(parts)
    if not isinstance(value, np.ndarray):
        return False
    if key in _PER_CHANNEL:
        return len(value) > 1
    return _along(value.shape, whole, axis)


def fits_axis(edge: Edge, axis: int) -> bool:
    """Return whether an edge has channels along an axis other than the first, and its type varies along that alone."""
    if not 0 < axis < len(edge.shape):
        return False
    return not isinstance(edge.type, Integers) or all(
        _along(p.shape, edge.shape, axis) is not None for p in (edge.type.scale, edge.type.zero)
    )


def _varies_type(edge: Edge) -> bool:
    """Return whether an edge has integers of several scales or zero points."""
    kind = edge.type
    return isinstance(kind, Integers) and not kind.has_one_grid


def _code_bits(def_use: DefUse, node: Node) -> int:
    """Return the bits of a node's integers; more than codes have if its results are real numbers."""
    kind = def_use.graph.edges[node.outputs[0]].type
    return kind.bits if isinstance(kind, Integers) else MAX_BITS + 1


_JOINTS = ("add", "sub")


def find_joined_chain(def_use: DefUse, start: str, axis: int, first: Node) -> Chain | None:
    """Return the chain of an edge that a second one joins, up to the first codes; None if there is none.

    Nodes on the second edge's path are part of it if they come after `first` in the graph.
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
    """Return whether a node adds to an edge another one of its shape that is not constant."""
    others = [name for name in node.inputs if name != edge]
    shape = def_use.graph.edges[edge].shape
    return node.op in _JOINTS and len(others) == 1 and def_use.graph.edges[others[0]].shape == shape


def _is_step(link: Link) -> bool:
    return TABLE[link.node.op].kind == "step" and link.node.op != "view"


def _find_second_path(def_use: DefUse, edge: str, axis: int, first: Node) -> tuple[str, list[Link]] | None:
    """Return the farthest edge of integers from which elementwise nodes compute an edge, and these nodes."""
    second, links = None, list[Link]()
    while True:
        if def_use.carries_integers(edge) and not def_use.is_constant(edge):
            second = edge, list(links)
        maker = def_use.makers.get(edge)
        if maker is None or def_use.only_reader(edge) is None or def_use.order[maker.name] < def_use.order[first.name]:
            return second
        source = def_use.only_source(maker)
        link = make_link(def_use, maker, source, axis, monotone=False) if source else None
        if source is None or link is None or maker.op == "reshape" or _is_step(link):
            return second
        links.insert(0, link)
        edge = source
