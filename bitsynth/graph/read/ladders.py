"""Ladders: how many thresholds a number passes, which trainers write as sums of comparisons, or choices in each other.

HWGQ is Where(x > c, 3 s, Where(x > b, 2 s, Where(x > a, s, 0))); other steps are the sum of x > a, x > b and x > c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.read.bits import is_strict, maker_of_bit
from bitsynth.graph.read.source import FEW_ROUNDINGS, FileNode
from bitsynth.graph.types import Shape


@dataclass(frozen=True)
class _Ladder:
    """A step for each threshold that the number on an edge is above, or reaches unless `strict`."""

    edge: str
    thresholds: tuple[float, ...]
    strict: bool
    step: float

    def fits(self, other: _Ladder) -> bool:
        return (self.edge, self.strict) == (other.edge, other.strict)


def summed(node: FileNode, a: str, b: str) -> str | None:
    """The sum of two edges as one ladder, if they are ladders of one number with steps of one size."""
    one, other = (_ladder_of(node.graph, edge) for edge in (a, b))
    if one is None or other is None or not one.fits(other) or one.step != other.step:
        return None
    if not _is_like(node, one.edge, np.broadcast_shapes(node.shape(0), node.shape(1)), node.of(0).dtype):
        return None
    return _made(node, _Ladder(one.edge, one.thresholds + other.thresholds, one.strict, one.step))


def chosen(node: FileNode, condition: str, level: str, otherwise: str) -> str | None:
    """The choice of a level above a threshold as a ladder, if the levels below are one and this is the next."""
    top, below, value = _ladder_of(node.graph, condition), _ladder_of(node.graph, otherwise), node.graph.value(level)
    if top is None or below is None or not top.fits(below) or value is None or value.size != 1:
        return None
    number = float(value.reshape(()))
    count = len(below.thresholds) + 1
    if not _is_like(node, top.edge, node.shape(), node.of(1).dtype):
        return None
    off = abs(count * below.step - number)
    if min(top.thresholds) < max(below.thresholds) or not off <= FEW_ROUNDINGS * abs(number):
        return None
    return _made(node, _Ladder(top.edge, below.thresholds + top.thresholds, top.strict, below.step))


def _is_like(node: FileNode, edge: str, sizes: Shape, dtype: str) -> bool:
    """Whether the steps of an edge have the shape and the type of floats of what is written."""
    source = node.graph.edges[edge]
    return source.shape == sizes and source.dtype == dtype == "float32"


def _made(node: FileNode, ladder: _Ladder) -> str:
    """The nodes of a ladder: of x > t as many as there are, less those of -x >= -t."""
    sign, count = (-1 if ladder.strict else 1), len(ladder.thresholds)
    edge = node.add("neg", ladder.edge) if ladder.strict else ladder.edge
    made = node.add(
        "multi_threshold",
        edge,
        thresholds=np.sort(sign * np.array([ladder.thresholds])),
        axis=min(1, len(node.graph.edges[edge].shape) - 1),
        step=1,
        least=-count if ladder.strict else 0,
        out_scale=ladder.step,
    )
    return node.add("neg", made) if ladder.strict else made


def _ladder_of(graph: GraphBuilder, edge: str) -> _Ladder | None:
    """The ladder that an edge is; None if it is none."""
    if scaled := graph.maker(edge, "mul"):
        value, inner = graph.value(scaled.inputs[1]), _ladder_of(graph, scaled.inputs[0])
        if inner is None or value is None or value.size != 1 or not 0 < float(value.reshape(())) < np.inf:
            return None
        return _Ladder(inner.edge, inner.thresholds, inner.strict, inner.step * float(value.reshape(())))
    return _of_bit(graph, edge) or _of_thresholds(graph, edge)


def _of_bit(graph: GraphBuilder, edge: str) -> _Ladder | None:
    made = maker_of_bit(graph, edge)
    if made is None or not graph.edges[made.inputs[0]].shape:
        return None
    taken = graph.maker(made.inputs[0], "sub")
    value = graph.value(taken.inputs[1]) if taken else None
    if taken is None or graph.edges[taken.inputs[0]].shape != graph.edges[made.inputs[0]].shape:
        return _Ladder(made.inputs[0], (0.0,), is_strict(made), 1.0)
    if value is None or value.size != 1:
        return None
    return _Ladder(taken.inputs[0], (float(value.reshape(())),), is_strict(made), 1.0)


def _of_thresholds(graph: GraphBuilder, edge: str) -> _Ladder | None:
    """Of what `_made` makes."""
    turned = graph.maker(edge, "neg")
    made = graph.maker(turned.inputs[0] if turned else edge, "multi_threshold")
    if made is None or made.attributes["thresholds"].shape[0] != 1 or made.attributes["step"] != 1:
        return None
    thresholds, source = made.attributes["thresholds"][0], made.inputs[0]
    if made.attributes["least"] != (-thresholds.size if turned else 0):
        return None
    if turned:
        before = graph.maker(source, "neg")
        if before is None:
            return None
        thresholds, source = -thresholds, before.inputs[0]
    return _Ladder(source, tuple(thresholds.tolist()), bool(turned), float(np.max(made.attributes["out_scale"])))
