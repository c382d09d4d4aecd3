"""Formulas that give the codes of an elementwise chain, found by search and proved with the reference interpreter."""

from bitsynth.network.formulas.affine import find_gated_affine, find_gated_rescale
from bitsynth.network.formulas.chain import Chain, find_chain, find_joined_chain, find_links, make_chain, split_at_codes
from bitsynth.network.formulas.epilogues import EpilogueForm, find_cheapest_form
from bitsynth.network.formulas.fixed_points import find_fixed_point
from bitsynth.network.formulas.oracle import Oracle, prove_equal
from bitsynth.network.formulas.pairs import Paired, find_paired_form
from bitsynth.network.formulas.step_functions import StepFunction, find_step_function, step_function_of

__all__ = [
    "Chain",
    "EpilogueForm",
    "Oracle",
    "Paired",
    "StepFunction",
    "find_chain",
    "find_cheapest_form",
    "find_fixed_point",
    "find_gated_affine",
    "find_gated_rescale",
    "find_joined_chain",
    "find_links",
    "find_paired_form",
    "find_step_function",
    "make_chain",
    "prove_equal",
    "split_at_codes",
    "step_function_of",
]
