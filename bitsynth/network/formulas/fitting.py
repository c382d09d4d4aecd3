"""Affine fits: factors and summands for which factor * element + summand rounds to given codes.

For example the codes 0, 0, 1, 1 of elements 0 .. 3 allow values below 0.5 at 1 and of at least 0.5 at 2. At the factor
0.4 the summand may lie between -0.3 and 0.1: the room is 0.4 wide. The room is a concave, piecewise linear function of
the factor, so that tangents find the factor with the most room in a few steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bitsynth.graph.types import Tensor

_MAX_TANGENT_STEPS = 60
"""The most steps of a search for a factor; few are taken."""
_ROOM_FRACTIONS = (0.0, 0.3, -0.3, 0.6, -0.6, 0.15, -0.15, 0.45, -0.45, 0.8, -0.8)
"""Factors and summands that are tried: fractions of the way from the middle of the room to its ends."""

_SAME_ROOM = 1e-12
"""Rooms whose difference is smaller, in codes, are equal."""
_EXTRA_FACTORS, _MAX_FACTORS = 4, 128
"""Float32 factors tried past the ends of their range, as products are rounded; factors tried on each side, at most."""


@dataclass(frozen=True, eq=False)
class AffineFit:
    """The codes to which factor * element + summand has to round, for elements (points, channels).

    Values beyond the least and the greatest code, `ends`, are clipped to them, and may lie anywhere there.
    """

    elements: Tensor
    codes: Tensor
    ends: tuple[int, int]

    @cached_property
    def limits(self) -> tuple[Tensor, Tensor]:
        """The least and the greatest value that rounds to each element's code."""
        low, high = self.ends
        return np.where(self.codes > low, self.codes - 0.5, -np.inf), np.where(
            self.codes < high, self.codes + 0.5, np.inf
        )

    @cached_property
    def _rows(self) -> tuple[Tensor, ...]:
        """Elements and limits (channels, points): numpy finds extremes faster along the last axis."""
        return tuple(np.ascontiguousarray(x.T) for x in (self.elements, *self.limits))

    def band(self, factor: Tensor) -> tuple[Tensor, Tensor]:
        """Return the least and the greatest summand (channels,) for a factor; none fits if the least is greater."""
        products, (low, high) = self.elements * factor, self.limits
        return (low - products).max(0), (high - products).min(0)

    def room(self, factor: Tensor) -> Tensor:
        """Return the width of the range of summands for a factor; negative if there is no summand."""
        return self._tangent(factor)[0]

    def _tangent(self, factor: Tensor) -> tuple[Tensor, Tensor]:
        """Return the room at a factor, at most 1, and its slope there. The room is concave and piecewise linear."""
        elements, low, high = self._rows
        products = elements * factor[:, None]
        least, most = low - products, high - products
        lower_at, upper_at, row = least.argmax(1), most.argmin(1), np.arange(len(elements))
        room = most[row, upper_at] - least[row, lower_at]
        slope = elements[row, lower_at] - elements[row, upper_at]
        return np.minimum(room, 1.0), np.where(room < 1, slope, 0.0)

    def factors(self) -> Iterator[Tensor]:
        """Yield factors (channels,) that leave room for summands, the one with the most room first."""
        best, (low, high) = self.best, self._ends
        for part in _ROOM_FRACTIONS:
            yield best + part * np.where(part > 0, high - best, best - low)

    def summands(self, factor: Tensor) -> Iterator[Tensor]:
        """Yield summands (channels,) for a factor, the middle of the room first."""
        yield from _spread_within(*self.band(factor))

    def factors_alone(self) -> Iterator[Tensor]:
        """Yield float32 factors (channels,) that need no summand, from the middle of their range to just beyond it."""
        (low, high), is_zero = self.limits, self.elements == 0
        divisors = np.where(is_zero, 1, self.elements)
        at_low, at_high = np.where(is_zero, -np.inf, low / divisors), np.where(is_zero, np.inf, high / divisors)
        first, last = _ends(np.minimum(at_low, at_high).max(0), np.maximum(at_low, at_high).min(0))
        middle = ((first + last) / 2).astype(np.float32)
        unit = np.spacing(np.abs(middle)).astype(np.float64)
        steps = np.ceil(np.maximum(last - first, 0) / 2 / unit) + _EXTRA_FACTORS
        for k in range(2 * int(min(steps.max(), _MAX_FACTORS)) + 1):
            part = (k + 1) // 2 * (1 if k % 2 else -1)
            yield (middle + np.clip(part, -steps, steps) * unit).astype(np.float32)

    @cached_property
    def best(self) -> Tensor:
        """The factor that leaves the most room: the tangents from both sides meet ever nearer to it."""
        end = self._slope() * 2
        low, high = np.minimum(end, 0), np.maximum(end, 0)
        (at_low, up), (at_high, down) = self._tangent(low), self._tangent(high)
        for _ in range(_MAX_TANGENT_STEPS):
            apart = (up > 0) & (down < 0)
            meet = (at_high - at_low + up * low - down * high) / np.where(apart, up - down, 1)
            middle = np.where(apart, meet, np.where(up > 0, high, low)).clip(low, high)
            room, slope = self._tangent(middle)
            done = ~apart | (room >= at_low + up * (middle - low) - _SAME_ROOM) | (slope == 0)
            low, high = np.where(done | (slope > 0), middle, low), np.where(done | (slope < 0), middle, high)
            at_low, up = np.where(done | (slope > 0), room, at_low), np.where(done | (slope > 0), slope, up)
            at_high, down = np.where(done | (slope < 0), room, at_high), np.where(done | (slope < 0), slope, down)
            if done.all():
                break
        return np.asarray((low + high) / 2)

    @cached_property
    def _ends(self) -> tuple[Tensor, ...]:
        """About the least and the greatest factor that leave room."""
        return tuple(self._last(self.best, side) for side in (-1, 1))

    def _slope(self) -> Tensor:
        """Return a first estimate of the factor: the range of codes over the range of elements between its ends."""
        covariance = ((self.codes - self.codes.mean(0)) * (self.elements - self.elements.mean(0))).sum(0)
        direction = np.where(covariance < 0, -1.0, 1.0)  # the factor's sign
        least, most, rising = self.codes.min(0), self.codes.max(0), self.elements * direction
        first = np.where(self.codes == most, rising, np.inf).min(0)
        last = np.where(self.codes == least, rising, -np.inf).max(0)
        return np.where(first > last, direction * (most - least) / np.where(first > last, first - last, 1), 0.0)

    def _last(self, best: Tensor, side: int) -> Tensor:
        """Return about the farthest factor on one side that leaves room, by Newton's method from outside."""
        factor = best + side * np.abs(best) / 2
        for _ in range(_MAX_TANGENT_STEPS):
            room, slope = self._tangent(factor)
            outside = (room < -_SAME_ROOM) & (side * slope < 0)
            if not outside.any():
                break
            nearer = factor - room / np.where(outside, slope, 1)
            factor = np.where(outside, nearer, factor)
            factor = np.where(side * (factor - best) > 0, factor, best)
        return np.asarray(factor)


def _spread_within(low: Tensor, high: Tensor) -> Iterator[Tensor]:
    """Yield numbers from `low` to `high`, the middle first; where an end is open, within 1 of the other."""
    first, last = _ends(low, high)
    for part in _ROOM_FRACTIONS:
        yield (first + last) / 2 + part * (last - first) / 2


def _ends(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return both ends of a range; where one is open, 1 apart."""
    below, above = np.isfinite(low), np.isfinite(high)
    first = np.where(below, low, np.where(above, high - 1, 0.0))
    return first, np.where(above, high, first + below)
