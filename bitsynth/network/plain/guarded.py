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
the flag. Numbers with E above 2^-432 decide nothing, so that the 2^-400 that is added to every bound is far above E.
Results of functions of the runtime are defined in float64. A quotient of two numbers that float64 holds is rounded
once.

The root of a sum whose terms are all positive or 0, as of squares, has a bound too, since S = x there. The real number
is then the root, or as in pairs the float64 that the runtime's function gives for the float64 nearest to x; that
function is off a root by 2 u at most. With an operand off by ((1 + u)^n - 1) x + E, a root of x has a relative error of
no more than (1 + u)^n - 1, and the square root of E in addition. The operand's last rounding and two roots make n
greater by 6, and

    1.01 (E + 2^-1022)^(1/2) + 2^-510                               is E of a root.

A number t that is rounded to an integer is decided if t is farther from a half than that, a comparison of a with b if
a - b is farther from 0. `bs_undecided_bit` sets the flag otherwise, also where a size is infinite or not a number, as
it is wherever t is. Then the loops over pairs compute all elements again.

Scales of few bits make exact halves common. There all values of x are multiples of a known fraction, its unit. If that
is a multiple of a power of two q, and M is at most 2^53 q, float64 holds x, and n = 0. For others let g be the greatest
fraction of which the unit and 1/2 are multiples. If x is no multiple of 1/2, it is at least g away from the nearest
one. So where float64 is always off by less than g / 2, t is at most g / 2 from a multiple of 1/2 if and only if x is
that multiple. t is replaced by it there, and no flag is needed. Floors are decided in the same way by multiples of 1,
and comparisons by 0.

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
_LEAST_ROOT = 2.0**-510
"""More than the roots of numbers that a host flushes to 0."""
_ROUNDINGS_OF_ROOT = 6
_GREATEST_ERROR = 2.0**900
"""Where the error of a comparison is below it, sizes are below 2^953, and nothing has overflowed."""
_MAX_ROUNDINGS = 64
_CONSTANT_SIZES = (2.0**-1000, 2.0**1000)
"""Constants other than 0 are between these: then their nearest float64 is off by at most u of them."""
_EXACT_BITS = 53
"""float64 has all integers of as many bits."""
_MAX_UNIT_BITS = 256
"""Bits of a unit's denominator: far more than units have that float64 can tell apart."""
_ROUNDED_BITS = 51
"""Numbers of at most 2^51 are rounded to integers by a sum with 1.5 * 2^52; greater ones set the flag."""
_MOST_ROUNDED = 2.0**_ROUNDED_BITS / 4
"""Twice such a number, and that rounded, are at most 2^51."""
_STEPS_OF_ROUNDINGS = {"rint": Fraction(1, 2), "floor": Fraction(1), "ceil": Fraction(1)}
"""The fractions at whose multiples a rounding changes, or has ties."""
_NEAR_COMPARISONS = {
    "less": "{0} < -{near}",
    "less_equal": "{0} < {near}",
    "greater": "{0} > {near}",
    "greater_equal": "{0} > -{near}",
    "equal": "bs_size({0}) < {near}",
    "not_equal": "bs_size({0}) > {near}",
}
"""C of comparisons, by the difference of two numbers, which is 0 if it is nearer to 0 than `near`."""
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
        roundings: The most roundings that a term has gone through.
        most: The greatest size; infinite if it is not known.
        underflow: E, the error of results that are too small for float64's relative error.
        unit: A fraction whose multiple it is wherever the flag is not set; None if none is known.
        is_constant: Whether it is a constant.
        is_power: Whether it is a constant of powers of two, by which products are not rounded.
        is_number: Whether it is known not to be NaN.
        sign: 1 if no term is below 0; 0 if all terms have the same sign, whichever it is; None if neither is known.
            Unless it is None, the size is the absolute value of the number.
    """

    size: LoopTerm
    roundings: int
    most: float = math.inf
    underflow: float = 0.0
    unit: Fraction | None = None
    is_constant: bool = False
    is_power: bool = False
    is_number: bool = False
    sign: int | None = None

    @property
    def is_exact(self) -> bool:
        """Whether float64 holds the number wherever the flag is not set."""
        return not self.roundings and not self.underflow

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer, and exact."""
        return self.is_exact and self.unit is not None and self.unit.denominator == 1

    @property
    def is_bounded(self) -> bool:
        """Whether it can be decided: not where float64 may be far off."""
        return self.roundings <= _MAX_ROUNDINGS and self.underflow <= _GREATEST_UNDERFLOW


