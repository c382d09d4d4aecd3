"""Moves of codes that are glue: padding, nearest pixels, channels as blocks, channels behind each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.ir import Node
from bitsynth.graph.types import Edge, Tensor
from bitsynth.layers.glue import Concatenate, DepthToSpace, Glue, Pad2d, Resize
from bitsynth.network.def_use import DefUse
from bitsynth.network.fusion.codes import operand_of, quantization_of
from bitsynth.network.fusion.glue import GlueGroup
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.program import CHANNELS_LAST

_MAX_INPUTS = 4


def match_move(def_use: DefUse, node: Node) -> FusionGroup | None:
    """A move of codes as a layer of glue, on images and lines."""
    edges = def_use.graph.edges_of((*node.inputs, *node.outputs))
    if node.op not in _MOVE_MAKERS or not all(operand_of(e) and 2 <= len(e.shape) <= 4 for e in edges):
        return None
    if any(def_use.is_constant(e) for e in node.inputs) or len(set(node.inputs)) < len(node.inputs):
        return None
    make: _MakeMove | None = _MOVE_MAKERS[node.op](node, list(edges[:-1]), edges[-1])
    if make is None:
        return None

    def of_layouts(layout: str, out_layout: str) -> Glue:
        return make(layout=layout, isa=def_use.target.isa)

    try:
        of_layouts(CHANNELS_LAST, CHANNELS_LAST)
    except SpecError:
        return None
    return GlueGroup(def_use, (node,), node.inputs, of_layouts, (CHANNELS_LAST,))


_MakeMove = Callable[..., Glue]


def _make_pad(node: Node, given: list[Edge], made: Edge) -> _MakeMove | None:
    """Pixels of the code of 0 around an image."""
    operand, pads = operand_of(made), [tuple(int(n) for n in pair) for pair in node.attributes["pads"]]
    if node.attributes["mode"] != "constant" or operand != operand_of(given[0]) or operand is None:
        return None
    if any(map(any, pads[:2])) or -operand.offset % operand.scale:
        return None
    (top, bottom), (left, right) = ((0, 0), (0, 0), *pads[2:])[-2:]
    kind, code = quantization_of(made), -operand.offset // operand.scale
    return lambda **options: Pad2d(made.shape[1], kind, (top, left, bottom, right), code=code, **options)


def _make_resize(node: Node, given: list[Edge], made: Edge) -> _MakeMove | None:
    """The nearest pixels, as glue finds them."""
    axes, places = len(made.shape), node.attributes["places"]
    if axes not in (3, 4) or min(places) < 2:
        return None
    high, wide = (1, *made.shape[2:])[-2:]
    for centers in (False, True):
        if all(
            np.array_equal(p, _nearest_pixels(given[0].shape[k], made.shape[k], centers)) for k, p in places.items()
        ):
            return partial(Resize, made.shape[1], quantization_of(made), size=(high, wide), centers=centers)
    return None


def _nearest_pixels(before: int, after: int, centers: bool) -> Tensor:
    """The place that each of so many shows, by the place of its center or of its begin."""
    made: Tensor = (2 * np.arange(after) + centers) * before // (2 * after)
    return made


def _make_depth_to_space(node: Node, given: list[Edge], made: Edge) -> _MakeMove | None:
    """Channels as blocks of pixels."""
    kind, block, mode = quantization_of(made), int(node.attributes["block"]), node.attributes["mode"]
    return lambda **options: DepthToSpace(given[0].shape[1], kind, block, mode=mode, **options)


def _make_concatenate(node: Node, given: list[Edge], made: Edge) -> _MakeMove | None:
    """Channels behind each other, as codes of one encoding."""
    if node.attributes["axis"] != 1 or len(given) > _MAX_INPUTS:
        return None
    parts = [(e.shape[1], quantization_of(e)) for e in given]
    return lambda **options: Concatenate(parts, quantization_of(made), **options)


_MOVE_MAKERS: dict[str, Callable[[Node, list[Edge], Edge], Any]] = {
    "pad": _make_pad,
    "resize": _make_resize,
    "depth_to_space": _make_depth_to_space,
    "concatenate": _make_concatenate,
}
