"""Bit-vector values over any domain: the operators a lane expression may use.

A domain gives a meaning to a dozen primitives (`domains/`). Everything here is
written once on top of them, so ints, numpy arrays, Z3 terms and linear forms all
run the same instruction text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bitsynth.isa.domains.domain import Domain

MAX_WIDTH = 64
"""No intermediate value of a lane expression is wider."""
_MAX_INDICES = 4096


@dataclass(eq=False, slots=True)
class Bits:
    """`w` bits with payload `v` in domain `d`. Not frozen: making one is what the interpreter does most."""

    d: Domain
    w: int
    v: Any

    def lift(self, other: Bits | int) -> Bits:
        """Return `other` as bits of the same width; a number becomes a constant."""
        if not isinstance(other, Bits):
            return Bits(self.d, self.w, self.d.const(other, self.w))
        if other.w != self.w:
            raise TypeError(f"width mismatch: {self.w} bits against {other.w}")
        return other

    def __add__(self, other: Bits | int) -> Bits:
        return Bits(self.d, self.w, self.d.add(self.v, self.lift(other).v, self.w))

    __radd__ = __add__

    def __sub__(self, other: Bits | int) -> Bits:
        return Bits(self.d, self.w, self.d.sub(self.v, self.lift(other).v, self.w))

    def __rsub__(self, other: int) -> Bits:
        return self.lift(other) - self

    def __mul__(self, other: Bits | int) -> Bits:
        return Bits(self.d, self.w, self.d.mul(self.v, self.lift(other).v, self.w))

    __rmul__ = __mul__

    def __and__(self, other: Bits | int) -> Bits:
        return Bits(self.d, self.w, self.d.and_(self.v, self.lift(other).v, self.w))

    def __or__(self, other: Bits | int) -> Bits:
        return Bits(self.d, self.w, self.d.or_(self.v, self.lift(other).v, self.w))

    def __xor__(self, other: Bits | int) -> Bits:
        return Bits(self.d, self.w, self.d.xor(self.v, self.lift(other).v, self.w))

    def __invert__(self) -> Bits:
        return Bits(self.d, self.w, self.d.not_(self.v, self.w))

    def __lshift__(self, n: int) -> Bits:
        return Bits(self.d, self.w, self.d.shl(self.v, _amount(n), self.w))

    def __rshift__(self, n: int) -> Bits:
        return Bits(self.d, self.w, self.d.lshr(self.v, _amount(n), self.w))


def _amount(n: object) -> int:
    if not isinstance(n, int) or n < 0:
        raise TypeError(f"a shift wants a number of bits known in advance, not {n!r}")
    return n


def lift_both(a: Bits | int, b: Bits | int) -> tuple[Bits, Bits]:
    """Return two operands as bits of the same width; one of them may be a number."""
    like = a if isinstance(a, Bits) else b
    if not isinstance(like, Bits):
        raise TypeError("two numbers have no width")
    return like.lift(a), like.lift(b)


def require_float(x: Bits, width: int) -> Bits:
    """Return the bits of a float of `width` bits; TypeError if there are more or fewer."""
    if x.w != width:
        raise TypeError(f"float{width} has {width} bits, not {x.w}")
    return x


def lift_floats(a: Bits | int, b: Bits | int, width: int) -> tuple[Bits, Bits]:
    """Return the bits of two floats of `width` bits; one of them may be a number."""
    a, b = lift_both(a, b)
    return require_float(a, width), b


@dataclass(frozen=True, eq=False, slots=True)
class Cond:
    """A truth value in domain `d`."""

    d: Domain
    v: Any


def _widen(x: Bits, to: int) -> None:
    if not x.w <= to <= MAX_WIDTH:
        raise TypeError(f"{x.w} bits cannot be widened to {to}; at most {MAX_WIDTH} are kept")


def zext(x: Bits, to: int) -> Bits:
    """Return `x` widened with zeros to `to` bits."""
    _widen(x, to)
    return Bits(x.d, to, x.d.zext(x.v, x.w, to))


def sext(x: Bits, to: int) -> Bits:
    """Return `x` widened with its sign to `to` bits."""
    _widen(x, to)
    return Bits(x.d, to, x.d.sext(x.v, x.w, to))


def trunc(x: Bits, to: int) -> Bits:
    """Return the low `to` bits of `x`."""
    if not 0 < to <= x.w:
        raise TypeError(f"{x.w} bits have no low {to}")
    return Bits(x.d, to, x.d.trunc(x.v, x.w, to))


def ult(a: Bits, b: Bits | int) -> Cond:
    """Return unsigned a < b."""
    return Cond(a.d, a.d.ult(a.v, a.lift(b).v, a.w))


def slt(a: Bits, b: Bits | int) -> Cond:
    """Return signed a < b."""
    sign = 1 << (a.w - 1)
    return ult(a ^ sign, a.lift(b) ^ sign)


def eq(a: Bits, b: Bits | int) -> Cond:
    """Return a == b."""
    return Cond(a.d, a.d.eq(a.v, a.lift(b).v, a.w))


def ite(cond: Cond, a: Bits | int, b: Bits | int) -> Bits:
    """Return `a` if `cond` holds, else `b`."""
    if not isinstance(a, Bits) and not isinstance(b, Bits):
        raise TypeError("ite wants at least one bit-vector branch")
    a, b = lift_both(a, b)
    return Bits(a.d, a.w, cond.d.ite(cond.v, a.v, b.v, a.w))


def udiv(a: Bits, b: Bits | int) -> Bits:
    """Return unsigned a / b, rounded down; all ones if b is 0."""
    return Bits(a.d, a.w, a.d.udiv(a.v, a.lift(b).v, a.w))


def bit(cond: Cond) -> Bits:
    """Return one bit: 1 if `cond` holds."""
    d = cond.d
    return Bits(d, 1, d.ite(cond.v, d.const(1, 1), d.const(0, 1), 1))


def join(parts: Iterable[Bits]) -> Bits:
    """Return the bits of `parts`, of one width each, lowest first."""
    first, *others = parts
    payloads = [first.v, *(first.lift(x).v for x in others)]
    width = first.w * len(payloads)
    if width > MAX_WIDTH:
        raise TypeError(f"{width} bits cannot be joined; at most {MAX_WIDTH} are kept")
    return Bits(first.d, width, first.d.join(payloads, first.w))


def absdiff(a: Bits, b: Bits) -> Bits:
    """Return |a - b| of unsigned operands."""
    return ite(ult(a, b), b - a, a - b)


def popcount(x: Bits) -> Bits:
    """Return the number of set bits, as wide as `x`."""
    return Bits(x.d, x.w, x.d.popcount(x.v, x.w))


def total(xs: Iterable[Bits]) -> Bits:
    """Return the sum of one or more values."""
    first, *others = xs
    for x in others:
        first = first + x
    return first


def smin(a: Bits, b: Bits | int) -> Bits:
    """Return the lesser of signed numbers."""
    return ite(slt(a, b), a, b)


def smax(a: Bits, b: Bits | int) -> Bits:
    """Return the greater of signed numbers."""
    return ite(slt(a, b), b, a)


def sclamp(x: Bits, to: int) -> Bits:
    """Return signed saturation of `x` to `to` bits."""
    low, high = -(1 << (to - 1)), (1 << (to - 1)) - 1
    return trunc(ite(slt(x, low), low, ite(slt(x.lift(high), x), high, x)), to)


def uclamp(x: Bits, to: int) -> Bits:
    """Return saturation of the signed `x` to `to` bits without a sign."""
    high = (1 << to) - 1
    return trunc(ite(slt(x, 0), 0, ite(slt(x.lift(high), x), high, x)), to)


def lookup(table: Iterable[Bits], index: Bits) -> Bits:
    """Return `table[index]`; the index is below the table's length.

    In a computed table, entries beyond a known index need no meaning.
    """
    if isinstance(table, Iterator) and isinstance(index.v, int):
        table = islice(table, index.v + 1)
    first, *others = table
    return Bits(first.d, first.w, first.d.lookup([first.v, *(t.v for t in others)], index.v, index.w))


def concat(a: tuple[Bits, ...], b: tuple[Bits, ...]) -> tuple[Bits, ...]:
    """Return the lanes of `a`, then the lanes of `b`."""
    return a + b


def indices(*ends: int) -> range:
    """Return Python's `range`, no longer than a register could be."""
    out = range(*ends)
    if len(out) > _MAX_INDICES:
        raise ValueError(f"a range of {len(out)} indices")
    return out