class GuardedWriter(Writer):
    """Writes real numbers in float64 with bounds of their errors; Undecidable for operations that have none.

    Args:
        loops: Where they are done.
        may_flag: Whether the loop may leave an element undecided. If not, numbers that need the flag are Undecidable.
    """

    def __init__(self, loops: Loops, *, may_flag: bool) -> None:
        super().__init__(loops, exact=True)
        self.may_flag = may_flag
        self._sizes = Writer(loops, exact=False)
        self._bounds: dict[str, NumberError] = {}
        self._rounded: dict[str, LoopTerm] = {}
        """The float64 that an integer was, by the integer's code: loops that convert both ways are not vectorized."""

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

    def hold(self, term: LoopTerm) -> LoopTerm:
        """Return a term that has C; of a real constant the bound is kept, as float64 may not hold it."""
        held = super().hold(term)
        if term.value is not None and term.dtype == REAL:
            self._keep(held, self._bound_constant(term.value))
        return held

    def _bound_constant(self, value: Tensor) -> NumberError:
        exact = _fractions(value)
        magnitudes, (least, most) = np.abs(exact), _CONSTANT_SIZES
        if not np.all((magnitudes == 0) | ((magnitudes >= least) & (magnitudes <= most))):
            raise Undecidable("a constant that is too large or too small")
        numbers = exact.astype(np.float64)
        sizes, greatest = self._sizes.constant(np.abs(numbers)), float(np.abs(numbers).max(initial=0.0))
        unit, sign = _unit_of(exact.reshape(-1).tolist()), int(np.all(exact >= 0))
        if not np.all(Fractions().constant(numbers) == exact):
            return NumberError(sizes, 1, greatest, 0.0, unit, is_constant=True, is_number=True, sign=sign)
        halves, exponents = np.frexp(np.abs(numbers))
        is_power = bool((halves == 0.5).all() and np.abs(exponents).max() <= _MAX_EXPONENT)
        return NumberError(
            sizes, 0, greatest, 0.0, unit, is_constant=True, is_power=is_power, is_number=True, sign=sign
        )

    def cast(self, term: LoopTerm, dtype: np.dtype[Any]) -> LoopTerm:
        """Return the number in another type; integers become real numbers without an error."""
        if term.dtype == REAL and term.value is None and dtype != REAL and not self.get_bound(term).is_integer:
            raise Undecidable("a real number is rounded to another type")
        if term.dtype == WHOLE and dtype == REAL and term.code in self._rounded:
            return self._rounded[term.code]
        if term.dtype == WHOLE and term.value is None and dtype == REAL:
            most = max(map(abs, term.bounds)) if term.bounds else 1 << 63
            if most.bit_length() > _EXACT_BITS:
                raise Undecidable("integers beyond float64")
            size = self._sizes.constant(np.asarray(float(most)))
            bound = NumberError(size, 0, float(most), 0.0, Fraction(1), is_number=True)
            return self._keep(super().cast(term, dtype), bound)
        return super().cast(term, dtype)

    def call(self, function: str, term: LoopTerm) -> LoopTerm:
        """Return a call of a function of the runtime; the result is exact if the operand is."""
        number = super().call(function, term)
        if term.value is not None or (bound := self.get_bound(term)).is_exact:
            return number
        if function == "sqrt" and bound.sign == 1 and bound.is_bounded:
            return self._keep(number, _root(bound, self._size_of(number)))
        return self._keep(number, self._make_unbounded(number))

    def get_bound(self, term: LoopTerm) -> NumberError:
        """Return the bound of a real number that has C; one that was read is exact."""
        return self._bounds.get(term.code) or NumberError(self._size_of(term), 0, sign=0)

    def _size_of(self, term: LoopTerm) -> LoopTerm:
        plain = replace(term, writer=self._sizes, bounds=None, whole=None)
        return self._sizes.operate("absolute", plain)

    def _make_unbounded(self, term: LoopTerm) -> NumberError:
        return NumberError(self._size_of(term), _MAX_ROUNDINGS + 1)

    def _keep(self, term: LoopTerm, bound: NumberError) -> LoopTerm:
        """Keep the bound of a number; if two constants have the same nearest float64, keep the wider bound."""
        other = self._bounds.get(term.code)
        if other is not None and (other.unit, other.most) != (bound.unit, bound.most):
            sign = bound.sign if bound.sign == other.sign else None
            most = max(bound.most, other.most)
            bound = replace(max(bound, other, key=lambda b: b.roundings), unit=None, most=most, sign=sign)
        self._bounds[term.code] = bound
        return term

    def _float(self, name: str, dtype: np.dtype[Any], terms: list[LoopTerm]) -> LoopTerm:
        if dtype != REAL or name not in (*_RULES, *_STEPS_OF_ROUNDINGS, *COMPARISONS, "divide"):
            raise Undecidable(name)
        bounds = [self.get_bound(t) for t in (terms[1:] if name == "where" else terms)]
        if name in COMPARISONS:
            return self._compare(name, terms, bounds)
        if name in _STEPS_OF_ROUNDINGS:
            return self._round(name, terms[0], bounds[0])
        if name == "divide":
            return self._divide(terms, bounds)
        if name == "multiply" and not any(b.is_constant for b in bounds):
            bounds = [self._limit(b) for b in bounds]
        bound = _RULES[name](bounds)
        if name == "multiply" and bound.sign is not None and terms[0].code == terms[1].code:
            bound = replace(bound, sign=1)
        number = super()._float(name, dtype, terms)
        if name in _CHOICES and (bound.roundings or bound.unit is not None):  # NaN sets the flag.
            code = self.loops.value("double", _CHOICES[name].format(*(t.code for t in terms)))
            number, bound = replace(number, code=code), replace(bound, is_number=bounds[1].is_number)
        if bound.is_exact and number.bounds and all(map(math.isfinite, number.bounds)):
            most = float(max(map(abs, number.bounds)))
            bound = replace(bound, size=self._size_of(number), most=min(most, bound.most))
        return self._keep(number, bound)

    def _limit(self, bound: NumberError) -> NumberError:
        """Return a bound whose greatest size is known: the flag is set where a size is above `_GREATEST_SIZE`."""
        if bound.most <= _GREATEST_SIZE:
            return bound
        if not self.may_flag:
            return replace(bound, roundings=_MAX_ROUNDINGS + 1)
        self._flag(_GREATEST_SIZE.hex(), self._sizes.hold(bound.size).code, _GREATEST_SIZE.hex())
        return replace(bound, most=_GREATEST_SIZE)

    def _divide(self, terms: list[LoopTerm], bounds: list[NumberError]) -> LoopTerm:
        """Write a quotient; one of exact numbers has a bound, whose size is not a number if the divisor is infinite."""
        number = super()._float("divide", REAL, terms)
        if not all(b.is_exact for b in bounds):
            return self._keep(number, self._make_unbounded(number))
        size = self._size_of(number) + self._size_of(terms[1]) * 0.0
        return self._keep(number, NumberError(size, 1, underflow=_LEAST_NORMAL))

    def _compare(self, name: str, terms: list[LoopTerm], bounds: list[NumberError]) -> LoopTerm:
        """Write a comparison; one of exact numbers is exact."""
        if all(b.is_exact for b in bounds):
            return super()._float(name, REAL, terms)
        difference = self.loops.value("double", f"{terms[0].code} - {terms[1].code}")
        bound = _sum(bounds)
        near = _least_distance(replace(bound, roundings=bound.roundings + 1), Fraction(0))
        if near:
            test = _NEAR_COMPARISONS[name].format(difference, near=near.hex())
            return LoopTerm(self, REAL, self.loops.value("int", test))
        self._decide(self.loops.value("double", f"bs_size({difference})"), bound, _GREATEST_ERROR)
        return super()._float(name, REAL, terms)

    def _round(self, name: str, term: LoopTerm, bound: NumberError) -> LoopTerm:
        """Write a number rounded to an integer: to the nearest, of two the even one, or the one below or above."""
        if bound.is_integer:
            return term
        near = _least_distance(bound, _STEPS_OF_ROUNDINGS[name]) if bound.roundings else 0.0
        if near:
            term = replace(term, code=self._on_multiples(term.code, near, _STEPS_OF_ROUNDINGS[name]))
        elif bound.roundings and name != "rint":
            raise Undecidable(name)
        is_small = bound.most <= _MOST_ROUNDED
        number = super()._float(name, REAL, [term])
        if name == "rint" and (is_small or bound.roundings):
            number = replace(number, code=self.loops.value("double", f"({term.code} + 0x1.8p52) - 0x1.8p52"))
        is_number = bound.is_number
        if bound.roundings and not near:
            distance = self.loops.value("double", f"0.5 - bs_size({term.code} - {number.code})")
            self._decide(distance, bound, 0.5)
            is_number = False
        elif not is_small:
            greatest = (2.0**_ROUNDED_BITS).hex()
            self._flag(greatest, f"bs_size({term.code})", greatest)
        most = bound.most + 1 if is_small else 2.0**_ROUNDED_BITS
        size = self._size_of(number)
        return self._keep(number, NumberError(size, 0, most, 0.0, Fraction(1), is_number=is_number))

    def _on_multiples(self, code: str, near: float, step: Fraction) -> str:
        """Return a number, replaced by the nearest multiple of 1 or 1/2 where that is nearer than `near`."""
        multiple = (
            f"({code} + 0x1.8p52) - 0x1.8p52" if step == 1 else f"0.5 * (({code} + {code} + 0x1.8p52) - 0x1.8p52)"
        )
        multiple = self.loops.value("double", multiple)
        return self.loops.value("double", f"bs_size({code} - {multiple}) < {near.hex()} ? {multiple} : {code}")

    def _whole(self, term: LoopTerm) -> LoopTerm:
        low, high = term.bounds or (_INT32[0] - 1, 0)
        if term.dtype != REAL or not self.get_bound(term).is_number or low < _INT32[0] or high > _INT32[1]:
            return super()._whole(term)
        whole = LoopTerm(self, WHOLE, self.loops.value("int32_t", f"(int32_t){term.code}"), (int(low), int(high)))
        self._rounded[whole.code] = term
        return whole

    def _decide(self, distance: str, bound: NumberError, most: float) -> None:
        """Set the flag unless a distance is above the error of its number, and the error below `most`.

        Undecidable, if the error has no bound.

        One rounding more makes the error greater than 0.5 where the number is above 2^51.
        """
        if not bound.is_bounded:
            raise Undecidable("many operations, or numbers that may be large")
        scale = (bound.roundings + 1) * _UNIT * _SAFETY_FACTOR
        error = self._sizes.hold(bound.size * scale + _SUBNORMAL_ERROR)
        self._flag(distance, error.code, most.hex())

    def _flag(self, distance: str, error: str, most: str) -> None:
        if not self.may_flag:
            raise Undecidable("a number that needs the flag")
        self.loops.do(f"{FLAG} |= bs_undecided_bit({distance}, {error}, {most});")


