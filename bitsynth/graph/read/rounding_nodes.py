"""Nodes that cut and round floats: fake quantization that is written in them becomes quantizers.

Trainers of their own (DoReFa, PACT, LSQ) export Div, Clip, Round and Mul. Rounding of numbers between known bounds, or
with a Clip behind it, has few integers: that is a quantizer. What makes weights of constants is rounded as the file's
floats are, as exporters do it.
"""

from __future__ import annotations

import numpy as np

from bitsynth.graph.bounds import bounds
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.operators.rounding import ROUNDINGS
from bitsynth.graph.read.bits import bipolar
from bitsynth.graph.read.cut_rounding import MOST_LIMIT, cut_rounding, number_of, quantizer_within
from bitsynth.graph.read.float_nodes import Reader, fold
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Integers


def _round(mode: str) -> Reader:
    def read(node: FileNode) -> tuple[str, ...]:
        if not node.of(0).is_float or isinstance(node.of(0).type, Integers):
            return (node.add("round", node.edge(0), rounding=mode),)
        weights = node.graph.in_floats(node.edge(0))
        edge = node.edge(0) if weights is None else node.constant(weights)
        low, high = (ROUNDINGS[mode](end) for end in bounds(node.graph, edge))
        limits = float(low.min()), float(high.max())
        if not (-MOST_LIMIT <= limits[0] and limits[1] <= MOST_LIMIT):
            return (node.add("round", edge, rounding=mode),)
        return (quantizer_within(node, edge, mode, limits),)

    return read


def _clip(node: FileNode) -> tuple[str, ...]:
    limits = [_limit(node, name, k) for k, name in ((1, "min"), (2, "max"))]
    low, high = (None if x is None or not np.isfinite(x) else x for x in limits)
    if not node.of(0).is_float:
        low, high = (None if x is None else int(x) for x in (low, high))
    if low is None and high is None:
        return (node.edge(0),)
    made = cut_rounding(node, node.edge(0), low, high) if node.of(0).is_float else None
    return (made or node.add("clip", node.edge(0), low=low, high=high),)


def _extreme(op: str) -> Reader:
    """The lesser or the greater of numbers."""
    return fold(lambda node, a, b: _cut(node, op, a, b) or node.add(op, a, b))


def _cut(node: FileNode, op: str, a: str, b: str) -> str | None:
    """What one of two edges is cut to by the other, if that makes a quantizer."""
    for edge, other in ((a, b), (b, a)):
        limit = number_of(node.graph, other)
        if limit is not None and len(node.graph.edges[other].shape) <= len(node.graph.edges[edge].shape):
            return cut_rounding(node, edge, *((None, limit) if op == "min" else (limit, None)))
    return None


def _limit(node: FileNode, name: str, index: int) -> float | int | None:
    if name in node.attributes:
        return float(node.attributes[name])
    if not node.has(index):
        return None
    value = node.value(index, name)
    if value.size != 1:
        raise node.fail(f"{name} must be one number")
    number: float | int = value.reshape(-1)[0].item()
    return number


def _sign(node: FileNode) -> tuple[str, ...]:
    """-1, 0 or 1: the next whole number away from 0, cut to these; of weights without 0 bipolar ones."""
    if not node.of(0).is_float:
        raise node.fail(f"its input is {node.of(0).dtype}; it wants floats")
    value = node.graph.in_floats(node.edge(0))
    if value is not None:
        return (node.constant(np.sign(value)),)
    if _is_never_zero(node.graph, node.edge(0)):
        return (bipolar(node, node.edge(0), node.of(0).dtype),)
    return (quantizer_within(node, node.edge(0), "UP", (-1, 1)),)


def _is_never_zero(graph: GraphBuilder, edge: str) -> bool:
    """Whether an edge is integers plus a number between two: Larq's sign of 0 is so made 1."""
    more = graph.maker(edge, "add") or graph.maker(edge, "sub")
    number = graph.value(more.inputs[1]) if more else None
    if more is None or number is None or not (number != np.rint(number)).all():
        return False
    kind = graph.edges[more.inputs[0]].type
    return isinstance(kind, Integers) and kind.is_plain


READERS: dict[str, Reader] = {
    "Ceil": _round("CEIL"),
    "Clip": _clip,
    "Floor": _round("FLOOR"),
    "Max": _extreme("max"),
    "Min": _extreme("min"),
    "Round": _round("ROUND"),
    "Sign": _sign,
}
