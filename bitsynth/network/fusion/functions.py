"""Functions of codes: what elementwise nodes one after another make of each, by the reference."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Tensor
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas.chain import Chain, find_links, make_chain
from bitsynth.network.formulas.oracle import Oracle
from bitsynth.network.formulas.step_functions import ranges
from bitsynth.network.fusion.codes import kept_layouts, operand_of


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
