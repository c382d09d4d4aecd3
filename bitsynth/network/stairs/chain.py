"""Chains: nodes that turn the elements of one edge, each by itself, into the integers of a quantizer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import Edge, Integers, Shape, full_range
from bitsynth.spec.matmul import MAX_BITS

if TYPE_CHECKING:
    from bitsynth.network.wiring import Wiring

_EITHER = ("add", "sub", "mul", "max", "min")
"""Rows that are monotone in their second operand too."""
_UNLIMITED = ("round",)
"""Rows whose integers may be too great for int64 where their operand is any float."""
_PER_CHANNEL = ("thresholds",)
"""Attributes whose first axis are channels."""


@dataclass(frozen=True, eq=False)
class Chain:
    """Nodes from `start` to `end`, integers of at most 8 bits; each is monotone in the edge before it.

    What they do depends on an element and its channel alone.

    Args:
        start: The edge whose elements they take.
        nodes: In order; what they read besides are constants, or is made of such by `aside`.
        aside: Nodes that read nothing but constants.
        axes: The axis of channels of the first edge, then of what each node makes.
        varies: Whether channels differ.
        second: Another edge whose elements come in, at the same places; empty if there is none.
        beside: The nodes, in order, that those pass before they meet the others in one of `nodes`.
    """

    start: str
    nodes: tuple[Node, ...]
    aside: tuple[Node, ...]
    axes: tuple[int, ...]
    varies: bool
    second: str = ""
    beside: tuple[Node, ...] = ()

    @property
    def end(self) -> str:
        """The edge that the last node makes."""
        return self.nodes[-1].outputs[0]

    @property
    def is_limited(self) -> bool:
        """Whether it makes integers of int64 of any number."""
        return not any(node.op in _UNLIMITED for node in self.nodes)

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes by name."""
        return tuple(node.name for node in (*self.beside, *self.nodes))


def chain_from(wiring: Wiring, start: str, axis: int = 1, *, monotone: bool = True) -> Chain | None:
    """The chain of single readers that begins with an edge whose channels lie along `axis`, if there is one.

    If it need not be `monotone`, nodes may be any functions of an element.

    Of the edges of integers it comes past it ends with the one of fewest bits, of these the last. Integers that stay
    what they are are none.
    """
    taken = up_to_codes(wiring, links_from(wiring, start, axis, monotone=monotone))
    if not taken:
        return None
    kind, ops = wiring.graph.edges[start].type, [link.node.op for link in taken]
    if not isinstance(kind, Integers) and any(op in _UNLIMITED for op in ops):
        return None
    if (
        isinstance(kind, Integers)
        and _code_bits(wiring, taken[-1].node) >= kind.bits
        and all(TABLE[op].kind != "step" for op in ops)
    ):
        return None
    return chain_of(wiring, start, taken, axis)


def up_to_codes(wiring: Wiring, links: Sequence[Link]) -> Sequence[Link]:
    """Links up to the last of those that make the fewest bits; none if these are more than codes have."""
    bits = [_code_bits(wiring, link.node) for link in links]
    fewest = min(bits, default=MAX_BITS + 1)
    return links[: len(bits) - bits[::-1].index(fewest)] if fewest <= MAX_BITS else ()


def parted(wiring: Wiring, chain: Chain) -> Iterator[tuple[Chain, Chain]]:
    """What a chain without a second edge does before, and behind, each edge of codes that it passes."""
    links = links_from(wiring, chain.start, chain.axes[0], chain.nodes[0])[: len(chain.nodes)]
    for k in range(1, len(links)):
        edge = wiring.graph.edges[links[k - 1].node.outputs[0]]
        if isinstance(edge.type, Integers) and edge.type.bits <= MAX_BITS:
            before = chain_of(wiring, chain.start, links[:k], chain.axes[0])
            yield before, chain_of(wiring, edge.name, links[k:], links[k - 1].axis)


@dataclass(frozen=True)
class Link:
    """A node of a chain, the axis of channels of what it makes, and whether these differ in it."""

    node: Node
    axis: int
    varies: bool
    aside: tuple[Node, ...] = ()


