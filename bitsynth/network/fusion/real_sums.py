"""Sums of products of the caller's float32 numbers with constants: one convolution, or several composed into one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from bitsynth.graph.arithmetic import Fractions
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.types import Integers, Reals, Shape, Tensor
from bitsynth.network.def_use import DefUse

_MAX_WEIGHT = 1 << 24


@dataclass(frozen=True, eq=False)
class RealSums:
    """An edge as a function of an input: scale * (sum of weights * numbers in a window) + added, by channel.

    Args:
        nodes: The nodes that compute it, in order.
        source: The input.
        shape: (N, C, *image) of the input as the window sees it.
        end: The edge.
        window: The window.
        weights: (channels, C, *kernel), exact in float32.
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
        """Multiply-accumulates of one image."""
        return self.weights.size * math.prod(self.window.count(self.shape[2:]))


def find_real_sums(def_use: DefUse, node: Node) -> RealSums | None:
    """Return the sums that begin with a node, with later convolutions composed into them; None if there are none.

    Given:   %a = conv(%input, w1); %b = conv(add(%a, bias), w2)    fewer products as one convolution
    Result:  %b = scale * conv(%input, w1 * w2) + added
    """
    sums = _find_first(def_use, node) if def_use.graph.reference == "exact" else None
    while sums and (more := _extend(def_use, sums)):
        sums = more
    return sums


def _find_first(def_use: DefUse, node: Node) -> RealSums | None:
    """Return the sums of a convolution of an input, or of a reshaped input."""
    edges, moves = def_use.graph.edges, (node,) if node.op == "reshape" else ()
    conv = def_use.only_reader(node.outputs[0]) if moves else node
    source = edges[node.inputs[0]] if node.inputs else None
    if conv is None or not source or source.name not in def_use.graph.inputs or source.dtype != "float32":
        return None
    factors = _find_factors(def_use, conv)
    if factors is None or not isinstance(source.type, Reals) or min(conv.attributes["window"].begins) < 0:
        return None
    weights, scales = factors
    shape, window = edges[conv.inputs[0]].shape, conv.attributes["window"]
    return RealSums((*moves, conv), source.name, shape, conv.outputs[0], window, weights, scales, np.zeros(len(scales)))


def _find_factors(def_use: DefUse, node: Node) -> tuple[Tensor, Tensor] | None:
    """Return a convolution's weights, exact in float32, and a factor for each output channel; or None."""
    graph = def_use.graph
    if node.op != "conv" or node.attributes["groups"] != 1 or not def_use.is_constant(node.inputs[1]):
        return None
    x, edge = graph.edges_of(node.inputs)
    if len(x.shape) > 4 or x.name in graph.constants:
        return None
    value, kind = graph.constants[edge.name], edge.type
    if not isinstance(kind, Integers):
        return (value, np.ones(len(value))) if (value == value.astype(np.float32)).all() else None
    whole = value - kind.zero
    per_channel = kind.scale.size == 1 or kind.scale.shape == (len(value), *[1] * (value.ndim - 1))
    if not per_channel or np.abs(whole).max() >= _MAX_WEIGHT or (whole != np.rint(whole)).any():
        return None
    return whole, np.broadcast_to(kind.scale.reshape(-1), (len(value),))


def _extend(def_use: DefUse, sums: RealSums) -> RealSums | None:
    """Return the sums with the next convolution, and numbers added between, composed into them; or None."""
    after = def_use.only_reader(sums.end)
    between = (after,) if after and after.op == "add" else ()
    node = def_use.only_reader(after.outputs[0]) if after and between else after
    factors = _find_factors(def_use, node) if node else None
    if node is None or factors is None or len(set(sums.scales.tolist())) > 1:
        return None
    window = node.attributes["window"]
    added = _find_added(def_use.graph, sums, between)
    if any(window.begins) or any(window.ends) or window.ceil or sums.window.ceil or added is None:
        return None
    both = _compose(sums, window, *factors, added)
    apart = sums.macs + factors[0].size * math.prod(def_use.graph.edges[node.outputs[0]].shape[2:])
    if both is None or both.macs > apart:
        return None
    return replace(both, nodes=(*sums.nodes, *between, node), end=node.outputs[0])


def _find_added(graph: Graph, sums: RealSums, nodes: tuple[Node, ...]) -> Tensor | None:
    """Return the number added to each channel, a node's included, as fractions; None if it is not constant."""
    axes, channels = len(sums.shape), len(sums.scales)
    value = _fractions(sums.added.reshape(1, channels, *[1] * (axes - 2)))
    for other in (e for node in nodes for e in node.inputs if e != sums.end):
        if other not in graph.constants or graph.constants[other].ndim > axes:
            return None
        value = value + Fractions().number(graph.constants[other], graph.edges[other])
    return value.reshape(-1) if value.size == channels == value.shape[1] else None


def _fractions(array: Tensor) -> Tensor:
    fractions: Tensor = Fractions().constant(array)
    return fractions


def _doubles(fractions: Tensor) -> Tensor | None:
    """Return fractions as float64; None if one is not exact in it."""
    doubles = fractions.astype(np.float64)
    return doubles if np.isfinite(doubles).all() and (_fractions(doubles) == fractions).all() else None


def _compose_windows(first: SlidingWindow, then: SlidingWindow) -> SlidingWindow:
    """Return the window of two windows one after the other."""
    strides = tuple(a * b for a, b in zip(first.strides, then.strides, strict=True))
    reach = tuple((r - 1) * s + f for r, s, f in zip(then.reach, first.strides, first.reach, strict=True))
    return replace(first, kernel=reach, strides=strides, dilations=(1,) * len(reach))


def _compose(sums: RealSums, window: SlidingWindow, weights: Tensor, scales: Tensor, added: Tensor) -> RealSums | None:
    """Return the sums of a convolution of sums with numbers added; None if a constant is not exact in floats."""
    times = _doubles(_fractions(scales) * _fractions(sums.scales[:1]))
    rest = _doubles((weights.reshape(*weights.shape[:2], -1).sum(2) @ added) * _fractions(scales))
    factor = _compose_weights(sums, window, weights)
    if times is None or rest is None or factor is None:
        return None
    return replace(sums, window=_compose_windows(sums.window, window), weights=factor, scales=times, added=rest)


def _compose_weights(sums: RealSums, window: SlidingWindow, weights: Tensor) -> Tensor | None:
    """Return the weights of two convolutions as one; None if they are not whole, or become too large."""
    if (weights != np.rint(weights)).any() or (sums.weights != np.rint(sums.weights)).any():
        return None
    size = np.tensordot(np.abs(weights).sum(tuple(range(2, weights.ndim))), np.abs(sums.weights), 1)
    composed = np.zeros((len(weights), sums.weights.shape[1], *_compose_windows(sums.window, window).kernel))
    for tap in product(*map(range, window.kernel)):
        begins = [t * d * s for t, d, s in zip(tap, window.dilations, sums.window.strides, strict=True)]
        axes = zip(begins, sums.window.reach, sums.window.dilations, strict=True)
        place = tuple(slice(b, b + reach, d) for b, reach, d in axes)
        every = slice(None), slice(None)
        own: Tensor = weights[(*every, *tap)]  # type: ignore[arg-type]
        composed[(*every, *place)] += np.tensordot(own, sums.weights, 1)
    return composed if size.max() < _MAX_WEIGHT else None
