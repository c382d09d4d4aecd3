"""Sums and products that trainers of their own write where they mean quantizers, in exact arithmetic."""

from __future__ import annotations

import math

import numpy as np

from bitsynth.graph.read.bits import twice_less_one
from bitsynth.graph.read.ladders import summed
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Integers


def meant_by_sum(node: FileNode, op: str, a: str, b: str) -> str | None:
    """The edge that trainers mean by a sum or difference of two; None if they mean what they write."""
    if node.graph.reference != "exact":
        return None
    if op == "add":
        through = _straight_through(node, a, b) or _straight_through(node, b, a)
        return through or twice_less_one(node, op, a, b) or summed(node, a, b)
    return (_cut(node, a, b) or twice_less_one(node, op, a, b)) if op == "sub" else None


def _straight_through(node: FileNode, rest: str, x: str) -> str | None:
    """q, if the sum is (q - x) + x: estimators of gradients leave that in a file."""
    taken = node.graph.maker(rest, "sub")
    if taken is None or taken.inputs[1] != x or node.graph.edges[taken.inputs[0]].shape != node.shape():
        return None
    return taken.inputs[0]


def _cut(node: FileNode, size: str, other: str) -> str | None:
    """2 * clip(x, 0, c) - c, if the difference is |x| - |x - c| for c > 0: so PACT is written."""
    graph = node.graph
    first, second = (graph.maker(edge, "abs") for edge in (size, other))
    shifted = graph.maker(second.inputs[0], "sub") if second else None
    if first is None or shifted is None or shifted.inputs[0] != first.inputs[0]:
        return None
    limit = graph.value(shifted.inputs[1])
    if limit is None or limit.size != 1 or not 0 < float(limit.reshape(())) < np.inf:
        return None
    cut = node.add("clip", first.inputs[0], low=0.0, high=float(limit.reshape(())))
    return node.add("sub", node.add("mul", cut, node.like(2.0)), node.constant(limit.reshape(())))


def constant_scale(node: FileNode, op: str, a: str, b: str) -> tuple[str, str]:
    """The factors: of whole weights and a scale that is made of constants, that rounded as the file's floats are."""
    if op == "mul" and (scale := _rounded(node, a, b)) != a:
        return b, scale
    return a, (_rounded(node, b, a) if op in ("mul", "div") else b)


def _rounded(node: FileNode, scale: str, weights: str) -> str:
    """The scale of weights as the file's floats have it, if it is made of constants; else the edge as it is."""
    graph = node.graph
    if scale in graph.constants or weights not in graph.constants:
        return scale
    edge, several = graph.edges[weights], math.prod(graph.edges[weights].shape) > math.prod(graph.edges[scale].shape)
    value = graph.in_floats(scale) if several and isinstance(edge.type, Integers) else None
    return scale if value is None else graph.constant(value)
