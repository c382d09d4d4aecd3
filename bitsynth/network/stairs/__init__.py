"""Staircases: elementwise chains to the codes of a quantizer as thresholds, proved with the reference as the oracle."""

from bitsynth.network.stairs.alike import alike
from bitsynth.network.stairs.chain import Chain, chain_from, chain_of, links_from, parted
from bitsynth.network.stairs.fixed_points import fixed_point_of
from bitsynth.network.stairs.forms import EpilogueForm, cheapest
from bitsynth.network.stairs.gates import gated_line, gated_rescale
from bitsynth.network.stairs.joining import joined_chain
from bitsynth.network.stairs.oracle import Oracle
from bitsynth.network.stairs.pairs import Paired, paired_form
from bitsynth.network.stairs.staircase import Staircase, staircase, staircase_of

__all__ = [
    "Chain",
    "EpilogueForm",
    "Oracle",
    "Paired",
    "Staircase",
    "alike",
    "chain_from",
    "chain_of",
    "cheapest",
    "fixed_point_of",
    "gated_line",
    "gated_rescale",
    "joined_chain",
    "links_from",
    "paired_form",
    "parted",
    "staircase",
    "staircase_of",
]
