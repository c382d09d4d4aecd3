"""Formulas that give the codes of an elementwise chain, found by search and proved with the reference interpreter."""

from bitsynth.network.formulas.alike import alike
from bitsynth.network.formulas.chain import Chain, chain_from, chain_of, links_from, parted
from bitsynth.network.formulas.fixed_points import fixed_point_of
from bitsynth.network.formulas.forms import EpilogueForm, cheapest
from bitsynth.network.formulas.gates import find_gated_affine, find_gated_rescale
from bitsynth.network.formulas.joining import joined_chain
from bitsynth.network.formulas.oracle import Oracle
from bitsynth.network.formulas.pairs import Paired, paired_form
from bitsynth.network.formulas.step_functions import StepFunction, find_step_function, step_function_of

__all__ = [
    "Chain",
    "EpilogueForm",
    "Oracle",
    "Paired",
    "StepFunction",
    "alike",
    "chain_from",
    "chain_of",
    "cheapest",
    "find_gated_affine",
    "find_gated_rescale",
    "find_step_function",
    "fixed_point_of",
    "joined_chain",
    "links_from",
    "paired_form",
    "parted",
    "step_function_of",
]
