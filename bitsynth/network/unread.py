"""Channels that no product reads are not computed: those whose weights in the only product behind them are all 0.

Trained networks have them: weights of few bits round to 0, and what a regularizer drives there stays there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import Integers, Tensor, taken
from bitsynth.network.def_use import DefUse, NetworkTarget

_BY_CHANNEL = ("elementwise", "step", "pool")
"""Kinds of rows that do not mix channels."""
_UNIT = 16
"""Channels are left out by so many: whole registers of them are quickest."""
_FIRST_AXIS = ("thresholds",)
"""Attributes whose first axis are channels; those of others broadcast, as edges do."""


@dataclass(frozen=True)
class _Run:
    """A product, the nodes behind it that keep channels apart, and the product that reads `read` of its channels."""

    maker: Node
    links: tuple[Node, ...]
    reader: Node
    read: Tensor

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.maker, *self.links, self.reader)


def without_unread(graph: Graph, target: NetworkTarget) -> Graph:
    """The graph without channels of codes that no product reads, as long as there are units of them.

    Codes are finite, and a product with 0 is 0 wherever it is added. What is left of an edge has a name of its own.
    """
    while run := _first(DefUse(graph, target)):
        graph = _shortened(graph, run)
    return graph


def _first(def_use: DefUse) -> _Run | None:
    """The last such run: without channels it reads, those before read fewer."""
    found = (_run(def_use, node) for node in reversed(def_use.graph.nodes))
    return next((run for run in found if run), None)


def _run(def_use: DefUse, reader: Node) -> _Run | None:
    """The run that ends with a product, if there are channels that it does not read."""
    if not _is_dense(def_use, reader) or not def_use.carries_integers(reader.inputs[0]):
        return None
    read = _channels_kept(def_use.graph, reader)
    if len(read) == def_use.graph.edges[reader.inputs[0]].shape[1]:
        return None
    links: list[Node] = []
    edge = reader.inputs[0]
    while (node := def_use.makers.get(edge)) and def_use.only_reader(edge):
        if _is_dense(def_use, node):
            return _Run(node, tuple(reversed(links)), reader, read)
        if not _keeps_channels_apart(def_use.graph, node) or not all(map(def_use.is_constant, node.inputs[1:])):
            return None
        links.append(node)
        edge = node.inputs[0]
    return None


def _keeps_channels_apart(graph: Graph, node: Node) -> bool:
    """Whether a node does to each channel, along axis 1 of both edges, what it does without the others."""
    before, after = (len(edge.shape) for edge in graph.edges_of((node.inputs[0], node.outputs[0])))
    return TABLE[node.op].kind in _BY_CHANNEL and node.attributes.get("axis", 1) == 1 and before == after


def _is_dense(def_use: DefUse, node: Node) -> bool:
    """Whether a node is a convolution of all channels with constants."""
    return node.op == "conv" and node.attributes["groups"] == 1 and _has_constant_weights(def_use, node)


def _has_constant_weights(def_use: DefUse, node: Node) -> bool:
    return def_use.is_constant(node.inputs[1]) and not def_use.is_constant(node.inputs[0])


def _channels_kept(graph: Graph, node: Node) -> Tensor:
    """The input channels that have a weight other than 0, and others up to whole units; all if they are no more."""
    weights, kind = graph.constants[node.inputs[1]], graph.edges[node.inputs[1]].type
    numbers = weights - kind.zero if isinstance(kind, Integers) else weights
    is_read = (numbers != 0).any(axis=(0, *range(2, numbers.ndim)))
    first = np.argsort(~is_read, kind="stable")
    kept: Tensor = np.sort(first[: max(1, -(-is_read.sum() // _UNIT)) * _UNIT])
    return kept


def _shortened(graph: Graph, run: _Run) -> Graph:
    """The graph with the channels of a run that are read."""
    builder, part = GraphBuilder.beginning(graph), {node.name for node in run.nodes}
    at = ""
    for node in graph.nodes:
        if node.name not in part:
            builder.repeat(node)
        else:
            at = _add(builder, run, node, at)
    return builder.build(graph.outputs)


def _add(builder: GraphBuilder, run: _Run, node: Node, before: str) -> str:
    """Add a node of the run, which reads `before` if it is not the first, under its name; what it makes."""
    inputs, attributes = _smaller(builder, run, node, before)
    edge = node.outputs[0] if node is run.reader else builder.fresh(f"{node.outputs[0]}.read")
    builder.repeat(replace(node, inputs=inputs, outputs=(edge,), attributes=attributes))
    return edge


def _smaller(builder: GraphBuilder, run: _Run, node: Node, before: str) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Inputs and attributes of a node, of the channels read."""
    if node is run.maker:
        return (node.inputs[0], builder.part(node.inputs[1], run.read, 0)), node.attributes
    if node is run.reader:
        return (before, builder.part(node.inputs[1], run.read, 1)), node.attributes
    axes = len(builder.edges[before].shape)
    constants = (_part_of(builder, name, run.read, axes) for name in node.inputs[1:])
    attributes = {name: _of_channels(name, value, run.read, axes) for name, value in node.attributes.items()}
    return (before, *constants), attributes


def _part_of(builder: GraphBuilder, name: str, read: Tensor, axes: int) -> str:
    """A constant that broadcasts to an edge of so many axes, of the channels read."""
    shape = builder.edges[name].shape
    axis = len(shape) - (axes - 1)
    return builder.part(name, read, axis) if axis >= 0 and shape[axis] > 1 else name


def _of_channels(name: str, value: Any, read: Tensor, axes: int) -> Any:
    """An attribute, of the channels read."""
    if isinstance(value, tuple):
        return tuple(_of_channels(name, one, read, axes) for one in value)
    if not isinstance(value, np.ndarray):
        return value
    return taken(value, read, 0 if name in _FIRST_AXIS else value.ndim - (axes - 1))
