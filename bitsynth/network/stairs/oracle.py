"""What a chain makes of numbers, by the reference interpreter itself: one meaning of every node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from bitsynth.graph.arithmetic import Interval
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.reference import Evaluation, enclose, run
from bitsynth.graph.types import Edge, EdgeType, Integers, Shape, Tensor, compress
from bitsynth.network.stairs.chain import Chain

_MOST_POINTS = 1 << 18
"""Elements evaluated at once."""


class Oracle:
    """A chain as a function of elements of its start, channel by channel; float64 ones if they are `doubles`.

    Attributes:
        channels: How many channels differ: 1 if all are alike.
    """

    def __init__(self, graph: Graph, chain: Chain, *, doubles: bool = False) -> None:
        self.graph, self.chain, self._doubles = graph, chain, doubles
        read = {name for node in (*chain.aside, *chain.beside, *chain.nodes) for name in node.inputs}
        # What the chain's own graphs begin with, of which many are made: not all constants of a large network.
        self._least = replace(
            graph, inputs=(), constants={n: v for n in read if (v := graph.constants.get(n)) is not None}
        )
        self.channels = graph.edges[chain.start].shape[chain.axes[0]] if chain.varies else 1

    def __call__(self, points: Tensor, seconds: Tensor | None = None) -> Tensor:
        """The integers (points, channels) at the end for elements (points, channels) of the start.

        And for as many of the second edge, if the chain has one.
        """
        most = max(1, _MOST_POINTS // self.channels)
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
        found = enclose(graph, given, self.chain.end)
        return found.low.reshape(low.shape), found.high.reshape(low.shape)

    def _of(self, count: int, starts: Sequence[str]) -> Graph:
        """The chain by itself, on edges whose first axis has so many points."""
        chain, builder = self.chain, GraphBuilder.begin_from(self._least)
        builder.inputs = list(starts)
        for name in starts:
            edge = self.graph.edges[name]
            shape = self._shape(edge, chain.axes[0], count)
            dtype = "float64" if self._doubles else edge.dtype
            builder.edges[name] = replace(edge, shape=shape, dtype=dtype, type=self._type(edge, chain.axes[0]))
        for node in (*chain.aside, *chain.beside):
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
        return replace(kind, low=compress(low.reshape(shape)), high=compress(high.reshape(shape)), step=1)


def over_channels(bound: Tensor, edge: Edge, axis: int, least: bool) -> Tensor:
    """The least or greatest of a bound that broadcasts to an edge for each channel (channels,)."""
    others = tuple(k for k in range(len(edge.shape)) if k != axis)
    every = np.broadcast_to(bound, edge.shape)
    found: Tensor = every.min(others) if least else every.max(others)
    return found
