"""Loops in float64 for integers that are rounded.

They flag elements that float64 does not decide, and then pairs of float64 compute all elements.

Each number stands for a real number x. Its size S is the sum of the absolute values of the terms of x, at most M; n
counts the roundings on the longest way to it. With u = 2^-53, float64 is off by at most

    ((1 + u)^n - 1) S + E.

A sum a + b is rounded once, by a relative error of at most u (gradual underflow makes small sums exact), so that n is
one more than the greater n, and sizes add up (Higham 2002, lemma 3.1). A product a * b is rounded once, after n_a + n_b
roundings; sizes multiply. With 2^-1022 for each operand and result that a host flushes to 0, E is at most

    1.01 (E_a + E_b) + 3 * 2^-1022                                  of a sum,
    1.03 (M_a E_b + M_b E_a + E_a E_b) + 2^-1022 (1 + M_a + M_b)    of a product.

A constant has E = 0, and one rounding if float64 does not hold it. The greater of two numbers, the absolute value and
the negative are off by no more than their operands. M is known of integers, and so of x * clip(x + 3, 0, 6) with x of
accumulators. Where another number is multiplied with a variable, sizes above 2^128, which float32 does not have, set
the flag. Operations with E above 2^-432 are refused, so that the 2^-400 that is added to every bound is far above E.

A number t that is rounded to an integer is decided if t is farther from a half than that, a comparison of a with b if
a - b is farther from 0. `bs_undecided_bit` sets the flag otherwise, also where a size is infinite or not a number, as
it is wherever t is. Then the loops over pairs compute all elements again.

Scales of few bits make exact halves common. There all values of x are multiples of a known fraction, its unit. Let g be
the greatest fraction of which the unit and 1/2 are multiples. If x is no multiple of 1/2, it is at least g away from
the nearest one. So where float64 is always off by less than g / 2, t is at most g / 2 from a multiple of 1/2 if and
only if x is that multiple. t is replaced by it there, and no flag is needed.

Given:   quantize(relu(x * gain + bias)), x of float64, gain and bias that float64 does not hold
Result:  value = x * gain + bias, n = 3: gain, product, sum; size = |x| * |gain| + |bias|
         error = size * 4.04 u + 2^-400
         near |= bs_undecided_bit(0.5 - |value - rint(value)|, error, 0.5)

Given:   quantize(codes * 0.375), with a scale of 0.25 and codes from 0 to 255
Result:  value = codes * 1.5, a multiple of 1/2, rounded to even halves as it is

Given:   quantize(codes * 0.375), with a scale of 0.75 * 7, whose reciprocal float64 does not hold
Result:  value = codes / 14; unit 1/14, g = 1/14; value is replaced by the nearest multiple of 1/2 if within 1/28
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic import Fractions
from bitsynth.graph.types import Tensor
from bitsynth.network.plain.loops import Loops
from bitsynth.network.plain.terms import COMPARISONS, LoopTerm
from bitsynth.network.plain.writer import REAL, WHOLE, Writer

FLAG = "near"
"""The variable in C whose highest bit is set where a code is not decided."""
_UNIT = 2.0**-53
_SAFETY_FACTOR = 1.01
"""Covers (1 + u)^n - 1 over n u, and the rounding of sizes and distances: far fewer than 2^40 operations each."""
_SUBNORMAL_ERROR = 2.0**-400
"""More than E, the errors of results that are too small for float64's relative error."""
_GREATEST_SIZE = 2.0**128
"""Factors of a greater size set the flag."""
_GREATEST_UNDERFLOW = 2.0**-432
"""A greater E is refused."""
_LEAST_NORMAL = 2.0**-1022
_GREATEST_ERROR = 2.0**900
"""Where the error of a comparison is below it, sizes are below 2^953, and nothing has overflowed."""
_MAX_ROUNDINGS = 64
_CONSTANT_SIZES = (2.0**-1000, 2.0**1000)
"""Constants other than 0 are between these: then their nearest float64 is off by at most u of them."""
_EXACT_BITS = 53
"""float64 has all integers of as many bits."""
_MAX_UNIT_BITS = 256
"""Bits of a unit's denominator: far more than those of units that float64 can tell apart."""
_ROUNDED_BITS = 51
"""Numbers of at most 2^51 are rounded to integers by a sum with 1.5 * 2^52; greater ones set the flag."""
_CHOICES = {
    **dict.fromkeys(("maximum", "at_least"), "{0} > {1} ? {0} : {1}"),
    "minimum": "{0} < {1} ? {0} : {1}",
}
"""C that vectors have in one instruction; of NaN it gives the second operand, so that NaN must set the flag."""
_INT32 = (-(1 << 31), (1 << 31) - 1)
_MAX_EXPONENT = 64
"""The greatest exponent of a power of two, or of its reciprocal, that is recognized."""


