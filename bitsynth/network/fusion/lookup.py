"""Elementwise nodes one after another between codes, by a table."""

from __future__ import annotations

from typing import Any

from bitsynth.graph.ir import Node
from bitsynth.graph.operators import PRODUCTS
from bitsynth.layers.glue import Lookup
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas.chain import Chain
from bitsynth.network.fusion.codes import codes_of, operand_of, quantization_of
from bitsynth.network.fusion.functions import code_values, evaluate_codes, find_chains, layouts_of
from bitsynth.network.fusion.glue import GlueGroup
from bitsynth.network.fusion.group import FusionGroup


def match_lookup(def_use: DefUse, node: Node) -> FusionGroup | None:
    """The longest chain from codes to codes that begins with a node."""
    edges = def_use.graph.edges
    source = def_use.only_source(node)
    if source is None or operand_of(edges[source]) is None:
        return None
    found = next(
        (make_lookup(def_use, c) for c in find_chains(def_use, source, node) if operand_of(edges[c.end])), None
    )
    return None if found and found.is_alias and _is_of_products(def_use, source) else found


def _is_of_products(def_use: DefUse, edge: str) -> bool:
    """Whether an edge has sums, which lie as integers and not as codes."""
    maker = def_use.makers.get(edge)
    return maker is not None and maker.op in PRODUCTS


def make_lookup(def_use: DefUse, chain: Chain) -> FusionGroup:
    """The group of a chain from codes to codes."""
    graph = def_use.graph
    source, made = graph.edges[chain.start], graph.edges[chain.end]
    values = code_values(graph, chain.start)
    table, last = codes_of(evaluate_codes(graph, chain, values), made), quantization_of(made)
    options: dict[str, Any] = {"out_bits": last.bits, "out_encoding": last.encoding, "isa": def_use.target.isa}

    def make(layout: str, out_layout: str) -> Lookup:
        read = quantization_of(source)
        return Lookup(source.shape[1], table, read, layout=layout, out_layout=out_layout, **options)

    changes = operand_of(source) != operand_of(made) or bool((table != codes_of(values, source)).any())
    layouts = layouts_of(graph, chain.start, chain.end)
    return GlueGroup(def_use, chain.nodes, (chain.start,), make, layouts, changes=changes)
