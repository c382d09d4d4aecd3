"""Step functions as epilogues of a layer: few thresholds first, then a float32 formula, then many thresholds.

Given:  breakpoints of codes 0 .. 2     Result:  two thresholds, which are as fast as a float32 formula
Given:  breakpoints of codes 0 .. 15    Result:  a float32 formula if one gives all codes, else 15 thresholds
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bitsynth.graph.types import Integers, Tensor
from bitsynth.layers.epilogues import FixedPoint, MultiplyShift, Rescale, Thresholds
from bitsynth.network.formulas.rescaling import find_rescaling, find_wanted_codes
from bitsynth.network.formulas.step_functions import StepFunction
from bitsynth.network.formulas.thresholds import make_thresholds
from bitsynth.spec.matmul import MatmulOperand

MAX_CHEAP_THRESHOLDS = 3
"""Up to this number, thresholds are as fast as a float32 formula. 7 thresholds are, too, if all channels are rising;
with falling channels they take twice the time."""
_MAX_SHORT_THRESHOLDS = 15
"""Up to this number, thresholds are as fast as an affine formula in float64 after the layer."""


@dataclass(frozen=True, eq=False)
class EpilogueForm:
    """An epilogue, and the integers `bias`, one for all or one a channel, to add to accumulators before it."""

    epilogue: Thresholds | Rescale | FixedPoint | MultiplyShift
    bias: Tensor = field(default_factory=lambda: np.zeros(1, np.int64))


def find_cheapest_form(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> EpilogueForm | None:
    """Return the form that gives the codes of a step function whose integers have the type `kind`; None if unproved."""
    counted = make_thresholds(step_function, operand)
    if counted is not None and counted.codes[1] <= MAX_CHEAP_THRESHOLDS:
        return EpilogueForm(counted)
    rescaling = find_rescaling(wanted := find_wanted_codes(step_function, operand, kind))
    if rescaling is None:
        return EpilogueForm(counted) if counted is not None else None
    return EpilogueForm(rescaling.epilogue(wanted), rescaling.shift)


def is_long(form: EpilogueForm) -> bool:
    """Return whether the form has so many thresholds that an affine formula in float64 may be faster."""
    return isinstance(form.epilogue, Thresholds) and form.epilogue.codes[1] > _MAX_SHORT_THRESHOLDS
