"""Divisions of integers by a number sink below what follows, so that products after a mean have integer factors.

A mean is a sum over a count such as 49, and no scale of float64 is a 49th of another; but (x / c) @ w is (x @ w) / c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Integers

_MOVES = ("reshape", "transpose", "slice", "gather", "expand", "resize", "depth_to_space", "space_to_depth")
_LINEAR = (*_MOVES, "max_pool", "relu", "sum_pool", "reduce_sum")
"""Of c > 0, f(x / c) is f(x) / c."""
_PRODUCTS = ("conv", "matmul")
_SUMS = ("add", "sub", "concat")
_MOST_DIVISOR = 1 << 24


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
        quotient = _sunk_below(builder, node, found)
        if quotient:
            operands = quotient.dividend, quotient.divisor
            builder.add("div", *operands, name=node.outputs[0], source=node.source)
            found[node.outputs[0]] = quotient
            continue
        builder.repeat(node)
        if _divides(graph, node):
            value = builder.value(node.inputs[1])
            assert value is not None
            found[node.outputs[0]] = _Quotient(node.inputs[0], builder.constant(value.reshape(())))
    return builder.build(graph.outputs)


def _sunk_below(builder: GraphBuilder, node: Node, found: dict[str, _Quotient]) -> _Quotient | None:
    """What a node makes as a quotient, if it can be computed of the dividends and is of such integers as before."""
    quotients = [found.get(name) for name in node.inputs]
    first = next((q for q in quotients if q), None)
    if first is None:
        return None
    if node.op in _SUMS and {q.divisor if q else "" for q in quotients} == {first.divisor}:
        return _before(builder, node, [q.dividend for q in quotients if q], first.divisor)
    if node.op in _LINEAR and quotients[0]:
        return _before(builder, node, [first.dividend, *node.inputs[1:]], first.divisor)
    if node.op in _PRODUCTS and (divisor := _product(builder, [q.divisor for q in quotients if q])):
        operands = [q.dividend if q else name for q, name in zip(quotients, node.inputs, strict=True)]
        return _before(builder, node, operands, divisor)
    if quotients[0] and first.dividend in builder.constants:
        return _of_weights(builder, node, first)
    return None


def _product(builder: GraphBuilder, divisors: list[str]) -> str | None:
    """The product of divisors; of several only if it is a small whole number."""
    if len(divisors) == 1:
        return divisors[0]
    made = math.prod(float(builder.constants[name]) for name in divisors)
    whole = made == np.rint(made) and made <= _MOST_DIVISOR
    return builder.constant(np.asarray(made, builder.edges[divisors[0]].dtype)) if whole else None


def _of_weights(builder: GraphBuilder, node: Node, of: _Quotient) -> _Quotient | None:
    """Weights that are quotients, times or plus whole numbers: x / c * n is x * n / c, x / c + n is (x + n * c) / c."""
    number, divisor = builder.value(node.inputs[-1]), builder.value(of.divisor)
    if node.op not in ("mul", "add", "sub") or number is None or number.size != 1 or divisor is None:
        return None
    by = float(number.reshape(())) * (1 if node.op == "mul" else float(divisor))
    if by != np.rint(by) or not 0 < abs(by) <= _MOST_DIVISOR or not builder.edges[of.dividend].integers.is_plain:
        return None
    whole = builder.constant(np.asarray(by, number.dtype))
    made = builder.value(builder.add(node.op, of.dividend, whole, source=node.source))
    return None if made is None else _Quotient(builder.constant(made), of.divisor)


def _before(builder: GraphBuilder, node: Node, operands: list[str], divisor: str) -> _Quotient | None:
    """What a linear node makes of dividends; None if its integers would be too large."""
    name, attributes = builder.fresh(f"{node.outputs[0]}.dividend"), dict(node.attributes)
    try:
        made = builder.add(node.op, *operands, name=name, source=node.source, **attributes)
    except SpecError:
        return None
    return _Quotient(made, divisor) if isinstance(builder.edges[made].type, Integers) else None


def _divides(graph: Graph, node: Node) -> bool:
    """Whether a node divides integers by one number above 0 and gets real numbers."""
    if node.op != "div" or node.inputs[1] not in graph.constants:
        return False
    dividend, divisor, quotient = (graph.edges[n] for n in (*node.inputs, *node.outputs))
    kinds = isinstance(dividend.type, Integers), isinstance(quotient.type, Integers)
    value = graph.constants[divisor.name]
    return kinds == (True, False) and value.size == 1 and quotient.shape == dividend.shape and bool(np.all(value > 0))
