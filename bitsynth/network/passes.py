"""The graph passes that run before a graph is lowered, in order.

Their files are in `graph/passes/`. `sinking.py` is here, because it needs the analysis of this folder to prove that a
chain of nodes is monotone.
"""

from __future__ import annotations

from functools import partial

from bitsynth.graph.passes import GraphPass
from bitsynth.graph.passes.sequences import flatten_sequences
from bitsynth.graph.passes.slices import lift_slices
from bitsynth.graph.passes.unread_channels import drop_unread_channels
from bitsynth.graph.passes.wide_activations import split_wide_activations
from bitsynth.graph.passes.zero_points import distribute_zero_points
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.sinking import sink_moves


def lowering_passes(target: NetworkTarget) -> tuple[GraphPass, ...]:
    """Return the passes of the lowering for a target, in order.

    Channels are dropped last, because the passes before bring products next to the quantizers whose channels they read.
    """
    return (
        GraphPass("distribute-zero-points", distribute_zero_points),
        GraphPass("flatten-sequences", flatten_sequences),
        GraphPass("lift-slices", lift_slices),
        GraphPass("sink-moves", partial(sink_moves, target=target)),
        GraphPass("split-wide-activations", split_wide_activations),
        GraphPass("drop-unread-channels", drop_unread_channels),
    )
