"""Fusion patterns: which nodes one step computes together.

A matcher takes a node and returns the group that begins with it, or None and records why (`network/declines.py`).
`PATTERNS` has the order in which they are tried. A pattern with `exclude` is tried only where none before it matched;
the others are compared by predicted cycles (`choice.py`, `cost.py`).

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

from bitsynth.network.fusion.affine import match_affine
from bitsynth.network.fusion.choice import (
    Chooser,
    Pattern,
    bound_curve,
    bound_many_levels,
    exclude,
    is_not_product,
    may_begin_layer,
)
from bitsynth.network.fusion.curves import match_curve
from bitsynth.network.fusion.glue import match_move, match_pool
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.fusion.inputs import match_input
from bitsynth.network.fusion.layers import (
    match_product,
    match_product_to_codes,
    match_product_to_many_levels,
    match_product_with_gate,
    match_product_with_residual,
)
from bitsynth.network.fusion.lookup import match_forks, match_lookup
from bitsynth.network.fusion.pair_tables import match_pair_chains, match_pair_nearest, match_pair_node
from bitsynth.network.fusion.real_convolutions import match_real_convolution
from bitsynth.network.fusion.real_levels import match_reals

PATTERNS: tuple[Pattern, ...] = (
    Pattern("a layer to codes", match_product_to_codes, applies=may_begin_layer),
    Pattern("a layer with a gate", match_product_with_gate, exclude, may_begin_layer),
    Pattern("a layer with a residual", match_product_with_residual, exclude, may_begin_layer),
    Pattern("a layer of accumulators", match_product, applies=may_begin_layer),
    Pattern("a layer with many thresholds", match_product_to_many_levels, bound_many_levels, may_begin_layer),
    Pattern("an affine formula", match_affine, applies=is_not_product),
    Pattern("a table of breakpoints", match_curve, bound_curve, is_not_product),
    Pattern("thresholds of the caller's numbers", match_input, exclude),
    Pattern("a convolution of the caller's numbers", match_real_convolution, exclude),
    Pattern("thresholds of real numbers", match_reals, exclude),
    Pattern("a pool", match_pool, exclude),
    Pattern("a move of codes", match_move, exclude),
    Pattern("a table of a function with forks", match_forks, exclude, is_not_product),
    Pattern("a table of pairs of codes, with the nodes before", match_pair_chains, applies=is_not_product),
    Pattern(
        "a table of pairs of codes, with the nodes after the nearest codes", match_pair_nearest, applies=is_not_product
    ),
    Pattern("a table of pairs of codes", match_pair_node, applies=is_not_product),
    Pattern("a table of codes", match_lookup, applies=is_not_product),
)

__all__ = ["PATTERNS", "Chooser", "FusionGroup", "Pattern"]