def _fractions(value: Tensor) -> Tensor:
    """Return constants as fractions; Undecidable if one is infinite or not a number."""
    if value.dtype != object and not np.isfinite(value).all():
        raise Undecidable("a constant that is infinite or not a number")
    exact: Tensor = Fractions().constant(value)
    return exact


def _unit_of(fractions: Iterable[Fraction]) -> Fraction | None:
    """Return the greatest fraction that divides all numbers; None if it would be a long one."""
    numerator, denominator = 0, 1
    for fraction in fractions:
        numerator = math.gcd(numerator, fraction.numerator)
        denominator = math.lcm(denominator, fraction.denominator)
        if denominator.bit_length() > _MAX_UNIT_BITS:
            return None
    return Fraction(numerator, denominator)


def _common(a: NumberError, b: NumberError) -> Fraction | None:
    """Return the greatest fraction that divides all values of two numbers; None if none is known."""
    return None if a.unit is None or b.unit is None else _unit_of((a.unit, b.unit))


def _least_distance(bound: NumberError, step: Fraction) -> float:
    """Return the distance g / 2 within which a number is a multiple of `step`; 0 if float64 may be off by as much."""
    if not bound.is_bounded or bound.unit is None or bound.most > _MOST_ROUNDED:
        return 0.0
    distance = _unit_of((bound.unit, step))
    error = (bound.roundings + 1) * _UNIT * _SAFETY_FACTOR * bound.most + _SUBNORMAL_ERROR
    return float(distance) / 2 if distance is not None and float(distance) > _SAFETY_FACTOR * 2 * error else 0.0


