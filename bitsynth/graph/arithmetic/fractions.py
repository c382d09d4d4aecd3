"""Arithmetic of fractions: exact but slow, for the few numbers that intervals do not determine."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic.arrays import ArrayArithmetic
from bitsynth.graph.arithmetic.base import Quantity
from bitsynth.graph.arithmetic.real_functions import FUNCTIONS
from bitsynth.graph.types import Edge, Integers, Tensor

MAX_BITS = 1 << 16
"""The most bits of a fraction, of numerator and denominator together.

The product of 30 float64 numbers with the least exponents has them, or of some 1,000 float32 numbers with ordinary
exponents. An operation on two such fractions takes about 7 ms.
"""


class TooLong(ArithmeticError):
    """A fraction of more than `MAX_BITS` bits."""


def count_bits(number: Fraction) -> int:
    """Return the bits of a fraction: its numerator's and its denominator's."""
    return number.numerator.bit_length() + number.denominator.bit_length()


def require_short(number: Fraction) -> Fraction:
    """Return the number; TooLong if it has more than `MAX_BITS` bits."""
    if (size := count_bits(number)) > MAX_BITS:
        raise TooLong(f"an exact value would be a fraction of {size:,} bits, more than the {MAX_BITS:,} allowed")
    return number


class Fractions(ArrayArithmetic):
    """Object arrays of fractions."""

    reference = "exact"

    def number(self, value: Tensor, edge: Edge) -> Quantity:
        kind = edge.type
        integers = self.constant(value)
        if not isinstance(kind, Integers):
            return integers
        return (integers - self.constant(kind.zero)) * self.constant(kind.scale)

    def constant(self, value: Any) -> Quantity:
        array = np.asarray(value)
        return array if array.dtype == object else _fractions(array)

    def typed(self, number: Quantity, dtype: str) -> Quantity:
        return number

    def matmul(self, a: Quantity, b: Quantity) -> Quantity:
        return np.matmul(a, b)

    def sum(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        return _add_up(a, axes)

    def call(self, name: str, a: Quantity) -> Quantity:
        return np.vectorize(FUNCTIONS[name], otypes=[object])(a)


class SomeFractions(Fractions):
    """Fractions of the numbers where a mask is set, in one axis; constants are broadcast to the mask."""

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


def _add_up(a: Quantity, axes: tuple[int, ...]) -> Quantity:
    """Return sums along axes, which stay as 1; TooLong as soon as a partial sum has too many bits."""
    kept = [1 if k in axes else n for k, n in enumerate(a.shape)]
    rows = a.transpose([*axes, *(k for k in range(a.ndim) if k not in axes)]).reshape(-1, math.prod(kept))
    totals = _fractions(np.zeros(rows.shape[1]))
    for row in rows:
        totals = np.array([require_short(x) for x in totals + row], object)
    return totals.reshape(kept)


def _fractions(array: Tensor) -> Tensor:
    fractions = np.empty(array.shape, object)
    flat = fractions.reshape(-1)
    for k, value in enumerate(array.reshape(-1).tolist()):
        flat[k] = Fraction(value)
    return fractions
