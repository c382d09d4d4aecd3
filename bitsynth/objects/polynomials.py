"""Numbers as polynomials of bits: the normal form in which results of packers are compared.

A payload of `w` bits (`isa/domains/terms.py`) is a sum of products of unknown bits times integers, modulo 2**w. Each
function of bits is one such polynomial, so two payloads have equal polynomials if and only if they are equal for all
bits. Example: of bits x and y

    x + y - 2 x y    the exclusive or, and the lowest bit of the number x + y
    x y              the and, and the next bit of x + y

Parts of a sum are computed where no carry goes into them: ranges of polynomials decide it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any, cast

from bitsynth.isa.domains.terms import BitTerm, Piece, TermPayload
from bitsynth.objects.memory import NotShown

Bit = tuple[Hashable, int]
"""An unknown bit: the key of an atom, and the number of the bit in it."""
Monomial = frozenset[Bit]
"""A product of bits; the product of no bits is 1."""
BitPolynomial = Mapping[Monomial, int]
"""Monomials times integers that are not 0."""
_ONE: Monomial = frozenset()
_MAX_BITS = 12
"""The most bits whose values are all tried, and whose functions are read from a table."""


def total(addends: Iterable[tuple[BitPolynomial, int]]) -> BitPolynomial:
    """Return the sum of polynomials times numbers."""
    out: dict[Monomial, int] = defaultdict(int)
    for polynomial, times in addends:
        for monomial, coef in polynomial.items():
            out[monomial] += coef * times
    return {monomial: coef for monomial, coef in out.items() if coef}


def sum_of(addends: Iterable[tuple[BitPolynomial, int]], bits: int) -> BitPolynomial:
    """Return the sum of polynomials times numbers; coefficients are those nearest to 0 modulo 2**bits."""
    half, every = 1 << bits - 1, (1 << bits) - 1
    return {monomial: (coef + half & every) - half for monomial, coef in total(addends).items() if coef & every}


def product_of(a: BitPolynomial, b: BitPolynomial) -> BitPolynomial:
    """Return the product of two polynomials; the square of a bit is the bit."""
    out: dict[Monomial, int] = defaultdict(int)
    for (x, times), (y, more) in product(a.items(), b.items()):
        out[x | y] += times * more
    return {monomial: coef for monomial, coef in out.items() if coef}


def constant(number: int) -> BitPolynomial:
    """Return the polynomial that is a number."""
    return {_ONE: number} if number else {}


def bit(of: Bit) -> BitPolynomial:
    """Return the polynomial that is an unknown bit."""
    return {frozenset([of]): 1}


def of_table(table: Sequence[int], index: Sequence[BitPolynomial]) -> BitPolynomial:
    """Return table[n] for the number n whose bits are `index`, the lowest first (a Moebius transform)."""
    coefs = list(table)
    for k in range(len(index)):
        for n in range(len(coefs)):
            if n >> k & 1:
                coefs[n] -= coefs[n ^ 1 << k]
    products = {0: constant(1)}

    def product_for(n: int) -> BitPolynomial:
        """Return the product of the bits of the index that are 1 in `n`."""
        if n not in products:
            k = n.bit_length() - 1
            products[n] = product_of(product_for(n ^ 1 << k), index[k])
        return products[n]

    return total((product_for(n), coef) for n, coef in enumerate(coefs) if coef)


def value(polynomial: BitPolynomial, ones: frozenset[Bit]) -> int:
    """Return the number that a polynomial is where these bits are 1, and all others 0."""
    return sum(coef for monomial, coef in polynomial.items() if monomial <= ones)


def counterexample(difference: BitPolynomial) -> frozenset[Bit] | None:
    """Return bits that make a polynomial differ from 0 where they are 1 and all others 0; None if it is 0.

    They are the bits of a monomial that no other monomial divides: there the polynomial is the monomial's coefficient.
    """
    return min(difference, key=lambda monomial: (len(monomial), repr(sorted(monomial, key=repr))), default=None)


def bits_of(polynomial: BitPolynomial) -> list[Bit]:
    """Return the bits that a polynomial depends on, in the order of their first appearance."""
    return list(dict.fromkeys(x for monomial in polynomial for x in sorted(monomial, key=repr)))


def all_values(polynomial: BitPolynomial, bits: Sequence[Bit]) -> list[int]:
    """Return the values of a polynomial by the number that `bits` form, the lowest first."""
    if len(bits) > _MAX_BITS:
        raise NotShown(f"it depends on {len(bits)} bits of data at once")
    coefs = [0] * (1 << len(bits))
    place = {x: 1 << k for k, x in enumerate(bits)}
    for monomial, coef in polynomial.items():
        coefs[sum(place[x] for x in monomial)] += coef
    for k in range(len(bits)):
        for n in range(len(coefs)):
            if n >> k & 1:
                coefs[n] += coefs[n ^ 1 << k]
    return coefs


def bounds(polynomial: BitPolynomial) -> tuple[int, int]:
    """Return a range of a polynomial: the sum of the exact ranges of parts that have no bit in common.

    The range of a part of too many bits is the sum of its monomials' ranges.
    """
    if all(coef > 0 for coef in polynomial.values()):
        return polynomial.get(_ONE, 0), sum(polynomial.values())
    low = high = polynomial.get(_ONE, 0)
    for part in _parts(polynomial):
        bits = bits_of(part)
        if len(part) == 1 or len(bits) > _MAX_BITS:
            low += sum(coef for coef in part.values() if coef < 0)
            high += sum(coef for coef in part.values() if coef > 0)
        else:
            values = all_values(part, bits)
            low, high = low + min(values), high + max(values)
    return low, high


def _parts(polynomial: BitPolynomial) -> Iterable[BitPolynomial]:
    """Yield the parts of a polynomial without its number that have no bit in common."""
    leaders: dict[Bit, Bit] = {}

    def leader(x: Bit) -> Bit:
        """Return the bit that stands for all that are in one part with `x`, as far as monomials were seen."""
        while leaders[x] != x:
            leaders[x] = x = leaders[leaders[x]]
        return x

    for monomial in polynomial:
        first = None
        for x in monomial:
            leaders.setdefault(x, x)
            own = leader(x)
            first = leaders[own] = own if first is None else first
    parts: dict[Bit, dict[Monomial, int]] = defaultdict(dict)
    for monomial, coef in polynomial.items():
        for x in monomial:
            parts[leader(x)][monomial] = coef
            break
    return parts.values()


class BitPolynomials:
    """The polynomials of payloads of one `TermDomain`; NotShown for a payload that has none that is found."""

    def __init__(self) -> None:
        self._found: dict[tuple[BitTerm, int], BitPolynomial] = {}
        self._bits: dict[tuple[BitTerm, int], BitPolynomial] = {}

    def of(self, x: TermPayload, width: int) -> BitPolynomial:
        """Return the polynomial of the lowest `width` bits of a payload, modulo 2**width."""
        if isinstance(x, int):
            return sum_of([(constant(x), 1)], width)
        key = x, min(width, x.width)
        if key not in self._found:
            self._found[key] = sum_of([(self._compute(x, key[1]), 1)], key[1])
        return self._found[key]

    def exact(self, x: TermPayload, width: int) -> BitPolynomial:
        """Return the polynomial whose value is the payload as a number, from 0 to 2**width - 1."""
        return _exact(self.of(x, width), width)

    def _compute(self, x: BitTerm, width: int) -> BitPolynomial:
        """Return the polynomial of the lowest `width` bits of a term: of sums and products they depend on no others."""
        args: Any = x.args
        match x.op:
            case "atom" | "gates" | "and" | "or" | "xor":
                out = total((self.bit(x, k), 1 << k) for k in range(width))
            case "signs":
                out = total([(self.bit(args[0], 0), -1)])
            case "concat":
                out = self._join(_lowest(args, width))
            case "sum":
                assert all(key.width == x.width for key, _ in args[1:])
                out = total([(constant(args[0]), 1), *((self.of(key, width), coef) for key, coef in args[1:])])
            case "mul":
                out = product_of(*(self.of(arg, width) for arg in args))
            case "popcount":
                out = total((self.bit(args[0], k), 1) for k in range(x.width))
            case "lookup":
                out = self._look_up(x)
            case "ite":
                chosen, yes, no = self._condition(args[0]), *(self.of(arg, width) for arg in args[1:])
                out = total([(product_of(chosen, yes), 1), (no, 1), (product_of(chosen, no), -1)])
            case _:
                raise NotShown(f"{x.op} of data has no polynomial here")
        return out

    def _look_up(self, x: BitTerm, place: int | None = None) -> BitPolynomial:
        """Return the polynomial of a number that is read from a table, or of one bit of it."""
        table: Any = x.args[0]
        index: Any = x.args[1]
        count = (len(table) - 1).bit_length()
        if len(table) != 1 << count or not all(isinstance(n, int) and n >> x.width == 0 for n in table):
            raise NotShown("it looks up in what is no table of numbers")
        values = table if place is None else [n >> place & 1 for n in table]
        return of_table(values, [self.bit(index, k) for k in range(count)])

    def _condition(self, x: bool | BitTerm) -> BitPolynomial:
        """Return the polynomial of a comparison, 0 or 1: of numbers whose ranges decide it, or of few bits."""
        if isinstance(x, bool):
            return constant(x)
        if x.op not in {"ult", "eq"}:
            raise NotShown(f"{x.op} of data has no polynomial here")
        args: Any = x.args
        gap = total([(self.exact(args[1], args[0]), 1), (self.exact(args[2], args[0]), -1)])
        low, high = bounds(gap)
        if low > 0 or (low == 0 and x.op == "ult"):
            return constant(0)
        if high < 0:
            return constant(x.op == "ult")
        bits = bits_of(gap)
        holds = [int(n < 0 if x.op == "ult" else n == 0) for n in all_values(gap, bits)]
        return of_table(holds, [bit(k) for k in bits])

    def _join(self, pieces: Sequence[Piece]) -> BitPolynomial:
        """Return the polynomial of pieces, lowest first; the highest piece may be known modulo 2**bits alone."""
        width = sum(bits for _, _, bits in pieces)
        addends: list[tuple[BitPolynomial, int]] = []
        offset, k = 0, 0
        while k < len(pieces):
            x, first, bits = pieces[k]
            signs = pieces[k + 1][0] if k + 1 < len(pieces) else None
            if isinstance(signs, BitTerm) and signs.op == "signs" and self._is_sign(signs, x, first + bits - 1):
                more = pieces[k + 1][2]
                addends.append((_to_signed(self._piece(x, first, bits), bits), 1 << offset))
                if k + 2 < len(pieces):
                    raise NotShown("it computes with the middle of a number that has a sign")
                offset, k = offset + bits + more, k + 2
                continue
            part = self._piece(x, first, bits)
            addends.append((part if offset + bits == width else _exact(part, bits), 1 << offset))
            offset, k = offset + bits, k + 1
        return sum_of(addends, width)

    def _is_sign(self, signs: BitTerm, x: TermPayload, place: int) -> bool:
        """Return whether `signs` repeats bit `place` of a payload."""
        of = signs.args[0]
        if not isinstance(of, BitTerm) or not isinstance(x, BitTerm):
            return False
        if of is x:
            return place == 0 and x.width == 1
        return of.op == "concat" and of.args == ((x, place, 1),)

    def _piece(self, x: TermPayload, first: int, bits: int) -> BitPolynomial:
        """Return the polynomial of bits `first` and on of a payload, modulo 2**bits."""
        if isinstance(x, int):
            return constant(x)
        if x.op == "signs":
            return sum_of([(self.bit(cast("TermPayload", x.args[0]), 0), -1)], bits)
        if x.op in {"atom", "gates", "and", "or", "xor", "lookup"}:
            return sum_of(((self.bit(x, first + k), 1 << k) for k in range(bits)), bits)
        return _shift(self.of(x, first + bits), first, bits)

    def bit(self, x: TermPayload, place: int) -> BitPolynomial:
        """Return the polynomial of one bit of a payload, 0 or 1."""
        if isinstance(x, int):
            return constant(x >> place & 1)
        key = x, place
        if key not in self._bits:
            self._bits[key] = self._bit(x, place)
        return self._bits[key]

    def _bit(self, x: BitTerm, place: int) -> BitPolynomial:
        args: Any = x.args
        match x.op:
            case "atom":
                out = bit((args[0], place))
            case "concat":
                (y, first, _), *_ = _lowest(_without(args, place), 1)
                out = self.bit(y, first)
            case "signs":
                out = self.bit(args[0], 0)
            case "gates":
                products = [[self.bit(factor, place) for factor in factors] for factors in args]
                out = reduce(
                    _exclusive, (reduce(product_of, factors, constant(1)) for factors in products), constant(0)
                )
            case "and":
                out = product_of(*(self.bit(arg, place) for arg in args))
            case "or":
                left, right = (self.bit(arg, place) for arg in args)
                out = total([(left, 1), (right, 1), (product_of(left, right), -1)])
            case "xor":
                out = _exclusive(*(self.bit(arg, place) for arg in args))
            case "lookup":
                out = self._look_up(x, place)
            case _:
                out = _exact(_shift(self.of(x, place + 1), place, 1), 1)
        return out


def _exclusive(a: BitPolynomial, b: BitPolynomial) -> BitPolynomial:
    """Return the exclusive or of two bits."""
    return total([(a, 1), (b, 1), (product_of(a, b), -2)])


def _without(pieces: Sequence[Piece], count: int) -> list[Piece]:
    """Return the pieces above the lowest `count` bits."""
    out: list[Piece] = []
    for x, first, bits in pieces:
        gone = min(bits, count)
        count -= gone
        if gone < bits:
            out.append((x >> gone, 0, bits - gone) if isinstance(x, int) else (x, first + gone, bits - gone))
    return out


def _lowest(pieces: Sequence[Piece], width: int) -> list[Piece]:
    """Return the pieces of the lowest `width` bits."""
    out: list[Piece] = []
    for x, first, bits in pieces:
        kept = min(bits, width - sum(size for _, _, size in out))
        if kept > 0:
            out.append((x & (1 << kept) - 1 if isinstance(x, int) else x, first, kept))
    return out


def _exact(polynomial: BitPolynomial, bits: int) -> BitPolynomial:
    """Return the polynomial that is the number from 0 to 2**bits - 1 which it is modulo 2**bits."""
    ends = bounds(polynomial)
    if ends[0] >= 0 and ends[1] < 1 << bits:
        return polynomial
    low = high = 0
    out: dict[Monomial, int] = {}
    for part in (*_parts(polynomial), constant(polynomial.get(_ONE, 0))):
        # A coefficient is the same number modulo 2**bits if it is taken to be positive.
        positive = {monomial: coef % (1 << bits) for monomial, coef in part.items()}
        chosen = part if bounds(part)[0] >= 0 else positive
        ends = bounds(chosen)
        low, high = low + ends[0], high + ends[1]
        out.update(chosen)
    if low >= 0 and high < 1 << bits:
        return out
    bits_read = bits_of(polynomial)
    if len(bits_read) > _MAX_BITS:
        raise NotShown("a sum of data may leave the bits that it has")
    return of_table([n & (1 << bits) - 1 for n in all_values(polynomial, bits_read)], [bit(x) for x in bits_read])


def _to_signed(polynomial: BitPolynomial, bits: int) -> BitPolynomial:
    """Return the polynomial that is the number from -2**(bits - 1) on which it is modulo 2**bits."""
    half = constant(1 << bits - 1)
    return total([(_exact(total([(polynomial, 1), (half, 1)]), bits), 1), (half, -1)])


def _shift(polynomial: BitPolynomial, first: int, bits: int) -> BitPolynomial:
    """Return bits `first` to `first + bits - 1` of a polynomial that is known modulo 2**(first + bits).

    Each coefficient is a multiple of 2**first and a rest; the rests must add up to less than 2**first.
    """
    if not first:
        return sum_of([(polynomial, 1)], bits)
    below, every = {}, (1 << first) - 1
    for monomial, coef in polynomial.items():
        rest = coef & every
        below[monomial] = rest
    low, high = bounds(below)
    if low < 0 or high > every:
        bits_read = bits_of(polynomial)
        if len(bits_read) > _MAX_BITS:
            raise NotShown("a part of a sum of data, into which a sum may carry, is computed with")
        values = [n >> first & (1 << bits) - 1 for n in all_values(polynomial, bits_read)]
        return of_table(values, [bit(x) for x in bits_read])
    return sum_of([({m: coef - below[m] >> first for m, coef in polynomial.items()}, 1)], bits)
