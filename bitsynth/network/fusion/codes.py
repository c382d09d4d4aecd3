"""Edges of codes: encodings, formats and images, and the functions that chains compute of codes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Edge, Integers, Shape, Tensor
from bitsynth.layers.glue.quantization import Quantization
from bitsynth.network.def_use import DefUse
from bitsynth.network.encodings import activations
from bitsynth.network.formulas.chain import Chain, find_links, make_chain
from bitsynth.network.formulas.oracle import Oracle
from bitsynth.network.formulas.step_functions import ranges
from bitsynth.network.program import Format
from bitsynth.spec.elementwise import MAX_UNROLLED_LEVELS
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MatmulOperand

GLUE_LAYOUTS = (Layout.NHWC, Layout.PACKED)
"""Layouts of codes that glue reads and writes."""


def operand_of(edge: Edge) -> MatmulOperand | None:
    """Return the operand of the codes of an edge of integers of at most 8 bits; None for any other edge."""
    return next(activations(edge.type), None) if isinstance(edge.type, Integers) else None


def code_formats(edge: Edge, layouts: tuple[Layout, ...] = GLUE_LAYOUTS) -> tuple[Format, ...]:
    """Return the formats of an edge of codes in these layouts."""
    operand = operand_of(edge)
    return tuple(Format.codes(operand, layout) for layout in layouts) if operand else ()


def codes_of(integers: Tensor, edge: Edge) -> Tensor:
    """Return the codes of integers of an edge, clipped to its range: integers beyond it do not occur."""
    operand = operand_of(edge)
    assert operand
    return operand.encode(integers.clip(edge.integers.least, edge.integers.most), edge.name)


def count_text(reached: str, levels: int) -> str:
    """Return the number, of 32 bits, of the k below `levels` for which a condition holds, in the lane language."""
    # Plain C would have a loop for a longer sum from 0 on.
    ends = sorted({0, min(levels, MAX_UNROLLED_LEVELS), levels})
    return " + ".join(f"sum(zext(bit({reached}), 32) for k in range({a}, {b}))" for a, b in pairwise(ends))


def quantization_of(edge: Edge) -> Quantization:
    """Return the bits and encoding of an edge of codes, with a scale of 1, as glue takes them."""
    operand = operand_of(edge)
    assert operand
    return Quantization(operand.bits, encoding=operand.encoding)


def image_of(shape: Shape) -> tuple[int, int, int]:
    """Return batch, height and width of (N, C, ...): all axes but the last are the height, 1 if there are none."""
    *high, wide = shape[2:] or (1,)
    return shape[0], math.prod(high), wide


def find_kept_layouts(one: Shape, other: Shape) -> tuple[Layout, ...]:
    """Return the layouts of codes in which a reshape from one shape to the other moves nothing."""
    if min(len(one), len(other)) < 2 or not (one[:2] == other[:2] or (_is_in_order(one) and _is_in_order(other))):
        return ()
    return GLUE_LAYOUTS if one[1] == other[1] else (Layout.NHWC,)


def _is_in_order(shape: Shape) -> bool:
    """Return whether the order of the axes is the order with channels last."""
    return shape[1] == 1 or math.prod(shape[2:]) == 1


def find_chains(def_use: DefUse, start: str, first: Node | None = None, *, monotone: bool = False) -> Iterator[Chain]:
    """Yield the chains that begin with an edge, or with the `first` of its readers, the longest first.

    Their reshapes leave every code in its place in at least one layout.
    """
    links = find_links(def_use, start, 1, first, monotone=monotone, mixing=True)
    for count in range(len(links), 0, -1):
        chain = make_chain(def_use, start, links[:count])
        if chain.axes[-1] == 1 and layouts_of(def_use.graph, chain.start, chain.end):
            yield chain


def layouts_of(graph: Graph, start: str, end: str) -> tuple[Layout, ...]:
    """Return the layouts in which codes of two edges, whose elements have one order, lie in the same places."""
    return find_kept_layouts(graph.edges[start].shape, graph.edges[end].shape)


def evaluate_codes(graph: Graph, chain: Chain, integers: Tensor) -> Tensor:
    """Return a chain's results (1 or channels, integers) for `integers`; arbitrary ones beyond its range."""
    low, high = ranges(graph, chain)
    distinct, places = np.unique(integers[:, None].clip(low, high), axis=0, return_inverse=True)
    return Oracle(graph, chain)(distinct)[places.reshape(-1)].T


def code_values(graph: Graph, edge: str) -> Tensor:
    """Return the integers that the codes of an edge stand for, in the order of the codes."""
    operand = operand_of(graph.edges[edge])
    assert operand
    return operand.scale * np.arange(len(operand.codes)) + operand.offset
