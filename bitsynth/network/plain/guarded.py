"""Loops in float64 for integers that are rounded.

They flag elements that float64 does not decide, and then pairs of float64 compute all elements.

Each number stands for a real number x. Its size S is the sum of the absolute values of the terms of x; n counts the
roundings and p the products on the longest way to it. With u = 2^-53, float64 is off by at most

    ((1 + u)^n - 1) S + E,   E <= 2^-400.

A sum a + b is rounded once, by a relative error of at most u (gradual underflow makes small sums exact), so that n is
one more than the greater n, sizes add up, and E is at most 2.1 times the greater E (Higham 2002, lemma 3.1). A product
with a constant c adds u of the product, u of c if float64 does not hold c, and 2^-1022 where the product is below the
normal numbers; that covers hosts that flush these to 0. E grows by |c|. The greater of two numbers, the absolute value
and the negative are off by no more than their operands. Sums are at most 64 deep and products at most 8, with
|c| <= 2^64, so E <= 2^-1022 * 2.1^64 * (1.1 * 2^64)^8 * 72 < 2^-432. A product of two variables has no bound here.

A number t that is rounded to an integer is decided if t is farther from a half than that, a comparison of a with b if
a - b is farther from 0. `bs_undecided_bit` sets the flag otherwise, also where a size is infinite or not a number, as
it is wherever t is. Then the loops over pairs compute all elements again.

Given:   quantize(relu(x * gain + bias)), x of float64, gain and bias that float64 does not hold
Result:  value = x * gain + bias, n = 3: gain, product, sum; size = |x| * |gain| + |bias|
         error = size * 4.04 u + 2^-400
         near |= bs_undecided_bit(0.5 - |value - rint(value)|, error, 0.5)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
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
_GREATEST_ERROR = 2.0**900
"""Where the error of a comparison is below it, sizes are below 2^953, and nothing has overflowed."""
_MAX_ROUNDINGS = 64
_MAX_PRODUCTS = 8
_GREATEST_FACTOR = 2.0**64
_CONSTANT_SIZES = (2.0**-1000, 2.0**1000)
"""Constants other than 0 are between these: then their nearest float64 is off by at most u of them."""
_EXACT_BITS = 53
"""float64 has all integers of as many bits."""
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
        products: The most products that a term has gone through.
        bits: If it is an integer wherever the flag is not set, and exact: its absolute value is at most 2^bits. Else
            None.
        is_constant: Whether it is a constant.
        is_power: Whether it is a constant of powers of two, by which products are not rounded.
        is_number: Whether it is known not to be NaN.
    """

    size: LoopTerm
    roundings: int
    products: int = 0
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
        self.decides_rounded = False
        """Whether a number that has roundings is decided, so that the loop over pairs would compute rests."""

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
        sizes = self._sizes.constant(np.abs(numbers))
        if not np.all(Fractions().constant(numbers) == exact):
            return NumberError(sizes, 1, is_constant=True, is_number=True)
        bits = math.frexp(float(np.abs(numbers).max()))[1] if (numbers == np.rint(numbers)).all() else None
        halves, exponents = np.frexp(np.abs(numbers))
        is_power = bool((halves == 0.5).all() and np.abs(exponents).max() <= _MAX_EXPONENT)
        return NumberError(sizes, 0, 0, bits, is_constant=True, is_power=is_power, is_number=True)

    def cast(self, term: LoopTerm, dtype: np.dtype[Any]) -> LoopTerm:
        """Return the number in another type; integers become real numbers without an error."""
        if term.dtype == REAL and term.value is None and dtype != REAL and self.bound(term).bits is None:
            raise Undecidable("a real number is rounded to another type")
        if term.dtype == WHOLE and term.value is None and dtype == REAL:
            most = max(map(abs, term.bounds)) if term.bounds else 1 << 63
            if most.bit_length() > _EXACT_BITS:
                raise Undecidable("integers beyond float64")
            size = self._sizes.constant(np.asarray(float(most)))
            return self._keep(super().cast(term, dtype), NumberError(size, 0, 0, most.bit_length(), is_number=True))
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
        if bound.roundings > _MAX_ROUNDINGS or bound.products > _MAX_PRODUCTS:
            raise Undecidable("many operations")
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
        bound = _RULES[name](bounds)
        number = super()._float(name, dtype, terms)
        if name in _CHOICES and (bound.roundings or bound.bits is not None):  # NaN sets the flag.
            code = self.loops.value("double", _CHOICES[name].format(*(t.code for t in terms)))
            number, bound = replace(number, code=code), replace(bound, is_number=bounds[1].is_number)
        return self._keep(number, bound)

    def _compare(self, name: str, terms: list[LoopTerm], bounds: list[NumberError]) -> LoopTerm:
        """Write a comparison; one of numbers that operations have not changed is exact."""
        if any(b.roundings or b.products for b in bounds):
            distance = self.loops.value("double", f"bs_size({terms[0].code} - {terms[1].code})")
            self._decide(distance, _sum(bounds), _GREATEST_ERROR)
        return super()._float(name, REAL, terms)

    def _round(self, term: LoopTerm, bound: NumberError) -> LoopTerm:
        """Write a number rounded to an integer."""
        number = super()._float("rint", REAL, [term])
        if bound.roundings:
            number = replace(number, code=self.loops.value("double", f"({term.code} + 0x1.8p52) - 0x1.8p52"))
            distance = self.loops.value("double", f"0.5 - bs_size({term.code} - {number.code})")
            self._decide(distance, bound, 0.5)
        elif bound.bits is None:
            greatest = (2.0**_ROUNDED_BITS).hex()
            self._flag(greatest, f"bs_size({term.code})", greatest)
        bits = _ROUNDED_BITS if bound.bits is None else bound.bits
        return self._keep(number, NumberError(self._size_of(number), 0, 0, bits))

    def _whole(self, term: LoopTerm) -> LoopTerm:
        low, high = term.bounds or (_INT32[0] - 1, 0)
        if term.dtype != REAL or not self.bound(term).is_number or low < _INT32[0] or high > _INT32[1]:
            return super()._whole(term)
        return LoopTerm(self, WHOLE, self.loops.value("int32_t", f"(int32_t){term.code}"), (int(low), int(high)))

    def _decide(self, distance: str, bound: NumberError, most: float) -> None:
        """Set the flag unless a distance is above the error of its number, and the error below `most`.

        One rounding more makes the error greater than 0.5 where the number is above 2^51.
        """
        scale = (bound.roundings + 1) * _UNIT * _SAFETY_FACTOR
        error = self._sizes.held(bound.size * scale + _SUBNORMAL_ERROR)
        self._flag(distance, error.code, most.hex())
        self.decides_rounded = True

    def _flag(self, distance: str, error: str, most: str) -> None:
        self.loops.do(f"{FLAG} |= bs_undecided_bit({distance}, {error}, {most});")


