"""Bounds of real numbers on an edge of a graph in the making, from limits and constants before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bitsynth.graph.arithmetic.intervals import Interval, Intervals, interval
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE, Site
from bitsynth.graph.types import Integers, Reals, Tensor

_MAX_DEPTH = 8
"""Nodes before an edge that are asked: fake quantization is written in few."""
_MOVES = ("reshape", "transpose", "slice", "gather", "expand", "max_pool", "reduce_max", "reduce_min")
"""What makes no number that was not there."""


def find_bounds(graph: GraphBuilder, name: str, deep: int = _MAX_DEPTH) -> tuple[Tensor, Tensor]:
    """The least and the greatest number that may be on an edge, infinite if nothing is known; they broadcast to it."""
    kind = graph.edges[name].type
    if isinstance(kind, Integers):
        ends = [(end - kind.zero) * kind.scale for end in (kind.low, kind.high)]
        return np.asarray(ends[0]), np.asarray(ends[1])
    if name in graph.constants:
        value = graph.constants[name].astype(np.float64)
        return value, value
    maker = graph.maker(name)
    if maker is None or not deep:
        return _unbounded()
    if maker.op in _MOVES:
        low, high = find_bounds(graph, maker.inputs[0], deep - 1)
        return np.asarray(low.min()), np.asarray(high.max())
    return _bound_elementwise(graph, maker, deep) if TABLE[maker.op].kind == "elementwise" else _unbounded()


def _unbounded() -> tuple[Tensor, Tensor]:
    return np.asarray(-np.inf), np.asarray(np.inf)


def _bound_elementwise(graph: GraphBuilder, node: Node, deep: int) -> tuple[Tensor, Tensor]:
    """Bounds of what is done element by element, by its own meaning on intervals."""
    inputs, outputs = (
        tuple(replace(graph.edges[name], type=Reals()) for name in names) for names in (node.inputs, node.outputs)
    )
    site = Site(node, inputs, (), "exact", outputs, Intervals())
    with np.errstate(all="ignore"):
        made: Interval = interval(
            TABLE[node.op].run(site, *(Interval(*find_bounds(graph, n, deep - 1)) for n in node.inputs))[0]
        )
    low, high = np.asarray(made.low, np.float64), np.asarray(made.high, np.float64)
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
