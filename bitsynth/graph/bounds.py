"""Bounds of the real numbers on an edge of a graph under construction, from limits and constants before it.

Example: in `x -> Clip 0 1 -> Mul 15 -> Round` the numbers before Round lie between 0 and 15, so Round is a quantizer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bitsynth.graph.arithmetic.intervals import Interval, Intervals, interval
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE, Site
from bitsynth.graph.types import Integers, Reals, Tensor

_MAX_DEPTH = 8
"""How many nodes back bounds are looked for: fake quantization is written in few nodes."""
_MOVES = ("reshape", "transpose", "slice", "gather", "expand", "max_pool", "reduce_max", "reduce_min")
"""Operators whose outputs are among their inputs."""


def find_bounds(graph: GraphBuilder, name: str, deep: int = _MAX_DEPTH) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest number that an edge may carry, infinite if unknown; they broadcast to it."""
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
    """Return bounds of an edge of which nothing is known."""
    return np.asarray(-np.inf), np.asarray(np.inf)


def _bound_elementwise(graph: GraphBuilder, node: Node, deep: int) -> tuple[Tensor, Tensor]:
    """Return bounds of the output of an elementwise node: its meaning is run on intervals."""
    inputs, outputs = (
        tuple(replace(graph.edges[name], type=Reals()) for name in names) for names in (node.inputs, node.outputs)
    )
    site = Site(node, inputs, (), "exact", outputs, Intervals())
    with np.errstate(all="ignore"):
        output: Interval = interval(
            TABLE[node.op].run(site, *(Interval(*find_bounds(graph, n, deep - 1)) for n in node.inputs))[0]
        )
    low, high = np.asarray(output.low, np.float64), np.asarray(output.high, np.float64)
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
