"""Shuffles of channels become one gather for the three nodes that a file has, or vanish into weights.

ShuffleNet shuffles the channels of groups by Reshape, Transpose and Reshape, then splits the result.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.passes.driver import rewrite
from bitsynth.graph.types import Tensor

_CHANNELS = 1
"""The axis of channels."""


def merge_shuffles(graph: Graph) -> Graph:
    """Replace each shuffle by one gather of the unshuffled edge; convolutions read that edge, with weights in its
    order.

    Given:
        %a = reshape(%x, 1x2x3xHxW); %b = transpose(%a, 0 2 1 3 4); %s = reshape(%b, 1x6xHxW)
        %y = conv(%s, %w, groups=1)
    Result:
        %s = gather(%x, channels 0 3 1 4 2 5)    # unless nothing but convolutions reads it
        %y = conv(%x, %w with its input channels in the order of %x)
    """
    makers = graph.makers
    shuffles = {node.name: shuffle for node in graph.nodes if (shuffle := _find_shuffle(graph, makers, node))}
    if not shuffles:
        return graph
    gathers = dict[str, tuple[str, Tensor]]()  # The source of each gathered edge, and the channels it takes of that.

    def gather(builder: GraphBuilder, node: Node, source: str, channels: Tensor) -> None:
        name = node.outputs[0]
        builder.add("gather", source, name=name, source=node.source, places=channels, axis=_CHANNELS)
        gathers[name] = source, channels

    def replace_node(builder: GraphBuilder, node: Node) -> bool:
        if node.name in shuffles:
            source, order = shuffles[node.name]
            source, channels = gathers.get(source, (source, np.arange(len(order))))
            gather(builder, node, source, channels[order])
            return True
        if not node.inputs or node.inputs[0] not in gathers:
            return False
        source, channels = gathers[node.inputs[0]]
        if (selected := _find_selected_channels(graph, node)) is not None:
            gather(builder, node, source, channels[selected])
            return True
        if node.op == "conv" and _sums_all_channels(graph, node, source, channels):
            weights = builder.part(node.inputs[1], np.argsort(channels), _CHANNELS)
            builder.add("conv", source, weights, name=node.outputs[0], source=node.source, **dict(node.attributes))
            return True
        return False

    return rewrite(graph, replace_node)


def _find_shuffle(graph: Graph, makers: Mapping[str, Node], node: Node) -> tuple[str, Tensor] | None:
    """Return the edge whose channels a reshape has in another order, and that order; None of other nodes.

    Given 1 x 6 x 8 x 8, split into 1 x 2 x 3 x 8 x 8, transposed to 1 x 3 x 2 x 8 x 8 (`order` is 0, 2, 1, 3, 4) and
    reshaped to 1 x 6 x 8 x 8: the order of its channels is 0, 3, 1, 4, 2, 5.
    """
    transpose = _maker(makers, node, "transpose") if node.op == "reshape" else None
    split = _maker(makers, transpose, "reshape")
    if transpose is None or split is None:
        return None
    before, after = graph.edges[split.inputs[0]].shape, graph.edges[node.outputs[0]].shape
    middle, order = graph.edges[split.outputs[0]].shape, tuple(transpose.attributes["order"])
    image = len(before) - 2
    parts = len(middle) - 1 - image
    inside = sorted(order[1 : 1 + parts]) == list(range(1, 1 + parts))
    is_kept = (order[0], *order[1 + parts :]) == (0, *range(1 + parts, len(middle)))
    if before != after or image < 0 or parts < 1 or not (inside and is_kept):
        return None
    if middle[0] != before[0] or middle[1 + parts :] != before[2:]:
        return None
    channels = np.arange(before[1]).reshape(middle[1 : 1 + parts]).transpose([k - 1 for k in order[1 : 1 + parts]])
    return split.inputs[0], channels.reshape(-1)


def _maker(makers: Mapping[str, Node], node: Node | None, op: str) -> Node | None:
    """Return the node that makes the first input of a node, if its operator is `op`; else None."""
    maker = makers.get(node.inputs[0]) if node else None
    return maker if maker is not None and maker.op == op else None


def _find_selected_channels(graph: Graph, node: Node) -> Tensor | None:
    """Return the channels that a gather or slice selects from its input; None if the node does anything else."""
    if node.op == "gather" and node.attributes["axis"] == _CHANNELS and np.ndim(node.attributes["places"]) == 1:
        return np.asarray(node.attributes["places"])
    if node.op != "slice":
        return None
    before, after = (graph.edges[edge[0]].shape for edge in (node.inputs, node.outputs))
    same_image = all(a == b for k, (a, b) in enumerate(zip(before, after, strict=True)) if k != _CHANNELS)
    slices = [slice(*s) for s in node.attributes["slices"]]
    forward = all((s.step or 1) > 0 for k, s in enumerate(slices) if k != _CHANNELS)
    return np.arange(before[_CHANNELS])[slices[_CHANNELS]] if same_image and forward else None


def _sums_all_channels(graph: Graph, node: Node, source: str, channels: Tensor) -> bool:
    """Return whether a convolution with constant weights reads each channel of a source once."""
    each = np.array_equal(np.sort(channels), np.arange(graph.edges[source].shape[_CHANNELS]))
    return each and node.attributes["groups"] == 1 and node.inputs[1] in graph.constants
