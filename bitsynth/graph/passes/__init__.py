"""Graph passes: each rewrites a graph to one of the same meaning.

A file holds one pass, or two that are read together; the docstring of a pass shows what it does: "Given: ... Result:
...". The passes of this list run when a file has been read; the passes of `network/passes.py` run before lowering.
"""

from __future__ import annotations

from bitsynth.graph.passes.divisions import sink_divisions, sink_row_scales
from bitsynth.graph.passes.driver import GraphPass, run_passes
from bitsynth.graph.passes.hard_swish import fuse_hard_swish
from bitsynth.graph.passes.padding import fuse_padding
from bitsynth.graph.passes.quantizers import drop_repeated_quantizers, fuse_quantizers
from bitsynth.graph.passes.ranks import rank_before_monotone
from bitsynth.graph.passes.shuffles import merge_shuffles

IMPORT_PASSES = (
    GraphPass("fuse-quantizers", fuse_quantizers),
    GraphPass("drop-repeated-quantizers", drop_repeated_quantizers),
    GraphPass("fuse-padding", fuse_padding),
    GraphPass("rank-before-monotone", rank_before_monotone),
    GraphPass("merge-shuffles", merge_shuffles),
    GraphPass("fuse-hard-swish", fuse_hard_swish),
    GraphPass("sink-divisions", sink_divisions),
    GraphPass("sink-row-scales", sink_row_scales),
)
"""The passes of the importer, in order. Quantizers are fused first, because later passes look for whole quantizers."""

__all__ = ["IMPORT_PASSES", "GraphPass", "run_passes"]
