"""Formulas: cheap integer or float functions that equal an elementwise chain from accumulators to codes.

A chain such as batch_norm, relu and quantize after a product is a function of one accumulator, by channel. For an
accumulator s, 2-bit codes and quantize(relu(0.31 * s + 1.2)), these are equal:

    thresholds      (s >= -2) + (s >= 1) + (s >= 5)
    rescale         clip(rint(float32(0.31) * s + float32(1.2)), 0, 3)
    fixed point     (s * multiplier + summand) >> 23
    multiply shift  s * multiplier / 2**31, rounded, then / 2**right, rounded, as TensorFlow Lite has it

How one is found: `chain.py` takes the nodes; `oracle.py` evaluates them with the reference interpreter;
`step_functions.py` finds the breakpoints; `fitting.py` fits affine functions to them. Each family has a file with its
candidates, such as `rescaling.py`; `search.py` takes the first right one for each channel.
`epilogues.py` chooses what a layer computes; `residuals.py` does so for a chain with a residual; `affine.py` and
`curves.py` give steps of their own after a layer. Each formula is proved on the whole range of accumulators before it
is used.
"""

from bitsynth.network.formulas.affine import find_gated_affine, find_gated_rescale
from bitsynth.network.formulas.chain import Chain, find_chain, find_joined_chain, find_links, make_chain, split_at_codes
from bitsynth.network.formulas.epilogues import EpilogueForm, find_cheapest_form
from bitsynth.network.formulas.fixed_points import find_fixed_point, find_multiply_shift
from bitsynth.network.formulas.oracle import Oracle, prove_equal
from bitsynth.network.formulas.residuals import Paired, find_paired_form
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
    "find_multiply_shift",
    "find_paired_form",
    "find_step_function",
    "make_chain",
    "prove_equal",
    "split_at_codes",
    "step_function_of",
]
