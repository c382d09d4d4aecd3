"""Divisions of integers by a number sink below the linear nodes that follow.

A mean is a sum divided by a count such as 49, and no scale of float64 is exactly 1/49 of another, so the factors of a
product after a mean would be real numbers. Since (x / c) @ w = (x @ w) / c, the product can read the integers instead.
The same holds for a divisor or a factor of each row of x, such as the scales of tokens, known at run time alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.passes.driver import rewrite
from bitsynth.graph.types import Integers

_MOVES = ("reshape", "transpose", "slice", "gather", "expand", "resize", "depth_to_space", "space_to_depth")
_HOMOGENEOUS = (*_MOVES, "max_pool", "relu", "sum_pool", "reduce_sum")
"""Operators with f(x / c) = f(x) / c for every c > 0."""
_PRODUCTS = ("conv", "matmul")
_SUMS = ("add", "sub")
_MAX_DIVISOR = 1 << 24
"""The largest product of divisors; float32 holds whole numbers up to it."""


@dataclass(frozen=True)
class _Quotient:
    """The edges of a dividend and of its divisor."""

    dividend: str
    divisor: str


def sink_row_scales(graph: Graph) -> Graph:
    """Move factors and divisors of rows, computed at run time, from the first operand of a product to its result.

    Only of graphs whose reference is exact, as in `sink_divisions`. A divisor of 0 has no result there.

    Given:
        %r = div(%codes, %s)         # %codes carries integers (m, k); %s are real numbers (m, 1)
        %y = matmul(%r, %w)          # %w are integers (k, n), times a scale
    Result:
        %p = matmul(%codes, %w)      # of integers
        %y = div(%p, %s)
    """
    scaled = {node.outputs[0]: node for node in graph.nodes if _scales_rows(graph, node)}
    if graph.reference != "exact" or not scaled:
        return graph

    def replace_node(builder: GraphBuilder, node: Node) -> bool:
        scale = (
            scaled.get(node.inputs[0]) if node.op == "matmul" and len(graph.edges[node.inputs[1]].shape) == 2 else None
        )
        name = builder.fresh(f"{node.outputs[0]}.rows")
        product = scale and _add_on_integers(builder, node, [scale.inputs[0], node.inputs[1]], name)
        if not scale or not product:
            return False
        builder.add(scale.op, product, scale.inputs[1], name=node.outputs[0], source=node.source)
        return True

    return rewrite(graph, replace_node)


def _scales_rows(graph: Graph, node: Node) -> bool:
    """Return whether a node multiplies or divides the rows of integers by real numbers that are no constants."""
    if node.op not in ("mul", "div") or node.inputs[1] in graph.constants:
        return False
    integers, scale, result = (graph.edges[n] for n in (*node.inputs, *node.outputs))
    is_by_row = len(scale.shape) == len(integers.shape) > 1 and scale.shape[-1] == 1 and result.shape == integers.shape
    kinds = [isinstance(edge.type, Integers) for edge in (integers, scale, result)]
    return is_by_row and kinds == [True, False, False]


def sink_divisions(graph: Graph) -> Graph:
    """Move divisions of integers by constants above 0 below the linear nodes that read the quotients.

    Only of graphs whose reference is exact: in floats, (x / c) @ w and (x @ w) / c are rounded differently.

    Given:
        %m = div(%sums, 49)          # %sums carries integers, %m real numbers
        %y = matmul(%m, %w)
    Result:
        %d = matmul(%sums, %w)       # of integers
        %y = div(%d, 49)
    """
    if graph.reference != "exact" or not any(_divides(graph, node) for node in graph.nodes):
        return graph
    quotients = dict[str, _Quotient]()

    def replace_node(builder: GraphBuilder, node: Node) -> bool:
        quotient = _sink_below(builder, node, quotients)
        if quotient:
            operands = quotient.dividend, quotient.divisor
            builder.add("div", *operands, name=node.outputs[0], source=node.source)
            quotients[node.outputs[0]] = quotient
            return True
        builder.repeat(node)
        if _divides(graph, node):
            value = builder.value(node.inputs[1])
            assert value is not None
            quotients[node.outputs[0]] = _Quotient(node.inputs[0], builder.constant(value.reshape(())))
        return True

    return rewrite(graph, replace_node)


def _sink_below(builder: GraphBuilder, node: Node, quotients: dict[str, _Quotient]) -> _Quotient | None:
    """Return the output of a node as a quotient, if the node can read the dividends instead of the quotients."""
    operands = [quotients.get(name) for name in node.inputs]
    first = next((q for q in operands if q), None)
    if first is None:
        return None
    if node.op in _SUMS and {q.divisor if q else "" for q in operands} == {first.divisor}:
        return _add_on_dividends(builder, node, [q.dividend for q in operands if q], first.divisor)
    if node.op in _HOMOGENEOUS and operands[0]:
        return _add_on_dividends(builder, node, [first.dividend, *node.inputs[1:]], first.divisor)
    if node.op in _PRODUCTS and (divisor := _multiply_divisors(builder, [q.divisor for q in operands if q])):
        inputs = [q.dividend if q else name for q, name in zip(operands, node.inputs, strict=True)]
        return _add_on_dividends(builder, node, inputs, divisor)
    if operands[0] and first.dividend in builder.constants:
        return _fold_into_weights(builder, node, first)
    return None


def _multiply_divisors(builder: GraphBuilder, divisors: list[str]) -> str | None:
    """Return the edge of the product of divisors; None if there are several and it is not a small whole number."""
    if len(divisors) == 1:
        return divisors[0]
    product = math.prod(float(builder.constants[name]) for name in divisors)
    is_whole = product == np.rint(product) and product <= _MAX_DIVISOR
    return builder.constant(np.asarray(product, builder.edges[divisors[0]].dtype)) if is_whole else None


def _fold_into_weights(builder: GraphBuilder, node: Node, weights: _Quotient) -> _Quotient | None:
    """Return weights x / c times or plus a number n, as a quotient of whole weights; None of other nodes.

    x / c * n is x * n / c, and x / c + n is (x + n * c) / c.
    """
    number, divisor = builder.value(node.inputs[-1]), builder.value(weights.divisor)
    if node.op not in ("mul", "add", "sub") or number is None or number.size != 1 or divisor is None:
        return None
    by = float(number.reshape(())) * (1 if node.op == "mul" else float(divisor))
    if by != np.rint(by) or not 0 < abs(by) <= _MAX_DIVISOR or not builder.edges[weights.dividend].integers.is_plain:
        return None
    operand = builder.constant(np.asarray(by, number.dtype))
    dividend = builder.value(builder.add(node.op, weights.dividend, operand, source=node.source))
    return None if dividend is None else _Quotient(builder.constant(dividend), weights.divisor)


def _add_on_dividends(builder: GraphBuilder, node: Node, inputs: list[str], divisor: str) -> _Quotient | None:
    """Add a linear node that reads dividends; return its quotient, or None if its integers would be too large."""
    dividend = _add_on_integers(builder, node, inputs, builder.fresh(f"{node.outputs[0]}.dividend"))
    return _Quotient(dividend, divisor) if dividend else None


def _add_on_integers(builder: GraphBuilder, node: Node, inputs: list[str], name: str) -> str | None:
    """Add a linear node that reads integers; return its result, or None if that has none, or too large ones."""
    try:
        result = builder.add(node.op, *inputs, name=name, source=node.source, **node.attributes)
    except SpecError:
        return None
    return result if isinstance(builder.edges[result].type, Integers) else None


def _divides(graph: Graph, node: Node) -> bool:
    """Return whether a node divides integers by one number above 0, with real numbers as the result."""
    if node.op != "div" or node.inputs[1] not in graph.constants:
        return False
    dividend, divisor, quotient = (graph.edges[n] for n in (*node.inputs, *node.outputs))
    kinds = isinstance(dividend.type, Integers), isinstance(quotient.type, Integers)
    value = graph.constants[divisor.name]
    return kinds == (True, False) and value.size == 1 and quotient.shape == dividend.shape and bool(np.all(value > 0))
