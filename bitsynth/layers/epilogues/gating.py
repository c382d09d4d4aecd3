"""Values times a gate: a line of each value, kept between 0 and 1. So hard swish is done."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

GateLine = tuple[float, float]
"""Factor and summand of the line."""


def gated(values: NDArray[Any], gate: GateLine | None) -> NDArray[Any]:
    """Each of `values` times its gate, every operation rounded in their type of floats; `values` without a gate."""
    return values if gate is None else values * _opened(values, gate)


def gated_bounds(low: NDArray[Any], high: NDArray[Any], gate: GateLine | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Values between which those of `gated` lie for all from `low` to `high`, of one shape and type of floats.

    Each operation of floats is monotone in each of its operands, so products of ends are beyond all others.
    """
    ends = [low, high]
    if gate is not None:
        gates = [_opened(x, gate) for x in ends]
        ends = [x * each for x in ends for each in gates]
    return np.minimum.reduce(ends), np.maximum.reduce(ends)


def _opened(values: NDArray[Any], gate: GateLine) -> NDArray[Any]:
    """What the gate multiplies values by."""
    factor, summand = np.asarray(gate, values.dtype)
    with np.errstate(over="ignore"):
        made: NDArray[Any] = (values * factor + summand).clip(0, 1)
    return made