def _fractions(value: Tensor) -> Tensor:
    """Return constants as fractions; Undecidable if one is infinite or not a number."""
    if value.dtype != object and not np.isfinite(value).all():
        raise Undecidable("a constant that is infinite or not a number")
    exact: Tensor = Fractions().constant(value)
    return exact


def _changes_nothing(name: str, value: Tensor) -> bool:
    neutral = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1}.get(name)
    return neutral is not None and value.size == 1 and bool(np.all(value == neutral))


_Rule = Callable[[list[NumberError]], NumberError]


def _sum(bounds: list[NumberError]) -> NumberError:
    a, b = bounds
    if a.bits is not None and b.bits is not None and max(a.bits, b.bits) < _EXACT_BITS:
        return NumberError(a.size + b.size, 0, 0, max(a.bits, b.bits) + 1)
    return NumberError(a.size + b.size, max(a.roundings, b.roundings) + 1, max(a.products, b.products))


def _product(bounds: list[NumberError]) -> NumberError:
    """Return the bound of a product with a constant; Undecidable of two variables."""
    a, b = sorted(bounds, key=lambda bound: bound.is_constant)
    if not b.is_constant or b.size.value is None or b.size.value.max() > _GREATEST_FACTOR:
        raise Undecidable("a product of variables, or with a large constant")
    return NumberError(a.size * b.size, a.roundings + b.roundings + (not b.is_power), a.products + 1)


def _choice(bounds: list[NumberError]) -> NumberError:
    """Return the bound of one of two numbers, whichever it is."""
    a, b = bounds
    bits = None if a.bits is None or b.bits is None else max(a.bits, b.bits)
    is_zero = b.size.value is not None and not b.size.value.any()
    size = a.size if is_zero else a.size + b.size
    return NumberError(size, max(a.roundings, b.roundings), max(a.products, b.products), bits)


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
