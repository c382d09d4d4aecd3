"""Channels of codes that no product reads are not computed: their weights in the only product that follows are all 0.

Trained networks have such channels: weights of few bits round to 0, and regularizers drive whole channels to 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.passes.driver import rewrite
from bitsynth.graph.types import Integers, Tensor, take_places

_KINDS_BY_CHANNEL = ("elementwise", "step", "pool")
"""Kinds of operators that do not mix channels."""
_CHANNELS_KEPT_TOGETHER = 16
"""A multiple of this many channels is kept: kernels are fastest on whole registers of channels."""
_CHANNELS_ON_FIRST_AXIS = ("thresholds",)
"""Attributes whose first axis is the channels; other arrays of attributes broadcast to the edge."""


@dataclass(frozen=True)
class _Run:
    """A product, the nodes after it that do not mix channels, and the product that reads some of its channels.

    Args:
        maker: The first product.
        links: The nodes between both products.
        reader: The last product.
        read: The channels that are kept.
    """

    maker: Node
    links: tuple[Node, ...]
    reader: Node
    read: Tensor

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.maker, *self.links, self.reader)


def drop_unread_channels(graph: Graph) -> Graph:
    """Drop channels of codes whose weights in the next product are 0, down to a multiple of 16 channels.

    Codes are finite, so that a product with the weight 0 adds nothing. Edges with fewer channels get new names.

    Given:
        %p = conv(%x, %w)             # 64 channels
        %q = quantize(%p)
        %y = conv(%q, %v)             # %v is 0 for all but 20 of its 64 input channels
    Result:
        %p.read = conv(%x, 32 of the rows of %w)
        %q.read = quantize(%p.read)
        %y = conv(%q.read, %v for these 32 input channels)
    """
    while run := _find_run(graph):
        graph = _shorten(graph, run)
    return graph


def _find_run(graph: Graph) -> _Run | None:
    """Find the last run with channels that are not read: once they are dropped, runs before it may read fewer."""
    runs = (_run_before(graph, node) for node in reversed(graph.nodes))
    return next((run for run in runs if run), None)


def _run_before(graph: Graph, reader: Node) -> _Run | None:
    """Return the run that ends with a product; None if the product reads all channels, or there is no run."""
    if not _is_dense(graph, reader) or not isinstance(graph.edges[reader.inputs[0]].type, Integers):
        return None
    read = _channels_kept(graph, reader)
    if len(read) == graph.edges[reader.inputs[0]].shape[1]:
        return None
    links: list[Node] = []
    edge = reader.inputs[0]
    while (node := graph.makers.get(edge)) and graph.only_reader(edge):
        if _is_dense(graph, node):
            return _Run(node, tuple(reversed(links)), reader, read)
        if not _keeps_channels_apart(graph, node) or not all(edge in graph.constants for edge in node.inputs[1:]):
            return None
        links.append(node)
        edge = node.inputs[0]
    return None


def _keeps_channels_apart(graph: Graph, node: Node) -> bool:
    """Return whether a node computes each channel, on axis 1 of both edges, without the others."""
    before, after = (len(edge.shape) for edge in graph.edges_of((node.inputs[0], node.outputs[0])))
    return TABLE[node.op].kind in _KINDS_BY_CHANNEL and node.attributes.get("axis", 1) == 1 and before == after


def _is_dense(graph: Graph, node: Node) -> bool:
    """Return whether a node is a convolution of all channels with constant weights."""
    is_dense = node.op == "conv" and node.attributes["groups"] == 1
    return is_dense and node.inputs[1] in graph.constants and node.inputs[0] not in graph.constants


def _channels_kept(graph: Graph, node: Node) -> Tensor:
    """Return the input channels with a weight other than 0, filled up with others to a multiple of 16, or to all."""
    weights, kind = graph.constants[node.inputs[1]], graph.edges[node.inputs[1]].type
    numbers = weights - kind.zero if isinstance(kind, Integers) else weights
    is_read = (numbers != 0).any(axis=(0, *range(2, numbers.ndim)))
    read_first = np.argsort(~is_read, kind="stable")
    units = max(1, -(-is_read.sum() // _CHANNELS_KEPT_TOGETHER))
    channels: Tensor = np.sort(read_first[: units * _CHANNELS_KEPT_TOGETHER])
    return channels


def _shorten(graph: Graph, run: _Run) -> Graph:
    """Return the graph with the kept channels of a run alone."""
    names = {node.name for node in run.nodes}
    edge = ""  # The output of the last node of the run that was added.

    def replace_node(builder: GraphBuilder, node: Node) -> bool:
        nonlocal edge
        if node.name not in names:
            return False
        inputs, attributes = _shorten_operands(builder, run, node, edge)
        edge = node.outputs[0] if node is run.reader else builder.fresh(f"{node.outputs[0]}.read")
        builder.repeat(replace(node, inputs=inputs, outputs=(edge,), attributes=attributes))
        return True

    return rewrite(graph, replace_node)


def _shorten_operands(
    builder: GraphBuilder, run: _Run, node: Node, before: str
) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Return the inputs and attributes of a node for the kept channels; but for the first node it reads `before`."""
    if node is run.maker:
        return (node.inputs[0], builder.part(node.inputs[1], run.read, 0)), node.attributes
    if node is run.reader:
        return (before, builder.part(node.inputs[1], run.read, 1)), node.attributes
    rank = len(builder.edges[before].shape)
    constants = (_shorten_constant(builder, name, run.read, rank) for name in node.inputs[1:])
    attributes = {name: _shorten_attribute(name, value, run.read, rank) for name, value in node.attributes.items()}
    return (before, *constants), attributes


def _shorten_constant(builder: GraphBuilder, name: str, read: Tensor, rank: int) -> str:
    """Return the edge of a constant, which broadcasts to an edge of `rank` axes, for the kept channels."""
    shape = builder.edges[name].shape
    axis = len(shape) - (rank - 1)
    return builder.part(name, read, axis) if axis >= 0 and shape[axis] > 1 else name


def _shorten_attribute(name: str, value: Any, read: Tensor, rank: int) -> Any:
    """Return an attribute of a node, whose edges have `rank` axes, for the kept channels."""
    if isinstance(value, tuple):
        return tuple(_shorten_attribute(name, element, read, rank) for element in value)
    if not isinstance(value, np.ndarray):
        return value
    return take_places(value, read, 0 if name in _CHANNELS_ON_FIRST_AXIS else value.ndim - (rank - 1))
