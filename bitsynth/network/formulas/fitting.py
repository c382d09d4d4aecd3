"""Straight lines through a step function: factors and summands whose rounded values are given codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bitsynth.graph.types import Tensor

_MAX_TANGENT_STEPS = 60
"""The most steps to a factor; few are taken."""
_ROOM_FRACTIONS = (0.0, 0.3, -0.3, 0.6, -0.6, 0.15, -0.15, 0.45, -0.45, 0.8, -0.8)
"""Where in the room that is left factors and summands are tried: parts of the way from its middle to its ends."""

_SAME_ROOM = 1e-12
"""Of a code: rooms so alike are the same."""
_EXTRA_FACTORS, _MAX_FACTORS = 4, 128
"""Factors of float32 that are tried past the ends of their room, as products are rounded; and on each side."""


@dataclass(frozen=True, eq=False)
class AffineFit:
    """For elements (points, channels) the codes that factor * element + summand is to be rounded to.

    The least and the greatest code there are, `ends`, are what is beyond them too.
    """

    elements: Tensor
    codes: Tensor
    ends: tuple[int, int]

    @cached_property
    def limits(self) -> tuple[Tensor, Tensor]:
        """Between which numbers each element's value must lie."""
        low, high = self.ends
        return np.where(self.codes > low, self.codes - 0.5, -np.inf), np.where(
            self.codes < high, self.codes + 0.5, np.inf
        )

    @cached_property
    def _rows(self) -> tuple[Tensor, ...]:
        """Elements and limits (channels, points): numpy finds extremes faster along the last axis."""
        return tuple(np.ascontiguousarray(x.T) for x in (self.elements, *self.limits))

    def band(self, factor: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the greatest summand (channels,) for a factor; there is none where they have changed places."""
        products, (low, high) = self.elements * factor, self.limits
        return (low - products).max(0), (high - products).min(0)

    def room(self, factor: Tensor) -> Tensor:
        """How far summands may differ; less than 0 if there is none."""
        return self._tangent(factor)[0]

    def _tangent(self, factor: Tensor) -> tuple[Tensor, Tensor]:
        """The room at a factor, 1 at the most, and how it changes beside: it is concave, and made of straight lines."""
        elements, low, high = self._rows
        products = elements * factor[:, None]
        least, most = low - products, high - products
        one, other, row = least.argmax(1), most.argmin(1), np.arange(len(elements))
        room = most[row, other] - least[row, one]
        slope = elements[row, one] - elements[row, other]
        return np.minimum(room, 1.0), np.where(room < 1, slope, 0.0)

    def factors(self) -> Iterator[Tensor]:
        """Factors (channels,) that leave room for summands, that with the most first."""
        best, (low, high) = self.best, self._ends
        for part in _ROOM_FRACTIONS:
            yield best + part * np.where(part > 0, high - best, best - low)

    def summands(self, factor: Tensor) -> Iterator[Tensor]:
        """Summands (channels,) for a factor, from the middle of the room."""
        yield from _spread_within(*self.band(factor))

    def factors_alone(self) -> Iterator[Tensor]:
        """Factors of float32 (channels,) that need no summand, from the middle of their room to a little beyond."""
        (low, high), x = self.limits, np.where(self.elements == 0, 1, self.elements)
        one, other = np.where(self.elements == 0, -np.inf, low / x), np.where(self.elements == 0, np.inf, high / x)
        first, last = _ends(np.minimum(one, other).max(0), np.maximum(one, other).min(0))
        middle = ((first + last) / 2).astype(np.float32)
        unit = np.spacing(np.abs(middle)).astype(np.float64)
        steps = np.ceil(np.maximum(last - first, 0) / 2 / unit) + _EXTRA_FACTORS
        for k in range(2 * int(min(steps.max(), _MAX_FACTORS)) + 1):
            part = (k + 1) // 2 * (1 if k % 2 else -1)
            yield (middle + np.clip(part, -steps, steps) * unit).astype(np.float32)

    @cached_property
    def best(self) -> Tensor:
        """The factor that leaves the most room: where tangents from both sides meet, which come nearer to it."""
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
        """The least and the greatest factor that leave room, about."""
        return tuple(self._last(self.best, side) for side in (-1, 1))

    def _slope(self) -> Tensor:
        """About the factor: codes over what lies between the last element of the least and the first of the most."""
        off = (self.codes - self.codes.mean(0)) * (self.elements - self.elements.mean(0))
        way = np.where(off.sum(0) < 0, -1.0, 1.0)
        least, most, along = self.codes.min(0), self.codes.max(0), self.elements * way
        first = np.where(self.codes == most, along, np.inf).min(0)
        last = np.where(self.codes == least, along, -np.inf).max(0)
        return np.where(first > last, way * (most - least) / np.where(first > last, first - last, 1), 0.0)

    def _last(self, best: Tensor, side: int) -> Tensor:
        """The farthest factor on one side of the best that leaves room, about: tangents outside come nearer to it."""
        found = best + side * np.abs(best) / 2
        for _ in range(_MAX_TANGENT_STEPS):
            room, slope = self._tangent(found)
            wanting = (room < -_SAME_ROOM) & (side * slope < 0)
            if not wanting.any():
                break
            nearer = found - room / np.where(wanting, slope, 1)
            found = np.where(wanting, nearer, found)
            found = np.where(side * (found - best) > 0, found, best)
        return np.asarray(found)


def _spread_within(low: Tensor, high: Tensor) -> Iterator[Tensor]:
    """Numbers from `low` to `high`, from the middle; 1 wide where an end is open."""
    first, last = _ends(low, high)
    for part in _ROOM_FRACTIONS:
        yield (first + last) / 2 + part * (last - first) / 2


def _ends(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Both ends of a room; 1 apart where one is open."""
    below, above = np.isfinite(low), np.isfinite(high)
    first = np.where(below, low, np.where(above, high - 1, 0.0))
    return first, np.where(above, high, first + below)