class Undecidable(Exception):
    """An operation whose result float64 with a bound of its error does not decide."""


@dataclass(frozen=True)
class NumberError:
    """How far float64 may be off the real number that it stands for.

    Args:
        size: The sum of the absolute values of the terms, a number of the loop or a constant.
        roundings: The most roundings that a term has gone through. If there are none, the C is that of the loop over
            pairs, which have no rests then.
        most: The greatest size; infinite if it is not known.
        underflow: E, the error of results that are too small for float64's relative error.
        unit: A fraction of which it is a multiple wherever the flag is not set; None if none is known.
        bits: If it is an integer wherever the flag is not set, and exact: its absolute value is at most 2^bits. Else
            None.
        is_constant: Whether it is a constant.
        is_power: Whether it is a constant of powers of two, by which products are not rounded.
        is_number: Whether it is known not to be NaN.
    """

    size: LoopTerm
    roundings: int
    most: float = math.inf
    underflow: float = 0.0
    unit: Fraction | None = None
    bits: int | None = None
    is_constant: bool = False
    is_power: bool = False
    is_number: bool = False


class GuardedWriter(Writer):
    """Writes real numbers in float64 with bounds of their errors; Undecidable for operations that have none.

    Args:
        loops: Where they are done.
    """

    def __init__(self, loops: Loops) -> None:
        super().__init__(loops, exact=True)
        self._sizes = Writer(loops, exact=False)
        self._bounds: dict[str, NumberError] = {}
        self._rounded: dict[str, LoopTerm] = {}
        """The float64 that an integer was, by the integer's code: loops that convert both ways are not vectorized."""
        self.decides_rounded = False
        """Whether a number that has roundings is decided, so that the loop over pairs would compute rests."""
        self.sets_flag = False
        """Whether an element may set the flag."""

    def operate(self, name: str, *inputs: Any) -> LoopTerm:
        """Write an operation; sums with 0 and products with 1 are left out, quotients are products."""
        if len(inputs) == 2:
            first, second = (x if isinstance(x, LoopTerm) else self._literal(x, inputs) for x in inputs)
            if REAL in (first.dtype, second.dtype) and second.value is not None and first.value is None:
                number = self.cast(first, REAL)
                if _changes_nothing(name, second.value):
                    return number
                if name == "divide":
                    divisor = _fractions(second.value)
                    if np.any(divisor == 0):
                        raise Undecidable(name)
                    return super().operate("multiply", number, self.constant(np.asarray(1 / divisor)))
                return super().operate(name, number, second)
        return super().operate(name, *inputs)

    def held(self, term: LoopTerm) -> LoopTerm:
        """Return a term that has C; of a real constant the bound is kept, as float64 may not hold it."""
        held = super().held(term)
        if term.value is not None and term.dtype == REAL:
            bound, other = self._bound_constant(term.value), self._bounds.get(held.code)
            if other is None or bound.roundings >= other.roundings:  # Two numbers may have one nearest float64.
                self._bounds[held.code] = bound
        return held

    def _bound_constant(self, value: Tensor) -> NumberError:
        exact = _fractions(value)
        magnitudes, (least, most) = np.abs(exact), _CONSTANT_SIZES
        if not np.all((magnitudes == 0) | ((magnitudes >= least) & (magnitudes <= most))):
            raise Undecidable("a constant that is too large or too small")
        numbers = exact.astype(np.float64)
        sizes, greatest = self._sizes.constant(np.abs(numbers)), float(np.abs(numbers).max(initial=0.0))
        unit = _unit_of(exact.reshape(-1).tolist())
        if not np.all(Fractions().constant(numbers) == exact):
            return NumberError(sizes, 1, greatest, unit=unit, is_constant=True, is_number=True)
        bits = math.frexp(greatest)[1] if (numbers == np.rint(numbers)).all() else None
        halves, exponents = np.frexp(np.abs(numbers))
        is_power = bool((halves == 0.5).all() and np.abs(exponents).max() <= _MAX_EXPONENT)
        return NumberError(sizes, 0, greatest, 0.0, unit, bits, is_constant=True, is_power=is_power, is_number=True)

    def cast(self, term: LoopTerm, dtype: np.dtype[Any]) -> LoopTerm:
        """Return the number in another type; integers become real numbers without an error."""
        if term.dtype == REAL and term.value is None and dtype != REAL and self.bound(term).bits is None:
            raise Undecidable("a real number is rounded to another type")
        if term.dtype == WHOLE and dtype == REAL and term.code in self._rounded:
            return self._rounded[term.code]
        if term.dtype == WHOLE and term.value is None and dtype == REAL:
            most = max(map(abs, term.bounds)) if term.bounds else 1 << 63
            if most.bit_length() > _EXACT_BITS:
                raise Undecidable("integers beyond float64")
            size = self._sizes.constant(np.asarray(float(most)))
            return self._keep(
                super().cast(term, dtype),
                NumberError(size, 0, float(most), 0.0, Fraction(1), most.bit_length(), is_number=True),
            )
        return super().cast(term, dtype)

    def call(self, function: str, term: LoopTerm) -> LoopTerm:
        """Return a call of constants; Undecidable for others, as the runtime's functions have no bound here."""
        if term.value is None:
            raise Undecidable(function)
        return super().call(function, term)

    def bound(self, term: LoopTerm) -> NumberError:
        """Return the bound of a real number that has C; one that was read is exact."""
        return self._bounds.get(term.code) or NumberError(self._size_of(term), 0)

    def _size_of(self, term: LoopTerm) -> LoopTerm:
        plain = replace(term, writer=self._sizes, bounds=None, whole=None)
        return self._sizes.operate("absolute", plain)

    def _keep(self, term: LoopTerm, bound: NumberError) -> LoopTerm:
        if bound.roundings > _MAX_ROUNDINGS or not bound.underflow <= _GREATEST_UNDERFLOW:
            raise Undecidable("many operations, or numbers that may be large")
        self._bounds[term.code] = bound
        return term

    def _float(self, name: str, dtype: np.dtype[Any], terms: list[LoopTerm]) -> LoopTerm:
        if dtype != REAL or name not in (*_RULES, *COMPARISONS, "rint"):
            raise Undecidable(name)
        bounds = [self.bound(t) for t in (terms[1:] if name == "where" else terms)]
        if name in COMPARISONS:
            return self._compare(name, terms, bounds)
        if name == "rint":
            return self._round(terms[0], bounds[0])
        if name == "multiply" and not any(b.is_constant for b in bounds):
            bounds = [self._limited(b) for b in bounds]
        bound = _RULES[name](bounds)
        number = super()._float(name, dtype, terms)
        if name in _CHOICES and (bound.roundings or bound.bits is not None):  # NaN sets the flag.
            code = self.loops.value("double", _CHOICES[name].format(*(t.code for t in terms)))
            number, bound = replace(number, code=code), replace(bound, is_number=bounds[1].is_number)
        return self._keep(number, bound)

    def _limited(self, bound: NumberError) -> NumberError:
        """Return a bound whose greatest size is known: the flag is set where a size is above `_GREATEST_SIZE`."""
        if bound.most <= _GREATEST_SIZE:
            return bound
        self._flag(_GREATEST_SIZE.hex(), self._sizes.held(bound.size).code, _GREATEST_SIZE.hex())
        return replace(bound, most=_GREATEST_SIZE)

    def _compare(self, name: str, terms: list[LoopTerm], bounds: list[NumberError]) -> LoopTerm:
        """Write a comparison; one of numbers that operations have not changed is exact."""
        if any(b.roundings or b.underflow for b in bounds):
            distance = self.loops.value("double", f"bs_size({terms[0].code} - {terms[1].code})")
            self._decide(distance, _sum(bounds), _GREATEST_ERROR)
        return super()._float(name, REAL, terms)

    def _round(self, term: LoopTerm, bound: NumberError) -> LoopTerm:
        """Write a number rounded to an integer."""
        near = _distance_of_halves(bound)
        if near:
            term = replace(term, code=self._on_halves(term.code, near))
            self.decides_rounded = True
        number = super()._float("rint", REAL, [term])
        bits = _ROUNDED_BITS if bound.bits is None else bound.bits
        if bound.roundings:
            number = replace(number, code=self.loops.value("double", f"({term.code} + 0x1.8p52) - 0x1.8p52"))
        if near:
            bits = math.frexp(bound.most + 1)[1]
        elif bound.roundings:
            distance = self.loops.value("double", f"0.5 - bs_size({term.code} - {number.code})")
            self._decide(distance, bound, 0.5)
        elif bound.bits is None:
            greatest = (2.0**_ROUNDED_BITS).hex()
            self._flag(greatest, f"bs_size({term.code})", greatest)
        return self._keep(number, NumberError(self._size_of(number), 0, 2.0**bits, 0.0, Fraction(1), bits))

    def _on_halves(self, code: str, near: float) -> str:
        """Return a number, replaced by the nearest multiple of 1/2 where that is nearer than `near`."""
        half = self.loops.value("double", f"0.5 * (({code} + {code} + 0x1.8p52) - 0x1.8p52)")
        return self.loops.value("double", f"bs_size({code} - {half}) < {near.hex()} ? {half} : {code}")

    def _whole(self, term: LoopTerm) -> LoopTerm:
        low, high = term.bounds or (_INT32[0] - 1, 0)
        if term.dtype != REAL or not self.bound(term).is_number or low < _INT32[0] or high > _INT32[1]:
            return super()._whole(term)
        whole = LoopTerm(self, WHOLE, self.loops.value("int32_t", f"(int32_t){term.code}"), (int(low), int(high)))
        self._rounded[whole.code] = term
        return whole

    def _decide(self, distance: str, bound: NumberError, most: float) -> None:
        """Set the flag unless a distance is above the error of its number, and the error below `most`.

        One rounding more makes the error greater than 0.5 where the number is above 2^51.
        """
        scale = (bound.roundings + 1) * _UNIT * _SAFETY_FACTOR
        error = self._sizes.held(bound.size * scale + _SUBNORMAL_ERROR)
        self._flag(distance, error.code, most.hex())
        self.decides_rounded = True

    def _flag(self, distance: str, error: str, most: str) -> None:
        self.sets_flag = True
        self.loops.do(f"{FLAG} |= bs_undecided_bit({distance}, {error}, {most});")


