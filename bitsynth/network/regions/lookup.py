"""Elementwise nodes one after another between codes, by a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.graph.ir import Node
from bitsynth.layers.glue import Lookup
from bitsynth.network.regions.codes import codes_of, operand_of, quantization_of
from bitsynth.network.regions.functions import chains, code_values, function, layouts_of
from bitsynth.network.regions.glue import GlueRegion
from bitsynth.network.regions.region import Region, Wiring
from bitsynth.network.stairs.chain import Chain


def match_lookup(wiring: Wiring, node: Node) -> Region | None:
    """The longest chain from codes to codes that begins with a node."""
    edges = wiring.graph.edges
    source = wiring.only_source(node)
    if source is None or operand_of(edges[source]) is None:
        return None
    return next((_looked_up(wiring, c) for c in chains(wiring, source, node) if operand_of(edges[c.end])), None)


def _looked_up(wiring: Wiring, chain: Chain) -> Region:
    """The region of a chain."""
    graph = wiring.graph
    source, made = graph.edges[chain.start], graph.edges[chain.end]
    table = codes_of(function(graph, chain, code_values(graph, chain.start)), made)
    last, same = quantization_of(made), np.array_equal(table, np.arange(table.shape[1])[None])
    options: dict[str, Any] = {"out_bits": last.bits, "out_encoding": last.encoding, "isa": wiring.target.isa}

    def make(layout: str, out_layout: str) -> Lookup:
        read = quantization_of(source)
        return Lookup(source.shape[1], table, read, layout=layout, out_layout=out_layout, **options)

    changes = not (same and operand_of(source) == operand_of(made))
    layouts = layouts_of(graph, chain.start, chain.end)
    return GlueRegion(wiring, chain.nodes, (chain.start,), make, layouts, changes=changes)
