"""Pools of codes: the greatest of a window, and any function of its sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bitsynth.graph.ir import Node
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.types import Edge, Shape, Tensor
from bitsynth.layers.glue import MaxPool2d, SumLookup
from bitsynth.network.regions.codes import codes_of, operand_of, quantization_of
from bitsynth.network.regions.functions import chains, code_values, function, layouts_of
from bitsynth.network.regions.glue import GlueRegion
from bitsynth.network.regions.region import Region
from bitsynth.network.stairs.chain import Chain
from bitsynth.network.wiring import Wiring
from bitsynth.spec.glue import MOST_SUMS

Pads = tuple[tuple[int, int], ...]


def match_pool(wiring: Wiring, node: Node) -> Region | None:
    """A pool of an edge of codes, which makes codes."""
    if node.op not in _MATCHERS or operand_of(wiring.graph.edges[node.inputs[0]]) is None:
        return None
    return _MATCHERS[node.op](wiring, node)


def _maxima(wiring: Wiring, node: Node) -> Region | None:
    """The greatest codes of windows, which are those of the greatest integers."""
    source, made = wiring.graph.edges_of((*node.inputs, *node.outputs))
    operand, window = operand_of(source), node.attributes["window"]
    pads = _pads(window, source.shape[2:])
    if operand != operand_of(made) or not 3 <= len(source.shape) <= 4 or pads is None:
        return None
    options: dict[str, Any] = {**_slides(window), "padding": _edges(pads), "isa": wiring.target.isa}
    codes = quantization_of(source)

    def make(layout: str, out_layout: str) -> MaxPool2d:
        kernel = _plane(window.kernel)
        return MaxPool2d(source.shape[1], codes, kernel, layout=layout, out_layout=out_layout, **options)

    return GlueRegion(wiring, (node,), node.inputs, make)


def _sums(wiring: Wiring, node: Node) -> Region | None:
    """Codes of sums of windows, or of all pixels, and of what elementwise nodes make of them."""
    source = wiring.graph.edges[node.inputs[0]]
    window = node.attributes["window"] if node.op == "sum_pool" else _whole(node, source.shape)
    if window is None or not 3 <= len(source.shape) <= 4 or not wiring.carries_integers(node.outputs[0]):
        return None
    pads = _pads(window, source.shape[2:])
    if pads is None or any(map(any, pads)) or source.integers.zero.size > 1:
        return None
    if math.prod(window.kernel) * len(code_values(wiring.graph, source.name)) > MOST_SUMS:
        return None
    ends = (c for c in (*chains(wiring, node.outputs[0]), None) if operand_of(_end(wiring, node, c)))
    found = (_summed(wiring, node, window, chain) for chain in ends)
    return next((region for region in found if region), None)


def _end(wiring: Wiring, node: Node, chain: Chain | None) -> Edge:
    """What a chain after a node makes, or without one the node."""
    return wiring.graph.edges[chain.end if chain else node.outputs[0]]


def _summed(wiring: Wiring, node: Node, window: SlidingWindow, chain: Chain | None) -> Region | None:
    """The region of a pool of sums and a chain after it; None if channels differ in that."""
    source, made = wiring.graph.edges[node.inputs[0]], _end(wiring, node, chain)
    sums = _sums_of(wiring, node, math.prod(window.kernel))
    table = function(wiring.graph, chain, sums) if chain else sums[None]
    if len(table) > 1:
        return None
    codes = codes_of(table[0], made)
    kinds, kernel = (quantization_of(source), quantization_of(made)), _plane(window.kernel)
    options: dict[str, Any] = {**_slides(window), "isa": wiring.target.isa}

    def make(layout: str, out_layout: str) -> SumLookup:
        return SumLookup(source.shape[1], codes, *kinds, kernel, layout=layout, out_layout=out_layout, **options)

    nodes = (node, *(chain.nodes if chain else ()))
    return GlueRegion(wiring, nodes, node.inputs, make, layouts_of(wiring.graph, node.outputs[0], made.name))


def _sums_of(wiring: Wiring, node: Node, pixels: int) -> Tensor:
    """The sum for each sum of codes of so many pixels."""
    kind, values = wiring.graph.edges[node.inputs[0]].integers, code_values(wiring.graph, node.inputs[0])
    least, apart = int(values[0]) - int(kind.zero.reshape(())), int(values[1]) - int(values[0])
    made: Tensor = pixels * least + apart * np.arange(pixels * (len(values) - 1) + 1)
    return made


def _whole(node: Node, shape: Shape) -> SlidingWindow | None:
    """The window that is the image; None unless the sums are over that."""
    if tuple(node.attributes["axes"]) != tuple(range(2, len(shape))):
        return None
    image, ones, none = shape[2:], (1,) * len(shape[2:]), (0,) * len(shape[2:])
    return SlidingWindow(image, ones, ones, none, none)


def _pads(window: SlidingWindow, image: Shape) -> Pads | None:
    """Padding before and after each axis, as far as windows lie on it; None if some lie on nothing else."""
    pads = []
    lies = (window.count(image), window.reach, window.strides, window.begins, window.kernel, window.dilations)
    for n, out, reach, stride, begin, kernel, apart in zip(image, *lies, strict=True):
        taps = np.arange(out)[:, None] * stride + np.arange(kernel) * apart - begin
        if begin < 0 or not ((taps >= 0) & (taps < n)).any(1).all():
            return None
        pads.append((begin, max(0, (out - 1) * stride + reach - n - begin)))
    return tuple(pads)


def _slides(window: SlidingWindow) -> dict[str, tuple[int, int]]:
    return {"stride": _plane(window.strides), "dilation": _plane(window.dilations)}


def _plane(sizes: Sequence[int]) -> tuple[int, int]:
    """Sizes of an image's height and width; of (N, C, L) the height is 1."""
    high, wide = (1, *sizes)[-2:]
    return high, wide


def _edges(pads: Pads) -> tuple[int, int, int, int]:
    """Padding as (top, left, bottom, right)."""
    (top, bottom), (left, right) = ((0, 0), *pads)[-2:]
    return top, left, bottom, right


_MATCHERS = {"max_pool": _maxima, "sum_pool": _sums, "reduce_sum": _sums}
