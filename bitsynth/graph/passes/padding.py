"""Padding by 0 before a convolution becomes padding of the convolution.

TensorFlow's converter writes Pad followed by a convolution without padding. Codes with a zero point are dequantized
before the Pad, and a quantizer after the Pad restores the codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.passes.driver import rebuild
from bitsynth.graph.passes.quantizers import keeps_integers

_FIRST_IMAGE_AXIS = 2
"""The axes before it are the batch and the channels."""


def fuse_padding(graph: Graph) -> Graph:
    """Fuse padding of images by 0 into the convolutions that read them.

    Given:
        %p = pad(%x, pads=1)
        %y = conv(%p, %w, window=3x3 without padding)
    Result:
        %y = conv(%x, %w, window=3x3 with padding 1)
    """
    makers = graph.makers
    fused = {node.name: conv for node in graph.nodes if (conv := _fuse_conv(graph, makers, node))}
    if not fused:
        return graph
    return rebuild(graph, (fused.get(node.name, node) for node in graph.nodes))


def _fuse_conv(graph: Graph, makers: Mapping[str, Node], node: Node) -> Node | None:
    """Return a convolution of a padded image as a convolution of the image; None for other nodes."""
    pad = _find_pad(graph, makers, node.inputs[0]) if node.op == "conv" else None
    if pad is None:
        return None
    window, pads = node.attributes["window"], pad.attributes["pads"][_FIRST_IMAGE_AXIS:]
    begins = tuple(n + int(before) for n, (before, _) in zip(window.begins, pads, strict=True))
    ends = tuple(n + int(after) for n, (_, after) in zip(window.ends, pads, strict=True))
    attributes = MappingProxyType({**node.attributes, "window": replace(window, begins=begins, ends=ends)})
    return replace(node, inputs=(pad.inputs[0], *node.inputs[1:]), attributes=attributes)


def _find_pad(graph: Graph, makers: Mapping[str, Node], edge: str) -> Node | None:
    """Find the node that pads an image by 0 to make an edge, past a quantizer that changes no integer."""
    maker = makers.get(edge)
    before = makers.get(maker.inputs[0]) if maker and maker.op == "quantize" else None
    is_pad = before is not None and before.op == "pad"
    if maker is not None and before is not None and is_pad and keeps_integers(graph, maker, before.inputs[0]):
        maker = before
    if maker is None or maker.op != "pad" or not maker.attributes["fills"]:
        return None
    return None if any(map(any, maker.attributes["pads"][:_FIRST_IMAGE_AXIS])) else maker
