"""Divisions of integers by a number sink below what follows, so that products after a mean have integer factors.

A mean is a sum over a count such as 49, and no scale of float64 is a 49th of another; but (x / c) @ w is (x @ w) / c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Integers

_MOVES = ("reshape", "transpose", "slice", "gather", "expand", "resize", "depth_to_space", "space_to_depth")
_LINEAR = (*_MOVES, "conv", "matmul", "sum_pool", "reduce_sum")
"""Of c > 0, f(x / c) is f(x) / c, the other operands as they are."""


@dataclass(frozen=True)
class _Quotient:
    """The edges of a dividend and of its divisor."""

    dividend: str
    divisor: str


def sunk(graph: Graph) -> Graph:
    """The graph with divisions of integers by numbers above 0 after the linear rows that follow; exact ones alone."""
    if graph.reference != "exact" or not any(_divides(graph, node) for node in graph.nodes):
        return graph
    builder, found = GraphBuilder.beginning(graph), dict[str, _Quotient]()
    for node in graph.nodes:
        quotient = found.get(node.inputs[0])
        below = _before(builder, node, quotient) if node.op in _LINEAR and quotient else None
        if quotient and below:
            builder.add("div", below, quotient.divisor, name=node.outputs[0], source=node.source)
            found[node.outputs[0]] = _Quotient(below, quotient.divisor)
            continue
        builder.repeat(node)
        if _divides(graph, node):
            value = builder.value(node.inputs[1])
            assert value is not None
            found[node.outputs[0]] = _Quotient(node.inputs[0], builder.constant(value.reshape(())))
    return builder.build(graph.outputs)


def _before(builder: GraphBuilder, node: Node, quotient: _Quotient) -> str | None:
    """What a linear node makes of the dividend; None if its integers would be too large."""
    name, attributes = f"{node.outputs[0]}.dividend", dict(node.attributes)
    try:
        return builder.add(node.op, quotient.dividend, *node.inputs[1:], name=name, source=node.source, **attributes)
    except SpecError:
        return None


def _divides(graph: Graph, node: Node) -> bool:
    """Whether a node divides integers by one number above 0 and gets real numbers."""
    if node.op != "div" or node.inputs[1] not in graph.constants:
        return False
    dividend, divisor, quotient = (graph.edges[n] for n in (*node.inputs, *node.outputs))
    kinds = isinstance(dividend.type, Integers), isinstance(quotient.type, Integers)
    value = graph.constants[divisor.name]
    return kinds == (True, False) and value.size == 1 and quotient.shape == dividend.shape and bool(np.all(value > 0))
