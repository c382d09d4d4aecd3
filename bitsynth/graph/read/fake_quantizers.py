"""Sums and products that trainers of their own write where they mean quantizers, in exact arithmetic."""

from __future__ import annotations

import math

import numpy as np

from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Integers


def straight_through(node: FileNode, op: str, a: str, b: str) -> str | None:
    """What a sum or difference is, if what was taken away comes back, or two sizes are cut; None if it is neither.

    x + (q - x) is q: estimators of gradients leave that in a file. |x| - |x - c| is 2 * clip(x, 0, c) - c for c > 0: so
    PACT is written.
    """
    graph = node.graph
    if graph.reference != "exact":
        return None
    if op == "add":
        for rest, x in ((a, b), (b, a)):
            made = graph.maker(rest)
            if made and made.op == "sub" and made.inputs[1] == x and graph.edges[made.inputs[0]].shape == node.shape():
                return made.inputs[0]
    if op != "sub" or not all((made := graph.maker(e)) and made.op == "abs" for e in (a, b)):
        return None
    x, shifted = (graph.maker(e).inputs[0] for e in (a, b))  # type: ignore[union-attr]
    inner = graph.maker(shifted)
    limit = graph.value(inner.inputs[1]) if inner and inner.op == "sub" and inner.inputs[0] == x else None
    if limit is None or limit.size != 1 or not 0 < float(limit.reshape(())) < np.inf:
        return None
    cut = node.add("clip", x, low=0.0, high=float(limit.reshape(())))
    return node.add("sub", node.add("mul", cut, node.like(2.0)), node.constant(limit.reshape(())))


def constant_scale(node: FileNode, op: str, a: str, b: str) -> tuple[str, str]:
    """The factors: of whole weights and a scale that is made of constants, that rounded as the file's floats are."""
    if op == "mul" and (scale := _rounded(node, a, b)) != a:
        return b, scale
    return a, (_rounded(node, b, a) if op in ("mul", "div") else b)


def _rounded(node: FileNode, scale: str, weights: str) -> str:
    graph = node.graph
    if scale in graph.constants or weights not in graph.constants:
        return scale
    edge, several = graph.edges[weights], math.prod(graph.edges[weights].shape) > math.prod(graph.edges[scale].shape)
    value = graph.in_floats(scale) if several and isinstance(edge.type, Integers) else None
    return scale if value is None else graph.constant(value)
