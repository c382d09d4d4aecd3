"""Arithmetics whose numbers are elements of numpy's arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitsynth.graph.arithmetic.base import Arithmetic, Quantity
from bitsynth.graph.types import Tensor

_MAX_ROUNDED = 2.0**62
"""Integers that rounding makes are of at most this size."""


class ArrayArithmetic(Arithmetic):
    """What such arithmetics share."""

    def move(self, apply: Callable[..., Tensor], *numbers: Quantity) -> Quantity:
        """What `apply` makes of the arrays."""
        return apply(*numbers)

    def steps(
        self, function: Callable[[Tensor], Tensor], number: Quantity, *, exactly: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """`function` of the numbers, which are exact themselves, as in C, whose integers have ends.

        NaN lies below all others where there are least ones, and is 0 elsewhere.
        """
        if number.dtype == object:
            return function(number).astype(np.int64)
        nan = np.isnan(number)
        made = function(np.where(nan, -np.inf, number))
        return np.where(nan & np.isinf(made), 0, made).clip(-_MAX_ROUNDED, _MAX_ROUNDED).astype(np.int64)

    def maximum(self, a: Quantity, b: Quantity) -> Quantity:
        """The greater of each two."""
        return np.maximum(a, b)

    def minimum(self, a: Quantity, b: Quantity) -> Quantity:
        """The lesser of each two."""
        return np.minimum(a, b)

    def max(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        """The greatest along axes, which stay as 1."""
        return a.max(axes, keepdims=True)
