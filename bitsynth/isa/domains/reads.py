"""Dependency meaning: which input lanes a value was made from."""

from __future__ import annotations

from collections.abc import Sequence

Payload = frozenset[tuple[int, int]]
"""Pairs of operand number and lane."""


class ReadsDomain:
    """A payload, or a truth value, is the set of input lanes it may depend on."""

    def const(self, value: int, w: int) -> Payload:
        return frozenset()

    def add(self, a: Payload, b: Payload, w: int) -> Payload:
        return a | b

    sub = mul = and_ = or_ = xor = eq = ult = add

    def not_(self, a: Payload, w: int) -> Payload:
        return a

    popcount = not_

    def shl(self, a: Payload, n: int, w: int) -> Payload:
        return a if n < w else frozenset()

    lshr = shl

    def ite(self, cond: Payload, a: Payload, b: Payload, w: int) -> Payload:
        return cond | a | b

    def zext(self, a: Payload, w: int, to: int) -> Payload:
        return a

    sext = trunc = zext

    def lookup(self, table: Sequence[Payload], index: Payload, w: int) -> Payload:
        return index.union(*table)

    def join(self, parts: Sequence[Payload], w: int) -> Payload:
        return frozenset().union(*parts)

    def split(self, a: Payload, w: int, to: int) -> list[Payload]:
        return [a] * (w // to)
