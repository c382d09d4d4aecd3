"""Edges of codes: their encoding, their formats, and the images that layers take them for.

Functions of codes: what elementwise nodes one after another make of each, by the reference."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Edge, Integers, Shape, Tensor
from bitsynth.layers.glue.quantization import Quantization
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas.chain import Chain, find_links, make_chain
from bitsynth.network.formulas.oracle import Oracle
from bitsynth.network.formulas.step_functions import ranges
from bitsynth.network.operands import activations
from bitsynth.network.program import CHANNELS_LAST, PACKED, Format
from bitsynth.spec.matmul import MatmulOperand

GLUE_LAYOUTS = (CHANNELS_LAST, PACKED)
"""Those of codes that glue reads and gives."""


def operand_of(edge: Edge) -> MatmulOperand | None:
    """The operand whose codes an edge of integers of at most 8 bits has; None for any other."""
    return next(activations(edge.type), None) if isinstance(edge.type, Integers) else None


def code_formats(edge: Edge, layouts: tuple[str, ...] = GLUE_LAYOUTS) -> tuple[Format, ...]:
    """The formats of an edge of codes in these layouts."""
    operand = operand_of(edge)
    return tuple(Format.codes(operand, layout) for layout in layouts) if operand else ()


def codes_of(integers: Tensor, edge: Edge) -> Tensor:
    """The codes of integers of an edge of codes; of those beyond its range, which never come, its ends."""
    operand = operand_of(edge)
    assert operand
    return operand.encode(integers.clip(edge.integers.least, edge.integers.most), edge.name)


def quantization_of(edge: Edge) -> Quantization:
    """The bits and encoding of an edge of codes, as glue has them; of scale 1."""
    operand = operand_of(edge)
    assert operand
    return Quantization(operand.bits, encoding=operand.encoding)


def image_of(shape: Shape) -> tuple[int, int, int]:
    """Batch, height and width; of (N, C, L) the height is 1, of more axes than four all but the last one's."""
    *high, wide = shape[2:] or (1,)
    return shape[0], math.prod(high), wide


def kept_layouts(one: Shape, other: Shape) -> tuple[str, ...]:
    """The layouts of codes in which a reshape from one shape to the other leaves all in its place."""
    if min(len(one), len(other)) < 2 or not (one[:2] == other[:2] or (_is_in_order(one) and _is_in_order(other))):
        return ()
    return GLUE_LAYOUTS if one[1] == other[1] else (CHANNELS_LAST,)


def _is_in_order(shape: Shape) -> bool:
    """Whether channels lie last as the axes' order has them."""
    return shape[1] == 1 or math.prod(shape[2:]) == 1


def find_chains(def_use: DefUse, start: str, first: Node | None = None, *, monotone: bool = False) -> Iterator[Chain]:
    """The chains that begin with an edge, and with one of its readers if that is said, the longest first.

    Their reshapes leave every code in its place in one layout at least.
    """
    links = find_links(def_use, start, 1, first, monotone=monotone, mixing=True)
    for count in range(len(links), 0, -1):
        chain = make_chain(def_use, start, links[:count])
        if chain.axes[-1] == 1 and layouts_of(def_use.graph, chain.start, chain.end):
            yield chain


def layouts_of(graph: Graph, start: str, end: str) -> tuple[str, ...]:
    """The layouts in which codes of both edges, whose order is the same, lie alike."""
    return kept_layouts(graph.edges[start].shape, graph.edges[end].shape)


def evaluate_codes(graph: Graph, chain: Chain, integers: Tensor) -> Tensor:
    """Return the integers (1 or channels, integers) that a chain gives for `integers`; anything outside its range."""
    low, high = ranges(graph, chain)
    found, places = np.unique(integers[:, None].clip(low, high), axis=0, return_inverse=True)
    return Oracle(graph, chain)(found)[places.reshape(-1)].T


def code_values(graph: Graph, edge: str) -> Tensor:
    """The integers of all codes of an edge."""
    operand = operand_of(graph.edges[edge])
    assert operand
    return operand.scale * np.arange(len(operand.codes)) + operand.offset
