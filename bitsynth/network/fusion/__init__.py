"""Fusion groups, a kind a file: which nodes one step computes together. `MATCHERS` has them, the widest first."""

from __future__ import annotations

from collections.abc import Callable

from bitsynth.graph.ir import Node
from bitsynth.network.def_use import DefUse
from bitsynth.network.fusion.affine import match_affine
from bitsynth.network.fusion.curves import match_curve
from bitsynth.network.fusion.glue import match_move, match_pool
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.fusion.inputs import match_input
from bitsynth.network.fusion.lookup import match_cone, match_lookup
from bitsynth.network.fusion.pair_tables import match_join, match_near_join
from bitsynth.network.fusion.products import (
    match_product,
    match_product_to_codes,
    match_product_with_gate,
    match_product_with_residual,
)
from bitsynth.network.fusion.real_convolutions import match_real_convolution
from bitsynth.network.fusion.real_levels import match_reals

Matcher = Callable[[DefUse, Node], FusionGroup | None]
"""The group that begins with a node, if there is one of its kind; its nodes are later in the graph, but for that."""

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
    match_cone,
    match_join,
    match_near_join,
    match_lookup,
)