def _is_held(unit: Fraction | None, most: float) -> bool:
    """Return whether float64 holds all multiples of a unit up to a number."""
    if unit is None or unit.denominator & (unit.denominator - 1) or not math.isfinite(most):
        return False
    power = Fraction(unit.numerator & -unit.numerator, unit.denominator)
    return Fraction(_SAFETY_FACTOR * most) <= power * (1 << _EXACT_BITS)


def _changes_nothing(name: str, value: Tensor) -> bool:
    neutral = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1}.get(name)
    return neutral is not None and value.size == 1 and bool(np.all(value == neutral))


_Rule = Callable[[list[NumberError]], NumberError]


def _sum(bounds: list[NumberError]) -> NumberError:
    a, b = bounds
    size, most, unit = a.size + b.size, a.most + b.most, _common(a, b)
    is_number, sign = a.is_number and b.is_number and math.isfinite(most), 1 if a.sign == b.sign == 1 else None
    if a.is_exact and b.is_exact and _is_held(unit, most):
        return NumberError(size, 0, most, 0.0, unit, is_number=is_number, sign=sign)
    underflow = 1.01 * (a.underflow + b.underflow) + 3 * _LEAST_NORMAL
    roundings = max(a.roundings, b.roundings) + 1
    return NumberError(size, roundings, most, underflow, unit, is_number=is_number, sign=sign)