def _fractions(value: Tensor) -> Tensor:
    """Return constants as fractions; Undecidable if one is infinite or not a number."""
    if value.dtype != object and not np.isfinite(value).all():
        raise Undecidable("a constant that is infinite or not a number")
    exact: Tensor = Fractions().constant(value)
    return exact


def _unit_of(fractions: Iterable[Fraction]) -> Fraction | None:
    """Return the greatest fraction of which all are multiples; None if it would be a long one."""
    numerator, denominator = 0, 1
    for fraction in fractions:
        numerator = math.gcd(numerator, fraction.numerator)
        denominator = math.lcm(denominator, fraction.denominator)
        if denominator.bit_length() > _MAX_UNIT_BITS:
            return None
    return Fraction(numerator, denominator)


def _common(a: NumberError, b: NumberError) -> Fraction | None:
    """Return the greatest fraction of which all values of two numbers are multiples; None if none is known."""
    return None if a.unit is None or b.unit is None else _unit_of((a.unit, b.unit))


def _distance_of_halves(bound: NumberError) -> float:
    """Return the distance g / 2 within which a number is a multiple of 1/2; 0 if float64 may be off by as much."""
    if not bound.roundings or bound.unit is None or bound.most > 2.0**_ROUNDED_BITS / 4:
        return 0.0
    step = _unit_of((bound.unit, Fraction(1, 2)))
    error = (bound.roundings + 1) * _UNIT * _SAFETY_FACTOR * bound.most + _SUBNORMAL_ERROR
    return float(step) / 2 if step is not None and float(step) > _SAFETY_FACTOR * 2 * error else 0.0


