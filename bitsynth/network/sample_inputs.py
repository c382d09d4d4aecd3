"""Numbers to try a network on: numbers that the quantizers after an input tell apart."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import EPSILON, Edge, Integers, Tensor, cast, numpy_type

_MAX_EDGES = 256
_WIDEST = 1 << 32
"""Integers up to which a quantizer tells numbers apart. Integers of other steps are as wide as numbers are."""
_MARGIN = 1 / 16
"""Steps between a tie and numbers that are drawn off ties: many times what float32 rounds."""


def every(graph: Graph, edge: Edge, count: int) -> Tensor:
    """Return `count` numbers over an input's range: its integers, or real numbers a little beyond a quantizer's."""
    dtype, kind = numpy_type(edge.dtype), edge.type
    if isinstance(kind, Integers):
        steps = np.linspace(0, (kind.most - kind.least) // kind.step, count).astype(np.int64)
        integers = kind.least + steps * kind.step
        numbers = (integers - kind.zero.max()) * (kind.scale.max() if edge.is_float else 1)
    else:
        low, high = _reach(graph, edge.name)
        room = (high - low) / 8
        numbers = np.linspace(low - room, high + room, count)
    return np.asarray(numbers).astype(dtype)


def draw(rng: Generator, graph: Graph, edge: Edge, *, ties: bool = False) -> Tensor:
    """Draw an input at random.

    An input of integers has any integers of its edge. An input that a quantizer reads has numbers around the
    quantizer's codes, at least 1/16 of a step away from each tie, or with `ties` a quarter of them on ties. Any other
    input has numbers as far as the first quantizer behind it reaches.
    """
    kind = edge.type
    if isinstance(kind, Integers):
        steps = rng.integers(0, (kind.most - kind.least) // kind.step + 1, edge.shape)
        return cast(kind.scale * (kind.least + kind.step * steps - kind.zero), edge.dtype)
    quantizer = _quantizer(graph, edge.name)
    if quantizer is None:
        return cast(rng.choice(every(graph, edge, 1 << 12), edge.shape), edge.dtype)
    low, high, zero = (quantizer.attributes[k] for k in ("low", "high", "zero"))
    tie = _tie(quantizer)
    places = tie + rng.integers(low - 1, high + 1, edge.shape) + rng.uniform(_MARGIN, 1 - _MARGIN, edge.shape)
    if ties and low < high:
        on_tie = rng.integers(0, 4, edge.shape) == 0
        on_tie.reshape(-1)[:1] = True
        between = 0 if _is_sign(quantizer) else rng.integers(low, high, edge.shape)
        places = np.where(on_tie, tie + between, places)
    return cast((places - zero) * quantizer.attributes["scale"], edge.dtype)


def has_ties(graph: Graph, edge: str, numbers: Tensor) -> bool:
    """Return whether some number of an input lies on a tie of the quantizer that reads it.

    A tie is a number where the quantizer changes from one code to the next: halfway between two codes, or where a
    quantizer that rounds down, up or to a sign does so. A number that is off by no more than the division by the scale
    rounds is on the tie too. Inputs of integers, and inputs that no quantizer reads directly, have no ties.
    """
    quantizer = _quantizer(graph, edge)
    if quantizer is None or isinstance(graph.edges[edge].type, Integers):
        return False
    low, high, zero, scale = (quantizer.attributes[k] for k in ("low", "high", "zero", "scale"))
    steps = np.where(np.isfinite(numbers), numbers, 0).astype(np.float64) / scale
    places = steps + zero
    tie = _tie(quantizer)
    nearest = np.zeros_like(places) if _is_sign(quantizer) else np.rint(places - tie) + tie
    unit = max(EPSILON[dtype] for dtype in (graph.edges[edge].dtype, quantizer.attributes["real"]))
    rounding = 2 * unit * (np.abs(steps) + np.abs(zero))
    return bool(((np.abs(places - nearest) <= rounding) & (low <= nearest) & (nearest <= high)).any())


def _quantizer(graph: Graph, edge: str) -> Node | None:
    """Return the first quantizer that reads an edge, or None."""
    return next((n for n in graph.readers[edge] if n.op == "quantize"), None)


def _is_sign(quantizer: Node) -> bool:
    """Return whether a quantizer gives signs: its only tie is 0."""
    return bool(quantizer.attributes["rounding"] == "BIPOLAR")


def _tie(quantizer: Node) -> float:
    """Return where a quantizer's ties lie between two whole steps: in the middle, or on the steps themselves."""
    return 0.0 if quantizer.attributes["rounding"] in ("CEIL", "FLOOR", "UP", "DOWN", "BIPOLAR") else 0.5


def _reach(graph: Graph, edge: str) -> tuple[float, float]:
    """Return the range of the first quantizer after an edge of real numbers; nodes in between are ignored.

    At most `_MAX_EDGES` edges are looked at, so that time does not grow with the number of inputs times nodes.
    """
    readers = graph.readers
    left, seen = [edge], {edge}
    while left and len(seen) < _MAX_EDGES:
        kind = graph.edges[name := left.pop(0)].type
        if isinstance(kind, Integers) and name != edge and kind.most < _WIDEST:
            ends = [kind.scale * (n - kind.zero) for n in (kind.low, kind.high)]
            return float(np.min(ends[0])), float(np.max(ends[1]))
        behind = [output for node in readers[name] for output in node.outputs if output not in seen]
        seen |= set(behind)
        left += behind
    return -2.0, 2.0
