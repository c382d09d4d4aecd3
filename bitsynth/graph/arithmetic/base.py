"""The interface of an arithmetic: the functions of its numbers other than `+ - * /`; and its base on numpy's arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from bitsynth.graph.types import Edge, Shape, Tensor

Quantity = Any
"""An array of numbers of an arithmetic."""


class Arithmetic(ABC):
    """Functions of arrays of numbers of one kind; `+ - * /` are the operators of the arrays."""

    reference: str

    @property
    def of_integers(self) -> Arithmetic | None:
        """An arithmetic for the same kind of numbers that is exact for integers; None if there is no such."""
        return None

    @abstractmethod
    def number(self, value: Tensor, edge: Edge) -> Quantity:
        """Return the numbers that a value of an edge stands for: of integers scale * (n - zero)."""

    @abstractmethod
    def constant(self, value: Any) -> Quantity:
        """Return the numbers of an array of floats, exactly."""

    @abstractmethod
    def cast(self, number: Quantity, dtype: str) -> Quantity:
        """Return numbers in a type of the file: floats are rounded to it, real numbers stay as they are."""

    @abstractmethod
    def move(self, apply: Callable[..., Tensor], *numbers: Quantity) -> Quantity:
        """Return `apply` of the arrays; it only moves and repeats elements."""

    @abstractmethod
    def steps(
        self, function: Callable[[Tensor], Tensor], number: Quantity, *, exactly: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Return `function`, a nondecreasing step function, of the numbers.

        `exactly` returns the numbers as fractions where a mask is set.
        """

    @abstractmethod
    def matmul(self, a: Quantity, b: Quantity) -> Quantity:
        """Return the matrix product along the last two axes, each sum rounded once."""

    @abstractmethod
    def maximum(self, a: Quantity, b: Quantity) -> Quantity:
        """Return the greater numbers of both."""

    @abstractmethod
    def minimum(self, a: Quantity, b: Quantity) -> Quantity:
        """Return the lesser numbers of both."""

    @abstractmethod
    def sum(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        """Return sums along axes, which stay as 1."""

    @abstractmethod
    def max(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        """Return the greatest numbers along axes, which stay as 1."""

    @abstractmethod
    def call(self, name: str, a: Quantity) -> Quantity:
        """Return a function of the numbers by name: sqrt, exp, log, tanh, sigmoid or erf."""

    def shape(self, a: Quantity) -> Shape:
        """Return the shape of the numbers."""
        shape: Shape = a.shape
        return shape

    def min(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        """Return the least numbers along axes, which stay as 1."""
        return -self.max(-a, axes)

    def clip(self, a: Quantity, low: Quantity | None, high: Quantity | None) -> Quantity:
        """Return the numbers, none below `low`, then none above `high`."""
        a = a if low is None else self.maximum(a, low)
        return a if high is None else self.minimum(a, high)


_MAX_ROUNDED = 2.0**62
"""The largest result of a step function."""


def limit_integers(integers: Tensor) -> Tensor:
    """Return results of a step function as int64, those beyond `_MAX_ROUNDED` as that, as in C."""
    return integers.clip(-_MAX_ROUNDED, _MAX_ROUNDED).astype(np.int64)


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
            return limit_integers(function(number))
        nan = np.isnan(number)
        integers = function(np.where(nan, -np.inf, number))
        return limit_integers(np.where(nan & np.isinf(integers), 0, integers))

    def maximum(self, a: Quantity, b: Quantity) -> Quantity:
        """Return the greater numbers of two arrays."""
        return np.maximum(a, b)

    def minimum(self, a: Quantity, b: Quantity) -> Quantity:
        """Return the lesser numbers of two arrays."""
        return np.minimum(a, b)

    def max(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        """Return the greatest numbers along axes, which stay as 1."""
        return a.max(axes, keepdims=True)