def links_from(
    wiring: Wiring,
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
    node = first or wiring.only_reader(start)
    if not fits_axis(wiring.graph.edges[start], axis):
        return []
    if not mixing:
        return _onward(wiring, start, axis, node, monotone)
    found: list[Link] = []
    edge, at, varies, mixed = start, axis, _varies_type(wiring.graph.edges[start]), False
    while node is not None:
        link = link_of(wiring, node, edge, at, monotone=monotone)
        if link is None and not varies:
            link, mixed = _mixing(wiring, node), True
        if link is None or (link.varies and mixed):
            break
        found.append(link)
        varies, edge, at = varies or link.varies, node.outputs[0], link.axis
        node = wiring.only_reader(edge)
    return found


def _onward(wiring: Wiring, edge: str, axis: int, node: Node | None, monotone: bool) -> list[Link]:
    """Links from a node on: those behind it may be known, as each node of a long chain asks for them.

    What is known of a node is its link and what is known of the next one; None if it is no link.
    """
    known, passed = wiring.known, list[tuple[Any, Link | None]]()
    while node is not None and (key := ("link", edge, axis, node.name, monotone)) not in known:
        passed.append((key, link := link_of(wiring, node, edge, axis, monotone=monotone)))
        if link is None:
            break
        edge, axis = node.outputs[0], link.axis
        node = wiring.only_reader(edge)
    found = known.get(key) if node else None
    for key, link in reversed(passed):
        found = known[key] = (link, found) if link else None
    links = []
    while found:
        link, found = found
        links.append(link)
    return links


def _mixing(wiring: Wiring, node: Node) -> Link | None:
    axes = len(wiring.graph.edges[node.outputs[0]].shape)
    return Link(node, 1, False) if node.op == "reshape" and axes > 1 else None


def chain_of(wiring: Wiring, start: str, links: Sequence[Link], axis: int = 1) -> Chain:
    """The chain of links, at least one, of an edge."""
    aside = tuple(dict.fromkeys(n for link in links for n in link.aside))
    axes = (axis, *(link.axis for link in links))
    varies = any(link.varies for link in links) or _varies_type(wiring.graph.edges[start])
    return Chain(start, tuple(link.node for link in links), aside, axes, varies)


def link_of(wiring: Wiring, node: Node, edge: str, axis: int, *, monotone: bool = True) -> Link | None:
    """A node that reads `edge` as a link of a chain, of a `monotone` one if that is wanted; None if it is none."""
    row, graph = TABLE[node.op], wiring.graph
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
    falls_out = node.inputs[0] != edge and node.op not in _EITHER
    elsewhere = (
        node.op == "multi_threshold" and len(node.attributes["thresholds"]) > 1 and node.attributes["axis"] != axis
    )
    if len(others) + 1 != len(node.inputs) or (monotone and falls_out) or elsewhere:
        return None
    aside = [makers_of_constant(wiring, name) for name in others]
    along = [_along(graph.edges[name].shape, made.shape, axis) for name in others]
    along += [_attribute_along(key, value, made.shape, axis) for key, value in node.attributes.items()]
    if any(a is None for a in aside) or any(a is None for a in along):
        return None
    return Link(node, axis, any(along), tuple(n for made_by in aside for n in made_by or ()))


def _may_wrap(graph: Graph, node: Node) -> bool:
    """Whether results of a type of integers can leave it and come back at its other end: what wraps also falls."""
    made = graph.edges[node.outputs[0]]
    if made.is_float or TABLE[node.op].kind != "elementwise":
        return False
    every, kind = full_range(made.dtype), made.integers
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


def makers_of_constant(wiring: Wiring, edge: str) -> tuple[Node, ...] | None:
    """The nodes that make an edge of constants alone, in order; None if it depends on an input of the network."""
    if edge in wiring.varying:
        return None
    found: dict[str, Node] = {}
    open_ones = [edge]
    while open_ones:
        maker = wiring.makers.get(open_ones.pop())
        if maker is not None and maker.name not in found:
            found[maker.name] = maker
            open_ones += maker.inputs
    return tuple(sorted(found.values(), key=lambda node: wiring.order[node.name]))


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


def _code_bits(wiring: Wiring, node: Node) -> int:
    """Bits of the integers that a node makes; more than codes have if it makes none."""
    kind = wiring.graph.edges[node.outputs[0]].type
    return kind.bits if isinstance(kind, Integers) else MAX_BITS + 1
