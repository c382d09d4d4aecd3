"""Groups that are a layer of glue on codes; moves and pools of codes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.ir import Node
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.types import Edge, Shape, Tensor
from bitsynth.layers.glue import Concatenate, DepthToSpace, Glue, MaxPool2d, Pad2d, Resize, SumLookup
from bitsynth.network.declines import Stage
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas.chain import Chain
from bitsynth.network.fusion.codes import (
    GLUE_LAYOUTS,
    code_formats,
    code_values,
    codes_of,
    evaluate_codes,
    find_chains,
    image_of,
    layouts_of,
    operand_of,
    quantization_of,
)
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.program import Buffer, Format, GlueStep
from bitsynth.spec.glue import MAX_SUMS
from bitsynth.spec.layout import Layout

Make = Callable[[Layout, Layout], Glue]
"""Make the layer that reads one layout and writes another."""


class GlueGroup(FusionGroup):
    """Nodes that one layer of glue computes, from edges of codes to an edge of codes.

    Args:
        def_use: The graph.
        nodes: In order; the last one makes the result.
        inputs: Edges it reads.
        make: Make the layer for a layout of inputs and a layout of results.
        layouts: The layouts that it reads and writes, in any combination.
        changes: Whether results differ from the codes read, or are in another order.
    """

    def __init__(
        self,
        def_use: DefUse,
        nodes: tuple[Node, ...],
        inputs: tuple[str, ...],
        make: Make,
        layouts: tuple[Layout, ...] = GLUE_LAYOUTS,
        *,
        changes: bool = True,
    ) -> None:
        self.def_use, self.nodes, self.inputs, self.outputs = def_use, nodes, inputs, nodes[-1].outputs
        self.make, self.layouts, self.changes = cache(make), layouts, changes
        # SpecError now, while another group may still take the nodes, for shapes and numbers that glue does not hold.
        self.make(layouts[0], layouts[0])

    @property
    def is_alias(self) -> bool:
        return not self.changes

    def reads(self, edge: str) -> tuple[Format, ...]:
        return code_formats(self.def_use.graph.edges[edge], self.layouts)

    def writes(self, edge: str) -> tuple[Format, ...]:
        return code_formats(self.def_use.graph.edges[edge], self.layouts)

    def step(self, buffers: Mapping[str, Buffer]) -> GlueStep:
        given, result = [buffers[e] for e in self.inputs], buffers[self.outputs[0]]
        glue = self.make(given[0].format.layout, result.format.layout)
        names = tuple(b.name for b in given)
        image = image_of(given[0].edge.shape)
        return GlueStep(self.names, names, (result.name,), glue, image)


_MAX_INPUTS = 4


def match_move(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match a move of codes, on images or rows.

    Given:   %out = pad(%codes) | resize(%codes) | depth_to_space(%codes) | concatenate(%a, %b)
    Result:  %out = glue(%codes)    the runtime's function for that move
    """
    if node.op not in _MOVE_MAKERS:
        return None
    edges = def_use.graph.edges_of((*node.inputs, *node.outputs))
    if not all(operand_of(e) and 2 <= len(e.shape) <= 4 for e in edges):
        def_use.decline(node, Stage.OPERANDS, "it moves no codes of at most 8 bits with 2 to 4 axes")
        return None
    if any(def_use.is_constant(e) for e in node.inputs) or len(set(node.inputs)) < len(node.inputs):
        def_use.decline(node, Stage.OPERANDS, "an input is constant, or comes twice")
        return None
    make: _MakeMove | None = _MOVE_MAKERS[node.op](node, list(edges[:-1]), edges[-1])
    if make is None:
        def_use.decline(node, Stage.FORMULA, f"glue has no {node.op} with these attributes")
        return None

    def of_layouts(layout: Layout, out_layout: Layout) -> Glue:
        return make(layout=layout, isa=def_use.target.isa)

    try:
        of_layouts(Layout.NHWC, Layout.NHWC)
    except SpecError:
        return None
    return GlueGroup(def_use, (node,), node.inputs, of_layouts, (Layout.NHWC,))


_MakeMove = Callable[..., Glue]


def _make_pad(node: Node, given: list[Edge], result: Edge) -> _MakeMove | None:
    """Make padding: pixels of the code of 0 around an image."""
    operand, pads = operand_of(result), [tuple(int(n) for n in pair) for pair in node.attributes["pads"]]
    if node.attributes["mode"] != "constant" or operand != operand_of(given[0]) or operand is None:
        return None
    if any(map(any, pads[:2])) or -operand.offset % operand.scale:
        return None
    (top, bottom), (left, right) = ((0, 0), (0, 0), *pads[2:])[-2:]
    kind, code = quantization_of(result), -operand.offset // operand.scale
    return lambda **options: Pad2d(result.shape[1], kind, (top, left, bottom, right), code=code, **options)


