"""Staircases: elementwise chains to the codes of a quantizer as thresholds, proved with the reference as the oracle."""

from bitsynth.network.formulas.alike import alike
from bitsynth.network.formulas.chain import Chain, chain_from, chain_of, links_from, parted
from bitsynth.network.formulas.fixed_points import fixed_point_of
from bitsynth.network.formulas.forms import EpilogueForm, cheapest
from bitsynth.network.formulas.gates import gated_line, gated_rescale
from bitsynth.network.formulas.joining import joined_chain
from bitsynth.network.formulas.oracle import Oracle
from bitsynth.network.formulas.pairs import Paired, paired_form
from bitsynth.network.formulas.step_functions import Staircase, staircase, staircase_of

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
