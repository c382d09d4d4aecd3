"""Proof that a formula equals a chain that is not monotone, for every accumulator, by intervals and by points.

On an interval of sums both lie between integers that interval arithmetic gives. Where these are one and the same that
is proved; where they are apart the formula is wrong; what is left is divided, and short intervals are gone through.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitsynth.graph.types import Tensor
from bitsynth.network.formulas.oracle import Oracle

IntegerBounds = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Integers (points, channels) between which those of all elements from the first to the second lie."""
_SPLIT_PARTS, _SHORT_INTERVAL = 8, 4
"""How many parts an interval is divided into; how many elements are gone through."""
_MAX_INTERVALS = 1 << 21
"""Intervals that are looked at, at once."""


def prove_equal(oracle: Oracle, formula: IntegerBounds, low: Tensor, high: Tensor) -> Tensor:
    """For each channel (channels,) whether the formula gives the oracle's integers from `low` to `high` (channels,).

    SpecError for a chain that has no bounds.
    """
    right = np.ones(low.shape, bool)
    first, last = low[None], high[None]
    while first.size and (last - first).max() >= _SHORT_INTERVAL:
        first, last = _divide(first, last)
        if first.size > _MAX_INTERVALS:
            return np.zeros(low.shape, bool)
        (least, most), (lowest, highest) = formula(first, last), oracle.bounds(first, last)
        same = (least == most) & (lowest == highest) & (least == lowest)
        right &= ~((most < lowest) | (highest < least)).any(0)
        first, last = _pack(first, last, ~same & right)
    if not first.size:
        return right
    points = np.minimum(first + np.arange(_SHORT_INTERVAL)[:, None, None], last).reshape(-1, low.size)
    found: Tensor = right & (oracle(points) == formula(points, points)[0]).all(0)
    return found


def _divide(first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """The parts of intervals."""
    width, part = last - first + 1, np.arange(_SPLIT_PARTS)[:, None, None]
    begin = first + width * part // _SPLIT_PARTS
    end = np.maximum(first + width * (part + 1) // _SPLIT_PARTS - 1, begin)
    return begin.reshape(-1, first.shape[1]), end.reshape(-1, first.shape[1])


def _pack(first: Tensor, last: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """The intervals that are left, and of channels with fewer than others the first element of one again."""
    rows = np.argsort(~left, axis=0, kind="stable")[: left.sum(0).max()]
    first, last, left = (np.take_along_axis(x, rows, 0) for x in (first, last, left))
    return first, np.where(left, last, first)
