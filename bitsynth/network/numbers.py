"""Numbers to try a network on: those that the quantizers behind an input tell apart."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from bitsynth.graph.ir import Graph
from bitsynth.graph.types import Edge, Integers, Tensor, cast, numpy_type

_WIDEST = 1 << 32
"""Integers up to which a quantizer tells numbers apart: those of other steps are as wide as numbers are."""


def every(graph: Graph, edge: Edge, count: int) -> Tensor:
    """So many numbers of an input's whole range: of integers these, of reals as far as a quantizer reaches and more."""
    dtype, kind = numpy_type(edge.dtype), edge.type
    if isinstance(kind, Integers):
        steps = np.linspace(0, (kind.most - kind.least) // kind.step, count).astype(np.int64)
        integers = kind.least + steps * kind.step
        made = (integers - kind.zero.max()) * (kind.scale.max() if edge.is_float else 1)
    else:
        low, high = _reach(graph, edge.name)
        room = (high - low) / 8
        made = np.linspace(low - room, high + room, count)
    return np.asarray(made).astype(dtype)


def drawn(rng: Generator, graph: Graph, edge: Edge) -> Tensor:
    """An input at random: of all integers of its edge, or of numbers around the ties of its quantizer and on them."""
    kind = edge.type
    if isinstance(kind, Integers):
        steps = rng.integers(0, (kind.most - kind.least) // kind.step + 1, edge.shape)
        return cast(kind.scale * (kind.least + kind.step * steps - kind.zero), edge.dtype)
    quantizer = next((n for n in graph.readers()[edge.name] if n.op == "quantize"), None)
    if quantizer is None:
        return cast(rng.choice(every(graph, edge, 1 << 12), edge.shape), edge.dtype)
    low, high = (quantizer.attributes[k] - int(quantizer.attributes["zero"].min()) for k in ("low", "high"))
    places = rng.uniform(low - 1, high + 1, edge.shape)
    ties = np.floor(places) + 0.5
    return cast(np.where(rng.integers(0, 4, edge.shape), places, ties) * quantizer.attributes["scale"], edge.dtype)


def _reach(graph: Graph, edge: str) -> tuple[float, float]:
    """The numbers of the first quantizer behind an edge of reals, as nodes in between leave most as they are."""
    readers = graph.readers()
    left, seen = [edge], {edge}
    while left:
        kind = graph.edges[name := left.pop(0)].type
        if isinstance(kind, Integers) and name != edge and kind.most < _WIDEST:
            ends = [kind.scale * (n - kind.zero) for n in (kind.low, kind.high)]
            return float(np.min(ends[0])), float(np.max(ends[1]))
        behind = [made for node in readers[name] for made in node.outputs if made not in seen]
        seen |= set(behind)
        left += behind
    return -2.0, 2.0
