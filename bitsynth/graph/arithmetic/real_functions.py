"""Functions of fractions: exact where they are rational, else to more digits than any comparison needs."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import isqrt

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
    """Return a context of decimals: `more` digits than usual, exponents as large as those of fractions and squares."""
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