def _make_resize(node: Node, given: list[Edge], result: Edge) -> _MakeMove | None:
    """Make a resize to nearest pixels, if glue picks the same ones."""
    axes, places = len(result.shape), node.attributes["places"]
    if axes not in (3, 4) or min(places) < 2:
        return None
    high, wide = (1, *result.shape[2:])[-2:]
    for centers in (False, True):
        if all(
            np.array_equal(p, _nearest_pixels(given[0].shape[k], result.shape[k], centers)) for k, p in places.items()
        ):
            return partial(Resize, result.shape[1], quantization_of(result), size=(high, wide), centers=centers)
    return None


def _nearest_pixels(before: int, after: int, centers: bool) -> Tensor:
    """Return the source pixel of each of `after` pixels, by the pixel's center or its beginning."""
    pixels: Tensor = (2 * np.arange(after) + centers) * before // (2 * after)
    return pixels


def _make_depth_to_space(node: Node, given: list[Edge], result: Edge) -> _MakeMove | None:
    """Make a move of channels to blocks of pixels."""
    kind, block, mode = quantization_of(result), int(node.attributes["block"]), node.attributes["mode"]
    return lambda **options: DepthToSpace(given[0].shape[1], kind, block, mode=mode, **options)


def _make_concatenate(node: Node, given: list[Edge], result: Edge) -> _MakeMove | None:
    """Make a concatenation along channels, of codes of one encoding."""
    if node.attributes["axis"] != 1 or len(given) > _MAX_INPUTS:
        return None
    parts = [(e.shape[1], quantization_of(e)) for e in given]
    return lambda **options: Concatenate(parts, quantization_of(result), **options)


_MOVE_MAKERS: dict[str, Callable[[Node, list[Edge], Edge], Any]] = {
    "pad": _make_pad,
    "resize": _make_resize,
    "depth_to_space": _make_depth_to_space,
    "concatenate": _make_concatenate,
}


Pads = tuple[tuple[int, int], ...]