def _changes_nothing(name: str, value: Tensor) -> bool:
    neutral = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1}.get(name)
    return neutral is not None and value.size == 1 and bool(np.all(value == neutral))


_Rule = Callable[[list[NumberError]], NumberError]


def _sum(bounds: list[NumberError]) -> NumberError:
    a, b = bounds
    size, most = a.size + b.size, a.most + b.most
    if a.bits is not None and b.bits is not None and max(a.bits, b.bits) < _EXACT_BITS:
        return NumberError(size, 0, most, 0.0, _common(a, b), max(a.bits, b.bits) + 1)
    underflow = 1.01 * (a.underflow + b.underflow) + 3 * _LEAST_NORMAL
    return NumberError(size, max(a.roundings, b.roundings) + 1, most, underflow, _common(a, b))


def _product(bounds: list[NumberError]) -> NumberError:
    """Return the bound of a product, of which one factor at most may have any size."""
    a, b = sorted(bounds, key=lambda bound: bound.is_constant)
    flushed = _LEAST_NORMAL * (1 + b.most + (0.0 if b.is_constant else a.most))
    grown = b.most * a.underflow + (a.most * b.underflow if b.underflow else 0.0) + a.underflow * b.underflow
    roundings = a.roundings + b.roundings + (not b.is_power)
    unit = None if a.unit is None or b.unit is None else _unit_of((a.unit * b.unit,))
    return NumberError(a.size * b.size, roundings, a.most * b.most if b.most else 0.0, 1.03 * grown + flushed, unit)


def _choice(bounds: list[NumberError]) -> NumberError:
    """Return the bound of one of two numbers, whichever it is."""
    a, b = bounds
    bits = None if a.bits is None or b.bits is None else max(a.bits, b.bits)
    is_zero = b.size.value is not None and not b.size.value.any()
    size = a.size if is_zero else a.size + b.size
    roundings, underflow = max(a.roundings, b.roundings), max(a.underflow, b.underflow)
    return NumberError(size, roundings, a.most + b.most, underflow, _common(a, b), bits)


def _same(bounds: list[NumberError]) -> NumberError:
    return replace(bounds[0], is_constant=False)


_RULES: dict[str, _Rule] = {
    "add": _sum,
    "subtract": _sum,
    "multiply": _product,
    "negative": _same,
    "absolute": _same,
    **dict.fromkeys(("maximum", "minimum", "at_least", "where"), _choice),
}
"""The bounds of results, by those of operands."""
