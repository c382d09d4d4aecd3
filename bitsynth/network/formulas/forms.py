"""The cheapest epilogue that is the same as a step function: few thresholds, float32, many thresholds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bitsynth.graph.types import Integers, Tensor
from bitsynth.layers.epilogues import FixedPoint, Rescale, Thresholds
from bitsynth.network.formulas.rescaling import Wanted, find_rescaling
from bitsynth.network.formulas.step_functions import StepFunction
from bitsynth.network.formulas.thresholds import make_thresholds
from bitsynth.spec.matmul import MatmulOperand

MAX_CHEAP_THRESHOLDS = 3
"""Thresholds that cost no more than float32 does; 7 cost as much where all channels rise, and twice where some fall."""
_MAX_SHORT_THRESHOLDS = 15
"""Thresholds that take no longer than a line of float64 behind the sums."""


@dataclass(frozen=True, eq=False)
class EpilogueForm:
    """An epilogue of sums to which integers `bias`, one for all or one a channel, are added first."""

    epilogue: Thresholds | Rescale | FixedPoint
    bias: Tensor = field(default_factory=lambda: np.zeros(1, np.int64))


def find_cheapest_form(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> EpilogueForm | None:
    """Return the form that gives the codes of a step function whose integers have the type `kind`; None if unproved."""
    counted = make_thresholds(step_function, operand)
    if counted is not None and counted.codes[1] <= MAX_CHEAP_THRESHOLDS:
        return EpilogueForm(counted)
    found = find_rescaling(wanted := wanted_codes(step_function, operand, kind))
    if found is None:
        return EpilogueForm(counted) if counted is not None else None
    return EpilogueForm(found.epilogue(wanted), found.shift)


def is_long(form: EpilogueForm) -> bool:
    """Whether the form counts many thresholds, which takes longer than a line of float64 behind the sums."""
    return isinstance(form.epilogue, Thresholds) and form.epilogue.codes[1] > _MAX_SHORT_THRESHOLDS


def wanted_codes(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> Wanted:
    """The codes of a step function at the points that decide (Lemma 3: a rounded line is monotone, too), found once."""
    memo = step_function.memo.wanted
    if (operand, kind) not in memo:
        memo[operand, kind] = _compute_wanted(step_function, operand, kind)
    return memo[operand, kind]


def _compute_wanted(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> Wanted:
    points = step_function.points()
    codes = (step_function.at(points) - operand.offset) // operand.scale
    limits, written = (int(codes.min()), int(codes.max())), _written_factor(step_function)
    zero = step_function.chain.nodes[-1].attributes.get("zero", kind.zero)
    return Wanted(points, codes, operand, limits, zero_code(np.asarray(zero), operand), written=written)


def _written_factor(step_function: StepFunction) -> Tensor | None:
    """The factor of float32 that a chain of one requantization multiplies sums by (channels,)."""
    node = step_function.chain.nodes[-1]
    if node.op != "requantize" or len(step_function.chain.nodes) > 1:
        return None
    first, second, over = node.attributes["factors"]
    with np.errstate(all="ignore"):
        factor = np.asarray(first * second / over).astype(np.float32).reshape(-1)
    return factor if factor.size == len(step_function.low) else np.broadcast_to(factor[:1], step_function.low.shape)


def zero_code(zero: Tensor, operand: MatmulOperand) -> int:
    """The code of the integer that stands for 0; 0 if there is none, or channels differ."""
    code = (float(zero.reshape(-1)[0]) - operand.offset) / operand.scale
    inside = zero.size == 1 and code == round(code) and 0 <= code <= operand.codes[-1]
    return round(code) if inside else 0
