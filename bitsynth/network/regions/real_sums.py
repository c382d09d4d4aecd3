"""Sums of products of the caller's float32 numbers with constants: a convolution, or several that are one together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from bitsynth.graph.arithmetic import Fractions
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.types import Integers, Reals, Shape, Tensor
from bitsynth.network.wiring import Wiring

_MOST_WEIGHT = 1 << 24


@dataclass(frozen=True, eq=False)
class RealSums:
    """What an edge is of an input: scale * (the sum of weights times numbers in a window) + added, by channel.

    Args:
        nodes: That make it, in order.
        source: The input.
        shape: (N, C, *image) of it as windows see it.
        end: The edge.
        window: The window.
        weights: (channels, C, *kernel), which float32 holds.
        scales: (channels,).
        added: (channels,).
    """

    nodes: tuple[Node, ...]
    source: str
    shape: Shape
    end: str
    window: SlidingWindow
    weights: Tensor
    scales: Tensor
    added: Tensor

    @property
    def macs(self) -> int:
        """Products of one image."""
        return self.weights.size * math.prod(self.window.count(self.shape[2:]))


def real_sums(wiring: Wiring, node: Node) -> RealSums | None:
    """The sums that begin with a convolution, or a reshape before it, in exact arithmetic; None if there are none."""
    made = _first(wiring, node) if wiring.graph.reference == "exact" else None
    while made and (more := _more(wiring, made)):
        made = more
    return made


def _first(wiring: Wiring, node: Node) -> RealSums | None:
    """A convolution of an input, or of what a reshape makes of it."""
    edges, moves = wiring.graph.edges, (node,) if node.op == "reshape" else ()
    conv = wiring.only_reader(node.outputs[0]) if moves else node
    source = edges[node.inputs[0]] if node.inputs else None
    if conv is None or not source or source.name not in wiring.graph.inputs or source.dtype != "float32":
        return None
    factors = _factors(wiring, conv)
    if factors is None or not isinstance(source.type, Reals) or min(conv.attributes["window"].begins) < 0:
        return None
    weights, scales = factors
    shape, window = edges[conv.inputs[0]].shape, conv.attributes["window"]
    return RealSums((*moves, conv), source.name, shape, conv.outputs[0], window, weights, scales, np.zeros(len(scales)))


def _factors(wiring: Wiring, node: Node) -> tuple[Tensor, Tensor] | None:
    """Weights of a convolution that float32 holds, and what each output channel's are times; None if there are none."""
    graph = wiring.graph
    if node.op != "conv" or node.attributes["groups"] != 1 or not wiring.is_constant(node.inputs[1]):
        return None
    x, edge = graph.edges_of(node.inputs)
    if len(x.shape) > 4 or x.name in graph.constants:
        return None
    value, kind = graph.constants[edge.name], edge.type
    if not isinstance(kind, Integers):
        return (value, np.ones(len(value))) if (value == value.astype(np.float32)).all() else None
    whole = value - kind.zero
    per_channel = kind.scale.size == 1 or kind.scale.shape == (len(value), *[1] * (value.ndim - 1))
    if not per_channel or np.abs(whole).max() >= _MOST_WEIGHT or (whole != np.rint(whole)).any():
        return None
    return whole, np.broadcast_to(kind.scale.reshape(-1), (len(value),))


def _more(wiring: Wiring, sums: RealSums) -> RealSums | None:
    """The sums of a convolution behind, and of numbers added between; None if it is not one with those before."""
    after = wiring.only_reader(sums.end)
    between = (after,) if after and after.op == "add" else ()
    node = wiring.only_reader(after.outputs[0]) if after and between else after
    factors = _factors(wiring, node) if node else None
    if node is None or factors is None or len(set(sums.scales.tolist())) > 1:
        return None
    window = node.attributes["window"]
    added = _added(wiring.graph, sums, between)
    if any(window.begins) or any(window.ends) or window.ceil or sums.window.ceil or added is None:
        return None
    both = _composed(sums, window, *factors, added)
    apart = sums.macs + factors[0].size * math.prod(wiring.graph.edges[node.outputs[0]].shape[2:])
    if both is None or both.macs > apart:
        return None
    return replace(both, nodes=(*sums.nodes, *between, node), end=node.outputs[0])


def _added(graph: Graph, sums: RealSums, nodes: tuple[Node, ...]) -> Tensor | None:
    """What a node, if there is one, adds to each channel, as fractions; None if that is no constant by channel."""
    axes, channels = len(sums.shape), len(sums.scales)
    value = _fractions(sums.added.reshape(1, channels, *[1] * (axes - 2)))
    for other in (e for node in nodes for e in node.inputs if e != sums.end):
        if other not in graph.constants or graph.constants[other].ndim > axes:
            return None
        value = value + Fractions().number(graph.constants[other], graph.edges[other])
    return value.reshape(-1) if value.size == channels == value.shape[1] else None


def _fractions(array: Tensor) -> Tensor:
    made: Tensor = Fractions().constant(array)
    return made


def _doubles(fractions: Tensor) -> Tensor | None:
    """Fractions as float64; None if that does not hold one."""
    made = fractions.astype(np.float64)
    return made if np.isfinite(made).all() and (_fractions(made) == fractions).all() else None


def _one(first: SlidingWindow, then: SlidingWindow) -> SlidingWindow:
    """The window that two, one after the other, see together."""
    strides = tuple(a * b for a, b in zip(first.strides, then.strides, strict=True))
    reach = tuple((r - 1) * s + f for r, s, f in zip(then.reach, first.strides, first.reach, strict=True))
    return replace(first, kernel=reach, strides=strides, dilations=(1,) * len(reach))


def _composed(sums: RealSums, window: SlidingWindow, weights: Tensor, scales: Tensor, added: Tensor) -> RealSums | None:
    """The sums that a convolution makes of such with numbers added; None if a float does not hold a constant."""
    times = _doubles(_fractions(scales) * _fractions(sums.scales[:1]))
    rest = _doubles((weights.reshape(*weights.shape[:2], -1).sum(2) @ added) * _fractions(scales))
    factor = _product(sums, window, weights)
    if times is None or rest is None or factor is None:
        return None
    return replace(sums, window=_one(sums.window, window), weights=factor, scales=times, added=rest)


def _product(sums: RealSums, window: SlidingWindow, weights: Tensor) -> Tensor | None:
    """Weights of two convolutions as one; None if they are not whole, or become too large."""
    if (weights != np.rint(weights)).any() or (sums.weights != np.rint(sums.weights)).any():
        return None
    size = np.tensordot(np.abs(weights).sum(tuple(range(2, weights.ndim))), np.abs(sums.weights), 1)
    made = np.zeros((len(weights), sums.weights.shape[1], *_one(sums.window, window).kernel))
    for tap in product(*map(range, window.kernel)):
        begins = [t * d * s for t, d, s in zip(tap, window.dilations, sums.window.strides, strict=True)]
        axes = zip(begins, sums.window.reach, sums.window.dilations, strict=True)
        place = tuple(slice(b, b + reach, d) for b, reach, d in axes)
        every = slice(None), slice(None)
        own: Tensor = weights[(*every, *tap)]  # type: ignore[arg-type]
        made[(*every, *place)] += np.tensordot(own, sums.weights, 1)
    return made if size.max() < _MOST_WEIGHT else None
