"""Products that a network computes in floats: their cost, the reason, and the change to the file that avoids it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.infer import infer_edges
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import PRODUCTS, TABLE, Site
from bitsynth.graph.ranges import find_real_factor
from bitsynth.graph.types import Edge, Integers, Reals

INPUT_OPTION = "--input-bits N"
"""The command-line option for inputs that hold codes; in Python the argument `codes` of `read`."""
_CODES = Integers.between(0, 1, np.float32(1 / 255))
"""Codes to try for an input: of one bit, so that no accumulator leaves int32, on the scale of images."""


@dataclass(frozen=True)
class FloatProduct:
    """A convolution or matrix product of real numbers.

    Args:
        node: The name of the node.
        source: The node of the file: operator and name.
        macs: The number of multiply-accumulates.
        why: The factor that carries no integers, and the reason.
        change: The change to the file that makes it a product of integers.
        input: The input of the network that, read as codes, makes it a product of integers; empty if none does.
    """

    node: str
    source: str
    macs: int
    why: str
    change: str
    input: str = ""


def multiply_accumulates(graph: Graph, node: Node) -> int:
    """Return how many multiply-accumulates a node is: 0 unless it is a product."""
    if node.op not in PRODUCTS:
        return 0
    a, b = graph.edges_of(node.inputs)
    terms = math.prod(b.shape[1:]) if node.op == "conv" else a.shape[-1]
    return math.prod(graph.edges[node.outputs[0]].shape) * terms


def is_float_product(graph: Graph, node: Node) -> bool:
    """Return whether a node is a product of real numbers."""
    return node.op in PRODUCTS and not isinstance(graph.edges[node.outputs[0]].type, Integers)


def find_float_products(graph: Graph) -> tuple[FloatProduct, ...]:
    """Find the products of a graph that are computed in floats, in order."""
    nodes = [node for node in graph.nodes if is_float_product(graph, node)]
    if not nodes:
        return ()
    makers = graph.makers
    with_codes = {*_find_products_of_codes(graph)}
    return tuple(_describe(graph, node, makers, of_codes=node.name in with_codes) for node in nodes)


def _describe(graph: Graph, node: Node, makers: Mapping[str, Node], *, of_codes: bool) -> FloatProduct:
    """Return a float product with the reason, and the change to the file that avoids it."""
    constants = tuple(graph.constants.get(name) for name in node.inputs)
    factor, why = find_real_factor(Site(node, graph.edges_of(node.inputs), constants, graph.reference))
    source = ""
    if factor is None:
        change = "use one scale for all, or one for each output channel"
    elif isinstance(factor.type, Integers):
        change = f"round the zero points of {_find_origin(graph, factor.name, makers)}"
    elif factor.name in graph.constants:
        change = f"quantize the weights of {node}"
    else:
        change = f"put a quantizer between {_find_origin(graph, factor.name, makers)} and {node}"
        source = next(_find_real_inputs(graph, factor.name, makers), "") if of_codes else ""
    if source:
        change += f", or, if input {source} holds codes, say so with {INPUT_OPTION}"
    return FloatProduct(node.name, str(node), multiply_accumulates(graph, node), why, change, source)


def _find_origin(graph: Graph, edge: str, makers: Mapping[str, Node]) -> str:
    """Return the source of an edge's numbers: an input, or the last node before that does more than move elements."""
    while (maker := makers.get(edge)) is not None and TABLE[maker.op].kind == "move":
        edge = maker.inputs[0]
    return str(maker) if maker is not None else f"input {edge}"


def _find_real_inputs(graph: Graph, edge: str, makers: Mapping[str, Node]) -> Iterator[str]:
    """Find the network's inputs of real numbers that an edge of real numbers is computed from, the nearest first."""
    left, seen = [edge], {edge}
    while left:
        name = left.pop(0)
        if name in graph.inputs:
            yield name
        before = [n for n in (makers[name].inputs if name in makers else ()) if n not in seen]
        before = [n for n in before if isinstance(graph.edges[n].type, Reals) and n not in graph.constants]
        seen |= {*before}
        left += before


def _find_products_of_codes(graph: Graph) -> Iterator[str]:
    """Find products that would be of integers if inputs of real numbers held codes, by name."""
    readers = graph.readers
    edges = dict(graph.edges)
    for name in graph.inputs:
        if isinstance(edges[name].type, Reals) and any(node.op != "quantize" for node in readers[name]):
            edges[name] = Edge(name, edges[name].shape, edges[name].dtype, _CODES)
    for node in graph.nodes:
        inputs = [edges[name] for name in node.inputs]
        if all(edge is graph.edges[edge.name] for edge in inputs):
            continue
        try:
            outputs = infer_edges(node, inputs, [graph.constants.get(name) for name in node.inputs], graph.reference)
        except SpecError:
            continue
        edges.update(zip(node.outputs, outputs, strict=True))
        if node.op in PRODUCTS and isinstance(outputs[0].type, Integers):
            yield node.name