def _difference(bounds: list[NumberError]) -> NumberError:
    return replace(_sum(bounds), sign=None)


def _product(bounds: list[NumberError]) -> NumberError:
    """Return the bound of a product; at most one factor may have any size."""
    a, b = sorted(bounds, key=lambda bound: bound.is_constant)
    size, most = a.size * b.size, a.most * b.most if b.most else 0.0
    unit = None if a.unit is None or b.unit is None else _unit_of((a.unit * b.unit,))
    is_number = a.is_number and b.is_number and math.isfinite(most)
    sign = None if a.sign is None or b.sign is None else int(a.sign == b.sign == 1)
    if a.is_exact and b.is_exact and _is_held(unit, most):
        return NumberError(size, 0, most, 0.0, unit, is_number=is_number, sign=sign)
    if math.isinf(b.most):
        return NumberError(size, _MAX_ROUNDINGS + 1)
    flushed = _LEAST_NORMAL * (1 + b.most + (0.0 if b.is_constant else a.most))
    grown = b.most * a.underflow + (a.most * b.underflow if b.underflow else 0.0) + a.underflow * b.underflow
    roundings = a.roundings + b.roundings + (not b.is_power)
    return NumberError(size, roundings, most, 1.03 * grown + flushed, unit, is_number=is_number, sign=sign)


def _choice(bounds: list[NumberError]) -> NumberError:
    """Return the bound of one of two numbers, whichever it is."""
    a, b = bounds
    is_zero = b.size.value is not None and not b.size.value.any()
    size = a.size if is_zero else a.size + b.size
    roundings, underflow = max(a.roundings, b.roundings), max(a.underflow, b.underflow)
    is_number = a.is_number and b.is_number
    return NumberError(size, roundings, a.most + b.most, underflow, _common(a, b), is_number=is_number)


def _negative(bounds: list[NumberError]) -> NumberError:
    return replace(bounds[0], is_constant=False, sign=None if bounds[0].sign is None else 0)


def _absolute(bounds: list[NumberError]) -> NumberError:
    return replace(bounds[0], is_constant=False, sign=None if bounds[0].sign is None else 1)


def _root(bound: NumberError, size: LoopTerm) -> NumberError:
    """Return the bound of the root of a number without terms below 0; `size` is the root itself."""
    underflow = 1.01 * math.sqrt(bound.underflow + _LEAST_NORMAL) + _LEAST_ROOT
    return NumberError(size, bound.roundings + _ROUNDINGS_OF_ROOT, 2 * math.sqrt(bound.most), underflow, sign=1)


_RULES: dict[str, _Rule] = {
    "add": _sum,
    "subtract": _difference,
    "multiply": _product,
    "negative": _negative,
    "absolute": _absolute,
    **dict.fromkeys(("maximum", "minimum", "at_least", "where"), _choice),
}
"""The bounds of results, from their operands' bounds."""
