"""A chain evaluated by the reference interpreter, and the proof that a formula equals it.

Chains have no second implementation of their operators: `Oracle` builds a small graph of the chain and runs the
reference.

`prove_equal` compares a formula with a chain that is not monotone, on all accumulators. On an interval of accumulators
interval arithmetic gives integers between which each of the two lies. If these are one and the same integer, equality
is proved; if the bounds are disjoint, the formula is wrong; else the interval is split, and short ones are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from bitsynth.graph.arithmetic import Interval
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.reference import Evaluation, enclose, run
from bitsynth.graph.types import Edge, EdgeType, Integers, Shape, Tensor, compress
from bitsynth.network.formulas.chain import Chain

_POINTS_AT_ONCE = 1 << 18
"""Elements evaluated at once."""


class Oracle:
    """A chain as a function of the elements of its start, by channel; of float64 elements with `doubles`.

    Attributes:
        channels: The number of channels, or 1 if the chain treats all alike.
    """

    def __init__(self, graph: Graph, chain: Chain, *, doubles: bool = False) -> None:
        self.graph, self.chain, self._doubles = graph, chain, doubles
        read = {name for node in (*chain.constant_nodes, *chain.second_path, *chain.nodes) for name in node.inputs}
        # Many graphs of the chain are built from this one, so it has the chain's constants and not the whole network's.
        self._least = replace(
            graph, inputs=(), constants={n: v for n in read if (v := graph.constants.get(n)) is not None}
        )
        self.channels = graph.edges[chain.start].shape[chain.axes[0]] if chain.varies else 1

    def __call__(self, points: Tensor, seconds: Tensor | None = None) -> Tensor:
        """Return the integers (points, channels) at the end for elements (points, channels) of the start.

        A chain with a second edge takes as many elements of that, `seconds`.
        """
        most = max(1, _POINTS_AT_ONCE // self.channels)
        given = [points] if seconds is None else [points, seconds]
        parts = [self.values([x[k : k + most] for x in given])[self.chain.end] for k in range(0, len(points), most)]
        return np.concatenate([np.asarray(part).reshape(-1, self.channels) for part in parts])

    def values(self, given: Sequence[Tensor]) -> Evaluation:
        """Return all edges of the chain for elements (points, channels) of the start, and of the second edge."""
        names = [self.chain.start, self.chain.second][: len(given)]
        graph = self._of(len(given[0]), names)
        return run(graph, {name: x.reshape(graph.edges[name].shape) for name, x in zip(names, given, strict=True)})

    def bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Return bounds of the integers for all elements from `low` to `high` (points, channels); SpecError if none.

        Exact arithmetic has them for chains from integers to real numbers, and from real numbers to integers.
        """
        graph = self._of(len(low), [self.chain.start])
        shape = graph.edges[self.chain.start].shape
        given = {self.chain.start: Interval(low.reshape(shape), high.reshape(shape))}
        results = enclose(graph, given, self.chain.end)
        return results.low.reshape(low.shape), results.high.reshape(low.shape)

    def _of(self, count: int, starts: Sequence[str]) -> Graph:
        """Return the graph of the chain alone, on edges whose first axis has `count` points."""
        chain, builder = self.chain, GraphBuilder.begin_from(self._least)
        builder.inputs = list(starts)
        for name in starts:
            edge = self.graph.edges[name]
            shape = self._shape(edge, chain.axes[0], count)
            dtype = "float64" if self._doubles else edge.dtype
            builder.edges[name] = replace(edge, shape=shape, dtype=dtype, type=self._type(edge, chain.axes[0]))
        for node in (*chain.constant_nodes, *chain.second_path):
            builder.repeat(node)
        for node, axis in zip(chain.nodes, chain.axes[1:], strict=True):
            builder.repeat(self._resize(node, axis, count))
        return builder.build((chain.end,))

    def _resize(self, node: Node, axis: int, count: int) -> Node:
        """Return a node of the chain, with a reshape's sizes for `count` points."""
        if node.op != "reshape":
            return node
        sizes = self._shape(self.graph.edges[node.outputs[0]], axis, count)
        return replace(node, attributes=MappingProxyType({**node.attributes, "sizes": sizes}))

    def _shape(self, edge: Edge, axis: int, count: int) -> Shape:
        """Return the shape with points along the first axis, and 1 along the others except the axis of channels."""
        sizes = [self.channels if k == axis else 1 for k in range(len(edge.shape))]
        return (count, *sizes[1:])

    def _type(self, edge: Edge, axis: int) -> EdgeType:
        """Return the type of an edge, for all channels alike if there is one.

        Integers between the ones that occur belong to it: formulas and tables of C have a value for them, too.
        """
        kind = edge.type
        if not isinstance(kind, Integers):
            return kind
        if self.channels == 1:
            return Integers.between(kind.least, kind.most, kind.scale.min(), kind.zero.min())
        low, high = (over_channels(bound, edge, axis, least) for bound, least in ((kind.low, True), (kind.high, False)))
        shape = [-1 if k == axis else 1 for k in range(len(edge.shape))]
        return replace(kind, low=compress(low.reshape(shape)), high=compress(high.reshape(shape)), step=1)


def over_channels(bound: Tensor, edge: Edge, axis: int, least: bool) -> Tensor:
    """Return the least or greatest value, for each channel (channels,), of a bound that broadcasts to an edge."""
    others = tuple(k for k in range(len(edge.shape)) if k != axis)
    every = np.broadcast_to(bound, edge.shape)
    extremes: Tensor = every.min(others) if least else every.max(others)
    return extremes


IntegerBounds = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Return bounds of the integers (points, channels) for all elements from the first to the second argument."""
_SPLIT_PARTS, _SHORT_INTERVAL = 8, 4
"""The parts that an interval is split into; intervals of at most this number of elements are evaluated one by one."""
_MAX_INTERVALS = 1 << 21
"""Intervals that are examined at once."""


def prove_equal(oracle: Oracle, formula: IntegerBounds, low: Tensor, high: Tensor) -> Tensor:
    """Return, for each channel (channels,), whether a formula equals the oracle from `low` to `high` (channels,).

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
    proved: Tensor = right & (oracle(points) == formula(points, points)[0]).all(0)
    return proved


def _divide(first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parts of intervals."""
    width, part = last - first + 1, np.arange(_SPLIT_PARTS)[:, None, None]
    begin = first + width * part // _SPLIT_PARTS
    end = np.maximum(first + width * (part + 1) // _SPLIT_PARTS - 1, begin)
    return begin.reshape(-1, first.shape[1]), end.reshape(-1, first.shape[1])


def _pack(first: Tensor, last: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """Return the intervals that are left; channels with fewer than others repeat the first element of one."""
    rows = np.argsort(~left, axis=0, kind="stable")[: left.sum(0).max()]
    first, last, left = (np.take_along_axis(x, rows, 0) for x in (first, last, left))
    return first, np.where(left, last, first)
