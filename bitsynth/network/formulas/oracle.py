"""What a chain makes of numbers, by the reference interpreter itself: one meaning of every node.

Proof that a formula equals a chain that is not monotone, for every accumulator, by intervals and by points.

On an interval of sums both lie between integers that interval arithmetic gives. Where these are one and the same that
is proved; where they are apart the formula is wrong; what is left is divided, and short intervals are gone through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from bitsynth.graph.arithmetic import Interval
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.reference import Evaluation, enclosure, run
from bitsynth.graph.types import Edge, EdgeType, Integers, Shape, Tensor, compressed
from bitsynth.network.formulas.chain import Chain

_POINTS_AT_ONCE = 1 << 18
"""Elements evaluated at once."""


class Oracle:
    """A chain as a function of elements of its start, channel by channel; float64 ones if they are `doubles`.

    Attributes:
        channels: How many channels differ: 1 if all are alike.
    """

    def __init__(self, graph: Graph, chain: Chain, *, doubles: bool = False) -> None:
        self.graph, self.chain, self._doubles = graph, chain, doubles
        read = {name for node in (*chain.constant_nodes, *chain.second_path, *chain.nodes) for name in node.inputs}
        # What the chain's own graphs begin with, of which many are made: not all constants of a large network.
        self._least = replace(
            graph, inputs=(), constants={n: v for n in read if (v := graph.constants.get(n)) is not None}
        )
        self.channels = graph.edges[chain.start].shape[chain.axes[0]] if chain.varies else 1

    def __call__(self, points: Tensor, seconds: Tensor | None = None) -> Tensor:
        """The integers (points, channels) at the end for elements (points, channels) of the start.

        And for as many of the second edge, if the chain has one.
        """
        most = max(1, _POINTS_AT_ONCE // self.channels)
        given = [points] if seconds is None else [points, seconds]
        parts = [self.values([x[k : k + most] for x in given])[self.chain.end] for k in range(0, len(points), most)]
        return np.concatenate([np.asarray(part).reshape(-1, self.channels) for part in parts])

    def values(self, given: Sequence[Tensor]) -> Evaluation:
        """Every edge of the chain for elements (points, channels) of the start, and of the second edge."""
        names = [self.chain.start, self.chain.second][: len(given)]
        graph = self._of(len(given[0]), names)
        return run(graph, {name: x.reshape(graph.edges[name].shape) for name, x in zip(names, given, strict=True)})

    def bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Integers between which those of all elements from `low` to `high` (points, channels) lie; SpecError if none.

        There are such of a chain from integers to real numbers and from these to integers, in real arithmetic.
        """
        graph = self._of(len(low), [self.chain.start])
        shape = graph.edges[self.chain.start].shape
        given = {self.chain.start: Interval(low.reshape(shape), high.reshape(shape))}
        found = enclosure(graph, given, self.chain.end)
        return found.low.reshape(low.shape), found.high.reshape(low.shape)

    def _of(self, count: int, starts: Sequence[str]) -> Graph:
        """The chain by itself, on edges whose first axis has so many points."""
        chain, builder = self.chain, GraphBuilder.beginning(self._least)
        builder.inputs = list(starts)
        for name in starts:
            edge = self.graph.edges[name]
            shape = self._shape(edge, chain.axes[0], count)
            dtype = "float64" if self._doubles else edge.dtype
            builder.edges[name] = replace(edge, shape=shape, dtype=dtype, type=self._type(edge, chain.axes[0]))
        for node in (*chain.constant_nodes, *chain.second_path):
            builder.repeat(node)
        for node, axis in zip(chain.nodes, chain.axes[1:], strict=True):
            builder.repeat(self._resized(node, axis, count))
        return builder.build((chain.end,))

    def _resized(self, node: Node, axis: int, count: int) -> Node:
        """A node of the chain as it is for points."""
        if node.op != "reshape":
            return node
        sizes = self._shape(self.graph.edges[node.outputs[0]], axis, count)
        return replace(node, attributes=MappingProxyType({**node.attributes, "sizes": sizes}))

    def _shape(self, edge: Edge, axis: int, count: int) -> Shape:
        """Points, then 1 along every axis but that of channels."""
        sizes = [self.channels if k == axis else 1 for k in range(len(edge.shape))]
        return (count, *sizes[1:])

    def _type(self, edge: Edge, axis: int) -> EdgeType:
        """Return the type of an edge, for all channels alike if there is one.

        Integers between those that occur belong to it: formulas and tables of C have a value for them, too.
        """
        kind = edge.type
        if not isinstance(kind, Integers):
            return kind
        if self.channels == 1:
            return Integers.between(kind.least, kind.most, kind.scale.min(), kind.zero.min())
        low, high = (over_channels(bound, edge, axis, least) for bound, least in ((kind.low, True), (kind.high, False)))
        shape = [-1 if k == axis else 1 for k in range(len(edge.shape))]
        return replace(kind, low=compressed(low.reshape(shape)), high=compressed(high.reshape(shape)), step=1)


def over_channels(bound: Tensor, edge: Edge, axis: int, least: bool) -> Tensor:
    """The least or greatest of a bound that broadcasts to an edge for each channel (channels,)."""
    others = tuple(k for k in range(len(edge.shape)) if k != axis)
    every = np.broadcast_to(bound, edge.shape)
    found: Tensor = every.min(others) if least else every.max(others)
    return found


IntegerBounds = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Integers (points, channels) between which those of all elements from the first to the second lie."""
_SPLIT_PARTS, _SHORT_INTERVAL = 8, 4
"""How many parts an interval is divided into; how many elements are gone through."""
_MAX_INTERVALS = 1 << 21
"""Intervals that are looked at, at once."""


def prove_equal(oracle: Oracle, formula: IntegerBounds, low: Tensor, high: Tensor) -> Tensor:
    """For each channel (channels,) whether the formula gives the oracle's integers from `low` to `high` (channels,).

    SpecError for a chain that has no bounds.
    """
    right = np.ones(low.shape, bool)
    first, last = low[None], high[None]
    while first.size and (last - first).max() >= _SHORT_INTERVAL:
        first, last = _divide(first, last)
        if first.size > _MAX_INTERVALS:
            return np.zeros(low.shape, bool)
        (least, most), (lowest, highest) = formula(first, last), oracle.bounds(first, last)
        same = (least == most) & (lowest == highest) & (least == lowest)
        right &= ~((most < lowest) | (highest < least)).any(0)
        first, last = _pack(first, last, ~same & right)
    if not first.size:
        return right
    points = np.minimum(first + np.arange(_SHORT_INTERVAL)[:, None, None], last).reshape(-1, low.size)
    found: Tensor = right & (oracle(points) == formula(points, points)[0]).all(0)
    return found


def _divide(first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """The parts of intervals."""
    width, part = last - first + 1, np.arange(_SPLIT_PARTS)[:, None, None]
    begin = first + width * part // _SPLIT_PARTS
    end = np.maximum(first + width * (part + 1) // _SPLIT_PARTS - 1, begin)
    return begin.reshape(-1, first.shape[1]), end.reshape(-1, first.shape[1])


def _pack(first: Tensor, last: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """The intervals that are left, and of channels with fewer than others the first element of one again."""
    rows = np.argsort(~left, axis=0, kind="stable")[: left.sum(0).max()]
    first, last, left = (np.take_along_axis(x, rows, 0) for x in (first, last, left))
    return first, np.where(left, last, first)
