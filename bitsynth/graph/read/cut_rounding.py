"""Rounded numbers that are cut: a quantizer, whatever scale and zero point are between the two.

max(min(round(x) * s, h), l) is round(x) cut to l / s and h / s, times s, if these are whole numbers. QKeras writes so.
"""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import TypeGuard

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Node
from bitsynth.graph.read.quantizer import Quantizer
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Integers, Tensor

MOST_LIMIT = 1 << 31
"""Limits of integers worth a quantizer."""
_MOST_NODES = 32
"""Nodes between a cut and what it rounds: exporters write a few; each of a long chain of cuts looks at those before."""
_UNDONE = {"mul": operator.truediv, "div": operator.mul, "add": operator.sub, "sub": operator.add}
Limit = Fraction | None
"""The least or the greatest number there may be; None where there is none."""


def cut_rounding(node: FileNode, edge: str, low: float | None, high: float | None) -> str | None:
    """An edge cut to limits, if it has whole numbers on some scale: as codes on that scale; None of others."""
    graph, steps = node.graph, list[Node]()
    limits = _fraction(low), _fraction(high)
    for _ in range(_MOST_NODES):
        if _is_whole_numbers(graph, edge):
            break
        maker = graph.maker(edge)
        if maker is None:
            return None
        if (inner := _of_cut(graph, maker)) is not None:
            limits = _both(inner, limits)
        elif (before := _before(graph, maker, limits)) is not None:
            steps, limits = [*steps, maker], before
        else:
            return None
        edge = maker.inputs[0]
    else:
        return None
    made = _cut_to(node, edge, limits)
    for step in reversed(steps if made else []):
        made = node.add(step.op, str(made), step.inputs[1])
    return made


def _is_whole_numbers(graph: GraphBuilder, edge: str) -> bool:
    kind = graph.edges[edge].type
    return kind.is_plain if isinstance(kind, Integers) else bool(graph.maker(edge, "round"))


def _cut_to(node: FileNode, edge: str, limits: tuple[Limit, Limit]) -> str | None:
    """Whole numbers on an edge cut to limits, if these are whole: codes, or by the quantizer that rounds them."""
    low, high = (None if limit is None else float(limit) for limit in limits)
    whole = all(limit is None or (limit.denominator == 1 and abs(limit) <= MOST_LIMIT) for limit in limits)
    if not whole or (low is not None and high is not None and low > high):
        return None
    rounded = node.graph.maker(edge, "round")
    if rounded is None or isinstance(node.graph.edges[rounded.inputs[0]].type, Integers):
        return node.add("clip", edge, low=low, high=high)
    if low is None or high is None:
        return None
    return quantizer_within(node, rounded.inputs[0], rounded.attributes["rounding"], (low, high))


def number_of(graph: GraphBuilder, edge: str) -> float | None:
    """A constant that is one finite number of floats; None of others."""
    value = graph.value(edge) if graph.edges[edge].is_float else None
    number = float(value.reshape(())) if value is not None and value.size == 1 else np.inf
    return number if np.isfinite(number) else None


def _of_cut(graph: GraphBuilder, maker: Node) -> tuple[Limit, Limit] | None:
    """The limits of what is cut by a constant number; None of other nodes."""
    if maker.op == "clip":
        return _fraction(maker.attributes["low"]), _fraction(maker.attributes["high"])
    if maker.op == "relu":
        return Fraction(0), None
    number = number_of(graph, maker.inputs[1]) if maker.op in ("min", "max") and _keeps(graph, maker) else None
    if number is None:
        return None
    return (None, Fraction(number)) if maker.op == "min" else (Fraction(number), None)


def _before(graph: GraphBuilder, maker: Node, limits: tuple[Limit, Limit]) -> tuple[Limit, Limit] | None:
    """The limits of what a node scales or shifts, in exact arithmetic; None of other nodes."""
    if graph.reference != "exact" or maker.op not in ("mul", "div", "add", "sub") or not _keeps(graph, maker):
        return None
    number = number_of(graph, maker.inputs[1])
    if number is None or (maker.op in ("mul", "div") and number <= 0):
        return None
    by, undo = Fraction(number), _UNDONE[maker.op]
    low, high = (None if limit is None else undo(limit, by) for limit in limits)
    return low, high


def _keeps(graph: GraphBuilder, maker: Node) -> bool:
    """Whether a node leaves the shape of its first input."""
    return graph.edges[maker.inputs[0]].shape == graph.edges[maker.outputs[0]].shape


def _both(inner: tuple[Limit, Limit], outer: tuple[Limit, Limit]) -> tuple[Limit, Limit]:
    """The limits of what is cut to one pair, and then to another."""
    low, high = (_cut(limit, *outer) for limit in inner)
    return (outer[0] if low is None else low), (outer[1] if high is None else high)


def _cut(limit: Limit, low: Limit, high: Limit) -> Limit:
    if limit is None:
        return None
    limit = limit if low is None else max(limit, low)
    return limit if high is None else min(limit, high)


def _fraction(limit: float | None) -> Limit:
    return None if limit is None or not np.isfinite(limit) else Fraction(limit)


def quantizer_within(node: FileNode, edge: str, mode: str, limits: tuple[float, float]) -> str:
    """Whole numbers within limits by rounding an edge; a Clip before it to whole numbers and a division are its own."""
    source, scale = edge, np.ones(())
    low, high = limits
    if (clip := node.graph.maker(source, "clip")) and (cut := _whole_limits(clip)):
        source, low, high = clip.inputs[0], *(min(max(end, low), high) for end in cut)
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


def _is_whole(limit: float | None) -> TypeGuard[float]:
    return limit is not None and limit == np.rint(limit) and abs(limit) <= MOST_LIMIT
