"""Products of sequences, and what follows element by element, become those of rows of channels.

(N, S, C) @ (C, D) is (N * S, C) @ (C, D): reshapes move nothing, and layers and glue have channels along the second of
two axes, where they find those of codes, biases and tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import Integers, Shape

_EACH = ("elementwise", "step")


def in_rows(graph: Graph) -> Graph:
    """The graph whose dense products of more than two axes read rows; itself if there are none."""
    if not any(_is_of_sequences(graph, node) for node in graph.nodes):
        return graph
    made = _InRows(graph)
    for node in graph.nodes:
        made.add(node)
    return made.builder.build(graph.outputs)


def _is_of_sequences(graph: Graph, node: Node) -> bool:
    """Whether a node is a product of several rows of rows with one constant matrix."""
    if node.op != "matmul" or node.inputs[1] not in graph.constants:
        return False
    before, weights = (graph.edges[name].shape for name in node.inputs)
    return len(before) > 2 and len(weights) == 2 and _is_alike(graph, node.inputs[0])


def _is_alike(graph: Graph, name: str) -> bool:
    """Whether what an edge's integers stand for does not depend on their place."""
    kind = graph.edges[name].type
    return not isinstance(kind, Integers) or kind.has_one_grid


@dataclass
class _InRows:
    """The graph in the making; `rows` has the edges of rows by the names of those that they are the rows of."""

    graph: Graph
    builder: GraphBuilder = field(init=False)
    rows: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.builder = GraphBuilder.beginning(self.graph)

    def add(self, node: Node) -> None:
        """A node, of rows if it can be."""
        if _is_of_sequences(self.graph, node):
            self._keep(node, (self._of(node.inputs[0]), node.inputs[1]), node.attributes)
        elif inputs := self._inputs(node):
            self._keep(node, inputs, node.attributes)
        else:
            self.builder.repeat(node)

    def _keep(self, node: Node, inputs: tuple[str, ...], attributes: Mapping[str, Any]) -> None:
        """Add a node of rows, and its edge made of these."""
        (edge,) = node.outputs
        name = self.builder.fresh(f"{edge}.rows")
        self.rows[edge] = self.builder.add(node.op, *inputs, name=name, source=node.source, **attributes)
        self.builder.add("reshape", self.rows[edge], name=edge, sizes=self.graph.edges[edge].shape)

    def _inputs(self, node: Node) -> tuple[str, ...]:
        """The rows that a node reads which does the same to each, one of products at least; none if it does not."""
        if TABLE[node.op].kind not in _EACH or not any(name in self.rows for name in node.inputs):
            return ()
        if any(not _is_one(value) for value in node.attributes.values()):
            return ()
        shape = self.graph.edges[node.outputs[0]].shape
        found = [self._operand(name, shape) for name in node.inputs]
        return tuple(filter(None, found)) if all(found) else ()

    def _operand(self, name: str, shape: Shape) -> str | None:
        """An input as rows, or numbers that are the same for all of them; None if it is neither."""
        own = self.graph.edges[name].shape
        if own == shape:
            return self._of(name) if name in self.rows or _is_alike(self.graph, name) else None
        if math.prod(own[:-1]) != 1 or not _is_alike(self.graph, name):
            return None
        return self.builder.add("reshape", name, sizes=own[-1:]) if len(own) > 1 else name

    def _of(self, name: str) -> str:
        """The rows of an edge."""
        if name not in self.rows:
            *outer, channels = self.graph.edges[name].shape
            self.rows[name] = self.builder.add(
                "reshape", name, name=self.builder.fresh(f"{name}.rows"), sizes=(math.prod(outer), channels)
            )
        return self.rows[name]


def _is_one(value: Any) -> bool:
    """Whether an attribute has no place of its own for an element."""
    if isinstance(value, tuple):
        return all(map(_is_one, value))
    return np.ndim(value) == 0
