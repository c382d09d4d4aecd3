"""The domain of dependencies: a value is the set of input lanes that it may depend on.

Given:  lane i is ite(ult(x[i], 4), t[0], t[i])
Result: lane 1 depends on lane 1 of x and lanes 0 and 1 of t

A value depends on everything that its operands depend on, whatever the operation; only a shift by all its bits gives a
constant.
"""

from __future__ import annotations

from collections.abc import Sequence

ReadBits = frozenset[tuple[int, int]]
"""Pairs of operand number and lane."""


class ReadsDomain:
    """Operations on sets of input lanes; a truth value is such a set, too."""

    def const(self, value: int, w: int) -> ReadBits:
        return frozenset()

    def add(self, a: ReadBits, b: ReadBits, w: int) -> ReadBits:
        return a | b

    sub = mul = udiv = and_ = or_ = xor = eq = ult = add

    def not_(self, a: ReadBits, w: int) -> ReadBits:
        return a

    popcount = not_

    def shl(self, a: ReadBits, n: int, w: int) -> ReadBits:
        return a if n < w else frozenset()

    lshr = shl

    def ite(self, cond: ReadBits, a: ReadBits, b: ReadBits, w: int) -> ReadBits:
        return cond | a | b

    def zext(self, a: ReadBits, w: int, to: int) -> ReadBits:
        return a

    sext = trunc = zext

    def lookup(self, table: Sequence[ReadBits], index: ReadBits, w: int) -> ReadBits:
        return index.union(*table)

    def join(self, parts: Sequence[ReadBits], w: int) -> ReadBits:
        return frozenset().union(*parts)

    def split(self, a: ReadBits, w: int, to: int) -> list[ReadBits]:
        return [a] * (w // to)

    def float_of(self, a: ReadBits) -> ReadBits:
        return a

    nearest = double_of = double_of_float = int_of = float_of

    def fmul(self, a: ReadBits, b: ReadBits, toward_zero: bool = False) -> ReadBits:
        return a | b

    fadd = fdiv = flt = fle = dmul = dadd = dsub = ddiv = dlt = dle = fmul
