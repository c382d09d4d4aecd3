"""Products of sequences, and the elementwise nodes that follow, work on matrices of two axes: rows and channels.

(N, S, C) @ (C, D) is (N * S, C) @ (C, D), and reshapes move no element. Layers and glue want channels on the second of
two axes, where their codes, biases and tables lie.
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
from bitsynth.graph.passes.driver import rewrite
from bitsynth.graph.types import Integers, Shape

ELEMENTWISE_KINDS = ("elementwise", "step")


def flatten_sequences(graph: Graph) -> Graph:
    """Reshape sequences to rows before products with a constant matrix, and back after the nodes that follow.

    The reshape back is left out of the graph where every reader of an edge reads its rows.

    Given:
        %p = matmul(%x, %w)           # (N, S, C) @ (C, D)
        %y = relu(%p)
    Result:
        %xr = reshape(%x, (N * S, C))
        %pr = matmul(%xr, %w)
        %yr = relu(%pr)
        %y = reshape(%yr, (N, S, D))
    """
    if not any(_is_product_of_sequences(graph, node) for node in graph.nodes):
        return graph
    flattening = _Flattening(graph)
    return rewrite(graph, flattening.replace_node)


def _is_product_of_sequences(graph: Graph, node: Node) -> bool:
    """Return whether a node multiplies a tensor of more than two axes by one constant matrix."""
    if node.op != "matmul" or node.inputs[1] not in graph.constants:
        return False
    before, weights = (graph.edges[name].shape for name in node.inputs)
    return len(before) > 2 and len(weights) == 2 and _has_one_grid(graph, node.inputs[0])


def _has_one_grid(graph: Graph, name: str) -> bool:
    """Return whether all integers of an edge have one scale and zero point; real numbers have none to differ."""
    kind = graph.edges[name].type
    return not isinstance(kind, Integers) or kind.has_one_grid


@dataclass
class _Flattening:
    """The nodes of a graph that work on rows.

    Args:
        graph: The graph before.
        rows: The edge of rows (N * S, C), by the name of the edge (N, S, C) with the same elements.
    """

    graph: Graph
    rows: dict[str, str] = field(default_factory=dict)

    def replace_node(self, builder: GraphBuilder, node: Node) -> bool:
        """Add a node on rows, and the reshape back; return False if it cannot work on rows."""
        if _is_product_of_sequences(self.graph, node):
            inputs: tuple[str, ...] = self._rows_of(builder, node.inputs[0]), node.inputs[1]
        else:
            inputs = self._inputs(builder, node)
        if inputs:
            self._add(builder, node, inputs, node.attributes)
        return bool(inputs)

    def _add(self, builder: GraphBuilder, node: Node, inputs: tuple[str, ...], attributes: Mapping[str, Any]) -> None:
        (edge,) = node.outputs
        name = builder.fresh(f"{edge}.rows")
        self.rows[edge] = builder.add(node.op, *inputs, name=name, source=node.source, **attributes)
        builder.add("reshape", self.rows[edge], name=edge, sizes=self.graph.edges[edge].shape)

    def _inputs(self, builder: GraphBuilder, node: Node) -> tuple[str, ...]:
        """Return the inputs of an elementwise node as rows; none unless one of them has rows, and all can have them."""
        if TABLE[node.op].kind not in ELEMENTWISE_KINDS or not any(name in self.rows for name in node.inputs):
            return ()
        if any(not is_scalar(value) for value in node.attributes.values()):
            return ()
        shape = self.graph.edges[node.outputs[0]].shape
        operands = [self._operand(builder, name, shape) for name in node.inputs]
        return tuple(filter(None, operands)) if all(operands) else ()

    def _operand(self, builder: GraphBuilder, name: str, shape: Shape) -> str | None:
        """Return an input as rows, or as a vector that all rows share; None if it is neither."""
        own = self.graph.edges[name].shape
        if own == shape:
            return self._rows_of(builder, name) if name in self.rows or _has_one_grid(self.graph, name) else None
        if math.prod(own[:-1]) != 1 or not _has_one_grid(self.graph, name):
            return None
        return builder.add("reshape", name, sizes=own[-1:]) if len(own) > 1 else name

    def _rows_of(self, builder: GraphBuilder, name: str) -> str:
        """Return the edge of rows of an edge; add the reshape that makes it if there is none yet."""
        if name not in self.rows:
            *outer, channels = self.graph.edges[name].shape
            fresh = builder.fresh(f"{name}.rows")
            self.rows[name] = builder.add("reshape", name, name=fresh, sizes=(math.prod(outer), channels))
        return self.rows[name]


def is_scalar(value: Any) -> bool:
    """Return whether an attribute is one number or text, or a tuple of these: the same for all elements."""
    if isinstance(value, tuple):
        return all(map(is_scalar, value))
    return np.ndim(value) == 0
