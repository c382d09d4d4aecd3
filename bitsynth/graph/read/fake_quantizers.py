"""Sums and products that trainers of their own write where they mean quantizers, in exact arithmetic."""

from __future__ import annotations

import math

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.read.bits import bipolar, twice_less_one
from bitsynth.graph.read.cut_rounding import number_of
from bitsynth.graph.read.ladders import summed
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Integers


def meant_by_sum(node: FileNode, op: str, a: str, b: str) -> str | None:
    """The edge that trainers mean by a sum or difference of two; None if they mean what they write."""
    if node.graph.reference != "exact":
        return None
    if op == "add":
        through = _straight_through(node, a, b) or _straight_through(node, b, a)
        signs = _never_zero(node, a, b) or _never_zero(node, b, a)
        return through or signs or twice_less_one(node, op, a, b) or summed(node, a, b)
    return (_cut(node, a, b) or twice_less_one(node, op, a, b)) if op == "sub" else None


def _straight_through(node: FileNode, rest: str, x: str) -> str | None:
    """q, if the sum is (q - x) + x, or 1 * (-x + q) + x: estimators of gradients leave that in a file."""
    graph = node.graph
    while (scaled := graph.maker(rest, "mul")) and number_of(graph, scaled.inputs[1]) == 1:
        rest = scaled.inputs[0]
    found = _less(graph, rest, x)
    return found if found and graph.edges[found].shape == node.shape() else None


def _less(graph: GraphBuilder, rest: str, x: str) -> str | None:
    """q, if an edge is q - x or -x + q."""
    if taken := graph.maker(rest, "sub"):
        return taken.inputs[0] if taken.inputs[1] == x else None
    if added := graph.maker(rest, "add"):
        a, b = added.inputs
        return b if _is_negative(graph, a, x) else a if _is_negative(graph, b, x) else None
    return None


def _is_negative(graph: GraphBuilder, edge: str, x: str) -> bool:
    """Whether an edge is -x, both moved alike perhaps."""
    if turned := graph.maker(edge, "neg"):
        return turned.inputs[0] == x
    moved, other = graph.maker(edge, "transpose"), graph.maker(x, "transpose")
    if moved is None or other is None or moved.attributes["order"] != other.attributes["order"]:
        return False
    return _is_negative(graph, moved.inputs[0], other.inputs[0])


def _never_zero(node: FileNode, sign: str, rest: str) -> str | None:
    """Bipolar codes, if s + (1 - |s|) of a sign s is what is written: QKeras so has 1 of 0."""
    graph = node.graph
    made, taken = graph.maker(sign, "quantize"), graph.maker(rest, "sub")
    size = graph.maker(taken.inputs[1], "abs") if taken else None
    if made is None or taken is None or size is None:
        return None
    if size.inputs[0] != sign or number_of(graph, taken.inputs[0]) != 1:
        return None
    kind, limits = graph.edges[sign].type, (made.attributes["low"], made.attributes["high"])
    is_sign = made.attributes["rounding"] == "UP" and limits == (-1, 1) and not np.any(made.attributes["zero"])
    plain = isinstance(kind, Integers) and kind.is_plain
    return bipolar(node, made.inputs[0], node.of(0).dtype) if is_sign and plain else None


def _cut(node: FileNode, size: str, other: str) -> str | None:
    """2 * clip(x, 0, c) - c, if the difference is |x| - |x - c| for c > 0: so PACT is written."""
    graph = node.graph
    first, second = (graph.maker(edge, "abs") for edge in (size, other))
    shifted = graph.maker(second.inputs[0], "sub") if second else None
    if first is None or shifted is None or shifted.inputs[0] != first.inputs[0]:
        return None
    limit = number_of(graph, shifted.inputs[1])
    if limit is None or limit <= 0:
        return None
    cut = node.add("clip", first.inputs[0], low=0.0, high=limit)
    return node.add("sub", node.add("mul", cut, node.like(2.0)), node.like(limit))


def constant_scale(node: FileNode, op: str, a: str, b: str) -> tuple[str, str]:
    """The factors: a scale of whole weights or of activations that constants make as the file's floats are."""
    if op == "mul" and (scale := _rounded(node, a, b)) != a:
        return b, scale
    return a, (_rounded(node, b, a) if op in ("mul", "div") else b)


def _rounded(node: FileNode, scale: str, of: str) -> str:
    """The scale as the file's floats have it, if it is made of constants; else the edge as it is."""
    graph = node.graph
    if scale in graph.constants:
        return scale
    edge, sizes = graph.edges[of], [math.prod(graph.edges[name].shape) for name in (of, scale)]
    if of in graph.constants:
        scales = sizes[0] > sizes[1] and isinstance(edge.type, Integers)
    else:
        scales = sizes[1] == 1 and graph.reference == "exact" and graph.in_floats(of) is None
    value = graph.in_floats(scale) if scales else None
    return scale if value is None else graph.constant(value)
