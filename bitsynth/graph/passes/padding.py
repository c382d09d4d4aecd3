"""Padding by 0 before a convolution becomes the convolution's own: TensorFlow writes one as Pad and a window within.

Codes with a zero point are real numbers behind a Pad, and a quantizer behind that gives the codes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.passes.repeated import keeps

_NOT_OF_IMAGE = 2
"""Axes before those of the image: the batch's and the channels'."""


def padded(graph: Graph) -> Graph:
    """The graph with paddings of images, which convolutions read, in the windows of these."""
    makers = graph.makers()
    found = {node.name: made for node in graph.nodes if (made := _with_padding(graph, makers, node))}
    if not found:
        return graph
    builder = GraphBuilder.beginning(graph)
    for node in graph.nodes:
        builder.repeat(found.get(node.name, node))
    return builder.build(graph.outputs)


def _with_padding(graph: Graph, makers: Mapping[str, Node], node: Node) -> Node | None:
    """The convolution of what was padded; None of other nodes."""
    pad = _padding(graph, makers, node.inputs[0]) if node.op == "conv" else None
    if pad is None:
        return None
    window, pads = node.attributes["window"], pad.attributes["pads"][_NOT_OF_IMAGE:]
    begins = tuple(n + int(before) for n, (before, _) in zip(window.begins, pads, strict=True))
    ends = tuple(n + int(behind) for n, (_, behind) in zip(window.ends, pads, strict=True))
    attributes = MappingProxyType({**node.attributes, "window": replace(window, begins=begins, ends=ends)})
    return replace(node, inputs=(pad.inputs[0], *node.inputs[1:]), attributes=attributes)


def _padding(graph: Graph, makers: Mapping[str, Node], edge: str) -> Node | None:
    """The padding of an image by 0 that makes an edge, or what a quantizer gives again; None of other edges."""
    maker = makers.get(edge)
    behind = makers.get(maker.inputs[0]) if maker and maker.op == "quantize" else None
    if maker is not None and behind is not None and behind.op == "pad" and keeps(graph, maker, behind.inputs[0]):
        maker = behind
    if maker is None or maker.op != "pad" or not maker.attributes["fills"]:
        return None
    return None if any(map(any, maker.attributes["pads"][:_NOT_OF_IMAGE])) else maker
