"""Zero points that are computed at run time are subtracted after a product instead of before it.

DynamicQuantizeLinear computes the zero point z of its codes q at run time. In integers (q - z) @ w is
q @ w - z * (1 @ w), so that the product can read the codes. Padding is 0 in both products: at the border of an image a
convolution of ones sums fewer weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.passes.driver import rewrite
from bitsynth.graph.types import Edge, Integers

_PRODUCTS = ("conv", "matmul")


def distribute_zero_points(graph: Graph) -> Graph:
    """Make products with constants read codes, where they read codes minus one number of the run.

    Given:
        %d = sub(%codes, %zero)           # %zero is computed at run time
        %y = matmul(%d, %w)
    Result:
        %p = matmul(%codes, %w)
        %t = mul(%zero, sums of the columns of %w)
        %y = sub(%p, %t)                  # the same integers
    """
    makers = graph.makers
    differences = {node.name: maker for node in graph.nodes if (maker := _find_difference(graph, makers, node))}
    if not differences:
        return graph

    def replace_node(builder: GraphBuilder, node: Node) -> bool:
        if node.name in differences:
            _add_products(builder, node, *differences[node.name].inputs)
        return node.name in differences

    return rewrite(graph, replace_node)


def _find_difference(graph: Graph, makers: Mapping[str, Node], node: Node) -> Node | None:
    """Find the subtraction of one number of the run from codes, whose result `node` multiplies by constants."""
    if node.op not in _PRODUCTS or node.inputs[1] not in graph.constants:
        return None
    maker = makers.get(node.inputs[0])
    if maker is None or maker.op != "sub":
        return None
    codes, zero, difference, weights = graph.edges_of((*maker.inputs, *maker.outputs, node.inputs[1]))
    if not isinstance(weights.type, Integers) or not (_starts_at_zero(codes) and _starts_at_zero(zero)):
        return None
    is_one_number = codes.shape == difference.shape and np.prod(zero.shape) == 1
    return maker if is_one_number and zero.name not in graph.constants else None


def _starts_at_zero(edge: Edge) -> bool:
    """Return whether an edge carries integers whose least is 0."""
    return isinstance(edge.type, Integers) and edge.type.is_plain and edge.type.least == 0


def _add_products(builder: GraphBuilder, node: Node, codes: str, zero: str) -> None:
    """Add the product of `codes`, and the subtraction of `zero` times sums of weights.

    Codes and zero point are at least 0, so that neither product is larger than the one they replace may be.
    """
    name = builder.fresh(f"{node.outputs[0]}.codes")
    product = builder.add(node.op, codes, node.inputs[1], name=name, **node.attributes)
    term = builder.add("mul", builder.add("reshape", zero, sizes=()), _sum_weights(builder, node, codes))
    builder.add("sub", product, term, name=node.outputs[0], source=node.source)


def _sum_weights(builder: GraphBuilder, node: Node, codes: str) -> str:
    """Return the edge of a product of ones with the weights; of one pixel if all pixels have the same sums."""
    shape = builder.edges[codes].shape
    ones = np.ones((1, *shape[1:]) if node.op == "conv" else (1, shape[-1]), np.int32)
    name = builder.add(node.op, builder.constant(ones), node.inputs[1], **node.attributes)
    value = builder.constants[name]
    first = value[tuple(slice(1) if k > 1 else slice(None) for k in range(value.ndim))]
    return builder.constant(first.astype(np.int32)) if node.op == "conv" and (value == first).all() else name
