"""Arithmetic of fractions: exact but slow, for the few numbers that intervals do not determine.

Functions are exact where they are rational; else they have more digits than any comparison needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic.base import ArrayArithmetic, Quantity
from bitsynth.graph.types import Edge, Integers, Tensor

_DIGITS = 80
"""The digits of irrational values: no value is so near to a rounding boundary that more would be needed."""
_MAX_EXPONENT = Fraction(10_000)
"""The largest exponent of e: beyond it powers are below 10**-4,300, or above 10**4,300."""
_MAX_SERIES_ARGUMENT = 13
"""Beyond this the error function is computed by its distance from 1; the series would leave no digits of it."""


def _sqrt(x: Fraction) -> Fraction:
    """Return the square root, exactly if it is rational; 0 for numbers below 0, as in all arithmetics."""
    x = max(x, Fraction(0))
    numerator, denominator = isqrt(x.numerator), isqrt(x.denominator)
    if numerator**2 == x.numerator and denominator**2 == x.denominator:
        return Fraction(numerator, denominator)
    one = 10 ** (_DIGITS + max(0, _digits(x.denominator) - _digits(x.numerator)))
    return Fraction(isqrt(x.numerator * one * one // x.denominator), one)


def _exp(x: Fraction) -> Fraction:
    """Return e**x, with as many digits of its distance from 1 for small x.

    Beyond `_MAX_EXPONENT` it is the power there: not 0, but smaller, or else greater, than anything that is compared
    with it but fractions of thousands of digits.
    """
    if x == 0:
        return Fraction(1)
    x = min(max(x, -_MAX_EXPONENT), _MAX_EXPONENT)
    with localcontext(_context(max(0, _digits(x.denominator) - _digits(x.numerator)))):
        return Fraction(_decimal(x).exp())


def _log(x: Fraction) -> Fraction:
    """Return the natural logarithm of a number above 0, with as many digits near 1; ArithmeticError of others."""
    if x <= 0:
        raise ArithmeticError(f"the logarithm of {float(x):g}")
    if x == 1:
        return Fraction(0)
    near = x - 1
    if abs(near) < Fraction(1, 10**_DIGITS):  # The next term of the series is smaller by twice as many digits.
        return near - near * near / 2
    with localcontext(_context(_DIGITS)):
        return Fraction(_decimal(x).ln())


def _erf(x: Fraction) -> Fraction:
    """Return the error function by its series, or far from 0 by its distance from 1.

    Abramowitz and Stegun 7.1.5 and 7.1.23.
    """
    if abs(x) > _MAX_SERIES_ARGUMENT:
        root = _sqrt(_PI)
        return (1 - _exp(-x * x) / (abs(x) * root)) * (1 if x > 0 else -1)
    with localcontext(_context(2 * _DIGITS)):
        square = _decimal(x * x)
        total = term = Decimal(1)
        for n in range(1, 8 * _MAX_SERIES_ARGUMENT**2):
            term = -term * square / n
            total += term / (2 * n + 1)
            if abs(term) < Decimal(10) ** (-2 * _DIGITS):
                break
        return 2 * x * Fraction(total) / _sqrt(_PI)


def _digits(n: int) -> int:
    """Return the decimal digits of a whole number, or one more."""
    return n.bit_length() * 30103 // 100000 + 1


def _context(more: int) -> Context:
    """Return a context of decimals with `more` digits than usual, and exponents as large as fractions and squares
    need."""
    return Context(prec=_DIGITS + more, Emax=10**6, Emin=-(10**6))


def _decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / Decimal(x.denominator)


def _sigmoid(x: Fraction) -> Fraction:
    small = _exp(-abs(x))
    return (1 if x >= 0 else small) / (1 + small)


def _tanh(x: Fraction) -> Fraction:
    return 2 * _sigmoid(2 * x) - 1


_PI = Fraction(
    31415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170679, 10**100
)
FUNCTIONS: dict[str, Callable[[Fraction], Fraction]] = {
    "sqrt": _sqrt,
    "exp": _exp,
    "log": _log,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
}


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

    def cast(self, number: Quantity, dtype: str) -> Quantity:
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
