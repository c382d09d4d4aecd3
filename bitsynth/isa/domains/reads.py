"""Dependency meaning: which input lanes a value was made from."""

from __future__ import annotations

from collections.abc import Sequence

ReadBits = frozenset[tuple[int, int]]
"""Pairs of operand number and lane."""


class ReadsDomain:
    """A payload, or a truth value, is the set of input lanes it may depend on."""

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

    nearest = float_of

    def fmul(self, a: ReadBits, b: ReadBits, toward_zero: bool = False) -> ReadBits:
        return a | b

    fadd = fdiv = flt = fmul
