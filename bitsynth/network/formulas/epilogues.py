"""Step functions as epilogues of a layer: few thresholds first, then a float32 formula, then many thresholds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bitsynth.graph.types import Integers, Tensor
from bitsynth.layers.epilogues import FixedPoint, Rescale, Thresholds
from bitsynth.network.formulas.rescaling import find_rescaling, wanted_codes
from bitsynth.network.formulas.step_functions import StepFunction
from bitsynth.network.formulas.thresholds import make_thresholds
from bitsynth.spec.matmul import MatmulOperand

MAX_CHEAP_THRESHOLDS = 3
"""The number of thresholds up to which they are as fast as a float32 rescale. 7 are, too, if all channels rise; if not
they take twice the time."""
_MAX_SHORT_THRESHOLDS = 15
"""The number of thresholds up to which they are as fast as an affine step in float64 after the layer."""


@dataclass(frozen=True, eq=False)
class EpilogueForm:
    """An epilogue, and the integers `bias`, one for all or one a channel, to add to accumulators before it."""

    epilogue: Thresholds | Rescale | FixedPoint
    bias: Tensor = field(default_factory=lambda: np.zeros(1, np.int64))


def find_cheapest_form(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> EpilogueForm | None:
    """Return the form that gives the codes of a step function whose integers have the type `kind`; None if unproved."""
    counted = make_thresholds(step_function, operand)
    if counted is not None and counted.codes[1] <= MAX_CHEAP_THRESHOLDS:
        return EpilogueForm(counted)
    rescaling = find_rescaling(wanted := wanted_codes(step_function, operand, kind))
    if rescaling is None:
        return EpilogueForm(counted) if counted is not None else None
    return EpilogueForm(rescaling.epilogue(wanted), rescaling.shift)


def is_long(form: EpilogueForm) -> bool:
    """Return whether the form has more thresholds than are as fast as an affine step in float64 after the layer."""
    return isinstance(form.epilogue, Thresholds) and form.epilogue.codes[1] > _MAX_SHORT_THRESHOLDS
