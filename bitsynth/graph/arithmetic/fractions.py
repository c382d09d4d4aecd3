"""Arithmetic of fractions: exact, slow, for the few numbers that intervals leave open."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic.arrays import OfArrays
from bitsynth.graph.arithmetic.base import Quantity
from bitsynth.graph.types import Edge, Integers, Tensor

_DIGITS = 80
"""Of functions whose values are irrational: none lies so near to a decision that these do not tell."""


class Fractions(OfArrays):
    """Object arrays of fractions."""

    reference = "exact"

    def number(self, value: Tensor, edge: Edge) -> Quantity:
        kind = edge.type
        made = self.constant(value)
        if not isinstance(kind, Integers):
            return made
        return (made - self.constant(kind.zero)) * self.constant(kind.scale)

    def constant(self, value: Any) -> Quantity:
        array = np.asarray(value)
        return array if array.dtype == object else _fractions(array)

    def typed(self, number: Quantity, dtype: str) -> Quantity:
        return number

    def matmul(self, a: Quantity, b: Quantity) -> Quantity:
        return np.matmul(a, b)

    def sum(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        return a.sum(axes, keepdims=True)

    def call(self, name: str, a: Quantity) -> Quantity:
        return np.vectorize(_FUNCTIONS[name], otypes=[object])(a)


class SomeFractions(Fractions):
    """Fractions of the numbers that a mask picks, in a row, and of what constants are there."""

    def __init__(self, mask: Tensor) -> None:
        self._mask = mask

    def constant(self, value: Any) -> Quantity:
        array = np.asarray(value)
        if array.dtype == object:
            return array
        return super().constant(np.broadcast_to(array, self._mask.shape)[self._mask])

    def steps(
        self, function: Callable[[Tensor], Tensor], number: Quantity, *, exactly: Callable[[Tensor], Tensor]
    ) -> Tensor:
        return super().steps(function, number, exactly=exactly).astype(object)


def _fractions(array: Tensor) -> Tensor:
    made = np.empty(array.shape, object)
    flat = made.reshape(-1)
    for k, value in enumerate(array.reshape(-1).tolist()):
        flat[k] = Fraction(value)
    return made


def _sqrt(x: Fraction) -> Fraction:
    """The root, exact if it is rational; 0 of a number below 0, as everywhere."""
    x = max(x, Fraction(0))
    numerator, denominator = isqrt(x.numerator), isqrt(x.denominator)
    if numerator**2 == x.numerator and denominator**2 == x.denominator:
        return Fraction(numerator, denominator)
    one = 10**_DIGITS
    return Fraction(isqrt(x.numerator * one * one // x.denominator), one)


def _exp(x: Fraction) -> Fraction:
    """The power of e, with as many digits of its distance from 1 for small numbers."""
    if x == 0:
        return Fraction(1)
    with localcontext() as context:
        context.prec = _DIGITS + max(0, len(str(x.denominator)) - len(str(abs(x.numerator))))
        context.Emax, context.Emin = 10**9, -(10**9)
        return Fraction((Decimal(x.numerator) / Decimal(x.denominator)).exp())


def _sigmoid(x: Fraction) -> Fraction:
    small = _exp(-abs(x))
    return (1 if x >= 0 else small) / (1 + small)


def _tanh(x: Fraction) -> Fraction:
    return 2 * _sigmoid(2 * x) - 1


_FUNCTIONS: dict[str, Callable[[Fraction], Fraction]] = {
    "sqrt": _sqrt,
    "exp": _exp,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
}
