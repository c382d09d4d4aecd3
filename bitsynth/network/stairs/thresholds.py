"""Staircases as thresholds of a layer."""

from __future__ import annotations

import numpy as np

from bitsynth.graph.types import INT32, Tensor
from bitsynth.layers.epilogue import Thresholds
from bitsynth.network.stairs.staircase import Staircase
from bitsynth.spec.matmul import MatmulOperand

MOST_LEVELS = 255


def thresholds_of(stairs: Staircase, operand: MatmulOperand) -> Thresholds | None:
    """The thresholds of int32 sums whose number is the code of `operand`; None if they do not fit a layer."""
    first, per_level = (stairs.least - operand.offset) // operand.scale, stairs.step // operand.scale
    inside = stairs.low.min() > INT32[0] and stairs.high.max() < INT32[1]
    if not inside or not 1 <= first + stairs.levels * per_level <= MOST_LEVELS:
        return None
    always = np.where(stairs.rising, stairs.low, stairs.high + 1)[:, None]
    turns = np.concatenate([np.repeat(always, first, 1), np.repeat(stairs.thresholds, per_level, 1)], axis=1)
    return Thresholds(ascending(turns - stairs.rising[:, None]), stairs.rising)


def ascending(values: Tensor) -> Tensor:
    """Each channel's numbers in order."""
    return np.sort(values, axis=1).astype(np.int32)
