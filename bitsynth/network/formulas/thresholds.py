"""Step functions as thresholds of a layer: the code is the number of thresholds that the accumulator has passed.

Example: accumulators -10 .. 10 with codes clip(rint(0.2 * s), 0, 2) have thresholds 3 and 8, the first accumulators of
codes 1 and 2.
"""

from __future__ import annotations

import numpy as np

from bitsynth.graph.types import INT32, Tensor
from bitsynth.layers.epilogues import Thresholds
from bitsynth.network.formulas.step_functions import StepFunction
from bitsynth.spec.matmul import MatmulOperand

MAX_LEVELS = 255


def make_thresholds(step_function: StepFunction, operand: MatmulOperand) -> Thresholds | None:
    """Return thresholds of accumulators: the code is the number of those exceeded. None if they do not fit a layer."""
    ends = level_ends(step_function, operand)
    inside = step_function.low.min() > INT32[0] and step_function.high.max() < INT32[1]
    if not inside or not 1 <= ends.shape[1] <= MAX_LEVELS:
        return None
    return Thresholds(sort_rows(ends), step_function.rising)


def level_ends(step_function: StepFunction, operand: MatmulOperand) -> Tensor:
    """Return, for each code, the number (channels, codes) that elements exceed; of falling channels, stay below."""
    first, per_level = (step_function.least - operand.offset) // operand.scale, step_function.step // operand.scale
    always = np.where(step_function.rising, step_function.low, step_function.high + 1)[:, None]
    breakpoints = np.concatenate(
        [np.repeat(always, first, 1), np.repeat(step_function.thresholds, per_level, 1)], axis=1
    )
    ends: Tensor = breakpoints - step_function.rising[:, None]
    return ends


def sort_rows(values: Tensor) -> Tensor:
    """Return each channel's numbers in ascending order, as int32."""
    return np.sort(values, axis=1).astype(np.int32)


def fit_thresholds(values: Tensor, codes: Tensor, levels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Fit thresholds (channels, levels) to codes of values (points, channels); return them, `rising` and `fits`.

    Where codes fall as values rise, the thresholds above a value are counted.
    """
    off = (codes - codes.mean(0)) * (values - values.mean(0))
    rising = off.sum(0) >= 0
    thresholds, fits = [], np.ones(rising.shape, bool)
    for level in range(1, levels + 1):
        reached = codes >= level
        up = np.where(reached, INT32[0], values).max(0), np.where(reached, values, INT32[1]).min(0)
        down = np.where(reached, INT32[1], values).min(0), np.where(reached, values, INT32[0]).max(0)
        thresholds.append(np.where(rising, up[0], down[0]))
        fits &= np.where(rising, up[0] < up[1], down[0] > down[1])
    return sort_rows(np.stack(thresholds, 1)), rising, fits
