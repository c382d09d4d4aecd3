"""The base of arithmetics whose numbers are elements of numpy's arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitsynth.graph.arithmetic.base import Arithmetic, Quantity
from bitsynth.graph.types import Tensor

_MAX_ROUNDED = 2.0**62
"""The largest result of a step function."""


class ArrayArithmetic(Arithmetic):
    """Base of the arithmetics whose numbers are elements of numpy's arrays."""

    def move(self, apply: Callable[..., Tensor], *numbers: Quantity) -> Quantity:
        """Return `apply` of the arrays."""
        return apply(*numbers)

    def steps(
        self, function: Callable[[Tensor], Tensor], number: Quantity, *, exactly: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Return `function` of the numbers, which are exact themselves, clipped as in C, whose integers have limits.

        NaN is treated as less than all numbers if the function has a least value, else its result is 0.
        """
        if number.dtype == object:
            return function(number).astype(np.int64)
        nan = np.isnan(number)
        integers = function(np.where(nan, -np.inf, number))
        return np.where(nan & np.isinf(integers), 0, integers).clip(-_MAX_ROUNDED, _MAX_ROUNDED).astype(np.int64)

    def maximum(self, a: Quantity, b: Quantity) -> Quantity:
        """Return the greater numbers of two arrays."""
        return np.maximum(a, b)

    def minimum(self, a: Quantity, b: Quantity) -> Quantity:
        """Return the lesser numbers of two arrays."""
        return np.minimum(a, b)

    def max(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        """Return the greatest numbers along axes, which stay as 1."""
        return a.max(axes, keepdims=True)
