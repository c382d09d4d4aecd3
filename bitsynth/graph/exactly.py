"""Single numbers as fractions, computed again from the integers before them where intervals do not decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic import Fractions, Interval
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE, Site
from bitsynth.graph.operators.products import terms
from bitsynth.graph.types import Edge, Integers, Reals, Tensor, whole

_MATHS = Fractions()
_FINEST = 1 << 128
"""Parts of 1 that numbers are counted in: of finer ones they are fractions."""
_SHORT = 1 << 30
"""Factors of which a sum of squares stays in int64, with the root of how many there are."""


class Exactly:
    """Numbers of the edges of a run, exactly.

    Args:
        graph: The network.
        values: The values so far, by edge; those of a node's inputs are there when it asks.
    """

    def __init__(self, graph: Graph, values: Mapping[str, Any], makers: Mapping[str, Node]) -> None:
        self._graph, self._values, self._makers = graph, values, makers

    def numbers(self, name: str, places: Tensor | None = None) -> Tensor:
        """The numbers at `places` of an edge, counted as it lies in memory, in their shape; all in the edge's shape."""
        edge = self._graph.edges[name]
        if places is None:
            places = np.arange(int(np.prod(edge.shape))).reshape(edge.shape)
        asked, back = np.unique(places, return_inverse=True)
        made: Tensor = self._at(edge, asked)[back].reshape(places.shape)
        return made

    def where(self, name: str, mask: Tensor) -> Tensor:
        """The numbers of an edge, broadcast to the shape of `mask`, where that holds: in a row."""
        return self.numbers(name, np.broadcast_to(_marks(self._graph.edges[name], 0), mask.shape)[mask])

    def _at(self, edge: Edge, places: Tensor) -> Tensor:
        value = self._values[edge.name]
        if isinstance(edge.type, Integers):
            grid = (np.broadcast_to(p, edge.shape).flat[places] for p in (edge.type.scale, edge.type.zero))
            scale, zero = (_MATHS.constant(p) for p in grid)
            found: Tensor = scale * (_MATHS.constant(value.reshape(-1)[places]) - zero)
            return found
        if not isinstance(value, Interval):
            return np.asarray(_MATHS.constant(np.asarray(value).reshape(-1)[places]))
        low, high = (x.reshape(-1)[places] for x in (value.low, value.high))
        made: Tensor = _MATHS.constant(np.nan_to_num(low))
        (open_places,) = (low != high).nonzero()
        if open_places.size:
            made[open_places] = self._computed(edge, places[open_places])
        return made

    def _computed(self, edge: Edge, places: Tensor) -> Tensor:
        node = self._makers[edge.name]
        site = self._site(node)
        kind = TABLE[node.op].kind
        if kind == "elementwise":
            inputs = [self.numbers(e.name, _broadcast(e, edge)[places]) for e in site.inputs]
            made: Tensor = TABLE[node.op].run(site, *inputs)[0]
            return made
        if kind == "move":
            return self._moved(site, places)
        if kind == "product":
            return self._summed(site, places)
        whole = TABLE[node.op].run(site, *(self.numbers(e.name) for e in site.inputs))
        found: Tensor = np.asarray(whole[node.outputs.index(edge.name)]).reshape(-1)[places]
        return found

    def _site(self, node: Node) -> Site:
        """The node on edges of numbers."""
        inputs = tuple(replace(e, type=Reals()) for e in self._graph.edges_of(node.inputs))
        outputs = tuple(replace(e, type=Reals()) for e in self._graph.edges_of(node.outputs))
        return Site(node, inputs, (), self._graph.reference, outputs, _MATHS)

    def _moved(self, site: Site, places: Tensor) -> Tensor:
        """Elements by where they come from: 0 marks padding."""
        starts = np.cumsum([1, *(int(np.prod(e.shape)) for e in site.inputs)])
        marks = [_marks(e, start) for e, start in zip(site.inputs, starts[:-1], strict=True)]
        outputs = tuple(replace(e, type=whole("int64")) for e in site.outputs)
        found = TABLE[site.node.op].run(replace(site, outputs=outputs), *marks)[0].reshape(-1)[places]
        made: Tensor = _MATHS.constant(np.zeros(places.shape))
        for edge, start, end in zip(site.inputs, starts[:-1], starts[1:], strict=True):
            here = (found >= start) & (found < end)
            made[here] = self.numbers(edge.name, found[here] - start)
        return made

    def _summed(self, site: Site, places: Tensor) -> Tensor:
        """Sums of products, of the factors that each has."""
        (a, of_a), (b, of_b) = (
            self._factors(e, marks) for e, marks in zip(site.inputs, terms(site, places), strict=True)
        )
        return np.asarray((a * b).sum(-1).astype(object) * (of_a * of_b))

    def _factors(self, edge: Edge, marks: Tensor) -> tuple[Tensor, Fraction]:
        """The numbers at marks in multiples of one, in whole ones if these are short, and that one."""
        asked, back = np.unique(marks, return_inverse=True)
        found = np.concatenate([_MATHS.constant(np.zeros(1)), self.numbers(edge.name, np.maximum(asked - 1, 0))])
        finest = math.lcm(*(x.denominator for x in found))
        if finest >= _FINEST:
            return found[np.where(marks > 0, 1 + back.reshape(marks.shape), 0)], Fraction(1)
        whole = np.array([x.numerator * (finest // x.denominator) for x in found], object)
        short = whole.astype(np.int64) if abs(whole).max() * math.isqrt(marks.shape[-1]) < _SHORT else whole
        return short[np.where(marks > 0, 1 + back.reshape(marks.shape), 0)], Fraction(1, finest)


def _marks(edge: Edge, start: int = 1) -> Tensor:
    """The places of an edge's elements, counted from `start`."""
    return np.arange(start, start + int(np.prod(edge.shape))).reshape(edge.shape)


def _broadcast(edge: Edge, to: Edge) -> Tensor:
    """For each element of an edge the place of that which is broadcast there."""
    return np.broadcast_to(_marks(edge, 0), to.shape).reshape(-1)