def match_pool(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match a pool of codes, with the chain to codes after a pool of sums.

    Given:   %out = max_pool(%codes)
      or     %sum = sum_pool(%codes); %out = quantize(mul(%sum, scale))    an average
    Result:  %out = glue max_pool(%codes) | glue sum_lookup(%codes, table of the sums of a window)
    """
    if node.op not in _POOL_MATCHERS:
        return None
    if operand_of(def_use.graph.edges[node.inputs[0]]) is None:
        def_use.decline(node, Stage.OPERANDS, "it reads no codes of at most 8 bits")
        return None
    group = _POOL_MATCHERS[node.op](def_use, node)
    if group is None:
        def_use.decline(node, Stage.FORMULA, _explain_pool(def_use, node))
    return group


def _explain_pool(def_use: DefUse, node: Node) -> str:
    """Say in a few words why glue has no such pool."""
    edge = def_use.graph.edges[node.inputs[0]]
    if not 3 <= len(edge.shape) <= 4:
        return f"its input has {len(edge.shape)} axes; pools of glue have 3 or 4"
    if node.op == "reduce_sum" and _whole_image(node, edge.shape) is None:
        return "it sums along other axes than the image's"
    if node.op == "max_pool":
        return "a window lies on padding alone, or results are other codes"
    return "no codes of at most 8 bits follow that are a function of a window's sum"


def _match_max_pool(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match a pool of maxima: the greatest code of a window is the code of the greatest integer."""
    source, result = def_use.graph.edges_of((*node.inputs, *node.outputs))
    operand, window = operand_of(source), node.attributes["window"]
    pads = _pads(window, source.shape[2:])
    if operand != operand_of(result) or not 3 <= len(source.shape) <= 4 or pads is None:
        return None
    options: dict[str, Any] = {**_slide_options(window), "padding": _all_sides(pads), "isa": def_use.target.isa}
    codes = quantization_of(source)

    def make(layout: Layout, out_layout: Layout) -> MaxPool2d:
        kernel = _height_and_width(window.kernel)
        return MaxPool2d(source.shape[1], codes, kernel, layout=layout, out_layout=out_layout, **options)

    return GlueGroup(def_use, (node,), node.inputs, make)


def _match_sum_pool(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match a pool of sums of windows, or of the whole image, with the chain to codes after it."""
    source = def_use.graph.edges[node.inputs[0]]
    window = node.attributes["window"] if node.op == "sum_pool" else _whole_image(node, source.shape)
    if window is None or not 3 <= len(source.shape) <= 4 or not def_use.carries_integers(node.outputs[0]):
        return None
    pads = _pads(window, source.shape[2:])
    if pads is None or any(map(any, pads)) or source.integers.zero.size > 1:
        return None
    if math.prod(window.kernel) * len(code_values(def_use.graph, source.name)) > MAX_SUMS:
        return None
    ends = (c for c in (*find_chains(def_use, node.outputs[0]), None) if operand_of(_last_edge(def_use, node, c)))
    groups = (_make_sum_pool(def_use, node, window, chain) for chain in ends)
    return next((group for group in groups if group), None)


def _last_edge(def_use: DefUse, node: Node, chain: Chain | None) -> Edge:
    """Return the edge at the end of a chain after a node, or without one the node's result."""
    return def_use.graph.edges[chain.end if chain else node.outputs[0]]


def _make_sum_pool(def_use: DefUse, node: Node, window: SlidingWindow, chain: Chain | None) -> FusionGroup | None:
    """Return the group of a pool of sums and a chain after it; None if the chain differs by channel."""
    source, result = def_use.graph.edges[node.inputs[0]], _last_edge(def_use, node, chain)
    sums = _window_sums(def_use, node, math.prod(window.kernel))
    table = evaluate_codes(def_use.graph, chain, sums) if chain else sums[None]
    if len(table) > 1:
        return None
    codes = codes_of(table[0], result)
    kinds, kernel = (quantization_of(source), quantization_of(result)), _height_and_width(window.kernel)
    options: dict[str, Any] = {**_slide_options(window), "isa": def_use.target.isa}

    def make(layout: Layout, out_layout: Layout) -> SumLookup:
        return SumLookup(source.shape[1], codes, *kinds, kernel, layout=layout, out_layout=out_layout, **options)

    nodes = (node, *(chain.nodes if chain else ()))
    return GlueGroup(def_use, nodes, node.inputs, make, layouts_of(def_use.graph, node.outputs[0], result.name))


def _window_sums(def_use: DefUse, node: Node, pixels: int) -> Tensor:
    """Return the sum of integers for each sum of codes over the pixels."""
    kind, values = def_use.graph.edges[node.inputs[0]].integers, code_values(def_use.graph, node.inputs[0])
    least, apart = int(values[0]) - int(kind.zero.reshape(())), int(values[1]) - int(values[0])
    sums: Tensor = pixels * least + apart * np.arange(pixels * (len(values) - 1) + 1)
    return sums


def _whole_image(node: Node, shape: Shape) -> SlidingWindow | None:
    """Return the window that covers the whole image; None if a node sums along other axes."""
    if tuple(node.attributes["axes"]) != tuple(range(2, len(shape))):
        return None
    image, ones, none = shape[2:], (1,) * len(shape[2:]), (0,) * len(shape[2:])
    return SlidingWindow(image, ones, ones, none, none)


def _pads(window: SlidingWindow, image: Shape) -> Pads | None:
    """Return the padding before and after each axis that windows reach; None if a window lies on padding alone."""
    pads = []
    lies = (window.count(image), window.reach, window.strides, window.begins, window.kernel, window.dilations)
    for n, out, reach, stride, begin, kernel, apart in zip(image, *lies, strict=True):
        taps = np.arange(out)[:, None] * stride + np.arange(kernel) * apart - begin
        if begin < 0 or not ((taps >= 0) & (taps < n)).any(1).all():
            return None
        pads.append((begin, max(0, (out - 1) * stride + reach - n - begin)))
    return tuple(pads)


def _slide_options(window: SlidingWindow) -> dict[str, tuple[int, int]]:
    return {"stride": _height_and_width(window.strides), "dilation": _height_and_width(window.dilations)}


def _height_and_width(sizes: Sequence[int]) -> tuple[int, int]:
    """Return the sizes along height and width; for (N, C, L) the height is 1."""
    high, wide = (1, *sizes)[-2:]
    return high, wide


def _all_sides(pads: Pads) -> tuple[int, int, int, int]:
    """Return padding as (top, left, bottom, right)."""
    (top, bottom), (left, right) = ((0, 0), *pads)[-2:]
    return top, left, bottom, right


_POOL_MATCHERS = {"max_pool": _match_max_pool, "sum_pool": _match_sum_pool, "reduce_sum": _match_sum_pool}
