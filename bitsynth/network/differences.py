"""Products of codes less a zero point that is known at run time alone become products of the codes.

(q - z) @ w is q @ w - z * (1 @ w), in integers: DynamicQuantizeLinear gives such codes. Padding is 0 in both, so that
around an image a convolution of ones has fewer taps.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Edge, Integers

_PRODUCTS = ("conv", "matmul")


def distributed(graph: Graph) -> Graph:
    """The graph whose products with constants read codes, where they read codes less one number; the same integers."""
    makers = graph.makers()
    found = {node.name: maker for node in graph.nodes if (maker := _difference(graph, makers, node))}
    if not found:
        return graph
    builder = GraphBuilder.beginning(graph)
    for node in graph.nodes:
        if node.name in found:
            _add(builder, node, *found[node.name].inputs)
        else:
            builder.repeat(node)
    return builder.build(graph.outputs)


def _difference(graph: Graph, makers: Mapping[str, Node], node: Node) -> Node | None:
    """What makes the activations of a product with constants, if it is codes less one number of the run."""
    if node.op not in _PRODUCTS or node.inputs[1] not in graph.constants:
        return None
    maker = makers.get(node.inputs[0])
    if maker is None or maker.op != "sub":
        return None
    codes, zero, made, weights = graph.edges_of((*maker.inputs, *maker.outputs, node.inputs[1]))
    if not isinstance(weights.type, Integers) or not (_is_counted(codes) and _is_counted(zero)):
        return None
    is_one = codes.shape == made.shape and np.prod(zero.shape) == 1
    return maker if is_one and zero.name not in graph.constants else None


def _is_counted(edge: Edge) -> bool:
    """Whether an edge carries integers from 0 on."""
    return isinstance(edge.type, Integers) and edge.type.is_plain and edge.type.least == 0


def _add(builder: GraphBuilder, node: Node, codes: str, zero: str) -> None:
    """Add the product of `codes`, and what is taken off for `zero`: of counts neither is larger than what it was."""
    name = builder.fresh(f"{node.outputs[0]}.codes")
    sums = builder.add(node.op, codes, node.inputs[1], name=name, **node.attributes)
    term = builder.add("mul", builder.add("reshape", zero, sizes=()), _sums_of_weights(builder, node, codes))
    builder.add("sub", sums, term, name=node.outputs[0], source=node.source)


def _sums_of_weights(builder: GraphBuilder, node: Node, codes: str) -> str:
    """What a product makes of ones; a number a channel if that is the same for all pixels."""
    shape = builder.edges[codes].shape
    ones = np.ones((1, *shape[1:]) if node.op == "conv" else (1, shape[-1]), np.int32)
    name = builder.add(node.op, builder.constant(ones), node.inputs[1], **node.attributes)
    value = builder.constants[name]
    first = value[tuple(slice(1) if k > 1 else slice(None) for k in range(value.ndim))]
    return builder.constant(first.astype(np.int32)) if node.op == "conv" and (value == first).all() else name
