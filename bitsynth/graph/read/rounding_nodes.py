"""Nodes that cut and round floats: fake quantization that is written in them becomes quantizers.

Trainers of their own (DoReFa, PACT, LSQ) export Div, Clip, Round and Mul. Rounding of numbers between known bounds, or
with a Clip behind it, has few integers: that is a quantizer. What makes weights of constants is rounded as the file's
floats are, as exporters do it.
"""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

from bitsynth.graph.bounds import bounds
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Node
from bitsynth.graph.operators.rounding import ROUNDINGS
from bitsynth.graph.read.bits import bipolar
from bitsynth.graph.read.float_nodes import Reader
from bitsynth.graph.read.quantizer import Quantizer
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Integers, Tensor

_MOST = 1 << 31
"""Limits of integers worth a quantizer."""


def _round(mode: str) -> Reader:
    def read(node: FileNode) -> tuple[str, ...]:
        if not node.of(0).is_float or isinstance(node.of(0).type, Integers):
            return (node.add("round", node.edge(0), rounding=mode),)
        weights = node.graph.in_floats(node.edge(0))
        edge = node.edge(0) if weights is None else node.constant(weights)
        low, high = (ROUNDINGS[mode](end) for end in bounds(node.graph, edge))
        limits = float(low.min()), float(high.max())
        if not (-_MOST <= limits[0] and limits[1] <= _MOST):
            return (node.add("round", edge, rounding=mode),)
        return (_quantizer(node, edge, mode, limits),)

    return read


def _quantizer(node: FileNode, edge: str, mode: str, limits: tuple[float, float]) -> str:
    """Whole numbers within limits by rounding an edge; a Clip before it to whole numbers and a division are its own."""
    source, scale = edge, np.ones(())
    low, high = limits
    if (clip := node.graph.maker(source, "clip")) and (cut := _whole_limits(clip)):
        source, low, high = clip.inputs[0], max(low, cut[0]), min(high, cut[1])
    if (division := node.graph.maker(source, "div")) and (found := _scale(node.graph, division)) is not None:
        source, scale = division.inputs[0], found
    return Quantizer(mode, (int(low), int(high)), scale, 0.0).add(node, source, real=node.of(0).dtype)


def _whole_limits(clip: Node) -> tuple[float, float] | None:
    limits = clip.attributes["low"], clip.attributes["high"]
    return limits if all(map(_is_whole, limits)) else None


def _scale(graph: GraphBuilder, division: Node) -> Tensor | None:
    """The divisor as the scale of a quantizer of the dividend; None if it is none."""
    dividend, quotient = (graph.edges[name] for name in (division.inputs[0], division.outputs[0]))
    value = graph.value(division.inputs[1])
    if value is None or dividend.shape != quotient.shape or not ((value > 0) & np.isfinite(value)).all():
        return None
    rank = len(dividend.shape)
    return value.reshape(()) if value.size == 1 else value.reshape((1,) * (rank - value.ndim) + value.shape)


def _clip(node: FileNode) -> tuple[str, ...]:
    limits = [_limit(node, name, k) for k, name in ((1, "min"), (2, "max"))]
    low, high = (None if x is None or not np.isfinite(x) else x for x in limits)
    if not node.of(0).is_float:
        low, high = (None if x is None else int(x) for x in (low, high))
    if low is None and high is None:
        return (node.edge(0),)
    rounded = node.graph.maker(node.edge(0), "round")
    if rounded and _is_whole(low) and _is_whole(high) and low <= high and not _of_integers(node.graph, rounded):
        return (_quantizer(node, rounded.inputs[0], rounded.attributes["rounding"], (low, high)),)
    return (node.add("clip", node.edge(0), low=low, high=high),)


def _is_whole(limit: float | None) -> TypeGuard[float]:
    return limit is not None and limit == np.rint(limit) and abs(limit) <= _MOST


def _of_integers(graph: GraphBuilder, rounded: Node) -> bool:
    return isinstance(graph.edges[rounded.inputs[0]].type, Integers)


def _limit(node: FileNode, name: str, index: int) -> float | int | None:
    if name in node.attributes:
        return float(node.attributes[name])
    if not node.has(index):
        return None
    value = node.value(index, name).reshape(-1)
    if value.size != 1:
        raise node.fail(f"{name} must be one number")
    number: float | int = value[0].item()
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
    return (_quantizer(node, node.edge(0), "UP", (-1, 1)),)


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
    "Round": _round("ROUND"),
    "Sign": _sign,
}
