"""Step functions of real numbers in float64."""

from __future__ import annotations

import numpy as np

from bitsynth.graph.ir import Graph
from bitsynth.graph.types import Tensor
from bitsynth.network.formulas.chain import Chain
from bitsynth.network.formulas.step_functions import StepFunction, double_of, find_step_function

_MAX_UNBOUNDED_INPUT = float(1 << 36)
"""Size of numbers from which integers of a chain without limits may be too great for int64."""


def find_real_step_function(graph: Graph, chain: Chain) -> StepFunction | None:
    """The step function of a chain of real numbers in float64; None if there is none.

    Of a chain whose integers grow without limit before they are cut, the least and the greatest level must be reached
    by numbers of a size that int64 holds after it.
    """
    if chain.is_limited:
        return find_step_function(graph, chain, doubles=True)
    made = find_step_function(graph, chain, doubles=True, beyond=_MAX_UNBOUNDED_INPUT)
    if made is None:
        return None
    inside = (made.thresholds > made.low[:, None]) & (made.thresholds <= made.high[:, None])
    return made if inside.all() else None


def double_thresholds(step_function: StepFunction) -> Tensor:
    """The float64 (channels, levels) from which levels are reached, or lost; infinite where always or never."""
    breakpoints, low, high = step_function.thresholds, step_function.low[:, None], step_function.high[:, None]
    made: Tensor = np.where(breakpoints <= low, -np.inf, np.where(breakpoints > high, np.inf, double_of(breakpoints)))
    return made
