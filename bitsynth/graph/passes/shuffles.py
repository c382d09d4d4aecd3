"""Shuffled channels are gathered once: by one node for three that move them, by weights where products follow.

ShuffleNet turns groups of channels into columns between two reshapes, then splits what comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Tensor

_CHANNELS = 1


def gathered(graph: Graph) -> Graph:
    """The graph with a gather for each shuffle, none behind another, and none before a convolution of all channels."""
    makers = graph.makers()
    shuffles = {node.name: found for node in graph.nodes if (found := _shuffle(graph, makers, node))}
    if not shuffles:
        return graph
    builder, places = GraphBuilder.beginning(graph), dict[str, tuple[str, Tensor]]()
    for node in graph.nodes:
        if node.name in shuffles:
            source, turned = shuffles[node.name]
            source, before = places.get(source, (source, np.arange(len(turned))))
            _gather(builder, node, source, before[turned], places)
        elif node.inputs and node.inputs[0] in places and (some := _some(graph, node)) is not None:
            source, before = places[node.inputs[0]]
            _gather(builder, node, source, before[some], places)
        elif node.op == "conv" and node.inputs[0] in places and _takes_all(graph, node, *places[node.inputs[0]]):
            source, before = places[node.inputs[0]]
            weights = builder.part(node.inputs[1], np.argsort(before), _CHANNELS)
            builder.add("conv", source, weights, name=node.outputs[0], source=node.source, **dict(node.attributes))
        else:
            builder.repeat(node)
    return builder.build(graph.outputs)


def _gather(
    builder: GraphBuilder, node: Node, source: str, channels: Tensor, places: dict[str, tuple[str, Tensor]]
) -> None:
    """Add the channels of a source as what a node makes, and say that they are."""
    name = node.outputs[0]
    builder.add("gather", source, name=name, source=node.source, places=channels, axis=_CHANNELS)
    places[name] = source, channels


def _shuffle(graph: Graph, makers: Mapping[str, Node], node: Node) -> tuple[str, Tensor] | None:
    """The edge whose channels a reshape has in another order, and that order; None if it does anything else."""
    turned = _before(makers, node, "transpose") if node.op == "reshape" else None
    parted = _before(makers, turned, "reshape")
    if turned is None or parted is None:
        return None
    before, after = graph.edges[parted.inputs[0]].shape, graph.edges[node.outputs[0]].shape
    middle, order = graph.edges[parted.outputs[0]].shape, tuple(turned.attributes["order"])
    image = len(before) - 2
    parts = len(middle) - 1 - image
    inside = sorted(order[1 : 1 + parts]) == list(range(1, 1 + parts))
    kept = (order[0], *order[1 + parts :]) == (0, *range(1 + parts, len(middle)))
    if before != after or image < 0 or parts < 1 or not (inside and kept):
        return None
    if middle[0] != before[0] or middle[1 + parts :] != before[2:]:
        return None
    channels = np.arange(before[1]).reshape(middle[1 : 1 + parts]).transpose([k - 1 for k in order[1 : 1 + parts]])
    return parted.inputs[0], channels.reshape(-1)


def _before(makers: Mapping[str, Node], node: Node | None, op: str) -> Node | None:
    """The node of an operator that makes what a node reads; None if there is no such."""
    maker = makers.get(node.inputs[0]) if node else None
    return maker if maker is not None and maker.op == op else None


def _some(graph: Graph, node: Node) -> Tensor | None:
    """The channels that a node takes of what it reads, and nothing else; None if it does more."""
    if node.op == "gather" and node.attributes["axis"] == _CHANNELS and np.ndim(node.attributes["places"]) == 1:
        return np.asarray(node.attributes["places"])
    if node.op != "slice":
        return None
    given, made = (graph.edges[edge[0]].shape for edge in (node.inputs, node.outputs))
    alike = all(a == b for k, (a, b) in enumerate(zip(given, made, strict=True)) if k != _CHANNELS)
    slices = [slice(*s) for s in node.attributes["slices"]]
    forward = all((s.step or 1) > 0 for k, s in enumerate(slices) if k != _CHANNELS)
    return np.arange(given[_CHANNELS])[slices[_CHANNELS]] if alike and forward else None


def _takes_all(graph: Graph, node: Node, source: str, channels: Tensor) -> bool:
    """Whether a convolution sums products of all channels of a source, each once, with constant weights."""
    each = np.array_equal(np.sort(channels), np.arange(graph.edges[source].shape[_CHANNELS]))
    return each and node.attributes["groups"] == 1 and node.inputs[1] in graph.constants
