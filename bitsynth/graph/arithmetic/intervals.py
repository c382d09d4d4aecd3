"""Arithmetic of real numbers: intervals of float64 that hold them, single points where float64 holds the number.

The bounds of sums, products, quotients and roots move only if there was a rounding error (`directed.py`), so that
numbers with a power of two as denominator usually stay single points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import erf
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic.base import Arithmetic, Quantity, limit_integers
from bitsynth.graph.arithmetic.directed import (
    add_bounds,
    divide_bounds,
    multiply_bounds,
    sqrt_bounds,
    step_down,
    step_up,
)
from bitsynth.graph.types import Edge, Integers, Shape, Tensor

_FUNCTION_ULPS = 8
"""Units in the last place by which functions of numpy and libm may be wrong; their documentation says 4 or fewer."""
_MAX_INTEGER = 2.0**53


@dataclass(frozen=True, eq=False)
class Interval:
    """Numbers between `low` and `high`, element by element."""

    low: Tensor
    high: Tensor

    __array_ufunc__ = None
    """Makes arrays leave `+ - * /` with intervals to the interval."""

    @property
    def shape(self) -> Shape:
        """The shape of both bounds."""
        return self.low.shape

    @cached_property
    def is_point(self) -> bool:
        """Whether every number is known exactly."""
        return self.low is self.high or bool((self.low == self.high).all())

    @property
    def _ends(self) -> tuple[Tensor, ...]:
        """The two bounds; one if they are the same."""
        return (self.low,) if self.is_point else (self.low, self.high)

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __add__(self, other: Any) -> Interval:
        other = interval(other)
        least = add_bounds(self.low, other.low)
        most = least if self.is_point and other.is_point else add_bounds(self.high, other.high)
        return Interval(least[0], most[1])

    def __sub__(self, other: Any) -> Interval:
        return self + -interval(other)

    def __mul__(self, other: Any) -> Interval:
        other = interval(other)
        return _hull([multiply_bounds(a, b) for a in self._ends for b in other._ends])

    def __truediv__(self, other: Any) -> Interval:
        other = interval(other)
        quotient = _hull([divide_bounds(a, b) for a in self._ends for b in other._ends])
        around = (other.low <= 0) & (other.high >= 0)
        if (self.is_point and other.is_point) or not around.any():
            return quotient
        return Interval(np.where(around, -np.inf, quotient.low), np.where(around, np.inf, quotient.high))

    def __radd__(self, other: Any) -> Interval:
        return interval(other) + self

    def __rsub__(self, other: Any) -> Interval:
        return interval(other) - self

    def __rmul__(self, other: Any) -> Interval:
        return interval(other) * self

    def __rtruediv__(self, other: Any) -> Interval:
        return interval(other) / self


def interval(value: Any) -> Interval:
    """Return an interval as it is, and anything else as an interval of single points."""
    if isinstance(value, Interval):
        return value
    point = np.asarray(value, np.float64)
    return Interval(point, point)


class Intervals(Arithmetic):
    """Real arithmetic by intervals; a step function that an interval does not determine asks for fractions."""

    reference = "exact"

    def number(self, value: Tensor | Interval, edge: Edge) -> Interval:
        kind = edge.type
        if not isinstance(kind, Integers):
            return interval(value)
        return interval(value - kind.zero) * interval(kind.scale)

    def constant(self, value: Any) -> Interval:
        return interval(value)

    def cast(self, number: Quantity, dtype: str) -> Quantity:
        return number

    def move(self, apply: Callable[..., Tensor], *numbers: Quantity) -> Interval:
        intervals = [interval(x) for x in numbers]
        low = apply(*(x.low for x in intervals))
        return Interval(low, low if all(x.is_point for x in intervals) else apply(*(x.high for x in intervals)))

    def steps(
        self, function: Callable[[Tensor], Tensor], number: Quantity, *, exactly: Callable[[Tensor], Tensor]
    ) -> Tensor:
        argument = interval(number)
        low = function(argument.low)
        if argument.is_point or (low == (high := function(argument.high))).all():
            return limit_integers(low)
        return limit_integers(np.where(low == high, low, function(exactly(low != high))))

    def matmul(self, a: Quantity, b: Quantity) -> Interval:
        a, b = interval(a), interval(b)
        middle_a, middle_b = (x.low if x.is_point else (x.low + x.high) / 2 for x in (a, b))
        product = np.matmul(middle_a, middle_b)
        exact = _find_grain(middle_a) * _find_grain(middle_b) * _MAX_INTEGER if a.is_point and b.is_point else 0.0
        if (np.abs(middle_a).max(initial=0) * np.abs(middle_b).sum(-2)).max(initial=0) < exact:
            return interval(product)
        size = np.matmul(np.abs(middle_a), np.abs(middle_b))
        if size.max(initial=0) < exact:
            return interval(product)
        spread_a, spread_b = step_up((a.high - a.low) / 2, 2), step_up((b.high - b.low) / 2, 2)
        error = (middle_a.shape[-1] + 4) * 2.0**-53 * size
        error = error + np.matmul(np.abs(middle_a) + spread_a, spread_b) + np.matmul(spread_a, np.abs(middle_b))
        error = error * (1 + 2.0**-20)
        return Interval(step_down(product - error), step_up(product + error))

    def maximum(self, a: Quantity, b: Quantity) -> Interval:
        a, b = interval(a), interval(b)
        return Interval(np.maximum(a.low, b.low), np.maximum(a.high, b.high))

    def minimum(self, a: Quantity, b: Quantity) -> Interval:
        return -self.maximum(-interval(a), -interval(b))

    def sum(self, a: Quantity, axes: tuple[int, ...]) -> Interval:
        a = interval(a)
        order = [*(k for k in range(a.low.ndim) if k not in axes), *axes]
        kept = [1 if k in axes else n for k, n in enumerate(a.shape)]

        def rows(x: Tensor) -> Tensor:
            return x.transpose(order).reshape(*(n for k, n in enumerate(a.shape) if k not in axes), -1)

        count = int(np.prod([a.shape[k] for k in axes]))
        sums = self.matmul(self.move(rows, a), interval(np.ones((count, 1))))
        return self.move(lambda x: x.reshape(kept), sums)

    def max(self, a: Quantity, axes: tuple[int, ...]) -> Interval:
        a = interval(a)
        return Interval(a.low.max(axes, keepdims=True), a.high.max(axes, keepdims=True))

    def call(self, name: str, a: Quantity) -> Interval:
        a = interval(a)
        if name == "sqrt":
            return Interval(sqrt_bounds(a.low)[0], sqrt_bounds(a.high)[1])
        low, high = (_APPROXIMATE[name](x) for x in (a.low, a.high))
        at, known = _RATIONAL_POINTS[name]
        return Interval(
            np.where(a.low == at, known, step_down(low, _FUNCTION_ULPS)),
            np.where(a.high == at, known, step_up(high, _FUNCTION_ULPS)),
        )


class WideIntervals(Intervals):
    """Real arithmetic of intervals that not rounding alone makes: step functions return intervals of integers."""

    def steps(self, function: Callable[[Tensor], Tensor], number: Quantity, *, exactly: Any = None) -> Any:
        argument = interval(number)
        return Interval(function(argument.low), function(argument.high))


_APPROXIMATE: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": np.exp,
    "log": np.log,
    "erf": np.vectorize(erf, otypes=[np.float64]),
    "tanh": np.tanh,
    "sigmoid": lambda a: np.where(a >= 0, 1.0, np.exp(-np.abs(a))) / (1 + np.exp(-np.abs(a))),
}
_RATIONAL_POINTS = {"exp": (0, 1.0), "log": (1, 0.0), "erf": (0, 0.0), "tanh": (0, 0.0), "sigmoid": (0, 0.5)}
"""The rational number at which a function is rational, and its value there."""


def _hull(bounds: list[tuple[Tensor, Tensor]]) -> Interval:
    if len(bounds) == 1:
        return Interval(*bounds[0])
    lows, highs = zip(*bounds, strict=True)
    return Interval(np.minimum.reduce(np.broadcast_arrays(*lows)), np.maximum.reduce(np.broadcast_arrays(*highs)))


def _find_grain(a: Tensor) -> float:
    """Return a power of two that divides all numbers; 0 if none of those tried does."""
    return next((2.0**-k for k in (0, 8, 16, 24, 32, 40) if _is_whole(np.ldexp(a, k) if k else a)), 0.0)


def _is_whole(a: Tensor) -> bool:
    return bool((a == np.rint(a)).all())
