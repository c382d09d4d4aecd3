"""Fusion patterns: which nodes one step computes together.

A matcher takes a node and returns the group that begins with it, or None and records why (`network/declines.py`).
`MATCHERS` has their order, the widest patterns first: the first that matches takes the nodes.

| pattern | file |
|---|---|
| product, with the chain to codes after it, a gate or a residual: a layer | `layers.py`, `layer_maker.py` |
| chain from accumulators to codes: plain C by an affine formula, or by breakpoints | `affine.py`, `curves.py` |
| the caller's numbers, or other real numbers, to codes: plain C of thresholds | `inputs.py`, `real_levels.py` |
| convolutions of the caller's numbers, to codes: plain C in float32 | `real_convolutions.py`, `real_sums.py` |
| pools and moves of codes: glue | `glue.py` |
| functions of one or two edges of codes: glue, by a table | `lookup.py`, `pair_tables.py` |
"""

from __future__ import annotations

from collections.abc import Callable

from bitsynth.graph.ir import Node
from bitsynth.network.def_use import DefUse
from bitsynth.network.fusion.affine import match_affine
from bitsynth.network.fusion.curves import match_curve
from bitsynth.network.fusion.glue import match_move, match_pool
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.fusion.inputs import match_input
from bitsynth.network.fusion.layers import (
    match_product,
    match_product_to_codes,
    match_product_with_gate,
    match_product_with_residual,
)
from bitsynth.network.fusion.lookup import match_forks, match_lookup
from bitsynth.network.fusion.pair_tables import match_pair_chains, match_pair_node
from bitsynth.network.fusion.real_convolutions import match_real_convolution
from bitsynth.network.fusion.real_levels import match_reals

Matcher = Callable[[DefUse, Node], FusionGroup | None]
"""Return the group that begins with a node, its first in the graph's order; None if the pattern does not match."""

MATCHERS: tuple[Matcher, ...] = (
    match_product_to_codes,
    match_product_with_gate,
    match_product_with_residual,
    match_product,
    match_affine,
    match_curve,
    match_input,
    match_real_convolution,
    match_reals,
    match_pool,
    match_move,
    match_forks,
    match_pair_chains,
    match_pair_node,
    match_lookup,
)
